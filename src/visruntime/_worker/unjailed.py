"""What the processes of workers without a jail share: a pidfd, a meter, and no limit."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from _thread import allocate_lock
from contextlib import nullcontext, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from contextlib import AbstractContextManager
    from typing import Any

    from visruntime._worker.meter import ProcessMeter
else:
    import _signal as signal

__all__ = ["UnjailedProcess"]


class UnjailedProcess:
    """A process that nothing limits; it takes the descriptors of *pidfd* and *meter*."""

    def __init__(self, pidfd: int, meter: ProcessMeter) -> None:
        self._pidfd: int | None = pidfd
        self._gate = allocate_lock()  # between a signal of any thread and the end of the descriptor
        self._usage: ProcessMeter | None = meter

    @property
    def pidfd(self) -> int | None:
        """Readable once the process has ended."""
        return self._pidfd

    def end(self) -> None:
        """End the process; may come from any thread, and gives nothing back."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with self._gate:
            if self._pidfd is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, number)

    def read(self, descriptor: int, size: int) -> bytes:
        """As `os.read`."""
        return os.read(descriptor, size)

    def pending(self, descriptor: int) -> int:
        """Return how many bytes wait in a pipe."""
        count = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
        return int.from_bytes(count, sys.byteorder)

    def noted(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def signal_descendants(self, number: int) -> int:
        """Signal all that descends from the process, but not itself; return how many there were."""
        return 0 if self._usage is None else self._usage.signal_descendants(number)

    def cpu_seconds(self) -> float | None:
        """Processor seconds of the process itself so far."""
        return None if self._usage is None else self._usage.cpu_seconds()

    def children_cpu_seconds(self) -> float:
        """Processor seconds of its children that have ended so far."""
        return 0.0 if self._usage is None else self._usage.children_cpu_seconds()

    def peak_memory(self) -> int | None:
        """Largest resident size so far, in bytes."""
        return None if self._usage is None else self._usage.peak_memory()

    def locate(self, _pid: int) -> None:
        """Nothing: its number is known from the start."""

    # Without a jail there is no cgroup to measure by, no limit and no policy.

    @property
    def stopped_by(self) -> str | None:
        """Nothing."""
        return None

    @property
    def violations(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def refusals(self) -> tuple[list[Any], int]:
        """Nothing."""
        return [], 0

    def span(self) -> None:
        """Nothing."""

    def refused(self, _span: Any) -> tuple[Any, ...]:
        """Nothing."""
        return ()

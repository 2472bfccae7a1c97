"""The process of a copied worker without a jail: nobody's child that this process could wait for."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from visruntime._worker.meter import ProcessMeter
from visruntime._worker.unjailed import UnjailedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OrphanProcess"]

_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<QQ11Ii")
"""PIDFD_GET_INFO with what it fills (linux/pidfd.h): mask, ..., exit_code."""
_KILLED_SECONDS = 10.0
_STILL_TURNS = 100
_STILL_SECONDS = 0.001
"""How often, and how far apart, it is looked whether a process stands still."""


class OrphanProcess(UnjailedProcess):
    """A process that was forked by a worker and left to its next ancestor to wait for.

    Its end is seen by its pidfd, which this takes. How it ended the kernel tells since Linux
    6.15, once that ancestor has waited; on others it is not known.
    """

    def __init__(self, pidfd: int, pid: int) -> None:
        super().__init__(pidfd, ProcessMeter(pid))
        self._pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs and where that is not known."""
        return self.wait(0.0)

    def has_ended(self) -> bool:
        """Whether it has ended, however that was."""
        return self._pidfd is None or self._is_readable(0.0)

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds for the end."""
        if self._code is None and self._pidfd is not None and self._is_readable(timeout):
            self._code = _exit_code(self._pidfd)
        return self._code

    def _is_readable(self, timeout: float) -> bool:
        assert self._pidfd is not None
        waiting = select.poll()
        waiting.register(self._pidfd, select.POLLIN)
        return bool(waiting.poll(timeout * 1000))

    def kill(self) -> None:
        """End the process and its process group, and give back the descriptors."""
        if self._pidfd is None:
            return
        self._signal_group(signal.SIGKILL)
        self.end()
        self.wait(_KILLED_SECONDS)
        if self._usage is not None:
            self._usage.close()
            self._usage = None
        with self._gate:
            os.close(self._pidfd)
            self._pidfd = None

    def suspend(self, *, suspended: bool) -> None:
        """Stop the process group, or let it go on."""
        self._signal_group(signal.SIGSTOP if suspended else signal.SIGCONT)
        if not suspended:
            self._signal(signal.SIGCONT)
            return
        for _ in range(_STILL_TURNS):
            if self._usage is None or self._usage.is_stopped():
                return
            time.sleep(_STILL_SECONDS)

    def _signal_group(self, number: int) -> None:
        # While it is stopped it cannot end, and its number is no other process's group.
        self._signal(signal.SIGSTOP)
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def expect(self) -> Any:
        """Get ready for a copy of this worker."""
        return ExpectedOrphan()


class ExpectedOrphan:
    """A copy of a worker without a jail that is about to be forked."""

    has_keeper = False

    def adopt(self, pidfd: int, pid: int) -> OrphanProcess:
        """Take the process; the descriptor with it."""
        return OrphanProcess(pidfd, pid)

    def close(self) -> None:
        """Expect it no longer."""


def _exit_code(pidfd: int) -> int | None:
    ways: tuple[Callable[[int], int | None], ...] = (_by_waiting, _by_asking)
    return next((code for way in ways if (code := way(pidfd)) is not None), None)


def _by_waiting(pidfd: int) -> int | None:
    """The exit code, if it came to be a child of this process (pid 1, or a subreaper)."""
    with suppress(ChildProcessError):
        end = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        if end is not None:
            return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
    return None


def _by_asking(pidfd: int) -> int | None:
    """The exit code, if the kernel tells it of a process that was waited for."""
    info = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
    with suppress(OSError):
        fcntl.ioctl(pidfd, _GET_INFO, info)
        mask, *_, status = _INFO.unpack(info)
        if mask & _INFO_EXIT:
            return os.waitstatus_to_exitcode(status)
    return None

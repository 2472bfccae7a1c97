"""A terminal that is a worker's standard input, and nothing else of it."""

from __future__ import annotations

import os
import select
import termios
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WorkerTerminal"]

MAX_LINE = 4_000
"""Bytes of one line; the kernel takes 4,095 of a line on a terminal and drops the rest."""


class WorkerTerminal:
    """The host's end of the terminal on descriptor 0 of a worker.

    Each worker gets a new one. It is nobody's controlling terminal, so that no key of it is a signal,
    and it does not echo. Nothing is ever read from it here: what a guest writes there goes nowhere.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours = self._theirs = -1

    def __del__(self) -> None:
        self.close()

    def attach(self, make: Callable[[], tuple[int, int]]) -> int:
        """Make a terminal for a new worker and return the descriptor that it is to have."""
        self.close()
        with self._lock:
            self._ours, self._theirs = make()
            os.set_inheritable(self._ours, False)
            os.set_blocking(self._ours, False)
            settings = termios.tcgetattr(self._theirs)
            settings[3] &= ~termios.ECHO
            termios.tcsetattr(self._theirs, termios.TCSANOW, settings)
            return self._theirs

    def write(self, data: bytes, timeout: float) -> None:
        """Type *data*.

        Raises:
            ValueError: a line of it is longer than a terminal takes.
            TimeoutError: there was no worker, or the guest did not read what was typed before; then
                a part may have got in.
        """
        if max(map(len, data.split(b"\n"))) > MAX_LINE:
            raise ValueError(f"a line typed on a terminal has at most {MAX_LINE} bytes")
        end = time.monotonic() + timeout
        rest = memoryview(data)
        while rest:
            with self._lock:
                written = self._write(rest)
            rest = rest[written:]
            if written:
                continue
            if time.monotonic() > end:
                raise TimeoutError("the guest does not read its terminal")
            select.select((), (), (), 0.01)

    def _write(self, rest: memoryview) -> int:
        """Type the first line of *rest*, or as much of it as there is room for."""
        if self._ours < 0:
            return 0
        line = bytes(rest[: MAX_LINE + 1]).find(b"\n") + 1 or len(rest)
        try:
            return os.write(self._ours, rest[:line])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Give both ends back."""
        with self._lock:
            ours, theirs, self._ours, self._theirs = self._ours, self._theirs, -1, -1
        for descriptor in (ours, theirs):
            if descriptor >= 0:
                os.close(descriptor)

"""Break what the guest is doing, at moments when that is safe.

The control thread sends a private signal to the main thread; the handler here raises
:class:`VisInterrupt` in the guest's code. Between the guest's code and the protocol are
moments when an exception would lose a frame, so the handler first looks where it landed.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
from time import monotonic

import _viscore as core  # type: ignore[import-not-found]

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PAUSE = 0.05
"""Seconds between two exceptions: the time the session has to leave a broken run."""


class VisInterrupt(BaseException):
    """The host asked for an end of this run (``timeout=`` or ``interrupt()``).

    ``cancelled`` says that the run's task was cancelled instead of broken off.
    """

    __module__ = "visruntime"
    cancelled = False


def reserve(numbers: tuple[int, ...]) -> None:
    """Make ``signal.signal`` refuse the runtime's own signals as it refuses SIGKILL.

    A program that sets a handler for every signal expects that answer. What it could do
    to them in other ways, the control thread undoes (on Windows the host ends the worker).
    """
    original = _signal.signal

    def signal(number: int, handler: object, /) -> object:
        if number in numbers:
            raise OSError(22, "Invalid argument")
        return original(number, handler)

    _signal.signal = signal


class Interrupts:
    """Says whether an interrupt may be raised now, and raises it."""

    __slots__ = ("_armed", "_cancel", "_in_channel", "_last", "_main", "_pending", "cancelled")

    def __init__(self, signal_number: int) -> None:
        self._main = _thread.get_ident()
        self._armed = False
        self._in_channel = False
        self._pending = False
        self._last = 0.0
        self._cancel: Callable[[], bool] | None = None
        self.cancelled: bool = False
        _signal.signal(signal_number, self._handle)

    def _handle(self, _number: int, _frame: object) -> None:
        if not self._armed:
            return
        if self._in_channel and not core.waiting():
            self._pending = True
            return
        now = monotonic()
        if now - self._last < _PAUSE:
            return
        self._last = now
        cancel, self._cancel = self._cancel, None
        if cancel is not None and cancel():
            self.cancelled = True
            return
        raise VisInterrupt

    def raise_in_main(self) -> None:
        """Raise the interrupt that the host has sent already, if this is the main thread."""
        if _thread.get_ident() == self._main and self._armed:
            self._last = monotonic()
            raise VisInterrupt

    def watch_task(self, asyncio: Any) -> None:
        """Have the next interrupt cancel the running task, if the loop then waits.

        So that the task can end in order, as after ``task.cancel()``. Only once, and only where
        no code runs that would not see it: what goes on in spite of it meets the exception.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()

        def cancel() -> bool:
            if asyncio.current_task(loop) is not None:
                return False
            loop.call_soon_threadsafe(task.cancel)
            return True

        self._cancel = cancel

    def forget_task(self) -> None:
        """End what :meth:`watch_task` began."""
        self._cancel = None

    def begin_run(self) -> None:
        """A new run has nothing to leave yet, so its first interrupt counts at once."""
        self._last = 0.0
        self.cancelled = False

    def guarded(
        self, function: Callable[..., object], *arguments: object
    ) -> tuple[object, BaseException | None]:
        """Call *function* so that it can be interrupted; return its result or exception."""
        try:
            self._armed = True
            result = function(*arguments)
            self._armed = False
        except BaseException as exception:
            self._armed = False
            return None, exception
        return result, None

    def enter_channel(self) -> None:
        """From now on only a wait for the host may be broken, on the main thread."""
        if _thread.get_ident() == self._main:
            self._in_channel = True

    def leave_channel(self) -> None:
        """End what :meth:`enter_channel` began; raises an interrupt that came meanwhile."""
        if _thread.get_ident() != self._main:
            return
        self._in_channel = False
        if self._pending:
            self._pending = False
            if self._armed:
                raise VisInterrupt

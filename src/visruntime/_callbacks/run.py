"""One call of a function of the host while it runs: here, in a thread, or in a loop."""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock
from contextvars import ContextVar, copy_context

from visruntime._callbacks.bell import make_bell
from visruntime._callbacks.stack import stack_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from visruntime._callbacks.bell import Bell

__all__ = ["Call", "calls_around"]

_AROUND: ContextVar[tuple[Call, ...]] = ContextVar("visruntime_calls", default=())
"""The calls of guests in which this code runs; threads and tasks that they start inherit it."""


def calls_around() -> tuple[Call, ...]:
    """Return the calls of guests, of any runtime, in which the calling code runs."""
    return tuple(call for call in _AROUND.get() if not call.over)


class Call:
    """One call of the guest: the function with its arguments, and what has become of it.

    ``cancellable`` says that it can be broken from outside, as only an async function can.
    ``over`` says that it has ended, or that nobody waits for it any longer.
    """

    __slots__ = (
        "_began",
        "_bell",
        "_cancelled",
        "_function",
        "_gate",
        "_loop",
        "_outcome",
        "_submit",
        "_task",
        "_thread",
        "cancellable",
        "name",
        "over",
        "owner",
    )

    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        owner: object,
        submit: Callable[[Any], Any] | None = None,
    ) -> None:
        """Prepare a call; nothing runs yet.

        Args:
            name: what the guest called.
            function: does the call.
            owner: whose guest is calling.
            submit: runs an awaitable in some loop and returns a `concurrent.futures.Future`;
                without it the awaitable gets a thread and a loop of its own.
        """
        self.name: str = name
        self.owner: object = owner
        self.over: bool = False
        self.cancellable: bool = False
        self._function = function
        self._submit = submit
        self._began = time.monotonic()
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._bell: Bell | None = None
        self._gate = allocate_lock()  # between `wake` of any thread and the end of the bell
        self._thread: int | None = None
        self._cancelled = False
        self._loop: Any = None
        self._task: Any = None

    # Running.

    def start(self, *, in_thread: bool) -> bool:
        """Run the function; return whether it has ended.

        Args:
            in_thread: run it in a thread of its own, so that the caller can stop waiting.
        """
        token = _AROUND.set((*_AROUND.get(), self))
        try:
            if in_thread:
                self._run_in_thread(self._call_and_finish)
                return False
            self._thread = threading.get_ident()
            result = self._function()
            if not hasattr(type(result), "__await__"):
                self._outcome = (result, None)
            elif self._submit is not None:
                self._watch(self._submit(result))
            else:
                self.cancellable = True
                self._run_in_thread(lambda: self._finish(result))
        except Exception as problem:  # noqa: BLE001 (whatever it is, it is the guest's answer)
            self._outcome = (None, problem)
        finally:
            _AROUND.reset(token)
        return self._outcome is not None

    def _run_in_thread(self, function: Callable[[], Any]) -> None:
        self._bell = make_bell()

        def run() -> None:
            self._thread = threading.get_ident()
            self._settle(function)

        # A daemon: a function that never returns must not keep the host from ending.
        thread = threading.Thread(
            target=copy_context().run, args=(run,), name="visruntime-callback", daemon=True
        )
        thread.start()

    def _call_and_finish(self) -> Any:
        result = self._function()
        if not hasattr(type(result), "__await__"):
            return result
        if self._submit is not None:
            future = self._submit(result)
            self._task = future
            self.cancellable = True
            if self._cancelled:
                future.cancel()
            return future.result()
        self.cancellable = True
        return self._finish(result)

    def _finish(self, awaitable: Any) -> Any:
        """Run an awaitable to its end in a loop of its own.

        The thread that waits may be running a loop already, and that must not be nested.
        """
        import asyncio

        async def finish() -> Any:
            self._task = asyncio.current_task()
            self._loop = asyncio.get_running_loop()
            if self._cancelled:
                self._task.cancel()
            return await awaitable

        return asyncio.run(finish())

    def _watch(self, future: Any) -> None:
        self._bell = make_bell()
        self._task = future
        self.cancellable = True
        future.add_done_callback(lambda future: self._settle(future.result))

    def _settle(self, function: Callable[[], Any]) -> None:
        """Keep what *function* returns or raises as the end of this call."""
        try:
            self._outcome = (function(), None)
        except BaseException as problem:  # noqa: BLE001 (raised again where it is waited for)
            self._outcome = (None, problem)
        self.over = True
        self.wake()

    # Waiting.

    @property
    def given_up(self) -> bool:
        """Whether somebody wanted it to end before it did."""
        return self._cancelled

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._outcome is not None

    def fileno(self) -> int:
        """A descriptor that is readable once there is something to look at; -1 where there is none."""
        return -1 if self._bell is None else self._bell.fileno()

    def hear(self, seconds: float) -> None:
        """Wait until there is something to look at, so long at most."""
        if self._bell is not None:
            self._bell.hear(seconds)

    def wake(self) -> None:
        """Have whoever waits look at this call."""
        with self._gate:
            if self._bell is not None:
                self._bell.ring()

    def cancel(self) -> bool:
        """Break it, from any thread; whether that is possible."""
        self._cancelled = True
        self.wake()
        if not self.cancellable or self.done:
            return False
        if self._loop is None:
            if self._task is not None:  # a future; else it is cancelled when its loop starts
                self._task.cancel()
            return True
        try:
            self._loop.call_soon_threadsafe(self._task.cancel)
        except RuntimeError:  # its loop has just ended
            return False
        return True

    def let_go(self) -> None:
        """Wait for it no longer; what it still does is nobody's."""
        self.over = True
        with self._gate:
            if self._bell is not None:
                self._bell.close()
                self._bell = None

    def value(self) -> Any:
        """Return what the function returned, or raise what it raised.

        Raises:
            TimeoutError: it has not ended.
        """
        if self._outcome is None:
            seconds = time.monotonic() - self._began
            raise TimeoutError(f"the host gave up {self.name} after {seconds:.3g} s")
        value, problem = self._outcome
        if problem is None:
            return value
        # That of asyncio is no Exception, and would end the host's own task.
        if type(problem).__name__ == "CancelledError":
            raise TimeoutError(f"the host's function {self.name} was cancelled") from None
        raise problem

    def stack(self) -> str:
        """Where the function is now, as text; "" where that is not known."""
        if self._thread is None or self.done:
            return ""
        return stack_of(self._thread)

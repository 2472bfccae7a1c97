"""A run that goes on while its caller does something else."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextvars import copy_context

from visruntime._arguments import check_seconds
from visruntime._runtime.events import Feed, RunEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from visruntime.callbacks import Callbacks
    from visruntime.results import RunResult

__all__ = ["RunHandle"]

MAX_EVENTS = 10_000
"""Events that wait for a reader; further ones are dropped and counted."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of output and displays in waiting events; the results keep theirs under limits of their own."""
_EVENT_SIZE = 200


class RunHandle:
    """A run under way: iterate over its events, cancel it, or wait for its result.

    Every method may be called from any thread. The events are a queue: each is given out once. A
    reader that is too slow, or none at all, holds up nothing: what does not fit into the queue is
    dropped, counted in ``dropped``, and said by an event of that kind.
    """

    def __init__(self, callbacks: Callbacks, ask: Any) -> None:
        self._callbacks = callbacks
        self._changed = threading.Condition()
        self._events: deque[tuple[RunEvent, int]] = deque()
        self._waiting_bytes = 0
        self._gap = 0
        self._result: RunResult | None = None
        self._problem: BaseException | None = None
        self._done = False
        self._watcher: Callable[[], object] | None = None
        self.dropped: int = 0
        self.feed: Feed = Feed(on_event=self._push, ask=ask, threads=True)

    def __repr__(self) -> str:
        return f"<RunHandle, {'done' if self._done else 'under way'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the run if it is still under way, and wait for its end."""
        self.refuse_in_callback()
        self.cancel()
        with self._changed:
            self._changed.wait_for(lambda: self._done)

    # For the thread that drives the run.

    def start(self, drive: Callable[[], RunResult], release: Callable[[], object]) -> None:
        """Drive the run in a thread of its own, and *release* the runtime after it.

        Where there is no thread to be had the run is over at once.
        """
        first = threading.Lock()  # who gives back the runtime, where starting is interrupted

        def work() -> None:
            if not first.acquire(blocking=False):
                return
            try:
                self._finish(drive(), None)
            except BaseException as problem:  # noqa: BLE001 (raised again by result())
                self._finish(getattr(problem, "result", None), problem)
            finally:
                end()

        def end() -> None:
            release()
            with self._changed:
                self._done = True
                self._tell()

        # The end of the host must not wait for a guest; the worker ends with its host anyway.
        thread = threading.Thread(
            target=copy_context().run, args=(work,), name="visruntime-run", daemon=True
        )
        try:
            thread.start()
        except BaseException as problem:
            if first.acquire(blocking=False):
                self._finish(None, problem)
                end()
            raise

    def _finish(self, result: RunResult | None, problem: BaseException | None) -> None:
        with self._changed:
            self._result, self._problem = result, problem
        if result is not None:
            self.feed.end(result)

    def _push(self, event: RunEvent) -> None:
        size = _size(event)
        with self._changed:
            last = event.kind == "result"
            fits = len(self._events) < MAX_EVENTS and self._waiting_bytes + size <= MAX_EVENT_BYTES
            if not fits and not last:
                self._gap += 1
                self.dropped += 1
                return
            if self._gap:
                self._events.append((RunEvent("dropped", event.ordinal - 1, self._gap), 0))
                self._gap = 0
            self._events.append((event, size))
            self._waiting_bytes += size
            self._tell()

    def _tell(self) -> None:
        """Wake whoever waits; the caller holds the lock."""
        self._changed.notify_all()
        if self._watcher is not None:
            self._watcher()

    # For everybody else.

    def watch(self, watcher: Callable[[], object] | None) -> None:
        """Have *watcher* called now and whenever there is an event or the end, in any thread.

        It must neither wait nor use the handle, but for ``done``. ``None`` ends it.
        """
        with self._changed:
            self._watcher = watcher
            if watcher is not None:
                watcher()

    @property
    def done(self) -> bool:
        """Whether the run is over and the runtime free for the next."""
        return self._done

    def cancel(self) -> None:
        """End the run, which is no error: its result has ``stopped_by`` ``"cancelled"``.

        The guest is interrupted, and its session lives on if it obeys; one that does not is ended
        with its worker, and ``session_lost`` says so. A run that is over is not changed.
        """
        self.feed.cancel()

    def refuse_in_callback(self) -> None:
        """Raise RuntimeError in a function of the host that the guest of this runtime is calling."""
        if self._callbacks.in_callback():
            raise RuntimeError("a host function cannot wait for the run that is calling it")

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the end and return the result, or raise what ``Runtime.run`` would have raised.

        Args:
            timeout: seconds to wait for it; the run itself goes on.

        Raises:
            TimeoutError: the run is still under way.
            RuntimeError: a function of the host asks that the guest of this runtime is calling.
        """
        self.refuse_in_callback()
        check_seconds(timeout, "timeout", past=True)
        with self._changed:
            if not self._changed.wait_for(lambda: self._done, timeout):
                raise TimeoutError(f"the run is still under way after {timeout} s")
        if self._problem is not None:
            raise self._problem
        assert self._result is not None
        return self._result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RunEvent:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> RunEvent | None:
        """Wait for the next event and return it, ``None`` after the last.

        Raises:
            TimeoutError: nothing happened for *timeout* seconds.
            RuntimeError: a function of the host asks that the guest of this runtime is calling.
        """
        self.refuse_in_callback()
        check_seconds(timeout, "timeout", past=True)
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._events and not self._done:
                left = None if end is None else end - time.monotonic()
                if not self._changed.wait(left) and left is not None and not self._events:
                    raise TimeoutError(f"no event within {timeout} s")
            if not self._events:
                return None
            event, size = self._events.popleft()
            self._waiting_bytes -= size
            return event


def _size(event: RunEvent) -> int:
    if isinstance(event.data, bytes):
        return _EVENT_SIZE + len(event.data)
    if event.kind in {"display", "update"}:
        return _EVENT_SIZE + sum(len(event.data[name]) for name in event.data)
    return _EVENT_SIZE + (len(event.data) if isinstance(event.data, str) else 0)

"""What one call has started, so that cancelling the call ends it."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import visruntime
from visruntime._runtime.events import Feed
from visruntime._worker.starting import Starting

if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime._native import RunHandle

__all__ = ["StoppableRuntime", "StoppableTrustedRuntime", "Stopping"]

T = TypeVar("T")


class Stopping:
    """Ends what is done for one call: programs that start in a jail, a worker's start and its run.

    :meth:`stop` may come at any time and from any thread: what starts after it ends at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: list[RunHandle] = []
        self._starting: Starting | None = None
        self._feed: Feed | None = None
        self._stopped = False

    def around(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return *work* such that what it starts is ours; it must run in a context of its own."""

        def run() -> T:
            _CURRENT.set(self)
            return work()

        return run

    def stop(self) -> None:
        """End it: programs and what has yet to start by a kill, a run by interrupting it first."""
        with self._lock:
            self._stopped = True
            programs, starting, feed = list(self._programs), self._starting, self._feed
        for program in programs:
            program.kill()
        if starting is not None:
            starting.cancel()
        if feed is not None:
            feed.cancel()

    @staticmethod
    def current() -> Stopping | None:
        """The call for which this thread works."""
        return _CURRENT.get()

    @staticmethod
    def is_current_stopped() -> bool:
        """Whether that call was ended."""
        call = _CURRENT.get()
        return call is not None and call._stopped

    def program(self, program: RunHandle) -> None:
        """A program has started; a worker is ended as `starts` was told."""
        with self._lock:
            if self._starting is None:
                self._programs.append(program)
            stopped = self._stopped
        if stopped:
            program.kill()

    def run(self, feed: Feed) -> None:
        """A run is going to begin."""
        with self._lock:
            self._feed = feed
            stopped = self._stopped
        if stopped:
            feed.cancel()

    def starts(self, starting: Starting) -> None:
        """A worker is going to start."""
        with self._lock:
            self._starting = starting
            stopped = self._stopped
        if stopped:
            starting.cancel()


_CURRENT: ContextVar[Stopping | None] = ContextVar("visruntime_stopping", default=None)


class _StoppableSession:
    """A session that tells the call which start of a worker and which run are its own."""

    def _new_feed(self, **options: Any) -> Feed:
        feed = Feed(**options)
        call = _CURRENT.get()
        if call is not None:
            call.run(feed)
        return feed

    def _new_starting(self) -> Starting:
        starting = Starting()
        call = _CURRENT.get()
        if call is not None:
            call.starts(starting)
        return starting


class StoppableTrustedRuntime(_StoppableSession, visruntime.TrustedRuntime):
    """A worker without a jail that can be cancelled."""


class StoppableRuntime(_StoppableSession, visruntime.Runtime):
    """A jailed worker that can be cancelled; the class below is that of this system."""

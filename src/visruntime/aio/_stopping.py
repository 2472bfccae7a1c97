"""What one call has started, so that cancelling the call ends it."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from visruntime._runtime.events import Feed
from visruntime.jail import Jail
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime._native import RunHandle
    from visruntime._worker.conversation import Conversation

__all__ = ["StoppableJail", "StoppableRuntime", "StoppableTrustedRuntime", "Stopping"]

T = TypeVar("T")


class Stopping:
    """Ends what is done for one call: programs that start in a jail, and the run of a worker.

    :meth:`stop` may come at any time and from any thread: what starts after it ends at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: list[RunHandle] = []
        self._feed: Feed | None = None
        self._stopped = False

    def around(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return *work* such that what it starts is ours; it must run in a context of its own."""

        def run() -> T:
            _CURRENT.set(self)
            return work()

        return run

    def stop(self) -> None:
        """End it: programs by a kill, a run by interrupting it first."""
        with self._lock:
            self._stopped = True
            programs, feed = list(self._programs), self._feed
        for program in programs:
            program.kill()
        if feed is not None:
            feed.cancel()

    @staticmethod
    def is_current_stopped() -> bool:
        """Whether the call for which this thread works was ended."""
        call = _CURRENT.get()
        return call is not None and call._stopped

    def program(self, program: RunHandle) -> None:
        """A program has started."""
        with self._lock:
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

    def ready(self) -> bool:
        """What has started is a worker that can be interrupted, and is not killed from now on.

        Returns whether it was killed already.
        """
        with self._lock:
            killed = self._stopped and bool(self._programs)
            self._programs.clear()
        return killed


_CURRENT: ContextVar[Stopping | None] = ContextVar("visruntime_stopping", default=None)
"""The call for which this thread works."""


class StoppableJail(Jail):
    """A jail that tells the call which program it has started."""

    def _start(self, **request: Any) -> RunHandle:
        program = super()._start(**request)
        call = _CURRENT.get()
        if call is not None:
            call.program(program)
        return program


class _StoppableSession:
    """A session that tells the call which run is its own."""

    def _new_feed(self, **options: Any) -> Feed:
        feed = Feed(**options)
        call = _CURRENT.get()
        if call is not None:
            call.run(feed)
        return feed


class StoppableTrustedRuntime(_StoppableSession, TrustedRuntime):
    """A worker without a jail whose runs can be cancelled."""


class StoppableRuntime(_StoppableSession, Runtime):
    """A jailed worker that can be cancelled, while it starts too."""

    def _open_jail(self) -> Jail:
        return StoppableJail(self._policy, implicit_read=self._grants, backend=self._backend)

    def _live_worker(self, feed: Feed | None = None) -> Conversation:
        worker = super()._live_worker(feed)
        call = _CURRENT.get()
        if call is not None and call.ready():
            worker.ended_by_host = True  # the next call starts another one
        return worker

"""The verbs of a runtime that any thread may use while another is in a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visruntime._arguments import check_seconds
from visruntime.errors import WorkerDied

if TYPE_CHECKING:
    from visruntime.worker import Worker

__all__ = ["RuntimeControls"]


class RuntimeControls:
    """What acts on the worker of a runtime from outside of its call; `RuntimeSession` inherits it."""

    _worker: Worker | None

    def _refuse_closed(self) -> None:
        raise NotImplementedError

    def interrupt(self) -> None:
        """Break the run under way, from another thread; the session lives on.

        The guest sees ``VisInterrupt``; a task that waits is cancelled first. An async function of
        the host that the guest waits for is cancelled, and one that ``Timeouts(callback=)`` limits
        is no longer waited for. ``run`` returns with ``error.interrupted`` and with ``stop``.
        """
        worker = self._worker
        if worker is not None:
            worker.ask_to_stop()

    def kill(self) -> None:
        """End the worker at once, from any thread; the next call starts a fresh one.

        A call under way raises `WorkerDied` with ``stopped_by`` "killed". The session is lost.
        """
        worker = self._worker
        if worker is not None:
            worker.end()

    def pause(self) -> None:
        """Stop the worker and all that it started (SIGSTOP), from any thread, until :meth:`resume`.

        A call under way goes on waiting, and no limit of `Timeouts` counts that time. Those of the
        policy do: ``wall_seconds`` ends a paused worker, too. A call that begins meanwhile raises
        `WorkerPaused`.

        Raises:
            WorkerDied: there is no worker.
        """
        self._running_worker().suspend(suspended=True)

    def resume(self) -> None:
        """Let a paused worker go on.

        Raises:
            WorkerDied: there is no worker.
        """
        self._running_worker().suspend(suspended=False)

    def ping(self, timeout: float = 2.0) -> float:
        """Return in how many seconds the worker answered, whatever its Python code is doing.

        Raises:
            TimeoutError: it did not within *timeout* seconds: it is paused, or gone.
            WorkerDied: there is no worker.
            JailClosed: the runtime is closed.
        """
        seconds = check_seconds(timeout, "timeout")
        if seconds is None:
            raise TypeError("timeout: expected a number of seconds, not None")
        return self._running_worker().control.ping(seconds)

    def stacks(self) -> str:
        """Every Python thread of the worker as text; works while C code runs.

        Raises:
            TimeoutError: the worker did not answer.
            WorkerDied: there is no worker.
        """
        return self._running_worker().stacks()

    def _running_worker(self) -> Worker:
        worker = self._worker
        if worker is None:
            self._refuse_closed()
            raise WorkerDied("there is no worker now; the next call starts one")
        return worker

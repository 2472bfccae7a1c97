"""The start of a worker, which any thread may end before there is a worker to be ended."""

from __future__ import annotations

from visruntime.errors import WorkerDied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._worker.conversation import Conversation

__all__ = ["Starting"]


class Starting:
    """One start; who waits for it says which worker it waits for."""

    __slots__ = ("_ended", "_worker")

    def __init__(self) -> None:
        self._ended = False
        self._worker: Conversation | None = None

    def holds(self, worker: Conversation) -> None:
        """It is the start of *worker* from now on, which need not have a process yet."""
        self._worker = worker
        if self._ended:
            worker.end()

    def passes(self) -> None:
        """That worker has started and is of use to others: nothing of this start ends it now."""
        self.over()
        self.refuse_ended()

    def cancel(self) -> None:
        """End it, from any thread: who waits for it hears that the worker died."""
        self._ended = True
        worker = self._worker
        if worker is not None:
            worker.end()

    def over(self) -> None:
        """It has come to its end, and ends nothing any more."""
        self._worker = None

    def refuse_ended(self) -> None:
        """Raise WorkerDied where it was ended while it waited for the start of another worker."""
        if self._ended:
            raise WorkerDied("the worker was ended before it had started", stopped_by="killed")

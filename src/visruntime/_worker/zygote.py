"""Zygotes: workers that run no code of users, and are copied instead of being started.

All copies of one zygote are of one trust domain: they live in one jail, and share the hash
secret and the addresses of memory with it and with each other.
"""

from __future__ import annotations

import os
import threading

from visruntime._arguments import check_texts
from visruntime._runtime.events import Feed
from visruntime._runtime.timeouts import Timeouts
from visruntime._worker.conversation import START_SECONDS
from visruntime._worker.copy import copy_worker
from visruntime._worker.limit import LOOK_MILLISECONDS, Timeout
from visruntime.callbacks import Callbacks
from visruntime.errors import WorkerDied
from visruntime.results import GuestFailure
from visruntime.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from visruntime._worker.conversation import Conversation
    from visruntime._worker.starting import Starting

__all__ = ["Zygote", "check_preload"]


class Zygote:
    """Gives fresh workers quickly: copies of one that has imported some modules.

    The zygote itself starts with the first copy, and anew when it has ended (by its time
    limit, say). Copies outlive it. Any thread may ask for one.

    Args:
        start_worker: starts a worker in the ordinary way, in a jail or without one.
        preload: names of modules to import.
        output: most bytes of a stream that are kept of what the imports print.
    """

    def __init__(
        self,
        start_worker: Callable[[Starting], Conversation],
        preload: Iterable[str] = (),
        *,
        output: int | None = None,
    ) -> None:
        self._start_worker = start_worker
        self._output = output
        self._preload = list(preload)
        self._lock = threading.Lock()
        self._original: Worker | None = None
        self._process_id = os.getpid()

    def __del__(self) -> None:
        original = getattr(self, "_original", None)
        if original is not None and os.getpid() == self._process_id:
            original.kill()

    def worker(self, starting: Starting) -> Worker:
        """Return a fresh worker; *starting* can end the start of the zygote, too.

        Raises:
            GuestError: a module to preload could not be imported.
            ForkRefused: a module that was preloaded makes copies impossible; it says why.
            WorkerDied: the zygote, or the copy, ended or did not answer in time.
            ProtocolViolation: it broke the protocol.
        """
        while not self._lock.acquire(timeout=LOOK_MILLISECONDS / 1000):
            starting.refuse_ended()
        try:
            if self._original is not None:
                try:
                    return self._copy(self._original, starting)
                except WorkerDied:
                    # It may have come to its time limit; one that lives is not to blame.
                    if self._original is not None:
                        raise
                    starting.refuse_ended()
            self._original = self._begin(starting)
            starting.passes()
            return self._copy(self._original, starting)
        finally:
            self._lock.release()

    def _copy(self, original: Worker, starting: Starting) -> Worker:
        return copy_worker(original, broken=self._discard, starting=starting)

    def close(self) -> None:
        """End the zygote; its copies live on. Idempotent, and the next copy starts another."""
        with self._lock:
            self._discard()

    def _discard(self) -> None:
        original, self._original = self._original, None
        if original is not None:
            original.kill()

    def _begin(self, starting: Starting) -> Worker:
        worker = self._start_worker(starting)
        assert isinstance(worker, Worker)
        try:
            worker.begin_run(self._output, None)
            reply = worker.request(
                {"op": "preload", "names": self._preload},
                callbacks=Callbacks(),
                feed=Feed(),
                timeouts=Timeouts(wall=START_SECONDS),
            )
            if reply.get("error") is not None:
                raise _failure(reply["error"], worker).to_exception(None)
        except Timeout:
            worker.kill()
            raise WorkerDied(
                f"the modules to preload were not imported within {START_SECONDS:.0f} s"
            ) from None
        except BaseException:
            worker.kill()
            raise
        return worker


def check_preload(preload: Iterable[str]) -> list[str]:
    """Return the names of modules in ``preload=`` of a runtime.

    Raises:
        TypeError, ValueError: it is no list of names; the message says which entry.
    """
    names = check_texts(preload, "preload", '["numpy"]')
    for index, name in enumerate(names):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"preload[{index}]: {name!a:.100} is no name of a module")
    return names


def _failure(claim: object, worker: Worker) -> GuestFailure:
    return GuestFailure.from_claim(claim, _unexplained, worker.secrets)


def _unexplained(_errno: int, _path: str | None) -> None:
    """Nothing of the policy is asked about an import."""

"""Copies of a live worker: have it fork, and drive what comes of that as a worker of its own."""

from __future__ import annotations

import os

from visruntime._policy.redact import redact, shown
from visruntime._runtime.traceback import printable
from visruntime._worker.exchange import FORKED, GREETING
from visruntime._worker.limit import Limit, Timeout
from visruntime._worker.output import CHUNK
from visruntime.errors import (
    CommandError,
    ForkRefused,
    JailClosed,
    ProtocolViolation,
    WorkerDied,
)
from visruntime.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from visruntime._worker.place import Expected, PipedProcess
    from visruntime._worker.starting import Starting

__all__ = ["copy_worker"]

COPY_SECONDS = 5.0
"""How long a worker may take to fork, and the copy until it is ready."""
_MAX_REASON = 1_000
_ALIKE = ("hook_before_init", "mode", "python", "refuses_processes")


class _CopyLimit(Limit):
    """How long a copy may take, which another thread can end before."""

    __slots__ = ("_starting",)

    def __init__(self, starting: Starting) -> None:
        super().__init__(COPY_SECONDS)
        self._starting = starting

    def milliseconds(self) -> float:
        """How long to wait for something to happen."""
        self._starting.refuse_ended()
        return super().milliseconds()


def copy_worker(original: Worker, *, broken: Callable[[], object], starting: Starting) -> Worker:
    """Return a copy of *original*, which must be between two runs.

    The copy has the state of the interpreter, another process, and the same number of the
    last run. *broken* is called where the original cannot be used any more. One that is
    paused goes on for the moment that it takes. *starting* is that of the copy.

    Raises:
        ForkRefused: it cannot be copied in its present state; it is as before.
        CommandError: it was paused, and could not be again; it goes on, and there is no copy.
        WorkerDied: it, or the copy, has ended or did not answer in time.
        ProtocolViolation: it, or the copy, broke the protocol.
    """
    if not original._pauses.under_way:
        return _copy(original, broken, starting)
    original.suspend(suspended=False)
    try:
        copy = _copy(original, broken, starting)
    except BaseException:
        original.suspend(suspended=True)
        raise
    try:
        original.suspend(suspended=True)
    except BaseException:
        copy.kill()  # nobody gets it
        raise
    return copy


def _copy(original: Worker, broken: Callable[[], object], starting: Starting) -> Worker:
    limit = _CopyLimit(starting)
    copy = Worker.__new__(Worker)
    try:
        channel, control = copy._connect(original.place, original._exchange)
    except JailClosed as problem:
        broken()
        raise WorkerDied(str(problem)) from None
    except CommandError as problem:
        raise ForkRefused(str(problem)) from None
    copy.secrets = original.secrets
    copy._reader = original._reader  # its process is not known yet
    try:
        expected = original.process.expect()
    except BaseException as problem:
        for end in (channel, control):
            end.close()
        copy.kill()
        if isinstance(problem, WorkerDied):
            broken()
        raise

    def launch(*descriptors: int) -> None:
        try:
            _order(original, descriptors, limit, has_keeper=expected.has_keeper)
        except ForkRefused:
            raise
        except BaseException:
            expected.close()  # first: the keeper ends nobody while it expects one more
            broken()
            raise

    try:
        copy._open(channel, control, launch)
        for stream in copy.streams:
            stream.begin(CHUNK, None)
        copy._own(_adopt(copy, expected, limit))
        _check_hello(copy, original, _await(copy, GREETING, limit))
    except Timeout:
        copy.kill()
        raise WorkerDied(f"the worker was not copied within {COPY_SECONDS:.0f} s") from None
    except BaseException:
        copy.kill()
        raise
    finally:
        expected.close()
    return copy


def _order(
    original: Worker, descriptors: tuple[int, ...], limit: Limit, *, has_keeper: bool
) -> None:
    """Hand the worker the descriptors of the copy and wait for its answer."""
    late = original.begin_run(CHUNK, None)
    try:
        original.control.hand_over(descriptors)
    except OSError as problem:
        raise WorkerDied(f"the worker takes no orders: {problem.strerror}") from None
    original._send(original._exchange.make_fork(has_keeper=has_keeper), limit)
    reason = _await(original, FORKED, limit)
    original.keep_late(late)
    if reason is not None:
        raise ForkRefused(redact(printable(reason), original.secrets)[:_MAX_REASON])


def _await(worker: Worker, kind: str, limit: Limit) -> Any:
    while not (events := worker._step(limit)):
        pass
    if len(events) != 1 or events[0][0] is not kind:
        raise ProtocolViolation("the worker sent more than it was asked for")
    return events[0][1]


def _adopt(copy: Worker, expected: Expected, limit: Limit) -> PipedProcess:
    """Wait until the copy speaks, and have the process that does taken as the copy's."""
    channel = copy._channel.fileno()
    waiting = True
    while waiting:
        for descriptor, _ in copy._poll.poll(limit.milliseconds()):
            if descriptor == channel:
                waiting = False
            else:
                copy._read_other(descriptor)
    try:
        pid = copy._peek_sender()
    except ConnectionResetError:
        pid = None
    if pid is None:
        raise WorkerDied(f"the copy of the worker ended before it was ready{_said(copy)}")
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise WorkerDied(f"the copy of the worker ended before it was ready{_said(copy)}") from None
    return expected.adopt(pidfd, pid)


def _said(copy: Worker) -> str:
    copy.streams[1].drain()
    capture = copy.streams[1].capture
    text = shown(capture.take(), copy.secrets, capture.seam).strip()
    return f": {text[-500:]}" if text else ""


def _check_hello(copy: Worker, original: Worker, hello: dict[str, Any]) -> None:
    if any(hello.get(name) != original.hello.get(name) for name in _ALIKE):
        raise ProtocolViolation("the copy of the worker is another interpreter")
    copy.hello = {name: original.hello[name] for name in _ALIKE if name in original.hello}

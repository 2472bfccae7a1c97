"""One worker as its host talks to it: requests, what the worker says meanwhile, and its end.

What carries the bytes, and how they are waited for, is a subclass's: `visruntime.worker` has sockets
and pipes of Linux, `visruntime._worker.windows` the streams of a `WindowsJail`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from visruntime._policy.redact import redact
from visruntime._runtime.events import Feed
from visruntime._runtime.timeouts import Timeouts
from visruntime._runtime.traceback import printable
from visruntime._worker.exchange import (
    ASK,
    CALL,
    GREETING,
    LEND,
    READY,
    REPLY,
    SHOW,
    TELL,
    Exchange,
)
from visruntime._worker.ladder import Ladder
from visruntime._worker.limit import STACKS_SECONDS, Limit, Timeout
from visruntime._worker.output import CHUNK, Late
from visruntime._worker.pauses import Pauses
from visruntime.errors import ProtocolViolation, WorkerDied, WorkerPaused
from visruntime.guest.limits import MAX_ERROR_NAME, QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from visruntime._callbacks.run import Call
    from visruntime._runtime.known_types import KnownTypes
    from visruntime._runtime.stop import Stop
    from visruntime._worker.exchange import Event
    from visruntime._worker.framed_values import FramedValues
    from visruntime._worker.output import Output
    from visruntime._worker.place import Process
    from visruntime.callbacks import Callbacks

    AnyLimit = Limit | Ladder

__all__ = ["SEND_SECONDS", "START_SECONDS", "Conversation"]

START_SECONDS = 30.0
"""How long a worker may take until it is ready."""
SEND_SECONDS = 5.0
"""How long a worker may leave unread what it is sent."""
_ASIDE = Timeouts(wall=5.0)
"""How long a worker may take for a request that runs no code of the guest."""


class Conversation(ABC):
    """One live worker process, and what is said to it and by it."""

    streams: tuple[Output, ...]
    secrets: tuple[str, ...]
    _values: FramedValues
    _exchange: Exchange

    def _begin(self, values: FramedValues, original: Exchange | None = None) -> None:
        """Make what every worker has; *original* is the exchange of the one that this is a copy of."""
        self.children_cpu_seconds: float = 0.0
        self.last_output: float = 0.0
        self.stop: Stop | None = None
        self._ladder: Ladder | None = None
        self._pauses = Pauses()
        self.ended_by_host: bool = False
        self.hello: dict[str, Any] = {}
        self._values = values
        decode = values.decode_reply
        self._exchange = Exchange(decode) if original is None else original.of_copy(decode)
        self._late = [Late(), Late()]
        self._process: Process | None = None

    def _boot(
        self,
        launch: Callable[[], object],
        payload: Callable[[], bytes],
        settings: Callable[[], Mapping[str, Any]],
        interpreter: tuple[str, str],
    ) -> None:
        """Start the worker and wait until it is ready; it is ended where that fails.

        Args:
            launch: starts its process.
            payload: makes what it is to run, while its interpreter starts.
            settings: makes what it gets before its other code, likewise.
            interpreter: what it has to be: version and mode.
        """
        try:
            launch()
            for stream in self.streams:
                stream.begin(CHUNK, None)
            limit = Limit(START_SECONDS)
            self._send(self._exchange.make_bootstrap(payload()), limit)
            self._send(self._exchange.make_settings(settings()), limit)
            self._await_ready(interpreter, limit)
            self._take_rest()
            # What start-up files have written is no run's; the first result has it.
            self.keep_late(self._late)
        except Timeout:
            self.kill()
            raise WorkerDied(
                f"the worker was not ready after {START_SECONDS:.0f} s and was ended"
            ) from None
        except BaseException:
            self.kill()
            raise

    # What carries the bytes.

    @abstractmethod
    def _send(self, data: bytes, limit: AnyLimit) -> None:
        """Send a frame, and read the output meanwhile, so that a worker that prints is not stuck.

        Raises:
            ProtocolViolation: the worker does not read.
            Timeout: it reads so slowly that the limit was over.
        """

    @abstractmethod
    def _step(self, limit: AnyLimit) -> list[Event]:
        """Wait for something to happen and take it in; return what the worker said."""

    @abstractmethod
    def _take_late(self, late: tuple[Late, Late], limit: int | None) -> None:
        """Add what was written since the last run to *late*, of each stream as much as *limit*.

        Raises:
            ProtocolViolation: the worker has spoken while nothing was asked of it.
            WorkerDied: it has ended meanwhile.
        """

    @abstractmethod
    def _take_rest(self) -> None:
        """Read what is in the pipes: all that was written before the frame that has come."""

    @abstractmethod
    def wait_for(self, call: Call, limit: Ladder) -> None:
        """Wait for a function of the host that runs elsewhere, and read the output meanwhile.

        Raises:
            WorkerDied: there is nobody left to answer.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Ask the worker to break the run under way; again until it is over. From any thread."""

    def stacks(self, _seconds: float = STACKS_SECONDS) -> str:
        """Every Python thread's stack as text. From any thread.

        Raises:
            TimeoutError: the worker did not answer, as one without a control thread never does.
        """
        raise TimeoutError("no thread of the worker writes stacks")

    def ping(self, _seconds: float) -> float:
        """Return in how many seconds the worker answered, whatever its Python code is doing.

        Raises:
            TimeoutError: it did not in that time, as one without a control thread never does.
        """
        raise TimeoutError("no thread of the worker answers while its code runs")

    @abstractmethod
    def close(self) -> None:
        """Say goodbye, give the worker a moment, end it; what it does meanwhile is ignored."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker and what it started, and give back what it took."""

    # Who it is.

    @property
    def process(self) -> Process:
        """The process; it exists from construction on."""
        assert self._process is not None
        return self._process

    def set_types(self, types: KnownTypes | None) -> None:
        """Choose the classes that records of this worker become."""
        self._values.types = types

    def take_mismatch(self) -> str | None:
        """Say, once, what was wrong with a record of such a class in the last reply."""
        found, self._values.mismatch = self._values.mismatch, None
        return found

    @property
    def run_number(self) -> int:
        """Number of the last request."""
        return self._exchange.run_number

    def _await_ready(self, interpreter: tuple[str, str], limit: Limit) -> None:
        while True:
            for kind, claim in self._step(limit):
                if kind == GREETING:
                    self._check_hello(claim, interpreter)
                elif kind == READY:
                    problem = claim.get("error")
                    if problem is not None:
                        if type(problem) is not str or len(problem) > MAX_ERROR_NAME:
                            raise ProtocolViolation("the worker's word on its start is malformed")
                        raise WorkerDied(
                            "the environment's start-up files ended the worker: "
                            f"{redact(printable(problem), self.secrets)}"
                        )
                    return

    def _check_hello(self, hello: dict[str, Any], interpreter: tuple[str, str]) -> None:
        if hello.get("hook_before_init") is not True:
            raise ProtocolViolation(
                "the worker's audit hook was not installed before its interpreter started"
            )
        if (hello.get("python"), hello.get("mode")) != interpreter:
            raise ProtocolViolation("the worker runs another interpreter than the one started")
        self.hello = hello

    def _raise_died(self, what: str) -> None:
        """Raise WorkerDied with the measured end of the process."""
        code = self.process.wait(1.0)
        for stream in self.streams:
            stream.drain()
        stderr = self.streams[1].capture.take()
        if code is None:
            self.process.kill()
        stopped_by = "killed" if self.ended_by_host else self.process.stopped_by
        from visruntime._worker.crash import describe_end

        report = describe_end(
            code,
            run=self.run_number,
            stopped_by=stopped_by,
            stderr=stderr,
            seam=self.streams[1].capture.seam,
            violations=self.process.violations,
            secrets=self.secrets,
        )
        message = what if code is None else report.description
        text = report.stderr_tail.strip()
        if self.run_number == 0 and text:
            message += f": {text[-500:]}"
        raise WorkerDied(
            message,
            exit_code=report.exit_code,
            signal=report.signal,
            stopped_by=stopped_by,
            report=report,
        )

    # Requests.

    def begin_run(
        self, limit: int | None, sink: Callable[[str, bytes], None] | None
    ) -> tuple[Late, Late]:
        """Get ready for a run; return what was written to stdout and stderr since the last.

        Raises:
            ProtocolViolation: the worker has spoken while nothing was asked of it.
            WorkerDied: it has ended meanwhile.
        """
        (stdout, stderr), self._late = self._late, [Late(), Late()]
        self._take_late((stdout, stderr), limit)
        for stream in self.streams:
            stream.begin(limit, sink)
        return stdout, stderr

    def request_aside(self, request: dict[str, Any], *, callbacks: Callbacks) -> dict[str, Any]:
        """Make a request of our own between two runs; output meanwhile counts as late."""
        late = self.begin_run(CHUNK, None)
        reply = self.request(request, callbacks=callbacks, feed=Feed(), timeouts=_ASIDE)
        self.keep_late(late)
        return reply

    def keep_late(self, late: Sequence[Late], limit: int | None = CHUNK) -> None:
        """Count what was written between two runs as late output of the next one.

        Only *limit* bytes of each stream are kept, the last ones.
        """
        for kept, stream in zip(late, self.streams, strict=True):
            kept.add(stream.capture, limit)
            stream.begin(CHUNK, None)
        self._late = list(late)

    def request(
        self,
        request: dict[str, Any],
        *,
        callbacks: Callbacks,
        feed: Feed,
        timeouts: Timeouts | None = None,
        cpu_spent: Callable[[], float | None] | None = None,
    ) -> dict[str, Any]:
        """Send one request and return the reply to it; *feed* gets what else happens.

        ``stop`` is what was done to end it.

        Raises:
            Timeout: a limit was over; the session lives on if it still replied.
            WorkerDied: it ended.
            ProtocolViolation: it broke the protocol.
        """
        self.stop = None
        self._values.data_only = request.get("data_only") is True
        callbacks.begin_run()  # before the send, which may fail: the result counts this run's calls
        frame = self._exchange.make_request(request, self._values.encode, self._values.outgoing)
        limit = self._ladder = Ladder(timeouts, self, cpu_spent, threads=feed.threads)
        lost = False
        feed.begin(limit)
        try:
            self._send(frame, limit)
            answers = None if request.get("op") in QUIET else callbacks
            reply = self._await_reply(limit, answers, feed)
        except Timeout:
            lost = True
            raise
        finally:
            self._ladder = None
            feed.let_go()
            self._values.end_run()
            self.stop = limit.stop(lost=lost)
        if limit.told or limit.cancelled:
            raise Timeout(reply)
        return reply

    def _await_reply(
        self, limit: Ladder, callbacks: Callbacks | None, feed: Feed
    ) -> dict[str, Any]:
        while True:
            for kind, content in self._step(limit):
                if kind == REPLY:
                    self._take_rest()
                    reply: dict[str, Any] = content
                    return reply
                if callbacks is None:
                    raise ProtocolViolation(
                        f"the worker asked for something ({kind}) in a request that asks nothing"
                    )
                if feed.sink is not None:
                    self._take_rest()  # what was written before comes before
                limit.milliseconds()  # raises at the end: many may have come at once
                if kind == CALL:
                    answer = callbacks.answer(content, limit, feed.emit, self._values)
                    outgoing = len(self._values.outgoing)
                    self._send(self._exchange.make_answer(answer, outgoing), limit)
                elif kind == LEND:
                    answer = self._values.lend(content)
                    outgoing = len(self._values.outgoing)
                    self._send(self._exchange.make_answer(answer, outgoing), limit)
                elif kind == ASK:
                    answer = feed.answer(content, callbacks, limit)
                    self._send(self._exchange.make_answer(answer), limit)
                elif kind == SHOW:
                    feed.display(content)
                elif kind == TELL:
                    feed.denial(content)

    # Control, from any thread.

    def ask_to_stop(self) -> None:
        """Interrupt the run under way, and a function of the host that it waits for."""
        ladder = self._ladder
        if ladder is not None:
            ladder.asked_to_stop()

    def cancel(self) -> None:
        """End the run under way, by all the rungs that it takes."""
        ladder = self._ladder
        if ladder is not None and not ladder.cancelled:
            ladder.cancel()

    def host_call(self) -> Call | None:
        """The function of the host that the run under way waits for."""
        ladder = self._ladder
        return None if ladder is None else ladder.call

    def is_ending(self) -> bool:
        """Whether the run under way was told to end, and is ended where it does not."""
        ladder = self._ladder
        return ladder is not None and ladder.cancelled

    def signal_descendants(self, number: int) -> int:
        """Signal what the worker has started, but not itself; return how many there were."""
        return self.process.signal_descendants(number)

    def refuse_paused(self) -> None:
        """Refuse to begin what could only wait for another thread, since no limit counts a pause.

        Raises:
            WorkerPaused: it stands still.
        """
        if self._pauses.under_way:
            raise WorkerPaused("the worker is paused: call resume() first, or kill() to end it")

    def paused_seconds(self) -> float:
        """How long it has been paused so far."""
        return self._pauses.seconds()

    def suspend(self, *, suspended: bool) -> None:
        """Stop the worker with all that it started, or let it go on."""
        if suspended:
            self._pauses.begin()
            try:
                self.process.suspend(suspended=True)
            except BaseException:
                self._pauses.end()
                raise
        else:
            self.process.suspend(suspended=False)
            self._pauses.end()

    def end(self) -> None:
        """End it; whoever is in a call of it hears that it died."""
        self.ended_by_host = True
        if self._process is not None:
            self._process.end()

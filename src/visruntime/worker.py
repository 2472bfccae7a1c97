"""Drive one worker process from the host: start it, talk to it, end it.

The worker is hostile from its first byte. Whatever it sends is checked frame by frame; a
frame that is malformed, out of order or not expected ends it. Its output is read while a run
is under way, never more than the limit is kept, and it is ended when it does not obey.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import socket
import struct
import time
from contextlib import ExitStack, suppress

from visruntime._policy.redact import redact
from visruntime._runtime.events import Feed
from visruntime._runtime.timeouts import Timeouts
from visruntime._runtime.traceback import printable
from visruntime._worker.control import STACKS_SECONDS, Control
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
from visruntime._worker.limit import Limit, Timeout
from visruntime._worker.pauses import Pauses
from visruntime._worker.start import LOAD, bootstrap, bootstrap_compiled
from visruntime._worker.streams import CHUNK, Late, Stream
from visruntime._worker.values import WorkerValues
from visruntime.environments import worker_argv
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
    from visruntime._worker.place import Place, Process, Reader, Start
    from visruntime.callbacks import Callbacks
    from visruntime.environments import Interpreter

    AnyLimit = Limit | Ladder

__all__ = ["Worker"]

START_SECONDS = 30.0
"""How long a worker may take until it is ready."""
SEND_SECONDS = 5.0
"""How long a worker may leave unread what it is sent."""
_ASIDE = Timeouts(wall=5.0)
"""How long a worker may take for a request that runs no code of the guest."""
_FAREWELL_SECONDS = 0.5
_PIPE_SIZE = 1024 * 1024
_CREDENTIALS = struct.Struct("iII")
_QUIETLY = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
"""How all is sent: a worker that is gone must not end a host with SIGPIPE at its default."""
_SO_PASSRIGHTS = 83
"""Of asm-generic/socket.h, which x86 and arm64 use; Python has no name for it yet."""


def _refuse_descriptors(end: socket.socket) -> None:
    """Have the kernel refuse descriptors in messages to *end* (Linux 6.16).

    To receive one and drop it is to close it, and what is closed may be a connection that the
    guest made to linger (SO_LINGER) for as long as it likes, in the thread of the host.
    """
    try:
        end.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise


class Worker:
    """One live worker process and its channel."""

    def __init__(
        self,
        interpreter: Interpreter,
        start: Start,
        *,
        harden: bool,
        settings: Callable[[], Mapping[str, Any]],
        modules: tuple[tuple[str, str], ...] = (),
        secrets: tuple[str, ...] = (),
    ) -> None:
        """Start a worker and wait until it is ready.

        Args:
            interpreter: what runs in it.
            start: starts its process.
            harden: keep its memory from other processes of the guest.
            settings: makes what it gets before its other code, while its interpreter starts.
            modules: (name, file) of guest modules besides those that every worker has.
            secrets: texts that no message and no report may show.

        Raises:
            WorkerDied: it ended before it was ready; the message carries its stderr.
            ProtocolViolation: it is not what was started (no hook before initialisation).
        """
        place = start.settle()
        channel, control = self._connect(place)
        self.secrets = secrets

        def make_argv(channel_number: int, control_number: int) -> list[str]:
            return worker_argv(
                interpreter,
                channel=channel_number,
                control=control_number,
                harden=harden,
                code=LOAD,
            )

        def launch(*descriptors: int) -> None:
            self._own(place.start(make_argv, *descriptors))

        try:
            self._open(channel, control, launch)
            for stream in self.streams:
                stream.begin(CHUNK, None)
            # Compiled only now, while the interpreter starts.
            limit = Limit(START_SECONDS)
            if interpreter.same_as_host or interpreter.compiled is None:
                payload = bootstrap(same_as_host=interpreter.same_as_host, extra=modules)
            else:
                payload = bootstrap_compiled(interpreter.compiled, modules)
            self._send(self._exchange.make_bootstrap(payload), limit)
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

    def _connect(
        self, place: Place, original: Exchange | None = None
    ) -> tuple[socket.socket, socket.socket]:
        """Make the channel and the control socket; returns the worker's ends.

        *original* is the exchange of the worker that this one is a copy of.
        """
        self.place = place
        self.children_cpu_seconds: float = 0.0
        self.last_output: float = 0.0
        self.stop: Stop | None = None
        self._ladder: Ladder | None = None
        self._pauses = Pauses()
        self.ended_by_host: bool = False
        self.hello: dict[str, Any] = {}
        self._poll = select.poll()
        self._values = WorkerValues(self._poll)
        decode = self._values.decode_reply
        self._exchange = Exchange(decode) if original is None else original.of_copy(decode)
        self._is_located = False
        self._late = [Late(), Late()]
        self._owned: list[int] = []
        self._process: Process | None = None
        self._channel, channel, ours, control = place.pairs()
        self.control: Control = Control(ours)
        # The worker's ends take large values, and on the control socket those of its copies.
        for end in (self._channel, ours):
            _refuse_descriptors(end)
        # Out of band data (Linux 5.15) would wake us, and then not be there to read.
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        # The first frame is to carry the worker's process number, as the kernel sees it here.
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        return channel, control

    def _open(
        self,
        channel: socket.socket,
        control: socket.socket,
        launch: Callable[..., None],
        reader: Reader | None = None,
    ) -> None:
        """Have *launch* hand the worker its four ends, and give them up here.

        *reader* reads its streams, by default the process that there is then.
        """
        readers, writers = [], []
        with ExitStack() as given:  # the ends that only the worker keeps
            given.enter_context(channel)
            given.enter_context(control)
            for name in ("stdout", "stderr"):
                ours, theirs = os.pipe2(os.O_CLOEXEC)
                self._owned.append(ours)
                given.callback(os.close, theirs)
                os.set_blocking(ours, False)
                with suppress(OSError):  # only for speed; the user may have many already
                    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
                readers.append((name, ours))
                writers.append(theirs)
            launch(channel.fileno(), control.fileno(), *writers)
        reader = reader or self.process
        self.streams: tuple[Stream, ...] = tuple(Stream(*one, reader) for one in readers)
        self._poll.register(self._channel, select.POLLIN)
        for stream in self.streams:
            self._poll.register(stream.descriptor, select.POLLIN)

    def _own(self, process: Process) -> None:
        """Take the process, which ends with this object from now on."""
        self._process = process
        if process.pidfd is not None:
            self._poll.register(process.pidfd, select.POLLIN)

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

    def _await_ready(self, interpreter: Interpreter, limit: Limit) -> None:
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

    def _learn_process(self) -> None:
        """Ask the kernel who sends; before HELLO no code of the guest has run."""
        pid = self._peek_sender()
        if pid is not None:
            self.process.locate(pid)

    def _peek_sender(self) -> int | None:
        """The number of the process that sent what is next in the channel; asked once.

        Raises:
            BlockingIOError: nothing is there.
            ProtocolViolation: there is something else than bytes.
        """
        size = socket.CMSG_SPACE(_CREDENTIALS.size)
        peek = socket.MSG_DONTWAIT | socket.MSG_PEEK
        _, ancillary, flags, _ = self._channel.recvmsg(1, size, peek)
        self._is_located = True
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        if flags & socket.MSG_CTRUNC:
            raise ProtocolViolation("the worker sent descriptors, which no frame has")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid: int = _CREDENTIALS.unpack(data)[0]
                return pid or None
        return None

    def _check_hello(self, hello: dict[str, Any], interpreter: Interpreter) -> None:
        if hello.get("hook_before_init") is not True:
            raise ProtocolViolation(
                "the worker's audit hook was not installed before its interpreter started"
            )
        if hello.get("python") != interpreter.version or hello.get("mode") != interpreter.mode:
            raise ProtocolViolation("the worker runs another interpreter than the one started")
        self.hello = hello

    # Frames.

    def _send(self, data: bytes, limit: AnyLimit) -> None:
        """Send a frame, and with its first byte the descriptors that wait for it."""
        try:
            try:
                sent = self._send_some(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self._send_rest(memoryview(data)[sent:], limit)
        except (BrokenPipeError, ConnectionResetError):
            self._raise_died("the worker ended")

    def _send_some(self, data: bytes | memoryview) -> int:
        descriptors = self._values.outgoing
        if not descriptors:
            return self._channel.send(data, _QUIETLY)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        sent = self._channel.sendmsg([data], rights, _QUIETLY)
        self._values.drop_outgoing()
        return sent

    def _send_rest(self, rest: memoryview, limit: AnyLimit) -> None:
        """Send while reading the output, so that a worker that prints meanwhile is not stuck.

        Raises:
            ProtocolViolation: the worker does not read.
            Timeout: it reads so slowly that the limit was over.
        """
        self._poll.modify(self._channel, select.POLLOUT)
        channel = self._channel.fileno()
        deadline = time.monotonic() - self.paused_seconds() + SEND_SECONDS
        try:
            while rest:
                for descriptor, _ in self._poll.poll(limit.milliseconds()):
                    if descriptor == channel:
                        rest = rest[self._send_some(rest) :]
                        deadline = time.monotonic() - self.paused_seconds() + SEND_SECONDS
                    elif descriptor != self.process.pidfd:
                        self._read_other(descriptor)
                if self.process.has_ended():
                    raise BrokenPipeError
                if time.monotonic() - self.paused_seconds() > deadline:
                    raise ProtocolViolation("the worker does not read what it is sent")
        finally:
            self._poll.modify(self._channel, select.POLLIN)

    def _read_other(self, descriptor: int) -> None:
        """Read output, or some of a large value."""
        for stream in self.streams:
            if stream.descriptor == descriptor:
                self.last_output = time.monotonic()
                if not stream.read():
                    self._poll.unregister(descriptor)
                return
        self._values.read(descriptor)

    def _step(self, limit: AnyLimit) -> list[Event]:
        """Wait for something to happen and take it in; return what the worker said."""
        events = self._poll.poll(limit.milliseconds())
        channel_ready = ended = False
        channel = self._channel.fileno()
        for descriptor, _ in events:
            if descriptor == channel:
                channel_ready = True
            elif descriptor == self.process.pidfd:
                ended = True
            else:
                self._read_other(descriptor)
        if channel_ready:
            try:
                if not self._is_located:
                    self._learn_process()
                # With no room for descriptors the kernel says that there were some.
                data, _, flags, _ = self._channel.recvmsg(CHUNK, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return []
            except ConnectionResetError:
                data = b""
            if data:
                if flags & socket.MSG_CTRUNC:
                    raise ProtocolViolation("the worker sent descriptors, which no frame has")
                return self._exchange.receive(data)
            self._raise_died("the worker closed its channel and was ended")
        # The jail's answers to other threads make that descriptor readable for a moment, too.
        if (ended or not events) and self.process.has_ended():
            self._raise_died("the worker ended")
        return []

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
        late, self._late = self._late, [Late(), Late()]
        for descriptor, _ in self._poll.poll(0):
            for index, stream in enumerate(self.streams):
                if stream.descriptor == descriptor:
                    stream.begin(limit, None)
                    stream.drain()
                    late[index].add(stream.capture)
            if descriptor == self._channel.fileno():
                self._refuse_unasked()
        for stream in self.streams:
            stream.begin(limit, sink)
        return late[0], late[1]

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

    def _refuse_unasked(self) -> None:
        try:
            data = self._channel.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except ConnectionResetError:
            data = b""
        if data:
            raise ProtocolViolation("the worker sent a frame that nobody had asked for")
        self._raise_died("the worker ended")

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
        limit = self._ladder = Ladder(timeouts, self, cpu_spent)
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

    def wait_for(self, call: Call, limit: Ladder) -> None:
        """Wait for a function of the host that runs elsewhere, and read the output meanwhile.

        Raises:
            WorkerDied: there is nobody left to answer.
        """
        channel = self._channel.fileno()
        self._poll.modify(channel, 0)  # only its end matters now
        self._poll.register(call, select.POLLIN)
        try:
            while not call.done and not limit.gives_up(call):
                for descriptor, _ in self._poll.poll(limit.milliseconds()):
                    if descriptor == channel:
                        self._raise_died("the worker closed its channel and was ended")
                    elif descriptor == self.process.pidfd:
                        if self.process.has_ended():
                            self._raise_died("the worker ended")
                    elif descriptor != call.fileno():
                        self._read_other(descriptor)
                    elif not call.done:
                        os.eventfd_read(descriptor)  # somebody asks to look at the limits
        finally:
            self._poll.unregister(call)
            self._poll.modify(channel, select.POLLIN)

    def _take_rest(self) -> None:
        """Read what is in the pipes: all that was written before the frame that has come."""
        ready = self._poll.poll(0)
        for stream in self.streams if ready else ():
            stream.drain()

    # Control, from any thread.

    def interrupt(self) -> None:
        """Ask the control thread to break the run under way; again until it is over."""
        self.control.interrupt(self.run_number)

    def ask_to_stop(self) -> None:
        """Interrupt the run under way, and a function of the host that it waits for."""
        ladder = self._ladder
        if ladder is not None:
            ladder.asked_to_stop()

    def stacks(self, seconds: float = STACKS_SECONDS) -> str:
        """Every Python thread's stack as text; answered even while C code runs.

        Raises:
            TimeoutError: the worker did not answer.
        """
        return redact(self.control.stacks(seconds), self.secrets)

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
        self.process.end()

    # The end.

    def close(self) -> None:
        """Say goodbye, give the worker a moment, end it; what it does meanwhile is ignored."""
        try:
            if self._process is not None and self._process.poll() is None:
                # Never waits: a worker that left its replies unread gets no farewell.
                farewell = self._exchange.make_farewell()
                self._channel.send(farewell, _QUIETLY)
                self._channel.shutdown(socket.SHUT_WR)
                self._process.wait(_FAREWELL_SECONDS)
        except OSError:
            pass  # it is already gone, or does not read: both end the same way
        finally:
            self.kill()

    def kill(self) -> None:
        """End the worker and what it started, and give back every descriptor."""
        try:
            if self._process is not None:
                self._process.kill()
        finally:
            self._values.end_run()
            while self._owned:
                os.close(self._owned.pop())
            self._channel.close()
            self.control.close()

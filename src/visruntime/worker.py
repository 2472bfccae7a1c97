"""Drive one worker process from the host: start it, talk to it, end it.

The worker is hostile from its first byte. Whatever it sends is checked frame by frame; a
frame that is malformed, out of order or not expected ends it. Its output is read while a run
is under way, never more than the limit is kept, and it is ended when it does not obey.
"""

from __future__ import annotations

import _socket as socket
import errno
import fcntl
import os
import select
import struct
import time
from contextlib import ExitStack, nullcontext, suppress

from visruntime._policy.redact import redact
from visruntime._worker.control import STACKS_SECONDS, Control
from visruntime._worker.conversation import SEND_SECONDS, Conversation
from visruntime._worker.output import CHUNK
from visruntime._worker.start import LOAD, bootstrap, bootstrap_compiled
from visruntime._worker.streams import Stream
from visruntime._worker.values import WorkerValues
from visruntime.environments import worker_argv
from visruntime.errors import ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from visruntime._callbacks.run import Call
    from visruntime._worker.conversation import AnyLimit
    from visruntime._worker.exchange import Event, Exchange
    from visruntime._worker.ladder import Ladder
    from visruntime._worker.output import Late
    from visruntime._worker.place import PipedProcess, Place, Reader, Start
    from visruntime._worker.starting import Starting
    from visruntime.environments import Interpreter

__all__ = ["Worker"]

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


class Worker(Conversation):
    """One live worker process and its channel, on Linux."""

    _values: WorkerValues
    streams: tuple[Stream, ...]

    def __init__(
        self,
        interpreter: Interpreter,
        start: Start,
        *,
        harden: bool,
        settings: Callable[[], Mapping[str, Any]],
        modules: tuple[tuple[str, str], ...] = (),
        secrets: tuple[str, ...] = (),
        starting: Starting | None = None,
    ) -> None:
        """Start a worker and wait until it is ready.

        Args:
            interpreter: what runs in it.
            start: starts its process.
            harden: keep its memory from other processes of the guest.
            settings: makes what it gets before its other code, while its interpreter starts.
            modules: (name, file) of guest modules besides those that every worker has.
            secrets: texts that no message and no report may show.
            starting: by which another thread may end it meanwhile.

        Raises:
            WorkerDied: it ended before it was ready; the message carries its stderr.
            ProtocolViolation: it is not what was started (no hook before initialisation).
        """
        place = start.settle()
        channel, control = self._connect(place)
        self.secrets = secrets
        if starting is not None:
            starting.holds(self)

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

        def payload() -> bytes:
            if interpreter.same_as_host or interpreter.compiled is None:
                return bootstrap(same_as_host=interpreter.same_as_host, extra=modules)
            return bootstrap_compiled(interpreter.compiled, modules)

        self._boot(
            lambda: self._open(channel, control, launch),
            payload,
            settings,
            (interpreter.version, interpreter.mode),
        )

    def _connect(
        self, place: Place, original: Exchange | None = None
    ) -> tuple[socket.socket, socket.socket]:
        """Make the channel and the control socket; returns the worker's ends.

        *original* is the exchange of the worker that this one is a copy of.
        """
        self.place = place
        self._poll = select.poll()
        self._begin(WorkerValues(self._poll), original)
        self._is_located = False
        self._owned: list[int] = []
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
        self, channel: socket.socket, control: socket.socket, launch: Callable[..., None]
    ) -> None:
        """Have *launch* hand the worker its four ends, and give them up here."""
        readers, writers = [], []
        with ExitStack() as given:  # the ends that only the worker keeps
            given.callback(channel.close)
            given.callback(control.close)
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
        self.streams = tuple(Stream(*one, self._reader) for one in readers)
        self._poll.register(self._channel, select.POLLIN)
        for stream in self.streams:
            self._poll.register(stream.descriptor, select.POLLIN)

    def _own(self, process: PipedProcess) -> None:
        """Take the process, which ends with this object from now on."""
        self._process = process
        self._reader: Reader = process
        self._values.note_calls(process)
        if self.ended_by_host:  # while it was started
            process.end()
        if process.pidfd is not None:
            self._poll.register(process.pidfd, select.POLLIN)

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
        numbers = struct.pack(f"{len(descriptors)}i", *descriptors)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
        sent = self._channel.sendmsg([data], rights, _QUIETLY)
        self._values.drop_outgoing()
        return sent

    def _send_rest(self, rest: memoryview, limit: AnyLimit) -> None:
        """Send while reading the output."""
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

    def _take_late(self, late: tuple[Late, Late], limit: int | None) -> None:
        for descriptor, _ in self._poll.poll(0):
            for index, stream in enumerate(self.streams):
                if stream.descriptor == descriptor:
                    stream.begin(limit, None)
                    stream.drain()
                    late[index].add(stream.capture)
            if descriptor == self._channel.fileno():
                self._refuse_unasked()

    def _refuse_unasked(self) -> None:
        try:
            data = self._channel.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except ConnectionResetError:
            data = b""
        if data:
            raise ProtocolViolation("the worker sent a frame that nobody had asked for")
        self._raise_died("the worker ended")

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
                        call.hear(0)  # somebody asks to look at the limits
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
        """Have the control thread break the run under way."""
        self.control.interrupt(self.run_number)

    def stacks(self, seconds: float = STACKS_SECONDS) -> str:
        """Every Python thread's stack as text; answered even while C code runs.

        Raises:
            TimeoutError: the worker did not answer.
        """
        return redact(self.control.stacks(seconds), self.secrets)

    def ping(self, seconds: float) -> float:
        """Return how many seconds the control thread took to answer; see `Control.ping`."""
        return self.control.ping(seconds)

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
            self._values.note_calls(None)
            while self._owned:
                with nullcontext() if self._process is None else self._reader.noted():
                    os.close(self._owned.pop())
            self._channel.close()
            self.control.close()

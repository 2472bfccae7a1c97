"""A worker in a `WindowsJail`, and the loop that waits for it.

Nothing of Windows waits for several pipes at once and can be told to stop. So whoever waits, waits for
the frames, a moment, and looks at the output in between. That is some looks in a second while a run
is under way, and none between two runs: as on Linux, what is printed then waits in the pipe.
"""

from __future__ import annotations

import time
from _thread import allocate_lock
from contextlib import suppress

from visruntime._worker.conversation import SEND_SECONDS, Conversation
from visruntime._worker.framed_values import FramedValues
from visruntime._worker.output import CHUNK, Output
from visruntime._worker.start import bootstrap
from visruntime.errors import (
    CommandTimeout,
    ForkRefused,
    JailClosed,
    PolicyUnsupported,
    ProtocolViolation,
)
from visruntime.guest.frames import INTERRUPT, encode_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from visruntime._callbacks.run import Call
    from visruntime._windows.process import WindowsProcess, WindowsStream
    from visruntime._worker.conversation import AnyLimit
    from visruntime._worker.exchange import Event
    from visruntime._worker.ladder import Ladder
    from visruntime._worker.output import Late
    from visruntime._worker.place import Expected
    from visruntime._worker.starting import Starting

__all__ = ["MODE", "WindowsWorker"]

MODE = "L"
"""How the core comes into an interpreter there: beside its library."""
LEAST_WAIT, MOST_WAIT = 0.001, 0.02
"""Seconds between two looks at the output; they double as long as nothing comes."""
MOST_DRAINED = 1 << 20
"""Bytes, of which a pipe holds fewer: a guest may write on while it is read."""
ORDER_SECONDS = 0.2
FAREWELL_SECONDS = 0.5


class WindowsWorker(Conversation):
    """One live worker process of a `WindowsJail` and the two pipes of its channel."""

    streams: tuple[_Stream, ...]

    def __init__(
        self,
        spawn: Callable[[], WindowsProcess],
        *,
        settings: Callable[[], Mapping[str, Any]],
        version: str,
        secrets: tuple[str, ...] = (),
        starting: Starting | None = None,
    ) -> None:
        """Start a worker and wait until it is ready.

        Args:
            spawn: starts its process, with a channel.
            settings: makes what it gets before its other code.
            version: of its interpreter, which is that of the host.
            secrets: texts that no message and no report may show.
            starting: by which another thread may end it meanwhile.

        Raises:
            WorkerDied: it ended before it was ready; the message carries its stderr.
            ProtocolViolation: it is not what was started (no hook before initialisation).
        """
        self.secrets = secrets
        self.streams = ()
        self._begin(FramedValues())
        if starting is not None:
            starting.holds(self)
        self._sending = allocate_lock()
        self._order = 0  # the run to interrupt, until that was said
        self._torn = False  # a frame was sent in part
        self._wait = LEAST_WAIT
        # One for all that is read, since whoever has the worker reads alone.
        self._buffer = memoryview(bytearray(CHUNK))

        def launch() -> None:
            process = spawn()
            self._process = _WorkerProcess(process)
            if self.ended_by_host:  # while it was started
                self._process.end()
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.to_guest is not None
            assert process.from_guest is not None
            self._to_guest, self._from_guest = process.to_guest, process.from_guest
            self.streams = (
                _Stream("stdout", process.stdout, self._buffer),
                _Stream("stderr", process.stderr, self._buffer),
            )

        self._boot(launch, lambda: bootstrap(same_as_host=True), settings, (version, MODE))

    # Frames.

    def _send(self, data: bytes, limit: AnyLimit) -> None:
        """Send a frame."""
        try:
            with self._sending:
                self._send_whole(data, limit)
        except (BrokenPipeError, JailClosed):
            self._raise_died("the worker ended")
        self._give_order()

    def _send_whole(self, data: bytes, limit: AnyLimit) -> None:
        if self._torn:
            raise ProtocolViolation("the worker does not read what it is sent")
        rest = memoryview(data)
        deadline = time.monotonic() + SEND_SECONDS
        while rest:
            sent = self._to_guest.write_within(rest, min(limit.milliseconds() / 1000, MOST_WAIT))
            rest = rest[sent:]
            self._read_output()
            if sent:
                deadline = time.monotonic() + SEND_SECONDS
            elif self.process.has_ended():
                raise BrokenPipeError
            elif time.monotonic() > deadline:
                raise ProtocolViolation("the worker does not read what it is sent")

    def _read_output(self) -> None:
        for stream in self.streams:
            if stream.read():
                self.last_output = time.monotonic()
                self._wait = LEAST_WAIT

    def _step(self, limit: AnyLimit) -> list[Event]:
        """Wait for a frame, a moment; see `Conversation`."""
        self._read_output()
        data = self._read_frames(min(limit.milliseconds() / 1000, self._wait))
        if data is None and self.process.has_ended():
            data = self._read_frames(0) or b""  # its last word came before its end
        if data:
            self._wait = LEAST_WAIT
            return self._exchange.receive(data)
        if data is not None:
            self._raise_died("the worker closed its channel and was ended")
        self._wait = min(2 * self._wait, MOST_WAIT)
        return []

    def _read_frames(self, seconds: float) -> bytes | None:
        return _read(self._from_guest, self._buffer, seconds)

    def _take_late(self, late: tuple[Late, Late], limit: int | None) -> None:
        for kept, stream in zip(late, self.streams, strict=True):
            stream.begin(limit, None)
            stream.drain()
            kept.add(stream.capture)
        data = self._read_frames(0)
        if data:
            raise ProtocolViolation("the worker sent a frame that nobody had asked for")
        if data is not None:
            self._raise_died("the worker ended")

    def _take_rest(self) -> None:
        for stream in self.streams:
            stream.drain()

    def wait_for(self, call: Call, limit: Ladder) -> None:
        """Wait for a function of the host; see `Conversation`."""
        while not call.done and not limit.gives_up(call):
            call.hear(min(limit.milliseconds() / 1000, MOST_WAIT))
            self._read_output()
            if self.process.has_ended():
                self._raise_died("the worker ended")

    # Control, from any thread.

    def interrupt(self) -> None:
        """Order the end of the run under way; see `Conversation`."""
        self._order = self.run_number
        self._give_order()

    def _give_order(self) -> None:
        """Send the order that there is, unless a thread is sending: that one does it then."""
        while self._order and self._sending.acquire(blocking=False):
            try:
                run, self._order = self._order, 0
                if not self._torn and self._process is not None:
                    self._send_order(run)
            finally:
                self._sending.release()

    def _send_order(self, run: int) -> None:
        frame = encode_frame(INTERRUPT, 0, run.to_bytes(8, "little"))
        # It may have ended, or leave so much unread that it does not obey.
        with suppress(BrokenPipeError, JailClosed):
            sent = self._to_guest.write_within(frame, ORDER_SECONDS)
            self._torn = 0 < sent < len(frame)

    # The end.

    def close(self) -> None:
        """Say goodbye, give the worker a moment, end it."""
        try:
            if (
                self._process is not None
                and not self._torn
                and self._sending.acquire(blocking=False)
            ):
                try:
                    # Never waits: a worker that left its frames unread gets no farewell.
                    self._to_guest.write_within(self._exchange.make_farewell(), 0)
                    self._to_guest.close()
                finally:
                    self._sending.release()
                self._process.wait(FAREWELL_SECONDS)
        except (BrokenPipeError, JailClosed):
            pass  # it is already gone
        finally:
            self.kill()

    def kill(self) -> None:
        """End the worker and what it started, and give back its streams."""
        if self._process is not None:
            self._process.kill()


class _Stream(Output):
    """The worker's stdout or stderr."""

    __slots__ = ("_buffer", "_stream")

    def __init__(self, name: str, stream: WindowsStream, buffer: memoryview) -> None:
        super().__init__(name)
        self._stream = stream
        self._buffer = buffer

    def read(self) -> int:
        """Read what is there, at most one chunk; how much that was."""
        if self._end:
            return 0
        data = _read(self._stream, self._buffer, 0)
        return 0 if data is None else self._keep(data)

    def drain(self) -> None:
        """Read what is in the pipe at this moment, and not without end."""
        left = MOST_DRAINED
        while left > 0 and (size := self.read()):
            left -= size


def _read(stream: WindowsStream, buffer: memoryview, seconds: float) -> bytes | None:
    """Read what comes within *seconds*; nothing more ever comes of a jail that is closed."""
    try:
        count = stream.readinto_within(buffer, seconds)
    except JailClosed:
        return b""
    return None if count is None else bytes(buffer[:count])


class _WorkerProcess:
    """What a conversation asks of a process, of one whose job is the jail's."""

    pidfd = None
    stopped_by = None
    violations = ()

    def __init__(self, process: WindowsProcess) -> None:
        self._process = process

    def poll(self) -> int | None:
        """Exit code, None while it runs and where that is not known."""
        return self.wait(0)

    def has_ended(self) -> bool:
        """Whether it has ended, however that was."""
        try:
            return self._process.poll() is not None
        except JailClosed:
            return True

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds; the same answer as :meth:`poll`."""
        try:
            return self._process.wait(timeout).exit_code
        except (CommandTimeout, JailClosed):
            return None

    def kill(self) -> None:
        """End all that is in its job, and give back its streams."""
        self.end()
        with suppress(JailClosed):
            self._process.close()

    def end(self) -> None:
        """End all that is in its job; from any thread."""
        with suppress(JailClosed):
            self._process.kill()

    def suspend(self, *, suspended: bool) -> None:
        """Nothing of Windows stops a job and lets it go on."""
        verb = "pause" if suspended else "resume"
        raise PolicyUnsupported(f"{verb}: Windows stops no job and lets it go on", field=verb)

    def signal_descendants(self, _number: int) -> int:
        """Windows has no signals; what is left when the worker is ended goes with its job."""
        return 0

    def cpu_seconds(self) -> float | None:
        """Not measured while it runs."""
        return None

    def children_cpu_seconds(self) -> float:
        """As above."""
        return 0.0

    def peak_memory(self) -> int | None:
        """Not measured while it runs."""
        return None

    def span(self) -> None:
        """No cgroup measures it."""

    def refused(self, _span: Any) -> tuple[Any, ...]:
        """Windows does not tell."""
        return ()

    def refusals(self) -> tuple[list[Any], int]:
        """No broker decides anything there."""
        return [], 0

    def locate(self, _pid: int) -> None:
        """It is known by its job."""

    def expect(self) -> Expected:
        """Windows copies no process."""
        raise ForkRefused("Windows copies no process")

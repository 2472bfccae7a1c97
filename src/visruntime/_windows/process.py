"""Programs in a `WindowsJail`: their streams, and how they end."""

from __future__ import annotations

import io
import threading
import time
from contextlib import suppress

from visruntime._arguments import check_data, check_seconds, check_whole
from visruntime._native.windows import WindowsError
from visruntime._policy.values import Frozen
from visruntime._windows.failures import as_public_error
from visruntime.errors import CommandTimeout, JailClosed, OutputLimitExceeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from visruntime._native.windows import WindowsCalls

__all__ = ["WindowsExit", "WindowsProcess", "WindowsStream"]

SLICE_MILLISECONDS = 200
"""One wait in C: Python's handlers of signals (Ctrl-C) run in between."""
READ_BYTES = 64 << 10
MAX_SIZE = 32767
"""Columns and rows of a console, which Windows counts by signed numbers of 16 bits."""
DEFAULT_OUTPUT = 64 << 20


class WindowsExit(Frozen):
    """How a program ended, as Windows measured it.

    Attributes:
        exit_code: all 32 bits, unsigned; an NTSTATUS such as 0xC0000005 for a crash.
        killed: `WindowsProcess.kill`, or the end of its jail, ended it.
        processes: that there ever were of it.
        user_seconds, kernel_seconds: of all of them.
        peak_process_memory, peak_memory: bytes committed by the largest, and by all together.
    """

    __slots__ = (
        "exit_code",
        "kernel_seconds",
        "killed",
        "peak_memory",
        "peak_process_memory",
        "processes",
        "user_seconds",
    )
    exit_code: int
    kernel_seconds: float
    killed: bool
    peak_memory: int
    peak_process_memory: int
    processes: int
    user_seconds: float

    def __init__(self, **values: Any) -> None:
        self._set(**values)


class WindowsStream(io.RawIOBase):
    """One end of a program's pipe or console, at the host.

    All that the program wrote can be read, also after it has ended. `close` in one thread ends
    the calls of others with `JailClosed`.
    """

    def __init__(self, calls: WindowsCalls, stream: int, *, writes: bool) -> None:
        self._calls = calls
        self._stream = stream
        self._writes = writes

    def readable(self) -> bool:
        """Tell whether this is output of the program."""
        return not self._writes

    def writable(self) -> bool:
        """Tell whether this is input of the program."""
        return self._writes

    def readinto(self, buffer: Any) -> int:
        """Read at least one byte into *buffer*, and return how many; 0 at the end."""
        self._check(writes=False)
        view = memoryview(buffer).cast("B")
        if not len(view):
            return 0
        return int(_in_slices(lambda part: self._calls.read(self._stream, view, part), None))

    def read_within(self, seconds: float, size: int = READ_BYTES) -> bytes | None:
        """Read what is there, or comes within *seconds*: at most *size* bytes, ``b""`` at the end.

        ``None`` where nothing has come, after one look for 0 seconds. Ctrl-C is seen afterwards.
        """
        buffer = memoryview(bytearray(size))
        count = self.readinto_within(buffer, seconds)
        return None if count is None else bytes(buffer[:count])

    def readinto_within(self, buffer: Any, seconds: float) -> int | None:
        """Read as `read_within` does, into *buffer*, and return how many bytes; 0 at the end."""
        self._check(writes=False)
        view = memoryview(buffer).cast("B")
        try:
            return self._calls.read(self._stream, view, int(seconds * 1000))
        except WindowsError as error:
            if error.status == "timed_out":
                return None
            raise as_public_error(error) from None

    def write_within(self, data: Any, seconds: float) -> int:
        """Write what there is room for within *seconds*, and return how many bytes that were.

        Raises:
            BrokenPipeError: the program is gone.
            JailClosed: this stream, or the jail, was closed.
        """
        self._check(writes=True)
        try:
            count, _ = self._calls.write(
                self._stream, memoryview(data).cast("B"), int(seconds * 1000)
            )
        except WindowsError as error:
            raise as_public_error(error) from None
        return count

    def write(self, data: Any) -> int:
        """Write all of *data*, and return its length.

        Raises:
            BrokenPipeError: the program is gone.
            JailClosed: this stream, or the jail, was closed.
        """
        view = memoryview(data).cast("B")
        self._check(writes=True)
        done = 0
        while done < len(view):
            done += self.write_within(view[done:], SLICE_MILLISECONDS / 1000)
        return done

    def close(self) -> None:
        """Close this end; what a program writes then goes nowhere. Idempotent."""
        if self.closed:
            return
        super().close()
        try:
            self._calls.close_stream(self._stream)
        except WindowsError as error:
            if error.status != "stale":
                raise as_public_error(error) from None

    def _check(self, *, writes: bool) -> None:
        if self.closed:
            raise JailClosed("the stream is closed")
        if writes != self._writes:
            raise io.UnsupportedOperation("write" if writes else "read")


class WindowsProcess:
    """A program in a `WindowsJail`, and all that it starts, which one job holds.

    Attributes:
        args: the program and its arguments.
        pid: of the program; only good for showing.
        stdin: where the host writes, or ``None``.
        stdout: where it reads; of a console, too.
        stderr: where it reads, or ``None`` with a console.
        to_guest: where the host writes to the program's channel, or ``None`` without one.
        from_guest: where it reads what the program says there.
    """

    def __init__(self, calls: WindowsCalls, info: dict[str, Any], args: tuple[str, ...]) -> None:
        self._calls = calls
        self._process = info["process"]
        self._exit: WindowsExit | None = None
        self.args = args
        self.pid: int = info["pid"]
        self.stdin: WindowsStream | None = self._stream(info["input"], writes=True)
        self.stdout: WindowsStream | None = self._stream(info["output"], writes=False)
        self.stderr: WindowsStream | None = self._stream(info["errors"], writes=False)
        self.to_guest: WindowsStream | None = self._stream(info["to_guest"], writes=True)
        self.from_guest: WindowsStream | None = self._stream(info["from_guest"], writes=False)

    def _stream(self, stream: int, *, writes: bool) -> WindowsStream | None:
        return WindowsStream(self._calls, stream, writes=writes) if stream else None

    @property
    def returncode(self) -> int | None:
        """The exit code, once `wait` has seen the end."""
        return None if self._exit is None else self._exit.exit_code

    def wait(self, timeout: float | None = None) -> WindowsExit:
        """Wait until the program has ended; what it has left behind is ended then, too.

        Its output stays, and can be read to its end.

        Args:
            timeout: seconds; the program goes on when they are over.

        Raises:
            CommandTimeout: they were over.
            JailClosed: the jail is closed.
        """
        seconds = check_seconds(timeout, "timeout")
        if self._exit is None:
            try:
                found = _in_slices(lambda part: self._calls.wait(self._process, part), seconds)
            except TimeoutError:
                raise CommandTimeout(f"{self.args[0]} runs longer than {timeout} s") from None
            self._exit = WindowsExit(
                exit_code=found["exit_code"],
                killed=bool(found["killed"]),
                processes=found["processes"],
                user_seconds=found["user_ns"] / 1e9,
                kernel_seconds=found["kernel_ns"] / 1e9,
                peak_process_memory=found["peak_process_memory"],
                peak_memory=found["peak_job_memory"],
            )
        return self._exit

    def poll(self) -> int | None:
        """Return the exit code if the program has ended."""
        try:
            return self.wait(0).exit_code
        except CommandTimeout:
            return None

    def kill(self) -> None:
        """End the program and all that it has started, and wait until nothing is left."""
        _done(self._calls.kill, self._process)

    def resize(self, rows: int, cols: int) -> None:
        """Tell the program's console its new size."""
        check_whole(rows, "rows", 1, MAX_SIZE)
        check_whole(cols, "cols", 1, MAX_SIZE)
        _done(self._calls.resize, self._process, cols, rows)

    def communicate(
        self,
        input: bytes = b"",
        *,
        timeout: float | None = None,
        max_bytes: int = DEFAULT_OUTPUT,
    ) -> tuple[bytes, bytes]:
        """Write *input*, read all output, and wait for the end; return stdout and stderr.

        A channel is nobody's here: read it in a thread of your own.

        A console (``pty=True``) has no end of input: a program that reads to its end waits there, as
        at any console, for Ctrl-Z and Enter, which are part of *input*.

        Args:
            timeout: seconds until the program is ended.
            max_bytes: of each of the two; a program that writes more is ended.

        Raises:
            CommandTimeout: the program was ended for the time.
            OutputLimitExceeded: it was ended for its output.
        """
        input = check_data(input, "input")
        check_whole(max_bytes, "max_bytes", 0)
        seconds = check_seconds(timeout, "timeout")
        readers = [_Reader(s, max_bytes, self.kill) for s in (self.stdout, self.stderr)]
        writer = _Writer(self.stdin, input, self.kill)
        threads: tuple[_Writer | _Reader, ...] = (writer, *readers)
        for thread in threads:
            thread.start()
        try:
            self.wait(seconds)
        except BaseException:
            self.kill()
            raise
        finally:
            for thread in threads:
                thread.join()
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        return bytes(readers[0].data), bytes(readers[1].data)

    def close(self) -> None:
        """End the program if it runs, close its streams, and forget it. Idempotent."""
        streams = (self.stdin, self.stdout, self.stderr, self.to_guest, self.from_guest)
        for stream in streams:
            if stream is not None:
                stream.close()
        try:
            _done(self._calls.release, self._process)
        except JailClosed:
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<WindowsProcess {self.pid} {self.args[0]!r} {self.returncode}>"


class _Reader(threading.Thread):
    """Takes in one stream; more than *most* bytes end the program."""

    def __init__(
        self, stream: WindowsStream | None, most: int, too_much: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.most = most
        self.too_much = too_much
        self.data = bytearray()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while self.stream is not None and (part := self.stream.read(READ_BYTES)):
                if self.error is not None:
                    continue  # nobody may wait for room that never comes
                self.data += part
                if len(self.data) > self.most:
                    self.error = OutputLimitExceeded(
                        f"more than {self.most} bytes of output", kind="output", limit=self.most
                    )
                    self.too_much()
        except Exception as error:  # noqa: BLE001 - raised by whoever waits
            self.error = self.error or error


class _Writer(threading.Thread):
    """Gives all input; what keeps it from that ends the program, which would wait for its end."""

    def __init__(
        self, stream: WindowsStream | None, data: bytes, failed: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.data = data
        self.failed = failed
        self.error: Exception | None = None

    def run(self) -> None:
        if self.stream is None:
            return
        try:
            self.stream.write(self.data)
            self.stream.close()
        except (BrokenPipeError, JailClosed):
            return  # it has ended without reading all of it, which is its affair
        except Exception as error:  # noqa: BLE001 - raised by whoever waits
            self.error = error
            with suppress(Exception):  # who waits finds out, too
                self.failed()


def _done(call: Callable[..., None], *arguments: Any) -> None:
    try:
        call(*arguments)
    except WindowsError as error:
        raise as_public_error(error) from None


def _in_slices(call: Callable[[int], Any], seconds: float | None) -> Any:
    """Return what *call* returns, which takes milliseconds and may say that they are over.

    Raises:
        TimeoutError: all *seconds* are over.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = SLICE_MILLISECONDS
        if end is not None:
            left = min(left, max(0, int((end - time.monotonic()) * 1000)))
        try:
            return call(left)
        except WindowsError as error:
            over = end is not None and time.monotonic() >= end
            if error.status != "timed_out" or over:
                raise as_public_error(error) from None

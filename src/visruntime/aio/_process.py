"""One program in a jail, with streams that are awaited."""

from __future__ import annotations

import errno
import io
import os
import signal
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from visruntime.aio._threads import in_thread, shielded

if TYPE_CHECKING:
    from visruntime.events import EnforcementReport, Usage, Violation
    from visruntime.jail import JailProcess

__all__ = ["AsyncProcess", "ProcessReader", "ProcessWriter"]

CHUNK = 65536


class ProcessReader(ByteReceiveStream):
    """What a program writes; ``async for`` gives it chunk by chunk."""

    def __init__(self, process: JailProcess, file: Any) -> None:
        self._process = process
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        """Return what is there, at least one byte.

        Raises:
            anyio.EndOfStream: every program has let go of it.
            anyio.ClosedResourceError: it was closed here.
        """
        await anyio.lowlevel.checkpoint()
        while not self._file.closed:
            descriptor = self._file.fileno()
            try:
                data = self._process._run.read(descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(descriptor)
                continue
            except OSError as problem:
                if problem.errno != errno.EIO:  # so ends a terminal
                    raise
                data = b""
            if not data:
                raise anyio.EndOfStream
            return data
        raise anyio.ClosedResourceError

    async def aclose(self) -> None:
        """Close it."""
        _close(self._file)
        await anyio.lowlevel.checkpoint()


class ProcessWriter(ByteSendStream):
    """What a program reads."""

    def __init__(self, process: JailProcess, file: Any) -> None:
        self._process = process
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def send(self, item: bytes) -> None:
        """Write all of *item*.

        Raises:
            anyio.BrokenResourceError: no program reads it any longer.
            anyio.ClosedResourceError: it was closed here.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            if self._file.closed:
                raise anyio.ClosedResourceError
            descriptor = self._file.fileno()
            try:
                rest = rest[self._process._run.write(descriptor, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(descriptor)
            except OSError as problem:
                if problem.errno not in {errno.EPIPE, errno.EIO}:
                    raise
                raise anyio.BrokenResourceError from problem

    async def aclose(self) -> None:
        """Close it: the program reads the end of the file."""
        _close(self._file)
        await anyio.lowlevel.checkpoint()


def _close(file: Any) -> None:
    if not file.closed:
        anyio.notify_closing(file)
        file.close()


class AsyncProcess:
    """A program that runs in a jail, as `JailProcess`; use it as an async context manager.

    Leaving the context ends the whole run, also when it is left by a cancellation. ``stdin`` is
    a `ProcessWriter`, ``stdout`` and ``stderr`` are `ProcessReader` where a pipe was asked for. With
    ``pty=True`` ``stdin`` and ``stdout`` are the terminal.
    """

    def __init__(self, process: JailProcess) -> None:
        self._process = process
        self._waiting = anyio.Lock()
        writer: Any = process.stdin
        reader: Any = process.stdout
        if process.pty is not None:
            # Of its own, since closing one of the two is not to close the other.
            writer, reader = io.FileIO(os.dup(process.pty.fileno()), "wb"), process.pty
        self.stdin = None if writer is None else ProcessWriter(process, writer)
        self.stdout = None if reader is None else ProcessReader(process, reader)
        errors = process.stderr
        self.stderr = None if errors is None else ProcessReader(process, errors)

    # What it is.

    @property
    def args(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return self._process.args

    @property
    def pid(self) -> int:
        """Its number inside the jail."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, -N after signal N, ``None`` as long as nobody has seen the end."""
        return self._process.returncode

    @property
    def stopped_by(self) -> str | None:
        """The limit that ended it, as `CommandResult` says."""
        return self._process.stopped_by

    @property
    def usage(self) -> Usage | None:
        """What it used, once it has ended."""
        return self._process.usage

    @property
    def violations(self) -> tuple[Violation, ...]:
        """What it did against the policy, as far as that was measured."""
        return self._process.violations

    @property
    def report(self) -> EnforcementReport:
        """What enforces the policy."""
        return self._process.report

    # Waiting.

    def poll(self) -> int | None:
        """Return the exit code, or -N after signal N; ``None`` while the program runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Wait for the end of the run, every descendant included, and return the exit code.

        Cancelling ends the waiting only. Waits at a descriptor; any number of tasks may.
        """
        await anyio.lowlevel.checkpoint()
        while self.poll() is None:
            async with self._waiting:
                if self.poll() is None:
                    await anyio.wait_readable(self._process.fileno())
        assert self.returncode is not None
        return self.returncode

    async def communicate(self, input: bytes | None = None) -> tuple[bytes, bytes]:
        """Write *input*, read both streams to their end and wait; the streams are closed then.

        Of each stream the first and last bytes are kept, up to the limit ``output``. Cancelling
        ends the run.
        """
        return await in_thread(
            lambda: self._process.communicate(input), stop=self._process._run.kill
        )

    # Ending.

    def send_signal(self, number: int) -> None:
        """Send a signal to the program (not to its descendants); nothing if it has ended."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole run: the program and every descendant, with SIGKILL."""
        self._process.kill()

    async def stop(self, grace: float = 5.0) -> int:
        """Ask the program to end (SIGTERM), and after *grace* seconds end the whole run."""
        self.terminate()
        with anyio.move_on_after(grace):
            return await self.wait()
        self.kill()
        return await self.wait()

    async def suspend(self) -> None:
        """Stop every process of the run (SIGSTOP); all stand still when this returns."""
        await shielded(self._process.suspend)

    async def resume(self) -> None:
        """Continue what `suspend` stopped, but not what job control had stopped before."""
        await shielded(self._process.resume)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal; the programs on it get SIGWINCH."""
        self._process.resize(rows, columns)

    async def aclose(self) -> None:
        """End the run if it has not ended, and close the streams."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                _close(stream._file)
        await shielded(self._process.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Async{repr(self._process)[1:]}"

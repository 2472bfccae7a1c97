"""`AsyncTerminal`: a terminal session whose verbs are awaited."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

import anyio
import anyio.lowlevel

from visruntime.aio._stopping import Stopping
from visruntime.aio._threads import in_thread, shielded
from visruntime.errors import CommandTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime._jail.terminal import TerminalPreview, TerminalSession
    from visruntime.jail import CommandResult

__all__ = ["AsyncTerminal"]

T = TypeVar("T")

_TYPE_SECONDS = 0.02
"""How often it is tried again to type what a command does not read."""


class AsyncTerminal:
    """A `TerminalSession` for asyncio and Trio: one command on a terminal, run as often as wanted.

    Made by `AsyncJail.terminal`; ``async with`` ends the command at the end of its block. Verbs and
    errors are those of `TerminalSession`. A `run` that is cancelled ends what it has started; a `read`,
    `wait` or `input` that is cancelled ends only the waiting.
    """

    def __init__(self, session: TerminalSession) -> None:
        self._session = session
        self._lock = threading.Lock()  # between the tasks that wait and the thread that reads
        self._waiting: set[int] = set()
        session._watch(self._tell)

    def _tell(self) -> None:
        """In the thread that reads the terminal: wake the tasks that wait."""
        with self._lock:
            for waiting in self._waiting:
                os.eventfd_write(waiting, 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the command and let go of the terminal. Idempotent; what was kept can still be read."""
        await shielded(self._session.close)

    def __repr__(self) -> str:
        return f"<AsyncTerminal {self._session.state}>"

    async def preview(self) -> TerminalPreview:
        """Say what `run` would start: `TerminalSession.preview`."""
        return await shielded(self._session.preview)

    async def run(self, *, key: str | None = None) -> None:
        """Start the command: `TerminalSession.run`."""
        await self._start(lambda: self._session.run(key=key))

    async def restart(self, *, key: str | None = None) -> None:
        """End the command, if it runs, and start it anew: `TerminalSession.restart`."""
        await self._start(lambda: self._session.restart(key=key))

    async def _start(self, start: Callable[[], None]) -> None:
        call = Stopping()
        await in_thread(call.around(start), stop=call.stop, discard=lambda _: self._session.kill())

    async def input(self, data: str | bytes, *, timeout: float = 5.0) -> None:
        """Type *data*: `TerminalSession.input`."""
        content = self._session._checked(data)
        end = time.monotonic() + timeout
        offset = 0
        await anyio.lowlevel.checkpoint()
        while offset < len(content):
            typed, _ = self._session._type_some(content[offset:])
            offset += typed
            if not typed:
                if time.monotonic() >= end:
                    raise CommandTimeout(f"typed {offset} of {len(content)} bytes in {timeout} s")
                # Not by waiting for its descriptor, which another thread closes at the end.
                await anyio.sleep(_TYPE_SECONDS)

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size, of the running command too: `TerminalSession.resize`."""
        await shielded(lambda: self._session.resize(rows, cols))

    async def kill(self) -> CommandResult | None:
        """End the command and everything it started: `TerminalSession.kill`."""
        return await shielded(self._session.kill)

    async def wait(self) -> CommandResult:
        """Wait for the end of the command and of its output: `TerminalSession.wait`."""
        return await self._when_there_is(lambda: self._session.wait(0))

    async def read(self) -> bytes:
        """Return what was written since the last `read`, ``b""`` only at the end."""
        return await self._when_there_is(lambda: self._session.read(0))

    async def _when_there_is(self, look: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with self._lock:
            self._waiting.add(news)
        try:
            while True:
                try:
                    return look()
                except CommandTimeout:
                    await anyio.wait_readable(news)
                    os.eventfd_read(news)
        finally:
            with self._lock:
                self._waiting.discard(news)
                os.close(news)

    # What it shows.

    @property
    def state(self) -> str:
        """Return "ready" before the first `run`, "running", or "ended"."""
        return self._session.state

    @property
    def result(self) -> CommandResult | None:
        """How the last command ended."""
        return self._session.result

    @property
    def total(self) -> int:
        """How many bytes the command has written."""
        return self._session.total

    @property
    def output(self) -> bytes:
        """The last bytes of the output, control sequences and all."""
        return self._session.output

    @property
    def text(self) -> str:
        """The last lines of the output as text in which nothing controls a terminal."""
        return self._session.text

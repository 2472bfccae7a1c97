"""A run that goes on while its task does something else."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import anyio

if TYPE_CHECKING:
    from visruntime.results import RunResult
    from visruntime.runtime import RunEvent, RunHandle

__all__ = ["AsyncRun"]


class _Bell:
    """Rung in any thread and heard in a task: two sockets, for which every loop can wait."""

    def __init__(self) -> None:
        self._heard, self._rung = socket.socketpair()
        self._heard.setblocking(False)
        self._rung.setblocking(False)

    def ring(self) -> None:
        """Wake who waits; it stays rung until it is silenced."""
        with suppress(BlockingIOError):  # it was rung very often
            self._rung.send(b"!")

    def silence(self) -> None:
        """Forget what was rung so far; some of it may be heard once more."""
        with suppress(BlockingIOError):
            self._heard.recv(1 << 16)

    async def hear(self) -> None:
        """Wait until it is rung.

        Raises:
            anyio.ClosedResourceError: it was closed.
        """
        await anyio.wait_readable(self._heard)

    def close(self) -> None:
        """Give it back, and wake who waits."""
        anyio.notify_closing(self._heard)
        self._heard.close()
        self._rung.close()


class AsyncRun:
    """A run under way: iterate over its events, cancel it, or wait for its result.

    The events are those of `RunHandle`, with its bounds: a slow reader holds up nothing, and is
    told how many events it has missed.
    """

    _handle: RunHandle

    def __init__(self) -> None:
        # Before the run begins, which would go on where they cannot be made.
        self._reading, self._waiting = anyio.Lock(), anyio.Lock()
        self._news = _Bell()
        try:
            self._end = _Bell()
        except BaseException:
            self._news.close()
            raise

    def _follow(self, handle: RunHandle) -> None:
        """Be that run."""
        self._handle = handle
        handle.watch(self._tell)

    def _tell(self) -> None:
        """In the thread that drives the run: wake the tasks that wait."""
        self._news.ring()
        if self._handle.done:
            self._end.ring()

    def __repr__(self) -> str:
        return f"<AsyncRun, {'done' if self.done else 'under way'}>"

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self._handle.done

    @property
    def dropped(self) -> int:
        """How many events were dropped, because the reader was too slow."""
        return self._handle.dropped

    def cancel(self) -> None:
        """End the run, which is no error: its result has ``stopped_by`` ``"cancelled"``."""
        self._handle.cancel()

    async def result(self) -> RunResult:
        """Wait for the end and return the result, or raise what `AsyncRuntime.run` would raise.

        Cancelling ends the waiting only.
        """
        self._handle.refuse_in_callback()
        await self.wait()
        return self._handle.result(0)

    async def wait(self) -> None:
        """Wait for the end."""
        self._handle.refuse_in_callback()
        await anyio.lowlevel.checkpoint()
        while not self.done:
            async with self._waiting:
                if not self.done:
                    await self._hear(self._end)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self) -> RunEvent | None:
        """Wait for the next event and return it, ``None`` after the last."""
        self._handle.refuse_in_callback()
        await anyio.lowlevel.checkpoint()
        async with self._reading:
            while True:
                # Afterwards nothing is waited for, and the bell may be gone.
                if not self.done:
                    self._news.silence()
                try:
                    return self._handle.next_event(0)
                except TimeoutError:
                    await self._hear(self._news)

    async def _hear(self, bell: _Bell) -> None:
        try:
            await bell.hear()
        except anyio.ClosedResourceError:
            if not self.done:
                raise

    def _close(self) -> None:
        """Give the bells back; the run is over, or has never begun."""
        if hasattr(self, "_handle"):
            self._handle.watch(None)
        self._news.close()
        self._end.close()

"""A run that goes on while its task does something else."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import anyio

if TYPE_CHECKING:
    from visruntime.results import RunResult
    from visruntime.runtime import RunEvent, RunHandle

__all__ = ["AsyncRun"]


class AsyncRun:
    """A run under way: iterate over its events, cancel it, or wait for its result.

    The events are those of `RunHandle`, with its bounds: a slow reader holds up nothing, and is
    told how many events it has missed.
    """

    _handle: RunHandle

    def __init__(self) -> None:
        # Before the run begins, which would go on where they cannot be made.
        self._reading, self._waiting = anyio.Lock(), anyio.Lock()
        self._news = self._end = -1
        try:
            self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._end = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except BaseException:
            self._close()
            raise

    def _follow(self, handle: RunHandle) -> None:
        """Be that run."""
        self._handle = handle
        handle.watch(self._tell)

    def _tell(self) -> None:
        """In the thread that drives the run: wake the tasks that wait."""
        os.eventfd_write(self._news, 1)
        if self._handle.done:
            os.eventfd_write(self._end, 1)

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
                    await self._readable(self._end)

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
                # Afterwards nothing is waited for, and the descriptor may be gone.
                if not self.done:
                    with suppress(BlockingIOError):
                        os.eventfd_read(self._news)
                try:
                    return self._handle.next_event(0)
                except TimeoutError:
                    await self._readable(self._news)

    async def _readable(self, descriptor: int) -> None:
        try:
            await anyio.wait_readable(descriptor)
        except anyio.ClosedResourceError:
            if not self.done:
                raise

    def _close(self) -> None:
        """Give the descriptors back; the run is over, or has never begun."""
        if hasattr(self, "_handle"):
            self._handle.watch(None)
        news, self._news = self._news, -1
        end, self._end = self._end, -1
        for descriptor in (news, end):
            if descriptor >= 0:
                anyio.notify_closing(descriptor)
                os.close(descriptor)

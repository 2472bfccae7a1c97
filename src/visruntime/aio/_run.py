"""A run that goes on while its task does something else."""

from __future__ import annotations

import os
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

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._reading, self._waiting = anyio.Lock(), anyio.Lock()
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._end = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
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
        await anyio.lowlevel.checkpoint()
        while not self.done:
            async with self._waiting:
                if not self.done:
                    await anyio.wait_readable(self._end)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self) -> RunEvent | None:
        """Wait for the next event and return it, ``None`` after the last."""
        await anyio.lowlevel.checkpoint()
        async with self._reading:
            while True:
                try:
                    os.eventfd_read(self._news)
                except BlockingIOError:
                    pass
                try:
                    return self._handle.next_event(0)
                except TimeoutError:
                    await anyio.wait_readable(self._news)

    def _close(self) -> None:
        """Give the descriptors back; the run is over."""
        self._handle.watch(None)
        for descriptor in (self._news, self._end):
            anyio.notify_closing(descriptor)
            os.close(descriptor)

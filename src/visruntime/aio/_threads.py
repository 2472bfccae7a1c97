"""A call that blocks, made in a thread and ended when the task that waits for it is cancelled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_thread", "shielded"]

T = TypeVar("T")


async def in_thread(
    work: Callable[[], T],
    *,
    stop: Callable[[], object],
    discard: Callable[[T], object] | None = None,
) -> T:
    """Return what *work* returns in a thread, or raise what it raises.

    A cancelled caller waits until the thread is done, so nothing goes on behind its back.

    Args:
        work: what blocks.
        stop: makes *work* end soon; called in the event loop when the caller is cancelled, so it
            must not block. It may come before *work* has begun.
        discard: gives back a result that comes although the caller was cancelled; in a thread.
    """
    ended = anyio.Event()
    values: list[T] = []
    problems: list[BaseException] = []

    async def drive() -> None:
        try:
            values.append(await shielded(work))
        except BaseException as problem:  # noqa: BLE001 (raised again where it is waited for)
            problems.append(problem)
        ended.set()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(drive)
            try:
                await ended.wait()
            except BaseException:
                stop()
                raise
    except BaseException:
        if values and discard is not None:
            await shielded(partial(discard, values[0]))
        raise
    if problems:
        raise problems.pop()  # kept nowhere here, since it refers to this frame
    return values.pop()


async def shielded(work: Callable[[], T]) -> T:
    """Return what *work* returns in a thread; cancelling takes effect afterwards.

    The threads are as many as there are callers, since each holds a process of its own: with a
    bound, calls that wait for each other's programs would wait for ever.
    """
    with anyio.CancelScope(shield=True):
        value = await to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1))
    return value  # noqa: RET504 (for mypy the scope may swallow an error)

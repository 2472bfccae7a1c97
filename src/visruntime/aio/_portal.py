"""Functions of the host that a guest calls, run in the event loop of the task that waits for it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio.from_thread import BlockingPortal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from concurrent.futures import Future

    from visruntime.callbacks import Callbacks

__all__ = ["in_loop", "serve"]


@asynccontextmanager
async def serve(callbacks: Callbacks) -> AsyncIterator[BlockingPortal]:
    """Run what the guest awaits of the host as children of this task, until the block is left.

    Those that are left then are cancelled, and waited for. An error of the block comes out as it
    is, in no group.
    """
    failure: BaseException | None = None
    async with BlockingPortal() as portal:
        callbacks.submit = lambda awaitable: _submit(portal, awaitable)
        try:
            yield portal
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as problem:  # noqa: BLE001 (raised again below)
            failure = problem
        finally:
            callbacks.submit = None
            await portal.stop(cancel_remaining=True)
    try:
        if failure is not None:
            raise failure
    finally:
        failure = None  # it refers to this frame


def in_loop(portal: BlockingPortal, function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function for threads that calls *function*, which may be async, in the loop."""

    def call(*arguments: Any) -> None:
        portal.call(function, *arguments)

    return call


def _submit(portal: BlockingPortal, awaitable: Awaitable[Any]) -> Future[Any]:
    try:
        return portal.start_task_soon(_finish, awaitable)
    except RuntimeError:  # nobody waits for it any longer
        if hasattr(awaitable, "close"):
            awaitable.close()
        raise


async def _finish(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

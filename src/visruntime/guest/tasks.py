"""Asyncio tasks that are left when the guest's code has ended."""

from __future__ import annotations

import asyncio

from .describe import cut
from .limits import MAX_TASK_NAME, MAX_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def left_behind(runner: Any, *, cancel: bool) -> list[str]:
    """Name the tasks that are not done, and end them where that is asked for."""
    tasks = [task for task in asyncio.all_tasks(runner.get_loop()) if not task.done()]
    names = sorted(_name(task) for task in tasks[:MAX_TASKS])
    if cancel and tasks:
        for task in tasks:
            task.cancel()

        async def wait() -> None:
            await asyncio.wait(tasks)

        runner.run(wait())
        for task in tasks:
            if not task.cancelled():
                task.exception()  # known now, so that asyncio does not complain later
    return names


def _name(task: Any) -> str:
    coroutine = getattr(task.get_coro(), "__qualname__", "")
    return cut(f"{task.get_name()} ({coroutine})", MAX_TASK_NAME - 40)

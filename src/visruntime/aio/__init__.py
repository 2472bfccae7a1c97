"""Jails and runtimes for asyncio and Trio: the verbs of `Jail` and `Runtime`, awaitable.

It needs anyio (``pip install visruntime[aio]``). Whatever waits is in a thread or at a descriptor,
never in the event loop. Cancelling a call ends what the call started, and waits for that, so
that no process, no descriptor and no busy thread outlives it. ``timeout=`` works as in the synchronous
verbs; ``anyio.fail_after`` and ``asyncio.timeout`` are cancellations.
"""

from __future__ import annotations

from visruntime._host.imports import import_trusted as _import_trusted

try:
    _import_trusted("anyio")
except ModuleNotFoundError as _problem:
    raise ModuleNotFoundError(
        "visruntime.aio needs anyio: install visruntime[aio]", name=_problem.name
    ) from None

from visruntime.aio._executor import AsyncJailExecutor
from visruntime.aio._jail import AsyncJail
from visruntime.aio._pool import AsyncRuntimePool
from visruntime.aio._process import AsyncProcess, ProcessReader, ProcessWriter
from visruntime.aio._run import AsyncRun
from visruntime.aio._runtime import AsyncRuntime, AsyncTrustedRuntime
from visruntime.aio._terminal import AsyncTerminal

__all__ = [
    "AsyncJail",
    "AsyncJailExecutor",
    "AsyncProcess",
    "AsyncRun",
    "AsyncRuntime",
    "AsyncRuntimePool",
    "AsyncTerminal",
    "AsyncTrustedRuntime",
    "ProcessReader",
    "ProcessWriter",
]

"""`AsyncRuntimePool`: runtimes with a worker ready to run, for tasks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.lowlevel

from visruntime.aio._runtime import AsyncRuntime, AsyncTrustedRuntime
from visruntime.aio._stopping import StoppableRuntime, Stopping
from visruntime.aio._threads import in_thread, shielded
from visruntime.errors import PoolExhausted
from visruntime.pool import RuntimePool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from visruntime.policy import JailPolicy
    from visruntime.results import RunResult
    from visruntime.windows import WindowsJail

    AnyRuntime = AsyncRuntime | AsyncTrustedRuntime

__all__ = ["AsyncRuntimePool", "StoppablePool"]

_LOOK_SECONDS = 0.1
"""How long a thread waits at once for the stock; a cancelled task waits no longer than that."""


class StoppablePool(RuntimePool):
    """A pool whose runtimes can be cancelled."""

    _runtime_class = StoppableRuntime


class AsyncRuntimePool:
    """A `RuntimePool` for asyncio and Trio; ``async with`` opens and closes it.

    The arguments are those of `RuntimePool`, but that a function given instead of a policy makes
    an `AsyncRuntime` or `AsyncTrustedRuntime` that is not open yet. ``prepare`` gets the synchronous
    runtime, in a thread. Tasks that wait for a runtime get one in the order in which they asked.
    """

    def __init__(
        self,
        policy: JailPolicy | WindowsJail | Callable[[], AnyRuntime],
        *,
        max_size: int = 8,
        when_exhausted: str = "wait",
        **options: Any,
    ) -> None:
        self._policy = policy
        self._max_size = max_size
        self._waits = when_exhausted == "wait"
        self._options = {"max_size": max_size, "when_exhausted": when_exhausted, **options}
        self._pool: RuntimePool | None = None
        self._lent: dict[int, AnyRuntime] = {}

    def _open(self) -> RuntimePool:
        policy: Any = self._policy
        if callable(policy):
            return StoppablePool(lambda: policy()._make(), **self._options)
        return StoppablePool(policy, **self._options)

    async def __aenter__(self) -> Self:
        if self._pool is not None:
            raise RuntimeError("this AsyncRuntimePool has been opened before; make another one")
        self._pool = await in_thread(self._open, stop=lambda: None, discard=RuntimePool.close)
        self._room = anyio.Semaphore(self._max_size)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End those that are not borrowed, and each other one when it is given back. Idempotent."""
        if self._pool is not None:
            await shielded(self._pool.close)

    def __repr__(self) -> str:
        return f"<AsyncRuntimePool, {self._pool!r}>"

    @property
    def ready(self) -> int:
        """How many can be borrowed without waiting for a start."""
        return self.opened().ready

    @property
    def borrowed(self) -> int:
        """How many are borrowed now."""
        return self.opened().borrowed

    @asynccontextmanager
    async def borrow(self, timeout: float | None = None) -> AsyncIterator[AnyRuntime]:
        """Lend a runtime for an ``async with`` block; otherwise as `acquire`."""
        runtime = await self.acquire(timeout)
        try:
            yield runtime
        finally:
            await self.release(runtime)

    async def run(self, code: str, **arguments: Any) -> RunResult:
        """Borrow a runtime for one `AsyncRuntime.run`."""
        async with self.borrow() as runtime:
            return await runtime.run(code, **arguments)

    async def acquire(self, timeout: float | None = None) -> AnyRuntime:
        """Lend a runtime until `release`: `RuntimePool.acquire`."""
        pool = self.opened()
        await self._have_room(timeout)
        call = Stopping()
        try:
            runtime = await in_thread(
                call.around(pool.acquire), stop=call.stop, discard=pool.release
            )
        except BaseException:
            self._room.release()
            raise
        lent: AnyRuntime
        if isinstance(runtime, StoppableRuntime):
            lent = object.__new__(AsyncRuntime)
        else:
            lent = object.__new__(AsyncTrustedRuntime)
        lent._begin(runtime)
        self._lent[id(lent)] = lent
        return lent

    async def _have_room(self, timeout: float | None) -> None:
        if not self._waits:
            try:
                self._room.acquire_nowait()
            except anyio.WouldBlock:
                raise PoolExhausted(
                    f"all {self._max_size} runtimes of the pool are borrowed"
                ) from None
            await anyio.lowlevel.checkpoint()
            return
        try:
            with anyio.fail_after(timeout):
                await self._room.acquire()
        except TimeoutError:
            raise PoolExhausted(f"no runtime of the pool came back within {timeout} s") from None

    async def release(self, runtime: AnyRuntime) -> None:
        """Take a runtime back; a call of it that is under way is ended: `RuntimePool.release`."""
        if self._lent.pop(id(runtime), None) is not runtime:
            raise ValueError("this runtime is not borrowed from this pool")
        runtime._closed = True
        if runtime._current is not None:
            runtime._current.stop()
        below: Any = runtime.opened()
        try:
            await shielded(lambda: self.opened().release(below))
        finally:
            self._room.release()

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until as many are ready as are to be kept: `RuntimePool.wait_ready`."""
        pool = self.opened()
        end = anyio.current_time() + timeout if timeout is not None else None
        while True:
            await anyio.lowlevel.checkpoint()
            try:
                await shielded(lambda: pool.wait_ready(_LOOK_SECONDS))
            except TimeoutError:
                if end is not None and anyio.current_time() >= end:
                    raise TimeoutError(f"the pool was not filled within {timeout} s") from None
            else:
                return

    async def kill(self, *, interrupt: bool = False) -> None:
        """Close the pool and end the borrowed workers too: `RuntimePool.kill`."""
        pool = self.opened()
        await shielded(lambda: pool.kill(interrupt=interrupt))

    def opened(self) -> RuntimePool:
        """Return the pool below, which has the synchronous verbs.

        Raises:
            RuntimeError: it was not opened yet.
        """
        if self._pool is None:
            raise RuntimeError("open it first: async with AsyncRuntimePool(policy) as pool")
        return self._pool

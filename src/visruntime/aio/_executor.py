"""`AsyncJailExecutor`: calls of functions in jailed workers, for tasks."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from visruntime._arguments import check_whole
from visruntime._runtime.executor_task import one_call
from visruntime.aio._pool import StoppablePool
from visruntime.aio._stopping import Stopping
from visruntime.aio._threads import in_thread, shielded
from visruntime.executor import JailExecutor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from typing import NoReturn

    from visruntime._runtime.executor_task import Arguments
    from visruntime._runtime.timeouts import Timeouts
    from visruntime.aio._runtime import AsyncRuntime, AsyncTrustedRuntime
    from visruntime.policy import JailPolicy
    from visruntime.windows import WindowsJail

    AnyRuntime = AsyncRuntime | AsyncTrustedRuntime

__all__ = ["AsyncJailExecutor"]


class _StoppableExecutor(JailExecutor):
    """An executor whose calls can be cancelled: a worker that was ended for that breaks nothing."""

    _pool_class = StoppablePool

    def _break(self, problem: Exception) -> NoReturn:
        if Stopping.is_current_stopped():
            raise problem
        super()._break(problem)


class AsyncJailExecutor:
    """A `JailExecutor` for asyncio and Trio; ``async with`` opens and closes it.

    The arguments are those of `JailExecutor`, but that a function given instead of a policy makes
    an `AsyncRuntime` or `AsyncTrustedRuntime` that is not open yet. Tasks get a worker in the order
    in which they asked. A call that is cancelled is interrupted, and what does not obey within half
    a second is ended with its worker; the next call gets a fresh one.
    """

    def __init__(
        self,
        policy: JailPolicy | WindowsJail | Callable[[], AnyRuntime],
        max_workers: int | None = None,
        **options: Any,
    ) -> None:
        self._policy = policy
        self._max_workers = max_workers
        self._options = options
        self._executor: _StoppableExecutor | None = None
        self._closing = False

    def _open(self) -> _StoppableExecutor:
        policy: Any = self._policy
        if callable(policy):
            return _StoppableExecutor(lambda: policy()._make(), self._max_workers, **self._options)
        return _StoppableExecutor(policy, self._max_workers, **self._options)

    async def __aenter__(self) -> Self:
        if self._executor is not None:
            raise RuntimeError("this AsyncJailExecutor has been opened before; make another one")
        self._executor = await in_thread(
            self._open, stop=lambda: None, discard=JailExecutor.shutdown
        )
        self._room = anyio.Semaphore(self._executor._max_workers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Take no more calls, and end the workers when those under way are done. Idempotent."""
        if self._executor is None or self._closing:
            return
        self._closing = True
        executor = self._executor
        await shielded(partial(executor.shutdown, wait=False))
        async with AsyncExitStack() as taken:  # all of them: then no call is under way
            for _ in range(executor._max_workers):
                await taken.enter_async_context(self._turn())
            await shielded(executor.shutdown)

    def __repr__(self) -> str:
        return f"<AsyncJailExecutor {'closed' if self._closing else 'open'}>"

    async def submit(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Any:
        """Call *fn* in a worker and return its result: `JailExecutor.submit`, waited for."""
        return await self.schedule(fn, args, kwargs)

    async def schedule(
        self,
        fn: Callable[..., Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | Timeouts | None = None,
    ) -> Any:
        """Call *fn* as `submit` does, with a limit on time of its own: `JailExecutor.schedule`."""
        (value,) = await self._call(fn, one_call(args, kwargs), timeout)
        return value

    async def map(
        self,
        fn: Callable[..., Any] | str,
        *iterables: Iterable[Any],
        chunksize: int = 1,
    ) -> list[Any]:
        """Call *fn* with the items of *iterables* and return the results in order.

        *iterables* are read as workers get free. Where a call raises, or this is cancelled, the
        others end too.

        Args:
            fn: the function, or its name.
            iterables: one for each argument; the shortest decides.
            chunksize: calls that go to a worker together.

        Raises:
            TypeError, ValueError: *chunksize* is not a positive whole number.
            Exception: what the first call to fail has raised.
        """
        check_whole(chunksize, "chunksize", 1)
        results: list[list[Any]] = []
        problems: list[Exception] = []

        async def call(chunk: list[Arguments], at: int) -> None:
            try:
                results[at] = await self._call(fn, chunk, None)
            except Exception as problem:  # noqa: BLE001 (raised again below)
                problems.append(problem)
                group.cancel_scope.cancel()
            finally:
                turn.release()

        turn = anyio.Semaphore(self.opened()._max_workers)
        async with anyio.create_task_group() as group:
            for chunk in _chunks(zip(*iterables, strict=False), chunksize):
                await turn.acquire()
                results.append([])
                group.start_soon(call, chunk, len(results) - 1)
        if problems:
            raise problems[0]
        return [value for values in results for value in values]

    async def terminate_workers(self) -> None:
        """Break it, and end what runs: `JailExecutor.terminate_workers`."""
        await shielded(self.opened().terminate_workers)

    async def kill_workers(self) -> None:
        """Break it, and end all workers at once: `JailExecutor.kill_workers`."""
        await shielded(self.opened().kill_workers)

    def opened(self) -> JailExecutor:
        """Return the executor below, which has the synchronous verbs.

        Raises:
            RuntimeError: it was not opened yet.
        """
        if self._executor is None:
            raise RuntimeError("open it first: async with AsyncJailExecutor(policy) as executor")
        return self._executor

    async def _call(
        self,
        fn: Callable[..., Any] | str,
        calls: Sequence[Arguments],
        timeout: float | Timeouts | None,
    ) -> list[Any]:
        executor = self.opened()
        async with self._turn():
            call = Stopping()
            work = call.around(partial(executor._perform, fn, calls, timeout))
            return await in_thread(work, stop=call.stop)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._room.acquire()
        try:
            yield
        finally:
            self._room.release()


def _chunks(items: Iterable[tuple[Any, ...]], size: int) -> Iterable[list[Arguments]]:
    chunk: list[Arguments] = []
    for item in items:
        chunk.append((item, {}))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

"""Executors on asyncio and Trio: results, errors, and calls that are cancelled."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
import cloudpickle  # type: ignore[import-untyped]
import pytest
from aio_helpers import BACKENDS, run_on

import visruntime as vr
from visruntime.aio import AsyncJailExecutor, AsyncTrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.one_uid, pytest.mark.parametrize("backend", BACKENDS)]
POLICY = vr.JailPolicy()


@pytest.fixture(autouse=True)
def as_code() -> Iterator[None]:
    """Send the functions of this module as code, since no worker can import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def double(number: int) -> int:
    """Be something that crosses."""
    return number * 2


def fail(text: str) -> None:
    """Raise something of the guest's."""
    raise LookupError(text)


def wait(seconds: float) -> int:
    """Take time; and say who did."""
    time.sleep(seconds)
    return os.getpid()


def timed(seconds: float) -> tuple[float, float]:
    """Take time; and say from when to when."""
    began = time.monotonic()
    time.sleep(seconds)
    return began, time.monotonic()


def disobey() -> None:
    """Swallow every interrupt."""
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass


def test_calls_return_data_and_raise_what_the_guest_raised(backend: str) -> None:
    """No result may get lost or change places, and an error must be the guest's."""

    async def main() -> None:
        async with AsyncJailExecutor(POLICY, 2) as executor:
            assert await executor.submit(double, 21) == 42
            assert await executor.schedule("math:sqrt", [9.0]) == 3.0
            assert await executor.map(double, range(7), chunksize=3) == [0, 2, 4, 6, 8, 10, 12]
            assert await executor.map(double, []) == []
            with pytest.raises(LookupError, match="gone") as caught:
                await executor.submit(fail, "gone")
            assert isinstance(caught.value.__cause__, vr.GuestError)
            with pytest.raises(vr.CommandTimeout):
                await executor.schedule(wait, [60], timeout=0.05)
            wrong: Any
            for wrong in ("ab", {"a": 1}):
                with pytest.raises(TypeError, match="args"):
                    await executor.schedule(double, wrong)
            for wrong in ([("number", 1)], {1: 1}):
                with pytest.raises(TypeError, match="kwargs"):
                    await executor.schedule(double, (), wrong)
            with pytest.raises(LookupError):
                await executor.map(fail, ["a", "b", "c"])
            with pytest.raises(ValueError, match="chunksize"):
                await executor.map(double, [1], chunksize=0)
            assert await executor.submit(double, number=1) == 2
        with pytest.raises(RuntimeError, match="after shutdown"):
            await executor.submit(double, 1)

    run_on(backend, main)


def test_no_more_calls_run_at_a_time_than_there_are_workers(backend: str) -> None:
    """Tasks beyond the bound must wait, and the loop must go on meanwhile."""

    async def main() -> None:
        times: list[tuple[float, float]] = []
        turns = 0

        async def use() -> None:
            times.append(await executor.submit(timed, 0.2))

        async def watch() -> None:
            nonlocal turns
            while len(times) < 6:
                await anyio.sleep(0.01)
                turns += 1

        async with AsyncJailExecutor(POLICY, 2) as executor:
            assert await executor.map(double, range(2)) == [0, 2]
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(watch)
                    for _ in range(6):
                        group.start_soon(use)
            assert executor.opened()._pool.borrowed == 0
        # Most at a time: at the beginning of one of them. The machine's clock is the guests' too.
        running = [sum(began <= start < end for began, end in times) for start, _ in times]
        assert max(running) == 2
        # Three rounds of a fifth of a second; a loop that waits for a call gets a turn for each.
        assert turns > 10

    run_on(backend, main)


def test_cancelling_ends_a_call_and_breaks_nothing(backend: str) -> None:
    """A cancelled call must leave no program, and the next one must have a worker."""

    async def main() -> None:
        async with AsyncJailExecutor(POLICY, 1) as executor:
            with anyio.move_on_after(0.01):  # while its worker starts
                await executor.submit(wait, 60)
            first = await executor.submit(wait, 0)
            with anyio.move_on_after(0.1) as scope:
                await executor.submit(wait, 60)
            assert scope.cancelled_caught
            assert await executor.submit(wait, 0) == first
            started = time.monotonic()
            with anyio.move_on_after(0.1):
                await executor.submit(disobey)
            assert time.monotonic() - started < 5
            assert await executor.submit(double, 4) == 8
            with anyio.move_on_after(0.1):
                await executor.map(wait, [60] * 3)
            assert await executor.submit(double, 5) == 10

    run_on(backend, main)


def test_a_killed_executor_is_broken(backend: str) -> None:
    """Whoever waits for a killed worker must hear of it, and nothing may start afterwards."""

    async def main() -> None:
        broken: list[str] = []

        async def use() -> None:
            try:
                await executor.submit(wait, 60)
            except vr.JailExecutorBroken as problem:
                broken.append(str(problem))

        async with AsyncJailExecutor(POLICY, 1) as executor:
            await executor.submit(double, 1)
            async with anyio.create_task_group() as group:
                group.start_soon(use)
                await anyio.sleep(0.1)
                await executor.kill_workers()
            assert len(broken) == 1
            with pytest.raises(vr.JailExecutorBroken):
                await executor.submit(double, 1)

    run_on(backend, main)


def test_what_prepares_a_worker_breaks_the_executor_if_it_fails(backend: str) -> None:
    """An executor whose workers cannot be made ready must say so once and for all."""

    def make() -> Any:
        return AsyncTrustedRuntime()

    async def main() -> None:
        async with AsyncJailExecutor(make, 1, initializer=fail, initargs=("x",)) as executor:
            for _ in range(2):
                with pytest.raises(vr.JailExecutorBroken, match="could not be made ready"):
                    await executor.submit(double, 1)
        async with AsyncJailExecutor(make, 1) as executor:
            assert await executor.submit(double, 2) == 4
            with pytest.raises(RuntimeError, match="opened before"):
                await executor.__aenter__()
        with pytest.raises(RuntimeError, match="open it first"):
            AsyncJailExecutor(make).opened()

    run_on(backend, main)

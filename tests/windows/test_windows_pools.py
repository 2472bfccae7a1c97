"""Pools, executors and `aio` over runtimes of Windows: the host's side of them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from aio_helpers import BACKENDS, run_on
from windows_relay import RelayedCalls

import visruntime as vr
from visruntime import aio
from visruntime._runtime.windows import Runtime
from visruntime.aio import _pool as aio_pool
from visruntime.aio import _runtime as aio_runtime
from visruntime.aio._stopping import _StoppableSession

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

PID = "__import__('os').getpid()"


class StoppableRuntime(_StoppableSession, Runtime):
    """What `aio` makes on Windows."""


class Pool(vr.RuntimePool):
    """What a pool is on Windows."""

    _runtime_class = Runtime  # type: ignore[assignment]


class Executor(vr.JailExecutor):
    """What an executor is on Windows."""

    _pool_class = Pool


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of each event loop; `aio` is that of Windows meanwhile."""
    for module in (aio_pool, aio_runtime):
        monkeypatch.setattr(module, "StoppableRuntime", StoppableRuntime)
    monkeypatch.setattr(aio_pool.StoppablePool, "_runtime_class", StoppableRuntime)
    return str(request.param)


def test_borrowers_get_workers_of_their_own(jail: vr.WindowsJail, calls: RelayedCalls) -> None:
    """W64: no borrower may get a worker that somebody else has used; each has its limits."""
    limits = vr.WindowsLimits(processes=2)
    with Pool(jail, min_idle=1, max_size=2, limits=limits) as pool:
        with pool.borrow() as one, pool.borrow() as other:
            assert one.eval(PID) != other.eval(PID)
            one.run("left = 1")
            with pytest.raises(vr.PoolExhausted):
                pool.acquire(timeout=0.05)
        with pytest.raises(vr.GuestError, match="NameError"):
            pool.run("left", check=True)
        assert {request["numbers"]["active_processes"] for request in calls.spawned} == {2}
        pool.wait_ready(20)
    assert calls.programs == {}
    assert not calls.closed  # it is the caller's


@pytest.mark.parametrize(("reuse", "kept"), [("reset", False), ("keep", True)])
def test_a_worker_is_lent_again(
    jail: vr.WindowsJail, calls: RelayedCalls, reuse: Any, *, kept: bool
) -> None:
    """W64: names of a borrower stay where that was asked for, and nowhere else."""
    with Pool(jail, min_idle=0, reuse=reuse) as pool:
        pool.run("left = 1")
        assert pool.run("globals().get('left')").value == (1 if kept else None)
        assert len(calls.spawned) == 1
        with pytest.raises(vr.WorkerDied):
            pool.run("import os; os._exit(1)")
        assert pool.run("1").value == 1
        assert len(calls.spawned) == 2


def test_each_of_a_pool_may_have_a_jail_of_its_own(
    open_jail: Callable[[RelayedCalls], vr.WindowsJail],
) -> None:
    """W64: a jail that was opened for one borrower goes with it, and none is left."""
    made: list[RelayedCalls] = []

    def make() -> Any:
        made.append(RelayedCalls())
        return Runtime(open_jail(made[-1]), close_jail=True)

    with vr.RuntimePool(make, min_idle=0, max_size=1) as pool:
        first, second = (pool.run(PID).value for _ in range(2))
        assert first != second
        assert made[0].closed
    assert len(made) >= 2
    assert all(calls.closed for calls in made)


def test_a_pool_refuses_what_a_runtime_there_has_not(
    jail: vr.WindowsJail, calls: RelayedCalls
) -> None:
    """W2: no option of a pool may be ignored on Windows."""
    for options in ({"max_memory": 1 << 30}, {"stdin": 0}, {"preload": ["json"]}):
        (name,) = options
        with pytest.raises(vr.PolicyUnsupported, match=rf"^{name}: ") as caught:
            Pool(jail, **options)
        assert caught.value.field == name
    with pytest.raises(vr.JailUnavailable, match="no JailPolicy"):
        Pool(vr.JailPolicy())
    assert calls.spawned == []


def test_a_pool_lends_no_worker_of_a_jail_that_is_closed(
    jail: vr.WindowsJail,
) -> None:
    """W43: a worker whose end cannot be asked for any more is not taken for one that lives."""
    with Pool(jail, min_idle=1, max_size=2) as pool:
        pool.wait_ready(20)
        jail.close()
        with pytest.raises(vr.JailClosed):
            pool.acquire()


def test_functions_run_in_workers(
    jail: vr.WindowsJail, calls: RelayedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W64: what a function returns, prints and raises, and its time, may not differ on Windows."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    printed: list[tuple[str, bytes]] = []
    with Executor(jail, on_output=lambda *what: printed.append(what)) as executor:
        assert executor._max_workers == 2
        assert list(executor.map(lambda n: n * n, range(6))) == [0, 1, 4, 9, 16, 25]
        assert executor.submit("math:gcd", 12, 18).result() == 6
        with pytest.raises(ZeroDivisionError) as caught:
            executor.submit(lambda: 1 // 0).result()
        assert isinstance(caught.value.__cause__, vr.GuestError)
        with pytest.raises(vr.CommandTimeout, match="the session is kept"):
            executor.schedule(time.sleep, (60,), timeout=0.3).result()
        assert executor.submit(print, "said").result() is None
        assert printed == [("stdout", b"said\n")]
        assert 1 <= len(calls.spawned) <= 2
        with pytest.raises(vr.WorkerDied):
            executor.submit(os._exit, 3).result()
        assert executor.submit(abs, -1).result() == 1
    assert calls.programs == {}


def test_tasks_use_runtimes(backend: str, jail: vr.WindowsJail, calls: RelayedCalls) -> None:
    """W64: verbs, events and functions of the loop are those of every system."""

    async def double(value: int) -> int:
        await anyio.sleep(0.01)
        return 2 * value

    async def main() -> None:
        async with aio.AsyncRuntime(jail, output=1000) as runtime:
            await runtime.expose("double", double)
            assert await runtime.eval("double(21)") == 42
            async with runtime.start("print('a'); 5") as run:
                assert [event.kind async for event in run] == ["stdout", "result"]
                assert (await run.result()).value == 5
            with pytest.raises(vr.PolicyUnsupported, match=r"^ping: "):
                await runtime.ping()
        with pytest.raises(TypeError, match="WindowsJail"):
            aio.AsyncRuntime(1)  # type: ignore[arg-type]

    run_on(backend, main)
    assert calls.programs == {}


def test_a_task_that_is_cancelled_leaves_nothing(
    backend: str, jail: vr.WindowsJail, calls: RelayedCalls
) -> None:
    """W64: a run is interrupted and its session kept; a worker that has yet to start is ended."""

    async def main() -> None:
        async with aio.AsyncRuntime(jail) as runtime:
            with anyio.move_on_after(0.001) as scope:
                await runtime.warm_up()
            assert scope.cancelled_caught
            assert calls.programs == {}
            await runtime.exec("kept = 1")
            began = len(calls.spawned)
            with anyio.move_on_after(0.2) as scope:
                await runtime.run("while True: pass")
            assert scope.cancelled_caught
            assert await runtime.eval("kept") == 1
            assert len(calls.spawned) == began
            with anyio.move_on_after(0.2):
                await runtime.run("sum(range(10**11))")  # which looks at no signal
            assert not await runtime.eval("'kept' in globals()")
            assert len(calls.spawned) == began + 1

    run_on(backend, main)
    assert calls.programs == {}


def test_tasks_use_pools_and_executors(
    backend: str, jail: vr.WindowsJail, calls: RelayedCalls
) -> None:
    """W64: what tasks borrow and call is given back, whatever the loop."""

    async def main() -> None:
        async with aio.AsyncRuntimePool(jail, min_idle=0, max_size=2) as pool:
            async with pool.borrow() as one, pool.borrow() as other:
                assert await one.eval(PID) != await other.eval(PID)
            made = aio.AsyncRuntimePool(lambda: aio.AsyncRuntime(jail), min_idle=0)
            async with made:
                assert (await made.run("1 + 1")).value == 2
        async with aio.AsyncJailExecutor(jail, 2) as executor:
            assert await executor.map(lambda n: n + 1, range(4)) == [1, 2, 3, 4]
            with anyio.move_on_after(0.2) as scope:
                await executor.submit(time.sleep, 60)
            assert scope.cancelled_caught
            assert await executor.submit(abs, -2) == 2

    run_on(backend, main)
    assert calls.programs == {}

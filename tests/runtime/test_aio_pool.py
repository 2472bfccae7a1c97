"""Pools and terminal sessions on asyncio and Trio."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from aio_helpers import BACKENDS, run_on

import visruntime as vr
from visruntime.aio import AsyncJail, AsyncRuntime, AsyncRuntimePool, AsyncTrustedRuntime

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.one_uid, pytest.mark.parametrize("backend", BACKENDS)]
POLICY = vr.JailPolicy()


def test_a_pool_lends_to_each_task_its_own_worker(backend: str) -> None:
    """No two tasks share a worker, no worker is lent twice, and the bound holds."""

    async def main() -> None:
        seen: list[int] = []
        most = 0

        async def use(number: int) -> None:
            nonlocal most
            async with pool.borrow() as runtime:
                most = max(most, pool.borrowed)
                assert isinstance(runtime, AsyncRuntime)
                assert await runtime.eval("'mark' in globals()") is False
                await runtime.exec("mark = 1")
                seen.append(await runtime.eval(f"{number} * 2"))

        async with AsyncRuntimePool(POLICY, max_size=2, min_idle=1) as pool:
            await pool.wait_ready(20)
            assert pool.ready == 1
            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(use, number)
            assert (await pool.run("6 * 7")).value == 42
            assert pool.borrowed == 0
        assert sorted(seen) == [0, 2, 4, 6, 8]
        assert most <= 2

    run_on(backend, main)


def test_async_functions_work_in_what_a_pool_lends(backend: str) -> None:
    """A function of the host runs in the loop of the borrower, and a cancellation ends a call."""

    async def main() -> None:
        async def slow(n: int) -> int:
            await anyio.sleep(0.01)
            return n + 1

        def make() -> AsyncTrustedRuntime:
            return AsyncTrustedRuntime(env={"A": "b"})

        async with (
            AsyncRuntimePool(make, max_size=1, min_idle=0, reuse="keep") as pool,
            pool.borrow() as runtime,
        ):
            assert isinstance(runtime, AsyncTrustedRuntime)
            await runtime.expose("slow", slow)
            assert await runtime.eval("slow(1)") == 2
            with anyio.move_on_after(0.2) as scope:
                await runtime.run("import time; time.sleep(1000)")
            assert scope.cancelled_caught
            assert await runtime.eval("__import__('os').environ['A']") == "b"

    run_on(backend, main)


def test_a_pool_has_a_descriptor_of_its_own(backend: str, tmp_path: Path) -> None:
    """A guest must not get what the host has opened later under the same number."""
    given, other = tmp_path / "given", tmp_path / "other"
    given.write_text("given")
    other.write_text("other")

    async def main() -> None:
        number = os.open(given, os.O_RDONLY)
        async with AsyncRuntimePool(POLICY, max_size=2, min_idle=0, stdin=number) as pool:
            os.close(number)
            assert os.open(other, os.O_RDONLY) == number
            try:
                async with pool.borrow() as first, pool.borrow() as second:
                    read = "import sys; sys.stdin.read()"
                    texts = [(await lent.run(read)).value for lent in (first, second)]
            finally:
                os.close(number)
        assert texts == ["given", ""]  # one file, of which the first has read all

    run_on(backend, main)


def test_an_exhausted_pool_waits_or_says_so(backend: str) -> None:
    """Who waits for a runtime is told in time, or cancelled, and its place is not lost."""

    async def main() -> None:
        async with AsyncRuntimePool(POLICY, max_size=1, min_idle=0) as pool:
            async with pool.borrow() as runtime:
                with pytest.raises(vr.PoolExhausted, match=r"within 0\.1 s"):
                    await pool.acquire(0.1)
                with anyio.move_on_after(0.1) as scope:
                    await pool.acquire()
                assert scope.cancelled_caught
            with pytest.raises(vr.JailClosed):
                await runtime.eval("1")
            with pytest.raises(ValueError, match="not borrowed"):
                await pool.release(runtime)
            assert (await pool.run("1")).value == 1
        async with (
            AsyncRuntimePool(POLICY, max_size=1, min_idle=0, when_exhausted="error") as pool,
            pool.borrow(),
        ):
            with pytest.raises(vr.PoolExhausted, match="all 1"):
                await pool.acquire()

    run_on(backend, main)


def test_giving_back_ends_the_call_of_another_task(backend: str) -> None:
    """A borrower that gives back a busy runtime does not wait for the guest."""

    async def main() -> None:
        caught: list[BaseException] = []

        async def busy(runtime: Any) -> None:
            try:
                await runtime.run("import time; time.sleep(1000)")
            except vr.JailClosed as closed:
                caught.append(closed)

        async with AsyncRuntimePool(POLICY, max_size=1, min_idle=0) as pool:
            started = time.monotonic()
            async with anyio.create_task_group() as group:
                runtime = await pool.acquire()
                group.start_soon(busy, runtime)
                await anyio.sleep(0.3)
                await pool.release(runtime)
            assert len(caught) == 1
            assert time.monotonic() - started < 8

    run_on(backend, main)


def test_a_pool_that_is_not_open_or_wrong_says_so(backend: str) -> None:
    """Nothing is lent before the pool is open, and wrong arguments are refused when it opens."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match="open it first"):
            await AsyncRuntimePool(POLICY).acquire()
        with pytest.raises(ValueError, match="max_size"):
            async with AsyncRuntimePool(POLICY, max_size=0):
                pass

    run_on(backend, main)


def test_a_terminal_session(backend: str) -> None:
    """A command is previewed, run, typed into, restarted and ended, while other tasks go on."""

    async def main() -> None:
        async with (
            AsyncJail(POLICY) as jail,
            jail.terminal(["sh", "-c", "stty -echo; echo ready; read x; echo got $x"]) as session,
        ):
            assert (await session.preview()).state == "ready"
            await session.run()
            text = b""
            while b"ready" not in text:
                text += await session.read()
            await session.resize(30, 100)
            await session.input("word\r")
            result = await session.wait()
            assert result.exit_code == 0
            assert "got word" in session.text
            assert await session.read() == session.output[len(text) :]
            assert await session.read() == b""
            await session.restart()
            assert session.state == "running"
            await session.kill()
            assert session.state == "ended"

    run_on(backend, main)


def test_waiting_for_a_terminal_can_be_cancelled(backend: str) -> None:
    """A cancelled read ends the waiting only, several tasks wait, and leaving the block ends all."""

    async def main() -> None:
        async with AsyncJail(POLICY) as jail:
            async with jail.terminal(
                ["sh", "-c", "stty raw -echo; sleep 0.4; echo late; sleep 60"]
            ) as session:
                await session.run()
                with anyio.move_on_after(0.1) as scope:
                    await session.read()
                assert scope.cancelled_caught
                assert session.state == "running"
                async with anyio.create_task_group() as group:
                    group.start_soon(session.wait)
                    assert b"late" in await session.read()
                    group.cancel_scope.cancel()
                with pytest.raises(vr.CommandTimeout, match="typed"):
                    await session.input("x" * 60_000, timeout=0.2)
                started = time.monotonic()
            assert time.monotonic() - started < 5
            assert session.state == "ended"
            assert await jail.processes() == ()

    run_on(backend, main)

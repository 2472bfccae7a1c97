"""Cancelled calls of an `AsyncRuntime`: the guest is interrupted or ended, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import time

import anyio
import anyio.lowlevel
import pytest
import trio
from aio_helpers import BACKENDS, STUBBORN, run_on, with_worker

import visruntime as vr
from visruntime._worker.starting import Starting
from visruntime.aio import AsyncRuntime

pytestmark = [pytest.mark.one_uid, pytest.mark.parametrize("backend", BACKENDS)]


def test_a_cancelled_call_leaves_the_session(backend: str) -> None:
    """A guest that obeys is interrupted, whatever the verb and whoever cancels."""

    async def test(runtime: AsyncRuntime) -> None:
        await runtime.exec("import time; kept = 1\ndef hold(): time.sleep(1000)")
        started = time.monotonic()
        with anyio.move_on_after(0.1):
            await runtime.run("hold()")
        with anyio.move_on_after(0.1):
            await runtime.call("hold")
        with pytest.raises(TimeoutError), anyio.fail_after(0.1):
            await runtime.eval("hold()")
        if backend == "trio":
            with trio.move_on_after(0.1):
                await runtime.run("hold()")
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await runtime.run("hold()")
            task = asyncio.ensure_future(runtime.run("hold()"))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert time.monotonic() - started < 5
        assert await runtime.get("kept") == 1

    with_worker(backend, test)


def test_a_guest_that_does_not_obey_is_ended(backend: str) -> None:
    """With everything that it started; the next call gets a fresh worker."""

    async def test(runtime: AsyncRuntime) -> None:
        code = "import subprocess; child = subprocess.Popen(['sleep', '1000'])"
        await runtime.exec(code)
        jail = runtime.opened()._jail  # type: ignore[attr-defined]
        assert len(jail.processes()) == 2
        begun = anyio.Event()

        async def disobey() -> None:
            await runtime.run(STUBBORN, on_output=lambda *_: begun.set())

        async with anyio.create_task_group() as group:
            group.start_soon(disobey)
            await begun.wait()
            started = time.monotonic()
            group.cancel_scope.cancel()
        assert 0.4 < time.monotonic() - started < 3
        assert jail.processes() == ()
        await runtime.exec(code)
        async with runtime.start(STUBBORN) as run:
            async for event in run:
                assert event.kind == "stdout"
                break
        assert (await run.result()).session_lost
        assert jail.processes() == ()
        assert await runtime.eval("'child' in globals()") is False

    with_worker(backend, test)


def test_a_cancellation_at_any_moment_leaves_nothing(backend: str) -> None:
    """While the jail opens, while the worker starts, while it runs, and when it ends."""

    async def main() -> None:
        whole = []

        async def use(seconds: float) -> None:
            with anyio.move_on_after(seconds):
                async with AsyncRuntime(vr.JailPolicy()) as runtime:
                    await runtime.run("import time; time.sleep(0.02)")
                    async with runtime.start("import time; time.sleep(0.02)") as run:
                        whole.append(await run.result())

        for step in range(8):
            await use(step * 0.012)
        async with anyio.create_task_group() as group:
            for step in range(16):
                group.start_soon(use, step * 0.025)
        await use(30)
        assert whole

    run_on(backend, main)


def test_after_a_cancelled_start_the_next_call_works(backend: str) -> None:
    """A worker that was ended while it started is replaced."""

    async def test(runtime: AsyncRuntime) -> None:
        for step in range(8):
            with anyio.move_on_after(step * 0.006):
                await runtime.eval("1")
            with anyio.move_on_after(step * 0.006):
                async with runtime.start("1") as run:
                    await run.result()
            await runtime.kill()
        assert await runtime.eval("2") == 2

    with_worker(backend, test)


def test_a_worker_that_is_ended_when_it_is_ready_is_replaced(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation in the very moment in which the start ends must not break the next call."""

    async def test(runtime: AsyncRuntime) -> None:
        over = Starting.over
        starts = []

        def cancelled_before(starting: Starting) -> None:
            starts.append(starting)
            starting.cancel()
            over(starting)

        with monkeypatch.context() as patched:
            patched.setattr(Starting, "over", cancelled_before)
            with contextlib.suppress(vr.WorkerDied):  # it may have answered before it ended
                assert await runtime.eval("1") == 1
        assert len(starts) == 1
        assert await runtime.eval("2") == 2

    with_worker(backend, test)


def test_waiting_for_a_turn_can_be_cancelled(backend: str) -> None:
    """It leaves the call under way alone."""

    async def test(runtime: AsyncRuntime) -> None:
        values = []

        async def use() -> None:
            values.append(await runtime.eval("[__import__('time').sleep(0.3), 5][1]"))

        async with anyio.create_task_group() as group:
            group.start_soon(use)
            await anyio.sleep(0.05)
            with anyio.move_on_after(0.05) as scope:
                await runtime.eval("6")
            assert scope.cancelled_caught
        assert values == [5]

    with_worker(backend, test)

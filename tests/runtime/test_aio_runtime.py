"""`AsyncRuntime`: the verbs of a runtime in asyncio and Trio, callbacks, events and cancellation."""

from __future__ import annotations

import contextvars
import os
import resource
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from aio_helpers import BACKENDS, run_on, with_worker

import visruntime as vr
from visruntime.aio import AsyncJail, AsyncRuntime, AsyncTrustedRuntime

if TYPE_CHECKING:
    from visruntime.aio import AsyncRun
    from visruntime.runtime import RunEvent

pytestmark = [pytest.mark.one_uid, pytest.mark.parametrize("backend", BACKENDS)]

CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("CALLER", default="nobody")


def test_the_verbs(backend: str) -> None:
    """Each does what the verb of that name does in `Runtime`."""

    async def test(runtime: AsyncRuntime) -> None:
        await runtime.warm_up()
        result = await runtime.run("print(a)\na + 1", inputs={"a": 1})
        assert (result.value, result.stdout) == (2, b"1\n")
        assert result.report.backend == "namespaces"
        await runtime.exec("def double(x): return 2 * x")
        assert await runtime.eval("double(b)", inputs={"b": 4}) == 8
        assert await runtime.call("double", 5) == 10
        await runtime.set("c", [1, 2])
        assert await runtime.get("c") == [1, 2]
        assert 0 <= await runtime.ping() < 2
        assert "Thread" in await runtime.stacks()
        await runtime.reset()
        with pytest.raises(vr.GuestError, match="c"):
            await runtime.get("c")
        assert (await runtime.reload()).worker
        assert problem_of(await runtime.run("1 / 0")) == "ZeroDivisionError"
        with pytest.raises(vr.GuestError):
            await runtime.run("1 / 0", check=True)
        assert runtime.ports == {}
        assert runtime.tls_strict is None

    with_worker(backend, test)


def test_a_trusted_worker(backend: str) -> None:
    """The same verbs without a jail; its results say that nothing was enforced."""

    async def main() -> None:
        async with AsyncTrustedRuntime(env={"A": "b"}) as runtime:
            result = await runtime.run("import os; os.environ['A']")
            assert (result.value, result.report.enforcement) == ("b", None)
            assert runtime.report == result.report
            with anyio.move_on_after(0.2):
                await runtime.run("import time; time.sleep(1000)")
            assert await runtime.eval("1") == 1

    run_on(backend, main)


def test_a_worker_in_an_open_jail(backend: str) -> None:
    """The jail stays open when the runtime is closed."""

    async def main() -> None:
        async with AsyncRuntime(vr.JailPolicy()) as first:
            grants = [grant[0] for grant in first.opened()._grants]  # type: ignore[attr-defined]
        async with AsyncJail(vr.JailPolicy(read=grants)) as jail:
            async with AsyncRuntime(jail) as runtime:
                assert await runtime.eval("1 + 1") == 2
                assert len(await jail.processes()) == 1
            assert await jail.processes() == ()
            assert not jail.closed

    run_on(backend, main)


def test_tasks_take_turns(backend: str) -> None:
    """Results must not get mixed up, and the loop goes on meanwhile."""

    async def test(runtime: AsyncRuntime) -> None:
        got = {}

        async def use(number: int) -> None:
            result = await runtime.run(f"import time; time.sleep(0.01); print({number})\n{number}")
            got[number] = (result.value, result.stdout)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(use, number)
        assert got == {number: (number, b"%d\n" % number) for number in range(10)}

    with_worker(backend, test)


def problem_of(result: vr.RunResult) -> str:
    """Return the name of the exception with which a run ended."""
    assert result.error is not None
    return result.error.type_name


def interrupted(result: vr.RunResult) -> bool:
    """Tell whether a run was broken from outside."""
    assert result.error is not None
    return result.error.interrupted


def test_a_fork_is_a_runtime_of_its_own(backend: str) -> None:
    """Both sessions go on, at the same time, and call functions in this loop."""

    async def test(runtime: AsyncRuntime) -> None:
        here = threading.get_ident()

        async def place() -> bool:
            return threading.get_ident() == here

        await runtime.expose("place", place)
        await runtime.exec("import time; n = 1")
        async with await runtime.fork() as other:
            async with anyio.create_task_group() as group:
                group.start_soon(runtime.exec, "n += place(); time.sleep(0.1)")
                group.start_soon(other.exec, "n += 2 * place(); time.sleep(0.1)")
            with anyio.move_on_after(0.1):
                await other.run("time.sleep(1000)")
            assert (await runtime.get("n"), await other.get("n")) == (2, 3)
            with pytest.raises(RuntimeError, match="opened before"):
                await other.__aenter__()
        with pytest.raises(vr.JailClosed):
            await other.get("n")
        assert await runtime.get("n") == 2

    with_worker(backend, test)


def test_a_zygote_gives_workers_to_tasks(backend: str) -> None:
    """A runtime with ``preload=`` works as ever, also after a cancelled start."""

    async def main() -> None:
        async with AsyncRuntime(vr.JailPolicy(), preload=["json"]) as runtime:
            for step in range(6):
                with anyio.move_on_after(step * 0.01):
                    await runtime.eval("1")
                await runtime.kill()
            assert await runtime.eval("2") == 2

    run_on(backend, main)


# Functions of the host.


def test_async_functions_run_in_the_callers_loop(backend: str) -> None:
    """They see its thread and its context; other functions run in a thread."""

    async def test(runtime: AsyncRuntime) -> None:
        here = threading.get_ident()
        event = anyio.Event()

        async def ask(question: str) -> list[Any]:
            await event.wait()  # of this loop
            return [question, threading.get_ident() == here, CALLER.get()]

        def thread() -> list[Any]:
            return [threading.get_ident() == here, CALLER.get()]

        await runtime.expose("ask", ask)
        await runtime.expose_module("tools", {"thread": thread})
        CALLER.set("me")
        async with anyio.create_task_group() as group:

            async def answer_later() -> None:
                await anyio.sleep(0.05)
                event.set()

            group.start_soon(answer_later)
            assert await runtime.eval("ask('why')") == ["why", True, "me"]
        assert await runtime.eval("__import__('tools').thread()") == [False, "me"]
        async with runtime.start("ask('again')") as run:
            assert (await run.result()).value == ["again", True, "me"]
        limited = vr.Timeouts(callback=5.0)
        assert await runtime.eval("ask('limited')", timeout=limited) == ["limited", True, "me"]
        assert "def ask(question: str)" in runtime.stubs()

    with_worker(backend, test)


def test_their_exceptions_cross(backend: str) -> None:
    """The guest gets type and message, and the loop lives on."""

    async def test(runtime: AsyncRuntime) -> None:
        async def fail() -> None:
            await anyio.lowlevel.checkpoint()
            raise LookupError("not there")

        await runtime.expose("fail", fail)
        code = "try: fail()\nexcept LookupError as error: text = str(error)\ntext"
        assert (await runtime.run(code)).value == "not there"

    with_worker(backend, test)


@pytest.mark.parametrize("way", ["timeout", "scope", "interrupt"])
def test_they_are_cancelled_with_their_run(backend: str, way: str) -> None:
    """When the call has ended, its functions have, too: none goes on in the loop."""

    async def test(runtime: AsyncRuntime) -> None:
        told = []

        async def wait() -> None:
            told.append("begun")
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.02)
                told.append("cleaned up")

        await runtime.expose("wait", wait)
        await runtime.exec("kept = 1")
        if way == "timeout":
            with pytest.raises(vr.CommandTimeout):
                await runtime.run("wait()", timeout=0.2)
        elif way == "scope":
            with anyio.move_on_after(0.2):
                await runtime.run("wait()")
        else:
            async with anyio.create_task_group() as group:

                async def interrupt() -> None:
                    await anyio.sleep(0.2)
                    await runtime.interrupt()

                group.start_soon(interrupt)
                result = await runtime.run("wait()")
                assert interrupted(result)
        assert told == ["begun", "cleaned up"]
        assert await runtime.get("kept") == 1

    with_worker(backend, test)


def test_a_function_cannot_use_the_runtime_that_calls_it(backend: str) -> None:
    """It is refused instead of waiting for itself; another runtime can be used."""

    async def test(runtime: AsyncRuntime) -> None:
        async with AsyncRuntime(vr.JailPolicy()) as other:

            async def nested() -> str:
                with pytest.raises(RuntimeError, match="that is calling it"):
                    await runtime.eval("1")
                with pytest.raises(RuntimeError, match="that is calling it"):
                    async with runtime.start("1"):
                        pass
                with pytest.raises(RuntimeError, match="that is calling it"):
                    await runtime.aclose()
                value: str = await other.eval("'from the other'")
                return value

            await runtime.expose("nested", nested)
            assert await runtime.eval("nested()") == "from the other"

    with_worker(backend, test)


def test_a_function_cannot_wait_for_the_run_that_calls_it(backend: str) -> None:
    """Each way of waiting for it is refused by name, since none would ever end."""

    async def test(runtime: AsyncRuntime) -> None:
        runs: list[AsyncRun] = []

        async def wait() -> None:
            await runs[0].wait()

        async def next_event() -> None:
            await runs[0].next_event()

        for function in (wait, next_event):
            await runtime.expose(function.__name__, function)
            code = f"import time; time.sleep(0.2); {function.__name__}()"
            with anyio.fail_after(10):
                async with runtime.start(code) as run:
                    runs[:] = [run]
                    error = (await run.result()).error
            assert error is not None
            assert "cannot wait for the run that is calling it" in error.message

    with_worker(backend, test)


def test_input_is_answered_in_the_loop(backend: str) -> None:
    """The function that answers prompts may be async."""

    async def test(runtime: AsyncRuntime) -> None:
        async def answer(prompt: str, password: object) -> str | None:
            await anyio.sleep(0.01)
            return f"{prompt}{password}"

        assert (await runtime.run("input('? ')", stdin=answer)).value == "? False"

    with_worker(backend, test)


def test_events_and_output_come_to_the_loop(backend: str) -> None:
    """``on_event`` and ``on_output`` are called in it, in order, and may be async."""

    async def test(runtime: AsyncRuntime) -> None:
        here = threading.get_ident()
        kinds, chunks = [], []

        async def on_event(event: RunEvent) -> None:
            await anyio.lowlevel.checkpoint()
            assert threading.get_ident() == here
            kinds.append(event.kind)

        def on_output(name: str, data: bytes) -> None:
            assert threading.get_ident() == here
            chunks.append((name, data))

        code = "import sys\nprint(1)\ndisplay('x')\nprint(2, file=sys.stderr)"
        await runtime.run(code, on_event=on_event, on_output=on_output)
        assert (kinds[0], kinds[-1]) == ("stdout", "result")
        assert sorted(kinds[1:-1]) == ["display", "stderr"]
        assert chunks == [("stdout", b"1\n"), ("stderr", b"2\n")]

        async def fail(_: RunEvent) -> None:
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await runtime.run("print(1)", on_event=fail)
        assert await runtime.eval("1") == 1

    with_worker(backend, test)


# Runs that go on.


def test_events_of_a_run_are_iterated_over(backend: str) -> None:
    """They come while it runs, and another task may wait for the result."""

    async def test(runtime: AsyncRuntime) -> None:
        seen: list[RunEvent] = []
        results = []

        async def wait(run: AsyncRun) -> None:
            results.append(await run.result())

        code = "import time\nfor n in range(3):\n    print(n)\n    time.sleep(0.05)\n'end'"
        async with runtime.start(code) as run, anyio.create_task_group() as group:
            group.start_soon(wait, run)
            group.start_soon(wait, run)
            async for event in run:
                seen.append(event)
                if len(seen) == 1:
                    assert not run.done
        assert b"".join(event.data for event in seen if event.kind == "stdout") == b"0\n1\n2\n"
        assert seen[-1].kind == "result"
        assert [result.value for result in results] == ["end", "end"]
        assert run.dropped == 0

    with_worker(backend, test)


def test_a_run_is_cancelled_by_word_or_by_leaving(backend: str) -> None:
    """A run must not go on after its block, and its session lives on."""

    async def test(runtime: AsyncRuntime) -> None:
        await runtime.exec("kept = 1")
        async with runtime.start("while True: pass") as run:
            await anyio.sleep(0.05)
            run.cancel()
            assert (await run.result()).stopped_by == "cancelled"
        async with runtime.start("while True: pass") as run:
            await anyio.sleep(0.05)
        assert run.done
        with pytest.raises(KeyError):
            async with runtime.start("while True: pass"):
                raise KeyError
        with anyio.move_on_after(0.1):
            async with runtime.start("while True: pass") as run:
                await run.result()
        assert run.done
        assert await runtime.get("kept") == 1
        async with runtime.start("1 / 0") as run:
            assert problem_of(await run.result()) == "ZeroDivisionError"
        with pytest.raises(ValueError, match="isolation"):
            async with runtime.start("1", isolation="none"):
                pass

    with_worker(backend, test)


def test_a_run_is_read_on_after_its_block(backend: str) -> None:
    """Events that are left come, and no descriptor that others have got meanwhile is read."""

    async def test(runtime: AsyncRuntime) -> None:
        late: list[str] = []

        async def read(run: AsyncRun) -> None:
            late.extend([event.kind async for event in run])

        async with anyio.create_task_group() as group:
            async with runtime.start("print(1); 5") as run:
                bells = (run._news, run._end)
                numbers = [end.fileno() for bell in bells for end in (bell._heard, bell._rung)]
                await run.result()
            others = [os.eventfd(41, os.EFD_NONBLOCK) for _ in numbers]
            try:
                assert set(others) == set(numbers)
                assert [event.kind async for event in run] == ["stdout", "result"]
                assert await run.next_event() is None
                await run.wait()
                assert [os.eventfd_read(other) for other in others] == [41] * 4
            finally:
                for other in others:
                    os.close(other)
            # One that waits for an event when the block ends gets the last ones.
            async with runtime.start("import time; time.sleep(0.2)") as run:
                group.start_soon(read, run)
        assert late == ["result"]

    with_worker(backend, test)


@pytest.mark.parametrize("spare", [0, 1])
def test_a_run_does_not_begin_where_it_could_not_be_watched(backend: str, spare: int) -> None:
    """Without a descriptor for it nothing goes on behind the back of the caller."""

    async def test(runtime: AsyncRuntime) -> None:
        assert await runtime.eval("1") == 1
        free = os.dup(0)
        os.close(free)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                async with runtime.start("import time; ran = 1; time.sleep(30)"):
                    pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with anyio.fail_after(10):
            assert await runtime.eval("'ran' in globals()") is False

    with_worker(backend, test)


def test_a_first_run_that_ends_keeps_its_worker(backend: str) -> None:
    """Leaving at the last event must not be taken for a cancellation of the start."""

    async def main() -> None:
        for _ in range(3):
            async with AsyncRuntime(vr.JailPolicy()) as runtime:
                async with runtime.start("kept = 1") as run:
                    async for event in run:
                        if event.kind == "result":
                            break
                assert await runtime.get("kept") == 1

    run_on(backend, main)


def test_a_task_cannot_wait_for_its_own_run(backend: str) -> None:
    """Inside the block another call of the same task is an error instead of a deadlock."""

    async def test(runtime: AsyncRuntime) -> None:
        async with runtime.start("1") as run:
            with pytest.raises(RuntimeError, match="leave the block"):
                await runtime.eval("2")
            assert (await run.result()).value == 1
        assert await runtime.eval("2") == 2

    with_worker(backend, test)


# Cancellation.


# Control.


def test_control_from_other_tasks(backend: str) -> None:
    """A run can be paused, looked at, continued, interrupted and ended while it goes on."""

    async def test(runtime: AsyncRuntime) -> None:
        await runtime.eval("1")
        async with runtime.start("import time\nwhile True: time.sleep(0.01)") as run:
            await anyio.sleep(0.1)
            await runtime.pause()
            with pytest.raises(TimeoutError):
                await runtime.ping(0.05)
            await runtime.resume()
            assert "sleep" in await runtime.stacks() or await runtime.ping() >= 0
            await runtime.interrupt()
            assert interrupted(await run.result())
        async with runtime.start("while True: pass") as run:
            await anyio.sleep(0.05)
            await runtime.kill()
            with pytest.raises(vr.WorkerDied):
                await run.result()
        runtime.set_timeouts(0.1)
        with pytest.raises(vr.CommandTimeout):
            await runtime.run("while True: pass")
        runtime.limit_callbacks(calls=0)
        await runtime.expose("f", lambda: 1)
        assert problem_of(await runtime.run("f()")) == "visruntime.HostError"

    with_worker(backend, test)


def test_closing_ends_the_call_of_another_task(backend: str) -> None:
    """It raises `JailClosed`; a value of a guest that was ended is none."""

    async def main() -> None:
        problems = []

        async def use(runtime: AsyncRuntime) -> None:
            try:
                await runtime.eval("__import__('time').sleep(1000)")
            except vr.JailClosed as problem:
                problems.append(problem)

        async with anyio.create_task_group() as group:
            async with AsyncRuntime(vr.JailPolicy()) as runtime:
                await runtime.eval("1")
                group.start_soon(use, runtime)
                group.start_soon(use, runtime)
                await anyio.sleep(0.1)
            await runtime.aclose()
        assert len(problems) == 2
        with pytest.raises(vr.JailClosed):
            await runtime.eval("1")

    run_on(backend, main)


def test_an_unopened_runtime_says_so(backend: str) -> None:
    """It is opened by its context manager, and once."""

    async def main() -> None:
        runtime = AsyncRuntime(vr.JailPolicy())
        with pytest.raises(RuntimeError, match="async with AsyncRuntime"):
            await runtime.eval("1")
        await runtime.aclose()
        with pytest.raises(vr.PolicyError):
            async with AsyncRuntime(vr.JailPolicy(), python="/no/such/python"):
                pass

    run_on(backend, main)


def test_a_hundred_runtimes_in_one_loop(backend: str) -> None:
    """All of them run at the same time, each with callbacks into the one loop."""

    async def main() -> None:
        running = most = 0
        everybody = anyio.Event()

        async def meet(number: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 100:
                everybody.set()
            await everybody.wait()
            return number

        async def use(number: int) -> None:
            async with AsyncRuntime(vr.JailPolicy()) as runtime:
                await runtime.expose("meet", meet)
                assert await runtime.eval(f"meet({number})") == number

        with anyio.fail_after(40):
            async with anyio.create_task_group() as group:
                for number in range(100):
                    group.start_soon(use, number)
        assert most == 100

    run_on(backend, main)

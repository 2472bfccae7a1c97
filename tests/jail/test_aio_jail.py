"""`AsyncJail`: the verbs of a jail in asyncio and Trio, and what a cancellation leaves: nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio
from aio_helpers import BACKENDS, run_on

import visruntime as vr
from visruntime.aio import AsyncJail
from visruntime.jail import PIPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

TREE = ["sh", "-c", "sleep 1000 & (setsid sleep 1000 &) ; echo begun; sleep 1000"]
"""A command with descendants, one of which leaves its process group."""

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def begun(jail: AsyncJail, *, processes: int) -> None:
    """Wait until so many processes run in *jail*."""
    with anyio.fail_after(10):
        while len(await jail.processes()) < processes:  # noqa: ASYNC110 (nothing tells of it)
            await anyio.sleep(0.01)


def in_jail(backend: str, test: Callable[[AsyncJail], Awaitable[Any]], **policy: Any) -> None:
    """Run *test* with an open jail."""

    async def main() -> None:
        async with AsyncJail(vr.JailPolicy(**policy)) as jail:
            await test(jail)
        assert jail.closed

    run_on(backend, main)


def test_a_command_gives_what_it_gives_synchronously(backend: str) -> None:
    """Result, options and errors are those of `Jail.run`."""

    async def test(jail: AsyncJail) -> None:
        result = await jail.run(["cat"], input=b"given")
        assert (result.exit_code, result.stdout) == (0, b"given")
        assert result.report is jail.report
        assert (await jail.shell("echo $A; exit 3", env={"A": "b"})).stdout_text == "b\n"
        with pytest.raises(vr.CommandFailed):
            await jail.shell("exit 3", check=True)
        with pytest.raises(vr.CommandNotFound):
            await jail.run(["no-such-program"])
        with pytest.raises(TypeError):
            await jail.run("text")

    in_jail(backend, test)


def test_the_loop_goes_on_meanwhile(backend: str) -> None:
    """No call may hold up the other tasks."""

    async def test(jail: AsyncJail) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await anyio.sleep(0.01)
                ticks += 1

        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            await jail.run(["sleep", "0.4"])
            group.cancel_scope.cancel()
        assert ticks >= 5

    in_jail(backend, test)


def test_a_cancelled_scope_ends_the_whole_tree(backend: str) -> None:
    """No process may outlive the scope, not even one that left its group."""

    async def test(jail: AsyncJail) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(jail.run, TREE)
            await begun(jail, processes=4)  # it runs, as long as nobody cancels it
            started = time.monotonic()
            group.cancel_scope.cancel()
        assert time.monotonic() - started < 2
        assert await jail.processes() == ()
        assert (await jail.run(["true"])).exit_code == 0  # and the jail is as before

    in_jail(backend, test)


def test_time_limits_end_the_tree(backend: str) -> None:
    """`fail_after` is a cancellation; ``timeout=`` keeps the output."""

    async def test(jail: AsyncJail) -> None:
        with pytest.raises(TimeoutError), anyio.fail_after(0.3):
            await jail.run(TREE)
        assert await jail.processes() == ()
        with pytest.raises(vr.CommandTimeout) as caught:
            await jail.run(TREE, timeout=0.5)
        assert caught.value.result.stdout == b"begun\n"
        assert await jail.processes() == ()

    in_jail(backend, test)


def test_the_loops_own_cancellation_ends_the_tree(backend: str) -> None:
    """What `asyncio.Task.cancel` and `trio.CancelScope` cancel ends the same way."""

    async def test(jail: AsyncJail) -> None:
        if backend == "trio":
            with trio.move_on_after(0.3) as scope:
                await jail.run(TREE)
            assert scope.cancelled_caught
        else:
            task = asyncio.ensure_future(jail.run(TREE))
            await begun(jail, processes=4)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # an impatient caller
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await jail.run(TREE)
        assert await jail.processes() == ()

    in_jail(backend, test)


def test_a_cancellation_at_any_moment_leaves_nothing(backend: str) -> None:
    """Neither a start nor an end may be a moment in which something is lost."""

    async def test(jail: AsyncJail) -> None:
        async def use(seconds: float, verb: str) -> None:
            with anyio.move_on_after(seconds):
                if verb == "run":
                    await jail.run(["sleep", "1000"])
                elif verb == "spawn":
                    async with await jail.spawn(["sleep", "1000"], stdout=PIPE) as process:
                        await process.wait()
                elif verb == "short":
                    await jail.run(["true"])
                else:
                    await jail.write_bytes("/tmp/file", b"x" * 100_000)

        for step in range(24):
            await use(step * 0.0005, ("run", "spawn", "short", "file")[step % 4])
        async with anyio.create_task_group() as group:
            for step in range(24):
                group.start_soon(use, step * 0.001, ("run", "spawn", "short", "file")[step % 4])
        assert await jail.processes() == ()

    in_jail(backend, test)


def test_opening_can_be_cancelled(backend: str) -> None:
    """A jail that opens although nobody wants it any longer must be closed."""

    async def main() -> None:
        codes = []
        for seconds in (*(step * 0.001 for step in range(8)), 30):
            with anyio.move_on_after(seconds):
                async with AsyncJail(vr.JailPolicy()) as jail:
                    codes.append((await jail.run(["true"])).exit_code)
        assert codes[-1:] == [0]

    run_on(backend, main)


def test_streams_of_a_program(backend: str) -> None:
    """Bytes go in and out while it runs, also more than a pipe holds."""
    size = 3_000_000

    async def test(jail: AsyncJail) -> None:
        async with await jail.spawn(["cat"], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            assert process.stdin
            assert process.stdout
            assert process.stderr
            await process.stdin.send(b"hello")
            assert await process.stdout.receive() == b"hello"
            assert process.poll() is None
            received = 0
            async with anyio.create_task_group() as group:

                async def write() -> None:
                    assert process.stdin
                    await process.stdin.send(b"x" * size)
                    await process.stdin.aclose()

                group.start_soon(write)
                async for chunk in process.stdout:
                    received += len(chunk)
            assert received == size
            with pytest.raises(anyio.ClosedResourceError):
                await process.stdin.send(b"more")
            assert await process.wait() == 0
            with pytest.raises(anyio.EndOfStream):
                await process.stderr.receive()

    in_jail(backend, test)


def test_who_reads_no_more_is_told_to_who_writes(backend: str) -> None:
    """Writing to a program that has ended must not wait, and is no end of the host by SIGPIPE."""

    async def test(jail: AsyncJail) -> None:
        async with await jail.spawn(["true"], stdin=PIPE) as process:
            assert process.stdin
            assert await process.wait() == 0
            with pytest.raises(anyio.BrokenResourceError):
                await process.stdin.send(b"x" * 1_000_000)

    in_jail(backend, test)


def test_a_terminal(backend: str) -> None:
    """With ``pty=True`` both streams are one terminal, whose halves are closed one by one."""

    async def test(jail: AsyncJail) -> None:
        command = ["sh", "-c", "read x; echo got $x; stty size"]
        async with await jail.spawn(command, pty=True, rows=10, cols=40) as process:
            assert process.stdin
            assert process.stdout
            process.resize(20, 50)
            await process.stdin.send(b"word\n")
            await process.stdin.aclose()
            text = b"".join([chunk async for chunk in process.stdout])
            assert b"got word\r\n20 50" in text
            assert await process.wait() == 0

    in_jail(backend, test)


def test_many_tasks_wait_for_one_program(backend: str) -> None:
    """Each gets the exit code; one that is cancelled ends its own waiting only."""

    async def test(jail: AsyncJail) -> None:
        codes = []
        async with await jail.spawn(["sh", "-c", "sleep 0.2; exit 4"]) as process:

            async def wait() -> None:
                codes.append(await process.wait())

            async with anyio.create_task_group() as group:
                with anyio.move_on_after(0.01):
                    await process.wait()
                assert process.poll() is None
                for _ in range(3):
                    group.start_soon(wait)
        assert codes == [4, 4, 4]

    in_jail(backend, test)


def test_signals_and_stop(backend: str) -> None:
    """A program is asked first, held and continued, and killed when it does not obey."""

    async def test(jail: AsyncJail) -> None:
        async with await jail.spawn(["sleep", "1000"]) as process:
            await process.suspend()
            await process.resume()
            assert await process.stop() == -15
        stubborn = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
        async with await jail.spawn(stubborn, stdout=PIPE) as process:
            assert process.stdout
            await process.stdout.receive()
            assert await process.stop(grace=0.1) == -9
            assert process.stopped_by == "killed"

    in_jail(backend, test)


def test_leaving_the_context_ends_the_program(backend: str) -> None:
    """Whether it is left by an error, by a cancellation, or just so."""

    async def test(jail: AsyncJail) -> None:
        async with await jail.spawn(TREE) as process:
            await begun(jail, processes=4)
        assert process.returncode == -9
        with pytest.raises(KeyError):
            async with await jail.spawn(TREE):
                raise KeyError
        with anyio.move_on_after(0.1):
            async with await jail.spawn(TREE) as process:
                await process.wait()
        assert await jail.processes() == ()

    in_jail(backend, test)


def test_communicate(backend: str) -> None:
    """It is `JailProcess.communicate`; cancelling it ends the run."""

    async def test(jail: AsyncJail) -> None:
        async with await jail.spawn(["cat"], stdin=PIPE, stdout=PIPE) as process:
            assert await process.communicate(b"in") == (b"in", b"")
            assert process.returncode == 0
        async with await jail.spawn(TREE, stdout=PIPE) as process:
            with anyio.move_on_after(0.2):
                await process.communicate()
            assert await process.wait() == -9
            assert await jail.processes() == ()

    in_jail(backend, test)


def test_files(backend: str, workspace: Path, outside: Path) -> None:
    """The file verbs do and refuse what those of `Jail` do."""

    async def test(jail: AsyncJail) -> None:
        name = workspace / "file"
        await jail.write_bytes(name, b"text")
        assert await jail.read_bytes(name) == b"text" == name.read_bytes()
        assert (await jail.stat(name)).size == 4
        assert await jail.exists(name)
        await jail.make_dir(workspace / "folder")
        assert await jail.list_dir(workspace) == ["file", "folder"]
        assert await jail.realpath(name) == str(name)
        await jail.copy_out(name, outside / "copy")
        await jail.copy_in(outside / "copy", workspace / "again")
        await jail.remove(name)
        assert await jail.list_dir(workspace) == ["again", "folder"]
        with pytest.raises(FileNotFoundError):
            await jail.read_bytes(outside / "copy")
        with pytest.raises(vr.OutputLimitExceeded):
            await jail.read_bytes(workspace / "again", max_bytes=3)

    in_jail(backend, test, write=[str(workspace)])


def test_a_hundred_jails_in_one_loop(backend: str) -> None:
    """All of them run at the same time."""

    async def main() -> None:
        running = most = 0

        async def use(number: int) -> None:
            nonlocal running, most
            async with AsyncJail(vr.JailPolicy()) as jail:
                running += 1
                most = max(most, running)
                result = await jail.run(["sh", "-c", f"echo {number}; sleep 1"])
                running -= 1
                assert result.stdout == b"%d\n" % number

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(use, number)
        assert most > 40  # more than the loops' own bound on threads

    run_on(backend, main)


def test_closing_ends_the_calls_of_other_tasks(backend: str) -> None:
    """A jail that is closed leaves no task waiting."""

    async def main() -> None:
        stopped = []

        async def use(jail: AsyncJail) -> None:
            stopped.append((await jail.run(["sleep", "1000"])).stopped_by)

        async with anyio.create_task_group() as group:
            async with AsyncJail(vr.JailPolicy()) as jail:
                group.start_soon(use, jail)
                await begun(jail, processes=1)
            await jail.aclose()
        assert stopped == ["closed"]
        with pytest.raises(vr.JailClosed):
            await jail.run(["true"])

    run_on(backend, main)


def test_an_unopened_jail_says_so(backend: str) -> None:
    """It is opened by its context manager, and once."""

    async def main() -> None:
        jail = AsyncJail(vr.JailPolicy())
        with pytest.raises(RuntimeError, match="async with"):
            await jail.run(["true"])
        await jail.aclose()
        async with jail:
            pass
        with pytest.raises(RuntimeError, match="opened before"):
            await jail.__aenter__()
        with pytest.raises(TypeError, match="JailPolicy"):
            async with AsyncJail("policy"):  # type: ignore[arg-type]
                pass

    run_on(backend, main)


def test_a_refused_policy_is_refused_here_too(backend: str) -> None:
    """Opening raises what `Jail` raises, in no group."""

    async def main() -> None:
        with pytest.raises(vr.PolicyError):
            async with AsyncJail(vr.JailPolicy(read=["/no/such/file"])):
                pass

    run_on(backend, main)


def test_anyio_is_imported_for_this_module_only(backend: str) -> None:
    """The package works without it, and says what is missing."""
    code = (
        "import sys, visruntime as vr\n"
        "vr.Jail, vr.Runtime\n"
        "assert 'anyio' not in sys.modules and 'asyncio' not in sys.modules\n"
        "assert vr.aio.AsyncJail.__name__ == 'AsyncJail' and 'anyio' in sys.modules\n"
        "import visruntime.aio\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys; sys.modules['anyio'] = None; import visruntime as vr; vr.aio"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"install visruntime[aio]" in done.stderr

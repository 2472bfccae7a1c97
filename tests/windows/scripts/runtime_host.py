"""A host of `Runtime` on Windows: what users write, run by a CPython of Windows.

    python runtime_host.py ACT FOLDER

Each act has a jail of its own below *FOLDER*. What it says has to be what is expected of it, or this
ends with 1.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Callable

assert sys.platform == "win32"

PID = "__import__('os').getpid()"
LIMITS = vr.WindowsLimits(processes=8, memory=1 << 30)


EXPECTED = {
    "verbs": [
        "state open",
        "run 42 ['h\xe4llo'] ['err']",
        "report windows 5",
        "where True",
        "call 42 win32",
        "set {'a': [1, 2.5, None, b'x']}",
        "error FileNotFoundError",
        "callback 6",
        "asked NAME? ",
        "displayed ['7']",
        "large True",
        "output 1000002",
        "written 4",
        "events ['stdout', 'result'] 5",
        "pause PolicyUnsupported pause",
        "resume PolicyUnsupported resume",
        "stacks PolicyUnsupported stacks",
        "ping PolicyUnsupported ping",
        "fork ForkRefused None",
        "stdin PolicyUnsupported stdin",
        "cpu PolicyUnsupported timeouts.cpu",
        "policy JailUnavailable None",
        "closed closed ['work']",
    ],
    "ends": [
        "loop wall False True",
        "sleep wall False True",
        "call callback False True",
        "interrupted True 1",
        "stubborn True ['signal', 'stacks', 'kill']",
        "fresh NameError",
        "died 7 ['last'] None",
        "crash True True",
        "killed killed",
        "again 2",
        "closed closed ['work']",
    ],
    "children": ["alive True", "gone False", "closed closed ['work']"],
    "pools": [
        "apart True",
        "exhausted PoolExhausted None",
        "reset 1 None 1",
        "memory PolicyUnsupported max_memory",
        "own True True",
        "gone []",
        "squares [0, 1, 4, 9]",
        "named 6",
        "raised ZeroDivisionError GuestError",
        "slow True",
        "died 3 1",
        "closed closed ['work']",
    ],
    "tasks": [
        "awaited 42",
        "events ['stdout', 'result'] 5",
        "cancelled True 1",
        "borrowed True",
        "called [1, 2, 3]",
        "stopped True 2",
        "trusted JailUnavailable None",
        "jail JailUnavailable None",
        "closed closed ['work']",
    ],
}
ABORTED = (3, 0xC0000409)
"""What the C run time ends an abort with: the older way, and the newer one."""
said: list[str] = []


def show(*words: object) -> None:
    """Add one line to what is said."""
    said.append(" ".join(map(str, words)))
    print(ascii(said[-1]), flush=True)


def refusal(call: Callable[[], object]) -> str:
    """Return how *call* is refused, in one line."""
    try:
        return f"not at all: {call()!r}"
    except (vr.VisRuntimeError, ValueError) as error:
        return f"{type(error).__name__} {getattr(error, 'field', None)}"


def in_a_thread(act: Callable[[], None]) -> Callable[[str, bytes], None]:
    """Return what takes output and has another thread act: the run has begun by then."""
    return lambda _name, _data: threading.Thread(target=act).start()


def verbs(jail: Any, runtime: Any) -> None:
    """Values, output, state, errors, functions of the host, input and displays."""
    show("state", jail.state)
    result = runtime.run("import os, sys\nprint('hällo')\nprint('err', file=sys.stderr)\n6 * 7")
    show("run", result.value, result.stdout_text.split(), result.stderr_text.split())
    show("report", result.report.backend, len(result.report.clauses))
    where = runtime.eval("[os.getcwd(), sys.executable, sys.flags.isolated, os.environ['MODE']]")
    show("where", where == [jail.work, jail.app + r"\python\python.exe", 1, "test"])
    runtime.exec("def twice(n):\n    return n * 2")
    show("call", runtime.call("twice", 21), runtime.get("sys.platform"))
    runtime.set("kept", {"a": [1, 2.5, None, b"x"]})
    show("set", runtime.eval("kept"))
    show("error", runtime.run("open('missing.txt')").error.type_name)
    runtime.expose("tools.add", lambda a, b=1: a + b)
    show("callback", runtime.run("import tools; tools.add(1, b=5)").value)
    show("asked", runtime.run("input('name? ')", stdin=lambda prompt, _: prompt.upper()).value)
    show("displayed", [one.text for one in runtime.run("display(7)").displays])
    size = 3 << 20
    show("large", len(runtime.eval("data", inputs={"data": b"a" * size})) == size)
    show("output", len(runtime.run("print('x' * 1_000_000)").stdout))
    show("written", runtime.run("open('out', 'w').write('kept')").value)
    with runtime.start("print('x'); 5") as handle:
        show("events", [event.kind for event in handle], handle.result().value)
    for name in ("pause", "resume", "stacks", "ping", "fork"):
        show(name, refusal(getattr(runtime, name)))
    show("stdin", refusal(lambda: vr.Runtime(jail, stdin="pty")))  # type: ignore[arg-type]
    show("cpu", refusal(lambda: runtime.run("1", timeout=vr.Timeouts(cpu=1.0))))
    show("policy", refusal(lambda: vr.Runtime(vr.JailPolicy())))


def ends(_jail: Any, runtime: Any) -> None:
    """Times, interrupts, and what becomes of a worker that ends or does not obey."""
    runtime.run("kept = 1")
    runtime.expose("tools.wait", time.sleep)
    for name, wall, code in (
        ("loop", 0.5, "while True: pass"),
        ("sleep", 0.5, "import time; time.sleep(60)"),
        ("call", 30.0, "import tools; tools.wait(60)"),
    ):
        began = time.monotonic()
        try:
            runtime.run(code, timeout=vr.Timeouts(wall=wall, callback=0.5, grace=8.0))
        except vr.CommandTimeout as error:
            show(
                name,
                error.result.stop.reason,
                error.result.session_lost,
                time.monotonic() - began < 9,
            )
    loop = "print('begun', flush=True)\nwhile True: pass"
    interrupted = runtime.run(loop, on_output=in_a_thread(runtime.interrupt))
    show("interrupted", interrupted.error.interrupted, runtime.get("kept"))
    try:
        runtime.run("sum(range(10**12))", timeout=vr.Timeouts(wall=0.3, grace=0.5))
    except vr.CommandTimeout as error:
        show("stubborn", error.result.session_lost, [rung.name for rung in error.result.stop.rungs])
    show("fresh", runtime.run("kept").error.type_name)
    try:
        runtime.run("import os; print('last', flush=True); os._exit(7)")
    except vr.WorkerDied as error:
        show("died", error.exit_code, error.result.stdout_text.split(), error.signal)
    try:
        runtime.run("import os; os.abort()")
    except vr.WorkerDied as error:
        show(
            "crash",
            error.exit_code in ABORTED,
            "Fatal Python error: Aborted" in error.report.stacks,
        )
    try:
        runtime.run(loop, on_output=in_a_thread(runtime.kill))
    except vr.WorkerDied as error:
        show("killed", error.stopped_by)
    show("again", runtime.eval("1 + 1"))


def children(_jail: Any, runtime: Any) -> None:
    """What the worker has started goes with it."""
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "child.pid"
    )
    number = runtime.run(code).value
    show("alive", alive(number))
    runtime.close()
    show("gone", alive(number))


def pools(jail: Any, runtime: Any) -> None:
    """Who gets which worker, and functions that run in them."""
    runtime.close()
    small: dict[str, Any] = {"min_idle": 0, "max_size": 2, "limits": LIMITS}
    with (
        vr.RuntimePool(jail, **small, when_exhausted="error") as pool,
        pool.borrow() as one,
        pool.borrow() as other,
    ):
        show("apart", one.eval(PID) != other.eval(PID))
        show("exhausted", refusal(pool.acquire))
    with vr.RuntimePool(jail, min_idle=0, reuse="reset", limits=LIMITS) as pool:
        first = pool.run(f"left = 1\n{PID}").value
        again, left = pool.run(f"[{PID}, globals().get('left')]").value
        show("reset", int(first == again), left, pool.ready)
    show("memory", refusal(lambda: vr.RuntimePool(jail, max_memory=1)))
    parent = os.path.dirname(os.path.dirname(jail.work))
    before, roots = set(os.listdir(parent)), []

    def own() -> Any:
        mine = vr.WindowsJail(parent, keep_work=False)
        roots.append(mine.root)
        return vr.Runtime(mine, close_jail=True, limits=LIMITS)  # type: ignore[arg-type,call-arg]

    with vr.RuntimePool(own, min_idle=0, max_size=1) as pool:
        where = pool.run("import os; os.getcwd()").value
        show("own", where == roots[0] + r"\work", where != jail.work)
    show("gone", sorted(set(os.listdir(parent)) - before))
    with vr.JailExecutor(jail, 2, limits=LIMITS) as executor:
        show("squares", list(executor.map(lambda n: n * n, range(4))))
        show("named", executor.submit("math:gcd", 12, 18).result())
        try:
            executor.submit(lambda: 1 // 0).result()
        except ZeroDivisionError as error:
            show("raised", type(error).__name__, type(error.__cause__).__name__)
        try:
            executor.schedule(time.sleep, (60,), timeout=0.5).result()
        except vr.CommandTimeout as error:
            show("slow", "the session is kept" in str(error))
        try:
            executor.submit(os._exit, 3).result()
        except vr.WorkerDied as error:
            show("died", error.exit_code, executor.submit(abs, -1).result())


def tasks(jail: Any, runtime: Any) -> None:
    """The same from a loop of asyncio."""
    import anyio

    from visruntime import aio

    runtime.close()

    async def double(value: int) -> int:
        await anyio.sleep(0.01)
        return 2 * value

    async def main() -> None:
        async with aio.AsyncRuntime(jail, limits=LIMITS) as session:
            await session.expose("double", double)
            show("awaited", await session.eval("double(21)"))
            async with session.start("print('a'); 5") as run:
                kinds = [event.kind async for event in run]
                show("events", kinds, (await run.result()).value)
            await session.exec("kept = 1")
            with anyio.move_on_after(0.5) as scope:
                await session.run("while True: pass")
            show("cancelled", scope.cancelled_caught, await session.eval("kept"))
        async with (
            aio.AsyncRuntimePool(jail, min_idle=0, max_size=2, limits=LIMITS) as pool,
            pool.borrow() as one,
            pool.borrow() as other,
        ):
            show("borrowed", await one.eval(PID) != await other.eval(PID))
        async with aio.AsyncJailExecutor(jail, 2, limits=LIMITS) as executor:
            show("called", await executor.map(lambda n: n + 1, range(3)))
            with anyio.move_on_after(0.5) as scope:
                await executor.submit(time.sleep, 60)
            show("stopped", scope.cancelled_caught, await executor.submit(abs, -2))
        for name, make in (
            ("trusted", aio.AsyncTrustedRuntime),
            ("jail", lambda: aio.AsyncJail(vr.JailPolicy())),
        ):
            try:
                await make().__aenter__()
            except vr.JailUnavailable as error:
                show(name, type(error).__name__, getattr(error, "field", None))

    anyio.run(main)


def alive(number: int) -> bool:
    """Whether there is a process of that number."""
    import _winapi

    try:
        handle = _winapi.OpenProcess(0x100000, False, number)
    except OSError:
        return False
    try:
        return bool(_winapi.WaitForSingleObject(handle, 0) == 0x102)
    finally:
        _winapi.CloseHandle(handle)


ACTS = {act.__name__: act for act in (verbs, ends, children, pools, tasks)}


def main() -> int:
    """Do what the command line names; 1 if it is not what is expected."""
    act, folder = sys.argv[1:]
    with vr.WindowsJail(folder) as jail:
        runtime: Any = vr.Runtime(jail, limits=LIMITS, env={"MODE": "test"})  # type: ignore[arg-type,call-arg]
        with runtime:
            ACTS[act](jail, runtime)
        work = jail.work
    show("closed", jail.state, sorted(os.listdir(os.path.dirname(work))))
    for line, wanted in zip_longest(said, EXPECTED[act]):
        if line != wanted:
            print(f"{line!a}, and not {wanted!a}")
    return int(said != EXPECTED[act])


if __name__ == "__main__":
    sys.exit(main())

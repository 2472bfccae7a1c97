"""Limits on a run, each with its own word, and the rungs that end it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from runtime_helpers import WORKER_PYTHONS, runtime

from visruntime import CommandTimeout, Stop, Timeouts, TrustedRuntime, WorkerDied
from visruntime._worker.ladder import Ladder
from visruntime._worker.limit import Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime_helpers import AnyRuntime

    from visruntime import RunResult
    from visruntime._callbacks.run import Call

__all__ = ["runtime"]  # the fixture is found by its name in this module


def stopped(runtime: AnyRuntime, code: str, timeout: float | Timeouts) -> tuple[RunResult, Stop]:
    """Run *code* until a limit ends it; return the result and what was done."""
    # What takes a busy machine long is none of the limit's business.
    runtime.exec("import asyncio, os, queue, re, signal, socket, subprocess, sys, threading, time")
    with pytest.raises(CommandTimeout) as caught:
        pytest.fail(f"it was not stopped: {runtime.run(code, timeout=timeout).error!r}")
    result = caught.value.result
    assert result.stopped_by == "timeout"
    assert isinstance(result.stop, Stop)
    assert result.stop.sentence() in str(caught.value)
    return result, result.stop


def names(stop: Stop) -> list[str]:
    """Return the names of the rungs."""
    return [rung.name for rung in stop.rungs]


# ---- what can be asked for ----


def test_a_number_is_a_limit_on_the_wall_clock() -> None:
    """``timeout=5`` and ``Timeouts(wall=5)`` must not differ; the value is frozen and comparable."""
    timeouts = Timeouts(wall=5, idle=(1, 0.1), grace=2)
    assert list(timeouts.limits()) == [("wall", 5, 2), ("idle", 1, 0.1)]
    assert timeouts == Timeouts(wall=5, idle=(1, 0.1), grace=2)
    assert hash(timeouts) == hash(Timeouts(wall=5, idle=(1, 0.1), grace=2))
    with pytest.raises(AttributeError):
        timeouts.wall = 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"wall": 0}, ValueError),
        ({"cpu": -1.0}, ValueError),
        ({"idle": float("nan")}, ValueError),
        ({"turn": "5"}, TypeError),
        ({"wall": True}, TypeError),
        ({"callback": (1,)}, TypeError),
        ({"callback": (1, -1)}, ValueError),
        ({"grace": None}, TypeError),
    ],
)
def test_limits_are_checked_when_they_are_made(wrong: dict[str, Any], error: type) -> None:
    """No limit that means nothing is taken."""
    with pytest.raises(error, match=next(iter(wrong))):
        Timeouts(**wrong)


def test_limits_of_the_runtime_hold_for_every_verb(runtime: AnyRuntime) -> None:
    """What ``set_timeouts`` says is not for ``run`` alone, and a call's own limit comes first."""
    runtime.set_timeouts(0.2)
    runtime.exec("import time", timeout=30)
    with pytest.raises(CommandTimeout) as caught:
        runtime.call("time.sleep", 60)
    assert caught.value.result.stop.limit == 0.2
    assert runtime.run("time.sleep(.3); 1", timeout=30).value == 1
    runtime.set_timeouts(None)
    assert runtime.call("time.sleep", 0.3) is None


# ---- each limit has its word ----


def test_processor_time_is_counted_and_sleep_is_not(runtime: AnyRuntime) -> None:
    """A run that computes is stopped by ``cpu``; one that sleeps longer than that is not."""
    limits = Timeouts(cpu=0.2, wall=20)
    assert runtime.run("import time; time.sleep(.4); 1", timeout=limits).value == 1
    result, stop = stopped(runtime, "while True: pass", limits)
    assert (stop.reason, stop.limit) == ("cpu", 0.2)
    assert result.usage.cpu_seconds is not None
    assert result.usage.cpu_seconds >= 0.2
    # Of children only those count that the worker has waited for, and these it had before.
    code = (
        "import subprocess, sys\nfor _ in range(200): subprocess.run([sys.executable, '-c', '1'])"
    )
    assert stopped(runtime, code, limits)[1].reason == "cpu"


def test_a_run_that_writes_is_not_idle(runtime: AnyRuntime) -> None:
    """``idle`` counts from the last output: three lines in time, then silence."""
    code = (
        "import time\nfor n in range(3):\n    print(n, flush=True); time.sleep(.1)\ntime.sleep(60)"
    )
    result, stop = stopped(runtime, code, Timeouts(idle=0.25, wall=20))
    assert (stop.reason, stop.limit) == ("idle", 0.25)
    assert result.stdout == b"0\n1\n2\n"
    assert result.usage.wall_seconds > 0.4


def test_a_turn_ends_with_each_call_of_the_host(runtime: AnyRuntime) -> None:
    """``turn`` counts the guest's time between two calls, whatever it writes meanwhile."""
    runtime.expose("step", lambda: time.sleep(0.15))
    code = (
        "import time\nfor _ in range(3):\n    step(); time.sleep(.1)\n"
        "while True:\n    print('on', flush=True); time.sleep(.05)"
    )
    result, stop = stopped(runtime, code, Timeouts(turn=0.3, wall=20))
    assert (stop.reason, stop.limit) == ("turn", 0.3)
    assert result.host_calls.calls == 3
    assert result.host_calls.seconds > 0.4


def test_the_clock_can_stand_still_while_the_host_works(runtime: AnyRuntime) -> None:
    """With ``pause_in_callbacks`` the host's own time is not counted against the code."""

    async def work() -> str:
        await asyncio.sleep(0.3)
        return "done"

    runtime.expose("work", work)
    kind = Timeouts(wall=0.2, pause_in_callbacks=True)
    assert runtime.run("work()", timeout=kind).value == "done"
    assert stopped(runtime, "work()", 0.1)[1].function == "work"
    _, stop = stopped(runtime, "work()\nwhile True: pass", kind)
    assert (stop.reason, stop.function) == ("wall", None)


# ---- functions of the host ----


def test_an_async_function_is_cancelled_with_its_run(runtime: AnyRuntime) -> None:
    """What the guest waits for does not go on when the run is over; it may clean up."""
    seen: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    runtime.expose("slow", slow)
    for kind in (Timeouts(callback=0.2), Timeouts(wall=0.2)):
        result, stop = stopped(runtime, "slow()", kind)
        assert (stop.reason, stop.function) == (next(kind.limits())[0], "slow")
        assert names(stop) == ["cancel", "signal"]
        assert not result.session_lost
        assert result.error is not None
        assert result.error.interrupted
    assert seen == ["cancelled"] * 2
    assert "visruntime-callback" not in {thread.name for thread in threading.enumerate()}


def test_a_sync_function_is_waited_for_no_longer_than_its_limit(runtime: AnyRuntime) -> None:
    """The run fails though the function goes on, the host's stack says where, the next call works."""
    release = threading.Event()

    def stuck() -> None:
        release.wait(30)

    runtime.expose("stuck", stuck)
    runtime.expose("quick", lambda: 5)
    try:
        started = time.monotonic()
        result, stop = stopped(runtime, "stuck()", Timeouts(callback=0.2))
        assert time.monotonic() - started < 2
        assert (stop.reason, stop.limit, stop.function) == ("callback", 0.2, "stuck")
        assert f'File "{__file__}"' in stop.host_stack
        assert ", in stuck" in stop.host_stack
        assert not result.session_lost
        assert runtime.eval("quick()", timeout=Timeouts(callback=5)) == 5
        # A guest that collects them is refused.
        for _ in range(15):
            stopped(runtime, "stuck()", Timeouts(callback=0.01))
        error = runtime.run("stuck()", timeout=Timeouts(callback=5)).error
        assert error is not None
        assert "16 functions of the host that were given up still run" in error.message
    finally:
        release.set()


def test_the_guest_cannot_keep_a_run_by_catching_what_ends_it(runtime: AnyRuntime) -> None:
    """The run is over for the host even where the guest swallows the interrupt and answers."""

    async def slow() -> None:
        await asyncio.sleep(60)

    runtime.expose("slow", slow)
    code = "try: slow()\nexcept BaseException as e: r = type(e).__name__\nr"
    result, stop = stopped(runtime, code, Timeouts(callback=0.2))
    assert result.value == "VisInterrupt"
    assert stop.reason == "callback"


LEAVES = """
import os, time
try:
    print("begun", flush=True)
    while True:
        time.sleep(0.01)
except BaseException:
    os._exit(7)
"""


def test_how_a_guest_leaves_does_not_hide_why_it_was_stopped(runtime: AnyRuntime) -> None:
    """A worker that exits in its grace has still been stopped, by a limit or by who cancels."""
    with pytest.raises(CommandTimeout, match=r"ran longer than 0\.2 s.*the worker ended") as late:
        runtime.run(LEAVES, timeout=0.2)
    result = late.value.result
    assert result is not None
    assert (result.stopped_by, result.session_lost) == ("timeout", True)
    assert result.stop is not None
    assert result.stop.ended_by == "signal"
    assert result.stdout_text == "begun\n"
    assert isinstance(late.value.__cause__, WorkerDied)
    assert late.value.__cause__.exit_code == 7  # as measured
    handle = runtime.start(LEAVES)
    for event in handle:
        if event.kind == "stdout":
            handle.cancel()
    result = handle.result(10)
    assert (result.stopped_by, result.session_lost) == ("cancelled", True)
    # The controls: who leaves unasked has died, and so has who was only interrupted.
    with pytest.raises(WorkerDied) as died:
        runtime.run("import os; os._exit(7)", timeout=30)
    assert (died.value.exit_code, died.value.stopped_by) == (7, None)
    handle = runtime.start(LEAVES)
    for event in handle:
        if event.kind == "stdout":
            runtime.interrupt()
    with pytest.raises(WorkerDied):
        handle.result(10)


def test_a_call_from_a_thread_of_the_guest_is_given_up_too(runtime: AnyRuntime) -> None:
    """A thread that waits for the host gets an error, and does not keep the run from ending."""

    async def slow() -> None:
        await asyncio.sleep(60)

    runtime.expose("slow", slow)
    code = (
        "import threading\nseen = []\n"
        "def work():\n    try: slow()\n    except Exception as e: seen.append(str(e))\n"
        "t = threading.Thread(target=work); t.start(); t.join()"
    )
    result, _ = stopped(runtime, code, Timeouts(callback=0.2))
    assert not result.session_lost
    assert runtime.run("t.join(5); seen").value == [
        "the host's function slow was given up, as its run is"
    ]


def test_an_interrupt_reaches_a_run_that_waits_for_the_host(runtime: AnyRuntime) -> None:
    """``interrupt`` from another thread cancels the function and says so; nothing is lost."""

    async def slow() -> None:
        await asyncio.sleep(60)

    runtime.expose("slow", slow)
    runtime.exec("kept = 1")
    timer = threading.Timer(0.2, runtime.interrupt)
    timer.start()
    result = runtime.run("slow()", timeout=30)
    timer.join()
    assert result.error is not None
    assert result.error.interrupted
    assert result.stopped_by is None
    assert result.stop is not None
    assert (result.stop.reason, names(result.stop)) == ("interrupt", ["cancel", "signal"])
    assert result.usage.wall_seconds < 5
    assert runtime.run("kept").stop is None


# ---- the rungs ----


@pytest.fixture(scope="module")
def hasty() -> Iterator[TrustedRuntime]:
    """Return one runtime for many tests that each cost it its worker."""
    with TrustedRuntime() as running:
        yield running


def test_a_task_that_waits_is_cancelled_and_may_clean_up(runtime: AnyRuntime) -> None:
    """``await`` in a finally still works when a limit ends the run; code that runs is broken off."""
    runtime.exec("import asyncio\nawait asyncio.sleep(0)")  # slow where the machine is busy
    code = (
        "import asyncio\ntry:\n    await asyncio.sleep(60)\n"
        "finally:\n    await asyncio.sleep(0); print('cleaned')"
    )
    result, _ = stopped(runtime, code, 0.2)
    assert result.stdout == b"cleaned\n"
    assert result.error is not None
    assert result.error.interrupted
    assert result.error.cancelled
    assert [frame.line for frame in result.error.frames if frame.file.startswith("<run")] == [3]
    result, _ = stopped(
        runtime, "import asyncio, time\ntime.sleep(60)\nawait asyncio.sleep(0)", 0.2
    )
    assert result.error is not None
    assert result.error.interrupted
    assert not result.error.cancelled
    code = (
        "import asyncio\nasync def leave():\n    asyncio.current_task().cancel()\n"
        "    await asyncio.sleep(1)\nawait leave()"
    )
    error = runtime.run(code).error
    assert error is not None
    assert "CancelledError" in error.type_name
    assert not error.interrupted


def test_a_task_that_ignores_its_cancelling_is_broken_off(runtime: AnyRuntime) -> None:
    """The second interrupt raises, so that no ``except CancelledError`` keeps a run."""
    code = (
        "import asyncio\nwhile True:\n    try: await asyncio.sleep(60)\n"
        "    except asyncio.CancelledError: pass"
    )
    result, _ = stopped(runtime, code, Timeouts(wall=0.2, grace=2))
    assert not result.session_lost
    assert result.error is not None
    assert result.error.interrupted


def test_children_are_asked_before_the_worker_is_ended(runtime: AnyRuntime) -> None:
    """C code that waits for a program hears no signal: its children end, and the session lives."""
    runtime.exec("kept = 1")
    result, stop = stopped(runtime, "import os; os.system('sleep 60')", 0.2)
    assert names(stop) == ["signal", "stacks", "children"]
    assert stop.ended_by == "children"
    assert "os.system" in stop.stacks or "<run" in stop.stacks
    assert not result.session_lost
    assert runtime.get("kept") == 1


@pytest.mark.parametrize(
    "code",
    [
        "sum(range(10**12))",
        "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)",
        "import zlib; zlib.compress(bytes(200 << 20), 9)",
        "import collections, itertools; collections.deque(itertools.repeat(0), maxlen=0)",
        "import json; json.dumps([[0] * 1000] * 100_000)",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ],
    ids=["sum", "pbkdf2", "zlib", "deque", "json", "swallow"],
)
def test_what_cannot_be_interrupted_is_ended_in_time(hasty: TrustedRuntime, code: str) -> None:
    """C code that never looks for signals is ended within the grace and 200 ms.

    The best of a few tries counts: on a machine that others share a single one says nothing.
    """
    runtime = hasty
    tries: list[float] = []
    while len(tries) < 8 and min(tries, default=math.inf) >= 0.2 + 0.3 + 0.2:
        runtime.exec("import hashlib, zlib, collections, itertools, json")
        started = time.monotonic()
        with pytest.raises(CommandTimeout) as caught:
            runtime.run(code, timeout=Timeouts(wall=(0.2, 0.3)))
        took = time.monotonic() - started
        result, stop = caught.value.result, caught.value.result.stop
        complete = not result.session_lost or "<run" in stop.stacks
        tries.append(took if complete else math.inf)
        if result.session_lost:  # some of it ends by itself on some versions
            assert stop.ended_by == "kill"
            assert stop.rungs[-1].seconds >= 0.3
        else:
            assert stop.ended_by == "signal"
    assert min(tries) < 0.2 + 0.3 + 0.2
    assert runtime.eval("1") == 1


_SOFT = {
    "sleep": "import time; time.sleep(60)",
    "lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "queue": "import queue; queue.Queue().get()",
    "await": "import asyncio\nawait asyncio.sleep(60)",
    "child": "import subprocess; subprocess.run(['sleep', '60'])",
    "loop": "while True: pass",
    "regex": "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "bigint": "x = 3 ** (10 ** 9)",
    "call": "wait()",
    "sigint": "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(60)",
}


@pytest.mark.parametrize("python", WORKER_PYTHONS)
def test_workers_of_every_version_can_be_interrupted(python: str | None) -> None:
    """Waits, calls, loops and C code that looks for signals end softly in each Python found."""

    async def wait() -> None:
        await asyncio.sleep(60)

    with TrustedRuntime(python=python) as running:
        running.expose("wait", wait)
        running.exec("import asyncio, queue, re, subprocess, threading\nkept = 1")
        for name, code in _SOFT.items():
            result, stop = stopped(running, code, Timeouts(wall=0.05, grace=2))
            assert (name, stop.ended_by, result.session_lost) == (name, "signal", False)
            assert result.error is not None
            assert result.error.interrupted
        assert running.get("kept") == 1


# ---- the ladder alone, by its own clock ----


class Standing:
    """A worker that obeys nothing; time passes only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.last_output = 0.0
        self.paused = 0.0
        self.acts: list[str] = []
        monkeypatch.setattr("visruntime._worker.ladder.time.monotonic", lambda: self.now)

    def interrupt(self) -> None:
        self.acts.append("interrupt")

    def stacks(self, seconds: float) -> str:
        self.acts.append("stacks")
        raise TimeoutError(f"silent for {seconds}")

    def signal_descendants(self, number: int) -> int:
        self.acts.append(f"signal {number}")
        return 3

    def paused_seconds(self) -> float:
        return self.paused

    def wait_for(self, call: object, limit: object) -> None:
        raise NotImplementedError


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Standing]:
    """Return a maker of such workers."""
    return lambda: Standing(monkeypatch)


def test_each_rung_has_its_time(standing: Callable[[], Standing]) -> None:
    """No rung comes before its share of the grace, and none is climbed twice."""
    worker = standing()
    ladder = Ladder(Timeouts(wall=10, grace=10), worker)
    assert ladder.milliseconds() == 250
    worker.now += 9.9
    assert ladder.milliseconds() == pytest.approx(100)
    assert worker.acts == []
    worker.now += 0.1
    ladder.milliseconds()
    ladder.milliseconds()
    assert worker.acts == ["interrupt"]
    worker.now += 5
    assert 0 < ladder.milliseconds() <= 250
    assert worker.acts == ["interrupt", "stacks"]
    worker.now += 1
    ladder.milliseconds()
    assert worker.acts == ["interrupt", "stacks", "signal 15"]
    worker.now += 4
    with pytest.raises(Timeout):
        ladder.milliseconds()
    stop = ladder.stop(lost=True)
    assert stop is not None
    assert [(rung.name, round(rung.seconds, 3), rung.detail) for rung in stop.rungs] == [
        ("signal", 0, ""),
        ("stacks", 5, "silent for 4.0"),
        ("children", 6, "SIGTERM to 3 processes"),
        ("kill", 10, ""),
    ]
    assert stop.to_dict()["ended_by"] == "kill"


def test_time_in_which_the_worker_stands_still_does_not_count(
    standing: Callable[[], Standing],
) -> None:
    """Neither a limit nor a rung counts a pause."""
    worker = standing()
    ladder = Ladder(Timeouts(wall=10, idle=5, grace=10), worker)
    worker.last_output = 1000.0
    worker.now, worker.paused = 2000.0, 998.0
    assert ladder.milliseconds() == 250
    assert not ladder.told
    worker.now += 3
    ladder.milliseconds()
    assert ladder.told
    worker.now, worker.paused = 3003.0, 1998.0
    ladder.milliseconds()
    assert worker.acts == ["interrupt"]
    stop = ladder.stop(lost=False)
    assert stop is not None
    assert stop.reason == "idle"


def test_nothing_is_asked_where_there_is_no_limit(standing: Callable[[], Standing]) -> None:
    """Without limits a run goes on for ever and nothing was done to it."""
    worker = standing()
    ladder = Ladder(None, worker)
    worker.now += 1e6
    assert ladder.milliseconds() == 250
    assert ladder.stop(lost=False) is None


@pytest.mark.parametrize(("answer", "seen"), [(True, ["cancel", "signal"]), (False, ["signal"])])
def test_a_run_that_ends_at_its_cancelling_knows_what_was_done(
    standing: Callable[[], Standing], *, answer: bool, seen: list[str]
) -> None:
    """Its thread may ask as soon as the function is cancelled: all that was done is noted then."""
    ladder = Ladder(None, standing())
    known: list[Stop | None] = []

    class Quick:
        name = "quick"

        def cancel(self) -> bool:
            known.append(ladder.stop(lost=False))
            return answer

    ladder.call_begins(cast("Call", Quick()))
    ladder.asked_to_stop()
    known.append(ladder.stop(lost=False))
    first, last = known
    assert first is not None
    assert last is not None
    assert names(first) == ["cancel", "signal"]
    assert names(last) == seen


def test_a_host_of_any_thread_may_interrupt_another_ones_run() -> None:
    """Interrupts come from many threads at once and do not hurt; between runs they do nothing."""
    with TrustedRuntime() as runtime:
        runtime.run("1")
        threads = [threading.Thread(target=runtime.interrupt) for _ in range(20)]
        timer = threading.Timer(0.2, lambda: list(map(threading.Thread.start, threads)))
        timer.start()
        result = runtime.run("import time; time.sleep(60)", timeout=20)
        timer.join()
        for thread in threads:
            thread.join()
        assert result.error is not None
        assert result.error.interrupted
        assert runtime.eval("1") == 1

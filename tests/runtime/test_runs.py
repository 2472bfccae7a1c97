"""Runs that are started and watched: their events, their end from outside, and what is theirs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

from visruntime.errors import CommandTimeout, ProtocolViolation, WorkerDied
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

    from visruntime.runtime import RunEvent

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


def kinds(events: list[RunEvent]) -> list[str]:
    """Return the kinds of *events*, in order."""
    return [event.kind for event in events]


# ---- events ----


def test_events_come_in_order_while_the_code_runs(runtime: AnyRuntime) -> None:
    """No event is late, out of order or missing, and the result is the last."""
    runtime.expose("twice", lambda n: n * 2)
    run = runtime.start(
        "import sys, time\n"
        "print('one', end=''); display('two'); time.sleep(.1); print('three')\n"
        "time.sleep(.3)\n"
        "twice(4)\n"
        "print('four', file=sys.stderr)\n"
        "'five'"
    )
    events = list(run)
    assert kinds(events) == [
        *("stdout", "display", "stdout", "call", "return", "stderr", "result"),
    ]
    assert [event.ordinal for event in events] == [1, 2, 3, 4, 5, 6, 7]
    times = [event.time for event in events]
    assert times == sorted(times)
    assert times[3] - times[2] > 0.2
    assert [event.text for event in events if event.kind == "stdout"] == ["one", "three\n"]
    assert events[1].data.text == "'two'"
    assert (events[3].data, events[4].data) == ("twice", "twice")
    result = run.result()
    assert events[-1].data is result
    assert (result.value, result.stdout, result.stderr) == ("five", b"onethree\n", b"four\n")
    assert run.done
    assert list(run) == []


def test_run_tells_of_the_same_events(runtime: AnyRuntime) -> None:
    """``on_event`` gets in the calling thread what an iterator would give."""
    events: list[RunEvent] = []
    threads = set()

    def take(event: RunEvent) -> None:
        events.append(event)
        threads.add(threading.get_ident())

    result = runtime.run(
        "print('x'); display(1); import time; time.sleep(.1); print('y')", on_event=take
    )
    assert kinds(events) == ["stdout", "display", "stdout", "result"]
    assert events[-1].data is result
    assert threads == {threading.get_ident()}


def test_what_is_written_between_two_runs_is_told_first(runtime: AnyRuntime) -> None:
    """A thread and a grandchild that print after their run must not be taken for the next one."""
    runtime.run(
        "import subprocess, sys, threading, time\n"
        "subprocess.run(['sh', '-c', '(sleep .2; echo grandchild) & exit 0'])\n"
        "def later():\n"
        "    time.sleep(.2); print('thread', file=sys.stderr)\n"
        "threading.Thread(target=later).start()"
    )
    time.sleep(0.6)
    events: list[RunEvent] = []
    result = runtime.run("print('mine')", on_event=events.append)
    assert (result.late_stdout, result.late_stderr) == (b"grandchild\n", b"thread\n")
    assert (result.stdout, result.stderr) == (b"mine\n", b"")
    assert kinds(events) == ["late_stdout", "late_stderr", "stdout", "result"]


def test_an_observer_that_raises_ends_the_run(runtime: AnyRuntime) -> None:
    """An exception of the host's own function must reach the host, and no half session stay."""

    def fail(event: RunEvent) -> None:
        raise KeyError(event.kind)

    runtime.exec("kept = 1")
    with pytest.raises(KeyError, match="stdout"):
        runtime.run("print('x')", on_event=fail)
    assert runtime.run("'kept' in globals()").value is False


# ---- handles ----


def test_a_run_goes_on_beside_its_caller(runtime: AnyRuntime) -> None:
    """``start`` returns at once; result() waits, times out, and can be asked by any thread."""
    started = time.monotonic()
    runtime.run("1")
    run = runtime.start("import time; time.sleep(.5); 6 * 7")
    assert time.monotonic() - started < 0.45 or not run.done
    with pytest.raises(TimeoutError):
        run.result(timeout=0.05)
    values: list[Any] = []
    threads = [threading.Thread(target=lambda: values.append(run.result().value)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert values == [42, 42, 42]
    assert runtime.run("1 + 1").value == 2


def test_runs_take_turns_in_the_order_of_their_start(runtime: AnyRuntime) -> None:
    """A second start waits for the first; neither overtakes."""
    first = runtime.start("import time; time.sleep(.2); order = ['first']")
    second = runtime.start("order.append('second'); order")
    assert first.done
    assert second.result().value == ["first", "second"]


def test_a_failing_run_raises_where_its_result_is_asked_for(runtime: AnyRuntime) -> None:
    """Timeouts and dead workers come from result(), and their events still end with a result."""
    run = runtime.start("print('so far', flush=True)\nwhile True: pass", timeout=0.3)
    events = list(run)
    assert kinds(events) == ["stdout", "result"]
    with pytest.raises(CommandTimeout) as late:
        run.result()
    assert late.value.result.stdout == b"so far\n"
    dead = runtime.start("import os; print('bye', flush=True); display(1); os._exit(3)")
    with pytest.raises(WorkerDied) as death:
        dead.result()
    assert death.value.exit_code == 3
    assert death.value.result is not None
    assert death.value.result.stdout == b"bye\n"
    assert [display.text for display in death.value.result.displays] == ["1"]


def test_wrong_arguments_are_refused_before_anything_starts(runtime: AnyRuntime) -> None:
    """An argument that cannot be meant must not start a worker or hold the runtime."""
    for wrong in (
        {"stdin": 3},
        {"isolation": "new"},
        {"tasks": "kill"},
        {"env": {"A=B": "1"}},
        {"env": {"A": "\0"}},
        {"env": {"": "1"}},
        {"timeout": 0},
        {"inputs": {"not a name": 1}},
        {"argv": [1]},
    ):
        for verb in (runtime.run, runtime.start):
            with pytest.raises((TypeError, ValueError)):
                verb("1", **wrong)
    run = runtime.start("1", inputs={"x": object()})
    with pytest.raises(TypeError):
        run.result()
    assert runtime.run("2").value == 2


# ---- the end from outside ----


def test_cancel_interrupts_and_keeps_the_session(runtime: AnyRuntime) -> None:
    """A run that obeys is data with ``stopped_by``, and names stay bound."""
    runtime.exec("kept = 1")
    run = runtime.start("print('x', flush=True)\nimport time; time.sleep(60)")
    assert run.next_event(timeout=10) is not None
    started = time.monotonic()
    run.cancel()
    result = run.result(timeout=10)
    assert time.monotonic() - started < 1
    assert (result.stopped_by, result.session_lost) == ("cancelled", False)
    assert result.stop is not None
    assert (result.stop.reason, result.stop.ended_by) == ("cancel", "signal")
    assert result.error is not None
    assert result.error.interrupted
    assert result.stdout == b"x\n"
    assert runtime.get("kept") == 1
    run.cancel()  # over already: changes nothing
    assert run.result().stopped_by == "cancelled"
    assert runtime.run("2").stopped_by is None


def test_cancel_ends_what_does_not_obey(runtime: AnyRuntime) -> None:
    """C code that no signal breaks is ended with its worker, and the result says so."""
    run = runtime.start("print('x', flush=True)\nsum(range(10**12))")
    assert run.next_event(timeout=10) is not None
    time.sleep(0.2)
    started = time.monotonic()
    run.cancel()
    result = run.result(timeout=10)
    assert time.monotonic() - started < 2
    assert (result.stopped_by, result.session_lost) == ("cancelled", True)
    assert result.stop is not None
    assert (result.stop.reason, result.stop.ended_by) == ("cancel", "kill")
    assert "sum" in result.stop.stacks or "<run" in result.stop.stacks
    assert result.stdout == b"x\n"
    assert runtime.run("2").value == 2


def test_leaving_the_block_ends_the_run(runtime: AnyRuntime) -> None:
    """A run must not go on after its with block, and one that is over is left alone."""
    with runtime.start("import time\nwhile True: time.sleep(.01)") as run:
        pass
    assert run.done
    assert run.result().stopped_by == "cancelled"
    with runtime.start("3") as run:
        assert run.result(timeout=10).value == 3
    assert run.result().stopped_by is None


def test_closing_the_runtime_ends_a_run_that_was_started(runtime: AnyRuntime) -> None:
    """A run that nobody ends must not keep the runtime, or its with block, open for ever."""
    run = runtime.start("print('x', flush=True)\nwhile True: pass")
    assert run.next_event(timeout=10) is not None
    started = time.monotonic()
    runtime.close()
    assert time.monotonic() - started < 3
    assert run.result(timeout=1).stopped_by == "cancelled"


def test_a_run_cancelled_before_it_began_never_begins() -> None:
    """Code must not run once its end was asked for, even if the worker had yet to start."""
    with TrustedRuntime() as runtime:
        run = runtime.start("import os; os.write(1, b'ran')")
        run.cancel()
        result = run.result(timeout=30)
        assert result.stopped_by == "cancelled"
        if result.error is None:
            assert result.stdout == b""


def test_a_host_function_cannot_wait_for_the_run_that_calls_it(runtime: AnyRuntime) -> None:
    """A deadlock is refused by name."""
    runs: list[Any] = []
    ready = threading.Event()

    def wait() -> None:
        ready.wait(10)
        runs[0].result(timeout=5)

    runtime.expose("wait", wait)
    runs.append(runtime.start("wait()"))
    ready.set()
    error = runs[0].result(timeout=10).error
    assert error is not None
    assert "cannot wait for the run that is calling it" in error.message


@pytest.mark.parametrize("way", ["iterate", "leave"])
def test_a_host_function_cannot_watch_the_run_that_calls_it_to_its_end(way: str) -> None:
    """Iterating over it and leaving its block would wait for ever, with no limit to end that."""
    runs: list[Any] = []

    def watch() -> Any:
        if way == "iterate":
            return [event.kind for event in runs[0]]
        with runs[0]:
            return None

    runtime = TrustedRuntime()  # no with block, which would wait for such a run
    runtime.expose("watch", watch)
    runs.append(runtime.start("import time; time.sleep(0.2); watch()", timeout=5))
    error = runs[0].result(timeout=10).error
    assert error is not None
    assert "cannot wait for the run that is calling it" in error.message
    with TrustedRuntime() as other, other.start("6 * 7") as run:
        runtime.expose("elsewhere", lambda: [event.kind for event in run])
        assert runtime.eval("elsewhere()") == ["result"]
    runtime.close()


def test_a_run_that_gets_no_thread_leaves_the_runtime() -> None:
    """A machine that gives no more threads must not leave a runtime that nobody can use or close."""
    with TrustedRuntime() as runtime:
        runtime.exec("kept = 7")
        before = threading.stack_size()
        threading.stack_size(1 << 46)  # more than there is address space
        try:
            with pytest.raises(RuntimeError, match="can't start new thread") as caught:
                runtime.start("1")
        finally:
            threading.stack_size(before)
        assert caught.value.__traceback__ is not None  # and with it the frame of `start`
        assert runtime._lock.acquire(timeout=5)
        runtime._lock.release()
        assert runtime.start("kept").result(timeout=10).value == 7


# ---- readers that are slow, and guests that say too much ----


def test_an_abandoned_reader_holds_up_nothing(runtime: AnyRuntime) -> None:
    """A million small writes and nobody who reads: the run ends, and the queue is bounded."""
    run = runtime.start(
        "import os\n"
        "for _ in range(1_000_000): os.write(1, b'x')\n"
        "for _ in range(20_000): display(None)\n"
        "'done'",
        timeout=60,
    )
    result = run.result()
    assert result.value == "done"
    assert result.stdout == b"x" * 1_000_000
    assert len(result.displays) == 1000
    assert result.displays_dropped == 19_000
    events = list(run)
    assert len(events) <= 10_002
    assert events[-1].kind == "result"
    told = sum(event.data for event in events if event.kind == "dropped")
    assert told == run.dropped
    assert events[-1].ordinal == len([e for e in events if e.kind != "dropped"]) + told


def test_a_slow_reader_is_told_what_it_missed() -> None:
    """Events that did not fit are counted in their place."""
    with TrustedRuntime(output=1000) as runtime:
        ready = threading.Event()

        def wait(_prompt: str, _password: bool) -> None:  # noqa: FBT001 (as it is called)
            ready.wait(10)

        run = runtime.start(
            "import os\nfor _ in range(40): os.write(1, b'x' * 1_000_000)\n"
            "input()\nprint('after', flush=True)",
            stdin=wait,
            timeout=30,
        )
        first = run.next_event(timeout=10)
        assert first is not None
        while run.dropped == 0:
            time.sleep(0.01)
        events = [first]
        for _ in range(200):
            event = run.next_event(timeout=10)
            assert event is not None
            events.append(event)
        ready.set()
        events += list(run)
        assert "dropped" in kinds(events)
        assert kinds(events)[-1] == "result"
        seen = sum(len(e.data) for e in events if e.kind in {"stdout", "stderr"})
        assert seen < 40_000_100


@pytest.mark.parametrize(
    "act",
    [
        "c.send(15, c.encode(None))",
        "c.send(15, c.encode({}))",
        "c.send(15, c.encode(dict(data={'a/b': [1]}, display_id=None, update=False)))",
        "c.send(15, c.encode(dict(data={1: 'x'}, display_id=None, update=False)))",
        "c.send(15, c.encode(dict(data={'a/b\\x1b': 'x'}, display_id=None, update=False)))",
        "c.send(15, c.encode(dict(data={'x' * 101: 'x'}, display_id=None, update=False)))",
        (
            "c.send(15, c.encode(dict(data={str(n): '' for n in range(21)}, display_id=None,"
            " update=False)))"
        ),
        "c.send(15, c.encode(dict(data={}, display_id=7, update=False)))",
        "c.send(15, c.encode(dict(data={}, display_id='x' * 101, update=False)))",
        "c.send(15, c.encode(dict(data={}, display_id=None, update=True)))",
        "c.send(15, c.encode(dict(data={}, display_id='x', update=1)))",
        "c.send(15, b'\\xff')",
        "c.send(16, c.encode(dict(id=1, prompt='?', password=False)))",
        "c.send(16, b'')",
        "c.send(6, c.encode('unused'))",
    ],
)
def test_forged_frames_are_violations(runtime: AnyRuntime, act: str) -> None:
    """Displays and questions of another shape, or unasked, end the worker."""
    with pytest.raises(ProtocolViolation):
        runtime.run(f"import _viscore as c\n{act}\nimport time; time.sleep(10)")
    assert runtime.eval("1+1") == 2


@pytest.mark.parametrize(
    "question",
    [
        "{}",
        "dict(id='1', prompt='?', password=False)",
        "dict(id=1, prompt=b'?', password=False)",
        "dict(id=1, prompt='?', password=0)",
        "dict(id=1, prompt='?' * 20_000, password=False)",
        "dict(id=1, prompt='?', password=[0] * 1000)",
    ],
)
def test_forged_questions_are_violations(runtime: AnyRuntime, question: str) -> None:
    """A question of another shape must not reach the function that answers."""
    asked: list[str] = []
    with pytest.raises(ProtocolViolation):
        runtime.run(
            f"import _viscore as c, time\nc.send(16, c.encode({question}))\ntime.sleep(10)",
            stdin=lambda prompt, _: asked.append(prompt),
        )
    assert asked == []


def test_displays_after_the_run_are_refused_in_the_guest(runtime: AnyRuntime) -> None:
    """A thread that displays between two runs gets an error; the worker breaks no protocol."""
    runtime.run(
        "import threading, time\nerrors = []\n"
        "def later():\n"
        "    time.sleep(.2)\n"
        "    try: display(1)\n"
        "    except RuntimeError as error: errors.append(str(error))\n"
        "t = threading.Thread(target=later); t.start()"
    )
    time.sleep(0.5)
    result = runtime.run("t.join(); errors")
    assert result.value == ["the host can be reached only during a run"]
    assert result.displays == ()


def test_threads_display_and_call_at_once(runtime: AnyRuntime) -> None:
    """Frames of several threads must not mix."""
    runtime.expose("plus", lambda a, b: a + b)
    result = runtime.run(
        "import threading\nsums = []\n"
        "def work(n):\n"
        "    for i in range(30):\n"
        "        display('x' * 5000); sums.append(plus(n, i) - n - i)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "sums",
        timeout=30,
    )
    assert result.value == [0] * 180
    assert len(result.displays) == 180


def test_a_fork_of_the_guest_cannot_display(runtime: AnyRuntime) -> None:
    """A child of the worker has no channel: an error there, nothing here."""
    result = runtime.run(
        "import os\npid = os.fork()\n"
        "if not pid:\n"
        "    try: display(1)\n"
        "    except RuntimeError: os._exit(7)\n"
        "    os._exit(0)\n"
        "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert result.value == 7
    assert result.displays == ()


def test_a_runtime_in_a_closed_state_starts_nothing() -> None:
    """``start`` on a closed runtime is an error at once, not one that nobody asks for."""
    from visruntime.errors import JailClosed
    from visruntime.policy import JailPolicy

    runtime = Runtime(JailPolicy())
    runtime.close()
    with pytest.raises(JailClosed):
        runtime.start("1")

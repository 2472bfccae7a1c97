"""The Python worker as its callers see it: runs, values, errors and output."""

from __future__ import annotations

import errno
import math
import os
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

from visruntime.errors import (
    CommandFailed,
    CommandTimeout,
    GuestError,
)
from visruntime.events import Canary, Clause, EnforcementReport
from visruntime.protocol import Handle
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

__all__ = ["runtime"]  # the fixture is found by its name in this module


# ---- values and state ----


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1+1", 2),
        ("x = 3\nx * 2", 6),
        ("x = 3", None),
        ("", None),
        ("'''text'''", "text"),
        ("if True:\n    5", None),
        ("  7", 7),
        ("1; 2", 2),
        ("[1, (2, {3}), {'k': b'v'}]", [1, (2, {3}), {"k": b"v"}]),
        ("2**5000", 2**5000),
        ("float('-inf')", -math.inf),
        ("'\\ud800'", "\ud800"),
    ],
)
def test_run_returns_the_value_of_a_trailing_expression(
    runtime: AnyRuntime, code: str, value: Any
) -> None:
    """The value is that of the last statement if it is an expression, and exact."""
    result = runtime.run(code)
    assert result.error is None
    assert result.value == value
    assert type(result.value) is type(value)


def test_names_stay_bound_between_calls(runtime: AnyRuntime) -> None:
    """One namespace serves run, exec, eval, call, get and set until it is reset."""
    runtime.exec("def add(a, b=1):\n    return a + b + base")
    runtime.set("base", 100)
    assert runtime.call("add", 1) == 102
    assert runtime.call("add", 1, b=2) == 103
    assert runtime.eval("add(n)", inputs={"n": 5}) == 106
    assert runtime.get("base") == 100
    assert runtime.call("math.floor", 1.5) == 1 if runtime.run("import math").error is None else 0
    runtime.reset()
    with pytest.raises(GuestError) as caught:
        runtime.get("base")
    assert caught.value.type_name == "NameError"


def test_session_is_a_real_module(runtime: AnyRuntime) -> None:
    """Classes of the session can be pickled and inspected, for the module is importable."""
    result = runtime.run(
        "import pickle, dataclasses, typing, inspect\n"
        "@dataclasses.dataclass\nclass Point:\n    x: 'int'\n"
        "def move(p):\n    return p\n"
        "p = pickle.loads(pickle.dumps(Point(3)))\n"
        "(p.x, typing.get_type_hints(Point)['x'] is int, inspect.getsource(move), __name__)"
    )
    assert result.error is None, result.error
    assert result.value[:2] == (3, True)
    assert "def move" in result.value[2]
    assert result.value[3] == "__main__"


def test_unknown_objects_become_handles_that_can_be_sent_back(runtime: AnyRuntime) -> None:
    """An object that cannot cross is named, keeps its identity, and is gone after a reset."""
    handle = runtime.eval("(obj := type('Thing', (), {'__repr__': lambda s: 'r' * 5000})())")
    assert isinstance(handle, Handle)
    assert handle.type_name == "Thing"
    assert len(handle.repr) < 1100
    assert runtime.eval("given is obj", inputs={"given": handle}) is True
    runtime.reset()
    with pytest.raises(GuestError) as caught:
        runtime.eval("given", inputs={"given": handle})
    assert caught.value.type_name == "LookupError"


def test_cycles_and_hostile_reprs_do_not_hurt(runtime: AnyRuntime) -> None:
    """A value that refers to itself, or whose repr raises, comes as a handle."""
    cycle = runtime.eval("(lambda a: (a.append(a), a)[1])([])")
    assert isinstance(cycle, Handle)
    assert cycle.type_name == "list"
    bad = runtime.run("class Bad:\n    def __repr__(self): 1/0\nBad()").value
    assert isinstance(bad, Handle)
    assert "repr raised ZeroDivisionError" in bad.repr


def test_inputs_are_checked_before_anything_is_sent(runtime: AnyRuntime) -> None:
    """A name that is none, or a value that cannot cross, is the caller's error."""
    with pytest.raises(ValueError, match="not a Python name"):
        runtime.run("1", inputs={"a b": 1})
    with pytest.raises(TypeError):
        runtime.run("1", inputs={"a": object()})
    with pytest.raises(ValueError, match="positive"):
        runtime.run("1", timeout=0)
    with pytest.raises(TypeError, match="expected text"):
        runtime.run(b"1")  # type: ignore[arg-type]
    assert runtime.eval("1") == 1


def test_large_values_cross_both_ways(runtime: AnyRuntime) -> None:
    """Values far larger than any socket buffer arrive whole."""
    data = os.urandom(5_000_000)
    assert runtime.eval("d[::-1]", inputs={"d": data}) == data[::-1]


def test_top_level_await_shares_one_event_loop(runtime: AnyRuntime) -> None:
    """``await`` works at top level, and objects of the loop live on between runs."""
    assert runtime.run("import asyncio\nawait asyncio.sleep(0, 'done')").value == "done"
    runtime.exec("queue = asyncio.Queue()\nawait queue.put(4)")
    assert runtime.run("await queue.get()").value == 4
    runtime.exec("async def triple(n):\n    return n * 3")
    assert runtime.call("triple", 5) == 15


# ---- errors ----


def test_run_gives_guest_exceptions_as_data(runtime: AnyRuntime) -> None:
    """An error has type, message, notes, chain and frames with source lines and columns."""
    result = runtime.run(
        "def inner():\n"
        "    return {}['missing']\n"
        "try:\n"
        "    inner()\n"
        "except KeyError as e:\n"
        "    error = ValueError('wrong')\n"
        "    error.add_note('a note')\n"
        "    raise error from e\n"
    )
    error = result.error
    assert error is not None
    assert (error.type_name, error.message, error.notes) == ("ValueError", "wrong", ("a note",))
    assert [frame.line for frame in error.frames] == [8]
    assert error.cause is not None
    assert [(f.function, f.line) for f in error.cause.frames] == [("<module>", 4), ("inner", 2)]
    frame = error.cause.frames[1]
    assert frame.source[frame.column : frame.end_column] == "{}['missing']"
    assert "direct cause" in error.traceback
    assert "a note" in error.traceback
    assert "visguest" not in error.traceback


def test_guest_text_in_messages_has_no_control_sequence(runtime: AnyRuntime) -> None:
    """The escape character of a guest stays data; what is shown of it is inert."""
    result = runtime.run("raise ValueError('\x1b[31mred\x07')")
    assert result.error is not None
    assert result.error.message == "\x1b[31mred\x07"
    assert "\x1b" not in result.error.traceback + repr(result.error)
    with pytest.raises(GuestError) as caught:
        runtime.exec("raise ValueError('\x1b[31mred')")
    assert "\x1b" not in str(caught.value) + caught.value.traceback


def test_syntax_errors_point_at_the_source(runtime: AnyRuntime) -> None:
    """A syntax error has a frame with the offending line."""
    error = runtime.run("x = 1\ny = = 2\n").error
    assert error is not None
    assert error.type_name == "SyntaxError"
    assert error.frames[-1].line == 2
    assert error.frames[-1].source == "y = = 2"


def test_exception_groups_and_classes_keep_their_names(runtime: AnyRuntime) -> None:
    """Members of a group are described, and names are qualified as CPython prints them."""
    error = runtime.run(
        "import json\nraise ExceptionGroup('many', [ValueError(1), json.JSONDecodeError('m','d',0)])"
    ).error
    assert error is not None
    names = [member.type_name for member in error.exceptions]
    assert names == ["ValueError", "json.decoder.JSONDecodeError"]


def test_eval_exec_and_call_raise_guest_errors(runtime: AnyRuntime) -> None:
    """Where a value is expected, a guest exception is raised as GuestError with its data."""
    for act in (
        lambda: runtime.eval("1/0"),
        lambda: runtime.exec("1/0"),
        lambda: runtime.call("divmod", 1, 0),
        lambda: runtime.run("1/0", check=True),
    ):
        with pytest.raises(GuestError) as caught:
            act()
        assert caught.value.type_name == "ZeroDivisionError"
        assert "ZeroDivisionError" in caught.value.traceback


def test_system_exit_is_an_exit_code_and_no_end(runtime: AnyRuntime) -> None:
    """``sys.exit`` ends the run, not the session, and gives the code CPython would give."""
    runtime.exec("kept = 1")
    assert runtime.run("import sys; sys.exit(7)").exit_code == 7
    assert runtime.run("raise SystemExit").exit_code == 0
    message = runtime.run("raise SystemExit('why')")
    assert (message.exit_code, message.stderr) == (1, b"why\n")
    with pytest.raises(CommandFailed, match="exit code 7") as caught:
        runtime.run("sys.exit(7)", check=True)
    assert caught.value.result.exit_code == 7
    assert runtime.get("kept") == 1


def test_errors_of_any_size_are_described_within_bounds(runtime: AnyRuntime) -> None:
    """Huge messages, notes, chains, groups and recursion give a bounded description, quickly."""
    started = time.monotonic()
    error = runtime.run(
        "def f(n):\n    f(n + 1)\n"
        "e = ExceptionGroup('m' * 10**6, [ValueError('x' * 10**6) for _ in range(500)])\n"
        "for _ in range(1000): e.add_note('n' * 10**5)\n"
        "try: f(0)\nexcept RecursionError as r: raise e from r"
    ).error
    assert error is not None
    assert error.type_name == "ExceptionGroup"
    assert error.cause is not None
    assert error.cause.type_name == "RecursionError"
    assert len(error.traceback) < 2_000_000
    assert runtime.run("raise SystemExit(10**5000)").exit_code == -1
    assert time.monotonic() - started < 5


def test_guest_prints_of_tracebacks_show_session_source(runtime: AnyRuntime) -> None:
    """The guest's own traceback module finds the source of runs."""
    result = runtime.run(
        "import traceback\ntry:\n    1/0  # here\nexcept Exception:\n    traceback.print_exc()"
    )
    assert "1/0  # here" in result.stderr_text


# ---- output ----


def test_output_of_python_c_and_children_keeps_its_order(runtime: AnyRuntime) -> None:
    """Lines of print, raw writes, C code and children come in the order they were written."""
    result = runtime.run(
        "import os, subprocess, ctypes\n"
        "print('one')\n"
        "os.write(1, b'two\\n')\n"
        "subprocess.run(['echo', 'three'])\n"
        "ctypes.CDLL(None).puts(b'four')\n"
        "print('five', end='')\n"
    )
    assert result.stdout == b"one\ntwo\nthree\nfour\nfive"
    assert result.stderr == b""


def test_output_without_end_is_bounded(runtime: AnyRuntime) -> None:
    """LM-02: a flood costs the host the limit, keeps head and tail, and counts the rest."""
    with TrustedRuntime(output=100_000) as small:
        small.run("1")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = small.run(
            "import os\nos.write(1, b'HEAD')\n"
            "for _ in range(2000): os.write(1, b'x' * 100_000)\n"
            "os.write(1, b'TAIL'); os.write(2, b'y' * 10)"
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.truncated
    assert result.stdout.startswith(b"HEAD")
    assert result.stdout.endswith(b"TAIL")
    assert len(result.stdout) == 100_000
    assert result.dropped == (200_000_008 - 100_000, 0)
    assert result.stderr == b"y" * 10
    assert grown < 50_000  # KiB


def test_late_output_is_not_taken_for_that_of_the_next_run(runtime: AnyRuntime) -> None:
    """What a left-over child prints after its run is told apart from the next run's output."""
    runtime.run("import subprocess; p = subprocess.Popen(['sh', '-c', 'sleep .2; echo late'])")
    time.sleep(0.6)
    result = runtime.run("print('mine')")
    assert result.late_stdout == b"late\n"
    assert result.stdout == b"mine\n"


def test_output_streams_while_the_run_goes_on(runtime: AnyRuntime) -> None:
    """``on_output`` gets chunks before the run is over, in order, and nothing is lost."""
    chunks: list[tuple[float, str, bytes]] = []
    result = runtime.run(
        "import time, sys\nprint('a', flush=True); time.sleep(.5); print('b', file=sys.stderr)",
        on_output=lambda name, data: chunks.append((time.monotonic(), name, data)),
    )
    assert [(name, data) for _, name, data in chunks] == [("stdout", b"a\n"), ("stderr", b"b\n")]
    assert chunks[1][0] - chunks[0][0] > 0.3
    assert result.stdout == b"a\n"


def test_stdin_is_empty(runtime: AnyRuntime) -> None:
    """SC-10: input() ends at once and never reads the host's terminal."""
    error = runtime.run("input('?')").error
    assert error is not None
    assert error.type_name == "EOFError"


def test_displays_carry_every_format(runtime: AnyRuntime) -> None:
    """``display`` hands over the formats that an object offers."""
    result = runtime.run("class H:\n    def _repr_html_(self): return '<b>x</b>'\ndisplay(H())")
    assert len(result.displays) == 1
    assert result.displays[0]["text/html"] == "<b>x</b>"
    assert "H object" in result.displays[0]["text/plain"]


def test_usage_is_measured_from_outside(runtime: AnyRuntime) -> None:
    """A busy run costs processor time, also in a child; a sleeping one only wall time."""
    busy = runtime.run(
        "import time\nend = time.process_time() + .2\nwhile time.process_time() < end: pass"
    )
    assert busy.usage.cpu_seconds is not None
    assert 0.15 < busy.usage.cpu_seconds < 2
    asleep = runtime.run("time.sleep(.2)")
    assert asleep.usage.cpu_seconds is not None
    assert asleep.usage.cpu_seconds < 0.1
    assert asleep.usage.wall_seconds >= 0.2
    child = runtime.run(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', "
        "'import time\\nwhile time.process_time() < .3: pass'])"
    )
    assert child.usage.cpu_seconds is not None
    assert child.usage.cpu_seconds > 0.2
    large = runtime.run("b = bytearray(b'x') * 100_000_000; del b")
    assert large.usage.peak_memory is not None
    assert large.usage.peak_memory > 100_000_000


def test_a_peak_that_was_seen_is_not_taken_back(runtime: AnyRuntime) -> None:
    """A guest that resets the kernel's record of its memory does not lower what is reported."""
    before = runtime.run("b = bytearray(b'x') * 100_000_000; del b").usage.peak_memory
    assert before is not None
    after = runtime.run(
        "import ctypes\nctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
        "try: print('5', file=open('/proc/self/clear_refs', 'w'))\n"
        "except OSError as failed: answer = failed.errno\n"
        "else: answer = int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])\n"
        "answer"
    )
    if isinstance(runtime, Runtime):  # in a jail there is nothing to take back
        assert after.value == errno.EROFS
    else:
        assert after.value * 1024 < 100_000_000
    assert after.usage.peak_memory is not None
    assert after.usage.peak_memory >= before


@pytest.mark.parametrize("name", ["VmHWM:999999999", "VmHWM: x", "a) Z 1 (", "\nVmHWM:9999999"])
def test_no_name_of_a_process_is_read_as_a_figure(runtime: AnyRuntime, name: str) -> None:
    """What a guest calls its process stands beside the figures of the kernel, and is none."""
    result = runtime.run(f"import ctypes\nctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)")
    assert result.error is None
    comm = runtime.eval("open('/proc/self/comm').read()")
    assert comm == name[:15] + "\n"
    for usage in (result.usage, runtime.run("1").usage):
        assert usage.peak_memory is not None
        assert 1_000_000 < usage.peak_memory < 1_000_000_000
    with pytest.raises(CommandTimeout):
        runtime.run("import time; time.sleep(60)", timeout=0.1)


def test_calls_from_many_threads_take_turns(runtime: AnyRuntime) -> None:
    """Concurrent calls of one runtime do not mix."""
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(runtime.eval(f"{n} * 2")))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [n * 2 for n in range(20)]


def test_results_say_what_enforced_the_policy(runtime: AnyRuntime) -> None:
    """A report never hides that there is no jail; in a jail each canary held."""
    report = runtime.run("1").report
    assert report == runtime.report
    if isinstance(runtime, TrustedRuntime):
        assert not report
        assert (report.jailed, report.enforcement, report.backend) == (False, None, None)
        assert (report.canaries, report.limits) == ((), ())
        assert [clause.mechanisms for clause in report.clauses] == [()]  # of the hook
        assert report.identity == f"host uid {os.geteuid()}, the caller's own"
        assert report.notes[0].startswith("no jail")
    else:
        assert report
        assert report.jailed
        assert report.enforcement == report.backend == "namespaces"
        assert report.canaries
        assert all(canary.held for canary in report.canaries)
        assert any(clause.note == "Python installation" for clause in report.clauses) or (
            sys.base_prefix == "/usr"
        )


def test_a_report_without_a_jail_cannot_claim_enforcement() -> None:
    """No report may name a mechanism or a canary and no back end."""
    held = Clause("egress", ("network namespace",))
    canary = Canary("open /etc/shadow", held=True, errno=2)
    for clauses, canaries in (((held,), ()), ((), (canary,))):
        with pytest.raises(ValueError, match="without a jail"):
            EnforcementReport(backend=None, clauses=clauses, canaries=canaries, identity="")
    nothing = EnforcementReport(backend=None, clauses=(), canaries=(), identity="")
    with pytest.raises(ValueError, match="without a jail"):
        nothing.with_clauses([held])
    assert nothing.to_dict()["jailed"] is False


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("__import__('asyncio').sleep(0, 5)", "coroutine"),
        ("await __import__('asyncio').sleep(0, 5)", 5),
        ("[x async for x in numbers()]", [0, 1]),
        ("'é' # -*- coding: latin-1 -*-", "é"),
        ("'漢字'", "漢字"),
        ("'\\ud800'", "\ud800"),
        ("(lambda: 1).__code__.co_filename", "<run {}>"),
    ],
)
def test_one_line_means_the_same_however_it_is_compiled(
    runtime: AnyRuntime, code: str, value: Any
) -> None:
    """Single expressions take a quicker way through the compiler, with the same outcome."""
    runtime.run("async def numbers():\n    for n in range(2): yield n")
    for number, result in ((2, runtime.run(code).value), (3, runtime.eval(code))):
        if value == "coroutine":
            assert type(result).__name__ == "Handle"
            assert "coroutine" in result.repr
        else:
            assert result == (value.format(number) if isinstance(value, str) else value)


def test_errors_of_one_line_are_those_of_the_builtin_compiler(runtime: AnyRuntime) -> None:
    """A line that is wrong is described as Python describes it, with its place."""
    failure = runtime.run("1 +").error
    assert failure is not None
    assert failure.type_name == "SyntaxError"
    assert failure.message == "invalid syntax"
    assert (failure.frames[-1].file, failure.frames[-1].line) == ("<run 1>", 1)
    null = runtime.run("'\0'").error
    assert null is not None
    assert null.type_name in ("ValueError", "SyntaxError")


def test_start_up_leaves_no_module_of_its_own_making(runtime: AnyRuntime) -> None:
    """What the bootstrap puts in for itself is gone before code of the guest runs."""
    assert runtime.eval("__import__('__future__').division.mandatory[0]") == 3
    assert runtime.eval("__import__('types').MappingProxyType.__name__") == "mappingproxy"


def test_a_handle_names_nothing_in_another_worker() -> None:
    """A handle of an ended worker, or of another runtime, must not name another object."""
    with TrustedRuntime() as first, TrustedRuntime() as second:
        handle = first.run("object()").value
        assert first.call("type", handle).type_name == "type"
        second.run("__import__('threading').Lock()")
        with pytest.raises(GuestError, match="of another worker"):
            second.call("type", handle)
        first.kill()
        first.run("__import__('threading').Lock()")
        with pytest.raises(GuestError, match="of another worker"):
            first.call("type", handle)
        copy = second.fork()
        with copy:
            mine, its = (each.run("object()").value for each in (second, copy))
            assert mine.id != its.id


@pytest.mark.parametrize("policy", [None, "policy", 3])
def test_what_is_no_policy_is_refused_by_name(policy: Any) -> None:
    """Neither a policy nor a jail: a TypeError that says so."""
    with pytest.raises(TypeError, match="a JailPolicy or an open Jail is needed"):
        Runtime(policy)


def test_a_timeout_is_a_number() -> None:
    """Text is refused in words, before anything is sent."""
    with TrustedRuntime() as runtime, pytest.raises(TypeError, match="timeout: expected a number"):
        runtime.run("1", timeout="5")  # type: ignore[arg-type]

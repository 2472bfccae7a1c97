"""The Python worker as its callers see it: runs, values, errors, output, ends and interrupts."""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from visruntime.errors import (
    CommandFailed,
    CommandTimeout,
    GuestError,
    JailClosed,
    ProtocolViolation,
    WorkerDied,
)
from visruntime.policy import JailPolicy
from visruntime.protocol import Handle
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

    AnyRuntime = Runtime | TrustedRuntime


@pytest.fixture(params=["trusted", "jailed"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime | TrustedRuntime]:
    """Return a runtime with the host's interpreter, without and with a jail."""
    running = TrustedRuntime() if request.param == "trusted" else Runtime(JailPolicy())
    with running:
        yield running


def children_of(pid: int) -> set[int]:
    """Return the live children of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


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


# ---- the protocol under attack ----


def test_pw_01_the_guest_owns_fds_0_to_2(runtime: AnyRuntime) -> None:
    """PW-01: prints, raw bytes, children, closed and replaced descriptors disturb nothing."""
    result = runtime.run(
        "import os, subprocess\n"
        "print('text'); os.write(1, b'\\x00\\x01partial')\n"
        "subprocess.run(['echo', 'x'])\n"
        "os.close(1); os.dup2(2, 1); os.close(0)\n"
        "for fd in range(3, 256):\n"
        "    try: os.write(fd, os.urandom(64))\n"
        "    except OSError: pass\n"
        "1+1"
    )
    assert result.value == 2
    assert result.stdout == b"text\n\x00\x01partialx\n"
    assert runtime.run("1+1").value == 2


_ALL_SOCKETS = (
    "import os, stat\n"
    "for fd in sorted(int(f) for f in os.listdir('/proc/self/fd')):\n"
    "    try:\n"
    "        if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode): {act}\n"
    "    except OSError: pass\n"
)


@pytest.mark.parametrize(
    "act",
    [
        "os.write(fd, os.urandom(4096))",
        "os.write(fd, b'\\x01\\x07\\x00\\x00\\x00\\x00\\x00\\x00' + b'\\x02' + bytes(7))",
        "os.write(fd, b'\\x01\\x07\\x00\\x00\\xff\\xff\\xff\\xff' + b'\\x03' + bytes(7) + b'x' * 9999)",
        "os.write(fd, b'\\x01')",
        "os.close(fd)",
    ],
    ids=["garbage", "replayed", "giant", "half", "closed"],
)
def test_a_guest_that_attacks_its_channel_ends_its_worker(runtime: AnyRuntime, act: str) -> None:
    """Forged, replayed, giant, partial frames and a closed channel: an error, never a hang."""
    runtime.exec("kept = 1")
    started = time.monotonic()
    for code in (_ALL_SOCKETS.format(act=act) + "1+1", "1+1"):
        try:
            assert runtime.run(code, timeout=5).value == 2
        except (ProtocolViolation, WorkerDied):
            break
    else:
        pytest.fail("the attack went unnoticed")
    assert time.monotonic() - started < 10
    # The next call has a fresh worker, without the names of the old one.
    assert runtime.run("'kept' in globals()").value is False


def test_a_forged_result_is_a_claim_and_changes_nothing_measured(runtime: AnyRuntime) -> None:
    """A guest may lie about its value through the core itself; usage stays the host's."""
    result = runtime.run(
        "import _viscore as c, time, sys, marshal\n"
        "time.sleep(.2)\n"
        "s = sys.modules['_visguest.session']\n"
        "s.Session.encode_success = lambda self, request, value: c.encode(dict(id=request['id'], "
        "value='lie', error=None, exit_code=None, displays=[], trips={}, usage=0, stopped_by='x'))"
    )
    assert result.value == "lie"
    assert result.usage.wall_seconds >= 0.2
    assert result.stopped_by is None


@pytest.mark.parametrize(
    "reply",
    [
        "7",
        "{}",
        "dict(id=request['id'])",
        "dict(id=request['id']+1, value=1, error=None, exit_code=None, displays=[], trips={})",
        "dict(id=request['id'], value=1, error={'type': 1}, exit_code=None, displays=[], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code='0', displays=[], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code=2**40, displays=[], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code=None, displays=[1], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code=None, displays=[], trips={1: 1})",
        "dict(id=request['id'], value=1, error=DEEP, exit_code=None, displays=[], trips={})",
        "dict(id=request['id'], value=1, error=LONG, exit_code=None, displays=[], trips={})",
    ],
)
def test_replies_of_another_shape_are_violations(runtime: AnyRuntime, reply: str) -> None:
    """A reply that is well encoded but not of the agreed shape ends the worker."""
    with pytest.raises(ProtocolViolation):
        runtime.run(
            "import _viscore as c, sys\n"
            "E = dict(type='E', message='', notes=[], frames=[], errno=None, path=None, cause=None,"
            " context=None, exceptions=[])\n"
            "LONG = E | {'message': 'x' * 10**6}\nDEEP = E\n"
            "for _ in range(40): DEEP = E | {'cause': DEEP}\n"
            "s = sys.modules['_visguest.session']\n"
            f"s.Session.encode_success = lambda self, request, value: c.encode({reply})"
        )
    assert runtime.eval("1+1") == 2


# ---- the end of a worker ----


@pytest.mark.parametrize(
    ("code", "exit_code", "signal_number"),
    [
        ("import os; print('last', flush=True); os._exit(9)", 9, None),
        ("import os; print('last', flush=True); os.abort()", None, signal.SIGABRT),
        ("import os; print('last', flush=True); os.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("import ctypes; print('last', flush=True); ctypes.string_at(0)", None, signal.SIGSEGV),
    ],
)
def test_pw_03_a_worker_that_ends_is_told_at_once(
    runtime: AnyRuntime, code: str, exit_code: int | None, signal_number: int | None
) -> None:
    """PW-03: the end is an error with the measured status and the output so far; then a new start."""
    started = time.monotonic()
    with pytest.raises(WorkerDied) as caught:
        runtime.run(code)
    assert time.monotonic() - started < 2
    assert caught.value.exit_code == exit_code
    assert caught.value.signal == signal_number
    assert caught.value.result.stdout == b"last\n"
    assert caught.value.result.session_lost
    assert runtime.eval("1+1") == 2


def test_a_forked_child_that_falls_out_of_the_run_does_not_answer(runtime: AnyRuntime) -> None:
    """A child of os.fork that reaches the end of the code ends; only the worker replies."""
    result = runtime.run(
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n'parent' if pid else 'child'"
    )
    assert result.value == "parent"
    assert runtime.eval("1+1") == 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_inside(runtime: AnyRuntime, method: str) -> None:
    """Pools of every start method work in a session."""
    result = runtime.run(
        "import multiprocessing, operator\n"
        f"with multiprocessing.get_context('{method}').Pool(1) as pool:\n"
        "    value = pool.apply(operator.add, (20, 22))\n"
        "value",
        timeout=30,
    )
    assert result.error is None, result.error.traceback
    assert result.value == 42


def test_close_leaves_no_process_and_no_descriptor() -> None:
    """After close the worker and what it started are gone, and so are the host's descriptors."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    known = children_of(os.getpid())
    runtime = TrustedRuntime()
    runtime.run("import subprocess; p = subprocess.Popen(['sleep', '73'])")
    (worker,) = children_of(os.getpid()) - known
    (sleeper,) = children_of(worker)
    runtime.close()
    assert not Path(f"/proc/{worker}").exists()
    deadline = time.monotonic() + 1
    while Path(f"/proc/{sleeper}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{sleeper}").exists() or "Z" in Path(f"/proc/{sleeper}/stat").read_text()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(JailClosed):
        runtime.run("1")
    runtime.close()


def test_a_forked_child_of_the_host_leaves_the_worker_alone(runtime: AnyRuntime) -> None:
    """A child of the host can neither use nor end the runtime of its parent."""
    runtime.exec("kept = 1")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            runtime.run("1")
        except JailClosed:
            os.write(writer, b"refused")
        runtime.close()
        runtime.__del__()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"refused"
    os.close(reader)
    os.close(writer)
    assert runtime.get("kept") == 1


def test_a_runtime_that_is_dropped_ends_its_worker() -> None:
    """Without close the worker ends with the object."""
    before = children_of(os.getpid())
    runtime = TrustedRuntime()
    runtime.run("1")
    (worker,) = children_of(os.getpid()) - before
    del runtime
    assert not Path(f"/proc/{worker}").exists()


def test_workers_inherit_no_descriptor_of_the_host(tmp_path: Path) -> None:
    """FD-01: an inheritable descriptor of the host is not open in the worker."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        with TrustedRuntime() as runtime:
            links = runtime.run(
                "import os\n[os.readlink(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd') "
                "if os.path.exists(f'/proc/self/fd/{f}')]"
            ).value
    finally:
        os.close(descriptor)
    assert str(secret) not in links


# ---- time limits and interrupts ----


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "while True:\n    try: 1/0\n    except BaseException: pass",
        "sum(range(10**12))",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(99)",
    ],
    ids=["loop", "swallow", "c-loop", "regex", "masked"],
)
def test_pw_02_time_limits_are_real(runtime: AnyRuntime, code: str) -> None:
    """PW-02: whatever the code does, the call returns, nothing burns on, the next call works."""
    runtime.run("1")
    started = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        runtime.run("print('so far', flush=True)\n" + code, timeout=1)
    assert time.monotonic() - started < 3
    assert caught.value.result.stopped_by == "timeout"
    assert caught.value.result.stdout == b"so far\n"
    assert runtime.eval("1+1") == 2
    assert runtime.run("import time; time.sleep(.3)").usage.cpu_seconds < 0.2  # type: ignore[operator]


_INTERRUPTIBLE = {
    "sleep": "import time; time.sleep(60)",
    "recv": "import socket; a, b = socket.socketpair(); a.recv(1)",
    "read": "import os; r, w = os.pipe(); os.read(r, 1)",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "join": "import threading, time; t = threading.Thread(target=time.sleep, args=(3,), daemon=True)\n"
    "t.start(); t.join()",
    "queue": "import queue; queue.Queue().get()",
    "select": "import select; select.select([], [], [])",
    "child": "import subprocess; subprocess.run(['sleep', '5'])",
    "regex": "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "bigint": "x = 3 ** (10 ** 9)",
    "loop": "while True: pass",
    "ignored": "import signal, time\nfor s in range(34, 65):\n"
    "    try: signal.signal(s, signal.SIG_IGN)\n"
    "    except OSError: pass\ntime.sleep(60)",
    "await": "import asyncio\nawait asyncio.sleep(60)",
    "repr": "class Slow:\n    def __repr__(self):\n        while True: pass\nSlow()",
}


@pytest.mark.parametrize("code", _INTERRUPTIBLE.values(), ids=_INTERRUPTIBLE.keys())
def test_interrupts_keep_the_session(runtime: AnyRuntime, code: str) -> None:
    """A soft interrupt ends waits, C code and loops within the grace; names stay bound."""
    runtime.exec("kept = 41")
    started = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        runtime.run(code, timeout=0.3)
    assert time.monotonic() - started < 1.2
    result = caught.value.result
    assert not result.session_lost
    assert result.error.interrupted
    assert result.error.type_name == "visruntime.VisInterrupt"
    assert runtime.eval("kept + 1") == 42


def test_the_time_from_interrupt_to_effect_is_short(runtime: AnyRuntime) -> None:
    """Half of all interrupts of a sleep take effect within 50 ms."""
    delays = []
    for _ in range(9):
        started = time.monotonic()
        with pytest.raises(CommandTimeout):
            runtime.run("import time; time.sleep(60)", timeout=0.1)
        delays.append(time.monotonic() - started - 0.1)
    assert sorted(delays)[4] < 0.05


def test_interrupt_from_another_thread(runtime: AnyRuntime) -> None:
    """``interrupt()`` ends the run under way as data, and does nothing between runs."""
    runtime.run("1")
    runtime.interrupt()
    assert runtime.eval("1+1") == 2
    timer = threading.Timer(0.3, runtime.interrupt)
    timer.start()
    result = runtime.run("import time; time.sleep(60)", timeout=10)
    timer.join()
    assert result.error is not None
    assert result.error.interrupted
    assert result.stopped_by is None
    assert result.usage.wall_seconds < 5


def test_a_time_limit_may_be_shorter_than_the_way_to_the_guest(runtime: AnyRuntime) -> None:
    """An interrupt that arrives before its run has begun is obeyed once it has."""
    runtime.exec("kept = 1")
    for _ in range(5):
        with pytest.raises(CommandTimeout) as caught:
            runtime.run("while True: pass", timeout=1e-9)
        assert not caught.value.result.session_lost
    assert runtime.get("kept") == 1


def test_guest_can_clean_up_when_interrupted(runtime: AnyRuntime) -> None:
    """``finally`` runs, and ``except Exception`` does not swallow the interrupt."""
    with pytest.raises(CommandTimeout) as caught:
        runtime.run(
            "import time\ntry:\n    time.sleep(60)\nexcept Exception:\n    print('no')\n"
            "finally:\n    print('cleaned')",
            timeout=0.2,
        )
    assert caught.value.result.stdout == b"cleaned\n"


def test_stacks_are_shown_while_c_code_runs(runtime: AnyRuntime) -> None:
    """``stacks`` answers though the interpreter's lock is held."""
    runtime.run("1")
    texts: list[str] = []
    timer = threading.Timer(0.4, lambda: texts.append(runtime.stacks()))
    timer.start()
    with pytest.raises(CommandTimeout):
        runtime.run("def deep():\n    sum(range(10**12))\ndeep()", timeout=1)
    timer.join()
    assert "in deep" in texts[0]
    assert "in <module>" in texts[0]


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
    """Without a jail the report is None, in a jail it is that of the jail, each canary held."""
    report = runtime.run("1").report
    if isinstance(runtime, TrustedRuntime):
        assert report is None
    else:
        assert report.canaries
        assert all(canary.held for canary in report.canaries)
        assert any(clause.note == "Python installation" for clause in report.clauses) or (
            sys.base_prefix == "/usr"
        )


def test_a_trusted_worker_ends_with_its_host() -> None:
    """``kill -9`` of the host leaves no worker, even one that is busy in C code."""
    code = (
        "import threading, time\n"
        "from visruntime.runtime import TrustedRuntime\n"
        "rt = TrustedRuntime()\n"
        "print(rt.eval('__import__(\"os\").getpid()'), flush=True)\n"
        "rt.run('sum(range(10**12))')\n"
    )
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    worker = int(host.stdout.readline())
    time.sleep(0.3)
    assert Path(f"/proc/{worker}").exists()
    host.kill()
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + 2
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text()

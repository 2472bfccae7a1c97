"""Functions of the host that guests call."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

from visruntime import Timeouts
from visruntime._callbacks.stack import stack_of
from visruntime.errors import CommandTimeout, GuestError, ProtocolViolation, WorkerDied
from visruntime.protocol import BUFFER, INPUT
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


def test_values_cross_in_both_directions(runtime: AnyRuntime) -> None:
    """Arguments, keywords and the result are equal on both sides."""
    seen: list[Any] = []

    def lookup(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return {"found": (1, 2.5, b"x", None)}

    runtime.expose("lookup", lookup)
    value = runtime.eval("lookup([1, {2}], key='ü')")
    assert value == {"found": (1, 2.5, b"x", None)}
    assert seen == [(([1, {2}],), {"key": "ü"})]


def test_exposing_works_before_and_during_a_session_and_survives_a_new_worker(
    runtime: AnyRuntime,
) -> None:
    """Names are there in the live worker, after a reset, and in the worker after this one."""
    runtime.expose("early", lambda: 1)
    assert runtime.eval("early()") == 1
    runtime.expose("late", lambda: 2)
    assert runtime.eval("late()") == 2
    runtime.reset()
    assert runtime.eval("early() + late()") == 3
    with pytest.raises(CommandTimeout):
        runtime.run("sum(range(10**12))", timeout=0.2)
    assert runtime.eval("early() + late()") == 3


def test_exposing_loses_no_late_output(runtime: AnyRuntime) -> None:
    """What a child writes between runs is late output, though a name was exposed meanwhile."""
    runtime.run("import subprocess; p = subprocess.Popen(['sh', '-c', 'sleep .2; echo late'])")
    time.sleep(0.6)
    runtime.expose("f", lambda: 1)
    result = runtime.run("f()")
    assert (result.late_stdout, result.stdout) == (b"late\n", b"")


def test_a_worker_that_died_between_runs_is_replaced(runtime: AnyRuntime) -> None:
    """Exposing to a dead worker is an error that says so; the next call starts anew."""
    runtime.run("import os, threading; threading.Timer(.1, os._exit, [5]).start()")
    time.sleep(0.5)
    with pytest.raises(WorkerDied) as caught:
        runtime.expose("f", lambda: 1)
    assert caught.value.exit_code == 5
    assert runtime.eval("f()") == 1


def test_exceptions_cross_as_type_and_message(runtime: AnyRuntime) -> None:
    """The guest can catch the builtin type, and sees no traceback of the host."""

    class OwnError(Exception):
        pass

    def fail(kind: str) -> None:
        raise {"key": KeyError("k"), "own": OwnError("mine"), "os": OSError(2, "gone")}[kind]

    runtime.expose("fail", fail)
    assert runtime.run("try: fail('key')\nexcept KeyError as e: r = repr(e)\nr").value == (
        "KeyError('k')"
    )
    error = runtime.run("fail('own')").error
    assert error is not None
    assert (error.type_name, error.message) == ("visruntime.HostError", "OwnError: mine")
    assert all("test_callbacks" not in frame.file for frame in error.frames)
    assert (
        runtime.run("try: fail('os')\nexcept OSError as e: r = str(e)\nr").value == "[Errno 2] gone"
    )


def test_values_that_cannot_cross_are_errors_of_the_call(runtime: AnyRuntime) -> None:
    """A result that is no data raises TypeError in the guest; the worker lives on."""
    runtime.expose("give", object)
    error = runtime.run("give()").error
    assert error is not None
    assert error.type_name.endswith("TypeError")
    assert runtime.eval("1") == 1


def test_async_functions_run_to_their_end(runtime: AnyRuntime) -> None:
    """An async function works, also when the calling thread is inside an event loop."""

    async def later(n: int) -> int:
        await asyncio.sleep(0.01)
        return n + 1

    runtime.expose("later", later)
    assert runtime.eval("later(1)") == 2

    async def inside() -> Any:
        return runtime.eval("later(2)")

    assert asyncio.run(inside()) == 3


def test_a_callback_cannot_use_the_runtime_that_calls_it(runtime: AnyRuntime) -> None:
    """Re-entering is an error with a reason, not a deadlock; another runtime may be used."""
    runtime.expose("again", lambda: runtime.run("1"))

    async def again() -> Any:
        return runtime.run("1")

    runtime.expose("again_async", again)
    runtime.expose("closing", runtime.close)
    for name in ("again", "again_async", "closing"):
        error = runtime.run(f"{name}()", timeout=5).error
        assert error is not None
        assert error.type_name.endswith("RuntimeError")
        assert "calling it" in error.message or "calls it" in error.message
    with TrustedRuntime() as other:
        runtime.expose("elsewhere", lambda: other.eval("6*7"))
        assert runtime.eval("elsewhere()") == 42


def test_threads_of_the_guest_may_call(runtime: AnyRuntime) -> None:
    """Calls of several guest threads are answered, each with its own reply."""
    runtime.expose("double", lambda n: n * 2)
    value = runtime.run(
        "import threading\nout = []\n"
        "ts = [threading.Thread(target=lambda n=n: out.append(double(n))) for n in range(20)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\nsorted(out)"
    ).value
    assert value == [n * 2 for n in range(20)]


def test_calls_outside_a_run_are_refused_in_the_guest(runtime: AnyRuntime) -> None:
    """A thread that outlives its run cannot call the host between runs."""
    called: list[int] = []
    runtime.expose("ping", lambda: called.append(1))
    runtime.run(
        "import threading, time\nerrors = []\n"
        "def later():\n    time.sleep(.2)\n    try: ping()\n"
        "    except RuntimeError as e: errors.append(str(e))\n"
        "t = threading.Thread(target=later); t.start()"
    )
    time.sleep(0.5)
    assert runtime.run("t.join(); errors").value == ["the host can be reached only during a run"]
    assert called == []


def test_a_forked_child_cannot_call(runtime: AnyRuntime) -> None:
    """Only the worker itself talks to the host; its child gets an error."""
    runtime.expose("ping", lambda: "pong")
    result = runtime.run(
        "import os\nr, w = os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n    try: ping(); os.write(w, b'called')\n"
        "    except RuntimeError as e: os.write(w, str(e).encode())\n    os._exit(0)\n"
        "os.waitpid(pid, 0); (os.read(r, 200), ping())"
    )
    assert result.value == (b"only the worker itself talks to the host, not a child of it", "pong")


def test_an_interrupted_call_does_not_confuse_the_next(runtime: AnyRuntime) -> None:
    """The reply to a call that an interrupt broke off is dropped, not taken for another's."""
    slow = threading.Event()

    def wait(n: int) -> int:
        slow.wait(0.3 * (n == 0))
        return n

    runtime.expose("wait", wait)
    with pytest.raises(CommandTimeout):
        runtime.run("while True: wait(0)", timeout=0.1)
    assert runtime.eval("[wait(n) for n in range(1, 4)]") == [1, 2, 3]


@pytest.mark.parametrize(
    "call",
    [
        "1",
        "{}",
        "dict(id='x', name='f', args=[], kwargs={})",
        "dict(id=1, name='f', args=[], kwargs={1: 2})",
    ],
)
def test_malformed_calls_end_the_worker(runtime: AnyRuntime, call: str) -> None:
    """A CALLBACK frame of another shape is a violation of the protocol."""
    runtime.expose("f", lambda: 1)
    with pytest.raises(ProtocolViolation):
        runtime.run(f"import _viscore as c\nc.send(4, c.encode({call}))\nc.receive()")
    assert runtime.eval("f()") == 1


def test_a_guest_that_does_not_read_replies_cannot_hold_the_host(runtime: AnyRuntime) -> None:
    """Calls whose replies are never read end the worker, whatever the guest goes on doing."""
    runtime.expose("f", lambda: b"x" * 60_000)
    started = time.monotonic()
    with pytest.raises((ProtocolViolation, CommandTimeout)):
        runtime.run(
            "import _viscore as c\n"
            "while True: c.send(4, c.encode(dict(id=1, name='f', args=[], kwargs={})))",
            timeout=1,
        )
    assert time.monotonic() - started < 15
    assert runtime.eval("1") == 1


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError


def test_an_error_of_any_size_crosses_and_the_run_goes_on(runtime: AnyRuntime) -> None:
    """A host function whose message repeats what the guest sent does not make ``run`` raise."""

    def fail(kind: str) -> None:
        problem: Exception = ValueError("m\udc80")
        if kind == "name":
            problem = type("E" * 10**6, (Exception,), {})("m")
        elif kind == "message":
            problem = _Unspeakable()
        raise problem

    runtime.expose("price", {"tea": 3}.__getitem__)
    runtime.expose("fail", fail)
    code = (
        "def attempt(f, *a):\n    try: return f(*a)\n"
        "    except Exception as e: return (e.type_name, len(str(e)), str(e)[:60])\n"
        "[attempt(price, 'tea'), attempt(price, '\\x01' * (30 << 20)), attempt(fail, 'name'),"
        " attempt(fail, 'message'), attempt(fail, 'surrogate')]"
    )
    tea, key, name, message, surrogate = runtime.run(code, timeout=30).value
    assert tea == 3
    assert key[0] == "KeyError"
    assert 4 * 16_384 < key[1] < 66_000  # str() of a KeyError is a repr of the key
    assert name[0] == "E" * 500
    assert message[2].endswith("<str() raised LookupError>")
    assert surrogate == ("ValueError", 2, "m\udc80")


def test_unknown_names_are_refused(runtime: AnyRuntime) -> None:
    """A guest that makes up a name gets NameError; nothing of the host is called."""
    error = runtime.run(
        "import _viscore, sys\nsys.modules['_visguest.session'].HostFunction("
        "'system', display.__self__.call_host)('id')"
    ).error
    assert error is not None
    assert "exposes no function 'system'" in error.message


def test_names_and_functions_are_checked(runtime: AnyRuntime) -> None:
    """Something that the guest could not call is refused when it is exposed."""
    with pytest.raises(ValueError, match="not a Python name"):
        runtime.expose("a b", print)
    with pytest.raises(TypeError, match="not callable"):
        runtime.expose("a", 1)  # type: ignore[arg-type]


def test_calls_of_an_earlier_run_are_not_those_of_one_that_was_not_sent(
    runtime: AnyRuntime,
) -> None:
    """A run whose request the worker never read has called nothing, whatever the last one did."""
    runtime.expose("f", lambda: 1)
    first = runtime.run(
        "import os, signal, threading\nf(); f()\n"
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()"
    )
    assert first.host_calls.calls == 2
    time.sleep(0.5)
    with pytest.raises(CommandTimeout) as caught:
        runtime.run("f()", inputs={"x": bytes(8_000_000)}, timeout=0.3)
    assert caught.value.result is not None
    assert caught.value.result.host_calls.calls == 0


ASKS_ASIDE = """
session = display.__self__
def ask(self, request):
    self.running = self.asks = True
    {}
type(session).expose = type(session).clear = ask
"""


ASKING = [
    "self.call_host('f', (), {})",
    "display(1)",
    f"self.ask_host({INPUT}, {{'prompt': '', 'password': False}})",
    f"self.ask_host({BUFFER}, {{'size': 99999, 'copied': False}})",
]


@pytest.mark.parametrize("verb", ["expose", "reset"])
@pytest.mark.parametrize("asking", ASKING)
def test_what_is_asked_between_runs_breaks_the_protocol(verb: str, asking: str) -> None:
    """No result would count such a call, so that nothing is called and the worker is ended."""
    called: list[int] = []
    with TrustedRuntime() as runtime:
        runtime.expose("f", lambda: called.append(1))
        assert runtime.run(ASKS_ASIDE.format(asking)).error is None
        with pytest.raises(ProtocolViolation, match="asks nothing"):
            runtime.reset() if verb == "reset" else runtime.expose("g", lambda: 1)
        assert called == []
        runtime.run("f()")
        assert called == [1]


def test_a_finaliser_that_calls_the_host_does_not_break_a_reset(runtime: AnyRuntime) -> None:
    """An honest worker refuses such a call itself, and the session is empty afterwards."""
    called: list[int] = []
    runtime.expose("f", lambda: called.append(1))
    runtime.run("class A:\n    def __del__(self, f=f): f()\na = A()")
    pid = runtime.eval("__import__('os').getpid()")
    runtime.reset()
    assert called == []
    assert runtime.eval("'a' in globals(), __import__('os').getpid()") == (False, pid)


def test_a_worker_that_cannot_take_a_function_is_an_error(runtime: AnyRuntime) -> None:
    """The host must not believe that a function is exposed when the worker says that it is not."""
    runtime.exec(
        "import sys\n"
        "class Odd(dict):\n"
        "    def __setitem__(self, name, value):\n"
        "        if name == 'tools': raise ValueError('not here')\n"
        "        super().__setitem__(name, value)\n"
        "sys.modules = Odd(sys.modules)"
    )
    with pytest.raises(GuestError, match="not here"):
        runtime.expose("tools.add", lambda a: a + 1)
    # That worker is gone, and the next one has the function.
    assert runtime.eval("__import__('tools').add(1)") == 2


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("callback", [None, 5.0])
def test_what_is_to_end_the_host_does_not_reach_the_guest(
    runtime: AnyRuntime, raised: BaseException, callback: float | None
) -> None:
    """A function that wants the host to end comes out of ``run``; no guest can catch that."""

    def leave() -> None:
        raise raised

    runtime.expose("leave", leave)
    runtime.set_timeouts(None if callback is None else Timeouts(callback=callback))
    with pytest.raises(type(raised)) as caught:
        runtime.run("try: leave()\nexcept BaseException: kept = 1")
    assert caught.value is raised
    # The worker went with it, and the next call has a fresh one.
    assert runtime.run("'kept' in globals()").value is False


def test_the_stack_of_another_thread_names_its_calls() -> None:
    """The newest call comes last; a thread that has ended has none."""
    begun, release = threading.Event(), threading.Event()

    def innermost() -> None:
        begun.set()
        release.wait(30)

    thread = threading.Thread(target=innermost)
    thread.start()
    begun.wait(30)
    text = stack_of(thread.ident or 0)
    release.set()
    thread.join()
    line = innermost.__code__.co_firstlineno + 2
    assert f'  File "{__file__}", line {line}, in innermost\n  File ' in text
    assert text.index("in run") < text.index("in innermost") < text.index("in wait")
    assert "test_the_stack_of_another" not in text
    assert stack_of(thread.ident or 0) == ""


def test_the_stack_of_a_host_function_opens_no_source(tmp_path: Path) -> None:
    """A guest that put a FIFO in the place of a function's file does not hold up the host."""
    file = tmp_path / "functions.py"
    file.write_text("def wait():\n    begun.set()\n    release.wait(30)\n")
    begun, release = threading.Event(), threading.Event()
    names: dict[str, Any] = {"begun": begun, "release": release}
    exec(compile(file.read_text(), str(file), "exec"), names)
    texts: list[str] = []
    thread = threading.Thread(target=names["wait"])
    thread.start()
    begun.wait(30)
    file.unlink()
    os.mkfifo(file)
    looks = threading.Thread(target=lambda: texts.append(stack_of(thread.ident or 0)), daemon=True)
    looks.start()
    looks.join(10)
    stuck = looks.is_alive()
    if stuck:  # let it go on: somebody opens the other end, and says nothing
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
    release.set()
    thread.join()
    assert not stuck
    assert f'  File "{file}", line 3, in wait\n' in texts[0]

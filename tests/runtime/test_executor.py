"""JailExecutor: what crosses, what comes back, and how tasks, workers and the executor end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import operator
import os
import subprocess
import sys
import threading
import time
import venv
import weakref
from concurrent.futures import BrokenExecutor, CancelledError
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
import pytest
from jail_helpers import until
from runtime_helpers import WORKER_PYTHONS, children_of, not_granted

from visruntime import (
    CommandTimeout,
    GuestError,
    JailExecutor,
    JailExecutorBroken,
    JailPolicy,
    ProtocolViolation,
    Timeouts,
    TrustedRuntime,
    WorkerDied,
    pool,
)
from visruntime._worker import conversation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from visruntime.pool import AnyRuntime

pytestmark = pytest.mark.one_uid


@pytest.fixture
def executor() -> Iterator[JailExecutor]:
    """Return an executor of one jailed worker."""
    with JailExecutor(JailPolicy(), 1) as running:
        yield running


class Scale:
    """Something with a method, made on the host."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def apply(self, value: int) -> int:
        """Multiply."""
        return self.factor * value


def test_functions_cross_whatever_they_are(executor: JailExecutor) -> None:
    """Lambdas, closures, bound methods, builtins and coroutine functions all run in the worker."""
    offset = 10

    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    # This module is not there in the jail, so it has to cross as code.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        assert executor.submit(lambda value: value + offset, 1).result() == 11
        assert executor.submit(Scale(3).apply, 5).result() == 15
        assert executor.submit(later, 1).result() == 2
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert executor.submit(divmod, 7, 2).result() == (3, 1)
    assert executor.submit(dict, a=1).result() == {"a": 1}


def test_a_task_is_in_a_jail(executor: JailExecutor) -> None:
    """A task must not read what the policy does not grant; outside, the same function does."""
    path = not_granted()

    def read(name: str) -> int:
        with open(name, "rb") as file:
            return len(file.read())

    assert read(path) > 0
    with JailExecutor(TrustedRuntime, 1) as outside:
        assert outside.submit(read, path).result() == read(path)
    with pytest.raises((FileNotFoundError, PermissionError)) as caught:
        executor.submit(read, path).result()
    assert caught.value.errno in {2, 13}


def test_text_names_a_function_of_the_worker() -> None:
    """A name of the session or of a module is called with data."""

    def prepare(runtime: AnyRuntime) -> None:
        runtime.exec("def twice(value, *, add=0):\n    return 2 * value + add")

    with JailExecutor(JailPolicy(), 1, prepare=prepare) as executor:
        assert executor.submit("twice", 4, add=1).result() == 9
        assert executor.submit("os.path:join", "a", "b").result() == "a/b"
        assert list(executor.map("twice", range(5), chunksize=2)) == [0, 2, 4, 6, 8]
        with pytest.raises(NameError, match="missing"):
            executor.submit("missing").result()
        with pytest.raises(TypeError, match="expected a function or a name"):
            executor.submit(5).result()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        ("ValueError('no')", ValueError, "no"),
        ("FileNotFoundError(2, 'gone', '/x')", FileNotFoundError, "gone"),
        ("KeyError('k')", KeyError, "k"),
        ("RecursionError", RecursionError, ""),
        ("Own('mine')", GuestError, "Own: mine"),
        ("StopIteration(1)", GuestError, "StopIteration: 1"),
        ("SystemExit(3)", GuestError, "SystemExit: 3"),
        ("KeyboardInterrupt", GuestError, "KeyboardInterrupt"),
        ("UnicodeDecodeError('x', b'', 0, 1, 'bad')", GuestError, "UnicodeDecodeError"),
        ("ExceptionGroup('all', [ValueError()])", GuestError, "ExceptionGroup"),
    ],
)
def test_exceptions(executor: JailExecutor, source: str, kind: type, text: str) -> None:
    """Builtin ones are of their type with the guest's as the cause; no other type is made."""
    future = executor.submit("builtins:exec", f"class Own(ValueError): pass\nraise {source}")
    problem = future.exception()
    assert problem is not None
    assert type(problem) is kind
    assert text in str(problem)
    error = problem if isinstance(problem, GuestError) else problem.__cause__
    assert isinstance(error, GuestError)
    assert error.type_name.rpartition(".")[2] in error.traceback
    if isinstance(problem, OSError):
        assert problem.errno == 2


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("PermissionError(2, 'x')", FileNotFoundError),
        ("FileNotFoundError(13, 'x')", PermissionError),
        ("OSError(28, 'x')", OSError),
        ("PermissionError(5, 'x')", OSError),
        ("TimeoutError('x')", TimeoutError),
    ],
)
def test_the_number_of_an_error_decides_its_class(
    executor: JailExecutor, raised: str, kind: type
) -> None:
    """Whoever catches FileNotFoundError must not miss an ENOENT for the name a guest gave it."""
    problem = executor.submit("builtins:exec", f"raise {raised}").exception()
    assert type(problem) is kind
    assert isinstance(problem, OSError)
    assert isinstance(problem.__cause__, GuestError)


def test_the_cause_knows_the_lines_of_the_function(executor: JailExecutor) -> None:
    """Whoever debugs sees where in the function it happened."""

    def outer() -> int:
        raise LookupError("deep")

    problem = executor.submit(lambda: [outer()]).exception()
    assert isinstance(problem, LookupError)
    assert isinstance(problem.__cause__, GuestError)
    frames = problem.__cause__.frames
    names = [frame.function.rpartition(".")[2] for frame in frames]
    assert names[-2:] == ["<lambda>", "outer"]
    assert frames[-1].line == outer.__code__.co_firstlineno + 1


def test_results_are_data(executor: JailExecutor) -> None:
    """Nothing of a result is unpickled or made on the host: other objects are an error there."""

    def sneaky() -> object:
        class Sneaky:
            def __reduce__(self) -> tuple[Any, ...]:
                return os.abort, ()

        return [1, Sneaky()]

    def pickled() -> bytes:
        import pickle

        return pickle.dumps({"a": 1})

    with pytest.raises(TypeError, match="does not cross as data"):
        executor.submit(sneaky).result()
    assert type(executor.submit(pickled).result()) is bytes
    assert executor.submit(eval, "{1: (2, {3})}").result() == {1: (2, {3})}


def test_what_cannot_be_pickled_fails_its_own_future(executor: JailExecutor) -> None:
    """An argument that cannot cross harms no other task."""
    with pytest.raises(TypeError, match="lock"):
        executor.submit(len, threading.Lock()).result()
    assert executor.submit(len, "abc").result() == 3


@pytest.mark.parametrize("forged", ["[]", "[1, 2]", "1", "{0: 1}"])
def test_forged_results_end_the_worker(forged: str) -> None:
    """A guest that replies with another number of results, or none, harms nobody but itself."""
    code = f"import sys; sys.modules['_visguest.functions'].apply = lambda *_: {forged}"
    with JailExecutor(JailPolicy(), 1) as executor:
        assert list(executor.map(eval, ["1"])) == [1]
        assert executor.submit("builtins:exec", code).result() is None
        with pytest.raises(ProtocolViolation, match="something else than its results"):
            executor.submit(abs, -1).result()
        assert executor.submit(abs, -1).result() == 1


@pytest.mark.parametrize("forged", ["Handle(5, 'a', 'b')", "Repr('a', 'b')"])
def test_a_result_that_stands_for_an_object_ends_the_worker(forged: str) -> None:
    """Results are data: what a hostile worker sends in place of an object gets nobody a handle."""
    code = (
        "import sys; sys.modules['_visguest.functions'].apply = "
        f"lambda *_, values=sys.modules['_visguest.values']: [{{1: values.{forged}}}]"
    )
    with JailExecutor(JailPolicy(), 1) as executor:
        assert executor.submit("builtins:exec", code).result() is None
        with pytest.raises(ProtocolViolation, match="its type does not allow"):
            executor.submit(abs, -1).result()
        assert executor.submit(abs, -1).result() == 1


def test_arrays_cross(executor: JailExecutor) -> None:
    """An array that a task returns is one on the host, too."""
    numpy = pytest.importorskip("numpy")
    found = executor.submit(lambda array: array * 2, numpy.arange(5)).result()
    assert (type(found), found.tolist()) == (numpy.ndarray, [0, 2, 4, 6, 8])


def test_map_keeps_no_result() -> None:
    """A result that was yielded is not held by the iterator."""
    with JailExecutor(TrustedRuntime, 1) as executor:
        for found in executor.map(eval, ["{1, 2}"] * 4, chunksize=2):
            reference = weakref.ref(found)
            del found
            gc.collect()
            assert reference() is None


def test_map_reads_ahead_as_far_as_the_buffer() -> None:
    """No item is taken from an endless iterable before there is room for it."""
    taken = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    with JailExecutor(TrustedRuntime, 2) as executor:
        found = executor.map(abs, endless(), chunksize=2, buffersize=3)
        assert len(taken) == 6
        assert [next(found) for _ in range(4)] == [0, 1, 2, 3]
        assert len(taken) == 10
        found.close()  # type: ignore[attr-defined]
        for wrong, kind in (({"buffersize": 0}, ValueError), ({"buffersize": 1.5}, TypeError)):
            with pytest.raises(kind, match="buffersize"):
                executor.map(abs, [1], **wrong)


def test_a_worker_that_ends_costs_one_task(executor: JailExecutor) -> None:
    """The task raises WorkerDied; the executor goes on with a fresh worker."""
    with pytest.raises(WorkerDied):
        executor.submit(os._exit, 3).result()
    assert executor.submit(abs, -1).result() == 1


def test_workers_that_end_at_rest_do_not_hold_up_the_next_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task must not be able to stop all later ones by having its worker end when nobody looks."""
    monkeypatch.setattr(pool, "_LINGER_SECONDS", 0.05)
    code = "import os, threading\nthreading.Timer(0.3, os._exit, [1]).start()"
    with JailExecutor(JailPolicy(), 1, timeout=5) as running:
        running.submit("builtins:exec", code).result(timeout=20)
        member = running._pool._idle[0]
        assert until(lambda: not member.lives() and running._pool._tender is None)
        assert running.submit(abs, -1).result(timeout=20) == 1


def test_time_limits() -> None:
    """A task over its limit raises CommandTimeout, and the next one runs."""
    with JailExecutor(JailPolicy(), 1, timeout=0.2) as executor:
        start = time.monotonic()
        with pytest.raises(CommandTimeout):
            executor.submit(time.sleep, 30).result()
        assert time.monotonic() - start < 10
        assert executor.schedule(time.sleep, (0.4,), timeout=20).result() is None
        with pytest.raises(CommandTimeout):
            executor.schedule("time:sleep", (30,), timeout=0.1).result()
        leaves = (
            "try:\n import time; time.sleep(30)\nexcept BaseException:\n import os; os._exit(0)"
        )
        with pytest.raises(CommandTimeout):  # whatever it does about it
            executor.schedule("builtins:exec", (leaves,), timeout=0.1).result()
        with pytest.raises(ValueError, match="timeout"):
            executor.schedule(abs, (1,), timeout=-1)
        assert executor.submit(abs, -1).result() == 1


MARK = "sys.__dict__.__setitem__('mark', getattr(sys, 'mark', -1) + 1) or sys.mark"


@pytest.mark.parametrize(("limit", "marks"), [(None, [0, 1, 2]), (1, [0, 0, 0]), (2, [0, 1, 0])])
def test_max_tasks_per_child(limit: int | None, marks: list[int]) -> None:
    """A worker is replaced after so many tasks, and not before."""
    with JailExecutor(TrustedRuntime, 1, max_tasks_per_child=limit, min_idle=1) as executor:
        found = []
        for _ in range(3):
            found.append(executor.submit(eval, MARK, {"sys": sys}).result())
            executor._pool.wait_ready(30)  # with the spare one, which is not the next to work
        assert found == marks


@pytest.mark.parametrize("how", ["terminate_workers", "kill_workers"])
def test_workers_can_be_ended(how: str) -> None:
    """Running tasks raise, waiting ones are cancelled, and nothing is left; terminate is softer."""
    before = children_of(os.getpid())
    said: list[bytes] = []
    begun = threading.Event()

    def hear(_stream: str, data: bytes) -> None:
        said.append(data)
        begun.set()

    code = (
        "import time\ntry:\n    print('begun')\n    time.sleep(30)\n"
        "finally:\n    print('cleaned up')"
    )
    executor = JailExecutor(JailPolicy(), 1, on_output=hear)
    running = executor.submit("builtins:exec", code)
    waiting = executor.submit(abs, -1)
    assert begun.wait(20)
    start = time.monotonic()
    getattr(executor, how)()
    assert isinstance(running.exception(timeout=5), JailExecutorBroken)
    assert time.monotonic() - start < 5
    with pytest.raises(CancelledError):
        waiting.result(timeout=5)
    assert (b"cleaned up" in b"".join(said)) is (how == "terminate_workers")
    with pytest.raises(BrokenExecutor, match="ended"):
        executor.submit(abs, -1)
    executor.shutdown()
    assert children_of(os.getpid()) <= before


def test_a_worker_that_takes_no_library_breaks_the_executor_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the workers must not hold up tasks with a limit before the first has begun."""
    monkeypatch.setattr(conversation, "_ASIDE", Timeouts(wall=0.5, grace=0.2))
    venv.create(tmp_path, with_pip=False, symlinks=True)
    (packages,) = tmp_path.glob("lib/python3*/site-packages")
    with JailExecutor(JailPolicy(), 1, timeout=20, environment=tmp_path) as running:
        assert running.submit(abs, -1).result(timeout=30) == 1  # the control
    (packages / "silent.pth").write_text("import silent\n")
    (packages / "silent.py").write_text(
        "import sys, time\n"
        "def wait(*_, **__):\n    while True:\n        try: time.sleep(60)\n"
        "        except BaseException: pass\n"
        "if '_visguest.worker' in sys.modules: sys.modules['_visguest.worker']._answer = wait\n"
    )
    with JailExecutor(JailPolicy(), 1, timeout=20, environment=tmp_path) as running:
        failure = running.submit(abs, -1).exception(timeout=15)
        assert isinstance(failure, JailExecutorBroken)
        assert isinstance(failure.__cause__, WorkerDied)
        assert "did not answer" in str(failure)


@pytest.mark.parametrize("min_idle", [0, 1])
@pytest.mark.parametrize("how", ["terminate_workers", "kill_workers"])
def test_workers_that_are_made_ready_can_be_ended(how: str, min_idle: int) -> None:
    """An initializer that does not end must not outlive what ends all workers."""
    before = children_of(os.getpid())
    code = (
        "import time\nprint('begun', flush=True)\n"
        "while True:\n    try: time.sleep(60)\n    except BaseException: pass"
    )
    begun = threading.Event()
    running = JailExecutor(
        JailPolicy(),
        1,
        initializer="builtins:exec",
        initargs=(code,),
        min_idle=min_idle,
        on_output=lambda *_: begun.set(),
    )
    future = running.submit(abs, -1)
    assert begun.wait(20)
    with pytest.raises(TimeoutError):  # the control: it does not end by itself
        future.result(timeout=0.3)
    getattr(running, how)()
    assert isinstance(future.exception(timeout=5), JailExecutorBroken)
    running.shutdown()
    assert children_of(os.getpid()) <= before


def test_a_failing_initializer_breaks_the_executor(caplog: pytest.LogCaptureFixture) -> None:
    """Every task gets an error that is a BrokenExecutor and ours, and says why."""
    with JailExecutor(JailPolicy(), 1, initializer=divmod, initargs=(1, 0)) as executor:
        future = executor.submit(abs, -1)
        with pytest.raises(JailExecutorBroken) as caught:
            future.result()
        assert isinstance(caught.value, BrokenExecutor)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(BrokenExecutor, match="ZeroDivisionError"):
            executor.submit(abs, -1)
    assert [record.name for record in caplog.records] == ["concurrent.futures"]


def test_shutdown_without_waiting_finishes_what_is_scheduled() -> None:
    """It returns at once, the tasks run, and then the workers end."""
    before = children_of(os.getpid())
    executor = JailExecutor(TrustedRuntime, 1)
    futures = [executor.submit("time:sleep", 0.4) for _ in range(3)]
    start = time.monotonic()
    executor.shutdown(wait=False)
    assert time.monotonic() - start < 1
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)
    assert [future.result() for future in futures] == [None] * 3
    end = time.monotonic() + 10
    while not children_of(os.getpid()) <= before and time.monotonic() < end:
        time.sleep(0.01)
    assert children_of(os.getpid()) <= before


EXIT = """
import sys, time, atexit
from visruntime import JailExecutor, JailPolicy
{before}
executor = JailExecutor(JailPolicy(), 2, on_output=lambda name, data: print(data.decode(), end=""))
executor.submit("builtins:exec", "import time; time.sleep(0.5); print('apple')")
{after}
"""


LATE = """
def late():
    try: executor.submit(abs, 1)
    except RuntimeError as problem: print(str(problem)[:34])
atexit.register(late)
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", "apple"),
        ("", "executor.shutdown(wait=False)", "apple"),
        (
            LATE,
            "executor.submit(abs, 1).result()",
            "apple\ncannot schedule new futures after",
        ),
    ],
    ids=["end", "shutdown", "late"],
)
def test_the_interpreter_ends_after_the_tasks(before: str, after: str, said: str) -> None:
    """As CPython has it of its own executors: what is scheduled still runs, and nothing hangs."""
    code = EXIT.format(before=before, after=after)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (said, "")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_refused(executor: JailExecutor) -> None:
    """A child must neither use nor end what is its parent's."""
    assert executor.submit(abs, -1).result() == 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            executor.submit(abs, -2)
        except JailExecutorBroken as problem:
            os.write(writer, str(problem).encode())
        finally:
            executor.kill_workers()
            executor.shutdown()
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as pipe:
        assert b"the process that made it" in pipe.read()
    assert executor.submit(abs, -3).result() == 3


def test_without_cloudpickle_names_still_work() -> None:
    """The extra that is missing is named where it is needed, and nowhere else."""
    code = (
        "import sys; sys.modules['cloudpickle'] = None\n"
        "from visruntime import JailExecutor, TrustedRuntime\n"
        "with JailExecutor(TrustedRuntime, 1) as executor:\n"
        "    print(executor.submit('math:sqrt', 9).result())\n"
        "    print(executor.submit(abs, 1).exception())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("3.0\n")
    assert "visruntime[executor]" in done.stdout


@pytest.mark.parametrize("python", [p for p in WORKER_PYTHONS if p is not None])
def test_workers_of_other_pythons(python: str) -> None:
    """Code crosses to the same version alone; names and importable functions to every one."""
    with JailExecutor(JailPolicy(), 1, python=python) as executor:
        assert executor.submit(os.path.join, "a", "b").result() == "a/b"
        version = executor.submit("builtins:eval", "__import__('sys').version_info[:2]").result()
        future = executor.submit(lambda: 5)
        if version == sys.version_info[:2]:
            assert future.result() == 5
        else:
            with pytest.raises(TypeError, match=r"bytecode of Python 3\.\d+, and the worker runs"):
                future.result()


def test_asyncio_can_use_it(executor: JailExecutor) -> None:
    """An event loop runs functions in it as in any executor."""

    async def main() -> int:
        return await asyncio.get_running_loop().run_in_executor(executor, operator.mul, 7, 2)

    assert asyncio.run(main()) == 14
    assert isinstance(executor, concurrent.futures.Executor)


def test_a_byte_out_of_band_between_two_tasks_ends_that_worker_only() -> None:
    """It must hold neither the executor nor the tasks after it."""
    attack = (
        "import os, socket, stat, threading, time\n"
        "def send():\n"
        "    time.sleep(.1)\n"
        "    for name in map(int, os.listdir('/proc/self/fd')):\n"
        "        try:\n"
        "            if name < 3 or not stat.S_ISSOCK(os.fstat(name).st_mode): continue\n"
        "            s = socket.socket(fileno=os.dup(name))\n"
        "            if s.type == socket.SOCK_STREAM: s.send(b'x', socket.MSG_OOB)\n"
        "        except OSError: pass\n"
        "threading.Thread(target=send).start()"
    )
    with JailExecutor(JailPolicy(), 1, timeout=5) as executor:
        executor.submit(exec, attack, {}).result(10)
        time.sleep(0.3)
        with pytest.raises(ProtocolViolation, match="nobody had asked for"):
            executor.submit(abs, -1).result(10)
        assert executor.submit(abs, -1).result(10) == 1

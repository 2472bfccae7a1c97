"""Copies of a worker: what is the same in them, what is not, and that each ends on its own."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interpreters import INTERPRETERS
from jail_helpers import backends
from runtime_helpers import runtime

from visruntime._worker import copy as copy_module
from visruntime.errors import (
    CommandError,
    CommandTimeout,
    ForkRefused,
    GuestError,
    JailClosed,
    PolicyError,
    WorkerDied,
)
from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime, TrustedRuntime
from visruntime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_helpers import AnyRuntime

__all__ = ["runtime"]

SPIN_IN_C = "n = 10**10\nsum(range(n))"
"""Holds the interpreter's lock in C, where no interrupt is seen."""
DAEMON = """
import os, sys, time
def daemon(seconds=60):
    'Leave a process behind that nobody waits for; its number.'
    reader, writer = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.write(writer, str(os.getpid()).encode())
            time.sleep(seconds)
        os._exit(0)
    os.close(writer)
    number = int(os.read(reader, 20))
    os.wait()
    return number
def lives(pid):
    try:
        state = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in 'ZX'
"""


def until(condition: Callable[[], object]) -> bool:
    """Wait up to five seconds for *condition*."""
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(condition())


def test_a_copy_has_the_session_and_shares_no_name_with_it(runtime: AnyRuntime) -> None:
    """What one of the two binds must not be seen in the other."""
    runtime.exec("names = ['before']\ndef first(): return names[0]")
    with runtime.fork() as copy:
        copy.exec("names[0] = 'copy'; only_here = 1")
        runtime.exec("names.append('original')")
        assert copy.call("first") == "copy"
        assert runtime.call("first") == "before"
        assert runtime.get("names") == ["before", "original"]
        with pytest.raises(GuestError, match="only_here"):
            runtime.get("only_here")
        assert copy.eval("__import__('os').getpid()") != runtime.eval("__import__('os').getpid()")


def test_a_copy_of_a_worker_that_has_not_run_anything(runtime: AnyRuntime) -> None:
    """Must not need a run before."""
    with runtime.fork() as copy:
        assert copy.eval("40 + 2") == 42
        assert runtime.eval("40 + 2") == 42


def test_a_paused_copy_is_a_state_to_go_back_to(runtime: AnyRuntime) -> None:
    """A checkpoint must not run meanwhile, nor be used up by going back to it."""
    runtime.exec("import time\nsteps = [1]")
    with runtime.fork() as checkpoint:
        checkpoint.pause()
        runtime.exec("steps.append('wrong')")
        for _ in range(2):
            with checkpoint.fork() as again:
                again.exec("steps.append(2)")
                assert again.get("steps") == [1, 2]
        with pytest.raises(TimeoutError):
            checkpoint.ping(0.1)
        checkpoint.resume()
        assert checkpoint.get("steps") == [1]


def test_a_copy_does_not_live_on_where_its_original_cannot_be_paused_again(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy may run that nobody has: it ends with the error, and the original goes on."""
    worker = runtime._live_worker()
    suspend, make = Worker.suspend, copy_module._copy
    made: list[Worker] = []
    runtime.pause()

    def fails_to_stop(self: Worker, *, suspended: bool) -> None:
        if suspended and self is worker:
            raise CommandError("the supervisor did not answer")
        suspend(self, suspended=suspended)

    def noted(*given: Any) -> Worker:
        made.append(make(*given))
        return made[0]

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "suspend", fails_to_stop)
        patch.setattr(copy_module, "_copy", noted)
        with pytest.raises(CommandError, match="did not answer"):
            runtime.fork()
    assert made[0].process.has_ended()
    assert runtime.eval("40 + 2") == 42


def test_copies_of_copies(runtime: AnyRuntime) -> None:
    """Must not stop at the first generation."""
    runtime.exec("generation = 0")
    line: list[AnyRuntime] = [runtime]
    try:
        for number in range(1, 6):
            line.append(line[-1].fork())
            line[-1].exec("generation += 1")
            assert line[-1].get("generation") == number
        # The middle ends first: those below it are none of its business.
        line[2].close()
        assert [each.get("generation") for each in line[3:]] == [3, 4, 5]
        assert runtime.get("generation") == 0
    finally:
        for each in line[1:]:
            each.close()


def test_random_numbers_and_names_differ_and_the_hash_secret_does_not(runtime: AnyRuntime) -> None:
    """Two copies must not draw the same numbers; what cannot be changed is as documented."""
    runtime.exec(
        "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n"
        "import random, ssl, uuid, tempfile, secrets, numpy\n"
        "random.seed(1); numpy.random.seed(1); uuid.uuid1(); next(tempfile._get_candidate_names())\n"
        "def draw():\n"
        " return {'random': random.random(), 'numpy': float(numpy.random.rand()),\n"
        "  'ssl': ssl.RAND_bytes(16), 'uuid1': str(uuid.uuid1()), 'uuid4': str(uuid.uuid4()),\n"
        "  'secrets': secrets.token_hex(), 'tempfile': next(tempfile._get_candidate_names())}"
    )
    with runtime.fork() as one, runtime.fork() as other:
        draws = [each.call("draw") for each in (runtime, one, other)]
        for name in draws[0]:
            assert len({draw[name] for draw in draws}) == 3, name
        same = "(hash('abc'), id(None))"
        assert one.eval(same) == other.eval(same) == runtime.eval(same)


def test_functions_of_the_host_and_handles_are_there(runtime: AnyRuntime) -> None:
    """What is exposed to one afterwards must not be callable in the other."""
    runtime.expose("both", lambda: "both")
    thing = runtime.run("class Thing: size = 7\nThing()").value
    with runtime.fork() as copy:
        copy.expose("mine", lambda: "mine")
        assert copy.eval("both() + mine()") == "bothmine"
        copy.exec("def size(it): return it.size")
        assert copy.call("size", thing) == 7
        assert runtime.eval("both()") == "both"
        with pytest.raises(GuestError, match="mine"):
            runtime.eval("mine()")


def test_tracebacks_show_the_source_of_both_times(runtime: AnyRuntime) -> None:
    """Runs of a copy must not be taken for earlier ones of the original."""
    runtime.exec("def old():\n    raise ValueError('from before')")
    with runtime.fork() as copy:
        copy.exec("def new():\n    old()  # since")
        error = copy.run("new()").error
        assert error is not None
        assert [frame.source.strip() for frame in error.frames] == [
            "new()",
            "old()  # since",
            "raise ValueError('from before')",
        ]


def test_output_goes_to_the_runtime_that_ran_the_code(runtime: AnyRuntime) -> None:
    """Nothing that a copy writes may come out at the original, by whatever way."""
    code = (
        "import os, subprocess, ctypes\nprint('print'); os.write(1, b'write\\n')\n"
        "ctypes.CDLL(None).puts(b'C')\nsubprocess.run(['/bin/echo', 'child'])\n"
        "os.write(2, b'error\\n') and None"
    )
    with runtime.fork() as copy:
        result = copy.run(code)
        quiet = runtime.run("1")
        assert result.stdout.splitlines() == [b"print", b"write", b"C", b"child"]
        assert result.stderr == b"error\n"
        assert (quiet.stdout, quiet.stderr, quiet.late_stdout, quiet.late_stderr) == (b"",) * 4


def test_each_ends_without_the_other(runtime: AnyRuntime) -> None:
    """The end of one, by whatever way, must not be that of the other."""
    runtime.exec("x = 1")
    first, second = runtime.fork(), runtime.fork()
    with first, second:
        first.close()
        assert (runtime.get("x"), second.get("x")) == (1, 1)
        with pytest.raises(JailClosed):
            first.get("x")
        runtime.close()
        assert second.get("x") == 1
        with second.fork() as third:
            assert third.get("x") == 1


def test_a_jail_ends_with_the_last_runtime_in_it() -> None:
    """A jail must not outlive those that use it."""
    runtime = Runtime(JailPolicy())
    copy = runtime.fork()
    jail = runtime._jail
    runtime.close()
    assert not jail.closed
    runtime.close()  # once more counts once
    assert not jail.closed
    copy.close()
    assert jail.closed


@pytest.mark.parametrize(
    ("code", "exit_code", "number"),
    [("import os; os._exit(9)", 9, None), ("import os; os.kill(os.getpid(), 9)", None, 9)],
)
def test_the_end_of_a_copy_is_measured(code: str, exit_code: int | None, number: int) -> None:
    """How a copy ended must come from the kernel, and never from a guest."""
    with Runtime(JailPolicy()) as runtime, runtime.fork() as copy:
        with pytest.raises(WorkerDied) as death:
            copy.run("print('last', flush=True)\n" + code)
        assert (death.value.exit_code, death.value.signal) == (exit_code, number)
        assert death.value.result.stdout == b"last\n"
        assert runtime.eval("1") == 1


def test_the_end_of_a_trusted_copy_is_what_the_kernel_tells_or_unknown() -> None:
    """An end that this process cannot wait for must not be made up."""
    with TrustedRuntime() as runtime, runtime.fork() as copy:
        with pytest.raises(WorkerDied) as death:
            copy.run("import os; os._exit(9)")
        assert death.value.exit_code in (9, None)
        assert death.value.signal is None


def test_interrupts_stacks_and_time_limits_reach_a_copy(runtime: AnyRuntime) -> None:
    """A copy must be under control as its original is, and not through it."""
    with runtime.fork() as copy:
        copy.exec("kept = 1")
        stopper = threading.Timer(0.1, copy.interrupt)
        stopper.start()
        result = copy.run("import time\ndef sleeping(): time.sleep(30)\nsleeping()")
        stopper.join()
        assert result.error is not None
        assert result.error.interrupted
        with pytest.raises(CommandTimeout) as late:
            copy.run("while True: pass", timeout=0.1)
        assert not late.value.result.session_lost
        assert copy.get("kept") == 1

        seen: list[str] = []
        looker = threading.Timer(0.1, lambda: seen.append(copy.stacks()))
        looker.start()
        copy.run("def deep(): time.sleep(0.3)\ndeep()")
        looker.join()
        assert "deep" in seen[0]
        assert runtime.eval("1") == 1
        assert "deep" not in runtime.stacks()


def test_a_copy_that_does_not_obey_is_ended_alone(runtime: AnyRuntime) -> None:
    """The original must not pay for what its copy did."""
    runtime.exec("x = 1")
    with runtime.fork() as copy:
        with pytest.raises(CommandTimeout) as late:
            copy.run(SPIN_IN_C, timeout=0.1)
        assert late.value.result.session_lost
        assert runtime.get("x") == 1
        # The next worker is a fresh one, not a copy of anything.
        with pytest.raises(GuestError, match="x"):
            copy.get("x")


def test_usage_of_a_copy_is_its_own(runtime: AnyRuntime) -> None:
    """The time of one must not be counted as that of the other."""
    burn = "import time\nend = time.process_time() + 0.15\nwhile time.process_time() < end: pass"
    with runtime.fork() as copy:
        busy, idle = copy.run(burn).usage, runtime.run("1").usage
        assert busy.cpu_seconds is not None
        assert 0.1 < busy.cpu_seconds < 1.0
        assert busy.peak_memory is not None
        assert busy.peak_memory > 1 << 20
        assert idle.cpu_seconds is not None
        assert idle.cpu_seconds < 0.1


def test_reset_of_a_copy_leaves_the_original(runtime: AnyRuntime) -> None:
    """Forgetting names must not reach across."""
    runtime.exec("x = 1")
    with runtime.fork() as copy:
        copy.reset()
        with pytest.raises(GuestError, match="x"):
            copy.get("x")
        assert runtime.get("x") == 1


# ---- refusals ------------------------------------------------------------------------------


def test_a_worker_with_threads_is_not_copied(runtime: AnyRuntime) -> None:
    """Threads that a fork would leave out must not go missing in silence."""
    runtime.exec(
        "import threading\nleave = threading.Event()\n"
        "helper = threading.Thread(target=leave.wait, name='helper-of-guest')\nhelper.start()"
    )
    with pytest.raises(ForkRefused, match=r"2 threads \(helper-of-guest\)"):
        runtime.fork()
    assert "helper-of-guest" in runtime.eval("str(threading.enumerate())")
    runtime.exec("leave.set(); helper.join()")
    with runtime.fork() as copy:
        assert copy.eval("threading.active_count()") == 1


def test_a_worker_with_pending_tasks_is_not_copied(runtime: AnyRuntime) -> None:
    """A task must not run on in two processes."""
    runtime.run(
        "import asyncio\nasync def begin():\n"
        " global task\n task = asyncio.create_task(asyncio.sleep(60))\nawait begin()",
        check=True,
    )
    with pytest.raises(ForkRefused, match="1 asyncio task"):
        runtime.fork()
    runtime.run("task.cancel()\nawait asyncio.wait([task])", check=True)
    with runtime.fork() as copy:
        assert copy.run("await asyncio.sleep(0, 'slept')").value == "slept"


def test_the_event_loop_of_the_original_is_not_disturbed(runtime: AnyRuntime) -> None:
    """What a copy does to its loop, its end included, must not reach the original's."""
    ping = (
        "import asyncio\n"
        "async def ping():\n"
        " loop = asyncio.get_running_loop()\n"
        " return await loop.run_in_executor(None, lambda: 'pong')\n"
        "await ping()"
    )
    assert runtime.run("import asyncio\nawait asyncio.sleep(0, 1)").value == 1
    with runtime.fork() as copy:
        assert copy.run(ping).value == "pong"
    # The loop is woken from its thread by what it shared with the copy.
    assert runtime.run(ping, timeout=5).value == "pong"


def test_modules_that_do_not_survive_a_fork_are_named(runtime: AnyRuntime) -> None:
    """A library that is known to hang in a copy must not get there."""
    runtime.exec("import sys\nsys.modules['grpc._cython.cygrpc'] = sys")
    with pytest.raises(ForkRefused, match="gRPC"):
        runtime.fork()
    runtime.exec("del sys.modules['grpc._cython.cygrpc']")
    runtime.fork().close()


def test_a_fork_that_the_kernel_refuses_leaves_the_worker() -> None:
    """A limit on processes must not end the worker that meets it."""
    with TrustedRuntime() as runtime:
        runtime.exec(
            "import resource\nhard = resource.getrlimit(resource.RLIMIT_NPROC)[1]\n"
            "resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))\nimport os, threading"
        )
        if os.geteuid() == 0:
            pytest.skip("the kernel counts no processes of root")
        with pytest.raises((ForkRefused, WorkerDied)):
            runtime.fork()


def test_a_worker_that_may_start_no_process_is_not_copied() -> None:
    """A limit of the worker must not be lifted for its copy, nor be found out by trying."""
    with Runtime(JailPolicy(), processes=False) as runtime:
        with pytest.raises(ForkRefused, match="processes=False"):
            runtime.fork()
        assert runtime.eval("1") == 1
    with pytest.raises(PolicyError, match="preload"):
        Runtime(JailPolicy(), processes=False, preload=["json"])


def test_a_host_function_cannot_copy_the_runtime_that_calls_it(runtime: AnyRuntime) -> None:
    """A copy in the middle of a run must be refused rather than wait for ever."""
    refused: list[str] = []

    def copy() -> None:
        try:
            runtime.fork()
        except RuntimeError as problem:
            refused.append(str(problem))

    runtime.expose("copy", copy)
    runtime.run("copy()")
    assert "host function" in refused[0]


# ---- the processes of a family ----------------------------------------------------------------


def test_what_a_copy_leaves_behind_ends_with_it_and_nothing_else_does() -> None:
    """A process that a copy left behind must not live on, and others' must not end with it."""
    with Runtime(JailPolicy()) as runtime:
        runtime.exec(DAEMON)
        elder = runtime.call("daemon")
        copy, sibling = runtime.fork(), runtime.fork()
        with sibling:
            born = {
                name: each.call("daemon")
                for name, each in (("copy", copy), ("sibling", sibling), ("original", runtime))
            }
            assert all(runtime.call("lives", pid) for pid in (elder, *born.values()))
            copy.close()
            assert not runtime.call("lives", born["copy"])
            alive = (elder, born["sibling"], born["original"])
            assert [runtime.call("lives", pid) for pid in alive] == [True] * 3
            runtime.close()
            assert [sibling.call("lives", pid) for pid in alive] == [False, True, False]


def test_a_copy_that_hides_what_it_leaves_behind_cannot_keep_it() -> None:
    """A guest must not get processes to outlive it by giving its orphans away."""
    with Runtime(JailPolicy()) as runtime, runtime.fork() as sibling:
        runtime.exec(DAEMON)
        copy = runtime.fork()
        copy.exec("import ctypes; ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)")  # no subreaper
        hidden = copy.call("daemon")
        assert runtime.call("lives", hidden)
        copy.close()
        assert not runtime.call("lives", hidden)
        assert sibling.eval("1") == 1


def test_each_copy_has_its_own_time_limit() -> None:
    """The clock of the original must not run for a copy, nor stop with it."""
    policy = JailPolicy(limits=Limits(wall_seconds=1.5))
    with Runtime(policy) as runtime:
        runtime.exec("import time")
        time.sleep(0.8)
        with runtime.fork() as copy:
            with pytest.raises(WorkerDied) as death:
                runtime.run("time.sleep(10)")
            assert death.value.stopped_by == "wall"
            assert copy.run("time.sleep(0.1); 'still here'").value == "still here"
            with pytest.raises(WorkerDied) as death:
                copy.run("time.sleep(10)")
            assert death.value.stopped_by == "wall"


@pytest.mark.parametrize("backend", backends())
def test_copies_under_each_back_end(backend: str) -> None:
    """What another back end cannot do must be refused by name, and the rest be measured alike."""
    limits = Limits(processes=None, scratch=None) if backend == "landlock" else Limits()
    with Runtime(JailPolicy(limits=limits), backend=backend) as runtime:
        runtime.exec("x = 1")
        if backend == "landlock":
            with pytest.raises(ForkRefused, match="/proc is not readable"):
                runtime.fork()
            assert runtime.get("x") == 1
            return
        with runtime.fork() as copy:
            with pytest.raises(WorkerDied) as death:
                copy.run("import os; os._exit(7)")
            assert death.value.exit_code == 7
            assert runtime.get("x") == 1


def test_suspending_one_lets_the_other_run() -> None:
    """A stop that is meant for one must not stop the other, nor its end be lost."""
    with Runtime(JailPolicy()) as runtime, runtime.fork() as copy:
        process = copy._live_worker().process._process  # type: ignore[attr-defined]
        original = runtime._live_worker().process._process  # type: ignore[attr-defined]
        process.suspend()
        assert runtime.eval("1") == 1
        with pytest.raises(CommandTimeout):
            copy.run("1", timeout=0.2)
        with runtime.fork() as other:
            process = other._live_worker().process._process  # type: ignore[attr-defined]
            process.suspend()
            original.suspend()
            process.resume()
            assert other.eval("2") == 2
            original.resume()
            assert runtime.eval("3") == 3


def test_more_copies_than_there_are_places_for() -> None:
    """A copy too many must be refused by name, and a place that is free again be used."""
    copies: list[Runtime] = []
    with Runtime(JailPolicy()) as runtime:
        try:
            with pytest.raises(ForkRefused, match="63 copies"):
                copies.extend(runtime.fork() for _ in range(70))
            assert len(copies) == 0 or len(copies) == 63
            while len(copies) < 63:
                copies.append(runtime.fork())
            with pytest.raises(ForkRefused, match="63 copies"):
                runtime.fork()
            copies.pop(30).close()
            copies.append(runtime.fork())
            assert {copy.eval("6 * 7") for copy in copies} == {42}
        finally:
            for copy in copies:
                copy.close()


def test_copies_made_and_ended_from_many_threads() -> None:
    """A copy that is just being made must not be taken for another's leavings."""
    failures: list[BaseException] = []

    def work(own: Runtime) -> None:
        try:
            for number in range(8):
                with own.fork() as copy:
                    assert copy.eval(f"{number} + mine") == number + own.get("mine")
        except BaseException as problem:
            failures.append(problem)

    with Runtime(JailPolicy()) as runtime:
        runtime.exec("mine = 0")
        owners = [runtime, *(runtime.fork() for _ in range(3))]
        for index, owner in enumerate(owners):
            owner.set("mine", index * 100)
        threads = [threading.Thread(target=work, args=(owner,)) for owner in owners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [owner.get("mine") for owner in owners] == [0, 100, 200, 300]
        for owner in owners[1:]:
            owner.close()


def test_copies_leave_no_descriptor_behind(runtime: AnyRuntime) -> None:
    """Neither the host nor the worker may collect descriptors, whether the copy came or not."""

    def descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), runtime.eval("len(os.listdir('/proc/self/fd'))")

    runtime.exec("import os, threading")
    for _ in range(2):  # with the second comes the keeper that the jail has made ahead
        runtime.fork().close()
    before = descriptors()
    for _ in range(5):
        runtime.fork().close()
    runtime.exec("stop = threading.Event(); t = threading.Thread(target=stop.wait); t.start()")
    for _ in range(3):
        with pytest.raises(ForkRefused):
            runtime.fork()
    runtime.exec("stop.set(); t.join()")
    assert descriptors() == before


def test_a_copy_that_gets_no_descriptors_leaves_none(runtime: AnyRuntime) -> None:
    """Whichever of its descriptors is one too many, none of the others stays open for it."""
    runtime.exec("kept = 7")
    runtime.fork().close()
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    problems: list[OSError] = []  # with all that their frames hold
    for spare in range(20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limits[1]))
        try:
            copy = runtime.fork()
        except OSError as problem:
            problems.append(problem)
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert copy.get("kept") == 7
            copy.close()
            break
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert len(os.listdir("/proc/self/fd")) == before, spare
    assert len(problems) > 3
    assert all(problem.errno == errno.EMFILE for problem in problems)
    assert runtime.get("kept") == 7
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("python", INTERPRETERS)
def test_every_interpreter_can_be_copied(python: str) -> None:
    """No version or build may lose what the others have."""
    with TrustedRuntime(python=python) as runtime:
        runtime.exec("import sys, random\nx = [1]\nversion = sys.version")
        with runtime.fork() as copy:
            copy.exec("x.append(2)")
            assert (runtime.get("x"), copy.get("x")) == ([1], [1, 2])
            assert copy.get("version") == runtime.get("version")
            assert copy.eval("random.random()") != runtime.eval("random.random()")
            result = copy.run("import os\nif os.fork() == 0: os._exit(3)\nos.wait()[1]")
            assert (result.value, result.stderr) == (3 << 8, b"")


def test_killing_the_host_ends_copies_too(tmp_path: Path) -> None:
    """No copy may outlive a host that was killed."""
    reader, writer = os.pipe()
    host = os.fork()
    if host == 0:
        try:
            runtime = Runtime(JailPolicy())
            copy = runtime.fork()
            numbers = [
                each._live_worker().process._usage._clock  # type: ignore[attr-defined]
                for each in (runtime, copy)
            ]
            os.write(writer, " ".join(str(~(clock >> 3)) for clock in numbers).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(writer)
    pids = [int(number) for number in os.read(reader, 100).split()]
    os.close(reader)
    assert len(pids) == 2
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    os.kill(host, signal.SIGKILL)
    os.waitpid(host, 0)
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_a_copy_has_the_budget_of_its_original(runtime: AnyRuntime) -> None:
    """What the calls of one run may take of the host holds for the runs of its copies too."""
    runtime.expose("f", lambda: None)
    runtime.limit_callbacks(calls=2)
    code = (
        "made = 0\nfor _ in range(10):\n  try: f(); made += 1\n"
        "  except Exception as problem: last = type(problem).__name__\n(made, last)"
    )
    expected = runtime.eval("2"), runtime.run(code).value
    with runtime.fork() as copy:
        assert copy.run(code).value == expected[1] == (2, expected[1][1])


def test_suspending_a_copy_that_has_just_ended_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy may end between the look at it and the order: its original must live on."""
    with Runtime(JailPolicy()) as runtime:
        runtime.exec("kept = 7")
        with runtime.fork() as copy:
            assert copy._worker is not None
            process = copy._worker.process._process  # type: ignore[attr-defined]
            process.send_signal(signal.SIGKILL)
            time.sleep(0.3)
            real, looks = process.poll, [None]  # what the first look has still seen
            monkeypatch.setattr(process, "poll", lambda: looks.pop() if looks else real())
            process.suspend()
            monkeypatch.setattr(process, "poll", real)
        assert runtime.get("kept") == 7

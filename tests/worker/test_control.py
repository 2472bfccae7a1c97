"""A worker that is watched, paused, ended and replaced, and what is known of its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import until
from runtime_helpers import children_of, runtime

from visruntime import (
    CommandTimeout,
    CrashReport,
    JailClosed,
    JailPolicy,
    Limits,
    Runtime,
    Secret,
    TrustedRuntime,
    WorkerDied,
    WorkerPaused,
)
from visruntime._worker.control import Control
from visruntime._worker.crash import describe_end
from visruntime._worker.tree import signal_descendants

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


def died(runtime: AnyRuntime, code: str) -> tuple[WorkerDied, CrashReport]:
    """Run *code* that ends its worker; return the error and its report."""
    with pytest.raises(WorkerDied) as caught:
        runtime.run(code, timeout=30)
    assert isinstance(caught.value.report, CrashReport)
    return caught.value, caught.value.report


# ---- heartbeat, pause, kill ----


def test_the_heartbeat_does_not_depend_on_the_interpreter(runtime: AnyRuntime) -> None:
    """A worker answers while C code holds the interpreter's lock, and not while it stands still."""
    with pytest.raises(WorkerDied):
        runtime.ping()
    runtime.run("1")
    beats: list[float] = []
    timer = threading.Timer(0.2, lambda: beats.append(runtime.ping(5)))
    timer.start()
    with pytest.raises(CommandTimeout):
        runtime.run("sum(range(10**12))", timeout=0.5)
    timer.join()
    assert 0 <= beats[0] < 0.3
    runtime.run("1")
    runtime.pause()
    with pytest.raises(TimeoutError, match=r"did not answer for 0\.1 s"):
        runtime.ping(0.1)
    runtime.resume()
    # The answer to the first question comes first now, and is not taken for this one's.
    assert runtime.ping(5) < 5
    assert "Thread" in runtime.stacks()


def test_a_pause_stops_everything_and_no_limit_counts_it(runtime: AnyRuntime) -> None:
    """The worker and its children stand still in a pause that is longer than the time limit."""
    worker_pid = runtime.run(
        "import subprocess, os\n"
        "p = subprocess.Popen(['sh', '-c', 'while :; do echo x; sleep .02; done'])\nos.getpid()"
    ).value
    assert worker_pid > 0
    seen: list[tuple[float, int]] = []
    lines = bytearray()

    def hold() -> None:
        runtime.pause()
        time.sleep(0.1)
        before = len(lines)
        time.sleep(0.6)
        seen.append((time.monotonic(), len(lines) - before))
        runtime.resume()

    timer = threading.Timer(0.2, hold)
    timer.start()
    result = runtime.run(
        "import time\nend = time.monotonic() + .5\n"
        "while time.monotonic() < end: pass\np.kill(); 'done'",
        timeout=0.7,
        on_output=lambda _, data: lines.extend(data),
    )
    timer.join()
    assert result.value == "done"
    assert result.stop is None
    assert seen[0][1] <= 2  # what was in the pipe
    assert result.usage.wall_seconds > 0.7


def test_a_paused_worker_can_be_ended(runtime: AnyRuntime) -> None:
    """Neither ``kill`` nor ``close`` waits for one that stands still."""
    runtime.run("1")
    runtime.pause()
    started = time.monotonic()
    runtime.kill()
    assert runtime.run("2").value == 2
    runtime.pause()
    runtime.close()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_a_paused_run_can_be_cancelled(runtime: AnyRuntime, how: str) -> None:
    """Who ends a run that stands still must not wait until somebody lets it go on."""
    runtime.run("import time")
    run = runtime.start("time.sleep(60)", timeout=30)
    assert until(lambda: runtime._worker is not None and runtime._worker.run_number == 2)
    runtime.pause()
    with pytest.raises(TimeoutError):  # the control: nothing else ends it
        run.result(timeout=0.7)
    ending = threading.Thread(target=runtime.close if how == "close" else run.cancel, daemon=True)
    ending.start()
    assert run.result(timeout=5).stopped_by == "cancelled"
    ending.join(5)
    assert not ending.is_alive()


def test_a_call_on_a_paused_worker_never_hangs(runtime: AnyRuntime) -> None:
    """No limit counts a pause, so a call that begins in one is refused by name, and only that one."""
    runtime.exec("kept = 7")
    runtime.pause()
    started = time.monotonic()
    with pytest.raises(WorkerPaused, match=r"resume\(\)"):
        runtime.run("1", timeout=0.5)
    with pytest.raises(WorkerPaused):
        runtime.eval("1")
    with pytest.raises(WorkerPaused):
        runtime.expose("late", lambda: 5)
    with pytest.raises(WorkerPaused):
        runtime.start("1").result()
    with pytest.raises(WorkerPaused):
        runtime.reset()
    assert time.monotonic() - started < 5
    runtime.resume()
    assert runtime.eval("kept") == 7  # nothing was sent, nothing is lost
    runtime.expose("late", lambda: 5)
    assert runtime.eval("late()") == 5


def test_a_closed_runtime_says_so_whatever_is_asked(runtime: AnyRuntime) -> None:
    """No answer of a closed runtime promises a next call, and it cannot be entered again."""
    runtime.run("1")
    runtime.close()
    for ask in (runtime.ping, runtime.stacks, runtime.pause, runtime.resume, runtime.warm_up):
        with pytest.raises(JailClosed, match="this runtime is closed"):
            ask()
    with pytest.raises(JailClosed, match="this runtime is closed"), runtime:
        pass
    runtime.close()  # again is nothing


def test_kill_ends_the_call_under_way_and_the_next_one_starts_anew(runtime: AnyRuntime) -> None:
    """``kill`` from another thread is told as such, with the output so far; the session is lost."""
    runtime.kill()  # nothing to end
    runtime.exec("kept = 1")
    timer = threading.Timer(0.2, runtime.kill)
    timer.start()
    error, report = died(runtime, "print('so far', flush=True)\nwhile True: pass")
    timer.join()
    assert (error.signal, error.stopped_by) == (signal.SIGKILL, "killed")
    assert error.result.stdout == b"so far\n"
    assert error.result.session_lost
    assert report.description == "the worker was ended by signal 9, SIGKILL (killed)"
    assert runtime.run("'kept' in globals()").value is False


def test_the_end_of_standard_input_reaches_a_run_that_reads() -> None:
    """A guest that waits for input gets what is there, and then its end, when the host closes it."""
    reader, writer = os.pipe()
    with TrustedRuntime(stdin=reader) as running:
        running.run("1")
        os.close(reader)
        os.write(writer, b"one\n")
        timer = threading.Timer(0.2, os.close, [writer])
        timer.start()
        result = running.run("import sys\n[input(), sys.stdin.read()]", timeout=20)
        timer.join()
    assert result.value == ["one", ""]


# ---- children ----


def test_a_signal_to_the_descendants_reaches_nobody_else() -> None:
    """Children and grandchildren get it; the process itself, its siblings and strangers do not."""
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen(['sh', '-c', 'sleep 60 & wait'])\nprint('up', flush=True)\n"
        "print(p.wait(), flush=True); time.sleep(60)"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent,
        subprocess.Popen(["sleep", "60"]) as stranger,
    ):
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"up\n"
            while not any(children_of(child) for child in children_of(parent.pid)):
                time.sleep(0.01)
            held = os.pidfd_open(parent.pid)
            try:
                assert signal_descendants(parent.pid, held) == 2
                assert parent.stdout.readline() == b"-15\n"
                assert signal_descendants(parent.pid, held) == 0
                assert parent.poll() is None
                parent.kill()
                parent.wait()
                # Its number may be another's by now.
                assert signal_descendants(os.getpid(), held) == 0
            finally:
                os.close(held)
            assert stranger.poll() is None
        finally:
            parent.kill()
            stranger.kill()


# ---- crash reports ----


def test_pw_03_a_crash_leaves_its_stacks(runtime: AnyRuntime) -> None:
    """PW-03: signal, last output and the stacks of every thread; then a new call works."""
    error, report = died(
        runtime,
        "import ctypes, sys\nprint('last', flush=True); print('words', file=sys.stderr)\n"
        "def deep(): ctypes.string_at(0)\ndeep()",
    )
    assert (report.signal, report.signal_name, report.exit_code) == (11, "SIGSEGV", None)
    assert "in deep" in report.stacks
    assert "Segmentation fault" in report.stacks
    assert report.stderr_tail.startswith("words\n")
    assert report.run == 1
    assert error.result.stdout == b"last\n"
    assert "in deep" in str(report)
    assert runtime.eval("1+1") == 2
    _, report = died(runtime, "import faulthandler; faulthandler._sigsegv()")
    assert report.signal == 11
    _, report = died(runtime, "import os; os.abort()")
    assert "Aborted" in report.stacks


def test_no_end_is_called_a_lack_of_memory_without_proof(runtime: AnyRuntime) -> None:
    """A worker that kills itself looks like the kernel's doing, and is not taken for that."""
    _, report = died(runtime, "import os; os.kill(os.getpid(), 9)")
    assert report.signal_name == "SIGKILL"
    assert report.out_of_memory is not True
    assert "memory" not in str(report)
    _, report = died(runtime, "import os, signal; os.kill(os.getpid(), signal.SIGSYS)")
    assert report.signal_name == "SIGSYS"
    assert report.system_call is None
    assert "a filter" in report.description


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (0, "exit code 0: the code left by os._exit"),
        (3, "exit code 3"),
        (137, "exit code 137, as a shell says after SIGKILL"),
        (121, "exit code 121"),
        (122, "exit code 122"),
    ],
)
def test_exit_codes_are_explained(runtime: AnyRuntime, code: int, says: str) -> None:
    """What a number stands for is said, and the number is there as it was measured."""
    error, report = died(runtime, f"import os; os._exit({code})")
    assert error.exit_code == report.exit_code == code
    assert says in report.description
    assert says in str(error)
    assert report.signal is None
    assert "its loader" not in report.description


def test_exit_codes_of_the_loader_are_explained_before_the_first_run() -> None:
    """Only a worker in which no run has begun can have ended by its loader."""
    early, later = (
        describe_end(121, run=run, stopped_by=None, stderr=b"", violations=()) for run in (0, 1)
    )
    assert "the interpreter could not be started" in early.description
    assert later.description == "the worker ended with exit code 121"


def test_reports_are_printable_and_keep_secrets() -> None:
    """What a guest wrote reaches no terminal with control characters, nor with a secret in it."""
    policy = JailPolicy(env={"TOKEN": Secret("swordfish")})
    with Runtime(policy) as running:
        _, report = died(
            running,
            "import os, sys\nsys.stderr.write('\\x1b[31m' + os.environ['TOKEN'] + '\\x07')\n"
            "sys.stderr.flush(); os._exit(1)",
        )
    assert report.stderr_tail == "\ufffd[31m***\ufffd"
    assert "swordfish" not in repr(report.to_dict()) + str(report) + repr(report)


def test_a_report_is_bounded() -> None:
    """However much a guest wrote, the report keeps the end of it, and the first stacks of a crash."""
    noise = b"Fatal Python error: Aborted\n" + b"x" * 10**6
    report = describe_end(-6, run=1, stopped_by=None, stderr=noise, violations=())
    assert len(report.stacks) == 20_000
    assert len(report.stderr_tail) == 4_000
    strange = describe_end(-77, run=1, stopped_by=None, stderr=b"", violations=())
    assert (strange.signal, strange.signal_name) == (77, None)


def test_a_limit_that_ended_the_worker_is_in_the_report() -> None:
    """What a keeper measured is named as such."""
    with Runtime(JailPolicy(limits=Limits(wall_seconds=0.5))) as running:
        _, report = died(running, "while True: pass")
    assert report.stopped_by == "wall"
    assert "(wall)" in report.description


def test_a_lack_of_memory_is_said_where_it_was_measured() -> None:
    """The keeper that ended the worker for its memory says how much that was."""
    limit = 160 << 20
    policy = JailPolicy(limits=Limits(memory=limit, memory_by="watch"))
    with Runtime(policy) as running:
        error, report = died(running, "hoard = [bytearray(1 << 20) for _ in range(1000)]")
        assert error.stopped_by == report.stopped_by == "memory"
        assert report.out_of_memory is True
        assert f"more than {limit}" in report.proof
        assert f"out of memory: {report.proof}" in str(report)
        assert running.run("1").value == 1


# ---- threads (V34) ----


def test_v34_threads_are_limited_below_python() -> None:
    """``limits.processes`` counts threads, also those that no Python code starts; the worker lives."""
    # Started by C, so that no audit event and no module of Python is on the way.
    code = (
        "import ctypes, time\nlibc = ctypes.CDLL(None)\n"
        "entry = ctypes.cast(libc.pause, ctypes.c_void_p)\n"
        "ids = (ctypes.c_ulong * 300)()\n"
        "start = lambda n: libc.pthread_create(ctypes.byref(ids, 8 * n), None, entry, None)\n"
        "made = [start(n) for n in range(300)]\n"
        "import threading\n"
        "try: threading.Thread(target=time.sleep, args=(1,)).start(); refused = ''\n"
        "except RuntimeError as e: refused = str(e)\n"
        "(made.count(0), set(made) - {0}, refused)"
    )
    with TrustedRuntime() as free:
        assert free.run(code).value == (300, set(), "")
    with Runtime(JailPolicy(limits=Limits(processes=40))) as running:
        if not running.run("1").report.mechanisms("limits.processes"):
            pytest.skip("a root caller without a cgroup has no limit on processes here")
        made, errors, refused = running.run(code).value
        assert 20 < made < 40
        assert errors == {11}  # EAGAIN
        assert refused == "can't start new thread"
        assert running.run("1+1").value == 2


def test_empty_packets_are_no_silence() -> None:
    """What the guest writes beside the control thread's answers neither hides nor is an answer."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control = Control(ours)

    def answer(text: bytes | None) -> None:
        order = theirs.recv(100)
        theirs.send(b"")
        theirs.send(order if text is None else text)

    with theirs:
        for text, ask in ((None, lambda: control.ping(5)), (b"here\0", control.stacks)):
            theirs.send(b"")
            theirs.send(b"stale\0")
            thread = threading.Thread(target=answer, args=(text,))
            thread.start()
            said = ask()
            thread.join()
            assert text is None or said == "here"
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        control.ping(5)
    assert time.monotonic() - started < 4
    control.close()


def test_a_control_socket_that_the_guest_shut_is_its_end() -> None:
    """Each read of it returns nothing at once, for which the host does not wait in circles."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control = Control(ours)
    with theirs:
        theirs.shutdown(socket.SHUT_WR)
        before = time.thread_time()
        with pytest.raises(TimeoutError):
            control.ping(1)
        assert time.thread_time() - before < 0.5
    control.close()

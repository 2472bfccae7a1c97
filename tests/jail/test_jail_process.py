"""Programs that were spawned: streams, terminals, signals and ends, with Popen's names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PRELUDE, PYTHON, Jail, JailPolicy, Limits, spawn, until

from visruntime.errors import CommandError, CommandTimeout, JailClosed
from visruntime.jail import DEVNULL, PIPE, STDOUT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

TERMINAL_ROUNDS = 300 if os.environ.get("VIS_FULL") else 60


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """Return a jail without any grant."""
    with Jail(JailPolicy()) as opened:
        yield opened


# ---- streams -------------------------------------------------------------------------


def test_pipes_are_unbuffered_binary_files(jail: Jail) -> None:
    """A conversation over two pipes must work line by line."""
    with spawn(jail, ["cat"], stdin=PIPE, stdout=PIPE) as process:
        for word in (b"one\n", b"two\n"):
            process.stdin.write(word)
            assert process.stdout.readline() == word
        assert process.stderr is None
        process.stdin.close()
        assert process.wait(timeout=10) == 0
        assert process.stdout.read() == b""


def test_nothing_is_the_default(jail: Jail) -> None:
    """Without streams the program must find the end of its input, and its output be dropped."""
    with spawn(jail, ["sh", "-c", "cat; echo dropped; echo dropped >&2; exit 6"]) as process:
        assert (process.stdin, process.stdout, process.stderr, process.pty) == (None,) * 4
        assert process.communicate() == (b"", b"")
        assert process.returncode == 6


def test_streams_of_every_kind(jail: Jail, workspace: Path) -> None:
    """Files, descriptors, STDOUT and DEVNULL must be taken as by Popen, and stay open here."""
    (workspace / "in").write_bytes(b"from a file\n")
    script = ["sh", "-c", "cat; echo err >&2"]
    with open(workspace / "in", "rb") as source, open(workspace / "out", "wb") as target:
        with spawn(jail, script, stdin=source, stdout=target, stderr=STDOUT) as process:
            assert process.wait(timeout=10) == 0
        assert not source.closed
        assert not target.closed
    assert (workspace / "out").read_bytes() == b"from a file\nerr\n"
    reader, writer = os.pipe()
    with spawn(jail, script, stdin=DEVNULL, stdout=writer, stderr=DEVNULL) as process:
        os.close(writer)
        assert process.wait(timeout=10) == 0
    assert os.read(reader, 10) == b""
    os.close(reader)
    with spawn(jail, script, stdout=PIPE, stderr=STDOUT) as process:
        assert process.communicate() == (b"err\n", b"")
    with spawn(jail, script, stdout=DEVNULL, stderr=STDOUT) as process:
        assert process.communicate() == (b"", b"")


@pytest.mark.parametrize("value", [-4, "name", b"x", 1.5, STDOUT, object()])
def test_a_stream_that_is_none_is_refused(jail: Jail, value: object) -> None:
    """What is no stream must be refused by name and leave no descriptor behind."""
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="stdout"):
        spawn(jail, ["true"], stdin=PIPE, stdout=value)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_closed_descriptor_is_refused(jail: Jail) -> None:
    """A descriptor that is not open must raise, and the jail go on."""
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    for stream in ({"stdin": reader}, {"pass_fds": {5: reader}}):
        with pytest.raises((CommandError, OSError), match="ad file descriptor"):
            spawn(jail, ["true"], **stream)
    assert jail.run(["true"]).exit_code == 0


# ---- the end ---------------------------------------------------------------------------


def test_poll_wait_and_returncode(jail: Jail) -> None:
    """poll() must tell nothing while the program runs, and the code for ever after."""
    with spawn(jail, ["sh", "-c", "read x; exit 5"], stdin=PIPE) as process:
        assert process.poll() is None
        assert process.returncode is None
        assert "running" in repr(process)
        with pytest.raises(CommandTimeout):
            process.wait(timeout=0.1)
        process.stdin.write(b"\n")
        assert process.wait() == process.wait(timeout=0) == process.poll() == 5
        assert process.returncode == 5
        assert process.usage.wall_seconds > 0
        assert process.stopped_by is None
        assert "returncode=5" in repr(process)


def test_communicate_can_be_repeated_after_a_timeout(jail: Jail) -> None:
    """No output may be lost when communicate() times out and is called again."""
    script = "import sys, time\nfor n in range(40):\n print(n, flush=True); time.sleep(0.02)"
    with spawn(jail, [PYTHON, "-IBS", "-c", script], stdin=PIPE, stdout=PIPE) as process:
        timeouts = 0
        while True:
            try:
                output, _ = process.communicate(b"x" * 500_000, timeout=0.1)
                break
            except CommandTimeout:
                timeouts += 1
    assert timeouts >= 2
    assert output.split() == [str(n).encode() for n in range(40)]


def test_communicate_keeps_its_time_during_a_flood(jail: Jail) -> None:
    """A program that never stops writing must not keep communicate(timeout=) from returning."""
    with spawn(jail, ["yes"], stdout=PIPE) as process:
        start = time.monotonic()
        with pytest.raises(CommandTimeout):
            process.communicate(timeout=0.5)
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGSEGV])
def test_signals_reach_the_program(jail: Jail, number: signal.Signals) -> None:
    """send_signal must reach the program, and the code tell which signal ended it."""
    with spawn(jail, ["sleep", "60"]) as process:
        process.send_signal(number)
        assert process.wait(timeout=10) == -number
        assert process.stopped_by is None
        process.send_signal(number)  # nothing is left: nothing happens


def test_terminate_can_be_handled_and_kill_not(jail: Jail) -> None:
    """terminate() must be a signal that a program can take, kill() the end of all of it."""
    text = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"asked\\n"))
os.fork()
print("ready", flush=True)
while True: time.sleep(1)
"""
    with spawn(jail, [PYTHON, "-IBS", "-c", text], stdout=PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.stdout.readline() == b"asked\n"
        process.kill()
        assert process.wait(timeout=10) == -signal.SIGKILL
        assert process.stopped_by == "killed"
        assert process.usage.killed == 2
        process.kill()


def test_a_kill_from_another_thread(jail: Jail) -> None:
    """kill() must work while another thread waits, and both see the same end."""
    for _ in range(20):
        process = spawn(jail, ["sleep", "60"], stdout=PIPE)
        timer = threading.Timer(0.02, process.kill)
        timer.start()
        assert process.communicate(timeout=20) == (b"", b"")
        timer.join()
        assert process.returncode == -signal.SIGKILL
        assert process.stopped_by == "killed"


def test_a_timeout_of_spawn_is_seen_afterwards(jail: Jail) -> None:
    """The timeout of a spawned program must end it and show in stopped_by, not raise."""
    with spawn(jail, ["sleep", "60"], timeout=0.2) as process:
        assert process.wait(timeout=10) == -signal.SIGKILL
        assert process.stopped_by == "timeout"
    with Jail(JailPolicy(limits=Limits(wall_seconds=0.3))) as limited:
        process = spawn(limited, ["sleep", "60"], timeout=50)
        assert process.wait(timeout=10) == -signal.SIGKILL
        assert process.stopped_by == "wall"


def test_fileno_is_readable_at_the_end(jail: Jail) -> None:
    """An event loop must be able to wait for the end by a descriptor."""
    import select

    with spawn(jail, ["sleep", "0.2"]) as process:
        assert select.select([process], [], [], 0)[0] == []
        assert select.select([process], [], [], 10)[0] == [process]
        assert process.poll() == 0


def test_leaving_the_block_ends_the_run(jail: Jail) -> None:
    """A with block must leave no program, and no open file."""
    with spawn(jail, ["sleep", "60"], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        files = [process.stdin, process.stdout, process.stderr]
    assert process.returncode == -signal.SIGKILL
    assert all(file.closed for file in files)


# ---- what the host measures and reads at the end ----


def test_communicate_after_the_end_loses_nothing(jail: Jail) -> None:
    """A caller that has already seen the end must still get all of the output."""
    script = "head -c 60000 /dev/zero; echo err >&2; exit 3"
    with spawn(jail, ["sh", "-c", script], stdout=PIPE, stderr=PIPE) as process:
        assert until(lambda: process.poll() is not None)
        assert process.communicate() == (bytes(60000), b"err\n")
        assert process.returncode == 3
        assert process.communicate() == (bytes(60000), b"err\n")


def test_what_is_written_after_the_end_is_not_read(jail: Jail) -> None:
    """Whoever got hold of a run's stdout may not feed the host after the end of that run."""
    reading, writing = os.pipe()
    written = 0

    def flood() -> None:
        nonlocal written
        with suppress(BrokenPipeError):
            while True:
                written += os.write(writing, b"late" * 4096)

    with spawn(jail, ["true"], stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = open(reading, "rb", buffering=0)  # noqa: SIM115 (communicate closes it)
        assert until(lambda: process.poll() is not None)
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            assert until(lambda: written >= 49152)
            output, _ = process.communicate()
        finally:
            thread.join(20)
            os.close(writing)
        assert not thread.is_alive()
        assert 49152 <= len(output) <= 65536
        assert process.totals() == (len(output), 0)


def test_a_signal_to_itself_is_not_a_used_up_processor_limit(jail: Jail) -> None:
    """A program that sends itself SIGXCPU must not pass for one that used its time."""
    plain = jail.run(["sh", "-c", "kill -XCPU $$"])
    assert (plain.signal, plain.stopped_by) == (signal.SIGXCPU, None)
    with Jail(JailPolicy(limits=Limits(cpu_seconds=100))) as limited:
        forged = limited.run(["sh", "-c", "kill -XCPU $$"])
    assert (forged.signal, forged.stopped_by) == (signal.SIGXCPU, None)
    assert forged.violations == ()
    with Jail(JailPolicy(limits=Limits(cpu_seconds=1))) as limited:
        honest = limited.run(["sh", "-c", "while :; do :; done"], timeout=30)
    assert (honest.signal, honest.stopped_by) == (signal.SIGXCPU, "cpu")
    assert [violation.kind for violation in honest.violations] == ["limits.cpu_seconds"]


# ---- terminals -----------------------------------------------------------------------


def typed(process: Any, until: bytes, *, seconds: float = 10) -> bytes:
    """Read from a terminal until *until* has come."""
    output = b""
    end = time.monotonic() + seconds
    while until not in output and time.monotonic() < end:
        output += process.pty.read(4096) or b""
    assert until in output, output
    return output


def test_a_terminal_has_a_size_that_can_change(jail: Jail) -> None:
    """The program must see its terminal, its size, and a change of it."""
    script = (
        "tty; stty size; trap 'stty size; exit 7' WINCH; echo ready; while :; do sleep 0.05; done"
    )
    with spawn(jail, ["bash", "-c", script], pty=True, rows=30, cols=100) as process:
        assert process.pty.isatty()
        output = typed(process, b"ready")
        assert output.split(b"\r\n")[:2] == [b"/dev/pts/0", b"30 100"]
        process.resize(50, 132)
        typed(process, b"50 132")
        assert process.wait(timeout=10) == 7


def test_a_shell_on_a_terminal_has_job_control(jail: Jail) -> None:
    """Keys must be signals, and jobs be stopped and continued."""
    with spawn(jail, ["bash", "--norc", "-i"], pty=True, env={"PS1": "> "}) as process:
        typed(process, b"> ")
        process.pty.write(b"sleep 50\n")
        time.sleep(0.3)
        process.pty.write(b"\x1a")
        typed(process, b"Stopped")
        process.pty.write(b"kill %1; fg\n")
        typed(process, b"Terminated")
        process.pty.write(b"sleep 50\n")
        time.sleep(0.3)
        process.pty.write(b"\x03")
        process.pty.write(b"exit 9\n")
        typed(process, b"exit")
        assert process.wait(timeout=10) == 9


@pytest.mark.parametrize("way", ["quick", "slow", "background"])
def test_pt_02_the_last_bytes_of_a_terminal_are_not_lost(jail: Jail, way: str) -> None:
    """However fast the program ends, all that it wrote must be read, to its last word."""
    script = "head -c 3000 /dev/zero | tr '\\0' x; printf END"
    if way == "background":
        script = f"sleep 30 & {script}"
    for _ in range(TERMINAL_ROUNDS // 3):
        with spawn(jail, ["sh", "-c", script], pty=True) as process:
            if way == "slow":
                output = b""
                while chunk := process.pty.read(100):
                    output += chunk
                    time.sleep(0.0005)
                assert process.wait(timeout=10) == 0
            else:
                output, _ = process.communicate(timeout=10)
        assert output == b"x" * 3000 + b"END"
        assert process.returncode == 0


def test_much_output_of_a_terminal(jail: Jail) -> None:
    """A terminal must carry more than its buffer holds."""
    script = "seq 1 30000; printf END"
    with spawn(jail, ["sh", "-c", script], pty=True) as process:
        output, _ = process.communicate(timeout=20)
    wanted = b"".join(b"%d\r\n" % n for n in range(1, 30_001)) + b"END"
    assert output == wanted


def test_a_terminal_is_all_three_streams(jail: Jail) -> None:
    """pty=True together with a stream must be refused, and so must resizing what is none."""
    with pytest.raises(ValueError, match="pty"):
        spawn(jail, ["true"], pty=True, stdout=PIPE)
    with spawn(jail, ["true"]) as process, pytest.raises(ValueError, match="resize"):
        process.resize(1, 1)
    for rows, columns in ((0, 80), (24, 0), (-1, 80), (24, 1 << 20)):
        with pytest.raises(ValueError, match=r"(rows|cols): a whole number from 1 to 32767"):
            spawn(jail, ["true"], pty=True, rows=rows, cols=columns)


def test_several_terminals_at_once(jail: Jail) -> None:
    """Each program must talk on its own terminal."""
    processes = [spawn(jail, ["sh", "-c", "read x; echo got $x"], pty=True) for _ in range(5)]
    for number, process in enumerate(processes):
        process.pty.write(b"line %d\n" % number)
    for number, process in enumerate(processes):
        output, _ = process.communicate(timeout=10)
        assert b"got line %d" % number in output
        process.close()


def test_a_program_that_closes_its_output_is_seen_to_have_done_so() -> None:
    """Nobody else may hold a program's streams open: its reader waits for their end."""
    with (
        Jail(JailPolicy()) as jail,
        jail.spawn(["sh", "-c", "exec >&- <&-; sleep 30"], stdin=PIPE, stdout=PIPE) as process,
    ):
        start = time.monotonic()
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.read() == b""
        with pytest.raises(BrokenPipeError):
            process.stdin.write(b"x" * 1_000_000)
        assert time.monotonic() - start < 10
        assert process.poll() is None


# ---- the tree: listing, suspending, stopping -------------------------------------------


def states(jail: Jail) -> dict[str, str]:
    """Return the state of each process of the jail by its arguments' name."""
    return {f"{process.name}{process.pid}": process.state for process in jail.processes()}


def test_the_processes_of_a_jail_are_listed(jail: Jail) -> None:
    """Each process must be there with its parent and its run, and those of the jail not."""
    assert jail.processes() == ()
    with (
        spawn(jail, ["sh", "-c", "sleep 60 & wait"]) as first,
        spawn(jail, [PYTHON, "-c", "b = b'x' * (64 << 20)\nwhile True: pass"]) as second,
    ):
        assert until(lambda: len(jail.processes()) == 3)
        assert until(lambda: any(p.cpu_seconds > 0 for p in jail.processes()))
        shell, sleep, busy = sorted(jail.processes(), key=lambda p: (p.run, p.pid))
        assert (shell.pid, shell.run, shell.name) == (first.pid, first.pid, "sh")
        assert (sleep.parent, sleep.run, sleep.name) == (first.pid, first.pid, "sleep")
        assert (busy.pid, busy.run, busy.state) == (second.pid, second.pid, "R")
        assert until(lambda: max(p.memory for p in jail.processes()) > 64 << 20)
    assert jail.processes() == ()


def test_a_daemon_is_listed_under_its_run(jail: Jail) -> None:
    """A process that left its parent and its session must still be listed as of the run."""
    with spawn(jail, ["sh", "-c", "setsid sh -c 'sleep 60 &' ; sleep 50"]) as process:
        assert until(lambda: len(jail.processes()) == 3)
        assert {found.run for found in jail.processes()} == {process.pid}


def test_names_cannot_break_the_listing(jail: Jail) -> None:
    """A process may call itself anything, parentheses, spaces and newlines too."""
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b') S 1 1 (\\n'); time.sleep(60)"
    with spawn(jail, [PYTHON, "-c", code]) as process:
        # Asleep once it has had its turn after the call.
        assert until(
            lambda: [(p.name, p.state) for p in jail.processes()] == [(") S 1 1 (\n", "S")]
        )
        (found,) = jail.processes()
        assert (found.pid, found.run) == (process.pid, process.pid)


def test_suspend_stops_the_whole_run_and_nothing_else(jail: Jail) -> None:
    """All of one run must stand still at once, daemons too, and go on afterwards."""
    fork = "while :; do sleep 0.01 & sleep 0.01; done"
    with (
        spawn(jail, ["sh", "-c", f"setsid sh -c '{fork}' & {fork}"]) as process,
        spawn(jail, ["sleep", "60"]) as other,
    ):
        assert until(lambda: len(jail.processes()) > 4)
        process.suspend()
        process.suspend()
        first = jail.processes()
        # D: a shell that waits until its vfork child, which is stopped, has executed.
        assert {p.state for p in first if p.run == process.pid} <= {"T", "Z", "D"}
        assert {p.state for p in first if p.run == other.pid} == {"S"}
        time.sleep(0.1)
        assert jail.processes() == first
        process.resume()
        assert until(lambda: {p.pid for p in jail.processes()} != {p.pid for p in first})
        process.suspend()
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
        assert [p.run for p in jail.processes()] == [other.pid]
        process.suspend()
        process.resume()


def test_resume_leaves_what_job_control_had_stopped(jail: Jail) -> None:
    """A job that was stopped before must still be stopped after a resume."""
    with spawn(jail, ["sh", "-c", "sleep 60 & kill -STOP $!; wait"]) as process:
        assert until(lambda: "T" in {p.state for p in jail.processes()})
        process.suspend()
        assert {p.state for p in jail.processes()} == {"T"}
        process.resume()
        assert until(lambda: sorted(p.state for p in jail.processes()) == ["S", "T"])
        time.sleep(0.05)
        assert sorted(p.state for p in jail.processes()) == ["S", "T"]


def test_suspending_while_another_thread_waits(jail: Jail) -> None:
    """The answer of the keeper must be told from the end of the run, whoever reads it."""
    with spawn(jail, ["sleep", "60"], stdout=PIPE) as process:
        waiter = threading.Thread(target=process.communicate)
        waiter.start()
        for _ in range(100):
            process.suspend()
            assert [p.state for p in jail.processes()] == ["T"]
            process.resume()
        process.kill()
        waiter.join(10)
        assert process.returncode == -signal.SIGKILL


def test_a_suspended_run_still_times_out(jail: Jail) -> None:
    """A time limit must hold for what stands still."""
    with spawn(jail, ["sleep", "60"], timeout=0.3) as process:
        process.suspend()
        assert process.wait(10) == -signal.SIGKILL
        assert process.stopped_by == "timeout"


def test_suspending_many_processes_does_not_blind_the_keeper() -> None:
    """Orders must be taken while processes settle, of which one never does."""
    many = """
for _ in range(700):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
CLONE_VFORK = 0x4000
if result("clone", CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    print("ready", flush=True)
    time.sleep(60)
"""
    with (
        Jail(JailPolicy()) as jail,
        spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + many], stdout=PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.read(6) == b"ready\n"
        start = time.monotonic()
        process.suspend()
        assert time.monotonic() - start < 1
        assert {p.state for p in jail.processes()} == {"T", "D"}
        process.kill()
        assert process.wait(10) == -signal.SIGKILL


def test_stop_asks_first(jail: Jail) -> None:
    """`stop` must let a program end by itself, and end one that does not."""
    polite = ["sh", "-c", "trap 'exit 4' TERM; while :; do sleep 0.01; done"]
    with spawn(jail, polite) as process:
        assert until(lambda: len(jail.processes()) > 0)
        time.sleep(0.1)
        assert process.stop() == 4
        assert process.stopped_by is None
    with spawn(jail, ["sh", "-c", "trap '' TERM; while :; do sleep 0.01; done"]) as process:
        time.sleep(0.1)
        assert process.stop(grace=0.2) == -signal.SIGKILL
        assert process.stopped_by == "killed"


# ---- one keeper after another run --------------------------------------------------------


def test_a_run_is_measured_without_the_one_before() -> None:
    """What a run used, left behind or had stopped must not show in the next one."""
    heavy = "import os\nb = b'x' * (200 << 20)\nfor _ in range(3):\n    os.fork()\n"
    with Jail(JailPolicy()) as jail:
        first = jail.run([PYTHON, "-c", heavy + "sum(range(10**7))"])
        assert first.usage.max_memory > 200 << 20
        assert first.usage.cpu_seconds > 0.05
        with spawn(jail, ["sh", "-c", "sleep 60 & sleep 60 & sleep 60"]) as process:
            assert until(lambda: len(jail.processes()) >= 3)
            process.suspend()
        assert process.usage.killed >= 3
        second = jail.run(["true"])
        assert second.exit_code == 0
        assert second.usage.max_memory < 50 << 20
        assert second.usage.cpu_seconds < first.usage.cpu_seconds
        assert second.usage.killed == 0


def test_orders_that_come_too_late_reach_no_other_run(jail: Jail) -> None:
    """A signal, a kill or a suspension of a run that just ended must not hit the next one."""
    orders = ("kill", "signal", "suspend")
    for number in range(150):
        process = spawn(jail, ["true"])
        time.sleep(number % 10 / 5000)  # it ends about now, and nobody has looked yet
        order = orders[number % 3]
        if order == "kill":
            process._run.kill()
        elif order == "signal":
            process._run.signal(signal.SIGKILL)
        else:
            process._run.suspend(suspended=True)
            process._run.kill()
        process.wait(10)
        result = jail.run(["sh", "-c", "echo whole"])
        assert (result.exit_code, result.stdout, result.stopped_by) == (0, b"whole\n", None)


def test_a_descriptor_that_was_asked_for_stays(jail: Jail) -> None:
    """The descriptor of a run in an event loop must not become that of another run."""
    with spawn(jail, ["true"]) as process:
        number = process.fileno()
        assert process.wait(10) == 0
        before = os.fstat(number).st_ino
        with spawn(jail, ["sleep", "60"]) as other:
            assert other.fileno() != number
            assert os.fstat(number).st_ino == before


# ---- forked hosts and threads --------------------------------------------------------------


@pytest.mark.parametrize("act", ["close", "poll", "wait", "kill", "drop"])
def test_a_forked_child_of_the_host_touches_no_run(jail: Jail, act: str) -> None:
    """Whatever a forked child does with a process, its end must be the parent's to see."""
    process = spawn(jail, ["sh", "-c", "read x; exit 7"], stdin=PIPE)
    child = os.fork()
    if child == 0:
        code = 0
        try:
            if act == "drop":
                del process
            else:
                getattr(process, act)()
        except JailClosed:
            code = 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == int(act not in ("close", "drop"))
    process.stdin.write(b"\n")
    process.stdin.close()
    assert (process.wait(10), process.stopped_by) == (7, None)


def test_input_is_written_once_whoever_else_looks(jail: Jail) -> None:
    """While one thread communicates, polls of others must neither write input nor lose any."""
    import hashlib

    data = os.urandom(8 << 20)
    for _ in range(5):
        with spawn(jail, ["sha256sum"], stdin=PIPE, stdout=PIPE) as process:
            done = threading.Event()

            def look(process: Any = process, done: threading.Event = done) -> None:
                while not done.is_set():
                    process.poll()

            threads = [threading.Thread(target=look) for _ in range(2)]
            for thread in threads:
                thread.start()
            output, _ = process.communicate(data)
            done.set()
            for thread in threads:
                thread.join()
            assert output.split()[0].decode() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("way", ["close", "communicate", "let go"])
def test_input_that_nobody_took_leaves_no_descriptor(jail: Jail, way: str) -> None:
    """A pipe whose program ended before its input did may not stay open in the host."""

    def leave() -> None:
        process = spawn(jail, ["sleep", "60"], stdin=PIPE)
        with pytest.raises(CommandTimeout):
            process.communicate(bytes(2 << 20), timeout=0.05)
        process.kill()
        process.wait(10)
        if way == "close":
            process.close()
            kept.append(process)
        elif way == "communicate":
            process.communicate()
            kept.append(process)

    def pipes() -> int:
        names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return sum(os.readlink(n).startswith("pipe:") for n in names if os.path.islink(n))

    kept: list[Any] = []
    before = pipes()
    for _ in range(3):
        leave()
    assert pipes() == before


def test_objects_that_are_collected_in_any_order_free_nothing_twice() -> None:
    """A cycle's finalizers come in any order; the heap of the host must survive it."""
    code = (
        "import gc, os, visruntime as vr\n"
        "from visruntime.runtime import Runtime\n"
        "for turn in range(6):\n"
        "    with Runtime(vr.JailPolicy()) as original:\n"
        "        original.run('1'); copy = original.fork(); copy.run('1')\n"
        "    jail = vr.Jail(vr.JailPolicy()); process = jail.spawn(['sleep', '60'])\n"
        "    piped = jail.spawn(['sleep', '60'], stdin=-1, stdout=-1, stderr=-1)\n"
        "    ends = [file.fileno() for file in (piped.stdin, piped.stdout, piped.stderr)]\n"
        "    jail.mine = process.mine = [jail, process, piped, jail._handle, process._run]\n"
        "    if turn % 2:\n"
        "        del jail, process, piped, copy, original; gc.collect()\n"
        "        assert not any(os.path.exists(f'/proc/self/fd/{end}') for end in ends)\n"
        "print('end')\n"
    )
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "165"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")

"""Boundary: time. Nothing of a run outlives the run, nothing of a jail its host."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Jail,
    JailPolicy,
    Limits,
    backends,
    children_of,
    inside,
    is_root,
    jail_by,
    processes,
    spawn,
    until,
)

from visruntime.errors import CommandTimeout, JailClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CRASH_ROUNDS = 1000 if os.environ.get("VIS_FULL") else 60
PR_SET_CHILD_SUBREAPER = 36
LONGEST_END = 1.5  # seconds; it takes 0.05, and 0.2 by one signal after the other
CALM = 1.0  # seconds until nothing of a jail may be left

DAEMONS = """
import os, sys, time, threading, ctypes
def background():
    path = os.environ["BEAT"]
    while True:
        with open(path, "a") as file: file.write("x")
        time.sleep(0.02)
def plain():
    if os.fork() == 0: background()
def session():
    if os.fork() == 0:
        os.setsid(); background()
def double():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: background()
        os._exit(0)
def detached():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            null = os.open("/dev/null", os.O_RDWR)
            for number in range(3): os.dup2(null, number)
            background()
        os._exit(0)
def ignoring():
    import signal
    if os.fork() == 0:
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        background()
def stopped():
    import signal
    if os.fork() == 0:
        threading.Thread(target=background).start()
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGSTOP)
def first_thread_gone():
    if os.fork() == 0:
        os.setsid()
        threading.Thread(target=background).start()
        ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)
def chain():
    for number in range(60):
        if os.fork():
            if number: background()
            return
    background()
def vfork():
    import subprocess
    subprocess.Popen(["sh", "-c", 'while :; do printf x >> "$BEAT"; sleep 0.02; done'],
        start_new_session=True)
globals()[sys.argv[1]]()
time.sleep(0.2)
"""
KINDS = ("plain session double detached ignoring stopped first_thread_gone chain vfork").split()


def beats(path: Path) -> int:
    """Return how much the background has written."""
    return path.stat().st_size if path.exists() else 0


def settled(path: Path) -> bool:
    """Tell whether nobody writes any more."""
    before = beats(path)
    time.sleep(0.15)
    return beats(path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_sc_03_what_a_program_leaves_behind_ends_with_it(workspace: Path, kind: str) -> None:
    """No daemon must live on after its program, and no other run of the jail be hurt."""
    beat, other = workspace / "beat", workspace / "other"
    command = [PYTHON, "-IBS", "-c", DAEMONS, kind]
    with Jail(JailPolicy(write=[workspace])) as jail:
        script = f"while :; do printf x >> {other}; sleep 0.02; done"
        with spawn(jail, ["sh", "-c", script]) as survivor:
            start = time.monotonic()
            result = jail.run(command, env={"BEAT": str(beat)}, timeout=20)
            assert time.monotonic() - start < 10
            assert result.exit_code == 0
            assert result.usage.killed >= 1
            assert beats(beat) > 0
            assert settled(beat)
            assert survivor.poll() is None
            assert not settled(other)
        assert settled(other)
        assert jail.run(["true"]).exit_code == 0


def test_sc_03_the_control_lives_on(workspace: Path) -> None:
    """The same daemon started without a jail must outlive its program."""
    beat = workspace / "beat"
    subprocess.run([PYTHON, "-IBS", "-c", DAEMONS, "detached"], env={"BEAT": str(beat)}, check=True)
    assert not settled(beat)
    for pid, _ in processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if f"BEAT={beat}".encode() in file.read():
                os.kill(pid, signal.SIGKILL)
    assert until(lambda: settled(beat))


def test_sc_01_a_timeout_ends_the_whole_tree(workspace: Path) -> None:
    """Children that hold the pipe must neither delay the return nor write on."""
    beat = workspace / "t"
    script = f"(while :; do echo x; date > {beat}; sleep .1; done) & sleep 300"
    with Jail(JailPolicy(write=[workspace])) as jail:
        start = time.monotonic()
        with pytest.raises(CommandTimeout) as caught:
            jail.run(["sh", "-c", script], timeout=1)
        assert time.monotonic() - start < 3
        assert caught.value.result.stdout.startswith(b"x\n")
        assert caught.value.result.stopped_by == "timeout"
        assert settled(beat)
        before = beat.stat().st_mtime_ns
        time.sleep(0.3)
        assert beat.stat().st_mtime_ns == before
        assert inside(jail, COUNT) == 1


COUNT = """
def name_of(pid):
    try:
        return open("/proc/%s/comm" % pid).read().strip()
    except OSError:
        return "visjail-init"
answer(sum(name_of(n) != "visjail-init" for n in os.listdir("/proc") if n.isdigit()))
"""


def test_a_grandchild_that_holds_the_pipe_delays_nothing(workspace: Path) -> None:
    """The call must return when the program ends, whoever has its output open."""
    with Jail(JailPolicy()) as jail:
        start = time.monotonic()
        result = jail.run(["sh", "-c", "(sleep 20; echo LATE) & echo early; exit 7"])
        assert time.monotonic() - start < 2
    assert (result.exit_code, result.stdout) == (7, b"early\n")
    assert result.usage.killed in (1, 2)  # the subshell, and its child if it had one yet


THREAD_BOMB = """
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(99,)).start()
    except RuntimeError: time.sleep(0.01)
"""


@pytest.mark.parametrize("bomb", ["shell", "python", "threads"])
def test_lm_01_a_fork_bomb_ends_with_its_run(bomb: str) -> None:
    """A bomb must stay within its limit, leave the host alone and end on time."""
    if is_root() and not can_count():
        pytest.skip("the kernel does not count the processes of host uid 0")
    commands = {
        "shell": ["bash", "-c", ":(){ :|:& };:; sleep 60"],
        "python": [PYTHON, "-c", "import os\nwhile True:\n try: os.fork()\n except OSError: pass"],
        "threads": [
            PYTHON,
            "-c",
            THREAD_BOMB,
        ],
    }
    with Jail(JailPolicy(limits=Limits(processes=64))) as jail:
        start = time.monotonic()
        process = spawn(jail, commands[bomb], timeout=2)
        most = 0
        while time.monotonic() - start < 1.5:
            most = max(most, tasks_below(os.getpid()))
            spawned = time.monotonic()
            subprocess.run(["true"], check=True)
            assert time.monotonic() - spawned < 1
            time.sleep(0.1)
        assert process.wait(timeout=10) == -signal.SIGKILL
        assert process.stopped_by == "timeout"
        assert time.monotonic() - start < 6
        assert 30 < most < 80
        assert inside(jail, COUNT) == 1


def can_count() -> bool:
    """Tell whether RLIMIT_NPROC counts for the guests of this caller."""
    with Jail(JailPolicy()) as jail:
        return "without capabilities" not in jail.report.identity


def tasks_below(pid: int) -> int:
    """Return how many threads the descendants of a process have."""
    return sum(int(status.get("Threads", 1)) for status in children_of(pid).values())


def test_a_deep_chain_of_processes_ends_quickly() -> None:
    """Hundreds of nested processes must not make the end of a run slow."""
    text = """
import os, time
reader, writer = os.pipe()
for depth in range(250):
    if os.fork():
        if depth: time.sleep(60)
        break
else:
    os.write(writer, b"x")
    time.sleep(60)
os.read(reader, 1)
"""
    with Jail(JailPolicy()) as jail:
        start = time.monotonic()
        result = jail.run([PYTHON, "-IBS", "-c", text], timeout=30)
        assert result.exit_code == 0
        assert result.usage.killed == 250
        assert time.monotonic() - start < 20


def test_close_leaves_nothing(workspace: Path) -> None:
    """After close() there must be no process, no mount and no file of the jail."""
    mounts = Path("/proc/self/mountinfo").read_text()
    before = children_of(os.getpid())
    jail = Jail(JailPolicy(write=[workspace]))
    spawn(jail, [PYTHON, "-IBS", "-c", DAEMONS, "detached"], env={"BEAT": str(workspace / "b")})
    process = spawn(jail, ["sleep", "60"])
    assert len(children_of(os.getpid())) > len(before)
    jail.close()
    assert children_of(os.getpid()).keys() == before.keys()
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert process.wait(timeout=5) == -signal.SIGKILL
    assert process.stopped_by == "closed"
    assert settled(workspace / "b")
    assert jail.closed
    jail.close()
    with pytest.raises(JailClosed):
        jail.run(["true"])


def test_a_killed_keeper_closes_the_jail() -> None:
    """When a supervisor of a run is gone the jail must end, not run on without control."""
    with Jail(JailPolicy()) as jail:
        process = spawn(jail, ["sleep", "61"])
        other = spawn(jail, ["sleep", "62"])
        table = children_of(os.getpid())
        sleeper = next(p for p, s in table.items() if s["Name"] == "sleep")
        os.kill(int(table[sleeper]["PPid"]), signal.SIGKILL)
        assert until(lambda: jail.closed)
        for each in (process, other):
            assert each.wait(timeout=5) == -signal.SIGKILL
            assert each.stopped_by == "closed"
        with pytest.raises(JailClosed):
            jail.run(["true"])
    assert not [s for s in children_of(os.getpid()).values() if s["Name"] == "sleep"]


def test_a_killed_init_closes_the_jail() -> None:
    """When pid 1 of a jail is killed from outside, calls must say that the jail has ended."""
    with Jail(JailPolicy()) as jail:
        process = spawn(jail, ["sleep", "63"])
        table = children_of(os.getpid())
        first = next(p for p, s in table.items() if int(s["PPid"]) == os.getpid())
        os.kill(first, signal.SIGKILL)
        assert process.wait(timeout=5) == -signal.SIGKILL
        assert process.stopped_by == "closed"
        with pytest.raises(JailClosed):
            jail.run(["true"])


def stop(table: dict[int, dict[str, str]], name: str) -> tuple[int, int]:
    """Return the pids of the keeper and of pid 1 above the process *name*."""
    # Its parent goes on as soon as it executes; its name follows a moment later.
    for _ in range(100):
        if any(s["Name"] == name for s in table.values()):
            break
        time.sleep(0.01)
        table = children_of(os.getpid())
    keeper = int(next(s for s in table.values() if s["Name"] == name)["PPid"])
    return keeper, int(table[keeper]["PPid"])


def test_a_stopped_keeper_ends_its_jail() -> None:
    """A keeper that was stopped must not hold up its run: pid 1 sees it and ends the jail."""
    with Jail(JailPolicy()) as jail:
        process = spawn(jail, ["sleep", "64"])
        keeper, _ = stop(children_of(os.getpid()), "sleep")
        os.kill(keeper, signal.SIGSTOP)
        start = time.monotonic()
        assert process.wait(timeout=30) == -signal.SIGKILL
        assert process.stopped_by == "closed"
        while not jail.closed:
            assert time.monotonic() - start < 5
            time.sleep(0.01)
    assert not [s for s in children_of(os.getpid()).values() if s["Name"] == "sleep"]


def test_supervisors_that_cannot_run_lose_the_jail() -> None:
    """A run that does not end when it is told to must take its jail with it, in bounded time."""
    with Jail(JailPolicy()) as jail:
        process = spawn(jail, ["sleep", "64"])
        for pid in reversed(stop(children_of(os.getpid()), "sleep")):
            os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        process.kill()
        assert process.wait(timeout=30) == -signal.SIGKILL
        assert process.stopped_by == "killed"
        assert 5 < time.monotonic() - start < 20
        assert jail.closed
    assert not [s for s in children_of(os.getpid()).values() if s["Name"] == "sleep"]


HOST = """
import os, random, sys, threading, time
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
print("ready", flush=True)
jails = []
while True:
    jail = Jail(JailPolicy())
    jails.append(jail)
    jail.spawn(["sh", "-c", f"setsid sleep 4711{os.getpid()} & sleep 4711{os.getpid()}"])
    if sys.argv[1] == "fork" and len(jails) == 1 and os.fork() == 0:
        time.sleep(30)  # keeps every descriptor that there is
    jail.run(["true"])
    if len(jails) > 3:
        jails.pop(0).close()
"""


@pytest.fixture
def hosts() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return a list of processes that are killed after the test."""
    started: list[subprocess.Popen[bytes]] = []
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield started
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    # What they left are children of this process now: hundreds, through which later tests would look.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


OF_A_JAIL = ("visjail-init", "setsid", "sleep", "sh", "true")


def left_of(host: int) -> dict[int, str]:
    """Return what is left of a host's jails; this process adopts the orphans of its children."""
    return {
        pid: status["Name"]
        for pid, status in children_of(os.getpid()).items()
        if pid != host and status["Name"] in OF_A_JAIL
    }


def nothing_is_left_of(host: int) -> bool:
    """Tell whether all is gone within the time that it may take."""
    return until(lambda: not left_of(host), seconds=CALM)


@pytest.mark.parametrize("mode", ["plain", "fork"])
def test_kill_9_of_the_host_leaves_nothing(hosts: list[subprocess.Popen[bytes]], mode: str) -> None:
    """However and whenever the host dies, no process of a jail must be left a second later."""
    generator = random.Random(20)
    found = 0
    rounds = CRASH_ROUNDS if mode == "plain" else CRASH_ROUNDS // 6
    for number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", HOST, mode],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        hosts.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(generator.random() * 0.12)
        found += bool(left_of(process.pid))
        process.kill()
        process.wait()
        assert nothing_is_left_of(process.pid), (number, left_of(process.pid))
    assert found, "no jail was ever seen: the check saw nothing"


def test_the_thread_that_opened_a_jail_may_end() -> None:
    """A jail must live as long as its process, not as long as the thread that opened it."""
    opened: list[Jail] = []
    thread = threading.Thread(target=lambda: opened.append(Jail(JailPolicy())))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with opened[0] as jail:
        assert jail.run(["echo", "alive"]).stdout == b"alive\n"


def run_host(text: str) -> str:
    """Run a host program of its own and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_host_that_ignores_sigchld() -> None:
    """With SIGCHLD ignored, exits must still be told, and close() must return."""
    output = run_host("""
        import signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        from visruntime.jail import Jail
        from visruntime.policy import JailPolicy
        with Jail(JailPolicy()) as jail:
            print(jail.run(["sh", "-c", "exit 3"]).exit_code)
            print(jail.run(["sh", "-c", "sleep 50 & sh -c 'exit 4'; exit $?"]).exit_code)
    """)
    assert output == "3\n4\n"


def test_a_host_that_reaps_all_its_children() -> None:
    """A host that waits for any child must break neither the runs nor close()."""
    output = run_host("""
        import os, threading
        from visruntime.jail import Jail
        from visruntime.policy import JailPolicy
        def reap():
            while True:
                try: os.waitpid(-1, 0)
                except ChildProcessError: pass
        threading.Thread(target=reap, daemon=True).start()
        for number in range(5):
            with Jail(JailPolicy()) as jail:
                print(jail.run(["sh", "-c", f"exit {number}"]).exit_code)
        os._exit(0) if not os.sys.stdout.flush() else None
    """)
    assert output == "0\n1\n2\n3\n4\n"


def test_a_forked_child_of_the_host_only_lets_go() -> None:
    """In a forked child the jail must be closed to use, and the parent's go on."""
    output = run_host("""
        import os
        from visruntime.jail import Jail
        from visruntime.policy import JailPolicy
        from visruntime.errors import JailClosed
        jail = Jail(JailPolicy())
        process = jail.spawn(["sleep", "2"])
        child = os.fork()
        if child == 0:
            try:
                jail.run(["true"])
                code = 1
            except JailClosed:
                code = 0
            jail.close()
            del process, jail
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(jail.run(["echo", "on"]).stdout.decode().strip(), process.wait())
        jail.close()
    """)
    assert output == "0\non 0\n"


def test_closing_while_programs_run_in_other_threads() -> None:
    """Every call that is under way must return when the jail is closed under it."""
    ends: list[str | None] = []

    def use(jail: Jail) -> None:
        try:
            ends.append(jail.run(["sleep", "60"]).stopped_by)
        except JailClosed:
            ends.append("closed")

    jail = Jail(JailPolicy())
    threads = [threading.Thread(target=use, args=(jail,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    jail.close()
    for thread in threads:
        thread.join(10)
    assert ends == ["closed"] * 6


def test_who_closes_second_waits_as_well() -> None:
    """`close` may not return while something of the jail is left, whoever began to close it."""
    jail = Jail(JailPolicy())
    script = "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done; echo; wait"
    process = spawn(jail, ["sh", "-c", script], stdout=-1)
    assert process.stdout.read(1) == b"\n"
    supervisor = f"/proc/{jail._handle.info['pid']}"
    assert os.path.exists(supervisor)
    first = threading.Thread(target=jail.close)
    first.start()
    while not jail._closed:
        time.sleep(0)
    jail.close()
    left = os.path.exists(supervisor)
    first.join()
    process.close()
    assert not left


def test_opening_and_closing_leaks_no_descriptor() -> None:
    """Many jails and runs must leave the host's descriptors as they were."""
    with Jail(JailPolicy()) as jail:
        jail.run(["true"])
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with Jail(JailPolicy()) as jail:
            jail.run(["cat"], input=b"x")
            with contextlib.suppress(FileNotFoundError):
                jail.run(["no-such-program"])
            with spawn(jail, ["cat"], pty=True) as process:
                process.pty.write(b"x")
            spawn(jail, ["sleep", "9"], stdout=-1).close()
            jail.exists("/tmp/x")
        del process
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_process_that_is_let_go_of_ends() -> None:
    """A run whose object nobody holds must end: nothing runs on without an owner."""
    with Jail(JailPolicy()) as jail:
        process = spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + "time.sleep(60)"])
        assert inside(jail, COUNT) == 2
        del process
        assert until(lambda: inside(jail, COUNT) == 1)


RESUMES = """
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int),
                ("rest", ctypes.c_char * 48)]
libc.timer_create.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
libc.timer_settime.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
signal.signal(signal.SIGCONT, lambda *_: None)
event = Event(None, signal.SIGCONT, 0)
for number in range(600): # once each: a signal that waits when the stop comes is lost
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
    after = 200 + number * 50
    pause = (ctypes.c_long * 4)(0, 0, after // 1000, after % 1000 * 1000000)
    assert libc.timer_settime(timer, 0, pause, None) == 0
print("ready", flush=True)
"""
GOES_ON = {
    "sleeps": "while True: time.sleep(0.02)",
    # Its first thread tells nothing of the others.
    "without its first thread": """
import threading
def goes_on():
    while True: time.sleep(0.02)
threading.Thread(target=goes_on).start()
libc.syscall(60, 0)
""",
    # Whoever looks at it finds it stopped.
    "stops itself": """
while True:
    end = time.monotonic() + 0.003
    while time.monotonic() < end: pass
    os.kill(os.getpid(), signal.SIGSTOP)
""",
}


@pytest.mark.parametrize(
    ("backend", "way"),
    [
        *((backend, "sleeps") for backend in backends()),
        ("namespaces", "stops itself"),
        ("namespaces", "without its first thread"),
    ],
)
def test_a_run_that_has_itself_continued_is_ended(backend: str, way: str) -> None:
    """A suspended run must not go on by a timer that sends it SIGCONT."""
    text = PRELUDE + RESUMES + GOES_ON[way]
    with jail_by(backend) as jail:
        with spawn(jail, [PYTHON, "-IBS", "-c", text], stdout=-1) as process:
            assert process.stdout.readline() == b"ready\n"
            process.suspend()
            assert process.wait(28) != 0
            assert process.stopped_by == "killed"
        # The control: one that does nothing of the kind stands still, and is not ended.
        still = PRELUDE + "print('ready', flush=True)\nwhile True: pass"
        with spawn(jail, [PYTHON, "-IBS", "-c", still], stdout=-1) as process:
            assert process.stdout.readline() == b"ready\n"
            process.suspend()
            time.sleep(1.5)
            assert process.poll() is None
            process.resume()
            time.sleep(0.1)
            assert process.poll() is None


CHAINS = """
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
static long seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}
int main(void) {
    long end = seconds() + 6;
    for (int number = 0; number < 60; number++) {
        if (fork()) continue;
        while (seconds() < end) {
            if (fork() > 0) _exit(0);
        }
        _exit(0);
    }
    write(1, "ready\\n", 6);
    pause();
}
"""


def chains(program: Path) -> int:
    """Return how many processes of this machine run *program*."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found += program.name in Path(f"/proc/{name}/comm").read_text()
    return found


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("end", ["kill", "close"])
def test_chains_of_short_lives_end(
    backend: str, end: str, workspace: Path, tool: Callable[[str], str]
) -> None:
    """Processes that each start the next and end at once must not outrun who ends them."""
    program = workspace / f"chain-{os.getpid()}"
    command = [tool("cc"), "-O1", "-w", "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=CHAINS, text=True, check=True)
    with jail_by(backend, read=[str(workspace)]) as jail:
        process = spawn(jail, [str(program)], stdout=-1)
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        assert chains(program) > 0
        start = time.monotonic()
        if end == "kill":
            process.kill()
            assert process.wait() == -signal.SIGKILL
        else:
            jail.close()
        assert time.monotonic() - start < LONGEST_END
        assert chains(program) == 0

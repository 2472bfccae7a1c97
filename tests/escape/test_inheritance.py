"""What a jail does not take over from its host: session, priority, limits, and per-user budgets."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PYTHON,
    Egress,
    Jail,
    JailPolicy,
    Limits,
    backends,
    children_of,
    errno,
    inside,
    is_root,
    outside,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """Return a jail without any grant."""
    with Jail(JailPolicy()) as opened:
        yield opened


# ---- the session ------------------------------------------------------------------------


def session_and_group(pid: int) -> tuple[int, int]:
    """Return the session and the process group of a process of the host."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[3]), int(fields[2])


def test_the_supervisors_are_in_no_session_of_the_host(jail: Jail) -> None:
    """Signals of the host's terminal, and a share of its session, must not reach pid 1 or keepers."""
    jail.run(["true"])
    found = [pid for pid, s in children_of(os.getpid()).items() if s["Name"] == "visjail-init"]
    assert len(found) >= 2
    for pid in found:
        session, group = session_and_group(pid)
        assert session != os.getsid(0)
        assert group != os.getpgrp()


HOST = """
import os, signal, sys, time
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, lambda *_: None)
with Jail(JailPolicy()) as jail:
    print("ready", flush=True)
    process = jail.spawn(["sleep", "0.8"])
    print(process.wait(), jail.run(["echo", "alive"]).stdout_text, end="", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP])
def test_a_signal_to_the_hosts_group_is_the_hosts(number: signal.Signals) -> None:
    """^C, ^Z and a hang-up must do to a host what it makes of them, and nothing to its jails."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, number)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=30)[0] == "0 alive\n"


# ---- priority and limits -----------------------------------------------------------------

SELF = """
text = open("/proc/self/limits").read()
def limit(name):
    line = next(line for line in text.splitlines() if line.startswith(name))
    return line.removeprefix(name).split()[:2]
answer({
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "policy": os.sched_getscheduler(0),
    "oom": int(open("/proc/self/oom_score_adj").read()),
    "limits": [limit("Max nice priority"), limit("Max realtime priority")],
    "signals": int(limit("Max pending signals")[1]),
})
"""

FAVOURED = """
import json, os, resource, sys
sys.path[:0] = json.loads(sys.argv[1])
os.setpriority(os.PRIO_PROCESS, 0, -5)
try:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(3))
except PermissionError:  # as in a cgroup of processors that has no real time of its own
    sys.exit("this root may not raise its own priority")
open("/proc/self/oom_score_adj", "w").write("-500")
from jail_helpers import *
with Jail(JailPolicy()) as jail:
    print(json.dumps(inside(jail, sys.argv[2])))
"""


@pytest.mark.skipif(not is_root(), reason="only root favours itself")
def test_a_guest_is_not_favoured_because_its_host_is() -> None:
    """Priorities, real-time scheduling and OOM protection of the host must not be the guest's."""
    import json

    result = subprocess.run(
        [sys.executable, "-c", FAVOURED, json.dumps(sys.path), SELF],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.stderr == "this root may not raise its own priority\n":
        pytest.skip(result.stderr)
    assert result.returncode == 0, result.stderr
    guest = json.loads(result.stdout)
    assert (guest["nice"], guest["policy"], guest["oom"]) == (0, os.SCHED_OTHER, 0)
    assert guest["limits"] == [["0", "0"], ["0", "0"]]


def test_a_host_that_stands_back_keeps_its_guests_back() -> None:
    """A host with little priority must not start guests with more."""
    import json

    code = FAVOURED.replace("-5)", "7)").replace("-500", "300")
    code = code.replace("os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(3))", "pass")
    result = subprocess.run(
        [sys.executable, "-c", code, json.dumps(sys.path), SELF],
        capture_output=True,
        text=True,
        check=True,
    )
    guest = json.loads(result.stdout)
    assert (guest["nice"], guest["oom"]) == (7, 300)


def test_no_guest_starts_a_core_handler(jail: Jail) -> None:
    """RLIMIT_CORE must stay 1, whatever a guest asks for, and asking must not be an error."""
    text = """
import resource, subprocess
def core(): return list(resource.getrlimit(resource.RLIMIT_CORE))
answers = [core(), attempt(resource.setrlimit, resource.RLIMIT_CORE, (0, 0)), core(),
    attempt(resource.prlimit, 0, resource.RLIMIT_CORE, (0, 0)), core(),
    attempt(resource.prlimit, os.getpid(), resource.RLIMIT_CORE, (0, 0)), core()]
answer(answers)
"""
    *asked, own = outside(text)[1::2]
    assert (asked, own) == ([0, 0], 0)
    assert outside(text)[2] == [0, 0]
    assert inside(jail, text) == [[1, 1], 0, [1, 1], 0, [1, 1], errno.EPERM, [1, 1]]


# ---- budgets that count for the user ---------------------------------------------------------


@pytest.mark.skipif(is_root(), reason="a guest of root has a uid, and so budgets, of its own")
def test_the_users_inotify_instances_are_not_all_the_guests(jail: Jail) -> None:
    """A guest that takes all inotify instances it gets must leave some to the host's user."""
    libc = ctypes.CDLL(None, use_errno=True)
    text = """
taken = 0
while libc.inotify_init() >= 0: taken += 1
answer([taken, ctypes.get_errno()])
"""
    held = f"{text.replace('answer(', 'print(')}\nsys.stdout.flush(); time.sleep(60)"
    from jail_helpers import PRELUDE

    with jail.spawn([PYTHON, "-c", PRELUDE + held], stdout=-1) as process:
        assert process.stdout is not None
        taken, error = eval(process.stdout.readline())
        assert 0 < taken <= 32
        assert error == errno.EMFILE
        mine = libc.inotify_init()
        assert mine >= 0
        os.close(mine)


@pytest.mark.skipif(is_root(), reason="a guest of root has a uid, and so budgets, of its own")
def test_the_users_watches_and_queues_are_not_all_the_guests(jail: Jail) -> None:
    """A jail must get a part of what a user may watch, and of the memory of message queues."""
    with open("/proc/sys/fs/inotify/max_user_watches", encoding="ascii") as file:
        most = int(file.read())
    text = """
import resource
with open("/proc/sys/user/max_inotify_watches") as file: watches = int(file.read())
answer([watches, resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]])
"""
    text = text.replace("resource.RLIMIT_MSGQUEUE", "12")
    assert inside(jail, text) == [most // 8, 262144]
    watches, queues = outside(text)
    assert watches >= most // 8 * 8
    assert queues > 262144


UMASK = """
import os, sys
os.umask(0o177)
sys.path.insert(0, {tests!r})
from jail_helpers import inside, jail_by
with jail_by({backend!r}, read=[{folder!r}]) as jail:
    print(inside(jail, "answer([open({file!r}).read(), os.umask(0)])"))
"""


@pytest.mark.parametrize("backend", backends())
def test_the_umask_of_the_host_closes_no_grant(backend: str, workspace: Path) -> None:
    """A host that lets nobody enter its new folders must not lock its guests out of their grants."""
    (workspace / "data").write_text("hello")
    script = UMASK.format(
        backend=backend,
        folder=str(workspace),
        file=str(workspace / "data"),
        tests=str(Path(__file__).parent.parent),
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "['hello', 18]\n", done.stderr


def test_queued_signals_are_bounded(jail: Jail) -> None:
    """The queue of a guest's signals must be far below what the user has on this machine."""
    assert inside(jail, SELF)["signals"] <= 4096
    assert resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] > 4096


def test_no_guest_takes_requests_of_the_whole_machine(jail: Jail) -> None:
    """Asynchronous requests (aio-max-nr) count for the machine, so none are given."""
    text = """
import ctypes
context = ctypes.c_ulong(0)
answer(call("io_setup", 8, ctypes.byref(context)))
"""
    assert outside(text) == 0
    assert inside(jail, text) == errno.ENOSYS


def test_no_guest_hides_a_file_in_an_overlay(workspace: Path) -> None:
    """A whiteout (character device 0:0), which anybody may make, must be refused."""
    text = f'answer(attempt(os.mknod, "{workspace}/gone", stat.S_IFCHR | 0o600, 0))'
    assert outside(text) == 0
    (workspace / "gone").unlink()
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert inside(jail, text) == errno.EPERM
        rename = f"""
open("{workspace}/file", "w").close()
answer(call("renameat2", -100, b"{workspace}/file", -100, b"{workspace}/moved", FLAGS))
"""
        assert outside(rename.replace("FLAGS", "4")) == 0
        assert stat.S_ISCHR((workspace / "file").lstat().st_mode)
        (workspace / "file").unlink()
        assert inside(jail, rename.replace("FLAGS", "4")) == errno.EPERM
        assert inside(jail, rename.replace("FLAGS", "0")) == 0
        fifo = f'answer(attempt(os.mkfifo, "{workspace}/fifo"))'
        assert inside(jail, fifo) == 0


def test_no_guest_joins_the_port_of_a_server() -> None:
    """With the host's network, SO_REUSEPORT would share a server's port and take its clients."""
    text = """
s = socket.socket()
answer(attempt(s.setsockopt, socket.SOL_SOCKET, socket.SO_REUSEPORT, 1))
"""
    assert outside(text) == 0
    with Jail(JailPolicy(egress=Egress.OPEN)) as jail:
        assert inside(jail, text) == errno.ENOPROTOOPT
        reuse = text.replace("SO_REUSEPORT", "SO_REUSEADDR")
        assert inside(jail, reuse) == 0
    with Jail(JailPolicy()) as jail:
        assert inside(jail, text) == 0


# ---- what is measured, and what is tried -------------------------------------------------------


def test_the_end_of_processor_time_cannot_be_forged() -> None:
    """Time that children used must not make a program seem to have used up its own."""
    burn = """
import os, signal, time
for _ in range(3):
    if os.fork() == 0:
        while time.process_time() < 0.6: pass
        os._exit(0)
for _ in range(3): os.wait()
os.kill(os.getpid(), signal.{name})
"""
    with Jail(JailPolicy(limits=Limits(cpu_seconds=1))) as jail:
        for name in ("SIGKILL", "SIGXCPU"):
            result = jail.run([PYTHON, "-c", burn.format(name=name)])
            assert result.signal == signal.Signals[name]
            assert result.usage.cpu_seconds > 1
            assert (result.stopped_by, result.violations) == (None, ())
        result = jail.run([PYTHON, "-c", "while True: pass"])
        assert result.stopped_by == "cpu"
        assert [v.kind for v in result.violations] == ["limits.cpu_seconds"]


def test_a_program_that_runs_may_be_denied_for_writing(workspace: Path) -> None:
    """A running program answers ETXTBSY before its mount says EROFS; that is no broken jail."""
    program = workspace / "running"
    shutil.copy("/bin/sleep", program)
    with (
        subprocess.Popen([program, "60"]) as process,
        Jail(JailPolicy(write=[workspace], deny_write=[program])) as jail,
    ):
        canary = next(c for c in jail.report.canaries if str(program) in c.name)
        assert (canary.held, canary.errno) == (True, errno.EROFS)
        process.kill()

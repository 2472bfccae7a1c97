"""Boundary: the processors. No guest takes its supervisors' turn, so that they end it in time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PYTHON,
    Jail,
    JailPolicy,
    backends,
    children_of,
    errno,
    inside,
    jail_by,
    outside,
    spawn,
)

from visruntime.errors import CommandTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 1999999999  # a uid and a pid that no process has

ACTS = f"""
IDLE, RESET = 5, 0x40000000
zero = (ctypes.c_int * 1)(0)
attributes = (ctypes.c_uint32 * 12)(48, 3, 0, 0, 19)  # SCHED_BATCH, the lowest priority
def acts(pid):
    return dict(
        idle=call("sched_setscheduler", pid, IDLE, zero),
        batch=call("sched_setscheduler", pid, 3, zero),
        reset=call("sched_setscheduler", pid, RESET, zero),
        parameters=call("sched_setparam", pid, zero),
        attributes=call("sched_setattr", pid, attributes, 0),
        priority=call("setpriority", 0, pid, 19),
        group=call("setpriority", 1, os.getpgid(pid) or {NOBODY}, 19),
        user=call("setpriority", 2, {NOBODY}, 19),
        input=call("ioprio_set", 1, pid, 3 << 13),
        input_group=call("ioprio_set", 2, os.getpgid(pid) or {NOBODY}, 3 << 13),
        input_user=call("ioprio_set", 3, {NOBODY}, 3 << 13))
def child():
    number = os.fork()
    if number == 0:
        os.setsid()
        time.sleep(60)
    while os.getpgid(number) != number: time.sleep(0.01)
    return number
"""
OTHERS = (
    ACTS
    + """
supervisors = [1] + [int(name) for name in os.listdir("/proc") if name.isdigit()
    and open(f"/proc/{name}/comm").read() == "visjail-init\\n" and name != "1"]
mine = child()
answer([len(supervisors), [acts(pid) for pid in (*supervisors, mine)],
    {act: call(act, *arguments) for act, arguments in
     dict(setpriority=(2, 0, 19), ioprio_set=(3, 0, 3 << 13)).items()}])
os.kill(mine, 9)
"""
)
OWN = """
import threading
got = dict(
    affinity=attempt(os.sched_setaffinity, 0, os.sched_getaffinity(0)),
    niceness=attempt(os.setpriority, 0, 0, 18),
    group=attempt(os.setpriority, 1, 0, 19),
    batch=attempt(os.sched_setscheduler, 0, os.SCHED_BATCH, os.sched_param(0)),
    command=os.system("nice -n 2 true"))
def thread():
    own = threading.get_native_id()  # what pthread_create and pthread_setaffinity_np name
    got.update(ordinary=attempt(os.sched_setscheduler, own, os.SCHED_OTHER, os.sched_param(0)),
        processors=attempt(os.sched_setaffinity, own, os.sched_getaffinity(0)))
one = threading.Thread(target=thread)
one.start()
one.join()
answer(got)
"""


@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_no_other_process_is_put_behind(backend: str) -> None:
    """Neither pid 1 nor a keeper may get a lower priority by a guest that has their uid."""
    with jail_by(backend) as jail:
        count, answers, users = inside(jail, OTHERS)
        assert count >= 2  # pid 1 and the keeper of this run
        for each in answers:
            assert each.pop("attributes") == errno.ENOSYS
            assert set(each.values()) == {errno.EPERM}, each
        assert users == {"setpriority": errno.EPERM, "ioprio_set": errno.EPERM}
        names = {canary.name for canary in jail.report.canaries if canary.held}
        assert {"idle the supervisor", "renice the supervisor"} <= names
    control = outside(ACTS + "\nmine = child()\nanswer(acts(mine))\nos.kill(mine, 9)")
    nobodys = {name: control.pop(name) for name in ("user", "input_user")}
    assert set(nobodys.values()) == {errno.ESRCH}  # the kernel looked for that user
    # Once it is idle, only a root caller may set it to anything else.
    allowed = {0} if os.geteuid() == 0 else {0, errno.EPERM}
    assert control["idle"] == control["priority"] == control["group"] == control["input"] == 0
    assert set(control.values()) <= allowed, control


@pytest.mark.parametrize("backend", backends())
def test_a_program_schedules_itself(backend: str) -> None:
    """What programs do with themselves and their threads must go on working."""
    with jail_by(backend) as jail:
        got = inside(jail, OWN)
        if backend == "landlock":  # a thread's number is one of the host's processes there
            assert got.pop("ordinary") == got.pop("processors") == errno.EPERM
        assert set(got.values()) == {0}, got
    assert set(outside(OWN, start_new_session=True).values()) == {0}


LOWER = """
import subprocess
def says(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
zero, one = (ctypes.c_int * 1)(0), (ctypes.c_int * 1)(1)
# What programs are asked for comes first: without a jail there is no way back up.
programs = dict(niceness=int(says("nice", "-n", "19", "nice")),
    policies=[int(says("chrt", policy, "0", sys.executable, "-IBSc",
        "import os; print(os.sched_getscheduler(0))")) for policy in ("-b", "-i")],
    input=says("ionice", "-c", "3", "ionice"))
answers = [call("setpriority", 0, 0, 19), call("setpriority", 1, 0, 19),
    call("ioprio_set", 1, 0, 3 << 13), call("ioprio_set", 2, 0, 3 << 13),
    call("sched_setscheduler", 0, 3, zero), call("sched_setscheduler", 0, 5 | 1 << 30, zero)]
answer(dict(programs=programs, answers=answers,
    own=[os.getpriority(0, 0), os.nice(1), os.sched_getscheduler(0)],
    favours=[call("setpriority", 0, 0, -5), call("sched_setscheduler", 0, 1, one)],
    attributes=call("sched_setattr", 0, (ctypes.c_uint32 * 12)(48), 0)))
"""


@pytest.mark.parametrize("backend", backends())
def test_no_program_puts_itself_behind(backend: str) -> None:
    """A thread that others starve must not hold a lock of the kernel's: programs keep their turn."""
    with jail_by(backend) as jail:
        got = inside(jail, LOWER)
    # A host that stands back keeps its guests there.
    inherited = max(0, os.getpriority(os.PRIO_PROCESS, 0))
    assert got["answers"] == [0] * 6
    assert got["own"] == [inherited, inherited, os.SCHED_OTHER]
    assert got["programs"].pop("input") != "idle"
    assert got["programs"] == {"niceness": inherited, "policies": [os.SCHED_OTHER] * 2}
    assert got["favours"] == [errno.EACCES, errno.EPERM]
    assert got["attributes"] == errno.ENOSYS
    control = outside(LOWER, start_new_session=True)
    assert control["answers"] == [0] * 6
    assert control["own"] == [19, 19, os.SCHED_IDLE | os.SCHED_RESET_ON_FORK]
    policies = [os.SCHED_BATCH, os.SCHED_IDLE]
    assert control["programs"] == {"niceness": 19, "policies": policies, "input": "idle"}


PAGES = """
import mmap
memory = mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def advise(advice):
    try: memory.madvise(advice)
    except OSError as error: return error.errno
    return 0
answer([advise(20), advise(21), advise(mmap.MADV_DONTNEED), advise(mmap.MADV_FREE)])
"""


@pytest.mark.parametrize("backend", backends())
def test_no_guest_has_pages_given_up(backend: str) -> None:
    """No guest may have the kernel look through all mappings of a file; allocators go on."""
    with jail_by(backend) as jail:
        assert inside(jail, PAGES) == [errno.EINVAL, errno.EINVAL, 0, 0]
    assert outside(PAGES) == [0] * 4


STARVE = r"""
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
processor = {min(os.sched_getaffinity(0))}
signal.alarm(12)
for number in range(16):
    if os.fork() == 0:
        os.setsid()
        signal.alarm(12)
        os.sched_setaffinity(0, processor)
        while True: pass
try: names = os.listdir("/proc")
except OSError: names = ()
for name in names:
    if not name.isdigit() or open(f"/proc/{name}/comm").read() != "visjail-init\n": continue
    for act in (lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
                lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
                lambda pid: os.sched_setaffinity(pid, processor)):
        try: act(int(name))
        except OSError: pass
print("ready", flush=True)
signal.pause()
"""

END_IN_TIME = """
import sys, time
sys.path[:0] = {path!r}
from test_scheduling import end_in_time
end_in_time({backend!r})
"""

LONGEST = 5.0
"""Seconds to end 16 busy programs on one processor, on a machine with other work. It took 0.2 s
on an idle one; with the supervisors behind the guest, until the guest ended by itself."""


def end_in_time(backend: str) -> None:
    """Let a guest starve its supervisors, and end it by its time limit and with its jail."""
    command = [PYTHON, "-IBS", "-c", STARVE]
    jail = jail_by(backend)
    start = time.monotonic()
    with pytest.raises(CommandTimeout):
        jail.run(command, timeout=1)
    assert time.monotonic() - start < 1 + LONGEST
    process = spawn(jail, command, stdout=-1)
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    start = time.monotonic()
    jail.close()
    assert time.monotonic() - start < LONGEST


@contextlib.contextmanager
def own_share() -> Iterator[Path | None]:
    """Make a group of the processors' scheduler, in which sessions share alike (no autogroup).

    The kernel gives each session the same share only where it is in the root of that
    hierarchy; in containers and services nobody is. None where this process may make none.
    """
    for root in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        group = root / f"visruntime-test-{os.getpid()}"
        try:
            group.mkdir()
            if not (group / "cpu.stat").exists() and not (group / "cpu.shares").exists():
                group.rmdir()
                continue
        except OSError:
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


@pytest.mark.parametrize("backend", backends())
def test_busy_programs_are_ended_in_time(backend: str) -> None:
    """A guest that keeps a processor busy and its supervisors behind must not live longer."""
    text = END_IN_TIME.format(path=[str(Path(__file__).parent), *sys.path], backend=backend)
    with own_share() as group:
        enter = f"echo $$ > {group}/cgroup.procs && " if group else ""
        command = ["sh", "-c", enter + 'exec "$0" -c "$1"', sys.executable, text]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert result.returncode == 0, result.stderr


def named(name: str) -> int:
    """Return the pid of this process's descendant *name*, 0 where there is none."""
    return next((p for p, s in children_of(os.getpid()).items() if s["Name"] == name), 0)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.7, None), (1.4, None), (60, "timeout")],
    ids=["in time", "later, before the look", "alive"],
)
def test_a_limit_that_has_passed_is_named(seconds: float, expected: str | None) -> None:
    """Only a program that is alive when its limit is looked at may be said to have timed out."""
    with Jail(JailPolicy()) as jail:
        start = time.monotonic()
        process = spawn(jail, ["sleep", str(seconds)], timeout=1.2)
        while not (found := named("sleep")):
            assert time.monotonic() < start + 0.6, "the machine is too slow for this test"
            time.sleep(0.01)
        table = children_of(os.getpid())
        keeper = int(table[found]["PPid"])
        supervisor = int(table[keeper]["PPid"])
        # The keeper does not get its turn; nor does who would end the jail for that.
        for stopped in (supervisor, keeper):
            os.kill(stopped, signal.SIGSTOP)
        time.sleep(max(0.0, start + 1.6 - time.monotonic()))
        os.kill(keeper, signal.SIGCONT)
        assert process.wait(10) == (-signal.SIGKILL if expected else 0)
        os.kill(supervisor, signal.SIGCONT)
        assert process.stopped_by == expected
        assert process.usage.wall_seconds >= 1.6

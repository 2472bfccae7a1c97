"""Boundary: processes. A guest sees, signals and reads no process but those of its own run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    backends,
    children_of,
    errno,
    inside,
    jail_by,
    outside,
    spawn,
)

if TYPE_CHECKING:
    from typing import Any

    from jail_helpers import Jail

WAIT = "print('ready', flush=True); time.sleep(60)"


def waiting(jail: Jail, text: str = "") -> Any:
    """Start a guest that says "ready" and waits."""
    process = spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + text + WAIT], stdout=-1)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_processes_of_the_host_are_not_there(jail: Jail) -> None:
    """No pid of the host must be found in /proc or by kill, not even the test's own."""
    text = f"""
pids = [int(n) for n in os.listdir("/proc") if n.isdigit()]
def name_of(pid):
    try:
        return open("/proc/%d/comm" % pid).read().strip()
    except OSError:
        return ""  # it ended in between
names = [name_of(p) for p in pids]
answer([len(pids), sorted(set(names)), attempt(os.kill, {os.getpid()}, 0)])
"""
    count, names, killed = inside(jail, text)
    assert count <= 5  # pid 1, keepers and the guest
    assert names == sorted(["python3", "visjail-init"])
    assert killed == errno.ESRCH
    seen, _, killed = outside(text)
    assert seen > 3
    assert killed == 0


@pytest.mark.parametrize("which", ["init", "keeper"])
def test_the_supervisors_are_out_of_reach(jail: Jail, which: str) -> None:
    """Pid 1 and the keepers must be neither signalled, nor traced, nor read."""
    text = f"""
mine = os.getppid()
pid = 1 if {which!r} == "init" else mine
proc = "/proc/%d/" % pid
buffer = ctypes.create_string_buffer(8)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
here = Vector(ctypes.addressof(buffer), 8); there = Vector(0x400000, 8)
descriptor = result("pidfd_open", pid, 0)
assert descriptor >= 0
answer(dict(
    signals=[attempt(os.kill, pid, n) for n in (0, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)],
    pidfd=call("pidfd_send_signal", descriptor, 9, 0, 0), tgkill=call("tgkill", pid, pid, 9),
    queue=call("rt_sigqueueinfo", pid, 9, ctypes.byref(ctypes.create_string_buffer(128))),
    trace=[call("ptrace", 16, pid, 0, 0), call("ptrace", 0x4206, pid, 0, 0)],
    memory=[call("process_vm_readv", pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0),
        call("process_vm_writev", pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)],
    steal=[call("pidfd_getfd", descriptor, n, 0) for n in (0, 3, 4)],
    proc=[opened(proc + n) for n in ("environ", "mem", "maps", "auxv", "io", "stack", "syscall")],
    links=[attempt(os.readlink, proc + n) for n in ("root", "cwd", "exe", "fd/3")],
    listing=[attempt(os.listdir, proc + n) for n in ("fd", "map_files", "root")],
    write=[opened(proc + n, os.O_WRONLY)
        for n in ("oom_score_adj", "uid_map", "mem", "coredump_filter")],
    limits=attempt(__import__("resource").prlimit, pid, 7, (1, 1)),
))
"""
    got = inside(jail, text)
    assert set(got["signals"]) == {errno.EPERM}
    assert [got["pidfd"], got["tgkill"], got["queue"]] == [errno.EPERM] * 3
    assert set(got["trace"]) == {errno.EPERM}
    assert set(got["memory"]) == {errno.EPERM}
    assert set(got["steal"]) <= {errno.EPERM}
    assert set(got["proc"]) <= {errno.EACCES, errno.EPERM}
    assert set(got["links"]) <= {errno.EACCES, errno.EPERM}
    assert set(got["listing"]) <= {errno.EACCES, errno.EPERM}
    assert set(got["write"]) <= {errno.EACCES, errno.EPERM, errno.EROFS}
    assert got["limits"] == errno.EPERM
    assert not jail.closed
    assert jail.run(["true"]).exit_code == 0


OTHER_RUN = """
others = [int(n) for n in os.listdir("/proc") if n.isdigit()]
def waits(pid):
    return pid != os.getpid() and b"sleep(60)" in open("/proc/%d/cmdline" % pid, "rb").read()
others = [p for p in others if waits(p)]
pid = others[0]
proc = "/proc/%d/" % pid
descriptor = result("pidfd_open", pid, 0)
answer(dict(signal=attempt(os.kill, pid, 9), all=attempt(os.kill, -1, 9),
    pidfd=call("pidfd_send_signal", descriptor, 9, 0, 0),
    trace=call("ptrace", 16, pid, 0, 0), steal=call("pidfd_getfd", descriptor, 1, 0),
    limits=attempt(__import__("resource").prlimit, pid, 7, (1, 1)),
    mem=[opened(proc + "mem"), opened(proc + "mem", os.O_WRONLY), opened(proc + "environ"),
        opened(proc + "maps")],
    links=[attempt(os.readlink, proc + "root"), attempt(os.readlink, proc + "cwd"),
        opened(proc + "root/etc/passwd"), opened(proc + "fd/1", os.O_WRONLY)]))
"""


def test_two_runs_of_one_jail_cannot_touch_each_other(jail: Jail) -> None:
    """One run must not signal, trace or read another, nor end all there is."""
    with waiting(jail) as other:
        got = inside(jail, OTHER_RUN)
        assert got["signal"] == got["pidfd"] == errno.EPERM
        assert got["all"] in (0, errno.EPERM, errno.ESRCH)
        assert got["trace"] == got["steal"] == got["limits"] == errno.EPERM
        assert set(got["mem"]) <= {errno.EACCES, errno.EPERM, errno.EROFS}
        assert set(got["links"]) <= {errno.EACCES, errno.EPERM}
        assert other.poll() is None
        assert not jail.closed
    # The control: the same two programs side by side without a jail.
    command = [PYTHON, "-IBS", "-c", PRELUDE + WAIT]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        one = f"""
answer([attempt(os.kill, {process.pid}, 0), opened("/proc/{process.pid}/environ"),
    attempt(__import__("resource").prlimit, {process.pid}, 7, (100, 100))])
"""
        assert outside(one) == [0, 0, 0]
        process.kill()


def test_a_guest_may_signal_and_trace_its_own(jail: Jail) -> None:
    """Within one run signals must work as anywhere."""
    text = """
child = os.fork()
if child == 0:
    time.sleep(30)
got = attempt(os.kill, child, signal.SIGTERM)
answer([got, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])])
"""
    assert inside(jail, text) == [0, -15]


def test_pids_and_parents_of_the_host_do_not_show(jail: Jail) -> None:
    """The guest's parent must be its keeper, and its session its own."""
    text = (
        "answer([os.getpid() < 100000, os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()])"
    )
    assert inside(jail, text) == [True, True, True]


def test_a_guest_of_a_jail_is_a_child_of_the_host(jail: Jail) -> None:
    """All processes of a jail must be found below this process, so that its owner sees them."""
    with waiting(jail):
        names = {status["Name"] for status in children_of(os.getpid()).values()}
    assert {"visjail-init", "python3"} <= names


OWN_FILES = "oom_score_adj autogroup comm coredump_filter clear_refs task/{pid}/comm".split()


@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_a_process_and_its_session_are_not_set_by_files(backend: str) -> None:
    """Neither its own priority, nor what is asked of another run, may be written in /proc."""
    text = f"""
names = {OWN_FILES}
def at(pid): return [opened(f"/proc/{{pid}}/" + n.format(pid=pid), os.O_WRONLY) for n in names]
def waits(pid):
    try: return b"print('ready'" in open(f"/proc/{{pid}}/cmdline", "rb").read()
    except OSError: return False  # it has ended, or is another user's
pids = [int(n) for n in os.listdir("/proc") if n.isdigit()]
others = [p for p in pids if waits(p)]
answer([at(os.getpid()), [at(other) for other in others if other != os.getpid()]])
"""
    with jail_by(backend) as jail, waiting(jail):
        own, others = inside(jail, text)
    assert own == [errno.EROFS] * len(OWN_FILES)
    assert others == [own]
    assert outside(text)[0] == [0] * len(OWN_FILES)


def test_no_file_of_proc_can_be_written(jail: Jail) -> None:
    """Whatever the kernel offers below /proc for writing must be out of reach."""
    text = """
found = []
def look(folder, depth):
    for name in os.listdir(folder):
        path = folder + "/" + name
        if name.isdigit() or name in ("self", "thread-self") or os.path.islink(path):
            continue
        if os.path.isdir(path):
            if depth < 6 and attempt(os.listdir, path) == 0:
                look(path, depth + 1)
        elif opened(path, os.O_WRONLY) == 0:
            found.append(path)
look("/proc", 0)
answer(found)
"""
    assert inside(jail, text) == []
    assert outside("answer(opened('/proc/self/oom_score_adj', os.O_WRONLY))") == 0


LOOK = """
found = [0, []]
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) in (1, os.getpid()): continue
        try:
            with open(f"/proc/{pid}/comm") as file: name = file.read().strip()
        except OSError: continue
        found[0] += 1
        if name == "visjail-init" and opened(f"/proc/{pid}/mem") == 0:
            found[1].append(pid)
answer([found[0] > 100, found[1][:3]])
"""
WITHOUT_LANDLOCK = """
import errno, json, sys, threading, time
import pyseccomp
sys.path.insert(0, {tests!r})
from jail_helpers import Jail, JailPolicy, inside
program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), 444)
program.load()
with Jail(JailPolicy(read=[{folder!r}])) as jail:
    assert any("one layer" in note for note in jail.report.notes)
    got = []
    looker = threading.Thread(target=lambda: got.append(inside(jail, {look!r})))
    looker.start()
    sizes = set()
    while looker.is_alive():
        sizes.add(len(jail.read_bytes({folder!r} + "/big")))
    looker.join()
    print(json.dumps([got[0], sorted(sizes)]))
"""


def test_file_operations_are_closed_to_guests_without_landlock(workspace: Path) -> None:
    """Where the kernel has no Landlock a guest must not write into what reads for the host."""
    (workspace / "big").write_bytes(bytes(8 << 20))
    script = WITHOUT_LANDLOCK.format(
        tests=str(Path(__file__).parent.parent), folder=str(workspace), look=LOOK
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[True, []], [8 << 20]]


OWNED = """
import fcntl
reader, writer = os.pipe()
got = []
for own in (lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, {pid}),
            lambda: fcntl.fcntl(reader, 15, struct.pack("ii", 1, {pid}))):  # F_SETOWN_EX, F_OWNER_PID
    got.append(attempt(own))
    fcntl.fcntl(reader, 10, signal.SIGUSR1)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writer, b"x")
answer(got)
"""
WAITS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
sys.stdin.readline()
print(signal.sigtimedwait([signal.SIGUSR1], 0) is not None, flush=True)
"""


@pytest.mark.parametrize("backend", [*backends(), None])
def test_no_descriptor_signals_the_host(backend: str | None) -> None:
    """No byte in a pipe must signal a process of the host that a guest has made its owner."""
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"ready\n"
        text = OWNED.format(pid=waiting.pid)
        if backend is None:
            assert outside(text) == [0, 0]
        else:
            with jail_by(backend) as jail:
                # By landlock the kernel takes it, and asks when it is to signal.
                taken = 0 if backend == "landlock" else errno.ESRCH
                assert inside(jail, text) == [taken, taken]
        waiting.stdin.write(b"\n")
        waiting.stdin.close()
        assert waiting.stdout.read() == (b"True\n" if backend is None else b"False\n")

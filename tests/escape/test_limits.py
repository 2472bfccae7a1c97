"""Boundary: limits. What a policy bounds stays bounded, and the result says what ended a run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import FORKS, PYTHON, Jail, JailPolicy, Limits, errno, inside, is_root, outside

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
FLOOD = 3 << 30 if os.environ.get("VIS_FULL") else 512 * MIB


def test_scratch_is_bounded_in_bytes_and_names() -> None:
    """The private places together must not grow past the limit, in bytes or in files."""
    text = """
def fill(path, size):
    written = 0
    with open(path, "wb", buffering=0) as file:
        try:
            while written < size: written += file.write(bytes(65536))
        except OSError as error:
            return [error.errno, written]
    return [0, written]
got = [fill("/tmp/f", 6 << 20), fill(os.environ["HOME"] + "/f", 6 << 20), fill("/dev/shm/f", 6 << 20)]
for path in ("/tmp/f", os.environ["HOME"] + "/f", "/dev/shm/f"):
    os.unlink(path)
count = 0
try:
    while count < 100000:
        open("/var/tmp/%d" % count, "w").close(); count += 1
    got.append(0)
except OSError as error:
    got.append(error.errno)
answer([got, count])
"""
    with Jail(JailPolicy(limits=Limits(scratch=8 * MIB))) as jail:
        (first, second, third, names), count = inside(jail, text)
    assert first == [0, 6 * MIB]
    assert second[0] == errno.ENOSPC
    assert 0 < second[1] <= 2 * MIB
    assert third == [errno.ENOSPC, 0]
    assert names == errno.ENOSPC
    assert 4000 < count < 20000


def test_file_size_stops_the_writer(workspace: Path) -> None:
    """A file must not grow past file_size: EFBIG for who ignores the signal, else the signal."""
    text = f"""
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = open({str(workspace / "f")!r}, "wb", buffering=0)
got = [file.write(bytes(1 << 20))]
got.append(attempt(file.write, b"x")); got.append(attempt(file.truncate, 2 << 20))
answer(got)
"""
    with Jail(JailPolicy(write=[workspace], limits=Limits(file_size=MIB))) as jail:
        assert inside(jail, text) == [MIB, errno.EFBIG, errno.EFBIG]
        result = jail.run(["sh", "-c", f"exec head -c 2000000 /dev/zero > {workspace}/g"])
        assert result.signal == signal.SIGXFSZ
    assert (workspace / "g").stat().st_size == MIB
    (workspace / "f").unlink()
    assert outside(text) == [MIB, 0, 0]


def test_open_files_are_bounded() -> None:
    """A guest must get no more descriptors than the limit, and not raise it."""
    text = """
import resource
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    number = error.errno
count = len(held)
for descriptor in held: os.close(descriptor)
answer([number, count, resource.getrlimit(resource.RLIMIT_NOFILE)])
"""
    with Jail(JailPolicy(limits=Limits(open_files=64))) as jail:
        assert inside(jail, text) == [errno.EMFILE, 61, [64, 64]]
        raising = (
            "import resource\ntry: resource.setrlimit(7, (65, 66)); answer(0)\n"
            "except (ValueError, OSError): answer(1)"
        )
        assert inside(jail, raising) == 1
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY:
        with pytest.raises(PolicyUnsupported, match=r"limits\.open_files"):
            Jail(JailPolicy(limits=Limits(open_files=soft)))
    with Jail(JailPolicy(limits=Limits(open_files=None))) as jail:
        assert inside(jail, "import resource; answer(resource.getrlimit(7)[0])") < soft


def test_processes_are_bounded() -> None:
    """Forks past the limit must fail in the guest, and the limit not be raised."""
    with Jail(JailPolicy(limits=Limits(processes=20))) as jail:
        number, count = inside(jail, FORKS)
        assert number == errno.EAGAIN
        assert 10 <= count < 20
        assert jail.report.mechanisms("limits.processes")
        second = inside(jail, FORKS)
        assert second[0] == errno.EAGAIN
    assert outside(FORKS) == [0, 60]


@pytest.mark.parametrize("stubborn", [False, True])
def test_processor_time_ends_a_run(stubborn: bool) -> None:  # noqa: FBT001 - pytest gives it
    """A guest that computes past cpu_seconds must be ended, also if it ignores the signal."""
    text = "import signal\n"
    if stubborn:
        text += "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
    with Jail(JailPolicy(limits=Limits(cpu_seconds=1))) as jail:
        result = jail.run([PYTHON, "-IBS", "-c", text + "while True: pass"], timeout=30)
    assert result.signal == (signal.SIGKILL if stubborn else signal.SIGXCPU)
    assert result.stopped_by == "cpu"
    assert [violation.kind for violation in result.violations] == ["limits.cpu_seconds"]
    assert result.violations[0].peak is not None
    assert result.violations[0].peak >= (2 if stubborn else 1)
    # The kernel counts the limit in ticks, and the usage by the run time itself.
    assert 0.5 <= result.usage.cpu_seconds < 4


@pytest.mark.parametrize(
    ("used", "number"),
    [(0.9, signal.SIGXCPU), (0.9, signal.SIGKILL), (1.3, signal.SIGKILL)],
    ids=["SIGXCPU", "SIGKILL", "SIGKILL past the first limit"],
)
def test_a_program_that_ends_itself_forges_no_limit(used: float, number: int) -> None:
    """Only what used all of the limit was ended by it; others can send the same signal."""
    text = f"""
import os, signal, time
signal.signal(signal.SIGXCPU, lambda *_: None)
while time.clock_gettime(~0 << 3) < {used}: pass  # the ticks that the limit is about
signal.signal(signal.SIGXCPU, signal.SIG_DFL)
os.kill(os.getpid(), {int(number)})
"""
    with Jail(JailPolicy(limits=Limits(cpu_seconds=1))) as jail:
        result = jail.run([PYTHON, "-IBS", "-c", text], timeout=30)
    assert result.signal == number
    assert result.stopped_by is None
    assert [v for v in result.violations if v.confidence == "exact"] == []


def test_wall_seconds_end_a_run() -> None:
    """A run past wall_seconds must be ended and tell so, with what it had written."""
    with Jail(JailPolicy(limits=Limits(wall_seconds=1))) as jail:
        start = time.monotonic()
        result = jail.run(["sh", "-c", "echo early; sleep 60"])
        assert 0.9 < time.monotonic() - start < 3
    assert result.stopped_by == "wall"
    assert result.stdout == b"early\n"
    assert result.signal == signal.SIGKILL


def test_no_core_is_written(workspace: Path) -> None:
    """A crash must leave no core file, and start no handler on the host."""
    text = "import os, resource; print(resource.getrlimit(4)); os.chdir({!r}); os.abort()"
    with Jail(JailPolicy(write=[workspace])) as jail:
        result = jail.run([PYTHON, "-u", "-c", text.format(str(workspace))])
        assert result.signal == signal.SIGABRT
        assert result.stdout == b"(1, 1)\n"
    assert list(workspace.iterdir()) == []


def resident_peak() -> int:
    """Return this process's largest resident size so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.timeout(300)
def test_lm_02_a_flood_is_counted_and_not_kept() -> None:
    """Output without end must neither fill the host's memory nor block the guest."""
    with Jail(JailPolicy(limits=Limits(output=MIB))) as jail:
        jail.run(["head", "-c", "4194304", "/dev/zero"])
        before = resident_peak()
        result = jail.run(["head", "-c", str(FLOOD), "/dev/zero"], timeout=200)
        assert result.exit_code == 0
        assert (result.stdout_total, len(result.stdout)) == (FLOOD, MIB)
        assert result.truncated
        result = jail.run(["sh", "-c", f"head -c {200 * MIB} /dev/zero >&2; exit 5"], timeout=100)
        assert result.exit_code == 5
        assert (result.stderr_total, len(result.stderr)) == (200 * MIB, MIB)
        assert resident_peak() - before < 50 * MIB


def test_lm_02_an_endless_writer_is_ended() -> None:
    """A guest that writes for ever must be ended at its timeout, with head and tail kept."""
    with Jail(JailPolicy(limits=Limits(output=MIB, wall_seconds=1))) as jail:
        start = time.monotonic()
        result = jail.run(["sh", "-c", "echo first; exec yes"])
        assert time.monotonic() - start < 5
    assert result.stopped_by == "wall"
    assert result.stdout.startswith(b"first\ny\n")
    assert result.stdout.rstrip(b"\n").endswith(b"y")
    assert result.truncated
    assert result.stdout_total > MIB


@pytest.mark.parametrize(
    ("limit", "end"), [(80_000, 40_000), (79_999, 40_000), (3 * MIB, MIB), (2, 1)]
)
def test_the_first_and_the_last_bytes_are_kept(limit: int, end: int) -> None:
    """Of a long output exactly the start and the end must be there: half, at most 1 MiB."""
    script = "import sys\nfor n in range(600000): sys.stdout.write('%07d\\n' % n)"
    with Jail(JailPolicy(limits=Limits(output=limit))) as jail:
        result = jail.run([PYTHON, "-IBS", "-c", script])
    whole = b"".join(b"%07d\n" % n for n in range(600_000))
    assert result.stdout == whole[: limit - end] + whole[-end:]
    assert result.stdout_total == len(whole)


def test_a_signal_reaches_the_host_during_a_flood() -> None:
    """A host that reads a flood must still see its own signals."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        with Jail(JailPolicy(limits=Limits(output=MIB))) as jail:
            start = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            process = jail.spawn(["yes"], stdout=-1, timeout=4)
            process.communicate()
        assert process.stopped_by == "timeout"
        assert seen
        assert seen[0] - start < 2.5
    finally:
        signal.signal(signal.SIGALRM, before)


SHARED = f"""
import mmap
def private():
    bytearray({100 * MIB})
    return 0
def shared():
    area = mmap.mmap(-1, {100 * MIB})
    for at in range(0, {100 * MIB}, 4096): area[at] = 1
    return 0
def tried(act):
    try: return act()
    except MemoryError: return "refused"
answer([tried(private), tried(shared)])
"""


def test_the_report_says_what_memory_by_process_leaves_open() -> None:
    """The report may not keep silent about shared memory, which is not bounded by process."""
    limits = Limits(memory=64 * MIB, memory_by="process")
    with Jail(JailPolicy(limits=limits)) as jail:
        assert inside(jail, SHARED) == ["refused", 0]
        (clause,) = [c for c in jail.report.clauses if c.clause == "limits.memory"]
    assert clause.bound == "process"
    assert "shared mappings and files in memory are not in it" in clause.note
    assert outside(SHARED) == [0, 0]


def test_memory_of_each_process_is_bounded() -> None:
    """With memory_by="process" one process must not allocate past the limit."""
    text = "try: x = bytearray(300 << 20); answer(0)\nexcept MemoryError: answer(1)"
    limits = Limits(memory=128 * MIB, memory_by="process")
    with Jail(JailPolicy(limits=limits)) as jail:
        assert inside(jail, text) == 1
        assert inside(jail, "x = bytearray(30 << 20); answer(0)") == 0
    assert outside(text) == 0


def test_what_is_measured_is_true() -> None:
    """Processor time and memory of a run must be those of all its processes, not claimed."""
    text = """
import os, time
if os.fork() == 0:
    end = time.process_time() + 0.4
    while time.process_time() < end: pass
    os._exit(0)
x = bytearray(60 << 20)
os.wait()
"""
    with Jail(JailPolicy()) as jail:
        result = jail.run([PYTHON, "-IBS", "-c", text])
    assert 0.35 < result.usage.cpu_seconds < 3
    assert 60 * MIB < result.usage.max_memory < 200 * MIB
    assert result.usage.wall_seconds >= 0.4
    assert result.usage.killed == 0


@pytest.mark.skipif(not is_root(), reason="lowering a limit below a hard one needs root")
def test_a_host_with_few_descriptors() -> None:
    """A host whose own limit is small must still open jails, or be told what is missing."""
    script = """
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
with Jail(JailPolicy()) as jail:
    print(jail.run(["sh", "-c", "ulimit -n"]).stdout.decode().strip())
"""
    import sys

    result = subprocess.run(
        ["prlimit", "--nofile=64:64", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert result.stdout == "32\n", result.stderr


def test_a_guest_cannot_use_up_the_users_processes() -> None:
    """Where `ulimit -u` is low, a guest that forks without end must leave the host half."""
    if is_root():
        pytest.skip("a guest of root has a uid, and so a count of processes, of its own")
    script = f"""
import os, resource, subprocess
from visruntime import Jail, JailPolicy
own = 0
for name in os.listdir("/proc"):
    try:
        if name.isdigit() and os.stat("/proc/" + name).st_uid == os.getuid():
            own += len(os.listdir("/proc/" + name + "/task"))
    except OSError:
        pass
few = 2 * own + 200
resource.setrlimit(resource.RLIMIT_NPROC, (few, few))
with Jail(JailPolicy()) as jail:
    forking = '''
import os, sys, time
count = 0
try:
    while count < 20000:
        if not os.fork():
            time.sleep(60)
        count += 1
except BlockingIOError:
    print(count, flush=True)
time.sleep(60)
'''
    process = jail.spawn([{PYTHON!r}, "-IBS", "-c", forking], stdout=subprocess.PIPE)
    made = int(process.stdout.readline())
    assert few // 4 < made < few // 2, (made, few)
    assert subprocess.run(["/bin/true"], check=False).returncode == 0
    process.kill()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_packets_on_the_output_are_counted_whole(jail: Jail) -> None:
    """A guest that puts its output into packet mode must not hide what was cut."""
    text = """
import fcntl
fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_DIRECT)
for number in range(1000): os.write(1, b"%03d" % number + b"x" * 2996 + b"\\n")
"""
    text = "import os" + text
    control = subprocess.run([PYTHON, "-c", text], capture_output=True, check=True).stdout
    result = jail.run([PYTHON, "-IBS", "-c", text])
    assert result.exit_code == 0
    assert (result.stdout_total, result.truncated) == (3_000_000, False)
    assert result.stdout == b"".join(b"%03d" % n + b"x" * 2996 + b"\n" for n in range(1000))
    assert result.stdout.startswith(control[:3000])

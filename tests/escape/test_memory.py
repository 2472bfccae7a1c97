"""Boundary: memory of a whole jail. What is over the limit is ended, and the result proves it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Jail,
    JailPolicy,
    Limits,
    children_of,
    inside,
    leaves,
    outside,
    own_memory_cgroup,
    until,
)

from visruntime.errors import JailUnavailable, PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from visruntime.jail import CommandResult

MIB = 1 << 20
LIMIT = 96 * MIB
TAKEN = 240 * MIB
"""What each way of taking memory takes: more than the limit, and little for the machine."""

WATCH_OVERSHOOT = 64 * MIB
"""What a guest that takes 1 MiB in 2 ms may have got over the limit when its run is ended."""

TAKE = f"""
MIB = 1 << 20
TAKEN = {TAKEN}
def touch(memory):
    for at in range(0, len(memory), 4096): memory[at] = 1
def anonymous():
    held.extend(bytearray(MIB) for _ in range(TAKEN // MIB))
def shared():
    import mmap
    held.append(mmap.mmap(-1, TAKEN)); touch(held[-1])
def memfd():
    held.append(os.memfd_create("x"))
    for _ in range(TAKEN // MIB): os.write(held[-1], bytes(MIB))
def buffers():
    size = 0
    while size < TAKEN:
        one, two = socket.socketpair(); held.extend((one, two)); one.setblocking(False)
        try:
            while True: size += one.send(bytes(65536))
        except BlockingIOError: pass
def files():
    with open("/tmp/visruntime-taken", "wb", buffering=0) as file:
        os.unlink("/tmp/visruntime-taken")
        for _ in range(TAKEN // MIB): file.write(bytes(MIB))
def paced():
    for _ in range(TAKEN // MIB): held.append(bytearray(MIB)); touch(held[-1]); time.sleep(0.002)
def tables():
    # A page of tables for each 2 MiB that is read, and no page of its own.
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    reach, huge = TAKEN * 512, 2 * MIB
    start = libc.mmap(None, reach, 1, 0x4022, 2**64 - 1, 0)
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(reach), 15)
    for at in range(start, start + reach, huge): ctypes.c_char.from_address(at).value
def headless():
    # A first thread that has ended shows nothing of the memory that the others have.
    import threading
    threading.Thread(target=lambda: [anonymous(), time.sleep(20)]).start()
    libc.syscall(60, 0)
def children():
    for _ in range(6):
        if os.fork() == 0:
            own = bytearray(TAKEN // 6); touch(own); time.sleep(1); os._exit(0)
    for _ in range(6): os.wait()
held = []
"""
BY_CGROUP = ("anonymous", "shared", "memfd", "buffers", "files", "children", "tables")
BY_WATCH = ("anonymous", "shared", "paced", "children", "tables", "headless")


def take(jail: Jail, way: str) -> CommandResult:
    """Have a guest take memory in one way, and keep it."""
    text = f"{TAKE}\n{way}()\ntime.sleep(20)\nanswer(0)"
    return jail.run([PYTHON, "-IBS", "-c", PRELUDE + text], timeout=60)


@pytest.mark.parametrize("way", BY_CGROUP)
def test_the_sum_of_memory_is_bounded_by_the_kernel(way: str) -> None:
    """However a jail takes memory, it must not get past its limit; without a cgroup it is refused."""
    policy = JailPolicy(limits=Limits(memory=LIMIT))
    if own_memory_cgroup() is None:
        with pytest.raises(PolicyUnsupported, match=r"limits\.memory: .*memory_by=\"watch\""):
            Jail(policy)
        return
    # First, so that the files of the interpreter are in the memory of the machine: a jail
    # that has to read them itself can drop them again and again, instead of being ended.
    assert outside(f"{TAKE}\n{way}()\nanswer(0)") == 0
    with Jail(policy) as jail:
        result = take(jail, way)
    assert result.stopped_by == "memory"
    (violation,) = result.violations
    assert (violation.kind, violation.limit) == ("limits.memory", LIMIT)
    assert violation.peak is not None
    # The kernel goes over it by pages that it may not refuse itself.
    assert LIMIT - 2 * MIB < violation.peak <= LIMIT + 64 * 4096
    assert result.usage.max_memory == violation.peak
    clause = next(one for one in jail.report.limits if one.clause == "limits.memory")
    assert (clause.bound, clause.value) == ("tree", LIMIT)
    assert clause.enforced_by in ("cgroup1 memory", "cgroup2 memory")
    assert leaves() == set()


def test_what_sockets_hold_is_bounded_too() -> None:
    """TCP buffers, which nobody reads, must not go past a limit of memory by a cgroup."""
    if own_memory_cgroup() is None:
        pytest.skip("no cgroup of this process's own, so such a limit is refused: see above")
    text = """
listener = socket.create_server(("127.0.0.1", 0), backlog=200)
held, total = [], 0
for _ in range(60):
    one = socket.create_connection(listener.getsockname()); other = listener.accept()[0]
    held += [one, other]
    for end in (one, other):
        end.setblocking(False)
        try:
            while total < 200 << 20: total += end.send(bytes(65536))
        except BlockingIOError: pass
answer(total >> 20)
"""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT))) as jail:
        # On version 2 it is one sum, of which sockets get what is left.
        assert inside(jail, text) < LIMIT // MIB
    assert outside(text) > LIMIT // MIB


@pytest.mark.parametrize("way", BY_WATCH)
def test_watched_memory_ends_the_run(way: str) -> None:
    """A watched jail must be ended soon after its processes have more than the limit together."""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT, memory_by="watch"))) as jail:
        result = take(jail, way)
        assert result.stopped_by == "memory"
        assert result.signal == signal.SIGKILL
        (violation,) = result.violations
        assert violation.kind == "limits.memory"
        assert violation.peak is not None
        assert violation.peak > LIMIT
        if way == "paced":
            assert violation.peak < LIMIT + WATCH_OVERSHOOT
        clause = next(one for one in jail.report.limits if one.clause == "limits.memory")
        assert clause.bound == "sampled"
        assert "every 10 ms" in clause.note
        assert inside(jail, "answer(1)") == 1  # the jail itself goes on


def test_watched_memory_counts_shared_pages_once() -> None:
    """Children that share their parent's memory must not be counted as if each had its own."""
    text = """
own = bytearray(60 << 20)
for at in range(0, len(own), 4096): own[at] = 1
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        CLOSE
        time.sleep(0.5); os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
answer(0)
"""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT, memory_by="watch"))) as jail:
        assert inside(jail, text.replace("CLOSE", "pass")) == 0
        # A process can close what says how much it shares: then all of it counts.
        closed = text.replace("CLOSE", "libc.prctl(4, 0)")
        result = jail.run([PYTHON, "-IBS", "-c", PRELUDE + closed], timeout=30)
        assert result.stopped_by == "memory"
    assert outside(text.replace("CLOSE", "libc.prctl(4, 0)")) == 0


@pytest.mark.parametrize("way", ["watch", "process"])
def test_shared_memory_of_no_process_is_bounded(way: str) -> None:
    """System V segments, which belong to no process, must not hold more than the limit."""
    text = f"""
def segment():
    number = libc.shmget(0, {2 * LIMIT}, 0o1600)
    if number < 0: return ctypes.get_errno()
    libc.shmctl(number, 0, None)
    return 0
answer(segment())
"""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT, memory_by=way))) as jail:  # type: ignore[arg-type]
        assert "kernel.shmall" in jail.report.mechanisms("limits.memory")
        assert inside(jail, text) == errno.ENOSPC
        assert inside(jail, text.replace(str(2 * LIMIT), str(LIMIT // 2))) == 0
        assert inside(jail, 'answer(opened("/proc/sys/kernel/shmall", os.O_WRONLY))') in (
            errno.EROFS,
            errno.EACCES,
        )
    assert outside(text) == 0


GROWING = f"""
import resource
def raised(hard):
    try: resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
    except ValueError as error: return str(error)
    return resource.getrlimit(resource.RLIMIT_STACK)[1]
libc.mmap.restype = ctypes.c_long
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
def grown(flags):
    at = libc.mmap(None, {2 * LIMIT}, 3, flags, -1, 0)
    return ctypes.get_errno() if at == -1 else 0
answer([grown(0x22), grown(0x122), raised({LIMIT}), raised({LIMIT + 4096})])
"""


def test_stacks_are_no_way_around_the_bound_of_a_process() -> None:
    """The kernel counts stacks, and what grows like one, outside of a process's data."""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT, memory_by="process"))) as jail:
        plain, growing, most, more = inside(jail, GROWING)
    assert (plain, growing, most) == (errno.ENOMEM, errno.EPERM, LIMIT)
    assert more == "not allowed to raise maximum limit"
    assert outside(GROWING)[:3] == [0, 0, LIMIT]


SETS = """
def made(name, *arguments):
    # How many sets of semaphores, or queues of messages, until the kernel takes no more.
    numbers = []
    while len(numbers) < 300:
        number = result(name, 0, *arguments, 0o1600)
        if number < 0: break
        numbers.append(number)
    for number in numbers:
        libc.semctl(number, 0, 0, 0) if name == "semget" else libc.msgctl(number, 0, None)
    return len(numbers)
answer([made("semget", 4000), made("semget", 20), made("msgget")])
"""


@pytest.mark.parametrize("way", ["watch", "process"])
def test_semaphores_and_queues_of_no_process_are_bounded(way: str) -> None:
    """What semaphores and messages hold, 64 GiB by default, must not pass by the limit."""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT, memory_by=way))) as jail:  # type: ignore[arg-type]
        assert inside(jail, SETS) == [2, 256, 16]
        for setting in ("sem", "msgmni", "msgmnb"):
            path = f"/proc/sys/kernel/{setting}"
            assert inside(jail, f"answer(opened({path!r}, os.O_WRONLY))") in (
                errno.EROFS,
                errno.EACCES,
            )
    assert outside(SETS) == [300, 300, 300]


def test_no_table_of_waits_is_made() -> None:
    """PR_FUTEX_HASH, by which a process gets 128 MiB that nothing counts, must not be there."""
    text = """answer([call("prctl", 78, 2, 0, 0, 0), call("prctl", 78, 1, 16, 0, 0),
                      call("prctl", 38, 1, 0, 0, 0)])"""
    with Jail(JailPolicy()) as jail:
        assert inside(jail, text) == [errno.EINVAL, errno.EINVAL, 0]
    answers = outside(text)
    assert answers[2] == 0
    if release() >= (6, 16):
        assert answers[:2] == [0, 0]


def release() -> tuple[int, ...]:
    """Return the first two numbers of the kernel's release."""
    return tuple(int(part) for part in os.uname().release.split(".")[:2])


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_every_process_of_the_jail_is_in_its_cgroup() -> None:
    """No process of a jail, its supervisors included, may be outside of its cgroup, ever."""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT))) as jail:
        (name,) = leaves()
        with jail.spawn(["sh", "-c", "setsid sleep 60 & sleep 60"]):
            first = jail._handle.info["pid"]
            assert until(lambda: len(children_of(first)) >= 4)
            for pid in (first, *children_of(first)):
                with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
                    lines = [line.rstrip() for line in file if ":memory:" in line or name in line]
                assert lines
                assert all(line.endswith(f"/{name}") for line in lines), lines


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
@pytest.mark.parametrize("system", ["minimal", "host"])
def test_a_guest_neither_sees_nor_changes_its_cgroup(system: str) -> None:
    """Paths of the host's cgroups must not be shown, and none of their files be opened."""
    text = """
cgroups = [line.strip().split(":", 2)[2] for line in open("/proc/self/cgroup")]
tried = {}
for folder, folders, files in os.walk("/sys/fs/cgroup"):
    for name in files:
        if name in ("cgroup.procs", "memory.limit_in_bytes", "memory.max", "tasks"):
            tried[folder + "/" + name] = opened(folder + "/" + name, os.O_WRONLY)
answer([cgroups, tried, attempt(os.mkdir, "/sys/fs/cgroup/x")])
"""
    policy = JailPolicy(system=system, limits=Limits(memory=LIMIT))  # type: ignore[arg-type]
    with Jail(policy) as jail:
        cgroups, tried, making = inside(jail, text)
    assert cgroups
    assert all(path == "/" or path.startswith("/..") for path in cgroups), cgroups
    assert not any("visruntime" in path for path in cgroups)
    assert set(tried.values()) <= {errno.EROFS, errno.EACCES}
    assert making in (errno.ENOENT, errno.EROFS, errno.EACCES)


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_two_runs_of_a_jail_share_its_limit() -> None:
    """Runs side by side must not get the limit each; both are ended, and say so."""
    text = f"held = [bytearray(1 << 20) for _ in range({LIMIT // MIB * 2 // 3})]; time.sleep(20)"
    command = [PYTHON, "-IBS", "-c", PRELUDE + text]
    with Jail(JailPolicy(limits=Limits(memory=LIMIT))) as jail:
        with jail.spawn(command) as one, jail.spawn(command) as two:
            one.wait(timeout=15)
            two.wait(timeout=15)
            assert [one.stopped_by, two.stopped_by] == ["memory", "memory"]
            assert one.usage is not None
            assert one.usage.source == "cgroup-shared"
        assert inside(jail, "answer(1)") == 1


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_a_limit_below_what_a_jail_needs_is_refused() -> None:
    """A limit that the jail itself does not fit in must be refused, and leave nothing."""
    before = leaves()
    with pytest.raises((PolicyUnsupported, JailUnavailable), match=r"limits\.memory"):
        Jail(JailPolicy(limits=Limits(memory=4096)))
    assert leaves() == before


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_what_fills_the_jail_for_good_ends_it() -> None:
    """Files in the private places are memory: when they fill the limit, the result says memory."""
    with Jail(JailPolicy(limits=Limits(memory=LIMIT))) as jail:
        result = jail.run(["sh", "-c", "head -c 200000000 /dev/zero > /tmp/kept"], timeout=30)
        assert result.stopped_by == "memory"
    assert leaves() == set()


@pytest.mark.parametrize("way", ["cgroup", "watch", "process"])
@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("node", ["node", "-e", "console.log(42)"]),
        ("java", ["java", "-version"]),
        ("go", ["go", "version"]),
    ],
)
def test_se_08_runtimes_start_under_a_sensible_limit(
    way: str, program: str, command: list[str], tool: Callable[[str], str]
) -> None:
    """A limit on memory must not keep node, java or go from starting."""
    if way == "cgroup" and own_memory_cgroup() is None:
        way = "watch"
    found = tool(program) if program == "node" else shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    real = os.path.realpath(found)
    policy = JailPolicy(
        read=[os.path.dirname(os.path.dirname(real))] if not real.startswith("/usr/bin") else [],
        limits=Limits(memory=512 * MIB, memory_by=way),  # type: ignore[arg-type]
    )
    with Jail(policy) as jail:
        result = jail.run([real if program != "node" else "node", *command[1:]], timeout=60)
        assert (result.exit_code, result.stopped_by) == (0, None), result.stderr_text
        heap = jail.run(["sh", "-c", 'echo "$JAVA_TOOL_OPTIONS"']).stdout_text
        assert heap == "-Xmx256m\n"
        own = jail.run(
            ["sh", "-c", 'echo "$JAVA_TOOL_OPTIONS"'], env={"JAVA_TOOL_OPTIONS": "-Xmx9m"}
        )
        assert own.stdout_text == "-Xmx9m\n"


def test_an_ordinary_jail_has_no_cgroup() -> None:
    """Without a limit that needs one no cgroup is made, and nothing set for java."""
    before = leaves()
    with Jail(JailPolicy()) as jail:
        assert leaves() == before
        assert jail.run(["sh", "-c", 'echo "[$JAVA_TOOL_OPTIONS]"']).stdout_text == "[]\n"
        assert jail.run(["true"]).usage.source == "wait"


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_a_jail_that_only_reads_the_same_again_is_ended(workspace: Path) -> None:
    """At its limit, with nothing left to drop but what it needs, a jail must not go on for ever."""
    text = f"""
import mmap
path = {str(workspace / "f")!r}
with open(path, "wb") as file:
    for _ in range(24): file.write(os.urandom(1 << 20))
    file.flush(); os.fsync(file.fileno())
held = bytearray(HELD << 20)
for at in range(0, len(held), 4096): held[at] = 1
with open(path, "rb") as file: view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
end = time.monotonic() + 5
while time.monotonic() < end:
    for at in range(0, len(view), 4096): view[at]
answer(0)
"""
    with Jail(JailPolicy(write=[workspace], limits=Limits(memory=64 * MIB))) as jail:
        # With room for some of it, the kernel's way to share memory is left alone.
        assert inside(jail, text.replace("HELD", "20")) == 0
        guest = PRELUDE + text.replace("HELD", "53")
        result = jail.run([PYTHON, "-IBS", "-c", guest], timeout=30)
        assert result.stopped_by == "memory", result.stderr_text

"""Limits under the back ends that make no namespaces of their own: held, or refused by name."""

from __future__ import annotations

import signal
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
    leaves,
    outside,
    own_memory_cgroup,
    spawn,
)

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from typing import Any

    from visruntime.jail import CommandResult

MIB = 1 << 20
LIMIT = 96 * MIB
TAKE = f"""
held = []
for _ in range({2 * LIMIT // MIB}):
    held.append(bytearray(1 << 20)); time.sleep(0.002)
"""
SEGMENTS = f"""
def taken():
    try:
        bytearray({2 * LIMIT})
    except MemoryError:
        return True
    return False
number = libc.shmget(0, 4096, 0o1600)
if number >= 0: libc.shmctl(number, 0, None)
answer([taken(), number >= 0])
"""
OTHERS = backends("bubblewrap", "landlock")


def jail_of(backend: str, **limits: Any) -> Jail:
    """Return a jail of *backend* with *limits*, and without those that landlock cannot hold."""
    if backend == "landlock":
        limits |= {"processes": None, "scratch": None}
    return Jail(JailPolicy(limits=Limits(**limits)), backend=backend)


def take(jail: Jail) -> CommandResult:
    """Have a guest take twice the limit, and keep it."""
    return jail.run([PYTHON, "-IBS", "-c", f"{PRELUDE}{TAKE}time.sleep(20)"], timeout=60)


@pytest.mark.parametrize("backend", OTHERS)
def test_memory_by_cgroup_is_held_or_refused(backend: str) -> None:
    """The sum of a jail must be bounded by a cgroup that all of it is in, or the policy refused."""
    if own_memory_cgroup() is None:
        with pytest.raises(PolicyUnsupported, match=r"limits\.memory: .*cgroup"):
            jail_of(backend, memory=LIMIT)
        return
    assert outside(f"{TAKE}answer(0)") == 0
    with jail_of(backend, memory=LIMIT) as jail:
        (name,) = leaves()
        with spawn(jail, ["sleep", "60"]) as process:
            supervisor = jail._handle.info["pid"]
            below = children_of(supervisor)
            assert "sleep" in {status["Name"] for status in below.values()}
            for pid in (supervisor, *below):
                with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
                    assert name in file.read()
            process.kill()
        result = take(jail)
    assert result.stopped_by == "memory"
    (violation,) = result.violations
    assert (violation.kind, violation.limit) == ("limits.memory", LIMIT)
    assert jail.report.mechanisms("limits.memory")[0] in ("cgroup1 memory", "cgroup2 memory")
    assert leaves() == set()


@pytest.mark.skipif("bubblewrap" not in OTHERS, reason="bubblewrap takes no root caller")
def test_watched_memory_by_bubblewrap() -> None:
    """The keepers must measure a jail whose namespaces another program made."""
    assert outside(f"{TAKE}answer(0)") == 0
    with jail_of("bubblewrap", memory=LIMIT, memory_by="watch") as jail:
        result = take(jail)
        assert result.stopped_by == "memory"
        assert result.signal == signal.SIGKILL
        assert jail.report.mechanisms("limits.memory") == ("watch by the keepers",)
        assert inside(jail, "answer(1)") == 1


def test_watched_memory_by_landlock_is_refused() -> None:
    """A watch that cannot tell the jail's processes from the host's must not be promised."""
    with pytest.raises(PolicyUnsupported, match=r"limits\.memory: .*pid namespace.*landlock"):
        jail_of("landlock", memory=LIMIT, memory_by="watch")


@pytest.mark.parametrize("backend", OTHERS)
def test_memory_of_each_process(backend: str) -> None:
    """RLIMIT_DATA holds in each back end; by landlock nobody makes System V segments at all."""
    with jail_of(backend, memory=LIMIT, memory_by="process") as jail:
        got = inside(jail, SEGMENTS)
        mechanisms = jail.report.mechanisms("limits.memory")
    assert got == [True, backend != "landlock"]
    assert ("no System V shared memory (seccomp)" in mechanisms) == (backend == "landlock")
    assert "kernel.shmall" not in mechanisms
    assert outside(SEGMENTS) == [False, True]


FILES = """
def made(number):
    for name in range(number):
        os.close(os.open(f"/tmp/{name}", os.O_CREAT | os.O_WRONLY))
    return number
answer(attempt(made, 5000))
"""


@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_whether_empty_files_count_is_said(backend: str) -> None:
    """A number of files that nothing bounds must not pass for bounded by scratch."""
    with jail_of(backend, scratch=1 << 16) as jail:
        clause = next(c for c in jail.report.clauses if c.clause == "limits.scratch")
        unbounded = inside(jail, FILES) == 0
        assert unbounded == (backend == "bubblewrap")
        assert ("their number has no limit" in clause.note) == unbounded

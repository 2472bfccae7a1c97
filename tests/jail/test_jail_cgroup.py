"""Where a jail's cgroup is looked for, and which leaves are removed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    Jail,
    JailPolicy,
    Limits,
    children_of,
    is_root,
    jail_by,
    own_memory_cgroup,
    until,
)

from visruntime._jail import usage
from visruntime._jail.cgroup import _owner_name, _start_time, _sweep, make_leaf
from visruntime._jail.cgroup_find import LEAF_PREFIX, Unusable, _below, find_parents

if TYPE_CHECKING:
    from pathlib import Path

    from visruntime._jail.cgroup import Leaf


def quota(leaf: Leaf | None) -> str:
    """Return how many microseconds of the processors a leaf has in each period."""
    assert leaf is not None
    with open(leaf._quotas[0][0], encoding="ascii") as text:
        return text.read().split()[0]


@pytest.mark.parametrize(
    ("point", "root", "path", "expected"),
    [
        ("/sys/fs/cgroup", "/", "/", "/sys/fs/cgroup"),
        ("/sys/fs/cgroup/memory", "/", "/user/1", "/sys/fs/cgroup/memory/user/1"),
        # A container without a namespace of its own sees its part of the tree only.
        ("/sys/fs/cgroup", "/docker/1", "/docker/1", "/sys/fs/cgroup"),
        ("/sys/fs/cgroup", "/docker/1", "/docker/1/a", "/sys/fs/cgroup/a"),
        ("/sys/fs/cgroup", "/docker/1", "/docker/12", None),
        # Outside of what the namespace shows: above it there are the limits of others.
        ("/sys/fs/cgroup", "/", "/../other", None),
        ("/sys/fs/cgroup", "/..", "/", None),
        ("/sys/fs/cgroup", "/", None, None),
    ],
)
def test_only_the_callers_own_part_of_a_tree_is_used(
    point: str, root: str, path: str | None, expected: str | None
) -> None:
    """A cgroup above or beside the caller's own must never be taken for it."""
    assert _below(point, root, path) == expected


def test_only_leaves_of_the_dead_are_removed(tmp_path: Path) -> None:
    """What belongs to a living host, to another pid namespace or to nobody known must stay."""
    with subprocess.Popen(["sleep", "60"]) as living:
        try:
            namespace = os.stat("/proc/self/ns/pid").st_ino
            start = _start_time(living.pid)
            kept = [
                f"{LEAF_PREFIX}{_owner_name(os.getpid())}-aa",
                f"{LEAF_PREFIX}{namespace}-{living.pid}-{start}-bb",
                f"{LEAF_PREFIX}{namespace + 1}-4194303-1-cc",
                f"{LEAF_PREFIX}odd",
                "visruntime-host",
                "somebody",
            ]
            # A number that was given to another process since, and one that nobody has.
            gone = [
                f"{LEAF_PREFIX}{namespace}-{living.pid}-{int(start or 0) - 1}-dd",
                f"{LEAF_PREFIX}{namespace}-4194304-1-ee",
            ]
            for name in (*kept, *gone):
                (tmp_path / name).mkdir()
            _sweep(str(tmp_path))
            assert sorted(os.listdir(tmp_path)) == sorted(kept)
        finally:
            living.kill()


def test_a_controller_that_is_not_there_is_named() -> None:
    """What no cgroup of this process can do must be refused, and nothing be made for it."""
    with pytest.raises(Unusable, match=r"hugetlb|writable|divided|no cgroup"):
        find_parents({"visruntime-hugetlb"})


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_a_leaf_is_below_the_callers_own_cgroup() -> None:
    """The limits of the caller must hold for its jails: a leaf is inside of its own cgroup."""
    own = own_memory_cgroup()
    assert own is not None
    leaf = make_leaf({"memory"}, memory=1 << 30)
    try:
        assert any(os.path.dirname(made) == own for made in leaf._directories)
        made = next(d for d in leaf._directories if os.path.dirname(d) == own)
        with open(f"{made}/cgroup.procs", encoding="ascii") as file:
            assert file.read() == ""
    finally:
        leaf.remove()
    leaf.remove()
    assert not any(os.path.exists(made) for made in leaf._directories)
    assert not os.path.exists(made)


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_what_is_left_in_a_leaf_ends_with_it() -> None:
    """A guest whose supervisors the kernel has ended for memory must not outlive its jail."""
    leaf = make_leaf({"memory"}, memory=1 << 30)
    with subprocess.Popen(["sleep", "60"]) as left:
        for file in leaf.members:
            os.write(file, str(left.pid).encode())
        made = list(leaf._directories)
        leaf.remove()
        assert left.wait(5) == -signal.SIGKILL
    leaf.remove()
    assert not any(os.path.exists(directory) for directory in made)


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_a_jail_that_is_to_end_has_all_of_the_processors() -> None:
    """A share that the guests use up must not keep those from their turn that end them."""
    leaf = make_leaf({"cpu"}, cpus=0.01)
    try:
        assert quota(leaf) == "1000"
        leaf.loosen()
        assert quota(leaf) in {"-1", "max"}
        leaf.tighten()
        assert quota(leaf) == "1000"
        file = leaf._quotas[0][0]
        leaf.loosen(for_good=True)
        leaf.tighten()
        with open(file, encoding="ascii") as text:
            assert text.read().split()[0] in {"-1", "max"}
    finally:
        leaf.remove()


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_a_keeper_that_is_late_has_all_of_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that a guest uses up must not keep it beyond its end, nor be gone after that."""
    monkeypatch.setattr(usage, "LATE_SECONDS", -9.0)
    with Jail(JailPolicy(limits=Limits(cpus=0.01))) as jail:
        leaf = jail._held.leaf
        with jail.spawn(["sleep", "60"], timeout=10) as process:  # as if its end were due after 1 s
            assert process.poll() is None
            assert quota(leaf) == "1000"  # the control: nothing is late
            time.sleep(1.1)
            assert process.poll() is None
            assert quota(leaf) in {"-1", "max"}
            process.kill()
            process.wait(20)
        assert quota(leaf) == "1000"


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
@pytest.mark.parametrize("order", ["timeout", "kill"])
def test_a_small_share_makes_no_end_late(order: str) -> None:
    """Many busy programs of a guest must not keep its keeper from the processors for long."""
    busy = ["sh", "-c", "for each in $(seq 60); do (while :; do :; done) & done; wait"]
    with Jail(JailPolicy(limits=Limits(cpus=0.01))) as jail:
        with jail.spawn(busy, timeout=1 if order == "timeout" else None) as process:
            time.sleep(1)
            started = time.monotonic()
            if order == "kill":
                process.kill()
            process.wait(20)
            assert time.monotonic() - started < 3
            assert process.stopped_by == ("timeout" if order == "timeout" else "killed")
        assert not jail.closed


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
@pytest.mark.parametrize("look", ["wait", "poll"])
def test_a_guest_does_not_outlive_its_supervisors_until_the_jail_is_closed(look: str) -> None:
    """Where no namespace ends a jail, its host ends what is left as soon as it sees the end."""
    limits = Limits(memory=256 << 20, processes=None, scratch=None)
    with jail_by("landlock", limits=limits) as jail:
        process = jail.spawn(["sh", "-c", "sleep 60 & exec sleep 60"])
        assert until(lambda: len(guests()) == 2)
        table = children_of(os.getpid())
        keepers = {pid for pid, status in table.items() if status["Name"] == "visjail-init"}
        (supervisor,) = (pid for pid in keepers if int(table[pid]["PPid"]) == os.getpid())
        left = [os.pidfd_open(pid) for pid in guests()]
        os.kill(supervisor, signal.SIGSTOP)  # it would end the others
        for pid in (*keepers - {supervisor}, supervisor):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
        assert not any(ended(pidfd) for pidfd in left)  # the control: nothing else ends them
        if look == "wait":
            process.wait(10)
        else:
            assert until(lambda: process.poll() is not None)
        assert process.stopped_by == "closed"
        assert all(ended(pidfd) for pidfd in left)
        assert jail.closed
        for pidfd in left:
            os.close(pidfd)


def guests() -> list[int]:
    """Return the sleeping programs that this process has started, by whomever."""
    table = children_of(os.getpid())
    return [pid for pid, status in table.items() if status["Name"] == "sleep"]


def ended(pidfd: int) -> bool:
    """Tell whether a process ends within a second."""
    return bool(select.select([pidfd], [], [], 1.0)[0])


@pytest.mark.skipif(not is_root(), reason="the file is root's for a process without a trace")
def test_a_guest_is_what_the_kernel_ends_for_memory() -> None:
    """Where no namespace ends a jail, its supervisors must not be chosen before its guests."""
    with jail_by("landlock") as jail, jail.spawn(["sleep", "60"]):
        score: dict[str, set[int]] = {}
        for pid, status in children_of(os.getpid()).items():
            with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as file:
                score.setdefault(status["Name"], set()).add(int(file.read()))
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:
        own = int(file.read())
    assert score == {"visjail-init": {max(own, 0)}, "sleep": {1000}}


UNCLOSED = """
import os
from visruntime import JailPolicy, Limits, Runtime
runtime = Runtime(JailPolicy(limits=Limits(memory=1 << 27)))
print(runtime.run("1").value, *runtime._jail._held.leaf._directories)
"""


@pytest.mark.skipif(own_memory_cgroup() is None, reason="this process has no cgroup to divide")
def test_a_host_that_ends_without_closing_leaves_no_cgroup() -> None:
    """The end of the interpreter must close a jail as the host would: in silence, and wholly."""
    result = subprocess.run(
        [sys.executable, "-c", UNCLOSED], capture_output=True, text=True, check=True, timeout=30
    )
    assert result.stderr == ""
    value, *directories = result.stdout.split()
    assert value == "1"
    assert directories
    assert not any(map(os.path.exists, directories))

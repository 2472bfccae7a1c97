"""What a result says was used, where it comes from, and what a limit on it holds."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jail_helpers
import pytest
from jail_helpers import (
    FORKS,
    PYTHON,
    Jail,
    JailPolicy,
    Limits,
    errno,
    inside,
    leaves,
    own_memory_cgroup,
)

import visruntime as vr
from visruntime._jail.cgroup import make_leaf
from visruntime._policy.values import Unasked
from visruntime.errors import PolicyUnsupported

MIB = 1 << 20
WIDE = Limits(memory=1 << 30)
"""A limit that no test reaches, for the cgroup that it brings."""

WORKERS_THAT_DIE = 60 if os.environ.get("VIS_FULL") else 2
"""In each of three threads: one in thirty took its jail along, on a loaded machine."""

needs_cgroup = pytest.mark.skipif(
    own_memory_cgroup() is None, reason="this process has no cgroup to divide"
)

HIDE = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    own = bytearray(80 << 20)
    end = time.process_time() + 0.4
    while time.process_time() < end: pass
    os._exit(0)
try: os.wait()
except ChildProcessError: pass
"""


def most(wall_seconds: float) -> float:
    """Return how much processor time there was in a time, with a little for the measuring."""
    return wall_seconds * (os.cpu_count() or 1) + 0.1


def peak_restarts() -> bool:
    """Tell whether this kernel can measure a peak from now on."""
    leaf = make_leaf({"memory"})
    try:
        return leaf.restart_peak()
    finally:
        leaf.remove()


@needs_cgroup
def test_a_guest_cannot_hide_what_it_used() -> None:
    """Children that nobody waits for must still be counted."""
    command = [PYTHON, "-IBS", "-c", HIDE]
    with Jail(JailPolicy(limits=WIDE)) as jail:
        result = jail.run(command)
        assert result.exit_code == 0, result.stderr_text
        assert result.usage.source == "cgroup"
        assert 0.4 < result.usage.cpu_seconds < most(result.usage.wall_seconds)
        assert result.usage.max_memory > 80 * MIB
        # Each run is measured by itself.
        second = jail.run(["true"])
        assert second.usage.source == "cgroup"
        assert second.usage.cpu_seconds < 0.2
        if peak_restarts():
            assert second.usage.max_memory < 60 * MIB
        else:  # cgroup v2 before Linux 6.12: the largest since the jail opened
            assert second.usage.max_memory >= result.usage.max_memory
    with Jail(JailPolicy()) as jail:
        result = jail.run(command)
        assert result.usage.source == "wait"
        assert result.usage.max_memory < 80 * MIB  # the lower bound that it is documented to be


@needs_cgroup
def test_a_worker_cannot_hide_what_it_used() -> None:
    """A run of Python must be charged for children that it does not wait for."""
    code = HIDE.replace("os._exit(0)", "os._exit(0)\n", 1)
    with vr.Runtime(vr.JailPolicy(limits=WIDE)) as runtime:
        runtime.run("1")
        result = runtime.run(code)
        assert result.error is None, result.error
        assert result.usage.source == "cgroup"
        assert result.usage.cpu_seconds is not None
        assert 0.4 < result.usage.cpu_seconds < most(result.usage.wall_seconds)
        assert result.usage.peak_memory is not None
        assert result.usage.peak_memory > 80 * MIB
        assert (runtime.run("2").usage.cpu_seconds or 0) < 0.3
    with vr.Runtime(vr.JailPolicy()) as runtime:
        result = runtime.run("1")
        # A jail that has a cgroup for another reason is measured by it.
        counted = "cgroup" in result.report.mechanisms("limits.processes")[0]
        assert result.usage.source == ("cgroup" if counted else "wait")


@needs_cgroup
def test_runs_that_overlap_are_not_measured_as_if_alone() -> None:
    """What others used meanwhile must not pass for exact: the source says that it is shared."""
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    with Jail(JailPolicy(limits=WIDE)) as jail:
        with jail.spawn([PYTHON, "-IBS", "-c", busy]) as other:
            quick = jail.run(["true"])
            assert quick.usage.source == "cgroup-shared"
            other.wait()
            assert other.usage is not None
            assert other.usage.source == "cgroup-shared"
        assert jail.run(["true"]).usage.source == "cgroup"


def test_a_worker_over_its_memory_dies_of_it() -> None:
    """A Python worker that takes more than its limit must end with that reason."""
    by = "watch" if own_memory_cgroup() is None else "cgroup"
    limits = Limits(memory=96 * MIB, memory_by=by)  # type: ignore[arg-type]
    with vr.Runtime(vr.JailPolicy(limits=limits)) as runtime:
        with pytest.raises(vr.WorkerDied) as caught:
            runtime.run("held = [bytearray(1 << 20) for _ in range(300)]")
        assert caught.value.stopped_by == "memory"
        result = caught.value.result
        assert result is not None
        assert result.stopped_by == "memory"
        assert [violation.kind for violation in result.violations] == ["limits.memory"]
        assert runtime.run("1 + 1").value == 2


@needs_cgroup
def test_what_dies_of_memory_takes_no_jail_along() -> None:
    """The kernel must not end a keeper for what it does while a guest's memory is given back."""

    def dies(_: int) -> list[str | None]:
        stopped = []
        for _ in range(WORKERS_THAT_DIE):
            with vr.Runtime(vr.JailPolicy(limits=Limits(memory=96 * MIB))) as runtime:
                with pytest.raises(vr.WorkerDied) as caught:
                    runtime.run("held = [bytearray(1 << 20) for _ in range(300)]")
                stopped.append(caught.value.stopped_by)
                assert runtime.run("1 + 1").value == 2  # in the same jail
        return stopped

    with ThreadPoolExecutor(3) as threads:
        for stopped in threads.map(dies, range(3)):
            assert stopped == ["memory"] * WORKERS_THAT_DIE


@needs_cgroup
def test_a_share_of_processor_time_holds_for_the_whole_jail() -> None:
    """Four busy processes must not get more than the share of one jail."""
    text = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        while time.process_time() < 0.3: pass
        os._exit(0)
for _ in range(4): os.wait()
"""
    command = [PYTHON, "-IBS", "-c", text]
    with Jail(JailPolicy(limits=Limits(cpus=0.1))) as jail:
        with pytest.raises(vr.CommandTimeout) as caught:
            jail.run(command, timeout=1.5)
        usage = caught.value.result.usage
        assert usage.source == "cgroup"
        assert usage.cpu_seconds < 0.1 * usage.wall_seconds + 0.2
        (clause,) = [one for one in jail.report.limits if one.clause == "limits.cpus"]
        assert (clause.bound, clause.value) == ("tree", 0.1)
        assert clause.enforced_by.endswith("cpu quota")
    with Jail(JailPolicy(limits=WIDE)) as jail:
        assert jail.run(command, timeout=60).usage.cpu_seconds > 1.2
    with pytest.raises(PolicyUnsupported, match=r"limits\.cpus: .*at least 0\.01"):
        Jail(JailPolicy(limits=Limits(cpus=0.001)))


@needs_cgroup
def test_processes_that_were_refused_are_named() -> None:
    """A fork bomb must be bounded, and the result say from the kernel's count that it was."""
    with Jail(JailPolicy(limits=WIDE.replace(processes=20))) as jail:
        number, count = inside(jail, FORKS)
        assert number == errno.EAGAIN
        assert 10 <= count < 20
        result = jail.run(["sh", "-c", "b() { b | b & }; b; sleep 1"], timeout=20)
        assert [violation.kind for violation in result.violations] == ["limits.processes"]
        assert result.violations[0].limit == 20
        assert jail.run(["true"]).violations == ()


@needs_cgroup
def test_a_killed_host_leaves_a_cgroup_for_the_next_to_remove() -> None:
    """What a killed host left must go with the next opening; a living host's must stay."""
    code = (
        "import sys, time; from jail_helpers import Jail, JailPolicy, Limits\n"
        "jail = Jail(JailPolicy(limits=Limits(memory=1 << 30)))\n"
        "print('open', flush=True); time.sleep(60)"
    )

    def host() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.path.dirname(jail_helpers.__file__)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        return process

    with host() as killed, host() as living:
        try:
            left, kept = leaves(killed.pid), leaves(living.pid)
            assert len(left) == len(kept) == 1
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            assert leaves(killed.pid) == left
            time.sleep(0.2)  # pid 1 of the jail sees the end of its host
            with Jail(JailPolicy(limits=WIDE)):
                assert leaves(killed.pid) == set()
                assert leaves(living.pid) == kept
        finally:
            living.kill()
            killed.kill()
    time.sleep(0.2)
    with Jail(JailPolicy(limits=WIDE)):
        pass
    assert leaves(living.pid) | leaves() == set()


@needs_cgroup
def test_a_forked_child_of_the_host_removes_no_cgroup() -> None:
    """A child that lets go of its copy of the jail must not take the limit from the jail."""
    with Jail(JailPolicy(limits=WIDE)) as jail:
        before = leaves()
        child = os.fork()
        if child == 0:
            jail.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert leaves() == before
        assert jail.run(["true"]).usage.source == "cgroup"


def test_every_limit_says_what_holds_it() -> None:
    """No limit of a policy may be missing from the report, or stand there without its bound."""
    limits = Limits(
        memory=1 << 30,
        memory_by="watch",
        cpu_seconds=9,
        wall_seconds=60.5,
        file_size=MIB,
        open_files=50,
    )
    with Jail(JailPolicy(limits=limits)) as jail:
        listed = {limit["limit"]: limit for limit in jail.report.to_dict()["limits"]}
    asked = {name for name, value in limits.to_dict().items() if value is not None}
    assert set(listed) == asked - {"memory_by", "cpus"}
    assert all(limit["enforced_by"] for limit in listed.values())
    assert {limit["bound"] for limit in listed.values()} == {"tree", "process", "sampled"}
    for name in ("cpu_seconds", "wall_seconds", "file_size", "open_files", "memory", "processes"):
        assert listed[name]["value"] == getattr(limits, name)


def test_a_default_is_told_from_the_same_number_asked_for() -> None:
    """The default number of processes must not pass for one that somebody asked for."""

    def unasked(limits: Limits) -> bool:
        return isinstance(limits.processes, Unasked)

    default, asked = Limits(), Limits(processes=1024)
    assert default == asked
    assert unasked(default)
    assert not unasked(asked)
    for same in (
        default.replace(output=5),
        pickle.loads(pickle.dumps(default)),
        Limits().narrow(Limits()),
    ):
        assert unasked(same)
    assert not unasked(default.narrow(asked))
    assert not unasked(asked.narrow(default))
    assert unasked(JailPolicy(limits=default).replace(system="none").limits)


@pytest.mark.skipif(own_memory_cgroup() is not None, reason="this process has a cgroup to divide")
@pytest.mark.parametrize(
    ("limits", "field"),
    [(Limits(memory=64 * MIB), "limits.memory"), (Limits(cpus=1.5), "limits.cpus")],
)
def test_without_a_cgroup_its_limits_are_refused(limits: Limits, field: str) -> None:
    """What only a cgroup can hold must be refused by name, with the way to get one."""
    with pytest.raises(PolicyUnsupported, match="systemd-run --user --scope") as caught:
        Jail(JailPolicy(limits=limits))
    assert caught.value.field == field

"""What holds each limit of one jail, decided before it starts; what cannot be held is refused."""

from __future__ import annotations

import os
from contextlib import contextmanager

from visruntime._policy.values import Unasked
from visruntime.errors import JailUnavailable, PolicyUnsupported
from visruntime.events import Clause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import NoReturn

    from visruntime._jail.cgroup import Leaf
    from visruntime.policy import Limits

__all__ = ["IDENTITY_ROOT", "HeldLimits", "hold", "hold_processes", "start_held"]

IDENTITY_ROOT = 3
"""vj_identity: host uid 0, whose processes RLIMIT_NPROC does not count."""

DESCRIPTORS_LEFT_TO_THE_HOST = 300
"""A guest's RLIMIT_NOFILE stays this far below the host's soft limit.

Descriptors in flight over AF_UNIX sockets are counted per host uid and compared with the
sender's soft limit: a guest with the host's own limit could stop every jail of its owner.
"""

ENOUGH_OPEN_FILES = 8
"""Descriptors with which any jail can open: three streams, what it inherits, and one to try with."""

OWN_CGROUP = (
    "start this program in a cgroup of its own that it may divide (systemd-run --user --scope "
    "-p Delegate=yes PROGRAM, as root without --user; on cgroup v1 only root can)"
)

WATCH_NOTE = (
    "the sum of all processes, measured every 10 ms and ended when it is over: it can be "
    "exceeded by what is taken in between; socket buffers, unmapped memfds and the private "
    "places are not in it"
)
CGROUP_NOTE = "no swap; answers of netlink sockets and locks of files are not in it"
PROCESS_NOTE = "private data of each process; shared mappings and files in memory are not in it"


class HeldLimits:
    """The limits of one jail and what holds them.

    ``leaf`` is its cgroup, ``None`` where no limit needs one. ``process`` and ``tree`` are
    for the plan, ``environment`` for the guests.
    """

    __slots__ = ("environment", "leaf", "limits", "process", "tree")

    def __init__(self, limits: Limits, leaf: Leaf | None) -> None:
        if leaf is None or "processes" not in leaf.mechanisms:
            limits = _leave_processes_to_the_host(limits)
        self.limits: Limits = limits
        self.leaf: Leaf | None = leaf
        by_leaf = leaf.mechanisms if leaf is not None else {}
        self.process: dict[str, int] = {
            "open_files": _open_files(limits),
            # Where the cgroup counts, a refusal is in its counters, and so can be proven.
            "processes": 0 if "processes" in by_leaf else limits.processes or 0,
            "file_size": limits.file_size or 0,
            "data": limits.memory or 0 if limits.memory_by == "process" else 0,
            "cpu_seconds": int(limits.cpu_seconds or 0),
        }
        page = os.sysconf("SC_PAGE_SIZE")
        outside = limits.memory if limits.memory_by != "cgroup" else None
        self.tree: dict[str, int] = {
            "watch_bytes": limits.memory or 0 if limits.memory_by == "watch" else 0,
            "shared_memory_pages": max(outside // page, 1) if outside else 0,
            "groups": len(leaf.members) if leaf is not None else 0,
            "counters": len(leaf.counters) if leaf is not None else 0,
            "memory_bytes": limits.memory or 0 if "memory" in by_leaf else 0,
        }
        self.environment: dict[str, str] = _environment(limits)

    @property
    def members(self) -> Sequence[int]:
        """The files through which the jail joins its cgroup."""
        return self.leaf.members if self.leaf is not None else ()

    @property
    def counters(self) -> Sequence[int]:
        """The files of its memory cgroup that are read in the jail."""
        return self.leaf.counters if self.leaf is not None else ()

    def loosen(self) -> None:
        """Let go of the limit on processors: the jail is to end."""
        if self.leaf is not None:
            self.leaf.loosen(for_good=True)

    def release(self) -> None:
        """Remove the cgroup, when nothing is in it any more."""
        if self.leaf is not None:
            self.leaf.remove()

    def refuse_too_little(self) -> None:
        """Tell a jail that did not open for want of memory from one that failed otherwise.

        Raises:
            PolicyUnsupported: the limit on memory is too small for the jail itself.
        """
        if self.leaf is not None and self.leaf.counts().kills:
            raise PolicyUnsupported(
                f"limits.memory: {self.limits.memory} bytes are too few for the jail itself; 16 MiB "
                "are enough for that, and 64 MiB for a Python worker in it",
                field="limits.memory",
                value=self.limits.memory,
            )

    def refuse_too_few_files(self) -> NoReturn:
        """Tell a jail that could try nothing, for want of descriptors, from one that did not hold.

        Raises:
            PolicyUnsupported: the limit on open files is too small for the jail itself.
        """
        asked = self.limits.open_files
        raise PolicyUnsupported(
            f"limits.open_files: {asked} is too few for a jail to try whether it holds; ask for at "
            f"least {ENOUGH_OPEN_FILES}",
            field="limits.open_files",
            value=asked,
        )

    def check_joined(self, pid: int) -> None:
        """Check that the jail, whose pid 1 is *pid* here, is in its cgroup.

        Raises:
            JailUnavailable: it is not.
        """
        if self.leaf is None:
            return
        from visruntime._jail.cgroup_find import Unusable

        try:
            self.leaf.started(pid)
        except Unusable as why:
            raise JailUnavailable(f"the jail did not hold: {why}", stage="cgroup") from None

    def counts_processes(self, info: Mapping[str, int]) -> bool:
        """Tell whether the limit on processes holds in the jail that *info* describes."""
        if self.limits.processes is None or info["identity"] != IDENTITY_ROOT:
            return True
        return self.leaf is not None and "processes" in self.leaf.mechanisms

    def clauses(self, info: Mapping[str, int], backend: str) -> list[Clause]:
        """Say what enforces each limit in the jail that *info* describes."""
        limits = self.limits
        clauses = self._of_the_tree(info, backend)
        if limits.scratch is not None:
            share = ", an equal part for each place" if backend == "bubblewrap" else ""
            note = "empty files count nowhere, and their number has no limit" if share else ""
            clauses.append(_clause("scratch", f"tmpfs size{share}", "tree", limits.scratch, note))
        for name, mechanism, value in (
            ("open_files", "RLIMIT_NOFILE", self.process["open_files"]),
            ("file_size", "RLIMIT_FSIZE", limits.file_size),
            ("cpu_seconds", "RLIMIT_CPU", limits.cpu_seconds),
        ):
            if value is not None:
                clauses.append(_clause(name, mechanism, "process", value))
        if limits.output is not None:
            clauses.append(_clause("output", "host reader", "tree", limits.output))
        if limits.wall_seconds is not None:
            clauses.append(_clause("wall_seconds", "keeper deadline", "tree", limits.wall_seconds))
        return clauses

    def _of_the_tree(self, info: Mapping[str, int], backend: str) -> list[Clause]:
        limits = self.limits
        by_leaf = self.leaf.mechanisms if self.leaf is not None else {}
        clauses = []
        if limits.processes is not None:
            mechanism = by_leaf.get("processes", "RLIMIT_NPROC of the user namespace")
            if self.counts_processes(info):
                clauses.append(_clause("processes", mechanism, "tree", limits.processes))
            else:
                note = "not enforced for host uid 0"
                clauses.append(
                    Clause("limits.processes", (), note=note, value=int(limits.processes))
                )
        if limits.cpus is not None:
            clauses.append(_clause("cpus", by_leaf["cpus"], "tree", limits.cpus))
        if limits.memory is None:
            return clauses
        shared = ("kernel.shmall",) if info["shared_memory"] else ()
        if backend == "landlock":
            shared = ("no System V shared memory (seccomp)",)
        mechanisms, bound, note = {
            "cgroup": ((by_leaf.get("memory", ""),), "tree", CGROUP_NOTE),
            "watch": (("watch by the keepers", *shared), "sampled", WATCH_NOTE),
            "process": (("RLIMIT_DATA", *shared), "process", PROCESS_NOTE),
        }[limits.memory_by]
        clauses.append(
            Clause("limits.memory", mechanisms, bound=bound, note=note, value=limits.memory)
        )
        return clauses


def hold(limits: Limits, *, count_processes: bool = False) -> HeldLimits:
    """Decide what holds *limits*; make the cgroup if one is needed.

    Args:
        count_processes: the number of processes needs a cgroup as well.

    Raises:
        PolicyUnsupported: a limit that cannot be held here, with the fix.
    """
    needed = {}
    if limits.memory is not None and limits.memory_by == "cgroup":
        needed["memory"] = "memory"
    if limits.cpus is not None:
        from visruntime._jail.cgroup import LEAST_QUOTA_MICROSECONDS, PERIOD_MICROSECONDS

        needed["cpus"] = "cpu"
        if limits.cpus * PERIOD_MICROSECONDS < LEAST_QUOTA_MICROSECONDS:
            raise PolicyUnsupported(
                f"limits.cpus: {limits.cpus} is less than the kernel can count; ask for at least "
                f"{LEAST_QUOTA_MICROSECONDS / PERIOD_MICROSECONDS}",
                field="limits.cpus",
                value=limits.cpus,
            )
    if count_processes:
        needed["processes"] = "pids"
    leaf = None
    if needed:
        from visruntime._jail.cgroup import make_leaf
        from visruntime._jail.cgroup_find import Unusable

        try:
            leaf = make_leaf(
                set(needed.values()),
                memory=limits.memory if "memory" in needed else None,
                processes=limits.processes,
                cpus=limits.cpus,
            )
        except Unusable as why:
            name = next(iter(needed))
            raise _refusal(name, getattr(limits, name), str(why)) from None
    try:
        return HeldLimits(limits, leaf)
    except BaseException:
        if leaf is not None:
            leaf.remove()
        raise


def hold_processes(limits: Limits) -> HeldLimits | None:
    """Return what holds *limits* where only a cgroup can count processes.

    ``None`` where there is none, and the limit is only the default: the report says so.

    Raises:
        PolicyUnsupported: there is none, and somebody asked for the limit.
    """
    try:
        return hold(limits, count_processes=True)
    except PolicyUnsupported:
        if isinstance(limits.processes, Unasked):
            return None
        raise


@contextmanager
def start_held(held: HeldLimits) -> Iterator[None]:
    """Release *held* when the jail for it does not start."""
    try:
        yield
    except BaseException:
        held.release()
        raise


def _refusal(name: str, value: float, why: str) -> PolicyUnsupported:
    what, fix = {
        "memory": (
            "the sum of all processes can only be bounded by a cgroup",
            f'{OWN_CGROUP}, or ask for memory_by="watch" or memory_by="process"',
        ),
        "cpus": ("a share of processor time needs a cgroup", OWN_CGROUP),
        "processes": (
            (
                "the kernel does not count the processes of host uid 0, and the grants are on a "
                "file system that refuses id-mapped mounts"
            ),
            f"leave the limit out, call as an ordinary user, or {OWN_CGROUP}",
        ),
    }[name]
    return PolicyUnsupported(
        f"limits.{name}: {what}: {why}; {fix}", field=f"limits.{name}", value=value
    )


def _clause(name: str, mechanism: str, bound: str, value: float, note: str = "") -> Clause:
    plain = int(value) if isinstance(value, int) else value
    return Clause(f"limits.{name}", (mechanism,), bound=bound, value=plain, note=note)


def _environment(limits: Limits) -> dict[str, str]:
    """Return what programs must be told that would not ask for less by themselves.

    A JVM sizes its heap from the memory of the machine, whatever the limit. Half of it leaves
    room for its code, its threads and the rest.
    """
    if limits.memory is None:
        return {}
    return {"JAVA_TOOL_OPTIONS": f"-Xmx{max(limits.memory >> 21, 2)}m"}


def _leave_processes_to_the_host(limits: Limits) -> Limits:
    """Lower a default number of processes where the user may have few.

    The kernel counts what is in a user namespace against the limit of the user who made it, too,
    so a guest with as many as that could stop all other programs of its owner from forking.
    """
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    processes = limits.processes
    if soft == resource.RLIM_INFINITY or not isinstance(processes, Unasked):
        return limits
    return limits.replace(processes=Unasked(min(processes, max(soft // 2, 1))))


def _open_files(limits: Limits) -> int:
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    most = max(soft - DESCRIPTORS_LEFT_TO_THE_HOST, soft // 2)
    if limits.open_files == "auto":
        return max(soft // 2, 1)
    wanted = int(limits.open_files) if limits.open_files is not None else most
    if wanted > most:
        raise PolicyUnsupported(
            f"limits.open_files: {wanted}, but this process itself may have {soft} "
            f"and keeps {soft - most} for itself; ask for at most {most}, or raise `ulimit -n`",
            field="limits.open_files",
            value=wanted,
        )
    return wanted

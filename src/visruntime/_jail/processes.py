"""Which processes run in a jail."""

from __future__ import annotations

import os

from visruntime._policy.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["ProcessInfo", "parse_processes"]

# Places in /proc/PID/stat (proc_pid_stat(5)), counted from the state behind the name.
STATE, PARENT, USER_TIME, SYSTEM_TIME, START, RESIDENT = 0, 1, 11, 12, 19, 21


class ProcessInfo(Frozen):
    """One process of a guest.

    ``pid`` and ``parent`` count inside the jail, as does ``run``: the ``JailProcess.pid`` of the
    program that it descends from. ``name`` is what the process calls itself, so a claim.
    ``state`` is the kernel's letter: R running, S sleeping, D waiting for a device, T stopped,
    Z ended and not waited for. ``memory`` is its resident memory in bytes, ``cpu_seconds`` its
    processor time.
    """

    __slots__ = ("cpu_seconds", "memory", "name", "parent", "pid", "run", "state")
    cpu_seconds: float
    memory: int
    name: str
    parent: int
    pid: int
    run: int
    state: str

    def __init__(self, **values: Any) -> None:
        self._set(**values)


def parse_processes(listing: bytes) -> tuple[ProcessInfo, ...]:
    """Return the guests' processes in *listing*: lines of /proc/PID/stat, ended by NUL.

    Pid 1 and its children, the keepers of the runs, are the jail's own.
    """
    found = {}
    for line in filter(None, listing.split(b"\0")):
        number, _, rest = line.partition(b" (")
        name, _, numbers = rest.rpartition(b") ")
        found[int(number)] = (name.decode("utf-8", "replace"), numbers.split())
    parents = {pid: int(fields[PARENT]) for pid, (_, fields) in found.items()}
    programs = _programs(parents, {pid: int(fields[START]) for pid, (_, fields) in found.items()})
    keepers = _keepers(parents)
    ticks = os.sysconf("SC_CLK_TCK")
    page = os.sysconf("SC_PAGE_SIZE")
    return tuple(
        ProcessInfo(
            pid=pid,
            parent=parents[pid],
            run=programs[keeper],
            name=name,
            state=fields[STATE].decode(),
            memory=int(fields[RESIDENT]) * page,
            cpu_seconds=(int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])) / ticks,
        )
        for pid, (name, fields) in sorted(found.items())
        if (keeper := keepers.get(pid)) is not None
    )


def _keepers(parents: dict[int, int]) -> dict[int, int]:
    """Return the keeper above each process of a guest: the child of pid 1 that it descends from.

    Each climbs up to the first whose keeper is known, so that none is climbed twice.
    """
    found: dict[int, int] = {}
    if parents.get(1) != 0:
        return found
    outside = {1}  # those that are no guest's, also because they go in a circle
    for pid in parents:
        line: list[int] = []
        at = pid
        while at in parents and parents[at] != 1 and at not in found and at not in outside:
            if len(line) > len(parents):
                break
            line.append(at)
            at = parents[at]
        keeper = at if parents.get(at) == 1 else found.get(at)
        if keeper is None:
            outside.update(line)
        else:
            found.update(dict.fromkeys(line, keeper))
    return found


def _programs(parents: dict[int, int], starts: dict[int, int]) -> dict[int, int]:
    """Return the program of each keeper: the oldest child, for what it adopts came later."""
    programs: dict[int, int] = {}
    for pid in sorted(parents, key=lambda pid: (starts[pid], pid)):
        if parents.get(parents[pid]) == 1:
            programs.setdefault(parents[pid], pid)
    return programs

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
        if (keeper := _keeper_of(pid, parents)) is not None
    )


def _keeper_of(pid: int, parents: dict[int, int]) -> int | None:
    """Return the keeper above *pid*; ``None`` for what is no guest's."""
    line = [pid]
    while line[-1] in parents and len(line) <= len(parents):
        line.append(parents[line[-1]])
    # ... the program or what the keeper adopted, the keeper, pid 1, and 0 above it
    return line[-3] if len(line) >= 4 and line[-2:] == [1, 0] else None


def _programs(parents: dict[int, int], starts: dict[int, int]) -> dict[int, int]:
    """Return the program of each keeper: the oldest child, for what it adopts came later."""
    programs: dict[int, int] = {}
    for pid in sorted(parents, key=lambda pid: (starts[pid], pid)):
        if parents.get(parents[pid]) == 1:
            programs.setdefault(parents[pid], pid)
    return programs

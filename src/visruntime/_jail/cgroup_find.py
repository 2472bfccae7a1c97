"""Which cgroups a jail of this process can be put into: below its own, and nowhere else.

A leaf beside or above the caller's own cgroup would escape the limits that somebody set for
the caller. What can be used is found by looking and trying, never by a version.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from visruntime._jail.mount_table import host_mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["HOST_LEAF", "LEAF_PREFIX", "Parent", "Unusable", "find_parents"]

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
"""What a jail has use for; cgroup v2 counts processor time without the last one."""

LEAF_PREFIX = "visruntime-jail-"
HOST_LEAF = "visruntime-host"
"""Where this process moves within its own cgroup v2: one that holds processes can hand no
controller down. The limits of the own one hold there as before."""


class Unusable(Exception):
    """No cgroup of this process can do it; the text says why."""


class Parent:
    """A directory of a cgroup file system in which leaves can be made for *controllers*."""

    __slots__ = ("controllers", "directory", "version")

    def __init__(self, version: int, directory: str, controllers: Iterable[str]) -> None:
        self.version = version
        self.directory = directory
        self.controllers = frozenset(controllers)


def find_parents(needed: Collection[str]) -> list[Parent]:
    """Return where leaves can be made that have all *needed* controllers, and others as well.

    On cgroup v2 this enables the controllers below the caller's own cgroup, for which it may
    have to move itself one level down, and those that started it and are in there too.

    Raises:
        Unusable: one of them cannot be had.
    """
    old, unified = _own_groups()
    directories: dict[str, set[str]] = {}
    for controller, directory in old.items():
        if _is_member(directory):
            directories.setdefault(directory, set()).add(controller)
    found = [Parent(1, directory, names) for directory, names in directories.items()]
    missing = set(needed).difference(*directories.values())
    if unified is not None and (missing or not found):
        found.append(_delegated(unified, missing))
    elif missing:
        raise Unusable(f"this process is in no cgroup with {' and '.join(sorted(missing))}")
    for parent in found:
        if not os.access(parent.directory, os.W_OK):
            if parent.controllers.isdisjoint(needed):
                continue
            raise Unusable(f"{parent.directory} is not writable for this process")
    return [parent for parent in found if os.access(parent.directory, os.W_OK)]


def _own_groups() -> tuple[dict[str, str], str | None]:
    """Return the directory of each controller of cgroup v1, and that of cgroup v2."""
    paths: dict[str, str] = {}
    for line in filter(None, _read("/proc/self/cgroup").split("\n")):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    old: dict[str, str] = {}
    unified = None
    for mount in host_mounts(_read_bytes("/proc/self/mountinfo"), ("cgroup", "cgroup2")):
        if mount.type == "cgroup2":
            unified = unified or _below(mount.point, mount.root, paths.get(""))
        if mount.type != "cgroup":
            continue
        options = os.fsdecode(mount.options).replace(" ", ",").split(",")
        for controller in set(options).intersection(CONTROLLERS):
            directory = _below(mount.point, mount.root, paths.get(controller))
            if directory is not None:
                old.setdefault(controller, directory)
    return old, unified


def _below(point: str, root: str, path: str | None) -> str | None:
    """Return where *path* is shown by a mount of *root* at *point*."""
    if path is None or ".." in path.split("/") or ".." in root.split("/"):
        return None
    if root != "/":
        if path != root and not path.startswith(f"{root}/"):
            return None
        path = path[len(root) :]
    return point + path.rstrip("/")


def _delegated(own: str, needed: Collection[str]) -> Parent:
    """Return the parent on cgroup v2, with its controllers enabled for leaves."""
    base = os.path.dirname(own) if os.path.basename(own) == HOST_LEAF else own
    wanted = {name for name in needed if name != "cpuacct"}
    offered = _words(f"{base}/cgroup.controllers")
    if not wanted <= offered:
        raise Unusable(
            f"{base} was not given the controllers {' and '.join(sorted(wanted - offered))}"
        )
    if not wanted <= _words(f"{base}/cgroup.subtree_control"):
        try:
            _enable(base, wanted)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise Unusable(
                    f"{base} may not be divided by this process ({error.strerror})"
                ) from None
            _move_down(own, base)
            try:
                _enable(base, wanted)
            except OSError as still:
                raise Unusable(f"{base} cannot be divided ({still.strerror})") from None
    for controller in offered.intersection(CONTROLLERS) - wanted:
        with suppress(OSError):  # good to have, and not needed
            _enable(base, [controller])
    return Parent(2, base, _words(f"{base}/cgroup.subtree_control") | {"cpuacct"})


def _enable(base: str, controllers: Iterable[str]) -> None:
    with open(f"{base}/cgroup.subtree_control", "w", encoding="ascii") as file:
        file.write(" ".join(f"+{name}" for name in sorted(controllers)))


def _move_down(own: str, base: str) -> None:
    """Move this process and its ancestors out of *base*, where nobody else may be.

    A launcher (``uv run``, a shell) waits for this process; others are not ours to move.
    """
    line = _ancestors()
    members = _words(f"{base}/cgroup.procs")
    others = members.difference(line)
    if own != base or others:
        raise Unusable(
            f"{base} holds {len(others)} processes that did not start this one, and a cgroup "
            "that holds processes cannot be divided"
        )
    try:
        os.makedirs(f"{base}/{HOST_LEAF}", exist_ok=True)
        for pid in line:
            if pid in members:
                with open(f"{base}/{HOST_LEAF}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(pid)
    except OSError as error:
        raise Unusable(f"this process cannot move within {base} ({error.strerror})") from None


def _ancestors() -> list[str]:
    """Return this process and its ancestors, as far as they are seen."""
    line = [str(os.getpid())]
    while True:
        fields = _read(f"/proc/{line[-1]}/stat").rpartition(")")[2].split()
        if len(fields) < 2 or fields[1] == "0" or fields[1] in line:
            return line
        line.append(fields[1])


def _is_member(directory: str) -> bool:
    return str(os.getpid()) in _words(f"{directory}/cgroup.procs")


def _words(path: str) -> set[str]:
    return set(_read(path).split())


def _read(path: str) -> str:
    return os.fsdecode(_read_bytes(path))


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

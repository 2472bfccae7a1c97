"""Which layer stopped an attempt, as its evidence says; nothing is known beforehand.

Each rule compares what the act and other acts got in the jail with what they got without one, and
says how it knows. A refusal that no rule explains is named as such.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from visruntime.denials import Denial

__all__ = ["Layer", "find_layers"]

Layer = tuple[str, str]
"""The name of a layer, and how it is known."""
Evidence = dict[str, Any]

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
_NO_SERVER = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH)
_FILTERED = (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)


def find_layers(
    inside: Evidence,
    outside: Evidence,
    denials: Sequence[Denial],
    facts: tuple[Mapping[str, Any], Mapping[str, Any]],
    host: Callable[[str], tuple[int, int] | None],
) -> tuple[Layer, ...]:
    """Return the layers that stopped an attempt.

    Args:
        inside: the evidence from the jail.
        outside: that of the control.
        denials: what the worker's audit hook says that it refused meanwhile.
        facts: what the worker in the jail is, and that of the control.
        host: device and inode of a path of the jail's tree, as the host sees it.
    """
    layers = [
        ("audit hook", f"it noted {denial.event} ({denial.rule or 'no rule grants it'})")
        for denial in denials[:1]
    ]
    layers += _kernel(inside, outside, facts, host)
    if not layers:
        layers.append(("not told apart", f"it failed with {_name(inside)}"))
    return tuple(layers)


def _kernel(
    inside: Evidence,
    outside: Evidence,
    facts: tuple[Mapping[str, Any], Mapping[str, Any]],
    host: Callable[[str], tuple[int, int] | None],
) -> Iterator[Layer]:
    if "path" in inside:
        yield from _of_path(inside["path"], outside["path"], facts, host)
    elif "between" in inside:
        yield from _of_names(inside)
    elif "harmless" in inside:
        yield from _of_call(inside, outside, facts)
    elif "start" in inside:
        yield from _of_start(inside, outside)
    elif "network" in inside:
        yield from _of_network(inside, facts)
    elif "process" in inside or "ipc" in inside:
        yield from _of_namespace(inside, facts, "ipc" if "ipc" in inside else "pid")
    elif "supervisor" in inside:
        yield from _of_supervisor(inside["errno"], inside["supervisor"])


def _of_path(
    inside: Evidence,
    outside: Evidence,
    facts: tuple[Mapping[str, Any], Mapping[str, Any]],
    host: Callable[[str], tuple[int, int] | None],
) -> Iterator[Layer]:
    # The jail's /proc is another one than the host's, with the same settings in it.
    there = None if inside["path"].startswith("/proc/") else host(inside["path"])
    seen = None if inside["seen"] is None else tuple(inside["seen"])
    if seen is None and there is not None and inside["lstat"] in _NOT_THERE:
        yield (
            "mount namespace",
            f"the host has it, and in the jail lstat says {_errno(inside['lstat'])}",
        )
    elif seen is not None and there is not None and seen != there:
        yield (
            "mount",
            "another object stands at that path in the jail (device and inode differ)",
        )
    if inside["read_only"] and not outside["read_only"] and inside["opened"] == errno.EROFS:
        yield "read-only mount", "statvfs says so of this place, and only in the jail"
    if inside["opened"] == errno.EACCES and inside["access"] == 0 and outside["opened"] == 0:
        yield (
            "Landlock",
            "access(2), which asks no Landlock, allows it, and opening gets EACCES",
        )
    if inside["read_only"] and not outside["read_only"] and seen is None and there is None:
        yield "read-only mount", "statvfs says so of the folder, and only in the jail"
    if (
        inside["opened"] == inside["access"] == errno.EACCES
        and seen is not None
        and there is None
        and facts[0]["uid_map"] != facts[1]["uid_map"]
    ):
        yield (
            "user namespace",
            "the worker is another user than the caller (uid_map), whom access(2) refuses",
        )


def _of_names(inside: Evidence) -> Iterator[Layer]:
    number, (source, target) = inside["errno"], inside["between"]
    if number == errno.EXDEV and (source != target or any(inside["mounted"])):
        yield "mount", "the two names are in two mounts (EXDEV), of which mountinfo tells"
    elif number == errno.EROFS and (source or target):
        yield "read-only mount", "statvfs says so of one of the two folders"
    elif number == errno.EBUSY and (any(inside["mounted"]) or inside["below"]):
        yield "mount", "the folder is pinned: it is a mount point or holds one (EBUSY)"


def _of_call(
    inside: Evidence, outside: Evidence, facts: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Iterator[Layer]:
    mine, theirs = inside["harmless"], outside["harmless"]
    if mine in _FILTERED and theirs != mine and facts[0]["seccomp"] == "2":
        yield (
            "seccomp",
            f"with meaningless arguments {_errno(mine)} in the jail, {_errno(theirs)} outside",
        )
    if inside["errno"] == errno.ESRCH and facts[0]["pid"] != facts[1]["pid"]:
        yield "pid namespace", "the process has no number in the jail (ESRCH)"


def _of_start(inside: Evidence, outside: Evidence) -> Iterator[Layer]:
    mine, theirs = tuple(inside["start"]), tuple(outside["start"])
    if mine == (errno.EPERM, errno.EPERM) and errno.EPERM not in theirs:
        yield (
            "seccomp in the worker",
            f"a meaningless execve and clone: EPERM, outside {' and '.join(map(_errno, theirs))}",
        )


def _of_network(
    inside: Evidence, facts: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Iterator[Layer]:
    if inside["errno"] in _NO_SERVER and facts[0]["net"] != facts[1]["net"]:
        yield (
            "network namespace",
            f"the jail has another than the host, and the server is not in it ({_name(inside)})",
        )
    elif inside["errno"] == errno.EPERM and facts[0]["net"] == facts[1]["net"]:
        yield "Landlock", "the namespace is the host's, and connecting gets EPERM (its scope)"


def _of_namespace(
    inside: Evidence, facts: tuple[Mapping[str, Any], Mapping[str, Any]], kind: str
) -> Iterator[Layer]:
    if inside["errno"] in (errno.ESRCH, *_NOT_THERE) and facts[0][kind] != facts[1][kind]:
        yield (
            f"{kind} namespace",
            f"the jail has another than the host, and it is not there ({_name(inside)})",
        )


def _of_supervisor(number: int | None, supervisor: Evidence) -> Iterator[Layer]:
    if number not in (errno.EPERM, errno.EACCES):
        return
    if supervisor["same_user"] and supervisor["dumpable"]:
        yield (
            "Landlock",
            f"{_errno(number)} from a dumpable process of the same user: its domain is what differs",
        )
    elif not supervisor["same_user"]:
        yield "user namespace", f"the supervisor is another user ({_errno(number)})"


def _name(evidence: Evidence) -> str:
    return _errno(evidence["errno"]) if evidence["errno"] else evidence["error"] or "no error"


def _errno(number: int) -> str:
    if number == 0:
        return "success"
    return errno.errorcode.get(number, "an error without a number")

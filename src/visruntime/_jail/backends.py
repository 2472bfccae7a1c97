"""What each back end cannot hold, clause by clause.

``namespaces`` can hold whatever this version can. ``bubblewrap`` makes the same mounts by
another program's hands, ``landlock`` makes none. A clause that a back end cannot hold is
refused by name; nothing is left out.
"""

from __future__ import annotations

import os

from visruntime._policy.looks import is_missing
from visruntime._policy.paths import PRIVATE_READ, PRIVATE_WRITE, is_within
from visruntime.errors import JailUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime.policy import JailPolicy

__all__ = ["BACKENDS", "BACKEND_WORDS", "check_caller", "is_host_root", "refused", "without_denied"]

BACKENDS = ("namespaces", "bubblewrap", "landlock")
"""In the order in which "auto" tries them: the strongest first."""

BACKEND_WORDS = ("auto", *BACKENDS, "seatbelt")
"""What callers may ask for; "seatbelt" is macOS's."""

NO_NOEXEC = {
    "bubblewrap": "bubblewrap makes no mount without execution",
    "landlock": "Landlock stops execve, but not a loader that is given the file to run",
}


NO_BROKER = "only a jail with namespaces of visruntime's own has a broker for single sockets"


NO_CACHES = "only a jail with mounts of visruntime's own shows a folder at another path"


NO_RELAY = "only a jail with namespaces of visruntime's own has a relay for single ports"


def is_host_root() -> bool:
    """Tell whether this process is uid 0 of the host, and not of a user namespace.

    The kernel's own settings belong to that uid, whatever maps of ids lie between.
    """
    if os.geteuid() != 0:
        return False
    try:
        return os.stat("/proc/sys").st_uid == 0
    except OSError:
        return True


def check_caller(backend: str) -> None:
    """Refuse a back end that cannot take the rights of this caller away.

    Raises:
        JailUnavailable: saying which one can.
    """
    if backend == "bubblewrap" and is_host_root():
        raise JailUnavailable(
            "bubblewrap maps no ids, so that a root caller's guest would be the owner of the "
            "host's devices",
            stage="bubblewrap",
            fix="use the back end namespaces, or call as an ordinary user",
        )


def refused(policy: JailPolicy, backend: str) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) for each clause of *policy* that *backend* cannot hold."""
    if backend in NO_NOEXEC:
        for index, _ in enumerate(policy.deny_exec):
            yield f"deny_exec[{index}]", NO_NOEXEC[backend]
    if backend != "namespaces":
        if policy.caches:
            yield "caches", NO_CACHES
        for kind in ("sockets", "sensitive_sockets"):
            if getattr(policy, kind):
                yield kind, NO_BROKER
        if policy.inbound:
            yield "inbound", NO_RELAY
        if policy.host_ports and policy.egress.mode != "open":
            yield "host_ports", NO_RELAY
    if backend != "landlock":
        return
    if policy.system == "host":
        yield (
            "system",
            "in the host's root Landlock could not close /proc, /dev and /tmp; ask for minimal",
        )
    for kind in ("read", "write"):
        for index, path in enumerate(getattr(policy, kind)):
            for place in (*PRIVATE_READ, *PRIVATE_WRITE):
                if place != path and is_within(place, path) and not is_missing(place):
                    yield (
                        f"{kind}[{index}]",
                        f"{place} lies in it and would be the host's own; grant less",
                    )
    if policy.limits.processes is not None:
        yield (
            "limits.processes",
            (
                "without a user namespace the kernel counts all processes of the user together; "
                "write processes=None (--processes none)"
            ),
        )
    if policy.limits.memory is not None and policy.limits.memory_by == "watch":
        yield (
            "limits.memory",
            (
                "without a pid namespace the processes of the jail cannot be told from others to "
                'measure them together; ask for memory_by="cgroup" or memory_by="process"'
            ),
        )
    if policy.limits.scratch is not None:
        yield (
            "limits.scratch",
            "without mounts there is no private place to bound; write scratch=None (--scratch none)",
        )


def without_denied(path: str, denied: Sequence[str]) -> list[str]:
    """Return what of the folder *path* can be granted around *denied* below it.

    Landlock's rules only add. So the siblings on the way to each denied name are granted
    one by one, as they are now: names that come later are not readable.
    """
    below = [name for name in denied if is_within(name, path)]
    if not below:
        return [path]
    if path in below:
        return []
    found: list[str] = []
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_symlink():
                continue
            found += without_denied(entry.path, below)
    return found

"""Mounts of the host that a grant would carry into the jail.

A grant is bound with all that is mounted below it. File systems that are windows into the
kernel do not belong into a jail, and a second mount of a denied folder is a second door.
"""

from __future__ import annotations

import os
import re

from visruntime import _native
from visruntime._paths import is_within
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mount", "host_mounts", "kernel_mounts", "refuse_aliases", "refuse_kernel_mounts"]

KERNEL_TYPES = frozenset(
    (
        "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs "
        "fusectl mqueue nfsd nsfs proc pstore resctrl rpc_pipefs securityfs selinuxfs smackfs "
        "sysfs tracefs"
    ).split()
)
"""File systems whose files are the kernel's own state, and not data."""

ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount:
    """One line of proc_pid_mountinfo(5): where it is mounted, and what."""

    __slots__ = ("device", "point", "root", "type")

    def __init__(self, line: bytes) -> None:
        fields, _, rest = line.partition(b" - ")
        parts = fields.split()
        self.device = parts[2]
        self.root = _unescape(parts[3])
        self.point = _unescape(parts[4])
        self.type = rest.split(b" ", 1)[0].decode("ascii", "replace")


def _unescape(text: bytes) -> str:
    return os.fsdecode(ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), text))


def host_mounts() -> list[Mount]:
    """Return the mounts of this process, in the order in which they were made."""
    with open("/proc/self/mountinfo", "rb") as table:
        return [Mount(line) for line in table.read().splitlines()]


def _mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    best = None
    for mount in mounts:  # of two at one point the later one is on top
        if is_within(path, mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def kernel_mounts(mounts: Sequence[Mount]) -> list[str]:
    """Return the mount points that show the kernel's state, but for those that jails replace.

    /sys itself is left: with the host's whole root a guest may look at it, read-only.
    """
    return sorted(
        {
            mount.point
            for mount in mounts
            if mount.type in KERNEL_TYPES
            and mount.point != "/sys"
            and not any(is_within(mount.point, place) for place in ("/proc", "/dev"))
        }
    )


def refuse_kernel_mounts(grants: Sequence[tuple[str, str]], mounts: Sequence[Mount]) -> None:
    """Refuse a grant, given as (field, real path), that would carry such a mount into the jail.

    Raises:
        PolicyUnsupported: naming the mount.
    """
    for field, path in grants:
        around = _mount_of(path, mounts)
        below = [m for m in mounts if m.type in KERNEL_TYPES and is_within(m.point, path)]
        if around is not None and around.type in KERNEL_TYPES:
            below.append(around)
        if below:
            raise PolicyUnsupported(
                f"{field}: {below[0].point} is a mounted {below[0].type}, which shows the state "
                f"of the host's kernel and would come with {path}; unmount it, or grant the "
                "folders beside it",
                field=field,
                value=path,
            )


def refuse_aliases(
    denies: Sequence[tuple[str, str, str]],
    rules: Sequence[tuple[str, str]],
    mounts: Sequence[Mount],
) -> None:
    """Refuse a deny, given as (field, right, real path), that another mount would get around.

    Raises:
        PolicyUnsupported: naming the other path.
    """
    for field, right, path in denies:
        own = _mount_of(path, mounts)
        if own is None:
            continue
        inside = path[len(own.point) :] if own.point != "/" else path
        place = own.root.rstrip("/") + inside
        for mount in mounts:
            if mount is own or mount.device != own.device:
                continue
            if is_within(place, mount.root):
                alias = mount.point.rstrip("/") + place[len(mount.root.rstrip("/")) :]
            elif is_within(mount.root, place):
                alias = mount.point
            else:
                continue
            alias = alias or "/"
            if not is_within(alias, path) and _native.decide(rules, right, alias)[0]:
                raise PolicyUnsupported(
                    f"{field}: {path} can also be reached as {alias}, by a second mount of the "
                    "same file system inside a grant; deny that path too",
                    field=field,
                    value=path,
                )

"""Mounts of the host that a grant would carry into the jail.

A grant is bound with all that is mounted below it. File systems that are windows into the
kernel do not belong into a jail, and a second mount of a denied folder is a second door.
"""

from __future__ import annotations

import os

from visruntime._policy.decider import Decider
from visruntime._policy.paths import Trees, is_within
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from visruntime.policy import Rule

__all__ = [
    "Aliases",
    "Mount",
    "by_point",
    "host_mounts",
    "kernel_mounts",
    "mount_of",
    "mount_table",
    "refuse_aliases",
    "refuse_kernel_mounts",
    "refuse_second_mounts",
    "refuse_unbindable",
    "secrets_by_second_mounts",
]

KERNEL_TYPES = frozenset(
    (
        "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs "
        "fusectl mqueue nfsd nsfs proc pstore resctrl rpc_pipefs securityfs selinuxfs smackfs "
        "sysfs tracefs"
    ).split()
)
"""File systems whose files are the kernel's own state, and not data."""

UNBINDABLE = b" unbindable "
"""The mark of a mount that is left out where the tree around it is bound."""

ESCAPE = rb"\\([0-7]{3})"
LAYER = rb"(?:^|,)((?:lowerdir\+?|upperdir|datadir\+?)=(?:[^,\\]|\\.)*)"
SEPARATOR = rb"(?<!\\):+"
BACKSLASH = rb"\\(.)"


class Mount:
    """One line of proc_pid_mountinfo(5): where it is mounted, and what."""

    __slots__ = ("device", "layers", "point", "root", "type", "unbindable")

    def __init__(self, line: bytes) -> None:
        parts = line.split(None, 5)
        self.unbindable = UNBINDABLE in b" " + parts[5].partition(b"- ")[0]
        self.device = parts[2]
        self.root = _unescape(parts[3])
        self.point = _unescape(parts[4])
        self.type = _type_of(line)
        self.layers = _layers(line) if self.type == "overlay" else []


def _layers(line: bytes) -> list[str]:
    """Return the folders that an overlay shows, as the options of its mount name them."""
    import re

    found: list[bytes] = []
    for option in re.findall(LAYER, _unescape_bytes(line.rsplit(b" ", 1)[-1])):
        name, _, value = option.partition(b"=")
        found += re.split(SEPARATOR, value) if name.startswith(b"lowerdir") else [value]
    return [os.fsdecode(re.sub(BACKSLASH, rb"\1", layer)) for layer in found if layer]


def _unescape_bytes(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    import re

    return re.sub(ESCAPE, lambda found: bytes([int(found[1], 8)]), text)


def _unescape(text: bytes) -> str:
    return os.fsdecode(_unescape_bytes(text))


def mount_table() -> bytes:
    """Return the mounts of this process, in the order in which they were made, as text."""
    with open("/proc/self/mountinfo", "rb") as table:
        return table.read()


def host_mounts(table: bytes, *, all_of_them: bool = True) -> list[Mount]:
    """Return the mounts of a `mount_table`.

    Without *all_of_them* only those that show the kernel's state, or that no grant would bring along.
    """
    lines = table.splitlines()
    if not all_of_them:
        lines = [line for line in lines if _type_of(line) in KERNEL_TYPES or UNBINDABLE in line]
    return [Mount(line) for line in lines]


def _type_of(line: bytes) -> str:
    start = line.index(b" - ") + 3
    return line[start : line.index(b" ", start)].decode("ascii", "replace")


def by_point(mounts: Sequence[Mount]) -> dict[str, Mount]:
    """Return the mounts by their mount points; of two at one point the later is on top."""
    return {mount.point: mount for mount in mounts}


def mount_of(path: str, points: Mapping[str, Mount]) -> Mount | None:
    """Return the mount that *path* is on, of those that `by_point` returned."""
    while path not in points:
        if path == "/":
            return None
        path = path.rpartition("/")[0] or "/"
    return points[path]


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
    points = by_point(mounts)
    kernel = [mount for mount in mounts if mount.type in KERNEL_TYPES]
    for field, path in grants:
        around = mount_of(path, points)
        below = [mount for mount in kernel if is_within(mount.point, path)]
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


def refuse_unbindable(grants: Sequence[tuple[str, str]], mounts: Sequence[Mount]) -> None:
    """Refuse a grant, given as (field, real path), of which the kernel would bind only a part.

    A mount with that mark is left out where the tree around it is bound
    (mount_namespaces(7)), so that the guest would have what lies under it.

    Raises:
        PolicyUnsupported: naming the mount.
    """
    unbindable = [mount.point for mount in mounts if mount.unbindable]
    for field, path in grants:
        for point in unbindable:
            if is_within(point, path):
                raise PolicyUnsupported(
                    f"{field}: {point} is mounted so that it is bound nowhere else, so what lies under "
                    f"it would be shown; `mount --make-private {point}`, or grant the folders "
                    "beside it",
                    field=field,
                    value=path,
                )


class Aliases:
    """By which further paths the host's mounts show what is at a path."""

    __slots__ = ("_by_device", "_layers", "_mounts", "_points")

    def __init__(self, mounts: Sequence[Mount]) -> None:
        self._mounts = mounts
        self._points = by_point(mounts)
        self._by_device: dict[bytes, list[Mount]] = {}
        for mount in mounts:
            self._by_device.setdefault(mount.device, []).append(mount)
        self._layers: list[tuple[Mount, str]] | None = None

    def second_mounts(self, path: str) -> Iterator[str]:
        """Yield where *path*, or a part of it, is mounted once more."""
        own = mount_of(path, self._points)
        if own is None or len(self._by_device[own.device]) == 1:
            return
        inside = path[len(own.point) :] if own.point != "/" else path
        place = own.root.rstrip("/") + inside
        for mount in self._by_device[own.device]:
            if mount is own:
                continue
            if is_within(place, mount.root):
                alias = mount.point.rstrip("/") + place[len(mount.root.rstrip("/")) :]
            elif is_within(mount.root, place):
                alias = mount.point
            else:
                continue
            alias = alias or "/"
            if not is_within(alias, path):
                yield alias

    def layers(self) -> list[tuple[Mount, str]]:
        """Return each overlay with each of its layers that can be told from here."""
        if self._layers is None:
            self._layers = [
                (mount, layer)
                for mount in self._mounts
                for layer in mount.layers
                # Others are of another mount namespace: a container's own root, for example.
                if not layer.startswith("/") or os.path.isdir(layer)
            ]
        return self._layers


def refuse_aliases(
    denies: Sequence[tuple[str, str, str]],
    rules: Sequence[tuple[str, str]],
    aliases: Aliases,
) -> None:
    """Refuse a deny, given as (field, right, real path), that another mount would get around.

    Raises:
        PolicyUnsupported: naming the other path.
    """
    if not denies:
        return
    decide = Decider(rules)
    for field, right, path in denies:
        for mount, layer in aliases.layers():
            _refuse_layer(field, right, path, mount, layer, decide)
        for alias in aliases.second_mounts(path):
            if decide(right, alias)[0]:
                raise PolicyUnsupported(
                    f"{field}: {path} can also be reached as {alias}, by a second mount of the "
                    f"same file system inside a grant; {_FIXES[right]}",
                    field=field,
                    value=path,
                )


_FIXES = {
    "read": "deny that path too",
    "write": "deny writing that path too (deny_write)",
    "exec": "deny executing that path too (deny_exec)",
}


def _refuse_layer(
    field: str, right: str, path: str, mount: Mount, layer: str, decide: Decider
) -> None:
    """Refuse a deny of what an overlay shows a second time, here or in one of its layers."""
    if not layer.startswith("/"):
        # Relative to where somebody stood when it was mounted: it could be anywhere,
        # but for a root, which was there before all that can be seen.
        unknown = is_within(path, mount.point) or decide(right, mount.point)[0]
        if mount.point != "/" and unknown:
            raise PolicyUnsupported(
                f"{field}: {mount.point} is an overlay of {layer!r}, which is no full path, so "
                f"a second name of {path} cannot be ruled out; mount it with full paths",
                field=field,
                value=path,
            )
        return
    for here, there in ((layer, mount.point), (mount.point, layer)):
        if is_within(path, here):
            alias = there.rstrip("/") + path[len(here.rstrip("/")) :]
        elif is_within(here, path):
            alias = there
        else:
            continue
        if not is_within(alias, path) and os.path.lexists(alias) and decide(right, alias)[0]:
            raise PolicyUnsupported(
                f"{field}: {path} can also be reached as {alias}, since the overlay at "
                f"{mount.point} shows {layer}; {_FIXES[right]}",
                field=field,
                value=path,
            )


def refuse_second_mounts(
    written: Sequence[Rule],
    rules: Sequence[tuple[str, str, bool, bool]],
    protected: Sequence[str],
    aliases: Aliases,
) -> None:
    """Refuse what is read-only, asked for or not, and writable where it is mounted once more.

    Args:
        written: the rules of the policy's own fields, resolved.
        rules: all rules, as (kind, path, is private, is a grant).
        protected: what the host runs or trusts, wherever it is.
        aliases: of the host's mounts.

    Raises:
        PolicyUnsupported: naming the other path.
    """
    writable = [rule.path for rule in written if rule.kind == "write"]
    if not writable:
        return
    trees = Trees(writable)
    constant = [
        (rule.origin, "write", rule.path)
        for rule in written
        if rule.kind == "read" and trees.top_of(rule.path) is not None
    ]
    constant += [("protected", "write", path) for path in protected]
    refuse_aliases(constant, [rule[:2] for rule in rules if not rule[2]], aliases)


def secrets_by_second_mounts(
    secrets: Sequence[tuple[str, str]],
    rules: Sequence[tuple[str, str, bool, bool]],
    reveal: Sequence[str],
    aliases: Aliases,
) -> list[tuple[str, str]]:
    """Return *secrets*, as (path, reason), with the further paths that mounts give them."""
    found = dict(secrets)
    decide = Decider([rule[:2] for rule in rules])
    for path, reason in secrets:
        for alias in aliases.second_mounts(path):
            readable, index = decide("read", alias)
            shown = readable and not rules[index][2] and alias not in reveal
            if shown and os.path.lexists(alias):
                found.setdefault(alias, f"{reason}; a second mount of {path}")
    return sorted(found.items())

"""Mounts of the host that a grant would carry into the jail.

A grant is bound with all that is mounted below it. File systems that are windows into the
kernel do not belong into a jail, and a second mount of a denied folder is a second door.
"""

from __future__ import annotations

from visruntime._policy.decider import Decider
from visruntime._policy.looks import is_missing
from visruntime._policy.paths import is_within, visible
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime._jail.aliases import Aliases
    from visruntime._jail.mount_table import Mount, MountTree
    from visruntime.policy import Rule

__all__ = [
    "KERNEL_TYPES",
    "kernel_mounts",
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


SYSTEM = "system"
PROTECTED = "protected"
UNASKED = (SYSTEM, PROTECTED)
"""What is said to be read-only where no field of the policy says it."""


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


def refuse_kernel_mounts(grants: Sequence[tuple[str, str]], tree: MountTree) -> None:
    """Refuse a grant, given as (field, real path), that would carry such a mount into the jail.

    Raises:
        PolicyUnsupported: naming the mount.
    """
    if not grants:
        return
    kernel = [mount for mount in tree.mounts if mount.type in KERNEL_TYPES]
    for field, path in grants:
        around = tree.mount_of(path)
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
    grants = [path for kind, path in rules if kind in ("read", "write")]
    for field, right, path in denies:
        _refuse_unknown_layers(field, right, path, aliases, decide)
        for name, alias in aliases.names(path, grants):
            # Whoever grants a folder inside of one that is read-only unasked gives that away.
            if field in UNASKED and is_within(alias, path):
                continue
            if decide(right, alias)[0] and not decide(right, name)[0]:
                raise PolicyUnsupported(
                    f"{field}: {visible(name)} can also be reached as {visible(alias)}, by a second "
                    "mount of the same file system, or an overlay of it, inside a grant; "
                    f"{_FIXES[right]}",
                    field=field,
                    value=path,
                )


_FIXES = {
    "read": "deny that path too",
    "write": "deny writing that path too (deny_write)",
    "exec": "deny executing that path too (deny_exec)",
}


def _refuse_unknown_layers(
    field: str, right: str, path: str, aliases: Aliases, decide: Decider
) -> None:
    """Refuse an overlay that could show *path* a second time, or *path* in such an overlay."""
    for mount, layer in aliases.unknown_layers():
        if is_within(path, mount.point) or decide(right, mount.point)[0]:
            raise PolicyUnsupported(
                f"{field}: {visible(mount.point)} is an overlay of {visible(layer)!r}, which is no "
                f"full path of a folder that is there, so a second name of {visible(path)} cannot "
                "be ruled out; mount it with full paths of its layers, or grant the folders "
                "beside it",
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
        protected: what the host or its guests run or trust, wherever it is.
        aliases: of the host's mounts.

    Raises:
        PolicyUnsupported: naming the other path.
    """
    if not any(rule.kind == "write" for rule in written):
        return
    constant = [(rule.origin, "write", rule.path) for rule in written if rule.kind == "read"]
    constant += [
        (SYSTEM, "write", path)
        for kind, path, private, granted in rules
        if kind == "read" and not private and not granted
    ]
    constant += [(PROTECTED, "write", path) for path in protected]
    refuse_aliases(constant, [rule[:2] for rule in rules if not rule[2]], aliases)


def secrets_by_second_mounts(
    secrets: Sequence[tuple[str, str]],
    rules: Sequence[tuple[str, str, bool, bool]],
    reveal: Sequence[str],
    aliases: Aliases,
) -> list[tuple[str, str]]:
    """Return *secrets*, as (path, reason), with the further paths that mounts give them.

    Raises:
        PolicyUnsupported: naming an overlay that could show one of them, too.
    """
    if not secrets:
        return []
    found = dict(secrets)
    decide = Decider([rule[:2] for rule in rules])
    grants = [path for kind, path, private, _ in rules if kind in ("read", "write") and not private]
    for path, reason in secrets:
        _refuse_unknown_layers("secrets", "read", path, aliases, decide)
        for alias in aliases.second_mounts(path, grants):
            readable, index = decide("read", alias)
            shown = readable and not rules[index][2] and alias not in reveal
            if shown and not is_missing(alias):
                found.setdefault(alias, f"{reason}; a second mount of {path}")
    return sorted(found.items())

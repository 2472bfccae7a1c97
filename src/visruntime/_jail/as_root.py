"""What is refused where the guest of a root caller stays uid 0 of the host.

That is so by the back end landlock, which has no mounts to map ids with, and where a file system
of the grants takes no id-maps. Such a guest has no capability, but all that is root's: nothing
then shows a grant as its owner, or as a stranger, would see it.
"""

from __future__ import annotations

import os
import stat
import sys

from visruntime._jail.mount_table import MountTree, mount_table
from visruntime._policy.paths import is_within, visible
from visruntime._policy.planted import ALL, READ, keeps_from_others
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from visruntime._jail.plan import JailPlan
    from visruntime._policy.links import Resolver
    from visruntime.policy import JailPolicy, Rule

__all__ = ["not_roots", "refuse_as_root", "root_notes"]

TAKES_MAPS = frozenset(("btrfs", "ext4", "f2fs", "tmpfs", "xfs"))
"""File systems that take id-maps on every kernel from Linux 6.3 on; others may as well."""

MOST_NAMED = 4
"""Mounts that a message names."""


def not_roots(
    written: Sequence[Rule],
    implicit: Sequence[str],
    strangers: Mapping[str, str],
    resolver: Resolver,
) -> list[tuple[str, str, str]]:
    """Return (field, path, why) of each grant that a guest with root's uid must not get.

    Those are the grants that are not root's, for who owns a folder puts files of root's there by
    renaming them, and *strangers*, which says why of each. A single file that gives everybody what
    is granted is none. What the host's own Python runs from is none because of its owner, who is
    root already.

    Args:
        written: the rules of the policy's own fields, resolved.
        implicit: what the caller's library adds, to be read.
        strangers: grants that do not go by their owner.
        resolver: has looked at all of them.
    """
    prefixes = (sys.prefix, sys.base_prefix) if implicit else ()
    own = {os.path.realpath(prefix) for prefix in prefixes}
    asked = [(rule.origin, rule.path, rule.kind) for rule in written]
    asked += [("python", path, "read") for path in implicit]
    found = []
    for field, path, kind in asked:
        status = resolver.found.get(path)
        if kind not in ("read", "write") or status is None:
            continue
        why = strangers.get(path, "")
        trusted = field == "python" and any(is_within(path, prefix) for prefix in own)
        if not why and status.st_uid and not trusted:
            why = f"belongs to uid {status.st_uid}"
        bits = status.st_mode & (READ if kind == "read" else ALL)
        if why and (not stat.S_ISREG(status.st_mode) or keeps_from_others(bits)):
            found.append((field, path, why))
    return found


def refuse_as_root(policy: JailPolicy, plan: JailPlan) -> None:
    """Refuse what a guest that is uid 0 of the host would get without any capability.

    Raises:
        PolicyUnsupported: naming the clause.
    """
    who = f"{_cause(plan)}, so the guest would be uid 0 of the host (without capabilities)"
    fix = "grant folders of another file system, or call as an ordinary user"
    if policy.system == "host":
        raise PolicyUnsupported(
            f'system: {who} and read all that root owns, such as /root; use system="minimal", '
            f"{fix}",
            field="system",
            value="host",
        )
    for kind in ("sockets", "sensitive_sockets"):
        for index, path in enumerate(getattr(policy, kind)):
            field = f"{kind}[{index}]"
            raise PolicyUnsupported(
                f"{field}: {who}, and the server behind {path} would take it for root; {fix}",
                field=field,
                value=path,
            )
    if plan.backend == "landlock":
        fix = "or call as an ordinary user"
    for field, path, why in plan.not_roots:
        raise PolicyUnsupported(
            f"{field}: {visible(path)} {why}; {who} and have root's files there as root; give it "
            f"to root (chown) in a folder that only root may change, {fix}",
            field=field,
            value=path,
        )


def root_notes(plan: JailPlan, system: str) -> list[str]:
    """Say what a guest that is uid 0 of the host sees of the system, and why it is."""
    notes = [f"identity: host uid 0, since {_cause(plan)}"]
    if system == "minimal":
        notes.append(
            "system: the guest is host uid 0, so it reads what only root may read in the folders "
            "of the system, such as files of mode 0600 below /usr"
        )
    return notes


def _cause(plan: JailPlan) -> str:
    if plan.backend == "landlock":
        return "the back end landlock makes no mounts to map ids with"
    grants = [path for kind, path in plan.host_rules if kind in ("read", "write")]
    mounts = list(dict.fromkeys(_other_mounts(grants)))
    named = ", ".join(mounts[:MOST_NAMED]) + (", ..." if len(mounts) > MOST_NAMED else "")
    return f"a file system of the grants refuses id-mapped mounts{f' ({named})' if named else ''}"


def _other_mounts(grants: Iterable[str]) -> Iterator[str]:
    """Yield the mounts at, around and below *grants* that are not known to take id-maps."""
    tree = MountTree(mount_table())
    for path in grants:
        around = tree.mount_of(path)
        below = [mount for mount in tree.mounts if is_within(mount.point, path)]
        for mount in ([around] if around is not None else []) + below:
            if mount.type not in TAKES_MAPS:
                yield f"{visible(mount.point)} is {mount.type}"

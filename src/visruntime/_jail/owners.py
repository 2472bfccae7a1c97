"""In whose name the guest of a root caller has a grant: as the owner of what stands at its path.

That is an answer only as far as nobody else could have put it there, and where the folder's
group is one of its owner's.
"""

from __future__ import annotations

import os
import stat

from visruntime._policy.paths import ancestors, visible
from visruntime._policy.planted import ALL, WRITE, is_planted
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from visruntime import _native
    from visruntime._policy.links import Resolver
    from visruntime.policy import JailPolicy, Rule

__all__ = ["grouped", "in_whose_name", "refuse_planted_sockets", "strangers"]

PlanRule = tuple[str, str, bool, bool]


def grouped(facts: dict[str, _native.Fact], paths: Iterable[str]) -> None:
    """Leave to the grants at *paths* no group that their owner is not in.

    A folder of a user may belong to any group, also to root's, whose files are not the user's.
    """
    for path in paths:
        kind, device, inode, owner, group = facts[path]
        if kind != "absent" and not _is_in(owner, group):
            facts[path] = kind, device, inode, owner, _primary(owner)


def _is_in(owner: int, group: int) -> bool:
    if owner == 0:
        return True  # has the rights of every group
    import grp
    import pwd

    try:
        user = pwd.getpwuid(owner)
    except KeyError:  # a user of a container or a share: only its groups are unknown here too
        try:
            grp.getgrgid(group)
        except KeyError:
            return group != 0
        return group == owner
    return group == user.pw_gid or group in os.getgrouplist(user.pw_name, user.pw_gid)


def _primary(owner: int) -> int:
    import pwd

    try:
        return pwd.getpwuid(owner).pw_gid
    except KeyError:
        return owner


def strangers(
    policy: JailPolicy,
    written: Sequence[Rule],
    implicit: Sequence[str],
    resolver: Resolver,
    notes: list[str],
) -> dict[str, str]:
    """Return the grants that do not go by their own owner, and why; *notes* says which.

    Of a narrowed policy those are the paths that it names in a grant of another owner: only if
    it has the owner of that grant does the guest get it in that name. And those that somebody
    else could have put there.
    """
    narrowed = {}
    planted = {}
    granted = [rule.path for rule in written if rule.kind in ("read", "write")]
    writable = {rule.path for rule in written if rule.kind == "write"}
    for path in dict.fromkeys((*granted, *implicit)):
        status = resolver.found.get(path)
        if status is None:
            continue
        if path in policy.owners and policy.owners[path] != (status.st_uid, status.st_gid):
            narrowed[path] = "was not granted in its owner's name by the policy that was narrowed"
        else:
            asked = ALL if path in writable else ALL & ~0o222
            if is_planted(path, status.st_uid, status.st_mode, asked=asked):
                planted[path] = "could have been put there by others than root and its owner"
    if narrowed:
        notes.append(
            "narrowed_grants: shown as a stranger sees them, since the policy that was narrowed "
            f"did not grant them in their owner's name: {', '.join(map(visible, narrowed))}"
        )
    if planted:
        notes.append(
            "planted_grants: shown as a stranger sees them, since others than root and their owner "
            f"could have put them there: {', '.join(map(visible, planted))}"
        )
    return {**narrowed, **planted}


def refuse_planted_sockets(sockets: Sequence[tuple[str, str]], resolver: Resolver) -> None:
    """Refuse a root caller's socket, given as (field, real path), that is its owner's by name only.

    The guest would connect in the name of the owner to what others have put there. One to which
    everybody may connect is none: that it would be in any name.

    Raises:
        PolicyUnsupported: naming the field.
    """
    for field, path in sockets:
        status = resolver.found[path]
        if (
            status is not None
            and is_planted(path, status.st_uid, status.st_mode, asked=WRITE)
            and not _everybody_connects(path, status.st_mode)
        ):
            raise PolicyUnsupported(
                f"{field}: others than root and its owner could have put {visible(path)} there, and "
                "not everybody may connect to it; let its server make it in a folder that only "
                "root and the socket's owner may change",
                field=field,
                value=path,
            )


def _everybody_connects(path: str, mode: int) -> bool:
    """Tell whether everybody may write to the socket at *path* (unix(7)), and come to it."""
    above = (os.lstat(folder).st_mode for folder in ancestors(os.path.dirname(path)))
    return bool(mode & stat.S_IWOTH) and all(folder & stat.S_IXOTH for folder in above)


def in_whose_name(
    rules: Sequence[PlanRule], granted: Iterable[str], others: Collection[str]
) -> Sequence[PlanRule]:
    """Return *rules*, of which those of *others* and what is opened below them are no grants."""
    if not others:
        return rules
    grants = {*granted, *others}

    def is_known(path: str) -> bool:
        above = [top for top in reversed(list(ancestors(path))) if top in grants]
        return not above or above[0] not in others

    return [(*rule[:3], rule[3] and is_known(rule[1])) for rule in rules]

"""What the file system has at the paths of rules: what a plan rests on, looked at once."""

from __future__ import annotations

import os
import stat

from visruntime._jail.owners import grouped
from visruntime._policy.looks import refuse_closed
from visruntime._policy.paths import ancestors, visible
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from visruntime import _native
    from visruntime._policy.decider import Decider
    from visruntime._policy.links import Resolver
    from visruntime.policy import JailPolicy, Rule

__all__ = [
    "Vanished",
    "check_facts",
    "check_held",
    "check_patterns",
    "fact_of",
    "fact_of_link",
    "facts_of",
    "own_by_grants",
]


class Vanished(Exception):
    """What is to be covered was there when it was found, and then no more."""


def facts_of(
    paths: Iterable[str], resolver: Resolver, looks: dict[str, os.stat_result | None]
) -> dict[str, _native.Fact]:
    """Return what stands at each path and above it; for the rules, what was found there.

    *looks* gets what the answers rest on.
    """
    whole = set()  # folders that were looked at, and all above them
    for path in paths:
        if path in resolver.closed:
            continue
        folder = path.rpartition("/")[0] or "/"
        if folder not in whole:
            whole.add(folder)
            for step in ancestors(folder):
                resolver.at(step)
        resolver.at(path)
    looks.update(resolver.found)
    facts = {path: fact_of(status) for path, status in resolver.found.items()}
    # Nothing is made for those: `check_held` refuses them where that would matter.
    facts |= dict.fromkeys(resolver.closed, ("absent", 0, 0, 0, 0))
    # A rule on a link stands for the link and for what it leads to; only that can be covered.
    for links in resolver.links.values():
        for link, _ in links:
            facts[link] = ("absent", 0, 0, 0, 0)
    return facts


def own_by_grants(
    facts: dict[str, _native.Fact],
    rules: Sequence[tuple[str, str, bool, bool]],
    written: Sequence[Rule],
    reopened: Sequence[tuple[str, str]],
) -> None:
    """Give what `reveal` opens the owner of the grant around it: it is no grant of its own."""
    granted = {rule.path for rule in written if rule.kind in ("read", "write")}
    grouped(facts, [path for _, path, _, is_grant in rules if is_grant])
    for _, path in reopened:
        around = [top for top in ancestors(path) if top in granted]
        if around and path not in granted:
            facts[path] = *facts[path][:3], *facts[around[-1]][3:]


def fact_of_link(found: os.stat_result | None) -> _native.Fact:
    """Return that of a link that is to stay, "absent" of anything else."""
    if found is None or not stat.S_ISLNK(found.st_mode):
        return fact_of(None)
    return "link", *fact_of(found)[1:]


def fact_of(found: os.stat_result | None) -> _native.Fact:
    if found is None:
        return "absent", 0, 0, 0, 0
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
    device = os.major(found.st_dev) << 32 | os.minor(found.st_dev)
    return kind, device, found.st_ino, found.st_uid, found.st_gid


def check_patterns(
    policy: JailPolicy, written: Sequence[Rule], resolver: Resolver
) -> dict[str, tuple[str, int]]:
    """Return of each rule by a pattern its fixed beginning, and how many names it stands for.

    -1 stands for a whole folder, -2 for all names that could ever be there.
    """
    if not policy.patterns:
        return {}
    found = {}
    for kind in ("read", "write", "deny", "deny_read", "deny_write", "deny_exec"):
        for index, path in enumerate(getattr(policy, kind)):
            pattern = policy.patterns.get(path)
            if pattern is None:
                continue
            field = f"{kind}[{index}]"
            names = {rule.path for rule in written if rule.origin == field}
            number = -2 if kind in ("deny_write", "deny_exec") else len(names)
            found[field] = pattern.fixed, number if pattern.rest else -1
            if kind not in ("read", "write"):
                continue
            if not names:
                raise PolicyError(
                    f"{field}: {visible(path)} names nothing that exists (links and secrets do "
                    "not count); make it first, a grant is never left out",
                    field=field,
                    value=path,
                )
            for name in names:
                resolver.at(name)
    return found


def check_facts(written: Sequence[Rule], resolver: Resolver) -> None:
    for rule in written:
        if rule.kind not in ("read", "write"):
            found = resolver.found.get(rule.path)
            if found is not None:
                _check_other_names(rule, found)
            continue
        if rule.path in resolver.closed:
            refuse_closed(rule.path, field=rule.origin)
        found = resolver.at(rule.path)
        if found is None:
            raise PolicyError(
                f"{rule.origin}: {rule.path} does not exist; make it first, a grant is never "
                "left out",
                field=rule.origin,
                value=rule.path,
            )
        if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
            raise PolicyUnsupported(
                f"{rule.origin}: {rule.path} is neither a folder nor a regular file",
                field=rule.origin,
                value=rule.path,
            )


TAKEN = {
    "read": "write",
    "deny": "read",
    "deny_read": "read",
    "deny_write": "write",
    "deny_exec": "exec",
}
"""The right that a rule can take away from what lies in a grant."""


def check_held(
    rules: Sequence[tuple[str, str, bool, bool]],
    facts: Mapping[str, _native.Fact],
    decide: Decider,
    resolver: Resolver,
    *,
    held: Collection[str],
    links: Iterable[str],
    origins: Mapping[str, str],
) -> None:
    """Refuse a plan that would leave out a rule which takes something away.

    A rule is held by a mount over what is there, or by a wall around a name that is *held*.
    All of a plan is made from one look at each path, so what has neither was there when it was
    searched for, or could not be looked at: without this the rule would be dropped in silence.

    Args:
        rules: all rules, as (kind, path, is private, is a grant).
        facts: what a mount is made for.
        decide: over all *rules*.
        resolver: has the paths that could not be looked at, and the links that were followed.
        held: names that are kept from being made.
        links: those that have to stay.
        origins: the field of the policy behind a path.

    Raises:
        Vanished: it went away.
        PolicyUnsupported: it is in a folder that is closed.
    """
    for link in links:
        if facts[link][0] == "absent":
            raise Vanished(link)
    followed = {link for met in resolver.links.values() for link, _ in met}
    for kind, path, private, _ in rules:
        if private or kind not in TAKEN or facts[path][0] != "absent" or path in held:
            continue
        right = TAKEN[kind]
        given, index = decide(right, os.path.dirname(path))
        # Of a link only what it leads to can be covered; and the jail makes its own places.
        if not given or rules[index][2] or decide(right, path)[0] or path in followed:
            continue
        if path in resolver.closed:
            refuse_closed(path, field=origins.get(path, ""))
        raise Vanished(path)


def _check_other_names(rule: Rule, found: os.stat_result) -> None:
    """Refuse to deny a file that has a second name: the other name would still lead to it."""
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and rule.kind != "deny_exec":
        raise PolicyUnsupported(
            f"{rule.origin}: {rule.path} has {found.st_nlink} names (hard links), and a guest "
            "could reach it by another one; give it one name (cp it over itself), or deny the "
            "folders of all its names",
            field=rule.origin,
            value=rule.path,
        )

"""What the patterns of a policy name on this host, looked for once for all that begin alike.

A policy file that is only found may be a guest's, and so may the tree that it is about: each
pattern costs a walk, and each name in it a comparison. All of a policy's patterns that begin
at one folder share one walk, and what found ones may cost altogether is bounded.
"""

from __future__ import annotations

import os

from visruntime import _native
from visruntime._policy.links import LeadsOut, LinkLoop, Resolver
from visruntime._policy.looks import is_missing, refuse_closed
from visruntime._policy.paths import FORBIDDEN_GRANTS, ancestors, is_within, visible
from visruntime._policy.secret_names import hidden_at, table
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from visruntime._policy.patterns import Pattern
    from visruntime._policy.values import Rule
    from visruntime.policy import JailPolicy

__all__ = ["Sought", "Walked", "denied_names", "granted_names", "look_for"]

MOST_MATCHES = 10_000
"""Names that one pattern may stand for: as many as a policy may have rules."""

BUDGET = {"entries": 5_000_000, "matches": 100_000, "work": 10**10}
"""What all patterns of a policy may cost: names below their fixed beginnings that are looked
at, names that they stand for, and characters that are compared (about 10 s)."""

FOUND_BUDGET = {"entries": 1_000_000, "matches": MOST_MATCHES, "work": 5 * 10**8}
"""The same of those that only a found file says; a second or two."""


class Sought:
    """One pattern that is looked for, and what it names.

    Attributes:
        kind, field, path: of its rule; *field* is such as "deny[0]".
        top: where its fixed beginning leads.
        found: only a file that was found says it.
        names: (kind of file, path) of what it names, once `look_for` has looked.
    """

    __slots__ = ("field", "found", "kind", "names", "path", "pattern", "top")

    def __init__(
        self, kind: str, field: str, path: str, pattern: Pattern, top: str, *, found: bool
    ) -> None:
        self.kind: str = kind
        self.field: str = field
        self.path: str = path
        self.pattern: Pattern = pattern
        self.top: str = top
        self.found: bool = found
        self.names: list[tuple[str, str]] = []


class Walked:
    """What one command has seen of its patterns' names, for its questions about the policy.

    A jail that opens never takes it: what is enforced is what was there in that moment.
    """

    __slots__ = ("_last", "_names")

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        self._last: tuple[JailPolicy, tuple[Rule, ...]] | None = None

    def rules_of(self, policy: JailPolicy) -> tuple[Rule, ...]:
        """Return what *policy* resolves to; of the policy that was asked for last, as it was."""
        if self._last is None or self._last[0] is not policy:
            self._last = policy, policy._assemble(resolve=True, walked=self)
        return self._last[1]

    def take(self, group: Sequence[Sought], top: str, place: str) -> list[Sought]:
        """Give those of *group* their names that are known; return the others."""
        unknown = []
        for one in group:
            names = self._names.get((top, place, one.pattern.rest))
            if names is None:
                unknown.append(one)
            else:
                one.names += names
        return unknown

    def keep(self, one: Sought, top: str, place: str, names: list[tuple[str, str]]) -> None:
        """Keep what a walk has found for *one*."""
        self._names[top, place, one.pattern.rest] = names


def look_for(
    sought: Sequence[Sought], grants: Mapping[str, bool], walked: Walked | None = None
) -> None:
    """Find what the patterns *sought* name: of a deny inside of *grants*.

    Args:
        sought: each gets its ``names``.
        grants: the paths of all grants, and whether each is a place of the jail's own.
        walked: has what was found before, and gets the rest; ``None`` to look anew.

    Raises:
        PolicyUnsupported: one names too much, or something cannot be looked at.
    """
    walks: dict[tuple[bool, str, str], list[Sought]] = {}
    places: dict[str, list[str]] = {}
    for one in sought:
        if one.kind in ("read", "write"):
            tops = [one.top]
        else:
            if one.top not in places:
                places[one.top] = _places(one.top, grants)
            tops = places[one.top]
        for place in tops:
            walks.setdefault((one.found, one.top, place), []).append(one)
    budgets = {
        True: _native.expand_budget(**FOUND_BUDGET),
        False: _native.expand_budget(**BUDGET),
    }
    for (found, top, place), group in walks.items():
        unknown = group if walked is None else walked.take(group, top, place)
        if not unknown:
            continue
        names: list[list[tuple[str, str]]] = [[] for _ in unknown]
        for kind, index, match in _walk(unknown, top, place, budgets[found]):
            names[index].append((kind, match))
        for one, own in zip(unknown, names, strict=True):
            one.names += own
            if walked is not None:
                walked.keep(one, top, place, own)


def _walk(group: Sequence[Sought], top: str, place: str, budget: Any) -> list[tuple[str, int, str]]:
    try:
        return _native.expand(
            place,
            fixed=len(os.fsencode(top)),
            patterns=[one.pattern.rest for one in group],
            budget=budget,
            most_matches=MOST_MATCHES,
        )
    except _native.NativeError as error:
        one = group[max(error.index, 0)]
        whose = " (all patterns of found policy files count together)" if one.found else ""
        raise PolicyUnsupported(
            f"{one.field}: {visible(one.path)}: {error}{whose}; begin the pattern with a smaller "
            "folder, or end it in /**, which is one rule",
            field=one.field,
            value=one.path,
        ) from None


def granted_names(one: Sought, *, denied: Iterable[str], reveal: Sequence[str]) -> list[str]:
    """Return what a grant by the pattern *one* names.

    Links are not followed and do not count, and secrets do not. A pattern lifts no deny that
    lies below its beginning: *denied* has the paths of those.
    """
    names = table()
    closed = {deny for deny in denied if deny != one.top and is_within(deny, one.top)}
    return [
        match
        for kind, match in one.names
        if kind in ("d", "f")
        and not (closed and any(up in closed for up in ancestors(match)))
        and hidden_at(names, match, reveal, folder=kind == "d") is None
    ]


def denied_names(
    sought: Iterable[Sought],
    grants: Mapping[str, bool],
    asked_for: Iterable[str],
    links: list[str] | None,
) -> Iterator[tuple[Sought, str]]:
    """Give each name that denies by patterns name, with its pattern.

    Of a link that one names, what that leads to is given; but a guest may have made it, so
    only inside of what the policy's own fields grant.

    Args:
        sought: those that `look_for` looked for.
        grants: the paths of all grants, and whether each is a place of the jail's own.
        asked_for: those of them that a field of the policy made.
        links: gets those on the way from a name to what is denied by it.

    Raises:
        PolicyUnsupported: something cannot be looked at.
    """
    with Resolver(within=asked_for) as resolver:
        for one in sought:
            found: dict[str, None] = {}
            for kind, match in one.names:
                target = _target(one.field, match, resolver) if kind == "l" else match
                if target and not _is_private(target, grants) and not is_missing(target):
                    found[target] = None
                    if links is not None:
                        links += [link for link, _ in resolver.links.get(match, ())]
            for name in found:
                yield one, name


def _target(field: str, link: str, resolver: Resolver) -> str:
    """Return where *link* leads, "" where that is nowhere in the grants."""
    try:
        real = resolver(link)
    except (LeadsOut, LinkLoop):
        return ""
    except PolicyError as error:
        raise PolicyUnsupported(f"{field}: {error}", field=field, value=link) from None
    if real in resolver.closed:
        refuse_closed(real, field=field)
    return real


def _places(top: str, grants: Mapping[str, bool]) -> list[str]:
    """Return where a pattern that begins at *top* can name something that is granted."""
    if any(is_within(top, place) for place in FORBIDDEN_GRANTS):
        return []
    shown = [path for path, private in grants.items() if not private]
    # A grant inside of a name is more specific than that: what is named in it counts again.
    tops = {grant for grant in shown if is_within(grant, top)}
    if any(is_within(top, grant) for grant in shown):
        tops.add(top)
    if "/" in tops:
        own = {path for path, private in grants.items() if private} | set(FORBIDDEN_GRANTS)
        tops.remove("/")
        tops.update(entry.path for entry in os.scandir("/") if entry.path not in own)
    return sorted(tops)


def _is_private(path: str, grants: Mapping[str, bool]) -> bool:
    covering = [grants[top] for top in ancestors(path) if top in grants]
    return bool(covering) and covering[-1]

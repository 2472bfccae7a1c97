"""Patterns in the rules of a policy: what they say, and what they name on this host.

``*`` stands for any part of one name, a leading dot too, ``?`` for one character, ``[a-z]`` and
``[!a-z]`` for one of a set, and ``**`` as a whole name for any number of folders. A pattern
that ends in ``/**`` and has no other is one rule on that folder, which holds always. Any other
is the rules on what it names when a jail opens, as if each had been written out. ``[*]`` is a
star that is meant as such.
"""

from __future__ import annotations

import os

from visruntime import _native
from visruntime._policy.decider import Decider
from visruntime._policy.links import LeadsOut, LinkLoop, Resolver
from visruntime._policy.paths import FORBIDDEN_GRANTS, ancestors, has_glob, is_within, visible
from visruntime._policy.secret_names import hidden_at, table
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from visruntime._policy.values import Rule
    from visruntime.policy import JailPolicy

__all__ = [
    "Pattern",
    "beginnings",
    "check_pattern",
    "expand_denies",
    "expand_grant",
    "not_held",
    "parse",
    "plain_paths",
]

MOST_ENTRIES = 5_000_000
"""Names below a pattern's fixed beginning that are looked at."""
MOST_MATCHES = 10_000
"""Names that one pattern may stand for: as many as a policy may have rules."""


class Pattern:
    """A path of a policy: its fixed beginning, and what comes after it as a pattern.

    ``rest`` is empty for a plain path and for a pattern that covers a whole folder.
    """

    __slots__ = ("fixed", "rest")

    def __init__(self, fixed: str, rest: str) -> None:
        self.fixed = fixed
        self.rest = rest


def parse(path: str) -> Pattern:
    """Return normalised *path* as its fixed beginning and the rest."""
    if not has_glob(path):
        return Pattern(path, "")
    parts = path[1:].split("/")
    literal = []
    for part in parts:
        plain = _literal(part)
        if plain is None:
            break
        literal.append(plain)
    rest = parts[len(literal) :]
    while rest and rest[-1] == "**":
        rest.pop()  # a rule on a folder is one on all that is in it
    return Pattern("/" + "/".join(literal), "/".join(rest))


def _literal(part: str) -> str | None:
    """Return the name that *part* stands for if it can stand for one only."""
    for character in "*?[":
        part = part.replace(f"[{character}]", f"\0{ord(character)};")
    if has_glob(part):
        return None
    for character in "*?[":
        part = part.replace(f"\0{ord(character)};", character)
    return part


def check_pattern(field: str, path: str) -> None:
    """Refuse a pattern that says nothing that could be held.

    Raises:
        PolicyError: naming *field*.
    """
    pattern = parse(path)
    for part in path.split("/"):
        if "**" in part and part != "**":
            raise PolicyError(
                f"{field}: {visible(part)} in {visible(path)}: ** is a whole name, such as in "
                "src/**/*.py; write * for a part of one",
                field=field,
                value=path,
            )
    if pattern.rest.count("/") >= _native.PATTERN_PARTS_MAX:
        raise PolicyError(f"{field}: a pattern of too many parts", field=field, value=path)


def expand_grant(
    field: str,
    path: str,
    pattern: Pattern,
    top: str,
    *,
    denied: Iterable[str],
    reveal: Sequence[str],
) -> list[str]:
    """Return what a grant by *pattern* names below *top*, where its beginning leads.

    Links are not followed and do not count, and secrets do not. A pattern lifts no deny that
    lies below its beginning: *denied* has the paths of those.

    Raises:
        PolicyUnsupported: it names too much, or something cannot be looked at.
    """
    names = table()
    closed = {deny for deny in denied if deny != top and is_within(deny, top)}
    return [
        match
        for kind, match in _expand(field, path, pattern, top, top)
        if kind in ("d", "f")
        and not (closed and any(up in closed for up in ancestors(match)))
        and hidden_at(names, match, reveal, folder=kind == "d") is None
    ]


def expand_denies(
    field: str,
    path: str,
    pattern: Pattern,
    top: str,
    grants: Mapping[str, bool],
    asked_for: Iterable[str],
) -> list[str]:
    """Return what a deny by *pattern* names inside of *grants*.

    Of a link that it names, what that leads to is returned; but a guest may have made it, so
    only inside of what the policy's own fields grant.

    Args:
        grants: the paths of all grants, and whether each is a place of the jail's own.
        asked_for: those of them that a field of the policy made.

    Raises:
        PolicyUnsupported: it names too much, or something cannot be looked at.
    """
    found: dict[str, None] = {}
    with Resolver(within=asked_for) as resolver:
        for place in _places(top, grants):
            for kind, match in _expand(field, path, pattern, top, place):
                target = _target(field, match, resolver) if kind == "l" else match
                if target and not _is_private(target, grants) and os.path.lexists(target):
                    found[target] = None
    return list(found)


def _target(field: str, link: str, resolver: Resolver) -> str:
    """Return where *link* leads, "" where that is nowhere in the grants."""
    try:
        return resolver(link)
    except (LeadsOut, LinkLoop):
        return ""
    except PolicyError as error:
        raise PolicyUnsupported(f"{field}: {error}", field=field, value=link) from None


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


def _expand(field: str, path: str, pattern: Pattern, top: str, place: str) -> list[tuple[str, str]]:
    try:
        return _native.expand(
            place,
            fixed=len(os.fsencode(top)),
            pattern=pattern.rest,
            most_entries=MOST_ENTRIES,
            most_matches=MOST_MATCHES,
        )
    except _native.NativeError as error:
        raise PolicyUnsupported(
            f"{field}: {visible(path)}: {error}; begin the pattern with a smaller folder, or end "
            "it in /**, which is one rule",
            field=field,
            value=path,
        ) from None


def plain_paths(policy: JailPolicy, kinds: Sequence[str]) -> list[str]:
    """Return the paths of the rules of *kinds* that are no patterns, or of whole folders."""
    return [
        policy.patterns[path].fixed if path in policy.patterns else path
        for kind in kinds
        for path in getattr(policy, kind)
        if path not in policy.patterns or not policy.patterns[path].rest
    ]


def beginnings(policy: JailPolicy, kinds: Sequence[str]) -> list[str]:
    """Return the paths of the rules of *kinds*, of patterns their fixed beginning."""
    return [
        policy.patterns[path].fixed if path in policy.patterns else path
        for kind in kinds
        for path in getattr(policy, kind)
    ]


def not_held(kind: str, top: str, rules: Sequence[Rule]) -> str:
    """Return why a pattern of *kind* cannot be held for names that are made later, or "".

    A deny of writing or executing is worth nothing if the next file of that name is not
    denied. It holds where nothing can be written, or executed, anyway.

    Args:
        kind: "deny_write" or "deny_exec".
        top: where the fixed beginning of the pattern leads.
        rules: all of the policy, resolved.
    """
    right, verb = ("write", "written") if kind == "deny_write" else ("exec", "executed")
    pairs = [(rule.kind, rule.path) for rule in rules]
    wanted = ("write",) if right == "write" else ("read", "write")
    below = [path for given, path in pairs if given in wanted and is_within(path, top)]
    if not below and not Decider(pairs)(right, top)[0]:
        return ""
    return (
        f"a pattern holds for names that exist, and files of such names that are made later in "
        f"{visible(top)} could be {verb}; deny a whole folder ({visible(top)}/**), or name the "
        f"paths (a name with * ? [ in it is written with [*] [?] [[])"
    )

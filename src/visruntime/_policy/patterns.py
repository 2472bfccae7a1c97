"""Patterns in the rules of a policy: what they say; `pattern_names` finds what they name.

``*`` stands for any part of one name, a leading dot too, ``?`` for one character, ``[a-z]`` and
``[!a-z]`` for one of a set, and ``**`` as a whole name for any number of folders. A pattern
that ends in ``/**`` and has no other is one rule on that folder, which holds always. Any other
is the rules on what it names when a jail opens, as if each had been written out. ``[*]`` is a
star that is meant as such.
"""

from __future__ import annotations

from visruntime import _native
from visruntime._policy.paths import has_glob, is_within, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime._policy.decider import Decider
    from visruntime.policy import JailPolicy

__all__ = [
    "Pattern",
    "beginnings",
    "check_pattern",
    "not_held",
    "parse",
    "plain_paths",
]


class Pattern:
    """A path of a policy: its fixed beginning, and what comes after it as a pattern.

    ``rest`` is empty for a plain path and for a pattern that covers a whole folder.
    """

    __slots__ = ("fixed", "rest")

    def __init__(self, fixed: str, rest: str) -> None:
        self.fixed: str = fixed
        self.rest: str = rest


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


def not_held(kind: str, top: str, pairs: Sequence[tuple[str, str]], decide: Decider) -> str:
    """Return why a pattern of *kind* cannot be held for names that are made later, or "".

    A deny of writing or executing is worth nothing if the next file of that name is not
    denied. It holds where nothing can be written, or executed, anyway.

    Args:
        kind: "deny_write" or "deny_exec".
        top: where the fixed beginning of the pattern leads.
        pairs: (kind, path) of all rules of the policy, resolved.
        decide: over *pairs*.
    """
    right, verb = ("write", "written") if kind == "deny_write" else ("exec", "executed")
    wanted = ("write",) if right == "write" else ("read", "write")
    below = any(given in wanted and is_within(path, top) for given, path in pairs)
    if not below and not decide(right, top)[0]:
        return ""
    return (
        f"a pattern holds for names that exist, and files of such names that are made later in "
        f"{visible(top)} could be {verb}; deny a whole folder ({visible(top)}/**), or name the "
        f"paths (a name with * ? [ in it is written with [*] [?] [[])"
    )

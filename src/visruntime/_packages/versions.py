"""Whether an interpreter is one that ``requires-python`` asks for.

uv checks that when it makes a lock, but not when it installs from one, and a package that was
never meant for an interpreter fails later in ways that nobody understands.
"""

from __future__ import annotations

import re

from visruntime.errors import PolicyError

__all__ = ["release", "satisfies"]

_RELEASE = re.compile(r"3\.([0-9]{1,2})\.([0-9]{1,3})(?![0-9.])")

_CLAUSE = re.compile(r"\s*(~=|===?|!=|<=|>=|<|>)\s*v?([0-9]+(?:\.[0-9]+)*)(\.\*)?\s*")


def release(version: str) -> tuple[int, int, int]:
    """Return the numbers at the beginning of ``sys.version``.

    That of a probed interpreter is its claim, and file names are made of these.

    Raises:
        PolicyError: there are none.
    """
    found = _RELEASE.match(version)
    if found is None:
        raise PolicyError(
            f"environment: {version[:60]!a} is no version of CPython 3", field="environment"
        )
    return 3, int(found[1]), int(found[2])


def satisfies(version: tuple[int, ...], wanted: str) -> bool:
    """Tell whether *version*, such as (3, 12, 1), is one of those that *wanted* names.

    Args:
        wanted: clauses as packages write them (PEP 440), joined by commas.

    Raises:
        ValueError: a clause that is not understood.
    """
    return all(_clause(version, clause) for clause in wanted.split(",") if clause.strip())


def _clause(version: tuple[int, ...], clause: str) -> bool:
    parts = _CLAUSE.fullmatch(clause)
    if parts is None:
        raise ValueError(f"{clause.strip()[:60]!a} is no clause of requires-python")
    operator, text, any_below = parts.groups()
    bound = tuple(int(number) for number in text.split("."))
    if any_below:
        if operator not in ("==", "!="):
            raise ValueError(f"{clause.strip()[:60]!a}: .* goes with == and != only")
        return (version[: len(bound)] == bound) == (operator == "==")
    if operator == "~=":
        if len(bound) < 2:
            raise ValueError(f"{clause.strip()[:60]!a}: ~= needs two numbers")
        return _order(version, bound) >= 0 and version[: len(bound) - 1] == bound[:-1]
    order = _order(version, bound)
    return {
        "==": order == 0,
        "===": order == 0,
        "!=": order != 0,
        "<=": order <= 0,
        ">=": order >= 0,
        "<": order < 0,
        ">": order > 0,
    }[operator]


def _order(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Compare two versions; what one of them does not say is 0."""
    size = max(len(one), len(other))
    left, right = (version + (0,) * (size - len(version)) for version in (one, other))
    return (left > right) - (left < right)

"""The decision semantics a second time, written from the specification alone.

Plain and slow on purpose: the C function, this oracle and the kernel must give the same
answers, and this one must be easy to check by reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ALLOW, DENY = True, False

# What each kind of rule says about each right; a right that is missing is not mentioned.
SAYS: dict[str, dict[str, bool]] = {
    "read": {"read": ALLOW, "write": DENY},
    "write": {"read": ALLOW, "write": ALLOW},
    "deny": {"read": DENY, "write": DENY, "exec": DENY},
    "deny_read": {"read": DENY, "write": DENY, "exec": DENY},
    "deny_write": {"write": DENY},
    "deny_exec": {"exec": DENY},
}


def covers(top: str, path: str) -> bool:
    """Tell whether *path* is *top* or below it, by whole segments."""
    want = [part for part in top.split("/") if part]
    have = [part for part in path.split("/") if part]
    return have[: len(want)] == want


def is_walled(
    rules: Sequence[tuple[str, str]], names: Sequence[str], there: Sequence[str], folder: str
) -> bool:
    """Return whether nothing new can be made directly in *folder*, which exists.

    *names* are denied for writing and do not exist; *there* are the folders that exist. A
    name counts if it could be made otherwise: where its nearest folder is writable.
    """
    for name in names:
        nearest = max((known for known in there if covers(known, name)), key=depth)
        if covers(folder, name) and decide(rules, "write", nearest):
            return True
    return False


def depth(path: str) -> int:
    """Return the number of segments."""
    return len([part for part in path.split("/") if part])


def decide(rules: Sequence[tuple[str, str]], right: str, path: str) -> bool:
    """Return whether *rules* (kind, path) allow *right* on *path*."""
    if right == "exec":
        # Execution follows reading. Where reading is allowed, each covering deny or
        # deny_read has a grant below it that lifts it; nothing lifts a deny_exec.
        executable = not any(kind == "deny_exec" and covers(top, path) for kind, top in rules)
        return decide(rules, "read", path) and executable
    mentions = [
        (depth(top), kind) for kind, top in rules if covers(top, path) and right in SAYS[kind]
    ]
    if not mentions:
        return False
    longest = max(mentions)[0]
    kinds = {kind for segments, kind in mentions if segments == longest}
    if any(kind.startswith("deny") for kind in kinds):
        return False
    # A write grant beats the write denial that a read grant at the same path implies.
    allowed = any(SAYS[kind][right] for kind in kinds)
    return allowed and (right == "read" or decide(rules, "read", path))

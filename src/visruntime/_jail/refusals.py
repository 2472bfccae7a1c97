"""What the brokers of a jail have refused, as violations: exact, and not the guest's word.

A broker (native/visjail/linux_broker_refuse.c) records each act that it refuses before it
answers, where no guest can write. The path is the one that the kernel gave it, so that it may
hold any bytes that a guest has put into a name.
"""

from __future__ import annotations

import errno

from visruntime._policy.grants import grant_socket
from visruntime._policy.paths import is_within
from visruntime._policy.socket_names import sensitive_by_name
from visruntime.events import Violation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from visruntime._native import Refusal

__all__ = ["violation_of"]

NAMES = {
    "create": "the jail's broker did not make",
    "move": "the jail's broker moved nothing from or to",
    "bind": "the jail's broker bound no socket to",
}


def violation_of(
    refusal: Refusal,
    of_write: Callable[[int, str], Violation | None],
    rules: Sequence[tuple[str, str, str]],
) -> Violation:
    """Return the exact violation that a record of a broker speaks of.

    Args:
        of_write: what the policy says of a path that was not written.
        rules: each rule as (kind, path, the policy's own name of it).
    """
    if refusal.kind == "connect":
        return _of_connect(refusal)
    if refusal.kind == "sockets":
        return Violation(
            "sockets",
            f"the jail remembers no further socket of a guest than 512: {refusal.path!a}",
            target=refusal.path,
            errno=refusal.errno,
            rule="sockets",
        )
    decided = None if refusal.cut else of_write(refusal.errno, refusal.path)
    below = _rule_below(refusal.path, rules)
    return Violation(
        "write",
        f"{NAMES[refusal.kind]} {refusal.path!a}"
        + (" (the path goes on)" if refusal.cut else "")
        + (f": {below} is below it, and stays where it is" if decided is None and below else "")
        + (f": {decided.detail}" if decided is not None else ""),
        target=refusal.path,
        errno=refusal.errno,
        rule=decided.rule if decided is not None else below,
        grant=None if decided is None else decided.grant,
    )


def _of_connect(refusal: Refusal) -> Violation:
    field = "sensitive_sockets" if sensitive_by_name(refusal.path) else "sockets"
    known = refusal.path.startswith("/") and not refusal.cut
    return Violation(
        "connect",
        f"the jail's broker did not connect to {refusal.path!a}: no entry of {field} names it",
        target=refusal.path,
        errno=refusal.errno or errno.EACCES,
        rule="sockets",
        grant=grant_socket(refusal.path, field) if known else None,
    )


def _rule_below(path: str, rules: Sequence[tuple[str, str, str]]) -> str:
    """Return the name of the first rule that keeps a name below *path* from being written."""
    for kind, at, name in rules:
        if kind in ("deny", "deny_write") and at != path and is_within(at, path):
            return name
    return ""

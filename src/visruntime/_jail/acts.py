"""The acts by which each jail tries its policy's denies on itself, one path each."""

from __future__ import annotations

import os

from visruntime._policy.paths import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime import _native
    from visruntime._jail.plan import JailPlan
    from visruntime._policy.decider import Decider
    from visruntime.policy import Rule

__all__ = ["denied_paths"]


def denied_paths(
    written: Sequence[Rule],
    plan: JailPlan,
    rules: Sequence[tuple[str, str, bool, bool]],
    facts: dict[str, _native.Fact],
    decide: Decider,
) -> Iterator[str]:
    """Yield acts for the canaries: each deny of the policy, tried on its own path.

    Behind them, a new name in each folder that is granted for reading. Not a file: one that
    is being executed would answer ETXTBSY, whatever the mount says.
    """
    for path in _own_folders(written, rules, decide):
        if decide("write", path)[0] and not decide("exec", path)[0]:
            yield f"x{path}"
    for rule in written:
        if not rule.kind.startswith("deny") or facts[rule.path][0] == "absent":
            continue
        if not decide("read", os.path.dirname(rule.path))[0]:
            continue  # nothing of it is visible
        right = {"deny_write": "write", "deny_exec": "exec"}.get(rule.kind, "read")
        if right == "exec":
            readable, index = decide("read", rule.path)
            if facts[rule.path][0] != "file" or (readable and rules[index][2]):
                continue  # in a private place there is no file of the host
        if not decide(right, rule.path)[0]:
            yield right[0].replace("e", "x") + rule.path
    yield from (f"w{path}" for path in (*plan.protected, *plan.wall.replaced))
    yield from (f"l{path}" for path in plan.links)
    yield from (f"r{path}" for path, _ in plan.secrets)
    for rule in written:
        is_folder = rule.kind == "read" and facts[rule.path][0] == "directory"
        if is_folder and not decide("write", rule.path)[0]:
            yield f"w{rule.path}"


def _own_folders(
    written: Sequence[Rule], rules: Sequence[tuple[str, str, bool, bool]], decide: Decider
) -> list[str]:
    """Return the jail's own places, and the folders that it makes there for denied execution."""
    denied = [rule.path for rule in written if rule.kind == "deny_exec"]
    if not denied:
        return []
    places = [path for kind, path, private, _ in rules if private and kind == "write"]
    found = [path for path in places if any(is_within(path, top) for top in denied)]
    for path in denied:
        readable, index = decide("read", path)
        if readable and rules[index][2] and path not in places:
            found.append(path)
    return found

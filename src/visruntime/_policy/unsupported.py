"""Which clauses of a policy this version cannot enforce.

They are accepted by the type, so that a policy file can be written today for a later
version, and refused by `Jail` before anything starts.
"""

from __future__ import annotations

from visruntime._policy.caches import in_the_way
from visruntime._policy.decider import Decider
from visruntime._policy.links import real_path
from visruntime._policy.looks import is_missing
from visruntime._policy.paths import (
    FORBIDDEN_GRANTS,
    MADE_READ,
    MADE_READ_OPEN,
    ancestors,
    is_within,
    visible,
)
from visruntime._policy.patterns import not_held
from visruntime._policy.secret_names import hidden_at, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from visruntime._policy.patterns import Pattern
    from visruntime.policy import JailPolicy, Rule

__all__ = ["unsupported"]

LATER_LISTS = {
    "services": "credential and system services are not passed on yet",
}


def unsupported(
    policy: JailPolicy,
    resolved: Sequence[Rule] | None = None,
    reveal: Sequence[str] | None = None,
    missing: Callable[[str], bool] = is_missing,
) -> list[tuple[str, str]]:
    """Return (field, sentence) for each clause of *policy* that cannot be enforced yet.

    *resolved* saves looking at the host again: what `JailPolicy.resolved_rules` returned;
    *reveal* has the paths of ``policy.reveal`` where they really lead; *missing* tells whether
    certainly nothing is at a path.
    """
    found = [(field, why) for field, why in LATER_LISTS.items() if getattr(policy, field)]
    if policy.egress.mode == "proxy":
        found.append(("egress", "the proxy is not built yet; Egress.OFF gives no network at all"))
    if resolved is None:
        resolved = policy._seen_rules()
    return [
        *found,
        *_patterns(policy, resolved),
        *in_the_way(resolved),
        *_links_out(resolved),
        *_secret_grants(policy, resolved, reveal),
        *_made_files(resolved),
        *_made_places(resolved),
        *_absent_denies(resolved, policy.absent_deny, missing),
    ]


def _pattern_fields(policy: JailPolicy) -> list[tuple[str, Pattern]]:
    """Return (field, pattern) of the rules that stand for what exists when a jail opens."""
    if not policy.patterns:
        return []
    return [
        (f"{kind}[{index}]", policy.patterns[path])
        for kind in ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
        for index, path in enumerate(getattr(policy, kind))
        if path in policy.patterns and policy.patterns[path].rest
    ]


def _patterns(policy: JailPolicy, rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """Find patterns that hold for less than the policy asks."""
    found = []
    pairs = [(rule.kind, rule.path) for rule in rules] if policy.patterns else []
    decide = Decider(pairs)
    told: dict[tuple[str, str], str] = {}
    for field, pattern in _pattern_fields(policy):
        kind = field.partition("[")[0]
        if kind in ("deny_write", "deny_exec"):
            asked = kind, pattern.fixed
            if asked not in told:
                told[asked] = not_held(kind, real_path(pattern.fixed), pairs, decide)
            why = told[asked]
            if why:
                found.append((field, why))
        elif kind.startswith("deny") and policy.strict_globs:
            sentence = (
                "it holds for the names that exist when the jail opens, and strict_globs asks "
                f"for more; deny a whole folder ({visible(pattern.fixed)}/**), or name the paths"
            )
            found.append((field, sentence))
    return found


def _made_files(rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """Find denies of files that the jail makes for itself, which it does not leave out."""
    made = {rule.path for rule in rules if rule.origin == "private"}
    made &= {*MADE_READ, MADE_READ_OPEN}
    return [
        (rule.origin, f"{visible(rule.path)} is made by the jail and holds nothing of the host's")
        for rule in rules
        if rule.kind in ("deny", "deny_read") and rule.path in made
    ]


def _made_places(rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """Find denies in the jail's own /proc and /dev, which it makes whole."""
    found = []
    for rule in rules:
        place = next((top for top in ("/proc", "/dev") if is_within(rule.path, top)), None)
        if place is None or not rule.kind.startswith("deny") or rule.kind == "deny_exec":
            continue  # nothing is executed there in any jail
        if is_within(rule.path, "/dev/shm"):  # noqa: S108 - a name, not a use
            continue
        if rule.path == "/proc" and rule.kind != "deny_write":
            continue
        what = {
            "/proc": "it shows the jail's own processes, and writes to nothing of the host's; "
            "deny all of /proc, or leave the rule out",
            "/dev": "it holds null, zero, full, random, urandom, tty and terminals of the jail's "
            "own, which programs need; leave the rule out (/dev/shm can be denied)",
        }[place]
        found.append((rule.origin, f"{visible(rule.path)} is made by the jail: {what}"))
    return found


def _links_out(rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """Find grants that are links to what cannot be granted."""
    return [
        (rule.origin, f"it leads to {visible(rule.path)}, and nothing of that can be granted")
        for rule in rules
        if rule.kind in ("read", "write")
        and rule.origin not in ("system", "private")
        and (rule.path == "/" or any(is_within(rule.path, top) for top in FORBIDDEN_GRANTS))
    ]


def _secret_grants(
    policy: JailPolicy, rules: Sequence[Rule], reveal: Sequence[str] | None
) -> list[tuple[str, str]]:
    """Find grants of what is hidden as a secret: no grant alone lifts that."""
    patterned = {field for field, _ in _pattern_fields(policy)}  # those leave secrets out
    grants = [
        rule
        for rule in rules
        if rule.kind in ("read", "write")
        and not rule.is_own
        and rule.origin not in ("system", *patterned)
    ]
    if not grants:
        return []
    if reveal is None:
        reveal = [real_path(path) for path in policy.reveal]
    names = table()
    found = []
    for rule in grants:
        secret = hidden_at(names, rule.path, reveal)
        if secret is not None:
            where, why = secret
            sentence = (
                f"{visible(where)} is hidden as a secret ({why}); if the guest must have "
                f"{visible(rule.path)}, add reveal=[{rule.path!r}]"
            )
            found.append((rule.origin, sentence))
    return found


def _absent_denies(
    rules: Sequence[Rule], absent_deny: str, missing: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Find denies of names that do not exist inside a grant of the host's files.

    A mount can only cover a name that is there. The guest can be kept from making one, but
    not the host: reading what the host makes later cannot be denied.
    """
    grants: dict[str, list[tuple[str, str]]] = {}
    for rule in rules:
        if rule.kind in ("read", "write"):
            grants.setdefault(rule.path, []).append((rule.kind, rule.origin))
    found = []
    seen = set()
    for rule in rules:
        if not rule.kind.startswith("deny") or not missing(rule.path):
            continue
        covering = [path for path in ancestors(rule.path) if path in grants]
        if not covering or rule.origin in seen:
            continue
        nearest = covering[-1]
        if all(origin == "private" for _, origin in grants[nearest]):
            continue  # the jail makes that place itself, so it can make the name too
        writable = any(kind == "write" for kind, _ in grants[nearest])
        if rule.kind == "deny_write" and (absent_deny != "error" or not writable):
            continue
        seen.add(rule.origin)
        name, grant = visible(rule.path), visible(nearest)
        if rule.kind == "deny_write":
            sentence = (
                f'{name} does not exist inside the granted {grant}, and absent_deny="error" '
                'refuses that; create it first, leave the rule out, or use absent_deny="broker"'
            )
        else:
            sentence = (
                f"{name} does not exist, and a name that does not exist yet cannot be denied "
                f"inside the granted {grant}: it may be made later; create it first, use "
                "deny_write, or leave the rule out"
            )
        found.append((rule.origin, sentence))
    return found

"""The answer to "may the guest do this?", in words."""

from __future__ import annotations

import os

from visruntime._native import decide
from visruntime._policy.grants import (
    grant_hosts,
    grant_path,
    grant_ports,
    grant_reveal,
    grant_socket,
)
from visruntime._policy.links import real_path
from visruntime._policy.paths import (
    FORBIDDEN_GRANTS,
    NOT_LOOKED_THROUGH,
    _short,
    is_within,
    normalise,
    visible,
)
from visruntime._policy.secret_names import hidden_at, table
from visruntime._policy.socket_names import sensitive_by_name
from visruntime._policy.values import Decision, Egress, Grant, Rule, split_host
from visruntime._policy.wall import find_wall, object_at
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime.policy import JailPolicy

__all__ = ["why"]

VERBS = {"read": "read", "write": "change", "exec": "execute"}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
RELAYED = ("localhost", "127.0.0.1")
"""Where host_ports leads to: a jail's relay listens on no IPv6 address."""
NOT_COVERED_BY_DENY_EXEC = (
    (
        "deny_exec keeps the file itself from being executed, by the loader too; a program that "
        "interprets files can still read it and do what it says"
    ),
    (
        "a guest that can read it can copy it to where it may write, such as /tmp, and execute "
        "the copy; deny= closes it for reading as well"
    ),
)
"""What a guest can still do with a file that is denied for execution only."""


def why(policy: JailPolicy, op: str, target: object) -> Decision:
    """Answer for *op* on *target*; see `JailPolicy.why`."""
    if op == "connect":
        return _why_connect(policy, target)
    if not isinstance(op, str) or op not in VERBS:
        raise PolicyError(
            f'op: "read", "write", "exec" or "connect", not {_short(op)}', field="op", value=op
        )
    path = normalise(target, "target")
    resolved = policy._seen_rules()
    real = path
    # What a jail has for itself is not the host's: the host's links say nothing about it,
    # but for those that lead to a grant, which a jail has too.
    rule, allowed = _decide((*resolved, *policy.rules()), op, path)
    if rule is None or not rule.is_own:
        real = real_path(path)
        rule, allowed = _decide(resolved, op, real)
    if allowed:
        secret = _secret_rule(policy, path, real, rule)
        if secret is not None:
            rule, allowed = secret, False
    shown = visible(path) if real == path else f"{visible(path)} (which is {visible(real)})"
    if allowed and op == "write":
        kept = _kept_as_it_is(policy, resolved, real, shown)
        if kept is not None:
            return kept
    if allowed and op == "write" and policy.absent_deny == "wall":
        behind = _behind_the_wall(policy, resolved, real, shown)
        if behind is not None:
            return behind
    if not allowed:
        return Decision(
            allowed=False,
            rule=rule,
            reason=_cannot(op, shown, real, rule, policy),
            grant=_lifting(op, rule, real),
            notes=NOT_COVERED_BY_DENY_EXEC if rule and rule.kind == "deny_exec" else (),
        )
    hidden = _hidden(op, path, rule)
    reason = f"the policy lets the guest {VERBS[op]} {shown}: {_origin(rule, policy)}{hidden}"
    return Decision(
        allowed=True,
        rule=rule,
        reason=reason,
        grant=grant_path(op, path) if hidden and rule and rule.origin == "private" else None,
        notes=_only_as_a_folder(policy, resolved, real) if op == "write" else (),
    )


def _lifting(op: str, rule: Rule | None, real: str) -> Grant | None:
    """Return what to add against *rule* at *real*; nothing lifts a deny there, or of execution."""
    if rule is not None and rule.origin == "secrets":
        return grant_reveal(real)
    if rule is not None and rule.kind.startswith("deny"):
        denied_here = rule.path == real and rule.origin != "system"
        if denied_here or rule.kind == "deny_exec":
            return None
    return grant_path(op, real)


def _behind_the_wall(
    policy: JailPolicy, rules: Sequence[Rule], real: str, shown: str
) -> Decision | None:
    """Return the answer for a name that the rules allow and that cannot be made."""
    if object_at(real) != "absent":
        return None
    wall = find_wall(
        [(rule.kind, rule.path, rule.is_own) for rule in rules],
        [(rule.origin, rule.path) for rule in rules if rule.kind == "deny_write"],
    )
    if not wall.covers(real):
        return None
    names = {path for _, path in wall.names}
    held = next(rule for rule in rules if rule.kind == "deny_write" and rule.path in names)
    reason = (
        f"the guest cannot make {shown}: {_origin(held, policy)} does not exist yet, and until the "
        "jail closes no name can be made in the folders that could hold it, nor in those above; make "
        'the name or its folder first, or use absent_deny="broker"'
    )
    return Decision(allowed=False, rule=held, reason=reason)


def _below(rules: Sequence[Rule], real: str) -> Rule | None:
    """Return a rule that denies writing below *real*."""
    return next(
        (
            rule
            for rule in rules
            if rule.kind == "deny_write" and rule.path != real and is_within(rule.path, real)
        ),
        None,
    )


def _kept_as_it_is(
    policy: JailPolicy, rules: Sequence[Rule], real: str, shown: str
) -> Decision | None:
    """Return the answer for a file above a denied name, which a folder could take the place of."""
    below = _below(rules, real)
    if below is None or object_at(real) != "file":
        return None
    reason = (
        f"the guest cannot write {shown}: {_origin(below, policy)} lies below it, and it is no "
        "folder, so it stays as it is; remove that rule"
    )
    return Decision(allowed=False, rule=below, reason=reason)


def _only_as_a_folder(policy: JailPolicy, rules: Sequence[Rule], real: str) -> tuple[str, ...]:
    """Return the note for a missing name above one that is denied: only mkdir makes it."""
    below = _below(rules, real)
    if below is None or object_at(real) != "absent":
        return ()
    return (f"only as a new folder: {_origin(below, policy)} lies below it and does not exist yet",)


def _secret_rule(policy: JailPolicy, path: str, real: str, rule: Rule | None) -> Rule | None:
    """Return the rule that hides *real* as a secret, although *rule* grants it.

    It speaks of what is there now, as a jail does that opens; what a guest makes in it is the
    guest's own. A target that is hidden because of a link elsewhere is not known here.
    """
    if rule is None or rule.is_own or not os.path.lexists(real):
        return None
    if rule.origin == "system" and (rule.path != "/" or real.split("/")[1] in NOT_LOOKED_THROUGH):
        return None
    names = table()
    reveal = [real_path(one) for one in policy.reveal]
    folder, name = os.path.split(path)
    by_link = os.path.join(real_path(folder), name)
    for asked in dict.fromkeys((real, by_link)):
        found = hidden_at(names, asked, reveal, folder=os.path.isdir(real), content=real)
        if found is not None and (asked == real or real not in reveal):
            where = found[0] if asked == real else real
            return Rule(kind="deny", path=where, origin="secrets")
    return None


def _decide(rules: Sequence[Rule], op: str, path: str) -> tuple[Rule | None, bool]:
    allowed, index = decide([(rule.kind, rule.path) for rule in rules], op, path)
    return (rules[index] if index >= 0 else None), allowed


def _grant(op: str, path: str) -> str:
    return str(grant_path(op, path))


def _hidden(op: str, path: str, rule: Rule | None) -> str:
    """Return what to add if the host has something at *path* that the jail's own place hides."""
    private = rule is not None and rule.is_own
    grantable = not any(is_within(path, tree) for tree in FORBIDDEN_GRANTS)
    if not (private and grantable and os.path.lexists(path)):
        return ""
    if rule is not None and rule.origin != "private":
        return "; what the host has there is not visible"
    return f"; what the host has there is not visible; to show it add {_grant(op, path)}"


def _cannot(op: str, shown: str, real: str, rule: Rule | None, policy: JailPolicy) -> str:
    start = f"the guest cannot {VERBS[op]} {shown}: "
    grant = _grant(op, real)
    if any(is_within(real, tree) for tree in FORBIDDEN_GRANTS) or real == "/":
        reason = f"{_origin(rule, policy)}; " if rule else ""
        return f"{start}{reason}nothing in /proc, /dev or /sys, nor the root, can be granted"
    if rule is None:
        return f"{start}no rule grants it; add {grant}"
    if rule.origin == "secrets":
        return f"{start}{_origin(rule, policy)}; if it must have it, add {grant_reveal(real)}"
    if rule.kind == "deny_exec":
        return f"{start}{_origin(rule, policy)}; only removing that rule allows it"
    if rule.kind.startswith("deny") and rule.path == real and rule.origin != "system":
        return f"{start}{_origin(rule, policy)}; at the same path deny wins, so remove that rule"
    return f"{start}{_origin(rule, policy)}; add {grant}, which is more specific"


def _origin(rule: Rule | None, policy: JailPolicy) -> str:
    if rule is None:
        return "no rule speaks of it"
    if rule.origin == "private":
        return f"{visible(rule.path)} is the jail's own, not the host's ({rule.kind})"
    if rule.is_own:
        return (
            f"{visible(rule.path)} is a cache of this policy's own, not the host's ({rule.origin})"
        )
    if rule.origin == "system":
        if rule.kind == "deny":
            return f"{visible(rule.path)} holds private keys of the system and stays closed"
        return f"{visible(rule.path)} belongs to the system roots (read)"
    if rule.origin == "secrets":
        found = hidden_at(table(), rule.path, ())
        what = found[1] if found else "by the name of a link that leads to it"
        return f"{visible(rule.path)} is hidden as a secret ({what})"
    written = _pattern_of(rule, policy)
    names = f", which names {visible(rule.path)}" if written else ""
    return f"{rule.origin} = {written or rule.path!r} ({rule.kind}){names}"


def _pattern_of(rule: Rule, policy: JailPolicy) -> str:
    """Return the pattern behind *rule* as the policy writes it, "" if there is none."""
    field, _, index = rule.origin.rstrip("]").partition("[")
    paths = getattr(policy, field, ())
    if not (policy.patterns and index.isdigit() and int(index) < len(paths)):
        return ""
    path = paths[int(index)]
    return path if path in policy.patterns and policy.patterns[path].rest else ""


def _why_connect(policy: JailPolicy, target: object) -> Decision:
    text = os.fspath(target) if isinstance(target, os.PathLike) else target
    if not isinstance(text, str) or not text or "\0" in text:
        raise PolicyError(
            f'target: "host:port", "[v6]:port" or a socket\'s path, not {_short(target)}',
            field="target",
            value=target,
        )
    if text.startswith("/"):
        return _why_socket(policy, normalise(text, "target"))
    if text.startswith("@"):
        return _why_abstract(policy, text)
    host, port_text = split_host(text)
    port = int(port_text) if port_text.isascii() and port_text.isdigit() else 0
    if not host or not 1 <= port <= 65535:
        raise PolicyError(
            f'target: "host:port" with a port from 1 to 65535, not {_short(text)}',
            field="target",
            value=target,
        )
    if host.lower() in RELAYED and port in policy.host_ports:
        origin = f"host_ports[{policy.host_ports.index(port)}]"
        rule = Rule(kind="egress", path=str(port), origin=origin)
        return Decision(
            allowed=True,
            rule=rule,
            reason=f"the guest can connect to {visible(text)}: {origin} = {port}",
        )
    return _why_egress(policy, text, host, port)


def _why_egress(policy: JailPolicy, text: str, host: str, port: int) -> Decision:
    mode = policy.egress.mode
    rule = Rule(kind="egress", path=mode, origin="egress")
    if mode == "open":
        reason = (
            f"the guest can connect to {visible(text)}: egress is open (it shares the host's "
            "network)"
        )
        note = "with egress open a guest reaches every service of the host's loopback, too"
        return Decision(allowed=True, rule=rule, reason=reason, notes=(note,))
    start = f"the guest cannot connect to {visible(text)}: "
    own = "a jail has a loopback of its own: servers that its guests start there can be reached"
    notes = (own,) if host.lower() in LOOPBACK else ()
    if mode == "off":
        grant, why_not = _narrowest(policy, host, port)
        reason = f"{start}egress is off; add {grant}{why_not}"
        return Decision(allowed=False, rule=rule, reason=reason, grant=grant, notes=notes)
    allowed, origin, pattern = policy.egress.match(host, port)
    if pattern:
        rule = Rule(kind="egress", path=pattern, origin=origin)
    if allowed:
        reason = f"the guest can connect to {visible(text)}: {origin} = {pattern!r}"
        return Decision(allowed=True, rule=rule, reason=reason)
    if pattern:
        reason = f"{start}{origin} = {pattern!r}; deny wins, so remove that entry"
        return Decision(allowed=False, rule=rule, reason=reason, notes=notes)
    reason = f"{start}no entry of egress.allow matches; add {f'{host}:{port}'!r} to it"
    wider = Egress.proxy(allow=[*policy.egress.allow, f"{host}:{port}"], deny=policy.egress.deny)
    grant = Grant(python=f"egress=vr.{wider!r}", cli=grant_hosts(host, port).cli)
    return Decision(allowed=False, rule=rule, reason=reason, grant=grant, notes=notes)


def _narrowest(policy: JailPolicy, host: str, port: int) -> tuple[Grant, str]:
    """Return the grant of a connection that gives least of what this version can enforce."""
    make = type(policy)
    if host.lower() in RELAYED and not make(host_ports=[port]).unsupported():
        return grant_ports(port), ""
    if not make(egress=Egress.proxy(allow=["host.test"])).unsupported():
        return grant_hosts(host, port), ", or egress=vr.Egress.OPEN for everything"
    everything = Grant(python="egress=vr.Egress.OPEN", cli="--net open")
    return everything, ", which is the host's whole network (this version has nothing narrower)"


def _why_socket(policy: JailPolicy, path: str) -> Decision:
    real = real_path(path)
    for field in ("sockets", "sensitive_sockets"):
        for index, granted in enumerate(getattr(policy, field)):
            if real != real_path(granted):
                continue
            # In a jail a granted socket is a readable file, as which a rule can deny it.
            seen = Rule(kind="read", path=real, origin=f"{field}[{index}]")
            rule, readable = _decide((*policy._seen_rules(), seen), "read", real)
            if readable:
                reason = f"the guest can connect to the socket {visible(path)}: {seen.origin}"
                rule = Rule(kind="egress", path=granted, origin=seen.origin)
                return Decision(allowed=True, rule=rule, reason=reason)
            reason = (
                f"the guest cannot connect to the socket {visible(path)}: "
                f"{_origin(rule, policy)}; at the same path deny wins, so remove that rule"
            )
            return Decision(allowed=False, rule=rule, reason=reason)
    behind = sensitive_by_name(path)
    field = "sockets" if behind is None else "sensitive_sockets"
    grant = grant_socket(path, field)
    danger = "" if behind is None else f" (behind it is {behind})"
    reason = (
        f"the guest cannot connect to the socket {visible(path)}: no entry of {field} names it; "
        f"add {grant}{danger}"
    )
    place, writable = _decide(policy.rules(), "write", path)
    own = "sockets that guests make for themselves in the jail's own places can be reached"
    notes = (own,) if writable and place is not None and place.is_own else ()
    return Decision(allowed=False, rule=None, reason=reason, grant=grant, notes=notes)


def _why_abstract(policy: JailPolicy, name: str) -> Decision:
    """Answer for an abstract socket, which has a name and no path."""
    keeper = "the network namespace" if policy.egress.mode != "open" else "Landlock (from ABI 6)"
    reason = (
        f"the guest cannot connect to the abstract socket {visible(name)} of the host: {keeper} "
        "keeps those apart, and none can be granted"
    )
    return Decision(allowed=False, rule=None, reason=reason)

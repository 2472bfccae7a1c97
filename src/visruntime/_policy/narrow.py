"""What two policies grant in common.

The answer to a file question changes only at the path of a rule. So it is enough to ask
both policies at each path that either of them names, and to write down, from the root
downwards, a rule wherever the common answer is not what the rules so far would give.

A grant of the result is as good as the clauses behind it: a clause that no jail would take,
because its path goes through a link, is refused here too, and the owner of the folder that
a clause grants goes on deciding in whose name the guest of a root caller reads what is left.
"""

from __future__ import annotations

import os
from types import MappingProxyType

from visruntime._native import decide
from visruntime._policy.caches import cache_rules
from visruntime._policy.links import Resolver, check_links
from visruntime._policy.paths import FORBIDDEN_GRANTS, ancestors, escape, is_within
from visruntime._policy.patterns import parse
from visruntime._policy.values import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from visruntime.policy import JailPolicy

__all__ = ["narrow"]

ABSENT_DENIES = ("broker", "wall", "error")
RIGHTS = ("read", "write", "exec")
SYSTEMS = ("none", "minimal", "host")


class RuleTable:
    """Rules by path, so that a question looks only at the rules that cover its path."""

    __slots__ = ("_by_path",)

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_path: dict[str, list[tuple[str, bool]]] = {}
        for rule in rules:
            self._by_path.setdefault(rule.path, []).append((rule.kind, rule.origin == "private"))

    def paths(self) -> Iterable[str]:
        """Return the paths that rules name."""
        return self._by_path.keys()

    def add(self, kind: str, path: str) -> None:
        """Add a rule of the host's files; a grant takes the place of a private one."""
        here = self._by_path.setdefault(path, [])
        if kind in ("read", "write"):
            here[:] = [entry for entry in here if not entry[1]]
        here.append((kind, False))

    def answer(self, path: str) -> tuple[bool, bool, bool]:
        """Return whether *path* can be read, written, executed."""
        covering = [(kind, top) for top in ancestors(path) for kind, _ in self._at(top)]
        read, write, execute = (decide(covering, right, path)[0] for right in RIGHTS)
        return read, write, execute

    def is_private(self, path: str) -> bool:
        """Tell whether the nearest grant over *path* is one of the jail's own places."""
        for top in reversed(list(ancestors(path))):
            grants = [private for kind, private in self._at(top) if kind in ("read", "write")]
            if grants:
                return all(grants)
        return False

    def _at(self, path: str) -> list[tuple[str, bool]]:
        return self._by_path.get(path, [])


class Side:
    """One of the two policies: its rules where they lead, and the clauses behind them."""

    __slots__ = (
        "_checked",
        "_clauses",
        "_owners",
        "_policy",
        "_resolver",
        "_write",
        "caches",
        "table",
    )

    def __init__(self, policy: JailPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._owners = policy.owners
        self._resolver = resolver
        rules = policy._assemble(resolve=True, real=resolver, walked=policy.walked)
        # A cache shows nothing of the host's, so of the host's it takes something away.
        self.caches = {rule.path for rule in cache_rules(rules)}
        rules = tuple(
            Rule(kind="deny", path=rule.path, origin=rule.origin)
            if rule.origin.startswith("caches[")
            else rule
            for rule in rules
        )
        self.table = RuleTable(rules)
        self._clauses: dict[str, str] = {}
        self._checked: set[str] = set()
        for rule in rules:
            if (
                rule.kind in ("read", "write")
                and self._clauses.get(rule.path, "system") == "system"
            ):
                self._clauses[rule.path] = rule.origin
        self._write = [r.path for r in rules if r.kind == "write" and r.origin != "private"]

    def owner(self, path: str) -> tuple[int, int] | None:
        """Return the owner (uid, gid) of what the clause over *path* grants.

        ``None`` for ``system``, which shows files as any stranger sees them.

        Raises:
            PolicyError: the path of that clause goes through a link that no jail follows.
        """
        top = next(top for top in reversed(list(ancestors(path))) if top in self._clauses)
        origin = self._clauses[top]
        if origin in ("system", "private"):
            return None
        if origin not in self._checked:
            kind, _, index = origin.rstrip("]").partition("[")
            self._check(origin, getattr(self._policy, kind)[int(index)])
            self._checked.add(origin)
        if top in self._owners:
            return self._owners[top]
        try:
            status = self._resolver.found.get(top) or os.lstat(top)  # a pattern names others
        except OSError:
            return None
        return status.st_uid, status.st_gid

    def _check(self, origin: str, path: str) -> None:
        pattern = self._policy.patterns.get(path)
        resolver = self._resolver
        for asked in (path,) if pattern is None else (path, pattern.fixed):
            if asked in resolver.links:
                links = resolver.links[asked]
                check_links(origin, asked, resolver.reals[asked], links, self._write)


def narrow(one: JailPolicy, two: JailPolicy) -> JailPolicy:
    """Return the policy of `JailPolicy.narrow`."""
    system = min(one.system, two.system, key=SYSTEMS.index)
    env = {
        name: value
        for name, value in one.env.items()
        if name in two.env and type(value) is type(two.env[name]) and value == two.env[name]
    }
    egress = one.egress.narrow(two.egress)
    with Resolver() as resolver:
        rules, owners = _common_rules(one, two, system, resolver)
    policy = one.replace(
        **rules,
        absent_deny=max(one.absent_deny, two.absent_deny, key=ABSENT_DENIES.index),
        system=system,
        egress=egress,
        env=env,
        inherit_env=_in_both(one.inherit_env, two.inherit_env),
        inbound={p: to for p, to in one.inbound.items() if two.inbound.get(p) == to},
        host_ports=_in_both(one.host_ports, two.host_ports),
        sockets=_in_both(one.sockets, two.sockets),
        sensitive_sockets=_in_both(one.sensitive_sockets, two.sensitive_sockets),
        reveal=_in_both(one.reveal, two.reveal),
        caches=_in_both(one.caches, two.caches),
        services=_in_both(one.services, two.services),
        limits=one.limits.narrow(two.limits),
        strict_globs=one.strict_globs or two.strict_globs,
    )
    own = (one.patterns.keys() - one.found) | (two.patterns.keys() - two.found)
    policy._set(
        files=tuple(dict.fromkeys((*one.files, *two.files))),
        found=(one.found | two.found) - own,
        owners=MappingProxyType(owners),
    )
    return policy


def _in_both(one: tuple[Any, ...], two: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value for value in one if value in two)


def _common_rules(
    one: JailPolicy, two: JailPolicy, system: str, resolver: Resolver
) -> tuple[dict[str, list[str]], dict[str, tuple[int, int] | None]]:
    """Return the rule fields of what *one* and *two* grant in common, and `JailPolicy.owners`."""
    denies = ("deny", "deny_read", "deny_write", "deny_exec")
    fields: dict[str, dict[str, None]] = {"read": {}, "write": {}}
    # Denies are kept as they are written: a link that they name may lead elsewhere tomorrow.
    for kind in denies:
        fields[kind] = dict.fromkeys((*getattr(one, kind), *getattr(two, kind)))

    sides = Side(one, resolver), Side(two, resolver)
    first, second = (side.table for side in sides)
    owners: dict[str, tuple[int, int] | None] = {}
    bare = type(one)(system=system)  # type: ignore[arg-type]
    result = RuleTable(bare.resolved_rules())
    for kind in denies:
        for path in fields[kind]:
            pattern = parse(path)
            if not pattern.rest:  # what others name is denied below, path by path
                result.add(kind, pattern.fixed)

    def add(kind: str, path: str) -> None:
        if kind in ("read", "write"):
            behind = [side.owner(path) for side in sides]
            owners[path] = behind[0] if behind[0] == behind[1] else None
        fields[kind].setdefault(escape(path))
        result.add(kind, path)

    shared = sides[0].caches & sides[1].caches
    for path in sorted({*first.paths(), *second.paths()}, key=lambda path: (len(path), path)):
        if any(is_within(path, cache) for cache in shared):
            continue  # the result has it too, and nothing of the host's is there
        wanted = tuple(
            a and b for a, b in zip(first.answer(path), second.answer(path), strict=True)
        )
        of_host = not first.is_private(path) and not second.is_private(path)
        if of_host and wanted[0] and not any(is_within(path, top) for top in FORBIDDEN_GRANTS):
            _grant(path, writable=wanted[1], result=result, add=add)
        _take_away(path, wanted, result, add)
    return {kind: list(paths) for kind, paths in fields.items()}, owners


def _grant(
    path: str, *, writable: bool, result: RuleTable, add: Callable[[str, str], None]
) -> None:
    """Add a grant of *path* if *result* does not give as much of the host's files yet."""
    has_read, has_write, _ = result.answer(path)
    if result.is_private(path) or not has_read or (writable and not has_write):
        add("write" if writable else "read", path)


def _take_away(
    path: str, wanted: tuple[bool, ...], result: RuleTable, add: Callable[[str, str], None]
) -> None:
    """Add the denies that bring *result* down to *wanted* at *path*."""
    has = result.answer(path)
    if has[0] and not wanted[0]:
        add("deny", path)
        return
    for index, kind in ((1, "deny_write"), (2, "deny_exec")):
        if has[index] and not wanted[index]:
            add(kind, path)

"""What two policies grant in common.

The answer to a file question changes only at the path of a rule. So it is enough to ask
both policies at each path that either of them names, and to write down, from the root
downwards, a rule wherever the common answer is not what the rules so far would give.
"""

from __future__ import annotations

from visruntime._native import decide
from visruntime._paths import FORBIDDEN_GRANTS, ancestors, escape, is_within
from visruntime._patterns import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from visruntime._policy_values import Rule
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


def narrow(one: JailPolicy, two: JailPolicy) -> JailPolicy:
    """Return the policy of `JailPolicy.narrow`."""
    system = min(one.system, two.system, key=SYSTEMS.index)
    env = {
        name: value
        for name, value in one.env.items()
        if name in two.env and type(value) is type(two.env[name]) and value == two.env[name]
    }
    egress = one.egress.narrow(two.egress)
    return one.replace(
        **_common_rules(one, two, system),
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


def _in_both(one: tuple[Any, ...], two: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value for value in one if value in two)


def _common_rules(one: JailPolicy, two: JailPolicy, system: str) -> dict[str, list[str]]:
    """Return the rule fields of what *one* and *two* grant in common."""
    denies = ("deny", "deny_read", "deny_write", "deny_exec")
    fields: dict[str, dict[str, None]] = {"read": {}, "write": {}}
    # Denies are kept as they are written: a link that they name may lead elsewhere tomorrow.
    for kind in denies:
        fields[kind] = dict.fromkeys((*getattr(one, kind), *getattr(two, kind)))

    first, second = RuleTable(one.resolved_rules()), RuleTable(two.resolved_rules())
    bare = type(one)(system=system)  # type: ignore[arg-type]
    result = RuleTable(bare.resolved_rules())
    for kind in denies:
        for path in fields[kind]:
            pattern = parse(path)
            if not pattern.rest:  # what others name is denied below, path by path
                result.add(kind, pattern.fixed)

    def add(kind: str, path: str) -> None:
        fields[kind].setdefault(escape(path))
        result.add(kind, path)

    for path in sorted({*first.paths(), *second.paths()}, key=lambda path: (len(path), path)):
        wanted = tuple(
            a and b for a, b in zip(first.answer(path), second.answer(path), strict=True)
        )
        of_host = not first.is_private(path) and not second.is_private(path)
        if of_host and wanted[0] and not any(is_within(path, top) for top in FORBIDDEN_GRANTS):
            _grant(path, writable=wanted[1], result=result, add=add)
        _take_away(path, wanted, result, add)
    return {kind: list(paths) for kind, paths in fields.items()}


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

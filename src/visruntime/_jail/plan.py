"""From a policy to the plan of one jail: what the file system has, and what is added unasked.

The C compiler decides what is mounted where; this module collects the facts that it needs
and refuses what the mounts could not hold. Nothing is started here.
"""

from __future__ import annotations

import os
import stat
from itertools import islice

from visruntime import _native
from visruntime._jail.acts import denied_paths
from visruntime._jail.aliases import Aliases
from visruntime._jail.backends import is_host_root, refused, without_denied
from visruntime._jail.caches_plan import PlannedCaches, hidden_caches
from visruntime._jail.canaries import MOST_PATHS
from visruntime._jail.facts import (
    Vanished,
    check_facts,
    check_held,
    check_patterns,
    fact_of,
    fact_of_link,
    facts_of,
    own_by_grants,
)
from visruntime._jail.limits import HeldLimits
from visruntime._jail.mount_table import MountTree, host_mounts, mount_table
from visruntime._jail.mounts import (
    KERNEL_TYPES,
    kernel_mounts,
    refuse_aliases,
    refuse_kernel_mounts,
    refuse_second_mounts,
    refuse_unbindable,
    secrets_by_second_mounts,
)
from visruntime._jail.names import check_names, name_acts
from visruntime._jail.own_places import (
    bare_extras,
    extras_of,
    home_of,
    new_guest_id,
    system_extras,
)
from visruntime._jail.owners import in_whose_name, refuse_planted_sockets, strangers
from visruntime._jail.ports import needs_ports, port_operations
from visruntime._jail.protect import protect
from visruntime._jail.remembered import Remembered, key_of, recall, remember
from visruntime._jail.search import REASONS, look_through, movable, refuse_devices, refuse_links
from visruntime._jail.sockets import check_broker, resolve_sockets, socket_tier
from visruntime._jail.spellings import Spellings
from visruntime._policy.caches import cache_rules
from visruntime._policy.decider import Decider
from visruntime._policy.links import Resolver, check_links
from visruntime._policy.looks import status_at
from visruntime._policy.paths import (
    HOME,
    MINIMAL_DENY,
    Trees,
    ancestors,
    visible,
)
from visruntime._policy.system_roots import SystemRoots
from visruntime._policy.unsupported import unsupported
from visruntime._policy.wall import Wall, find_wall, kind_of
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from visruntime._jail.caches import CacheFolders
    from visruntime.policy import JailPolicy, Rule

__all__ = ["JailPlan", "check_policy_links", "make_plan"]

MOST_LOOKS = 3
"""How often it is looked at the host's files, where some that are to be covered go away meanwhile."""
MOST_COPIED_BYTES = 32768
"""Largest file of /etc that a jail gets as a copy instead of a mount."""


class JailPlan:
    """A compiled plan, and what the caller of it has to know."""

    __slots__ = (
        "acts",
        "backend",
        "blob",
        "disables_userns",
        "home",
        "host_rules",
        "import_places",
        "links",
        "masked",
        "not_roots",
        "notes",
        "own_tmp",
        "patterns",
        "protected",
        "rules",
        "secrets",
        "socket_tier",
        "wall",
        "written",
    )

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.blob = b""
        self.disables_userns = False
        self.own_tmp = backend != "landlock"
        self.home = HOME
        self.host_rules: list[tuple[str, str]] = []
        self.import_places: list[str] = []
        self.links: list[str] = []
        self.notes: list[str] = []
        self.not_roots: list[tuple[str, str, str]] = []
        self.patterns: dict[str, tuple[str, int]] = {}
        self.protected: list[str] = []
        self.masked: list[tuple[str, str]] = []
        self.secrets: list[tuple[str, str]] = []
        self.written: list[Rule] = []
        self.rules: list[tuple[str, str]] = []
        self.acts: list[str] = []
        self.socket_tier: str | None = None
        self.wall = Wall()

    def copy(self) -> JailPlan:
        """Return the same plan for another jail."""
        again = JailPlan(self.backend)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(again, name, value.copy() if isinstance(value, (list, dict)) else value)
        return again


def make_plan(
    policy: JailPolicy,
    *,
    limits: HeldLimits | None = None,
    implicit_read: Sequence[tuple[str, str]] = (),
    config_files: Iterable[str] = (),
    backend: str = "namespaces",
    caches: CacheFolders | None = None,
) -> JailPlan:
    """Compile *policy*, or say which clause cannot be held here.

    Args:
        limits: what holds its limits; by default what needs no cgroup.
        implicit_read: (path, reason) of read-only grants that the caller's library adds.
        config_files: policy and configuration files in use, kept read-only.
        backend: what will execute the plan; it decides what can be held.
        caches: the folders behind its caches.

    Raises:
        PolicyUnsupported: a clause that this version or machine cannot enforce.
        PolicyError: a path that is missing, or is not what a rule can stand on.
    """
    limits = limits or HeldLimits(policy.limits, None)
    key = key_of(policy, limits, implicit_read, backend)
    plan = None if key is None else recall(policy, key)
    if plan is not None:
        return plan
    for _ in range(MOST_LOOKS):
        with Resolver() as resolver:
            try:
                return _make_plan(
                    policy, limits, resolver, implicit_read, config_files, backend, key, caches
                )
            except Vanished as vanished:
                path = vanished.args[0]
    raise PolicyUnsupported(
        f"{path} must be covered, but went away while the jail opened; try again", value=path
    )


def _make_plan(
    policy: JailPolicy,
    limits: HeldLimits,
    resolver: Resolver,
    implicit_read: Sequence[tuple[str, str]],
    config_files: Iterable[str],
    backend: str,
    key: tuple[object, ...] | None,
    caches: CacheFolders | None,
) -> JailPlan:
    system_roots = SystemRoots() if policy.system == "minimal" else None
    minimal = system_roots.pairs if system_roots else ()
    resolver.found.update(system_roots.status if system_roots else {})
    implicit = [resolver(path) for path, _ in implicit_read]
    links: list[str] = []
    resolved = policy._assemble(
        resolve=True, minimal=minimal, real=resolver, implicit=implicit, links=links
    )
    reveal = [resolver(path) for path in policy.reveal]
    for field, why in unsupported(policy, resolved, reveal, resolver.is_missing):
        raise PolicyUnsupported(f"{field}: {why}", field=field)
    against = list(refused(policy, backend))
    if against:
        # All at once: with one after the other, each try would show the next.
        said = "; ".join(f"{field}: {why}" for field, why in against)
        raise PolicyUnsupported(f"{said} (back end {backend})", field=against[0][0])
    plan = JailPlan(backend)
    host_root = policy.system == "host"
    written = [rule for rule in resolved if rule.origin != "system" and not rule.is_own]
    plan.written = [*written, *cache_rules(resolved)]
    plan.home = home_of(resolved, written) if plan.own_tmp else "/"
    plan.notes += [
        f"system: {visible(path)} is left out: not everybody may read {what}"
        for path, what in (system_roots.left_out if system_roots else ())
    ]
    plan.notes += [
        f"inherit_env: {name} is not set on this host, so the guest does not have it"
        for name in policy.inherit_env
        if name not in os.environ
    ]
    grants = [rule.path for rule in written if rule.kind == "write"]
    check_policy_links(policy, resolver, grants)
    for path, _ in implicit_read:
        check_links("python", path, resolver.reals[path], resolver.links[path], grants)
    plan.patterns = check_patterns(policy, written, resolver)
    check_facts(written, resolver)
    rules: list[tuple[str, str, bool, bool]] = [
        (rule.kind, rule.path, False, rule.kind in ("read", "write")) for rule in written
    ]
    rules += [("read", path, False, True) for path in implicit]
    sockets = resolve_sockets(policy, resolver, grants)
    rules += [("read", path, False, True) for _, path in sockets]
    copied, system = _system_rules(resolved, resolver)
    if backend == "landlock":
        copied, system = [], _bare_system_rules(resolved)
    rules += system
    cached = PlannedCaches()
    unasked = (*implicit, *(path for _, path in sockets))
    cached.place(policy, resolved, caches, rules, unasked)
    rules += cached.rules()
    # What a cache covers of the host's is denied like anything else.
    speaking = [*written, *cached.covering]
    tree = MountTree(mount_table())
    aliases = Aliases(tree)
    rules += _mount_rules(speaking, rules, tree, aliases, backend)
    protection = protect(
        [(kind, path) for kind, path, private, _ in rules if not private],
        grants,
        (*config_files, *policy.files),
        absent_deny=policy.absent_deny,
    )
    plan.protected = list(protection.existing)
    plan.import_places = protection.places
    plan.notes += protection.notes
    looks: dict[str, os.stat_result | None] = dict.fromkeys(MINIMAL_DENY)
    findings = look_through(
        speaking,
        rules,
        plan.protected,
        reveal,
        aliases,
        tree=tree,
        searched=policy.searched,
        implicit=implicit,
        host_root=host_root,
        granted=frozenset(path for _, path in sockets),
        devices=backend == "landlock",
    )
    plan.masked = findings.masked
    if backend == "landlock":
        refuse_devices(written, findings)
        # No socket can be made there, so none leads anywhere.
        plan.masked = [found for found in findings.masked if found[1] != REASONS["s"]]
    plan.masked += hidden_caches(written, rules, aliases, looks)
    plan.secrets = secrets_by_second_mounts(findings.secrets, rules, reveal, aliases)
    plan.protected += findings.read_only
    plan.notes += findings.notes
    plan.links = sorted({*findings.links, *movable(links, rules)})
    if plan.links and backend == "bubblewrap":
        refuse_links(plan.links[0])
    spellings = Spellings(tree)
    _check_spellings(plan, speaking, spellings)
    kept_names = (*plan.protected, *protection.to_come, *plan.links)
    rules += [("deny_write", path, False, False) for path in kept_names]
    refuse_second_mounts(written, rules, (*protection.everywhere, *implicit), aliases)
    rules += [("deny", path, False, False) for path, _ in (*plan.masked, *plan.secrets)]
    rules += [(kind, path, False, True) for kind, path in findings.reopened]
    kept: list[str] = []
    if policy.absent_deny == "broker":
        kept = [rule.path for rule in speaking if rule.kind != "write"]
        kept += protection.existing
    plan.wall = _wall(written, rules, resolver, protection.to_come, kept)
    rules += [("deny_write", path, False, False) for path in plan.wall.replaced]
    looks.update(system_roots.looks if system_roots else {})
    facts = facts_of((*(path for _, path, _, _ in rules), *plan.wall.free), resolver, looks)
    facts |= dict.fromkeys(cached.own_points(), ("absent", 0, 0, 0, 0))
    facts |= {source: fact_of(status_at(source)) for _, source in cached.sources}
    facts |= {link: fact_of_link(status_at(link)) for link in plan.links}
    plan.socket_tier = socket_tier(policy, sockets, rules, facts)
    if plan.socket_tier == "broker":
        check_broker(sockets)
    plan.rules = cached.seen(rules)
    decide = Decider([rule[:2] for rule in rules] if written or sockets else ())
    check_held(
        rules,
        facts,
        decide,
        resolver,
        held={*(path for _, path in plan.wall.names), *cached.own_points()},
        links=plan.links,
        origins={rule.path: rule.origin for rule in written},
    )
    plan.host_rules = [(kind, path) for kind, path, private, _ in rules if not private]
    brokered = bool(plan.wall.names) and policy.absent_deny == "broker"
    if brokered and backend != "namespaces":
        origin, path = plan.wall.names[0]
        raise PolicyUnsupported(
            f'{origin}: {path} does not exist, and absent_deny="broker" needs a broker, which only '
            f'the back end namespaces has; ask for "wall" (back end {backend})',
            field=origin,
            value=path,
        )
    if brokered:
        check_names(plan.wall, spellings)
    plan.notes += caches.notes if caches is not None else []
    plan.acts = [
        *name_acts(plan.wall, brokered=brokered),
        *cached.acts(),
        *islice(denied_paths(written, plan, rules, facts, decide), MOST_PATHS),
    ][:MOST_PATHS]
    guest_id = 0 if os.geteuid() else new_guest_id()
    others: dict[str, str] = {}
    if (written or implicit or sockets) and is_host_root():
        from visruntime._jail.as_root import not_roots

        refuse_planted_sockets(sockets, resolver)
        others = strangers(policy, written, implicit, resolver, plan.notes)
        plan.not_roots = not_roots(written, implicit, others, resolver)
    if guest_id:
        own_by_grants(facts, rules, written, findings.reopened)
    plan.blob = _compile(
        rules=in_whose_name(
            rules, (rule.path for rule in written if rule.kind in ("read", "write")), others
        ),
        facts=facts,
        extras=bare_extras(plan.acts)
        if backend == "landlock"
        else [
            *extras_of(policy, resolved, resolver, plan.home, guest_id or os.geteuid(), plan.notes),
            *system_extras(system_roots, copied),
            *cached.extras(),
            *(("TRY", act[1:], "", ord(act[0])) for act in plan.acts),
            *port_operations(policy),
            *(("NAME", path, "", 0) for path in plan.wall.kept if brokered),
            *(("SOCKET", path, "", 0) for _, path in sockets if decide("read", path)[0]),
        ],
        limits=limits.process,
        tree=limits.tree,
        hostname="visruntime",
        guest_id=guest_id,
        scratch_size=policy.limits.scratch or 0,
        private_network=policy.egress.mode != "open",
        host_root=host_root,
        broker_sockets=plan.socket_tier == "broker",
        ports=needs_ports(policy),
        broker_names=brokered,
        held={path for _, path in plan.wall.names},
        free=plan.wall.free,
        backend=backend,
    )
    found = plan.masked or plan.secrets or plan.protected or plan.links or plan.wall.names
    if key is not None and not found and (system_roots is None or system_roots.is_plain):
        remember(policy, key, Remembered(plan, system_roots, looks, tree, guest_id))
    return plan


def _compile(**parts: Any) -> bytes:
    try:
        return _native.compile_plan(**parts)
    except _native.NativeError as error:
        if error.index >= 0:
            kind, path = parts["rules"][error.index][:2]
            raise PolicyUnsupported(
                f"{kind}: {error}; use another back end, or grant the folders beside it",
                field=kind,
                value=path,
            ) from None
        raise PolicyUnsupported(f"the policy cannot be enforced: {error}") from None


# ---- rules -----------------------------------------------------------------------


def _system_rules(
    resolved: Sequence[Rule], resolver: Resolver
) -> tuple[list[str], list[tuple[str, str, bool, bool]]]:
    """Return the small files that are copied, and all rules that no field of the policy made.

    A copy costs a fifth of a mount; what it copies are the host's own files of /etc.
    """
    copied = []
    rules = []
    for rule in resolved:
        if rule.origin not in ("system", "private"):
            continue
        private = rule.origin == "private"
        found = resolver.found.get(rule.path)
        if not private and rule.path.startswith("/etc/") and found and _is_small_file(found):
            copied.append(rule.path)
            private = True
        rules.append((rule.kind, rule.path, private, False))
    return copied, rules


def _bare_system_rules(resolved: Sequence[Rule]) -> list[tuple[str, str, bool, bool]]:
    """Return the rules of the system where no place is the jail's own and nothing is masked."""
    system = [rule for rule in resolved if rule.origin == "system"]
    denied = [rule.path for rule in system if rule.kind == "deny"]
    granted = [
        ("read", path, False, False)
        for rule in system
        if rule.kind == "read"
        for path in without_denied(rule.path, denied)
    ]
    # The denies stay: a grant of the caller above one is refused.
    return granted + [("deny", path, False, False) for path in denied]


def _is_small_file(found: os.stat_result) -> bool:
    """Tell whether it is small, and for everybody; anything else is shown as it is, by a mount."""
    shown = stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH
    return bool(shown) and found.st_size <= MOST_COPIED_BYTES


def check_policy_links(policy: JailPolicy, resolver: Resolver, write_grants: Sequence[str]) -> None:
    """Refuse each path of *policy* that goes through a link which a guest could have made."""
    named = [
        (f"{kind}[{index}]", path)
        for kind in (
            "read",
            "write",
            "deny",
            "deny_read",
            "deny_write",
            "deny_exec",
            "reveal",
            "caches",
        )
        for index, path in enumerate(getattr(policy, kind))
    ]
    for field, path in named:
        pattern = policy.patterns.get(path)
        # Of a pattern, its beginning; and the very path, if something of that name is there.
        for asked in (path,) if pattern is None else (path, pattern.fixed):
            if asked in resolver.links:
                links = resolver.links[asked]
                check_links(field, asked, resolver.reals[asked], links, write_grants)


def _mount_rules(
    written: Sequence[Rule],
    rules: Sequence[tuple[str, str, bool, bool]],
    tree: MountTree,
    aliases: Aliases,
    backend: str,
) -> list[tuple[str, str, bool, bool]]:
    """Refuse grants and denies that the host's mounts would undo; mask the rest of them."""
    grants = [(rule.origin, rule.path) for rule in written if rule.kind in ("read", "write")]
    rights = {"deny_write": "write", "deny_exec": "exec"}
    denies = [
        (rule.origin, rights.get(rule.kind, "read"), rule.path)
        for rule in written
        if rule.kind.startswith("deny")
    ]
    refuse_kernel_mounts(grants, tree)
    # Without a grant only these matter, and the rest is not worth the time.
    mounts = tree.mounts if written else host_mounts(tree.table, KERNEL_TYPES)
    if backend != "landlock":  # which binds nothing
        unasked = [
            ("system", path)
            for kind, path, private, _ in rules
            if kind in ("read", "write") and not private
        ]
        refuse_unbindable([*grants, *unasked], mounts)
    refuse_aliases(denies, [rule[:2] for rule in rules if not rule[2]], aliases)
    visible = {path for kind, path, private, _ in rules if kind == "read" and not private}
    return [
        ("deny", point, False, False)
        for point in kernel_mounts(mounts)
        if any(top in visible for top in ancestors(point))
    ]


def _check_spellings(plan: JailPlan, written: Sequence[Rule], spellings: Spellings) -> None:
    """Refuse what has a name that no mask would cover; mask what shows earlier versions."""
    grants = [rule.path for rule in written if rule.kind in ("read", "write")]
    writable = Trees(rule.path for rule in written if rule.kind == "write")
    covered = [
        *((rule.origin, rule.path) for rule in written if rule.kind.startswith("deny")),
        *(
            (rule.origin, rule.path)
            for rule in written
            if rule.kind == "read" and writable.top_of(rule.path) is not None
        ),
        *(("protected", path) for path in (*plan.protected, *plan.links)),
        *(("masked", path) for path, _ in plan.masked),
        *(("secrets", path) for path, _ in plan.secrets),
    ]
    spellings.refuse(covered, grants)
    found = spellings.snapshots((path for _, path in covered), grants)
    plan.masked += [(path, "earlier versions, which no listing names") for path in found]


def _wall(
    written: Sequence[Rule],
    rules: Sequence[tuple[str, str, bool, bool]],
    resolver: Resolver,
    protected: Sequence[str],
    kept: Sequence[str],
) -> Wall:
    """Return the wall for the denied and the protected names that do not exist."""
    there = (path for path in dict.fromkeys(kept) if resolver.found.get(path, True) is not None)
    return find_wall(
        [rule[:3] for rule in rules],
        [
            *(
                (rule.origin, rule.path)
                for rule in written
                if rule.kind == "deny_write" and resolver.is_missing(rule.path)
            ),
            *((f"protected {path}", path) for path in protected),
        ],
        lambda path: kind_of(resolver.at(path)),
        kept=there,
    )

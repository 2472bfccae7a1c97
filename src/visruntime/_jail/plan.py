"""From a policy to the plan of one jail: what the file system has, and what is added unasked.

The C compiler decides what is mounted where; this module collects the facts that it needs
and refuses what the mounts could not hold. Nothing is started here.
"""

from __future__ import annotations

import os
import stat
from itertools import islice

from visruntime import _native
from visruntime._jail.backends import refused, without_denied
from visruntime._jail.canaries import MOST_PATHS
from visruntime._jail.limits import HeldLimits
from visruntime._jail.mounts import (
    Aliases,
    host_mounts,
    kernel_mounts,
    mount_table,
    refuse_aliases,
    refuse_kernel_mounts,
    refuse_second_mounts,
    secrets_by_second_mounts,
)
from visruntime._jail.name_servers import name_servers
from visruntime._jail.names import check_names, name_acts
from visruntime._jail.owners import grouped, in_whose_name, strangers
from visruntime._jail.ports import needs_ports, port_operations
from visruntime._jail.protect import protect
from visruntime._jail.remembered import (
    Remembered,
    accounts,
    key_of,
    new_guest_id,
    recall,
    remember,
)
from visruntime._jail.search import REASONS, look_through
from visruntime._jail.sockets import check_broker, resolve_sockets, socket_tier
from visruntime._jail.spellings import Spellings
from visruntime._policy.decider import Decider
from visruntime._policy.links import Resolver, check_links, real_path
from visruntime._policy.paths import (
    HOME,
    MINIMAL_DENY,
    PRIVATE_WRITE,
    Trees,
    ancestors,
    is_within,
    visible,
)
from visruntime._policy.system_roots import SystemRoots
from visruntime._policy.unsupported import unsupported
from visruntime._policy.wall import Wall, find_wall
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from visruntime._jail.mounts import Mount
    from visruntime.policy import JailPolicy, Rule

__all__ = ["JailPlan", "make_plan"]

OTHER_HOME = "/tmp/home"  # noqa: S108 - inside the jail
"""HOME of the guest where `HOME` would lie in a tree of the host, in which nothing is made."""

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
        "masked",
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
        self.notes: list[str] = []
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


class _Vanished(Exception):
    """What is to be covered was there when it was found, and then no more."""


def make_plan(
    policy: JailPolicy,
    *,
    limits: HeldLimits | None = None,
    implicit_read: Sequence[tuple[str, str]] = (),
    config_files: Iterable[str] = (),
    backend: str = "namespaces",
) -> JailPlan:
    """Compile *policy*, or say which clause cannot be held here.

    Args:
        limits: what holds its limits; by default what needs no cgroup.
        implicit_read: (path, reason) of read-only grants that the caller's library adds.
        config_files: policy and configuration files in use, kept read-only.
        backend: what will execute the plan; it decides what can be held.

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
                    policy, limits, resolver, implicit_read, config_files, backend, key
                )
            except _Vanished as vanished:
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
) -> JailPlan:
    system_roots = SystemRoots() if policy.system == "minimal" else None
    minimal = system_roots.pairs if system_roots else ()
    resolver.found.update(system_roots.status if system_roots else {})
    implicit = [resolver(path) for path, _ in implicit_read]
    resolved = policy._assemble(resolve=True, minimal=minimal, real=resolver, implicit=implicit)
    reveal = [resolver(path) for path in policy.reveal]
    for field, why in unsupported(policy, resolved, reveal):
        raise PolicyUnsupported(f"{field}: {why}", field=field)
    against = list(refused(policy, backend))
    if against:
        # All at once: with one after the other, each try would show the next.
        said = "; ".join(f"{field}: {why}" for field, why in against)
        raise PolicyUnsupported(f"{said} (back end {backend})", field=against[0][0])
    plan = JailPlan(backend)
    host_root = policy.system == "host"
    written = [rule for rule in resolved if rule.origin not in ("system", "private")]
    plan.written = written
    plan.home = _home(resolved, written) if plan.own_tmp else "/"
    plan.notes += [
        f"system: {visible(path)} is left out: not everybody may read what the link leads to"
        for path in (system_roots.left_out if system_roots else ())
    ]
    plan.notes += [
        f"inherit_env: {name} is not set on this host, so the guest does not have it"
        for name in policy.inherit_env
        if name not in os.environ
    ]
    grants = [rule.path for rule in written if rule.kind == "write"]
    _check_links(policy, resolver, grants)
    for path, _ in implicit_read:
        check_links("python", path, resolver.reals[path], resolver.links[path], grants)
    plan.patterns = _check_patterns(policy, written, resolver)
    _check_facts(written, resolver)
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
    table = mount_table()
    mounts = host_mounts(table, all_of_them=bool(written))
    aliases = Aliases(mounts)
    rules += _mount_rules(written, rules, mounts, aliases)
    protection = protect(
        [(kind, path) for kind, path, private, _ in rules if not private],
        grants,
        (*config_files, *policy.files),
        absent_deny=policy.absent_deny,
    )
    plan.protected = list(protection.existing)
    plan.notes += protection.notes
    findings = look_through(
        written,
        rules,
        plan.protected,
        reveal,
        aliases,
        host_root=host_root,
        granted=frozenset(path for _, path in sockets),
    )
    plan.masked = findings.masked
    if backend == "landlock":  # no socket can be made there, so none leads anywhere
        plan.masked = [found for found in findings.masked if found[1] != REASONS["s"]]
    plan.secrets = secrets_by_second_mounts(findings.secrets, rules, reveal, aliases)
    plan.protected += findings.read_only
    plan.notes += findings.notes
    spellings = Spellings(mounts)
    _check_spellings(plan, written, spellings)
    rules += [("deny_write", path, False, False) for path in (*plan.protected, *protection.to_come)]
    refuse_second_mounts(written, rules, protection.everywhere, aliases)
    rules += [("deny", path, False, False) for path, _ in (*plan.masked, *plan.secrets)]
    rules += [(kind, path, False, True) for kind, path in findings.reopened]
    kept: list[str] = []
    if policy.absent_deny == "broker":
        kept = [rule.path for rule in written if rule.kind != "write"]
        kept += protection.existing
    plan.wall = _wall(written, rules, resolver, protection.to_come, kept)
    rules += [("deny_write", path, False, False) for path in plan.wall.replaced]
    looks: dict[str, os.stat_result | None] = dict.fromkeys(MINIMAL_DENY)
    looks.update(system_roots.looks if system_roots else {})
    facts = _facts((*(path for _, path, _, _ in rules), *plan.wall.free), resolver, looks)
    covered = (*plan.masked, *plan.secrets)
    _check_present([*plan.protected, *(path for path, _ in covered)], facts)
    plan.socket_tier = socket_tier(policy, sockets, rules, facts)
    if plan.socket_tier == "broker":
        check_broker(sockets)
    plan.rules = [(kind, path) for kind, path, _, _ in rules]
    decide = Decider(plan.rules if written or sockets else ())
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
    plan.acts = [
        *name_acts(plan.wall, brokered=brokered),
        *islice(_denied_paths(written, plan, rules, facts, decide), MOST_PATHS),
    ][:MOST_PATHS]
    guest_id = 0 if os.geteuid() else new_guest_id()
    others: set[str] = set()
    if not os.geteuid():
        others = strangers(policy, written, implicit, resolver, plan.notes)
        _own_by_grants(facts, rules, written, findings.reopened)
    plan.blob = _compile(
        rules=in_whose_name(
            rules, (rule.path for rule in written if rule.kind in ("read", "write")), others
        ),
        facts=facts,
        extras=_bare_extras(plan.acts)
        if backend == "landlock"
        else [
            *_extras(policy, resolved, resolver, plan.home, guest_id or os.geteuid(), plan.notes),
            *_system_extras(system_roots, copied),
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
    found = plan.masked or plan.secrets or plan.protected or plan.wall.names
    if key is not None and not found and (system_roots is None or system_roots.is_plain):
        remember(policy, key, Remembered(plan, system_roots, looks, table, guest_id))
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


def _home(resolved: Sequence[Rule], written: Sequence[Rule]) -> str:
    granted = {rule.path for rule in written if rule.kind in ("read", "write")}
    if HOME in granted:
        return HOME  # the host's own
    if any(rule.path == HOME for rule in resolved if rule.origin == "private"):
        return HOME
    for rule in written:
        if rule.kind in ("read", "write") and is_within(OTHER_HOME, rule.path):
            raise PolicyUnsupported(
                f"{rule.origin}: with {rule.path} granted as well there is no place left for the "
                f"guest's own HOME; grant folders inside of it, or make and grant {HOME}",
                field=rule.origin,
                value=rule.path,
            )
    return OTHER_HOME


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


def _check_links(policy: JailPolicy, resolver: Resolver, write_grants: Sequence[str]) -> None:
    named = [
        (f"{kind}[{index}]", path)
        for kind in ("read", "write", "deny", "deny_read", "deny_write", "deny_exec", "reveal")
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
    mounts: Sequence[Mount],
    aliases: Aliases,
) -> list[tuple[str, str, bool, bool]]:
    """Refuse grants and denies that the host's mounts would undo; mask the rest of them."""
    grants = [(rule.origin, rule.path) for rule in written if rule.kind in ("read", "write")]
    rights = {"deny_write": "write", "deny_exec": "exec"}
    denies = [
        (rule.origin, rights.get(rule.kind, "read"), rule.path)
        for rule in written
        if rule.kind.startswith("deny")
    ]
    refuse_kernel_mounts(grants, mounts)
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
        *(("protected", path) for path in plan.protected),
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
                if rule.kind == "deny_write" and resolver.found.get(rule.path) is None
            ),
            *((f"protected {path}", path) for path in protected),
        ],
        kept=there,
    )


# ---- facts -----------------------------------------------------------------------


def _facts(
    paths: Iterable[str], resolver: Resolver, looks: dict[str, os.stat_result | None]
) -> dict[str, _native.Fact]:
    """Return what stands at each path and above it; for the rules, what was found there.

    *looks* gets what the answers rest on.
    """
    looks.update(resolver.found)
    facts = {path: _fact(status) for path, status in resolver.found.items()}
    whole = set()  # folders that have a fact, and all above them
    for path in paths:
        folder = path.rpartition("/")[0] or "/"
        if folder not in whole:
            whole.add(folder)
            for step in ancestors(folder):
                if step not in facts:
                    looks[step] = _status(step)
                    facts[step] = _fact(looks[step])
        if path not in facts:
            looks[path] = _status(path)
            facts[path] = _fact(looks[path])
    # A rule on a link stands for the link and for what it leads to; only that can be covered.
    for links in resolver.links.values():
        for link, _ in links:
            facts[link] = ("absent", 0, 0, 0, 0)
    return facts


def _own_by_grants(
    facts: dict[str, _native.Fact],
    rules: Sequence[tuple[str, str, bool, bool]],
    written: Sequence[Rule],
    reopened: Sequence[tuple[str, str]],
) -> None:
    """Give what `reveal` opens the owner of the grant around it: it is no grant of its own."""
    granted = {rule.path for rule in written if rule.kind in ("read", "write")}
    grouped(facts, [path for _, path, _, is_grant in rules if is_grant])
    for _, path in reopened:
        around = [top for top in ancestors(path) if top in granted]
        if around and path not in granted:
            facts[path] = *facts[path][:3], *facts[around[-1]][3:]


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PolicyUnsupported(
            f"{path}: it cannot be looked at ({error.strerror}), so nothing can be said of it; "
            "open the folders above it to yourself",
            value=path,
        ) from None


def _fact(found: os.stat_result | None) -> _native.Fact:
    if found is None:
        return "absent", 0, 0, 0, 0
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
    device = os.major(found.st_dev) << 32 | os.minor(found.st_dev)
    return kind, device, found.st_ino, found.st_uid, found.st_gid


def _check_patterns(
    policy: JailPolicy, written: Sequence[Rule], resolver: Resolver
) -> dict[str, tuple[str, int]]:
    """Return of each rule by a pattern its fixed beginning, and how many names it stands for.

    -1 stands for a whole folder, -2 for all names that could ever be there.
    """
    if not policy.patterns:
        return {}
    found = {}
    for kind in ("read", "write", "deny", "deny_read", "deny_write", "deny_exec"):
        for index, path in enumerate(getattr(policy, kind)):
            pattern = policy.patterns.get(path)
            if pattern is None:
                continue
            field = f"{kind}[{index}]"
            names = {rule.path for rule in written if rule.origin == field}
            number = -2 if kind in ("deny_write", "deny_exec") else len(names)
            found[field] = pattern.fixed, number if pattern.rest else -1
            if kind not in ("read", "write"):
                continue
            if not names:
                raise PolicyError(
                    f"{field}: {visible(path)} names nothing that exists (links and secrets do "
                    "not count); make it first, a grant is never left out",
                    field=field,
                    value=path,
                )
            for name in names.difference(resolver.found):
                resolver.found[name] = _status(name)
    return found


def _check_facts(written: Sequence[Rule], resolver: Resolver) -> None:
    for rule in written:
        found = resolver.found.get(rule.path)
        if rule.kind not in ("read", "write"):
            if found is not None:
                _check_other_names(rule, found)
            continue
        if found is None:
            raise PolicyError(
                f"{rule.origin}: {rule.path} does not exist; make it first, a grant is never "
                "left out",
                field=rule.origin,
                value=rule.path,
            )
        if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
            raise PolicyUnsupported(
                f"{rule.origin}: {rule.path} is neither a folder nor a regular file",
                field=rule.origin,
                value=rule.path,
            )


def _check_present(paths: Iterable[str], facts: Mapping[str, _native.Fact]) -> None:
    for path in paths:
        if facts[path][0] == "absent":
            raise _Vanished(path)


def _check_other_names(rule: Rule, found: os.stat_result) -> None:
    """Refuse to deny a file that has a second name: the other name would still lead to it."""
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and rule.kind != "deny_exec":
        raise PolicyUnsupported(
            f"{rule.origin}: {rule.path} has {found.st_nlink} names (hard links), and a guest "
            "could reach it by another one; give it one name (cp it over itself), or deny the "
            "folders of all its names",
            field=rule.origin,
            value=rule.path,
        )


def _denied_paths(
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


# ---- what the jail has of its own --------------------------------------------------

HOSTS = "127.0.0.1 localhost visruntime\n::1 localhost\n"


def _system_extras(
    system: SystemRoots | None, copied: Sequence[str]
) -> list[tuple[str, str, str, int]]:
    """Return the links and the copied files of ``system="minimal"``."""
    links = [("SYMLINK", path, text, 0) for path, text in (system.links if system else {}).items()]
    return links + [("COPY", path, path, 0) for path in copied]


def _extras(
    policy: JailPolicy,
    resolved: Sequence[Rule],
    resolver: Resolver,
    home: str,
    user: int,
    notes: list[str],
) -> list[tuple[str, str, str, int]]:
    """Return the operations that follow from no rule, in order."""
    own = {rule.path for rule in resolved if rule.origin == "private"}
    if home == OTHER_HOME:
        own.add(home)
    extras: list[tuple[str, str, str, int]] = [
        ("DEVICES", "/dev", "", 0),
        ("PROC", "/proc", "", 0),
        ("SCRATCH", "/tmp", "", 0),  # noqa: S108 - inside the jail
    ]
    places = [*((place, 0o1777) for place in PRIVATE_WRITE if place != HOME), (home, 0o755)]
    extras += [("SCRATCH_PLACE", place, "", mode) for place, mode in places if place in own]
    if policy.system == "host":
        return extras
    if policy.system == "minimal":
        extras.append(("DIRECTORY", "/etc", "", 0))
        extras += _made_etc(policy, home, user, notes)
    extras.append(("DIRECTORY", "/run", "", 0))
    extras += _grant_links(policy, resolver)
    return extras


def _bare_extras(acts: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Return the operations of a jail without mounts: the host's harmless devices, and acts."""
    return [("DEVICES", "/dev", "", 0), *(("TRY", act[1:], "", ord(act[0])) for act in acts)]


def _made_etc(
    policy: JailPolicy, home: str, user: int, notes: list[str]
) -> list[tuple[str, str, str, int]]:
    extras = [
        ("SYMLINK", "/etc/mtab", "/proc/self/mounts", 0),
        ("SYMLINK", "/var/run", "/run", 0),
    ]
    for path, text in (*accounts(home, user), ("/etc/hosts", HOSTS)):
        extras.append(("FILE", path, text, 0))
    servers = name_servers() if policy.egress.mode == "open" else None
    if servers is not None:
        extras.append(("FILE", "/etc/resolv.conf", servers, 0))
    elif policy.egress.mode == "open":
        notes.append("system: /etc/resolv.conf is left out: the host has none that all may read")
    return extras


def _grant_links(policy: JailPolicy, resolver: Resolver) -> list[tuple[str, str, str, int]]:
    """Links on the way to a grant, so that the path as it was written works in the jail."""
    first = {
        links[0][0]
        for path in (*policy.read, *policy.write)
        for asked in (path, *((policy.patterns[path].fixed,) if path in policy.patterns else ()))
        if (links := resolver.links.get(asked)) and not is_within(links[0][0], "/usr")
    }
    return [("SYMLINK", link, real_path(link), 0) for link in sorted(first)]

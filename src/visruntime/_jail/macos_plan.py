"""From a policy to what a jail on macOS is made from: the rules of its profile, and what is tried.

What the host's files say is found by the same code as on Linux: links, secrets, other names of files,
what the host itself runs. There are no mounts, so nothing is covered; a profile denies.
"""

from __future__ import annotations

import os
import stat

from visruntime import _native
from visruntime._jail.aliases import Aliases
from visruntime._jail.facts import check_facts, check_patterns
from visruntime._jail.mount_table import MountTree
from visruntime._jail.plan import JailPlan, check_policy_links
from visruntime._jail.protect import protect
from visruntime._jail.search import REASONS, look_through, movable
from visruntime._jail.seatbelt import refuse_unsupported
from visruntime._jail.sockets import resolve_sockets
from visruntime._native.macos import ignores_case, kernel_spelling
from visruntime._native.profiles import PROGRAMS
from visruntime._policy.decider import Decider
from visruntime._policy.links import Resolver, check_links
from visruntime._policy.paths import is_within
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from visruntime._jail.macos_folder import MacosFolder
    from visruntime.policy import JailPolicy, Rule

__all__ = ["MacosPlan", "make_macos_plan"]

MADE = ".visruntime"
"""A name that is only asked about."""
MOST_PATHS = 200
"""Paths of a policy that are tried, denies before grants; with more, the first ones."""


class MacosPlan:
    """``plan`` is what the jail has to know of its policy, ``profile`` what `built_profile` takes.

    ``acts`` are the canaries about paths, as (name, act of native/visjail/macos_try.h). ``held`` has
    the entries of the policy that name what does not exist and must not be made.
    """

    __slots__ = ("acts", "held", "plan", "profile")

    def __init__(
        self,
        plan: JailPlan,
        profile: dict[str, Any],
        acts: list[tuple[str, str]],
        held: frozenset[str],
    ) -> None:
        self.plan = plan
        self.profile = profile
        self.acts = acts
        self.held = held


def make_macos_plan(
    policy: JailPolicy,
    folder: MacosFolder,
    *,
    implicit_read: Sequence[tuple[str, str]] = (),
    config_files: Iterable[str] = (),
) -> MacosPlan:
    """Find what *policy* means for the host's files, and refuse what Seatbelt could not hold.

    Raises:
        PolicyUnsupported: a clause that cannot be enforced here.
        PolicyError: a path that is missing, or is not what a rule can stand on.
    """
    refuse_unsupported(policy)
    with Resolver() as resolver:
        return _make(policy, folder, resolver, implicit_read, config_files)


def _make(
    policy: JailPolicy,
    folder: MacosFolder,
    resolver: Resolver,
    implicit_read: Sequence[tuple[str, str]],
    config_files: Iterable[str],
) -> MacosPlan:
    implicit = [resolver(path) for path, _ in implicit_read]
    links: list[str] = []
    resolved = policy._assemble(
        resolve=True, minimal=(), real=resolver, implicit=implicit, links=links
    )
    reveal = [resolver(path) for path in policy.reveal]
    written = [rule for rule in resolved if rule.origin not in ("system", "private")]
    grants = [rule.path for rule in written if rule.kind == "write"]
    _refuse_other_jails(written, folder)
    plan = JailPlan("seatbelt")
    plan.written = written
    plan.home = folder.home
    plan.notes += [
        f"inherit_env: {name} is not set on this host, so the guest does not have it"
        for name in policy.inherit_env
        if name not in os.environ
    ]
    check_policy_links(policy, resolver, grants)
    for path, _ in implicit_read:
        check_links("python", path, resolver.reals[path], resolver.links[path], grants)
    plan.patterns = check_patterns(policy, written, resolver)
    check_facts(written, resolver)
    rules: list[tuple[str, str, bool, bool]] = [
        (rule.kind, rule.path, False, rule.kind in ("read", "write")) for rule in written
    ]
    rules += [("read", path, False, True) for path in implicit]
    if policy.system == "host":
        rules.append(("read", "/", False, False))
    sockets = [path for _, path in resolve_sockets(policy, resolver, grants)]
    protection = protect(
        [rule[:2] for rule in rules],
        grants,
        (*config_files, *policy.files),
        absent_deny=policy.absent_deny,
    )
    plan.protected = list(protection.existing)
    plan.import_places = protection.places
    plan.notes += protection.notes
    findings = look_through(
        written,
        rules,
        plan.protected,
        reveal,
        Aliases(MountTree(b"")),
        implicit=implicit,
        host_root=policy.system == "host",
        granted=frozenset(sockets),
    )
    # Sockets are closed by their own rules, and a FIFO is written like a file.
    plan.masked = [found for found in findings.masked if found[1] == REASONS["u"]]
    plan.secrets = findings.secrets
    plan.protected += findings.read_only
    plan.links = sorted({*findings.links, *movable(links, rules)})
    plan.notes += findings.notes
    absent = [
        rule
        for rule in written
        if rule.kind == "deny_write" and resolver.found.get(rule.path) is None
    ]
    held = [*(rule.path for rule in absent), *protection.to_come]
    rules += [("deny_write", path, False, False) for path in (*plan.protected, *plan.links, *held)]
    rules += [("deny", path, False, False) for path, _ in (*plan.masked, *plan.secrets)]
    rules += [(kind, path, False, True) for kind, path in findings.reopened]
    # Last, so that no grant of a folder around it opens what all jails have, but for this one's home.
    rules.append(("deny", folder.around, False, False))
    plan.rules = plan.host_rules = [rule[:2] for rule in rules]
    plan.notes += _notes(policy)
    spelled = {path: _spelled(path) for path in dict.fromkeys([*(r[1] for r in rules), *sockets])}
    profile: dict[str, Any] = {
        "rules": [(kind, spelled[path]) for kind, path, _, _ in rules],
        "own": _spelled(folder.home),
        "sockets": [spelled[path] for path in sockets],
        "services": list(policy.services),
        "host_ports": list(policy.host_ports),
        "held": frozenset(spelled[path] for path in held),
        "programs": () if policy.system == "none" else tuple(PROGRAMS),
        "network_open": policy.egress.mode == "open",
        "system": policy.system != "none",
        "ignores_case": any(ignores_case(path) for path in grants) if grants else True,
    }
    decide = Decider([rule[:2] for rule in rules])
    acts = list(_path_acts(written, plan, resolver, decide))[:MOST_PATHS]
    return MacosPlan(plan, profile, acts, frozenset(rule.origin for rule in absent))


def _refuse_other_jails(written: Sequence[Rule], folder: MacosFolder) -> None:
    """Refuse to let a guest write in the folder in which other jails have theirs.

    Raises:
        PolicyUnsupported: naming the grant.
    """
    for rule in written:
        if rule.kind == "write" and is_within(folder.around, rule.path):
            raise PolicyUnsupported(
                f"{rule.origin}: the folders of other jails lie in {rule.path}, and macOS gives a "
                "jail no place that others do not see; grant folders in it (back end seatbelt)",
                field=rule.origin,
                value=rule.path,
            )


def _spelled(path: str) -> str:
    try:
        return kernel_spelling(path)
    except _native.NativeError as error:
        raise PolicyUnsupported(
            f"{path}: {error} (back end seatbelt)", field="policy", value=path
        ) from None


def _path_acts(
    written: Sequence[Rule], plan: JailPlan, resolver: Resolver, decide: Decider
) -> Iterator[tuple[str, str]]:
    """Yield what is tried about single paths: denies and what was found first, then grants."""
    for rule in written:
        found = resolver.found.get(rule.path)
        if not rule.kind.startswith("deny") or found is None:
            continue
        right = {"deny_write": "write", "deny_exec": "exec"}.get(rule.kind, "read")
        if not decide(right, rule.path)[0]:
            yield from _act(right, rule.path, found)
    for path in plan.protected:
        yield from _act("write", path, _status(path))
    for path, _ in plan.secrets:
        yield from _act("read", path, _status(path))
    for rule in written:
        if rule.kind == "read" and not decide("write", rule.path)[0]:
            yield from _act("write", rule.path, resolver.found.get(rule.path))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _act(right: str, path: str, found: os.stat_result | None) -> Iterator[tuple[str, str]]:
    if found is None or stat.S_ISLNK(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        return
    if right == "read":
        yield f"read {path}", f"r {path}"
    elif right == "exec":
        if stat.S_ISREG(found.st_mode):
            yield f"execute {path} (asked)", f"q process-exec {path}"
    elif stat.S_ISDIR(found.st_mode):
        # To try it outside would change the folder.
        yield f"make a name in {path} (asked)", f"q file-write-create {path}/{MADE}"
    elif stat.S_ISREG(found.st_mode):
        yield f"write {path}", f"w {path}"


def _notes(policy: JailPolicy) -> list[str]:
    """Say what a careful owner should know and no clause says."""
    notes = [
        "unclaimed: Seatbelt's rules are not documented by Apple, and no run on a Mac is recorded",
        "each run of the jail is in a sandbox of its own: runs neither signal nor see each other",
        "of what is not granted only the folders that lead to a grant can be looked at",
        "the guest can read the names of this host and its user, and the times of the system's start",
    ]
    if policy.write:
        notes.append("chflags is part of write: a guest can make files of its grants immutable")
    if policy.egress.mode == "open":
        notes.append("egress=OPEN shares the host's network, its loopback services too")
    if policy.host_ports and policy.egress.mode != "open":
        notes.append("host_ports: `localhost` of Seatbelt may mean each address of this machine")
    return notes

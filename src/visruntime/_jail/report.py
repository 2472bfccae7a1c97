"""The enforcement report of one jail: which mechanism stands behind which clause."""

from __future__ import annotations

from visruntime._jail.limits import IDENTITY_ROOT
from visruntime._policy.paths import visible
from visruntime._policy.wall import MOST_FREE
from visruntime.events import Clause, EnforcementReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from visruntime._jail.limits import HeldLimits
    from visruntime._jail.plan import JailPlan
    from visruntime.events import Canary
    from visruntime.policy import JailPolicy

__all__ = ["make_report"]

MOUNT = {
    "namespaces": ("mount",),
    "bubblewrap": ("mount by bubblewrap, verified inside",),
    "landlock": (),
}
"""What file clauses rest on besides Landlock."""

NOTES: dict[str, tuple[str, ...]] = {
    "namespaces": (),
    "bubblewrap": (
        (
            "bubblewrap: what the host mounts later below a grant appears in the jail; where the "
            "grant is not writable Landlock keeps writes from it"
        ),
        "bubblewrap: limits.scratch is divided evenly among the private places",
        (
            "bubblewrap: bwrap itself is outside of the jail's cgroup, where there is one, and the "
            "guest can read the name of that cgroup"
        ),
        "bubblewrap: the times of /dev/null and the other devices can be set, as any user can",
    ),
    "landlock": (
        (
            "landlock: the guest sees that files exist, their sizes, times and owners, and what "
            "links lead to, wherever the caller can; it reads and lists only what is granted, and "
            "is told that there are no extended attributes"
        ),
        (
            "landlock: no mode, owner, time or attribute of a file can be changed, not in a write "
            "grant either; no AF_UNIX socket, System V object, message queue or file watch is made"
        ),
        (
            "landlock: there is no private /tmp, /proc or /dev/shm, HOME is / and TMPDIR is not set; "
            "Jail.processes, which reads /proc, is denied"
        ),
        "landlock: the names of the host and its users, and which pids exist, can be found out",
        (
            "landlock: the guest can be in any folder that the caller could enter, and a mount in "
            "which it is cannot be unmounted"
        ),
        (
            "landlock: a run is ended by following its processes, which its keeper inherits, and "
            "not by the end of a namespace; if the supervisor and a keeper are killed at once "
            "from outside, what that run had started lives on"
        ),
    ),
}
"""What an owner should know of a back end."""

IDENTITY_MAPPED = 2


def make_report(
    policy: JailPolicy,
    plan: JailPlan,
    limits: HeldLimits,
    info: Mapping[str, int],
    canaries: tuple[Canary, ...],
    implicit_read: Sequence[tuple[str, str]],
    ports: Mapping[int, int],
) -> EnforcementReport:
    """Say what enforces *policy* in the jail that *info* describes."""
    abi = info["landlock_abi"]
    layer = (f"landlock-{abi}",) if abi else ()
    mount = MOUNT[plan.backend]
    files = (*mount, *layer)
    clauses = [Clause("system", files)]
    for kind in ("read", "write"):
        for index, _ in enumerate(getattr(policy, kind)):
            bound, note = _pattern(plan, f"{kind}[{index}]")
            clauses.append(Clause(f"{kind}[{index}]", files, bound=bound, note=note))
    clauses += [
        Clause(
            f"caches[{index}]",
            files,
            note="a folder of this policy's own, kept for its next jails; not the host's",
        )
        for index, _ in enumerate(policy.caches)
    ]
    held = {origin for origin, _ in plan.wall.names}
    for kind in ("deny", "deny_read", "deny_write", "deny_exec"):
        holds = "holds for the object that was there when the jail opened"
        denied = ("noexec mount",) if kind == "deny_exec" else mount
        if plan.backend == "landlock":
            denied, holds = layer, "nothing above it is granted"
        for index, _ in enumerate(getattr(policy, kind)):
            origin = f"{kind}[{index}]"
            bound, note = _pattern(plan, origin)
            note = note or holds
            if origin in held:
                wall = [f"{name} wall" for name in layer]
                wall += ["creation broker"] if policy.absent_deny == "broker" else []
                note = "nothing is there, and no guest makes it"
                clauses.append(Clause(origin, tuple(wall), note=note))
            else:
                clauses.append(Clause(origin, denied, bound=bound, note=note))
    clauses += [Clause(f"implicit read {path}", files, note=why) for path, why in implicit_read]
    clauses += [
        Clause(f"protected {path}", mount, note="the host runs or trusts it")
        for path in plan.protected
    ]
    clauses += [
        Clause(f"protected {path}", mount, note="a link by which something is hidden")
        for path in plan.links
    ]
    clauses += [
        Clause(f"protected {path}", mount, note="a folder here could hold a denied name")
        for path in plan.wall.replaced
    ]
    clauses += [Clause(f"masked {path}", mount, note=why) for path, why in plan.masked]
    clauses += _secrets(policy, plan)
    clauses += [
        *_sockets(policy, plan),
        *_ports(policy, ports, info),
        _egress(policy, plan, info),
        Clause("env", ("built, not inherited",)),
        _processes(plan, info),
        Clause("privileges", _privileges(plan)),
    ]
    clauses += limits.clauses(info, plan.backend)
    return EnforcementReport(
        backend=plan.backend,
        clauses=tuple(clauses),
        canaries=canaries,
        identity=_identity(plan, info),
        notes=(
            *plan.notes,
            *_wall_notes(plan, policy.absent_deny),
            *_notes(policy, plan, info),
        ),
    )


def _notes(policy: JailPolicy, plan: JailPlan, info: Mapping[str, int]) -> list[str]:
    notes = list(NOTES[plan.backend])
    if info["identity"] == IDENTITY_ROOT:
        from visruntime._jail.as_root import root_notes

        notes += root_notes(plan, policy.system)
    abi = info["landlock_abi"]
    if not abi:
        notes.append("one layer: this kernel has no Landlock, file clauses rest on mounts alone")
        notes.append("without Landlock the runs of one jail can signal and change each other")
    elif not _scopes(info):
        notes.append(f"Landlock ABI {abi}: before ABI 6 the runs of one jail can signal each other")
    if policy.egress.mode == "open":
        notes.append("egress=OPEN shares the host's network, its loopback services too")
        if not _scopes(info):
            notes.append("egress=OPEN before Landlock ABI 6 reaches the host's abstract sockets")
    # By the back end landlock no guest makes a socket that it could connect to a path.
    if (policy.read or policy.write) and plan.backend != "landlock":
        notes += _meetings(policy, info)
    return notes


def _meetings(policy: JailPolicy, info: Mapping[str, int]) -> list[str]:
    """Say what two jails can pass each other that are open at the same time on one folder."""
    if policy.egress.mode == "open":
        return [
            (
                "egress=OPEN with granted folders: another jail that is open at the same time, on a "
                "folder that it or this one may write, can be passed sockets of the host's network"
            )
        ]
    if not _scopes(info):
        return [
            (
                "before Landlock ABI 6 a socket that another jail passes, by a folder that both have "
                "open, can reach the host's abstract sockets"
            )
        ]
    return []


def _wall_notes(plan: JailPlan, absent_deny: str) -> list[str]:
    wall = plan.wall
    if not wall.names:
        return []
    folders = ", ".join(visible(path) for path in wall.walled)
    later = "and in folders that are made there later"
    if absent_deny == "broker":
        note = f"wall: directly in {folders} {later} new names are made by the jail's broker"
    else:
        note = f"wall: directly in {folders} {later} a guest can make no new name"
    if wall.left_out:
        note += (
            f"; the same holds for {wall.left_out} more folders, beyond the {MOST_FREE} that are "
            "exempt"
        )
    return [note]


def _scopes(info: Mapping[str, int]) -> bool:
    return info["landlock_abi"] >= 6


def _identity(plan: JailPlan, info: Mapping[str, int]) -> str:
    if info["identity"] == IDENTITY_MAPPED:
        return f"host uid {info['guest_id']}, grants id-mapped"
    if info["identity"] == IDENTITY_ROOT:
        why = (
            "no mounts" if plan.backend == "landlock" else "a file system refused id-mapped mounts"
        )
        return f"host uid 0 without capabilities: {why}"
    if info["guest_id"] == 0:
        return "uid 0 of the caller's user namespace, which is another uid of the host"
    return f"host uid {info['guest_id']}, the caller's own"


def _pattern(plan: JailPlan, field: str) -> tuple[str | None, str]:
    """Return for how long the rule of *field* holds if it is a pattern, and a note."""
    if field not in plan.patterns:
        return None, ""
    folder, number = plan.patterns[field]
    kind = field.partition("[")[0]
    if number == -2:
        return "always", f"nothing at {folder} is allowed more, whatever its name"
    if number == -1:
        return "always", f"one rule on {folder}"
    names = f"{number} {'name' if number == 1 else 'names'} when the jail opened"
    if kind in ("read", "write"):
        return "at_open", f"a pattern: {names}"
    later = "what the guest makes later is its own, what the host adds later is not covered"
    return "at_open", f"a pattern: {names}; {later}"


def _secrets(policy: JailPolicy, plan: JailPlan) -> list[Clause]:
    """Say what is hidden as a secret, and what the policy lifts."""
    number = len(plan.secrets)
    mount = MOUNT[plan.backend]
    note = f"{number} {'path' if number == 1 else 'paths'} hidden" if number else "none found"
    clauses = [Clause("secrets", mount, bound="at_open", note=note)]
    clauses += [
        Clause(f"secrets {path}", mount, bound="at_open", note=f"{why}; reveal=[{path!r}]")
        for path, why in plan.secrets
    ]
    clauses += [
        Clause(f"reveal[{index}]", (), bound="at_open", note=f"{path} is shown as far as granted")
        for index, path in enumerate(policy.reveal)
    ]
    return clauses


def _egress(policy: JailPolicy, plan: JailPlan, info: Mapping[str, int]) -> Clause:
    families = "seccomp socket families"
    scope = ("landlock abstract-socket scope",) if _scopes(info) else ()
    if policy.egress.mode == "open":
        return Clause(
            "egress",
            (families, *scope),
            note="shared with the host, its loopback services too",
        )
    space = () if plan.backend == "landlock" else ("network namespace",)
    return Clause("egress", (*space, families, *scope))


def _processes(plan: JailPlan, info: Mapping[str, int]) -> Clause:
    layer = (f"landlock-{info['landlock_abi']}",) if _scopes(info) else ()
    if plan.backend != "landlock":
        return Clause("processes of the host", ("pid namespace", *layer))
    return Clause(
        "processes of the host",
        (*layer, "seccomp"),
        note="neither signalled, traced nor rescheduled; that a pid exists can be found out",
    )


def _privileges(plan: JailPlan) -> tuple[str, ...]:
    base = ("no capabilities", "no_new_privs", "seccomp")
    if plan.backend == "landlock":
        return base
    disabled = ("bubblewrap --disable-userns",) if plan.disables_userns else ()
    return (*base, "user namespace", *disabled)


def _sockets(policy: JailPolicy, plan: JailPlan) -> list[Clause]:
    mechanisms: tuple[str, ...] = ("mount",)
    note = "the jail shows no folder in which the host could make another socket"
    if plan.socket_tier == "broker":
        mechanisms = ("connect broker", "seccomp user notification", "mount")
        note = "each connection is made by the jail's broker; no AF_UNIX datagram sockets"
    return [
        Clause(f"{kind}[{index}]", mechanisms, note=note)
        for kind in ("sockets", "sensitive_sockets")
        for index, _ in enumerate(getattr(policy, kind))
    ]


def _ports(policy: JailPolicy, ports: Mapping[int, int], info: Mapping[str, int]) -> list[Clause]:
    if policy.egress.mode == "open":
        return [
            Clause(f"host_ports[{index}]", ("seccomp socket families",), note="egress is open")
            for index, _ in enumerate(policy.host_ports)
        ]
    ports_rule = ("landlock ports",) if info["landlock_abi"] >= 4 else ()
    mechanisms = ("network namespace", "relay process", "seccomp", *ports_rule)
    clauses = [
        Clause(f"inbound[{port}]", mechanisms, note=f"reached at 127.0.0.1:{host} of the host")
        for port, host in ports.items()
    ]
    clauses += [
        Clause(f"host_ports[{index}]", mechanisms, note=f"127.0.0.1:{port} only")
        for index, port in enumerate(policy.host_ports)
    ]
    return clauses

"""The enforcement report of a jail on macOS."""

from __future__ import annotations

import os

from visruntime._policy.platforms import SEATBELT
from visruntime.events import Clause, EnforcementReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from visruntime._jail.limits import HeldLimits
    from visruntime._jail.plan import JailPlan
    from visruntime.events import Canary
    from visruntime.policy import JailPolicy

__all__ = ["make_macos_report"]

LISTS = (
    *("read", "write", "deny", "deny_read", "deny_write", "deny_exec"),
    *("sockets", "sensitive_sockets", "services", "host_ports"),
)
TREE = frozenset({"output", "wall_seconds"})
"""Limits of a whole run; the others hold for each process."""


def make_macos_report(
    policy: JailPolicy,
    plan: JailPlan,
    limits: HeldLimits,
    held: Collection[str],
    canaries: tuple[Canary, ...],
    implicit_read: Sequence[tuple[str, str]],
) -> EnforcementReport:
    """Say what enforces *policy*; *held* are its entries on what does not exist."""
    files = _mechanisms("read")
    clauses = [Clause("system", _mechanisms("system"))]
    for field in LISTS:
        for index, _ in enumerate(getattr(policy, field)):
            name = f"{field}[{index}]"
            note = "nothing is there, and no guest makes it" if name in held else ""
            bound = "at_open" if name in plan.patterns and field in ("read", "write") else None
            clauses.append(Clause(name, _mechanisms(field), bound=bound, note=note))
    clauses += [Clause(f"implicit read {path}", files, note=why) for path, why in implicit_read]
    clauses += [
        Clause(f"protected {path}", files, note="the host runs or trusts it")
        for path in plan.protected
    ]
    clauses += [
        Clause(f"protected {path}", files, note="a link by which something is hidden")
        for path in plan.links
    ]
    clauses += [Clause(f"masked {path}", files, note=why) for path, why in plan.masked]
    number = len(plan.secrets)
    note = f"{number} {'path' if number == 1 else 'paths'} hidden" if number else "none found"
    clauses.append(Clause("secrets", files, bound="at_open", note=note))
    clauses += [
        Clause(f"secrets {path}", files, bound="at_open", note=f"{why}; reveal=[{path!r}]")
        for path, why in plan.secrets
    ]
    clauses += [
        Clause(f"reveal[{index}]", (), bound="at_open", note=f"{path} is shown as far as granted")
        for index, path in enumerate(policy.reveal)
    ]
    clauses += [
        Clause("egress", _mechanisms("egress")),
        Clause("env", _mechanisms("env")),
        Clause("processes of the host", ("Seatbelt rules on signals and on processes",)),
        Clause("privileges", ("no set-id program starts in a sandbox", "no root caller")),
        *_limits(policy, limits),
    ]
    return EnforcementReport(
        backend="seatbelt",
        clauses=tuple(clauses),
        canaries=canaries,
        identity=f"uid {os.getuid()}, the caller's own",
        notes=tuple(plan.notes),
    )


def _mechanisms(row: str) -> tuple[str, ...]:
    return (SEATBELT[row][1],)


def _limits(policy: JailPolicy, limits: HeldLimits) -> list[Clause]:
    clauses = []
    for name in ("open_files", "file_size", "cpu_seconds", "output", "wall_seconds"):
        value = getattr(policy.limits, name)
        if name == "open_files":
            value = limits.process["open_files"]
        if value is not None:
            bound = "tree" if name in TREE else "process"
            clauses.append(
                Clause(f"limits.{name}", _mechanisms(f"limits.{name}"), bound=bound, value=value)
            )
    return clauses

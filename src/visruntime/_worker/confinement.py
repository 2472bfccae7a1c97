"""What a jailed worker is told of its policy, and what else it is not to do.

The rules go to the worker's audit hook, which explains with them. They are the guest's to see:
only what has to do with the grants is sent, not what a policy denies elsewhere.
"""

from __future__ import annotations

import errno as numbers
import os

from visruntime._arguments import check_switch, check_word
from visruntime._policy.paths import FORBIDDEN_GRANTS, ancestors
from visruntime._policy.values import Frozen
from visruntime.errors import ProtocolViolation
from visruntime.events import Canary, Clause, EnforcementReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Literal

__all__ = ["WorkerConfinement", "trusted_report"]

MAX_RULES = 2_000
"""With more rules than these the hook explains nothing: they would slow down each start."""
KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
"""In the order of the C enumeration of rules (policy.h)."""
PROVED = ("start a program from the worker", "fork the worker")
"""The acts that the worker has tried on itself, in the order of its answers."""


class WorkerConfinement(Frozen):
    """Options of a jailed worker that come on top of its policy.

    ``processes`` whether it may start others: held by a system call filter of its own.
    ``ctypes`` whether it may import ``_ctypes``, and ``native_modules`` from where it may load
    machine code ("read-only" places or "anywhere"): both are checks of the audit hook, which
    make mistakes visible and are no wall.
    """

    __slots__ = ("ctypes", "native_modules", "processes")

    ctypes: bool
    native_modules: Literal["read-only", "anywhere"]
    processes: bool

    def __init__(
        self,
        *,
        processes: bool = True,
        ctypes: bool = True,
        native_modules: Literal["read-only", "anywhere"] = "read-only",
    ) -> None:
        check_switch(processes, "processes")
        check_switch(ctypes, "ctypes")
        check_word(native_modules, "native_modules", ("read-only", "anywhere"))
        self._set(processes=processes, ctypes=ctypes, native_modules=native_modules)

    def settings(self, rules: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
        """Return what the worker gets: *rules* are (kind, path, the policy's name)."""
        sent = _of_use(list(rules))
        return {
            "rules": [
                (KINDS.index(kind), os.fsencode(path), name.encode("utf-8", "surrogateescape"))
                for kind, path, name in (sent if len(sent) <= MAX_RULES else ())
            ],
            "closed": [os.fsencode(path) for path in FORBIDDEN_GRANTS],
            "processes": self.processes,
            "ctypes": self.ctypes,
            "native": self.native_modules == "anywhere",
        }

    def check(self, hello: Mapping[str, Any]) -> None:
        """Check that the worker holds what was asked, which it says before it runs other code.

        Raises:
            ProtocolViolation: it does not.
        """
        wanted = None if self.processes else (numbers.EPERM, numbers.EPERM)
        if hello.get("refuses_processes") != wanted:
            raise ProtocolViolation("the worker did not refuse to start processes, as it was told")

    def report(self, jail: EnforcementReport) -> EnforcementReport:
        """Return the report of *jail* with what these options add to it."""
        clauses = []
        canaries: tuple[Canary, ...] = ()
        if not self.processes:
            clauses.append(Clause("processes=False", ("seccomp in the worker",)))
            canaries = tuple(Canary(name, held=True, errno=numbers.EPERM) for name in PROVED)
        if not self.ctypes:
            clauses.append(
                Clause("ctypes=False", ("audit hook",), note="no wall: a guest can get round it")
            )
        if not clauses:
            return jail
        return EnforcementReport(
            backend=jail.backend,
            clauses=(*jail.clauses, *clauses),
            canaries=(*jail.canaries, *canaries),
            identity=jail.identity,
            notes=jail.notes,
        )


def trusted_report(settings: Iterable[Clause]) -> EnforcementReport:
    """Say of a worker without a jail that nothing is enforced, and what its *settings* are.

    They are named as in the report of a jailed one, but no mechanism: code that is not confined can
    undo them.
    """
    clauses = [
        Clause(one.clause, (), note=f"in force by {one.enforced_by}: {one.note}")
        for one in settings
    ]
    hook = (
        "in place before the interpreter started; it counts what RunResult.trips names, "
        "and refuses nothing"
    )
    return EnforcementReport(
        backend=None,
        clauses=(Clause("audit hook", (), note=hook), *clauses),
        canaries=(),
        identity=f"host uid {os.geteuid()}, the caller's own",
        notes=(
            "no jail: the code reads, writes, runs and reaches whatever this user may",
            "no limit of memory, processes, files or network; only the time limits of a run",
        ),
    )


def _of_use(rules: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Leave out what a guest would learn from and the hook not: a deny where nothing is granted."""
    granted = {path for kind, path, _ in rules if kind in ("read", "write")}
    return [
        rule
        for rule in rules
        if rule[0] in ("read", "write") or not granted.isdisjoint(ancestors(rule[1]))
    ]

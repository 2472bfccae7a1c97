"""What a run or a jail tells about itself: measured facts, and what enforced each clause.

Nothing in here is the guest's word.
"""

from __future__ import annotations

from visruntime._policy.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from visruntime._policy.values import Grant

__all__ = ["Canary", "Clause", "EnforcementReport", "Usage", "Violation"]

REPORT_VERSION = 1


class Clause(Frozen):
    """One clause of the policy and the mechanisms that enforce it.

    ``clause`` is written as in the policy (``"deny[0]"``, ``"egress"``); ``mechanisms`` are
    names such as ``mount``, ``landlock-7``, ``seccomp``, ``network namespace``; ``note`` is
    what a reader should know. Of a limit ``value`` is the number, in its own unit, and
    ``bound`` says whether it holds for the whole ``tree``, for each ``process``, or is only
    ``sampled``: measured again and again, and what is over it ended; a limit without mechanisms
    is not enforced. Of names that were looked for ``bound`` says whether the clause holds
    ``always`` or for what was there ``at_open``.
    """

    __slots__ = ("bound", "clause", "mechanisms", "note", "value")

    clause: str
    mechanisms: tuple[str, ...]
    bound: str | None
    note: str
    value: float | None

    def __init__(
        self,
        clause: str,
        mechanisms: tuple[str, ...],
        *,
        bound: str | None = None,
        note: str = "",
        value: float | None = None,
    ) -> None:
        self._set(clause=clause, mechanisms=mechanisms, bound=bound, note=note, value=value)

    @property
    def enforced_by(self) -> str:
        """The mechanisms in one text, "" where there is none."""
        return ", ".join(self.mechanisms)

    def to_dict(self) -> dict[str, Any]:
        """Return the clause as plain data."""
        plain: dict[str, Any] = {"clause": self.clause, "mechanisms": list(self.mechanisms)}
        if self.bound:
            plain["bound"] = self.bound
        if self.note:
            plain["note"] = self.note
        if self.value is not None:
            plain["value"] = self.value
        return plain


class Canary(Frozen):
    """A forbidden act that was tried inside this jail when it opened.

    ``errno`` is what the act got; ``held`` says that it is one that the enforcement gives.
    """

    __slots__ = ("errno", "held", "name")

    name: str
    held: bool
    errno: int

    def __init__(self, name: str, *, held: bool, errno: int) -> None:
        self._set(name=name, held=held, errno=errno)

    def to_dict(self) -> dict[str, Any]:
        """Return the canary as plain data."""
        return {"name": self.name, "held": self.held, "errno": self.errno}


class EnforcementReport(Frozen):
    """What enforces the policy of one jail, clause by clause, and what proved it.

    ``backend`` is what built the jail. ``identity`` says under which host uid the guest runs;
    ``notes`` hold what the policy did not ask for but a careful owner wants to know.

    That of a `TrustedRuntime` says that there is no jail: ``backend`` and ``enforcement`` are
    ``None``, ``jailed`` is false, as the report itself is (``bool(report)``), there are no canaries,
    and its clauses are settings of the worker, none of which has a mechanism.
    """

    __slots__ = ("backend", "canaries", "clauses", "identity", "notes")

    backend: str | None
    clauses: tuple[Clause, ...]
    canaries: tuple[Canary, ...]
    identity: str
    notes: tuple[str, ...]

    def __init__(
        self,
        *,
        backend: str | None,
        clauses: tuple[Clause, ...],
        canaries: tuple[Canary, ...],
        identity: str,
        notes: tuple[str, ...] = (),
    ) -> None:
        if backend is None and (canaries or any(clause.mechanisms for clause in clauses)):
            raise ValueError("without a jail nothing is enforced, and nothing proved it")
        self._set(
            backend=backend, clauses=clauses, canaries=canaries, identity=identity, notes=notes
        )

    @property
    def jailed(self) -> bool:
        """Whether there is a jail at all."""
        return self.backend is not None

    @property
    def enforcement(self) -> str | None:
        """What enforces the policy: the back end of the jail, ``None`` where there is no jail."""
        return self.backend

    def __bool__(self) -> bool:
        return self.jailed

    def mechanisms(self, clause: str) -> tuple[str, ...]:
        """Return what enforces *clause*; empty when the policy has no such clause."""
        for known in self.clauses:
            if known.clause == clause:
                return known.mechanisms
        return ()

    def with_clauses(self, clauses: Iterable[Clause]) -> EnforcementReport:
        """Return the same report with more *clauses*: settings of who uses the jail."""
        return EnforcementReport(
            backend=self.backend,
            clauses=(*self.clauses, *clauses),
            canaries=self.canaries,
            identity=self.identity,
            notes=self.notes,
        )

    @property
    def limits(self) -> tuple[Clause, ...]:
        """The clauses that are limits."""
        return tuple(known for known in self.clauses if known.clause.startswith("limits."))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as the CLI's ``--report`` writes it."""
        return {
            "version": REPORT_VERSION,
            "jailed": self.jailed,
            "enforcement": self.enforcement,
            "backend": self.backend,
            "identity": self.identity,
            "clauses": [clause.to_dict() for clause in self.clauses],
            "limits": [
                {
                    "limit": clause.clause.removeprefix("limits."),
                    "value": clause.value,
                    "enforced_by": clause.enforced_by,
                    "bound": clause.bound,
                }
                for clause in self.limits
            ],
            "canaries": [canary.to_dict() for canary in self.canaries],
            "notes": list(self.notes),
        }


class Usage(Frozen):
    """What a run used, measured outside the guest.

    Seconds, and bytes. ``source`` says where processor time and memory come from:

    * "wait": from waiting for the processes, as everywhere without a cgroup. Both are what the
      run used at least: a program that ignores SIGCHLD hides what its children used, and one
      can reset its own peak. ``max_memory`` is the largest size of any one process.
    * "cgroup": from the cgroup of the jail, in which nothing can be hidden. ``max_memory`` is
      the largest sum of all that the kernel charges to the jail: processes, the private
      places, buffers, and the jail's own small part. (On cgroup v2 before Linux 6.12 it is
      the largest since the jail opened.)
    * "cgroup-shared": the same, but other runs of the jail overlapped with this one, and are
      in it. The run used that much at most.

    ``killed`` is how many descendants were still there at the end and had to be ended, each
    counted once.
    """

    __slots__ = (
        "killed",
        "max_memory",
        "source",
        "system_seconds",
        "user_seconds",
        "wall_seconds",
    )

    wall_seconds: float
    user_seconds: float
    system_seconds: float
    max_memory: int
    killed: int
    source: str

    def __init__(
        self,
        *,
        wall_seconds: float,
        user_seconds: float,
        system_seconds: float,
        max_memory: int,
        killed: int = 0,
        source: str = "wait",
    ) -> None:
        self._set(
            wall_seconds=wall_seconds,
            user_seconds=user_seconds,
            system_seconds=system_seconds,
            max_memory=max_memory,
            killed=killed,
            source=source,
        )

    @property
    def cpu_seconds(self) -> float:
        """Processor time, in user and in system mode."""
        return self.user_seconds + self.system_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the usage as plain data."""
        return {
            "wall_seconds": self.wall_seconds,
            "user_seconds": self.user_seconds,
            "system_seconds": self.system_seconds,
            "cpu_seconds": self.cpu_seconds,
            "max_memory": self.max_memory,
            "killed": self.killed,
            "source": self.source,
        }


class Violation(Frozen):
    """Something that the policy stopped, or may have stopped.

    ``confidence`` says how that is known:

    * "exact": a limit that ended the run, or output over its limit, measured by the host; or
      an act that a broker of the jail refused, which recorded it where no guest can write.
    * "hint": the guest itself reported an error about ``target`` (an exception of Python
      with its errno), and the policy does not allow what it speaks of.
    * "guess": the same, from the text that it wrote to stderr.

    A hint or a guess never says that the act was tried, nor that the policy was the cause.

    ``kind`` is the clause of a limit (``"limits.output"``), else the right: "read",
    "write", "exec" or "connect". ``rule`` is the rule that decides (``"deny[0]"``, "" if none
    speaks of it), ``detail`` a sentence for people, ``errno`` what the guest got, or claims to have
    got where this is no exact one, and ``grant`` what would allow it, ``None`` where nothing can be
    added for that. Of a limit ``limit`` and ``peak``, what was reached, are numbers in its unit,
    ``None`` where unknown.
    """

    __slots__ = (
        "confidence",
        "detail",
        "errno",
        "grant",
        "kind",
        "limit",
        "peak",
        "rule",
        "target",
    )

    confidence: str
    detail: str
    errno: int | None
    grant: Grant | None
    kind: str
    limit: float | None
    peak: float | None
    rule: str
    target: str

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        confidence: str = "exact",
        target: str = "",
        errno: int | None = None,
        rule: str = "",
        grant: Grant | None = None,
        limit: float | None = None,
        peak: float | None = None,
    ) -> None:
        self._set(
            kind=kind,
            detail=detail,
            confidence=confidence,
            target=target,
            errno=errno,
            rule=rule,
            grant=grant,
            limit=limit,
            peak=peak,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the violation as plain data."""
        return self._named() | {"grant": None if self.grant is None else self.grant.to_dict()}

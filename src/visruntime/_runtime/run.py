"""One run of a worker: what is measured of it, and what its reply may claim."""

from __future__ import annotations

import time

from visruntime._callbacks.budget import NO_CALLS
from visruntime._jail.redacted import without_secrets
from visruntime._jail.violations import bounded, of_output
from visruntime._policy.redact import redact
from visruntime._runtime.traceback import printable
from visruntime.errors import ProtocolViolation
from visruntime.guest.limits import MAX_TASK_NAME, MAX_TASKS
from visruntime.results import GuestFailure, RunResult, RunUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from visruntime._policy.values import Limits
    from visruntime._runtime.events import Feed
    from visruntime._worker.conversation import Conversation
    from visruntime._worker.crash import CrashReport
    from visruntime._worker.output import Late
    from visruntime.denials import ExplainAct
    from visruntime.events import EnforcementReport, Violation
    from visruntime.results import Explain

__all__ = ["Run"]

_TICK_SECONDS = 0.005
_MAX_TRIPS = 100
_MAX_TRIP_NAME = 100


class Run:
    """One request under way: what was measured before it, and what becomes of it."""

    __slots__ = (
        "_cpu",
        "_explain",
        "_limits",
        "_report",
        "_span",
        "_started",
        "_worker_run",
        "feed",
        "host_calls",
        "late",
        "worker",
    )

    def __init__(
        self,
        worker: Conversation,
        late: tuple[Late, Late],
        report: EnforcementReport,
        explain: Explain,
        limits: Limits | None,
        explain_act: ExplainAct,
        feed: Feed,
    ) -> None:
        self.worker = worker
        self.feed = feed
        self.late = late
        self._report = report
        self._explain = explain
        feed.denials.explain = explain_act
        feed.denials.secrets = worker.secrets
        self._limits = limits
        self._worker_run = worker.run_number
        self.host_calls = NO_CALLS
        self._span = worker.process.span()
        self._cpu = worker.process.cpu_seconds()
        self._started = time.monotonic()

    @property
    def sent(self) -> bool:
        """Whether the request has left."""
        return self.worker.run_number != self._worker_run

    def cpu_spent(self) -> float | None:
        """Processor seconds of the run so far, as far as they are counted."""
        if self._span is not None:
            counted = self._span.read()
            if counted.source != "wait":
                return float(counted.user_seconds + counted.system_seconds)
        cpu = self.worker.process.cpu_seconds()
        if cpu is None or self._cpu is None:
            return None
        children = self.worker.process.children_cpu_seconds() - self.worker.children_cpu_seconds
        return max(cpu - self._cpu, 0.0) + max(children, 0.0)

    def proven(self, crash: CrashReport) -> CrashReport:
        """Add to the report what the jail's cgroup counted, if it has one."""
        if crash.out_of_memory or self._span is None:
            return crash
        kills = self._span.read().kills
        if kills == 0:
            return crash.replace(out_of_memory=False, proof="the jail's cgroup counted none")
        return crash.replace(
            out_of_memory=True, proof=f"the kernel ended {kills} processes of the jail for memory"
        )

    def result(
        self,
        reply: dict[str, Any] | None,
        *,
        stopped_by: str | None = None,
        session_lost: bool = False,
    ) -> RunResult:
        """Build the result: measure first, then check what the guest claims."""
        process = self.worker.process
        wall = time.monotonic() - self._started
        cpu = process.cpu_seconds()
        spent = None
        if cpu is not None and self._cpu is not None:
            spent = max(cpu - self._cpu, 0.0)
            # The kernel counts a child in ticks, and none fits into so short a run.
            if wall > _TICK_SECONDS:
                children = process.children_cpu_seconds()
                spent += max(children - self.worker.children_cpu_seconds, 0.0)
                self.worker.children_cpu_seconds = children
        usage = RunUsage(wall, spent, process.peak_memory())
        if self._span is not None:
            counted = self._span.read()
            if counted.source != "wait":
                spent = counted.user_seconds + counted.system_seconds
                usage = RunUsage(wall, spent, counted.peak, counted.source)
        streams = self.worker.streams
        stdout, stderr = (stream.capture.take() for stream in streams)
        claims: dict[str, Any] = (
            {} if reply is None else _claims(reply, self._explain, self.worker.secrets)
        )
        mismatch = self.worker.take_mismatch()
        if mismatch is not None and claims.get("error") is None:
            claims["value"], claims["error"] = (
                None,
                GuestFailure.of_mismatch(redact(mismatch, self.worker.secrets)),
            )
        denials, denials_dropped = self.feed.denials.all((reply or {}).get("denials"))
        refused, refused_dropped = process.refusals()
        violations, violations_dropped = bounded(
            without_secrets(violation, self.worker.secrets)
            for violation in (
                *refused,
                *self._violations(claims.get("error"), (len(stdout), len(stderr))),
                *(denial.violation for denial in denials if denial.violation is not None),
            )
        )
        violations_dropped += refused_dropped
        return RunResult(
            usage=usage,
            stdout=stdout,
            stderr=stderr,
            late_stdout=self.late[0].data,
            late_stderr=self.late[1].data,
            dropped=(
                streams[0].capture.dropped + self.late[0].dropped,
                streams[1].capture.dropped + self.late[1].dropped,
            ),
            stopped_by=stopped_by,
            stop=self.worker.stop,
            host_calls=self.host_calls,
            session_lost=session_lost,
            violations=violations,
            violations_dropped=violations_dropped,
            denials=denials,
            denials_dropped=denials_dropped,
            report=self._report,
            displays=self.feed.displays.take(),
            displays_dropped=self.feed.displays.dropped,
            **claims,
        )

    def _violations(self, error: GuestFailure | None, kept: tuple[int, int]) -> Iterator[Violation]:
        process = self.worker.process
        yield from process.violations
        if self._span is not None and not any(v.limit is not None for v in process.violations):
            yield from process.refused(self._span)
        if self._limits is not None:
            names = zip(("stdout", "stderr"), self.worker.streams, kept, strict=True)
            cut = [(name, size + stream.capture.dropped, size) for name, stream, size in names]
            cut += [
                (f"late_{name}", len(late.data) + late.dropped, len(late.data))
                for name, late in zip(("stdout", "stderr"), self.late, strict=True)
            ]
            yield from of_output(self._limits, cut)
        if error is not None:
            yield from error.violations()


def _claims(
    reply: dict[str, Any], explain: Explain, secrets: tuple[str, ...] = ()
) -> dict[str, Any]:
    error, code = reply.get("error"), reply.get("exit_code")
    tasks: Any = reply.get("tasks")
    trips: Any = reply.get("trips")
    right = (
        (code is None or (type(code) is int and -(2**31) <= code < 2**31))
        and type(tasks) is list
        and len(tasks) <= MAX_TASKS
        and all(type(name) is str and len(name) <= MAX_TASK_NAME for name in tasks)
        and type(trips) is dict
        and len(trips) <= _MAX_TRIPS
        and all(type(name) is str and len(name) <= _MAX_TRIP_NAME for name in trips)
        and all(type(count) is int and 0 <= count < 2**64 for count in trips.values())
    )
    if not right:
        raise ProtocolViolation("the worker's reply has not the agreed shape")
    return {
        "value": reply.get("value"),
        "error": None if error is None else GuestFailure.from_claim(error, explain, secrets),
        "exit_code": code,
        "tasks": tuple(printable(redact(name, secrets)) for name in tasks),
        "trips": {redact(name, secrets): count for name, count in trips.items()},
    }

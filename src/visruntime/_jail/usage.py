"""What the runs of one jail used, and which limits they reached: from the kernel's counters.

A jail has one cgroup, not each run. A run that was alone for all of its time is measured
exactly; of runs that overlapped only the sum is known, and the result says so.
"""

from __future__ import annotations

import time
from _thread import allocate_lock

from visruntime._policy.grants import grant_limit
from visruntime.events import Usage, Violation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from visruntime._jail.cgroup import Counts
    from visruntime._jail.limits import HeldLimits
    from visruntime.policy import Limits

__all__ = ["Account", "Measured", "Meter", "Span"]


class Measured:
    """What the cgroup counted in a span; see `visruntime.Usage` for ``source``."""

    __slots__ = ("kills", "peak", "refusals", "source", "system_seconds", "user_seconds")

    def __init__(self, before: Counts, now: Counts, *, alone: bool) -> None:
        self.kills: int = now.kills - before.kills
        self.refusals: int = now.refusals - before.refusals
        self.peak: int | None = now.peak
        self.user_seconds: float = max(
            (now.user_seconds or 0.0) - (before.user_seconds or 0.0), 0.0
        )
        self.system_seconds: float = max(
            (now.system_seconds or 0.0) - (before.system_seconds or 0.0), 0.0
        )
        self.source = "cgroup" if alone else "cgroup-shared"
        if now.user_seconds is None or now.peak is None:
            self.source = "wait"  # this kernel does not count it all


class Span:
    """A part of the life of a jail with a cgroup: from its making until it is read."""

    __slots__ = ("_begun", "_counts", "_meter")

    def __init__(self, meter: Meter, begun: int | None, counts: Counts) -> None:
        self._meter = meter
        self._begun = begun  # runs so far; None where another one was under way
        self._counts = counts

    def read(self) -> Measured:
        """Return what was counted up to now."""
        begun, now = self._meter.now()
        return Measured(self._counts, now or self._counts, alone=begun == self._begun)


class Meter:
    """Reads the counters of one jail, and knows when its runs overlap."""

    def __init__(self, held: HeldLimits) -> None:
        self.limits: Limits = held.limits
        self._leaf = held.leaf
        self._lock = allocate_lock()
        self._active = 0
        self._begun = 0
        self._lifted = 0  # runs whose keepers are late

    def now(self) -> tuple[int, Counts | None]:
        """Return how many runs have begun so far, and what was counted."""
        with self._lock:
            return self._begun, None if self._leaf is None else self._leaf.counts()

    def span(self) -> Span | None:
        """Begin to measure a part of a run that is under way; ``None`` without a cgroup."""
        with self._lock:
            return self._span(others=self._active - 1)

    def begin(self) -> Account:
        """Begin to measure a run."""
        with self._lock:
            self._begun += 1
            span = self._span(others=self._active)
            self._active += 1
        return Account(self, span)

    @property
    def has_share(self) -> bool:
        """Whether the jail has a share of the processors."""
        return self._leaf is not None and self._leaf.has_quota

    def lift(self) -> None:
        """Lift that share until `lower` was called as often."""
        with self._lock:
            self._lifted += 1
            if self._leaf is not None:
                self._leaf.loosen()

    def lower(self) -> None:
        """One keeper that needed more is done."""
        with self._lock:
            self._lifted -= 1
            if self._leaf is not None and not self._lifted:
                self._leaf.tighten()

    def end_all(self) -> None:
        """The jail has ended, and with it what is left in its cgroup."""
        if self._leaf is not None:
            self._leaf.end()

    def end(self) -> None:
        """A run is over."""
        with self._lock:
            self._active -= 1

    def _span(self, *, others: int) -> Span | None:
        if self._leaf is None:
            return None
        if others > 0:
            return Span(self, None, self._leaf.counts())
        self._leaf.restart_peak()
        return Span(self, self._begun, self._leaf.counts())

    def refused(self, measured: Measured) -> list[Violation]:
        """Name the limit on processes, if it was reached; the kernel counted that."""
        limit = self.limits.processes
        if measured.refusals <= 0 or limit is None:
            return []
        detail = f"the kernel refused {measured.refusals} times to start more than {limit}"
        name = "limits.processes"
        grant = grant_limit(self.limits, "processes")
        return [Violation(name, detail, rule=name, grant=grant, limit=int(limit), peak=int(limit))]


LATE_SECONDS = 0.2
"""How late a keeper may be before the share of its jail is lifted."""


class Account:
    """One run: what it used in the end, and what ended it.

    A keeper that is to end the run has no more of the processors than the jail (``limits.cpus``),
    which the guest can keep busy. Who waits for the end asks for the `patience` to have, and lifts
    that share when it is over; it is back when the run has ended.
    """

    __slots__ = ("_due", "_ended", "_lifts", "_measured", "_meter", "_span")

    def __init__(self, meter: Meter, span: Span | None) -> None:
        self._meter = meter
        self._span = span
        self._measured: Measured | None = None
        self._ended = False
        self._due: float | None = None
        self._lifts = False

    def another(self) -> Account:
        """Begin to measure another run of the same jail."""
        return self._meter.begin()

    def ends_within(self, seconds: float | None) -> None:
        """The keeper was told to end the run by then."""
        if seconds is not None and self._meter.has_share:
            due = time.monotonic() + seconds + LATE_SECONDS
            self._due = due if self._due is None else min(due, self._due)

    def patience(self) -> float | None:
        """Return how many seconds to wait before `lift`; ``None`` where there is no need of it."""
        if self._due is None or self._lifts:
            return None
        return max(self._due - time.monotonic(), 0.0)

    def lift(self) -> None:
        """Let the keeper, which is late, have the processors that it needs."""
        if not self._lifts and not self._ended:
            self._lifts = True
            self._meter.lift()

    def close_with_jail(self) -> None:
        """The run is over since its jail is. Idempotent."""
        if not self._ended:
            self._meter.end_all()
        self.close()

    def close(self) -> None:
        """The run is over, or nobody waits for its end. Idempotent."""
        if not self._ended:
            self._ended = True
            if self._lifts:
                self._meter.lower()
            if self._span is not None:
                self._measured = self._span.read()
            self._meter.end()

    def usage(self, end: Mapping[str, int], wall_seconds: float) -> Usage:
        """Return what the run used; *end* is what waiting for its processes gave."""
        measured = self._measured
        if measured is None or measured.source == "wait" or measured.peak is None:
            return Usage(
                wall_seconds=wall_seconds,
                user_seconds=end["user_us"] / 1e6,
                system_seconds=end["system_us"] / 1e6,
                max_memory=end["resident_kib"] * 1024,
                killed=end["killed"],
            )
        return Usage(
            wall_seconds=wall_seconds,
            user_seconds=measured.user_seconds,
            system_seconds=measured.system_seconds,
            max_memory=measured.peak,
            killed=end["killed"],
            source=measured.source,
        )

    def span(self) -> Span | None:
        """Begin to measure a part of the run; ``None`` without a cgroup."""
        return self._meter.span()

    def refused(self, span: Span) -> list[Violation]:
        """Name the limit on processes, if it was reached in *span*."""
        return self._meter.refused(span.read())

    def stop_reason(self, stopped_by: str | None) -> str | None:
        """Return what ended the run: the kernel may have taken the whole jail for memory."""
        if stopped_by == "closed" and self._measured is not None and self._measured.kills > 0:
            return "memory"
        return stopped_by

    def reached(self, end: Mapping[str, int], stopped_by: str | None) -> tuple[float | None, str]:
        """Return the peak of the limit that ended the run, and how that is known."""
        measured = self._measured
        if stopped_by == "cpu":
            return end["program_us"] / 1e6, ""
        if stopped_by != "memory":
            return None, ""
        limit = self._meter.limits.memory
        if measured is None or self._meter.limits.memory_by == "watch":
            held = end["watched"]
            return held, f"the processes of the jail held {held} bytes, more than {limit}"
        if measured.kills > 0:
            return measured.peak, (
                f"the kernel ended {measured.kills} of the jail's processes for want of memory; "
                f"the limit is {limit} bytes, the peak was {measured.peak}"
            )
        return measured.peak, (
            f"the jail was at its limit of {limit} bytes, and could only read its own "
            "programs again and again"
        )

    def refusals(self) -> list[Violation]:
        """Name the limit on processes, if it was reached in the run."""
        return [] if self._measured is None else self._meter.refused(self._measured)

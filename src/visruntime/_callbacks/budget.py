"""How much the calls of one run may take of the host."""

from __future__ import annotations

from visruntime._policy.values import Frozen
from visruntime.errors import LimitExceeded, ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MAX_REFUSED_BYTES", "MAX_REFUSED_CALLS", "NO_CALLS", "Budget", "HostCalls", "Spending"]

MAX_REFUSED_CALLS = 1_000
"""Calls over its budget that a run may try before its worker is ended."""
MAX_REFUSED_BYTES = 16 * 1024 * 1024
"""Bytes of such calls."""


class Budget(Frozen):
    """What the calls of one run may take together; ``None`` is no limit.

    ``calls`` is their number, ``bytes`` what they and their answers carry in both directions, as
    encoded, and ``seconds`` the time of the host's functions. A call is refused once one of them is
    used up; one that has begun may go over ``bytes`` and ``seconds``.
    """

    __slots__ = ("bytes", "calls", "seconds")

    calls: int | None
    bytes: int | None
    seconds: float | None

    def __init__(
        self, *, calls: int | None = None, bytes: int | None = None, seconds: float | None = None
    ) -> None:
        """Check and keep the limits.

        Raises:
            ValueError: one is negative.
            TypeError: one is not a number.
        """
        for name, value in (("calls", calls), ("bytes", bytes), ("seconds", seconds)):
            kinds = (int,) if name != "seconds" else (int, float)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise TypeError(f"{name}: expected a number, not {type(value).__name__}")
            if value is not None and not value >= 0:
                raise ValueError(f"{name}: {value!r} is negative")
        self._set(calls=calls, bytes=bytes, seconds=seconds)


class HostCalls(Frozen):
    """What the guest's calls of host functions took in one run, measured by the host.

    Questions for input that a function answers (``stdin=``) are among them. ``calls`` that were
    made, ``refused`` ones (for the budget), ``bytes`` of calls and answers as encoded, and
    ``seconds`` in functions of the host.
    """

    __slots__ = ("bytes", "calls", "refused", "seconds")

    calls: int
    refused: int
    bytes: int
    seconds: float

    def __init__(
        self, calls: int = 0, refused: int = 0, bytes: int = 0, seconds: float = 0.0
    ) -> None:
        self._set(calls=calls, refused=refused, bytes=bytes, seconds=seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


NO_CALLS = HostCalls()
"""Of a run that called nothing, as most do."""


class Spending:
    """What the calls of one run have taken so far."""

    __slots__ = ("_budget", "_refused_bytes", "bytes", "calls", "refused", "seconds")

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self._refused_bytes = 0
        self.calls: int = 0
        self.refused: int = 0
        self.bytes: int = 0
        self.seconds: float = 0.0

    def begin(self, size: int) -> None:
        """Count one more call of that many bytes.

        Raises:
            LimitExceeded: a part of the budget is used up; the call is refused.
            ProtocolViolation: the guest goes on calling in spite of very many refusals.
        """
        budget = self._budget
        if budget is not None:
            for kind in ("calls", "bytes", "seconds"):
                limit = getattr(budget, kind)
                if limit is not None and getattr(self, kind) >= limit:
                    self._refuse(kind, limit, size)
        self.calls += 1
        self.bytes += size

    def _refuse(self, kind: str, limit: float, size: int) -> None:
        self.refused += 1
        self._refused_bytes += size
        if self.refused > MAX_REFUSED_CALLS or self._refused_bytes > MAX_REFUSED_BYTES:
            raise ProtocolViolation(
                f"the worker went on calling the host after its budget of {kind} was used up"
            )
        raise LimitExceeded(
            f"this run has used up its budget of {limit:g} {kind} for functions of the host",
            kind=kind,
            limit=limit,
            peak=getattr(self, kind),
        )

    def total(self) -> HostCalls:
        """What it was in the end."""
        if not self.calls and not self.refused:
            return NO_CALLS
        return HostCalls(self.calls, self.refused, self.bytes, self.seconds)

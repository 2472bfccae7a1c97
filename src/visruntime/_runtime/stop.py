"""What was done to stop a run, rung by rung."""

from __future__ import annotations

from visruntime._policy.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["Rung", "Stop"]


class Rung(Frozen):
    """One thing that was done to stop a run, in the order of how hard it is.

    ``name`` is one of

    * "cancel": a function of the host that the guest was waiting for was cancelled
    * "signal": the private signal that raises ``VisInterrupt``, repeated until the run is over
    * "stacks": the stacks of the guest were kept
    * "children": SIGTERM to the worker's descendants, because it may be waiting for them
    * "kill": the worker was ended, with everything that it started

    ``seconds`` counts from the moment at which the limit was over; ``detail`` says more.
    """

    __slots__ = ("detail", "name", "seconds")

    name: str
    seconds: float
    detail: str

    def __init__(self, name: str, seconds: float, detail: str = "") -> None:
        self._set(name=name, seconds=seconds, detail=detail)

    def to_dict(self) -> dict[str, Any]:
        """Return the rung as plain data."""
        return {"name": self.name, "seconds": self.seconds, "detail": self.detail}


class Stop(Frozen):
    """Why and how the host stopped a run; all of it is the host's own doing.

    ``reason`` is the limit that was over (one of those of `Timeouts`), "interrupt", or "cancel".
    ``limit`` is its seconds and ``function`` the host function that was running, if one was.
    ``stacks`` are the guest's own words about its threads and ``host_stack`` shows where the host's
    function was: both were taken when a gentle stop had not helped, or "" where it had.
    """

    __slots__ = ("function", "host_stack", "limit", "reason", "rungs", "stacks")

    reason: str
    limit: float | None
    function: str | None
    rungs: tuple[Rung, ...]
    stacks: str
    host_stack: str

    def __init__(
        self,
        reason: str,
        *,
        limit: float | None = None,
        function: str | None = None,
        rungs: Sequence[Rung] = (),
        stacks: str = "",
        host_stack: str = "",
    ) -> None:
        self._set(
            reason=reason,
            limit=limit,
            function=function,
            rungs=tuple(rungs),
            stacks=stacks,
            host_stack=host_stack,
        )

    @property
    def ended_by(self) -> str | None:
        """The hardest rung that was tried until the run was over; ``None`` if none was."""
        names = [rung.name for rung in self.rungs if rung.name != "stacks"]
        return names[-1] if names else None

    def sentence(self) -> str:
        """Say which limit was over."""
        limit = f"{self.limit:g} s" if self.limit is not None else ""
        name = f"the host's function {self.function}" if self.function else "a host function"
        return {
            "wall": f"the code ran longer than {limit}",
            "cpu": f"the code used more than {limit} of processor time",
            "idle": f"the code wrote nothing and called no host function for {limit}",
            "turn": f"the code went on for more than {limit} without calling a host function",
            "callback": f"{name} took longer than {limit}",
        }.get(self.reason, "the run was interrupted")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "reason": self.reason,
            "limit": self.limit,
            "function": self.function,
            "ended_by": self.ended_by,
            "rungs": [rung.to_dict() for rung in self.rungs],
            "stacks": self.stacks,
            "host_stack": self.host_stack,
        }

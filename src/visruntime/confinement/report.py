"""What came of the attempts, for people and for programs."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Literal

from visruntime._host.own_version import own_version
from visruntime._policy.values import Frozen

if TYPE_CHECKING:
    from visruntime.confinement.attempt import Attempt
    from visruntime.confinement.layers import Layer

__all__ = ["ConfinementReport", "Outcome"]

REPORT_VERSION = 1
NOTHING = "nothing"
MARKS = {"stopped": "ok", "open": "OPEN", "unproven": "-", "missing": "-"}


class Outcome(Frozen):
    """What came of one attempt.

    ``state`` is

    * "stopped": it failed in the jail, and the same act succeeded without one;
    * "open": it succeeded in the jail, so nothing stopped it;
    * "unproven": it failed in the jail, but without one too, for the reason in ``control``: no proof
      of anything;
    * "missing": this interpreter lacks a module that it needs.

    ``layers`` are the layers that stopped it, each with how that is known; ``errno`` is what it
    got, ``None`` where it failed without one.
    """

    __slots__ = ("control", "errno", "key", "layers", "state", "title")

    control: str
    errno: int | None
    key: str
    layers: tuple[Layer, ...]
    state: Literal["stopped", "open", "unproven", "missing"]
    title: str

    def __init__(
        self,
        attempt: Attempt,
        state: Literal["stopped", "open", "unproven", "missing"],
        *,
        layers: tuple[Layer, ...] = (),
        number: int | None = None,
        control: str = "",
    ) -> None:
        self._set(
            key=attempt.key,
            title=attempt.title,
            state=state,
            layers=layers,
            errno=number,
            control=control,
        )

    @property
    def stopped_by(self) -> str:
        """The names of the layers in one text, "nothing" where it succeeded."""
        if self.state == "open":
            return NOTHING
        return ", ".join(dict.fromkeys(name for name, _ in self.layers))

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data; ``errno`` by its name."""
        return {
            "key": self.key,
            "title": self.title,
            "state": self.state,
            "stopped_by": [{"layer": name, "known_by": how} for name, how in self.layers],
            "errno": None if self.errno is None else errno.errorcode.get(self.errno),
            "control": self.control,
        }

    def __str__(self) -> str:
        number = errno.errorcode.get(self.errno or 0, "")
        said = {
            "stopped": f"{self.stopped_by}{f' ({number})' if number else ''}",
            "open": "STOPPED BY NOTHING",
        }.get(self.state, f"{self.state}: {self.control}")
        return f"{MARKS[self.state]:>4}  {self.title:<66}  {said}"


class ConfinementReport(Frozen):
    """All outcomes, and in what they came about."""

    __slots__ = ("backend", "outcomes", "python")

    backend: str
    outcomes: tuple[Outcome, ...]
    python: str

    def __init__(self, *, backend: str, python: str, outcomes: tuple[Outcome, ...]) -> None:
        self._set(backend=backend, python=python, outcomes=outcomes)

    @property
    def ok(self) -> bool:
        """Whether each attempt that could be judged was stopped, and by a layer that is known."""
        return bool(self.stopped) and not self.open

    @property
    def open(self) -> tuple[Outcome, ...]:
        """Those that nothing stopped."""
        return tuple(one for one in self.outcomes if one.state == "open")

    @property
    def stopped(self) -> tuple[Outcome, ...]:
        """Those that were stopped and are proven possible without a jail."""
        return tuple(one for one in self.outcomes if one.state == "stopped")

    @property
    def headline(self) -> str:
        """The report in one sentence."""
        others = len(self.outcomes) - len(self.stopped) - len(self.open)
        aside = f"; {others} could not be judged here" if others else ""
        if self.open:
            return (
                f"{len(self.open)} of {len(self.outcomes)} attempts were stopped by nothing{aside}."
            )
        return (
            f"{len(self.stopped)} attempts that succeed without a jail were stopped in it{aside}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``doctor --confinement --json`` prints it."""
        import platform

        return {
            "version": REPORT_VERSION,
            "ok": self.ok,
            "backend": self.backend,
            "machine": {
                "kernel": platform.release(),
                "architecture": platform.machine(),
                "python": self.python,
                "visruntime": own_version(),
            },
            "attempts": [one.to_dict() for one in self.outcomes],
        }

    def __str__(self) -> str:
        lines = [self.headline, f"Back end {self.backend}, a worker of Python {self.python}."]
        topic = ""
        for one in self.outcomes:
            mine = one.key.partition(".")[0]
            if mine != topic:
                topic = mine
                lines += ["", topic]
            lines.append(str(one))
        return "\n".join(lines)

"""How long a run may take, counted in several ways."""

from __future__ import annotations

from visruntime._arguments import check_switch
from visruntime._policy.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GRACE_SECONDS", "Span", "Timeouts", "as_timeouts"]

GRACE_SECONDS = 0.5
"""How long a worker that was interrupted may take to reply, where nothing else is said."""

Span = float | tuple[float, float]
"""Seconds, or seconds and the grace of this limit alone."""

KINDS = ("wall", "cpu", "idle", "turn", "callback")


class Timeouts(Frozen):
    """How long one run may take. Each limit is seconds or ``(seconds, grace)``; ``None`` is none.

    ``wall`` counts from the request to the reply. ``cpu`` counts processor time: of the whole jail
    where it has a cgroup, else of the worker and of its children that it has waited for. ``idle``
    counts from the last output, call of a host function or start. ``turn`` counts from the last
    answer to such a call, or the start, to the next call or the reply. ``callback`` counts one call
    of a host function, on the host; with it, functions run in a thread of their own.

    None of them counts the start of a worker, which has a limit of its own (30 s, and as much for
    ``preload=``): where that takes longer than a run may, none would ever begin.

    ``idle`` and ``turn`` stand still while a function of the host runs, and ``wall`` too with
    ``pause_in_callbacks``. All stand still while the runtime is paused.

    When one is over the run is stopped, first softly and after ``grace`` seconds for good;
    ``CommandTimeout.result.stop.reason`` is the name of that limit.
    """

    __slots__ = ("callback", "cpu", "grace", "idle", "pause_in_callbacks", "turn", "wall")

    wall: Span | None
    cpu: Span | None
    idle: Span | None
    turn: Span | None
    callback: Span | None
    grace: float
    pause_in_callbacks: bool

    def __init__(
        self,
        *,
        wall: Span | None = None,
        cpu: Span | None = None,
        idle: Span | None = None,
        turn: Span | None = None,
        callback: Span | None = None,
        grace: float = GRACE_SECONDS,
        pause_in_callbacks: bool = False,
    ) -> None:
        """Check and keep the limits.

        Raises:
            ValueError: a limit is not a positive number, or a grace is negative.
            TypeError: something is not a number.
        """
        given = {"wall": wall, "cpu": cpu, "idle": idle, "turn": turn, "callback": callback}
        _check_grace("grace", grace)
        check_switch(pause_in_callbacks, "pause_in_callbacks")
        for name, span in given.items():
            if span is None:
                continue
            seconds: object = span
            if isinstance(span, tuple):
                if len(span) != 2:
                    raise TypeError(f"{name}: give seconds, or seconds and a grace: {span!r}")
                seconds = span[0]
                _check_grace(name, span[1])
            if not _check_number(name, seconds) > 0:
                raise ValueError(f"{name}: {seconds!r} is not a positive number of seconds")
        self._set(**given, grace=grace, pause_in_callbacks=pause_in_callbacks)

    def limits(self) -> Iterator[tuple[str, float, float]]:
        """Yield the name, the seconds and the grace of each limit that there is."""
        for name in KINDS:
            span = getattr(self, name)
            if span is not None:
                yield (name, *span) if isinstance(span, tuple) else (name, span, self.grace)


def as_timeouts(timeout: float | Timeouts | None, name: str = "timeout") -> Timeouts | None:
    """Return what the argument *name* of a verb means; a number is a limit on ``wall``.

    Raises:
        ValueError: it is not a positive number.
        TypeError: it is no number.
    """
    if timeout is None or isinstance(timeout, Timeouts):
        return timeout
    _check_number(name, timeout)
    if not timeout > 0:
        raise ValueError(f"{name}: {timeout!r} is not a positive number of seconds")
    return Timeouts(wall=timeout)


def _check_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: expected a number of seconds, not {type(value).__name__}")
    return value


def _check_grace(name: str, grace: float) -> None:
    _check_number(name, grace)
    if not grace >= 0:
        raise ValueError(f"{name}: a grace of {grace!r} seconds is not possible")

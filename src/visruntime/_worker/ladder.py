"""The limits of one run, and the rungs that are climbed when one of them is over."""

from __future__ import annotations

import os
import time

from visruntime._runtime.stop import Rung, Stop
from visruntime._runtime.timeouts import GRACE_SECONDS
from visruntime._worker.limit import LOOK_MILLISECONDS, Timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Protocol

    from visruntime._callbacks.run import Call
    from visruntime._runtime.timeouts import Timeouts
else:
    import _signal as signal

    Protocol = object  # typing costs more than all that a run needs of this package's protocols

__all__ = ["Ladder", "Stoppable"]

_CPU_LOOK_SECONDS = 0.005
"""Processor time is looked at no more often than this."""
_STACKS, _CHILDREN, _KILL = 0.5, 0.6, 1.0
"""Shares of the grace after which the stacks are taken, the children asked, the worker ended."""
_ANSWER = 0.4
"""Share of the grace that the answer with the stacks may take."""
_CLEAN_UP = 0.4
"""Share of the grace that an async function of the host may take to end after its cancelling."""


class Stoppable(Protocol):
    """What a ladder needs of its worker."""

    last_output: float
    """When output came last, by the monotonic clock."""

    def interrupt(self) -> None:
        """Break the run under way."""

    def stacks(self, seconds: float) -> str:
        """The stacks of the guest; TimeoutError when there is no answer."""

    def signal_descendants(self, number: int) -> int:
        """Signal what the worker has started; how many there were."""

    def paused_seconds(self) -> float:
        """How long the worker has been paused so far, in all its life."""

    def wait_for(self, call: Call, limit: Ladder) -> None:
        """Wait for a function of the host, while *limit* thinks it worthwhile."""


class Ladder:
    """How long a run may go on, and what happens then.

    Whoever waits for the worker asks :meth:`milliseconds` how long to wait. When a limit is over,
    asking climbs: the rungs are those of `Rung`, each in its time, and at the end asking raises
    :class:`Timeout`. ``told`` says that the guest was asked to stop, ``call`` is the function of
    the host that it waits for.
    """

    __slots__ = (
        "_asked",
        "_call_began",
        "_cpu_left",
        "_cpu_look",
        "_cpu_spent",
        "_grace",
        "_host_seconds",
        "_kept",
        "_limits",
        "_next",
        "_reason",
        "_rungs",
        "_shift",
        "_started",
        "_stood",
        "_threads",
        "_timeouts",
        "_told_at",
        "_turn_began",
        "_worker",
        "call",
        "cancelled",
        "told",
    )

    def __init__(
        self,
        timeouts: Timeouts | None,
        worker: Stoppable,
        cpu_spent: Callable[[], float | None] | None = None,
        *,
        threads: bool = False,
    ) -> None:
        """Begin to count.

        Args:
            timeouts: the limits.
            worker: what is to be stopped.
            cpu_spent: processor seconds of the run so far.
            threads: functions of the host have threads of their own, whatever the limits are.
        """
        self._timeouts = timeouts
        self._threads = threads
        self._limits = () if timeouts is None else tuple(timeouts.limits())
        self._worker = worker
        self._shift = worker.paused_seconds()
        self._stood: float | None = None
        self._cpu_spent = cpu_spent
        self._cpu_look = 0.0
        self._cpu_left = 0.0
        self._started = self._turn_began = time.monotonic()
        self._host_seconds = 0.0
        self.call: Call | None = None
        self._call_began = 0.0
        self._grace = 0.0
        self._next = 0
        self._told_at = 0.0
        self._reason: tuple[str, float | None, str | None] = ("interrupt", None, None)
        self._rungs: list[Rung] = []
        self._kept = ("", "")
        self._asked: float | None = None
        self.cancelled: bool = False
        self.told: bool = False

    @property
    def threads(self) -> bool:
        """Whether a function of the host must not hold up the run, and so needs a thread."""
        return self._threads or (self._timeouts is not None and self._timeouts.callback is not None)

    def milliseconds(self) -> float:
        """How long to wait for something to happen, in milliseconds.

        Raises:
            Timeout: the worker did not stop in time.
        """
        if not self._limits and not self.cancelled:
            return LOOK_MILLISECONDS
        now = self._now()
        if not self.told:
            left = 0.0 if self.cancelled else self._left(now)
            if left > 0:
                return min(left * 1000, LOOK_MILLISECONDS)
            self._begin(now)
        return self._climb(now)

    # Calls of the guest.

    def call_begins(self, call: Call) -> None:
        """A function of the host runs from now on."""
        self._call_began = self._now()
        self.call = call

    def wait(self, call: Call) -> None:
        """Wait until the function is done, or is not worth waiting for any longer."""
        self._worker.wait_for(call, self)

    def call_ends(self) -> None:
        """The function has returned, or nobody waits for it any longer."""
        self._turn_began = self._now()
        self._host_seconds += self._turn_began - self._call_began
        self.call = None

    def gives_up(self, call: Call) -> bool:
        """Whether nobody should wait for *call* any longer."""
        began, grace = self._asked, GRACE_SECONDS
        if self.told:
            began, grace = self._told_at, self._grace
        if began is None:
            return False
        return not call.cancellable or self._now() - began >= _CLEAN_UP * grace

    def asked_to_stop(self) -> None:
        """Somebody interrupts the run by hand, from any thread: softly, and nothing follows."""
        call = self.call
        now = self._now()
        if self._asked is None:
            self._asked = now
        # First noted, then done: a run whose function is cancelled, or whose guest is quick, has
        # ended before the next line runs.
        signalled = Rung("signal", now - self._asked)
        if call is None:
            self._rungs.append(signalled)
        else:
            cancelled = Rung("cancel", now - self._asked, call.name)
            self._rungs += (cancelled, signalled)
            if not call.cancel():
                self._rungs.remove(cancelled)
        self._worker.interrupt()

    def cancel(self) -> None:
        """End the run now, by all the rungs that it takes; from any thread.

        A pause counts from now on: nobody waits for the end of one, and who stands still is ended.
        """
        if self._stood is None:
            self._stood = self._worker.paused_seconds() - self._shift
        if self.told:
            return
        self.cancelled = True
        call = self.call
        self._reason = ("cancel", None, None if call is None else call.name)
        self._kept = ("", "" if call is None else call.stack())
        self._grace = GRACE_SECONDS
        # At once, since whoever waits for the worker looks here only now and then.
        self.asked_to_stop()

    def stop(self, *, lost: bool) -> Stop | None:
        """What was done to stop the run, ``None`` if nothing was.

        Args:
            lost: the worker is ended for it now.
        """
        if not self.told and self._asked is None:
            return None
        rungs = list(self._rungs)
        if lost and self.told:
            rungs.append(Rung("kill", self._now() - self._told_at))
        reason, limit, function = self._reason
        stacks, host_stack = self._kept
        return Stop(
            reason,
            limit=limit,
            function=function,
            rungs=rungs,
            stacks=stacks,
            host_stack=host_stack,
        )

    # How it counts.

    def _now(self) -> float:
        """The time, without that in which the worker stood still: no limit and no rung counts it."""
        stood = self._stood
        if stood is None:
            stood = self._worker.paused_seconds() - self._shift
        return time.monotonic() - stood

    def _left(self, now: float) -> float:
        """Seconds until the first limit is over; that one is remembered."""
        shortest = 3600.0
        for name, seconds, grace in self._limits:
            if name == "cpu":
                left = self._left_of_cpu(seconds, now)
            else:
                left = seconds - self._spent(name, now)
            if left < shortest:
                shortest = left
                if left <= 0:
                    call = self.call
                    self._reason = (name, seconds, None if call is None else call.name)
                    self._grace = grace
        return shortest

    def _spent(self, name: str, now: float) -> float:
        in_call = now - self._call_began if self.call is not None else 0.0
        if name == "callback":
            return in_call
        if name == "wall":
            spent = now - self._started
            if self._timeouts is not None and self._timeouts.pause_in_callbacks:
                spent -= self._host_seconds + in_call
            return spent
        if self.call is not None:
            return 0.0  # idle and turn: it is the host's time
        if name == "idle":
            output = self._worker.last_output - (self._worker.paused_seconds() - self._shift)
            return now - max(self._turn_began, output)
        return now - self._turn_began

    def _left_of_cpu(self, seconds: float, now: float) -> float:
        if now >= self._cpu_look:
            spent = self._cpu_spent() if self._cpu_spent is not None else None
            self._cpu_left = seconds - (spent or 0.0)
            # All processors together use it up no faster than this.
            pause = max(self._cpu_left / (os.cpu_count() or 1), _CPU_LOOK_SECONDS)
            self._cpu_look = now + pause
        return self._cpu_left if self._cpu_left <= 0 else self._cpu_look - now

    # How it climbs.

    def _begin(self, now: float) -> None:
        self.told = True
        self._told_at = now
        call = self.call
        if call is not None:
            if call.cancel():
                self._rungs.append(Rung("cancel", 0.0, call.name))
            self._kept = ("", call.stack())
        self._worker.interrupt()
        self._rungs.append(Rung("signal", 0.0))

    def _climb(self, now: float) -> float:
        steps = ((_STACKS, self._keep_stacks), (_CHILDREN, self._ask_children))
        while self._next < len(steps):
            share, act = steps[self._next]
            left = self._told_at + share * self._grace - now
            if left > 0:
                return min(left * 1000, LOOK_MILLISECONDS)
            self._next += 1
            act(now - self._told_at)
        left = self._told_at + _KILL * self._grace - now
        if left <= 0:
            raise Timeout(None)
        return min(left * 1000, LOOK_MILLISECONDS)

    def _keep_stacks(self, seconds: float) -> None:
        try:
            stacks = self._worker.stacks(_ANSWER * self._grace)
        except TimeoutError as silence:
            self._rungs.append(Rung("stacks", seconds, str(silence)))
            return
        self._kept = (stacks, self._kept[1])
        self._rungs.append(Rung("stacks", seconds))

    def _ask_children(self, seconds: float) -> None:
        reached = self._worker.signal_descendants(signal.SIGTERM)
        if reached:
            detail = f"SIGTERM to {reached} process{'es' if reached > 1 else ''}"
            self._rungs.append(Rung("children", seconds, detail))

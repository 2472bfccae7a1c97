"""What is known of the end of a worker: measured facts, and its own last words."""

from __future__ import annotations

import signal as signals

from visruntime._policy.redact import shown
from visruntime._policy.values import Frozen
from visruntime.guest.limits import NO_THREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from visruntime.events import Violation

__all__ = ["MAX_TAIL", "CrashReport", "describe_end"]

MAX_TAIL = 4_000
"""Characters of the end of stderr that a report keeps."""
MAX_STACKS = 20_000
"""Characters of the stacks that a crash left."""
_FATAL = "Fatal Python error: "
"""How the interpreter's own report of a crash begins, in stderr."""

_OURS = {
    120: "the loader was started wrongly",
    121: "the interpreter could not be started",
    122: "the host let go of it",
    NO_THREAD: "the kernel made no thread for it",
}
"""What our own loader and core mean by an exit code, as long as no run has begun."""


class CrashReport(Frozen):
    """How a worker ended, and what is known of the reason.

    Measured: ``exit_code`` or ``signal`` (with ``signal_name``), ``stopped_by``, ``run`` (the number
    of the request under way, 0 while it started), and ``out_of_memory``: ``True`` where the kernel
    or a keeper counted that (``proof`` says how), ``False`` where the jail's cgroup counted no such
    end, ``None`` where nothing counts; it is never guessed. ``system_call`` is the number of the
    call that a filter ended the worker for, where that is known: Linux tells it to the audit log
    alone, so it is ``None`` after a SIGSYS too.

    Claimed by the guest: ``stacks``, which its interpreter wrote as it crashed, and
    ``stderr_tail``. Both are printable, and show no ``Secret`` of the policy or of ``env=`` as it is.
    """

    __slots__ = (
        "description",
        "exit_code",
        "out_of_memory",
        "proof",
        "run",
        "signal",
        "signal_name",
        "stacks",
        "stderr_tail",
        "stopped_by",
        "system_call",
    )

    description: str
    exit_code: int | None
    signal: int | None
    signal_name: str | None
    stopped_by: str | None
    run: int
    out_of_memory: bool | None
    proof: str
    system_call: int | None
    stacks: str
    stderr_tail: str

    def __init__(self, **values: Any) -> None:
        self._set(**{name: values.get(name) for name in self.__slots__})

    def replace(self, **changes: Any) -> CrashReport:
        """Return the same with other values."""
        return CrashReport(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        lines = [self.description]
        if self.out_of_memory:
            lines.append(f"out of memory: {self.proof}")
        if self.stacks:
            lines.append(self.stacks.rstrip())
        elif self.stderr_tail:
            lines.append(self.stderr_tail.rstrip())
        return "\n".join(lines)


def describe_end(
    code: int | None,
    *,
    run: int,
    stopped_by: str | None,
    stderr: bytes,
    seam: int | None = None,
    violations: Iterable[Violation],
    secrets: Iterable[str] = (),
) -> CrashReport:
    """Make the report of a worker that ended with *code* (-N after signal N, ``None``: unknown).

    Texts of the guest are shown with ``***`` in place of each of *secrets*. At *seam* something was
    left out of *stderr*.
    """
    text = shown(stderr, secrets, seam)
    at = text.rfind(_FATAL)
    memory = [v for v in violations if v.rule == "limits.memory" and v.confidence == "exact"]
    killed = stopped_by == "memory" or bool(memory)
    number = None if code is None or code >= 0 else -code
    return CrashReport(
        description=_describe(code, stopped_by, began=run > 0),
        exit_code=None if number is not None else code,
        signal=number,
        signal_name=None if number is None else _signal_name(number),
        stopped_by=stopped_by,
        run=run,
        out_of_memory=True if killed else None,
        proof=memory[0].detail if memory else "",
        stacks="" if at < 0 else text[at:][:MAX_STACKS],
        stderr_tail=text[-MAX_TAIL:],
    )


def _describe(code: int | None, stopped_by: str | None, *, began: bool) -> str:
    if code is None:
        return "the worker closed its channel and was ended"
    reason = f" ({stopped_by})" if stopped_by else ""
    if code < 0:
        name = _signal_name(-code)
        text = f"the worker was ended by signal {-code}"
        text += f", {name}" if name else ""
        if -code == signals.SIGSYS:
            text += ": it made a system call that a filter ends a process for"
        return text + reason
    text = f"the worker ended with exit code {code}"
    if code in _OURS and not began:  # later it is the guest's choice, as any other
        text += f", which from its loader means that {_OURS[code]}"
    elif 128 < code < 128 + signals.NSIG:
        text += f", as a shell says after {_signal_name(code - 128) or f'signal {code - 128}'}"
    elif code == 0:
        text += ": the code left by os._exit, or ended the process in another way"
    return text + reason


def _signal_name(number: int) -> str | None:
    try:
        return signals.Signals(number).name
    except ValueError:
        return None

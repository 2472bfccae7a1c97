"""What a run in a worker gives back: claims of the guest, and what the host measured."""

from __future__ import annotations

from collections.abc import Callable

from visruntime._callbacks.budget import NO_CALLS
from visruntime._jail.redacted import without_secrets
from visruntime._policy.redact import redact
from visruntime._runtime.brief import brief
from visruntime._runtime.traceback import printable, render_failure, render_frame
from visruntime.errors import GuestError, ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from visruntime._callbacks.budget import HostCalls
    from visruntime._runtime.stop import Stop
    from visruntime.denials import Denial
    from visruntime.displays import Display
    from visruntime.events import EnforcementReport, Violation

__all__ = ["GuestFailure", "GuestFrame", "RunResult", "RunUsage"]


class RunUsage:
    """What one run cost, measured by the host.

    ``wall_seconds`` is the time from request to reply. What the others are depends on ``source``:

    * "wait": lower bounds, at least so much was used. ``cpu_seconds`` is the processor time of the
      worker and of its children that it has waited for, and a guest that ignores SIGCHLD waits for
      none; ``peak_memory`` is the largest resident size of the worker that was seen, in bytes, and
      a guest can reset the kernel's record of it before the end of a run. Both are ``None`` where
      they could not be read.
    * "cgroup" and "cgroup-shared": what the kernel counted for the whole jail, in which nothing can
      be hidden; with the second other runs overlapped, so that it is an upper bound. See
      `visruntime.Usage`.

    A limit holds for the whole jail and depends on none of them.
    """

    __slots__ = ("cpu_seconds", "peak_memory", "source", "wall_seconds")

    def __init__(
        self,
        wall_seconds: float,
        cpu_seconds: float | None,
        peak_memory: int | None,
        source: str = "wait",
    ) -> None:
        self.wall_seconds: float = wall_seconds
        self.cpu_seconds: float | None = cpu_seconds
        self.peak_memory: int | None = peak_memory
        self.source: str = source

    def __repr__(self) -> str:
        return (
            f"RunUsage(wall_seconds={self.wall_seconds:.6f}, cpu_seconds={self.cpu_seconds},"
            f" peak_memory={self.peak_memory})"
        )

    def to_dict(self) -> dict[str, float | int | str | None]:
        """The same as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class GuestFrame:
    """One frame of a guest's traceback; all of it is the guest's claim.

    Lines count from 1, columns from 0, in characters; columns are ``None`` where unknown.
    """

    __slots__ = ("column", "end_column", "end_line", "file", "function", "line", "source")

    file: str
    line: int
    function: str
    source: str
    column: int | None
    end_line: int | None
    end_column: int | None

    def __init__(self, claim: tuple[Any, ...]) -> None:
        self.file, self.line, self.function, self.source = claim[:4]
        self.column, self.end_line, self.end_column = claim[4:]

    def __repr__(self) -> str:
        return f"GuestFrame({self.file!r}, {self.line}, {self.function!r})"

    def render(self, *, colour: bool = False) -> str:
        """Two or three lines as CPython prints them, without control characters of the guest.

        With *colour* they have ours: those of CPython 3.13, for a terminal.
        """
        return render_frame(self, colour=colour)


MAX_TEXT = 20_000
"""Longest text in a description of an error, in characters; workers cut theirs earlier."""
MAX_PARTS = 200
"""Most notes, frames or members of one error."""
MAX_FAILURES = 20
"""Most errors that are linked with one, itself included."""
MAX_TOTAL = 1_000_000
"""Characters of all texts of one error together; workers stay below half of it."""
Explain = Callable[[int, "str | None"], "Violation | None"]
"""What a policy has to say about an errno and the path it came with, if it had one."""


class GuestFailure:
    """An exception of the guest as data; all of it is the guest's claim.

    ``type_name`` is qualified (builtins are not), ``cause``, ``context`` and ``exceptions`` are
    failures too, and ``traceback`` is the text that CPython would print. ``errno`` and ``path`` are
    those of an ``OSError``; ``explanation`` is the host's own: what the policy says of them.
    ``violation`` is the same as data. ``interrupted`` says that the host's interrupt ended the run,
    ``cancelled`` that it did so by cancelling the task that the run was waiting in.

    ``visruntime.ValueMismatch`` is said by the host: a record of the value is not like the class of
    ``types=`` that it names. ``visruntime.ValueNotData`` is the guest's answer to ``unknown="error"``.
    """

    __slots__ = (
        "cancelled",
        "cause",
        "context",
        "errno",
        "exceptions",
        "explanation",
        "frames",
        "interrupted",
        "message",
        "notes",
        "path",
        "type_name",
        "violation",
    )

    def __init__(
        self, claim: dict[str, Any], explain: Explain, secrets: tuple[str, ...] = ()
    ) -> None:
        cause, context = claim["cause"], claim["context"]
        self.type_name: str = redact(claim["type"], secrets)
        self.message: str = redact(claim["message"], secrets)
        self.notes: tuple[str, ...] = tuple(redact(note, secrets) for note in claim["notes"])
        self.frames: tuple[GuestFrame, ...] = tuple(
            GuestFrame(tuple(redact(x, secrets) if type(x) is str else x for x in frame))
            for frame in claim["frames"]
        )
        self.cause: GuestFailure | None = (
            GuestFailure(cause, explain, secrets) if cause is not None else None
        )
        self.context: GuestFailure | None = (
            GuestFailure(context, explain, secrets) if context is not None else None
        )
        self.exceptions: tuple[GuestFailure, ...] = tuple(
            GuestFailure(member, explain, secrets) for member in claim["exceptions"]
        )
        self.interrupted: bool = claim.get("interrupted", False) is True
        self.cancelled: bool = claim.get("cancelled", False) is True
        self.errno: int | None = claim["errno"]
        path = claim["path"]
        self.path: str | None = None if path is None else redact(path, secrets)
        self.violation: Violation | None = None
        if self.errno is not None:
            found = explain(self.errno, path)
            self.violation = None if found is None else without_secrets(found, secrets)
        self.explanation: str | None = None if self.violation is None else self.violation.detail

    @classmethod
    def from_claim(
        cls, claim: object, explain: Explain, secrets: tuple[str, ...] = ()
    ) -> GuestFailure:
        """Build it from what a worker sent, with ``***`` for each of *secrets*.

        Raises:
            ProtocolViolation: the worker's description has not the agreed shape.
        """
        try:
            _check_claim(claim, _Allowance())
            return cls(claim, explain, secrets)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError) as problem:
            raise ProtocolViolation(f"the worker described an error wrongly: {problem}") from None

    @classmethod
    def of_mismatch(cls, message: str) -> GuestFailure:
        """Build the one for a record that is not like the class of ``types=`` that it names."""
        claim: dict[str, Any] = {"type": "visruntime.ValueMismatch", "message": message[:MAX_TEXT]}
        nothing: dict[str, Any] = dict.fromkeys(("cause", "context", "errno", "path"))
        return cls(claim | nothing | {"notes": (), "frames": (), "exceptions": ()}, lambda *_: None)

    def __repr__(self) -> str:
        return printable(f"GuestFailure({self.type_name}: {self.message})")

    @property
    def traceback(self) -> str:
        """The traceback as CPython would print it, without control characters."""
        return self.render()

    def render(self, *, colour: bool = False) -> str:
        """The same; with *colour*, as CPython 3.13 prints it on a terminal.

        What the guest wrote has no control characters in either.
        """
        return render_failure(self, colour=colour)

    def violations(self) -> Iterator[Violation]:
        """Yield what the policy may have refused, of this failure and those linked with it."""
        if self.violation is not None:
            yield self.violation
        for linked in (self.cause, self.context, *self.exceptions):
            if linked is not None:
                yield from linked.violations()

    def to_exception(self, result: RunResult | None) -> GuestError:
        """The exception that stands for it on the host; *result* of the run, if it was one."""
        return GuestError(
            printable(self.type_name),
            printable(self.message),
            frames=self.frames,
            traceback=self.traceback,
            result=result,
        )


class _Allowance:
    """What the rest of one claim may still hold: failures, and characters of text."""

    __slots__ = ("characters", "failures")

    def __init__(self) -> None:
        self.failures = MAX_FAILURES
        self.characters = MAX_TOTAL

    def check_text(self, name: str, texts: Sequence[Any]) -> None:
        """Check that all are text, and take their length off."""
        for text in texts:
            if type(text) is not str or len(text) > MAX_TEXT:
                raise TypeError(f"{name}: not text, or too long")
            self.characters -= len(text)
        if self.characters < 0:
            raise ValueError("too much text in all")


def _check_claim(claim: Any, left: _Allowance) -> None:
    """Check types and sizes before anything is built; what is wrong is named by the exception."""
    left.failures -= 1
    if type(claim) is not dict or left.failures < 0:
        raise TypeError("not a dict, or one too many")
    left.check_text("type and message", [claim["type"], claim["message"]])
    errno = claim["errno"]
    if errno is not None and (type(errno) is not int or not 0 <= errno < 2**31):
        raise TypeError("errno has the wrong type, or is out of range")
    if claim["path"] is not None:
        left.check_text("path", [claim["path"]])
    for name in ("notes", "frames", "exceptions"):
        if type(claim[name]) not in (list, tuple) or len(claim[name]) > MAX_PARTS:
            raise TypeError(f"{name} is not a list, or too long")
    left.check_text("notes", claim["notes"])
    for frame in claim["frames"]:
        _check_frame(frame, left)
    for linked in (claim["cause"], claim["context"]):
        if linked is not None:
            _check_claim(linked, left)
    for member in claim["exceptions"]:
        _check_claim(member, left)


def _check_frame(frame: Any, left: _Allowance) -> None:
    if type(frame) is not tuple or len(frame) != 7:
        raise TypeError("a frame has not seven parts")
    file, line, function, source, *columns = frame
    left.check_text("a frame's names", [file, function, source])
    if type(line) is not int or any(type(c) not in (int, type(None)) for c in columns):
        raise TypeError("a frame's numbers are not numbers")
    if any(number is not None and not -1 <= number < 2**31 for number in (line, *columns)):
        raise ValueError("a frame's numbers are out of range")


class RunResult:
    """The outcome of one ``Runtime.run``.

    Claimed by the guest: ``value`` (of the last expression), ``error``, ``exit_code`` (after
    ``SystemExit``), ``displays`` (each a `Display`, as it was last updated; ``displays_dropped`` counts
    those beyond a bound), ``trips`` (noteworthy audit events and their counts), ``tasks`` (names of
    asyncio tasks that it left behind), and what ``stdout`` and ``stderr`` say.

    Measured by the host: ``usage``, ``stopped_by`` (``None``, ``"timeout"``, ``"cancelled"``,
    ``"killed"`` or the limit that ended the run), ``stop`` (a `Stop`: which limit was over, or that
    somebody interrupted or cancelled the run, and what was done to end it; ``None`` if nothing
    was), ``host_calls`` (a `HostCalls`:
    how many functions of the host it called, and what that took), the exact ones of ``violations``
    (see `Violation`; hints rest on the guest's word; ``violations_dropped`` counts those beyond a
    bound), ``truncated`` and ``dropped`` (bytes of stdout and stderr, late ones included, that were
    over a bound and are gone), ``late_stdout`` and ``late_stderr`` (written after the run before
    this one had ended, or while the worker started), ``session_lost`` (the worker was ended, so the
    next call starts a fresh one), ``report`` (an `EnforcementReport`: what enforced the policy, or
    that there is no jail).

    Hints, for they rest on the guest's word: ``denials``, what the worker's audit hook refused
    and at which line (see `Denial`); ``denials_dropped`` counts those beyond a bound.
    """

    __slots__ = (
        "denials",
        "denials_dropped",
        "displays",
        "displays_dropped",
        "dropped",
        "error",
        "exit_code",
        "host_calls",
        "late_stderr",
        "late_stdout",
        "report",
        "session_lost",
        "stderr",
        "stdout",
        "stop",
        "stopped_by",
        "tasks",
        "trips",
        "usage",
        "value",
        "violations",
        "violations_dropped",
    )

    def __init__(
        self,
        *,
        usage: RunUsage,
        value: Any = None,
        error: GuestFailure | None = None,
        exit_code: int | None = None,
        displays: tuple[Display, ...] = (),
        displays_dropped: int = 0,
        tasks: tuple[str, ...] = (),
        trips: dict[str, int] | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
        late_stdout: bytes = b"",
        late_stderr: bytes = b"",
        dropped: tuple[int, int] = (0, 0),
        stopped_by: str | None = None,
        stop: Stop | None = None,
        host_calls: HostCalls | None = None,
        session_lost: bool = False,
        violations: tuple[Violation, ...] = (),
        violations_dropped: int = 0,
        denials: tuple[Denial, ...] = (),
        denials_dropped: int = 0,
        report: EnforcementReport,
    ) -> None:
        self.usage: RunUsage = usage
        self.value: Any = value
        self.error: GuestFailure | None = error
        self.exit_code: int | None = exit_code
        self.displays: tuple[Display, ...] = displays
        self.displays_dropped: int = displays_dropped
        self.tasks: tuple[str, ...] = tasks
        self.trips: dict[str, int] = trips if trips is not None else {}
        self.stdout: bytes = stdout
        self.stderr: bytes = stderr
        self.late_stdout: bytes = late_stdout
        self.late_stderr: bytes = late_stderr
        self.dropped: tuple[int, int] = dropped
        self.stopped_by: str | None = stopped_by
        self.stop: Stop | None = stop
        self.host_calls: HostCalls = host_calls if host_calls is not None else NO_CALLS
        self.session_lost: bool = session_lost
        self.violations: tuple[Violation, ...] = violations
        self.violations_dropped: int = violations_dropped
        self.denials: tuple[Denial, ...] = denials
        self.denials_dropped: int = denials_dropped
        self.report: EnforcementReport = report

    def __repr__(self) -> str:
        outcome = (
            f"error={self.error!r}" if self.error is not None else f"value={brief(self.value)}"
        )
        code = "" if self.exit_code is None else f", exit_code={self.exit_code}"
        return f"RunResult({outcome}{code}, stopped_by={self.stopped_by!r})"

    @property
    def truncated(self) -> bool:
        """Whether bytes of stdout or stderr were dropped."""
        return self.dropped != (0, 0)

    @property
    def stdout_text(self) -> str:
        """``stdout`` as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """``stderr`` as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

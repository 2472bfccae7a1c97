"""Every error that visruntime raises, named by what happened to the caller.

::

    VisRuntimeError
    ├── PolicyError (ValueError)          the policy is wrong; nothing was started
    │   └── PolicyUnsupported             the policy is fine, this machine or version cannot enforce it
    ├── JailUnavailable                   no jail can be opened here; nothing was started
    ├── JailClosed                        the jail ended before or during the call
    │   └── JailPoisoned                  a step failed half-way; ``close`` again finishes
    ├── JailSealed                        nothing more is staged, programs have started
    ├── WindowsCallFailed (OSError)       a call of Windows failed
    ├── CommandError                      something about one program; carries ``.result``
    │   ├── CommandNotFound (FileNotFoundError)
    │   ├── CommandNotExecutable (PermissionError)
    │   ├── CommandTimeout (TimeoutError)
    │   └── CommandFailed                 ``check=True`` and the program did not exit with 0
    ├── LimitExceeded                     a limit of the policy ended the work
    │   └── OutputLimitExceeded
    ├── PathDenied (PermissionError)      a file operation that the policy refuses
    ├── EnvironmentNotBuilt               uv could not make an environment; nothing of it is kept
    ├── ForkRefused                       the worker cannot be copied in its present state
    ├── PoolExhausted                     every runtime of a pool is borrowed
    ├── WorkerDied                        the Python worker ended during a call
    ├── WorkerPaused                      the worker stands still, and the call was not begun
    ├── ProtocolViolation                 the worker broke its protocol and was ended
    └── GuestError                        the guest's code raised; type and text are the guest's claim

The message says what to do next; data is on attributes. Where callers already catch a
builtin, the class inherits it too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "BundleRefused",
    "CommandError",
    "CommandFailed",
    "CommandNotExecutable",
    "CommandNotFound",
    "CommandTimeout",
    "EnvironmentNotBuilt",
    "ForkRefused",
    "GuestError",
    "JailClosed",
    "JailPoisoned",
    "JailSealed",
    "JailUnavailable",
    "LimitExceeded",
    "OutputLimitExceeded",
    "PathDenied",
    "PolicyError",
    "PolicyUnsupported",
    "PoolExhausted",
    "ProtocolViolation",
    "VisRuntimeError",
    "WindowsCallFailed",
    "WorkerDied",
    "WorkerPaused",
]


class VisRuntimeError(Exception):
    """Root of the hierarchy; never raised itself."""


def _shown(message: str) -> str:
    """Return *message* as one line that no terminal obeys: names in it can be a guest's."""
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


class PolicyError(VisRuntimeError, ValueError):
    """The policy is wrong, so nothing was started.

    ``field`` names the policy field (``"write[0]"``, ``"limits.memory"``) and ``value`` what it held.
    ``file`` and ``line`` (from 1) say where it was written, if it came from a policy file.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(_shown(message))
        self.field = field
        self.value = value
        self.file = file
        self.line = line


class PolicyUnsupported(PolicyError):
    """The policy is well formed, but this machine or version cannot enforce one of its clauses.

    ``field`` names the clause. Nothing was started and nothing was weakened.
    """


class JailUnavailable(VisRuntimeError):
    """No jail can be opened on this machine, so nothing was started.

    ``stage`` and ``errno`` say which step the kernel refused; ``fix`` is the sentence that
    tells what would help. ``reason`` is a code where no kernel was asked: "platform", this
    version has no such jail for the system; "library", a part of it is missing; "feature", this
    Windows lacks something that the jail needs; "system", a call of Windows failed; "readback",
    what Windows made is not what was asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        errno: int | None = None,
        reason: str | None = None,
        fix: str = "",
    ) -> None:
        message = _shown(message)
        super().__init__(f"{message}. {fix}" if fix else message)
        self.stage = stage
        self.errno = errno
        self.reason = reason
        self.fix = fix


class JailClosed(VisRuntimeError):
    """The jail is closed, or it ended while the call was under way."""


class JailPoisoned(JailClosed):
    """A step of a `WindowsJail` failed, and what it had begun could not be taken back.

    Nothing more is staged or started in it. ``close`` ends and removes what is left, and may be
    called again until it does.
    """


class JailSealed(VisRuntimeError):
    """Nothing more is staged into a `WindowsJail` once its first program was started."""


class WindowsCallFailed(VisRuntimeError, OSError):
    """A call of Windows failed; ``step`` says for what, ``winerror`` is its code."""

    def __init__(self, message: str, *, step: str, winerror: int) -> None:
        super().__init__(_shown(message))
        self.step = step
        self.winerror = winerror

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CommandError(VisRuntimeError):
    """Something about one program that was run in a jail; ``result`` holds what is known of it.

    Where the class is an `OSError` too, ``errno`` is what the kernel answered inside.
    """

    def __init__(self, message: str, *, result: Any = None) -> None:
        super().__init__(message)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CommandNotFound(CommandError, FileNotFoundError):
    """The program does not exist in the jail's view (exit code 127 in a shell)."""


class CommandNotExecutable(CommandError, PermissionError):
    """The program exists in the jail's view but cannot be executed (exit code 126 in a shell)."""


class CommandTimeout(CommandError, TimeoutError):
    """``timeout=`` ran out; the whole process tree was killed. ``result`` holds the output so far."""


class CommandFailed(CommandError):
    """``check=True`` was asked for and the program did not exit with code 0."""


class LimitExceeded(VisRuntimeError):
    """A limit of the policy ended the work.

    ``kind`` is the name of the limit, ``limit`` and ``peak`` are in the unit of that limit
    (``peak`` is ``None`` where nothing measured it).
    """

    def __init__(
        self, message: str, *, kind: str, limit: float | None = None, peak: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.limit = limit
        self.peak = peak


class OutputLimitExceeded(LimitExceeded):
    """A message or stream was larger than the policy lets through."""


class PathDenied(VisRuntimeError, PermissionError):
    """A file operation on ``path`` was refused by the policy or by the jail.

    ``errno`` is what the kernel answered inside, ``None`` where it was not asked.
    """

    def __init__(self, message: str, *, path: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.errno = errno

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class EnvironmentNotBuilt(VisRuntimeError):
    """An environment could not be built, and nothing of it is kept.

    ``output`` is the end of what uv said in the build's jail, without control characters.
    """

    def __init__(self, message: str, *, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class ForkRefused(VisRuntimeError):
    """The worker cannot be copied in its present state; it goes on as before.

    The reason is the worker's claim: it has threads, say, which a fork would not copy.
    """


class BundleRefused(VisRuntimeError):
    """A platform archive is missing, not what its manifest says, or not for this machine.

    ``archive`` is its path or name. Nothing of it was executed.
    """

    def __init__(self, message: str, *, archive: str = "") -> None:
        super().__init__(_shown(message))
        self.archive = archive


class PoolExhausted(VisRuntimeError):
    """Every runtime that a pool may have is borrowed, and none came back in time."""


class WorkerDied(VisRuntimeError):
    """The Python worker ended during the call; its session state is lost.

    ``result`` carries the output so far, ``exit_code`` or ``signal`` the measured end, and
    ``stopped_by`` the limit or act that ended it, if one did. ``report`` is a `CrashReport`, which
    says what is known of the reason; ``None`` where the worker was ended between two calls.
    """

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        stopped_by: str | None = None,
        result: Any = None,
        report: Any = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.signal = signal
        self.stopped_by = stopped_by
        self.result = result
        self.report = report


class WorkerPaused(VisRuntimeError):
    """The worker was paused when the call was to begin; nothing was sent, and it is as before.

    No time limit counts a pause, so the call could only have waited for another thread.
    """


class ProtocolViolation(VisRuntimeError):
    """The worker sent something that its protocol does not allow, and was ended for it."""


class GuestError(VisRuntimeError):
    """The guest's code raised an exception.

    All of it is the guest's claim: ``type_name``, ``message``, ``frames`` and the rendered
    ``traceback`` are text that untrusted code produced.
    """

    def __init__(
        self,
        type_name: str,
        message: str,
        *,
        frames: tuple[Any, ...] = (),
        traceback: str = "",
        result: Any = None,
    ) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message
        self.frames = frames
        self.traceback = traceback
        self.result = result

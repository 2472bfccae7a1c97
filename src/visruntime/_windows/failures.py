"""What a failed call of a `WindowsJail` means to its caller."""

from __future__ import annotations

from visruntime.errors import (
    CommandNotExecutable,
    CommandNotFound,
    JailClosed,
    JailPoisoned,
    JailSealed,
    JailUnavailable,
    PathDenied,
    PolicyError,
    WindowsCallFailed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime._native.windows import WindowsError

__all__ = ["as_public_error"]

NO_FILE = (2, 3)
"""ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND."""
NO_PROGRAM = (5, 193, 216)
"""ERROR_ACCESS_DENIED, ERROR_BAD_EXE_FORMAT, ERROR_EXE_MACHINE_TYPE_MISMATCH."""


def as_public_error(
    error: WindowsError, *, sources: Sequence[str] = (), program: str = ""
) -> Exception:
    """Return what to raise for *error* of a call about *sources*, or one that starts *program*."""
    said, step = str(error), error.step
    source = sources[error.index] if 0 <= error.index < len(sources) else ""
    match error.status:
        case "refused":
            return PolicyError(f"{step}: {said}", field=step, value=source or None)
        case "unavailable":
            return JailUnavailable(said, stage=step, errno=error.winerror or None, reason="feature")
        case "mismatch":
            return JailUnavailable(
                f"{said}; nothing of the program ran", stage=step, reason="readback"
            )
        case "stale" | "closing":
            return JailClosed(said)
        case "state":
            return JailSealed(said)
        case "poisoned":
            return JailPoisoned(f"{said}; close() may be called again and finishes")
        case "changed":
            return PathDenied(f"{source or step}: {said}", path=source)
        case "ended":
            return BrokenPipeError(32, said)
        case "timed_out":
            return TimeoutError(said)
        case "no_memory":
            return MemoryError(said)
    if program and step == "process" and error.winerror in NO_FILE:
        return CommandNotFound(f"{program}: {said}")
    if program and step == "process" and error.winerror in NO_PROGRAM:
        return CommandNotExecutable(f"{program}: {said}")
    return WindowsCallFailed(f"{step}: {said}", step=step, winerror=error.winerror)

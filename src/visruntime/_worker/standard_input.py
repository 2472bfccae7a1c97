"""What each worker of a runtime has as its standard input."""

from __future__ import annotations

import fcntl
import os

from visruntime._arguments import check_whole
from visruntime._worker.terminal import WorkerTerminal

__all__ = ["WorkerInput", "check_stdin"]

_FIRST_OWN = 3
"""The numbers below are the host's standard streams, even where it has closed them."""


class WorkerInput:
    """The file of a caller's descriptor, under a number of our own.

    A later worker gets it, too: the caller's number may be another file by then, which nobody
    meant to give away.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = -1
        self._descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN)

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor.

        Raises:
            ValueError: it was given back.
        """
        if self._descriptor < 0:
            raise ValueError("the descriptor of stdin= was given back")
        return self._descriptor

    def close(self) -> None:
        """Give it back; again is nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def check_stdin(stdin: int | str | None) -> WorkerInput | WorkerTerminal | None:
    """Read the ``stdin=`` of a runtime.

    Raises:
        ValueError: it is text that names no mode, or a number that is no open descriptor.
        TypeError: it is neither text nor a number.
    """
    if stdin is None or stdin == "empty":
        return None
    if stdin == "pty":
        return WorkerTerminal()
    if isinstance(stdin, str):
        raise ValueError(  # noqa: TRY004 (text is right, this one is not)
            f'stdin: {stdin[:100]!r} is neither a descriptor nor "empty" nor "pty"; text for one run '
            "goes to run(stdin=...)"
        )
    check_whole(stdin, "stdin", 0)
    try:
        os.fstat(stdin)
    except OSError:
        raise ValueError(f"stdin: {stdin} is no descriptor that is open here") from None
    return WorkerInput(stdin)

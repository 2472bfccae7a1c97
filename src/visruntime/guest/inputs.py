"""Standard input of one run: bytes that came with the request, or questions to the host."""

from __future__ import annotations

import builtins
import io
import os
import sys

from .frames import INPUT
from .limits import MAX_PROMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .session import Session


def give(data: bytes) -> Callable[[], None]:
    """Make descriptor 0 and ``sys.stdin`` read *data*, for C code and children too.

    Returns what puts the old ones back.
    """
    ours = _make_file()
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(ours, rest) :]
        os.lseek(ours, 0, os.SEEK_SET)
        try:
            before = os.dup(0)
        except OSError:
            before = -1  # the guest closed it
        os.dup2(ours, 0)
    finally:
        if ours != 0:
            os.close(ours)
    stream = sys.stdin
    # Open until the end of the run, or as long as the guest keeps it.
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115

    def undo() -> None:
        sys.stdin = stream
        if before >= 0:
            os.dup2(before, 0)
            os.close(before)
        else:
            os.close(0)

    return undo


def _make_file() -> int:
    """Return the descriptor of an empty file that has no name, or goes with its last user."""
    if sys.platform != "win32":
        return os.memfd_create("stdin")
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def ask_host(session: Session) -> Callable[[], None]:
    """Let ``input()``, ``getpass`` and ``sys.stdin`` ask the host; return what ends that."""

    def ask(prompt: object = "", /) -> str:
        return _line(session, prompt, password=False)

    stream, asking = sys.stdin, builtins.input
    sys.stdin = _Asking(session)
    builtins.input = ask
    session.asks = True

    # ARG001: callers of getpass() may name the stream, and here there is none.
    def hidden(prompt: object = "Password: ", stream: object = None, **_: object) -> str:  # noqa: ARG001
        return _line(session, prompt, password=True)

    getpass: list[tuple[Any, Any]] = []

    def watch(module: Any) -> None:
        getpass.append((module, module.getpass))
        module.getpass = hidden

    session.imports.when_imported("getpass", watch)

    def undo() -> None:
        session.asks = False
        sys.stdin = stream
        builtins.input = asking
        session.imports.forget("getpass")
        for module, function in getpass:
            module.getpass = function

    return undo


def _line(session: Session, prompt: object, *, password: bool) -> str:
    sys.stdout.flush()
    answer = _ask(session, prompt, password=password)
    if answer is None:
        raise EOFError("EOF when reading a line")
    return answer


def _ask(session: Session, prompt: object, *, password: bool) -> str | None:
    question = {"prompt": str(prompt)[:MAX_PROMPT], "password": password}
    answer: str | None = session.ask_host(INPUT, question)
    return answer


class _Asking(io.TextIOBase):
    """A ``sys.stdin`` each line of which comes from the host."""

    encoding = "utf-8"
    name = "<host>"
    mode = "r"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rest = ""

    def readable(self) -> bool:
        return True

    def _more(self) -> str:
        answer = _ask(self._session, "", password=False)
        return "" if answer is None else f"{answer}\n"

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        line, self._rest = self._rest or self._more(), ""
        first, found, after = line.partition("\n")
        line, self._rest = first + found, after
        if size is not None and 0 <= size < len(line):
            line, self._rest = line[:size], line[size:] + self._rest
        return line

    def read(self, size: int | None = -1, /) -> str:
        if size is None or size < 0:
            return "".join(iter(self.readline, ""))
        return self.readline(size)

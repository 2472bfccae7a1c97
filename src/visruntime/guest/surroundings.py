"""What one run has for itself: standard input, arguments, directory, variables, globals."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .session import Session


def arrange(session: Session, request: dict[str, Any], undo: list[Callable[[], object]]) -> None:
    """Set up what *request* asks for; *undo* gets what takes each step back, the first one first."""
    argv, cwd, env, stdin = (request.get(name) for name in ("argv", "cwd", "env", "stdin"))
    if argv is not None:
        undo.append(_replace_argv(list(argv)))
    if cwd is not None:
        undo.append(_change_directory(cwd))
    if env:
        undo.append(_set_variables(env))
    if request.get("fresh"):
        undo.append(session.begin_fresh())
    if stdin is not None:
        from . import inputs

        undo.append(inputs.ask_host(session) if stdin is True else inputs.give(stdin))


def _replace_argv(argv: list[str]) -> Callable[[], None]:
    before = sys.argv
    sys.argv = argv

    def undo() -> None:
        sys.argv = before

    return undo


def _change_directory(cwd: str) -> Callable[[], None]:
    if sys.platform == "win32":  # where a folder has no descriptor, and none moves while in use
        place = os.getcwd()
        os.chdir(cwd)
        return lambda: os.chdir(place)
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(cwd)
    except BaseException:
        os.close(before)
        raise

    def undo() -> None:
        try:
            os.fchdir(before)
        finally:
            os.close(before)

    return undo


def _set_variables(env: dict[str, str]) -> Callable[[], None]:
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)

    def undo() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return undo

"""What a runtime asks of its worker: the arguments of a run, checked and as plain data."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from visruntime.guest.limits import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ask", "check_unknown", "names", "run_request", "text"]

Ask = Callable[[str, bool], "str | None"]
"""Answers a prompt of the guest; told whether it is for a password. ``None`` is end of file."""


def run_request(
    code: str,
    inputs: Mapping[str, Any] | None,
    filename: str | None,
    argv: list[str] | None,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdin: str | bytes | Ask | None,
    *,
    isolation: str,
    tasks: str,
    unknown: str | None,
) -> tuple[dict[str, Any], Ask | None]:
    """Build the request for one run; with who answers its questions for input.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    ask: Ask | None = None
    given: bytes | bool | None = None
    if isinstance(stdin, str):
        given = stdin.encode("utf-8", "surrogateescape")
    elif isinstance(stdin, (bytes, bytearray, memoryview)):
        given = bytes(stdin)
    elif callable(stdin):
        given, ask = True, stdin
    elif stdin is not None:
        raise TypeError(
            f"stdin: expected text, bytes or a function, not {type(stdin).__name__}; a "
            "descriptor is given to the runtime, since it serves every run"
        )
    if isolation not in {"session", "fresh"}:
        raise ValueError(f'isolation: {isolation!r} is neither "session" nor "fresh"')
    if tasks not in {"keep", "cancel"}:
        raise ValueError(f'tasks: {tasks!r} is neither "keep" nor "cancel"')
    request: dict[str, Any] = {
        "op": "run",
        "code": text(code, "code"),
        "inputs": names(inputs),
        "filename": None if filename is None else text(filename, "filename"),
    }
    around: dict[str, Any] = {
        "argv": None if argv is None else [text(word, "argv") for word in argv],
        "cwd": None if cwd is None else text(os.fspath(cwd), "cwd"),
        "env": _variables(env) or None,
        "stdin": given,
        "fresh": True if isolation == "fresh" else None,
    }
    around = {name: value for name, value in around.items() if value is not None}
    if around:
        request["around"] = around
    if tasks == "cancel":
        request["tasks"] = tasks
    if unknown is not None:
        request["unknown"] = check_unknown(unknown)
    return request, ask


def check_unknown(word: str) -> str:
    """Check what is to become of values that are no data."""
    if word not in UNKNOWN:
        raise ValueError(f'unknown: {word!r} is not "handle", "repr" or "error"')
    return word


def text(value: object, name: str) -> str:
    """Check that the argument *name* is text."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, not {type(value).__name__}")
    return value


def names(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check that inputs are named as Python names."""
    for name in inputs or ():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"inputs: {name!r} is not a Python name")
    return dict(inputs or {})


def _variables(env: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (env or {}).items():
        if not name or "=" in name or "\0" in text(name, "env"):
            raise ValueError(f"env: {name!r} is no name of a variable")
        if "\0" in text(value, f"env[{name!r}]"):
            raise ValueError(f"env: the value of {name} has a NUL character")
    return dict(env or {})

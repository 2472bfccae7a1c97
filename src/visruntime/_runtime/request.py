"""What a runtime asks of its worker: the arguments of a run, checked and as plain data."""

from __future__ import annotations

from collections.abc import Callable
from keyword import iskeyword

from visruntime._arguments import check_mapping, check_path, check_text, check_texts, check_word
from visruntime.guest.limits import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any

__all__ = ["Ask", "check_name", "check_unknown", "names", "run_request", "variables"]

Ask = Callable[[str, bool], "str | None"]
"""Answers a prompt of the guest; told whether it is for a password. ``None`` is end of file."""


def run_request(
    *,
    code: str,
    inputs: Mapping[str, Any] | None,
    filename: str | None,
    argv: list[str] | None,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdin: str | bytes | Ask | None,
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
    check_word(isolation, "isolation", ("session", "fresh"))
    check_word(tasks, "tasks", ("keep", "cancel"))
    request: dict[str, Any] = {
        "op": "run",
        "code": check_text(code, "code"),
        "inputs": names(inputs),
        "filename": None if filename is None else check_text(filename, "filename"),
    }
    around: dict[str, Any] = {
        "argv": None if argv is None else check_texts(argv, "argv", '["prog", "-v"]'),
        "cwd": None if cwd is None else check_path(cwd, "cwd"),
        "env": variables(env) or None,
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


def check_name(name: object, argument: str) -> str:
    """Check that code of the guest can use *name* as a variable."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{argument}: {name!r:.100} is not a Python name")
    if iskeyword(name):
        raise ValueError(
            f"{argument}: {name} is a keyword of Python, so no code could use the name"
        )
    return name


def check_unknown(word: str) -> str:
    """Check what is to become of values that are no data."""
    if word not in UNKNOWN:
        raise ValueError(f'unknown: {word!r} is not "handle", "repr" or "error"')
    return word


def names(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check that inputs are named as Python names."""
    given = {} if inputs is None else dict(check_mapping(inputs, "inputs"))
    for name in given:
        check_name(name, "inputs")
    return given


def variables(env: Mapping[str, str] | None) -> dict[str, str]:
    """Check that each of *env* is a variable that a process can have."""
    given = {} if env is None else dict(check_mapping(env, "env"))
    for name, value in given.items():
        if not check_text(name, "env") or "=" in name or "\0" in name:
            raise ValueError(f"env: {name!r} is no name of a variable")
        if "\0" in check_text(value, f"env[{name!r}]"):
            raise ValueError(f"env: the value of {name} has a NUL character")
    return given

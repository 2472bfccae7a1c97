"""Checks of arguments: what is wrong is said at once, by the argument's name, before anything starts.

Each returns the value, or raises a TypeError or ValueError that says what is needed instead.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

__all__ = [
    "check_data",
    "check_function",
    "check_list",
    "check_mapping",
    "check_path",
    "check_seconds",
    "check_switch",
    "check_text",
    "check_texts",
    "check_whole",
    "check_word",
]

_SHOWN = 60
"""Characters of a wrong value that a message repeats."""


def _wrong(name: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{name}: expected {wanted}, not {type(value).__name__}")


def check_text(value: object, name: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise _wrong(name, "text", value)
    return value


def check_switch(value: object, name: str) -> bool:
    """Return True or False; a text such as ``"no"`` is neither."""
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def check_word(value: object, name: str, words: Sequence[str]) -> str:
    """Return one of *words*."""
    if not isinstance(value, str) or value not in words:
        known = ", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"'
        raise ValueError(f"{name}: {known}, not {ascii(value)[:_SHOWN]}")
    return value


def check_path(value: object, name: str, wanted: str = "a path (text or os.PathLike)") -> str:
    """Return the text of a path, which is text or a `Path` of text."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise _wrong(name, wanted, value)
    if "\0" in path:
        raise ValueError(f"{name}: NUL in {ascii(path)[:_SHOWN]}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {ascii(path)[:_SHOWN]} has no bytes on this system") from None
    return path


def check_seconds(
    value: Any, name: str, *, positive: bool = False, past: bool = False
) -> float | None:
    """Return a number of seconds, or ``None`` for no limit.

    With *positive* it is not 0; with *past* it may be less, as what is left of a time that is over.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, "a number of seconds", value)
    if not (value >= 0 or (past and value < 0)) or (positive and value == 0):  # NaN as well
        least = "a positive number" if positive else "0 or more"
        raise ValueError(f"{name}: {least} of seconds, not {value}")
    return value


def check_whole(value: Any, name: str, least: int, most: int | None = None) -> int:
    """Return a whole number from *least* to *most*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "a whole number", value)
    if value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}: a whole number {bounds}, not {value}")
    return value


def check_function(value: Any, name: str) -> Callable[..., Any]:
    """Return what can be called."""
    if not callable(value):
        raise _wrong(name, "a function", value)
    function: Callable[..., Any] = value
    return function


def check_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    """Return a mapping, such as a dict."""
    if not hasattr(value, "keys") or not hasattr(value, "items"):
        raise _wrong(name, "a mapping such as a dict", value)
    mapping: Mapping[Any, Any] = value
    return mapping


def check_list(value: Any, name: str, example: str = "") -> list[Any]:
    """Return the items of a list or another iterable that is neither a single text nor a mapping."""
    if not isinstance(value, (str, bytes, bytearray)) and not hasattr(value, "keys"):
        try:
            return list(value)
        except TypeError:
            pass
    raise _wrong(name, f"a list{example and f' such as {example}'}", value)


def check_texts(value: Iterable[str], name: str, example: str = "") -> list[str]:
    """Return a list of texts."""
    return [
        check_text(one, f"{name}[{index}]")
        for index, one in enumerate(check_list(value, name, example))
    ]


def check_data(value: Any, name: str) -> bytes:
    """Return bytes; a number or a list of numbers, which `bytes` takes as well, is a mistake."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        fix = "; text becomes bytes by .encode()" if isinstance(value, str) else ""
        raise TypeError(f"{name}: expected bytes, not {type(value).__name__}{fix}")
    return bytes(value)

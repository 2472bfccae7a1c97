"""The ``repr`` of a value that a guest sent, for the host's own: bounded, and it never raises."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from visruntime.guest.values import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_REPR", "brief"]

MAX_REPR = 10_000
"""Longest ``repr`` of a value that is shown, in characters."""

_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def brief(value: Any) -> str:
    """``repr`` of a guest's value; of a large one only its type, of an array type and shape.

    What numpy writes of an array's items depends on bytes that the guest chose: of texts of a
    megabyte it takes minutes and gigabytes, and some it cannot write at all.
    """
    text = _Text()
    try:
        text.add_value(value)
    except _TooLongError:
        return f"<{type(value).__name__}, too large to be shown>"
    except Exception:  # noqa: BLE001 (no value of a guest may break a repr of the host)
        return f"<{type(value).__name__}, not to be shown>"
    return "".join(text.parts)


class _TooLongError(Exception):
    pass


class _Text:
    """What is written so far, and how many characters more may be."""

    __slots__ = ("parts", "room")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.room = MAX_REPR

    def add(self, part: str) -> None:
        self.expect(len(part))
        self.room -= len(part)
        self.parts.append(part)

    def expect(self, length: int) -> None:
        if length > self.room:
            raise _TooLongError

    def add_value(self, value: Any) -> None:
        kind = type(value)
        if kind is dict:
            self.add("{")
            self.add_pairs(value.items())
            self.add("}")
        elif kind is Record:
            self.add(repr(Record(value.kind, value.type_name, {}))[:-2])
            self.add_fields(value)
            self.add(")>")
        elif kind is tuple:
            self.add("(")
            self.add_all(value)
            self.add(",)" if len(value) == 1 else ")")
        elif kind in _BRACKETS and (value or kind is list):
            before, after = _BRACKETS[kind]
            self.add(before)
            self.add_all(value)
            self.add(after)
        else:
            self.add(self.leaf(value))

    def add_all(self, values: Iterable[Any]) -> None:
        for at, value in enumerate(values):
            if at:
                self.add(", ")
            self.add_value(value)

    def add_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for at, (key, value) in enumerate(pairs):
            if at:
                self.add(", ")
            self.add_value(key)
            self.add(": ")
            self.add_value(value)

    def add_fields(self, record: Record) -> None:
        for at, (name, value) in enumerate(record.fields.items()):
            if at:
                self.add(", ")
            self.expect(len(name))
            self.add(name if name.isprintable() else ascii(name)[1:-1])
            self.add("=")
            self.add_value(value)

    def leaf(self, value: Any) -> str:
        """Write what has no parts; its length is known before, where the guest chose it."""
        if isinstance(value, (str, bytes, bytearray)):
            self.expect(len(value))
        elif isinstance(value, int):
            self.expect(value.bit_length() // 4)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            return f"<ndarray {value.dtype.str} {value.shape}>"
        return repr(value)

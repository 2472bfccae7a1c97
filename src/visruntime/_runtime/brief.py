"""The ``repr`` of a value that a guest sent, for the host's own: bounded, and it never raises."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque

from visruntime.guest.values import Handle, Record, Repr, standard_reducer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

__all__ = ["MAX_REPR", "brief"]

MAX_REPR = 10_000
"""Longest ``repr`` of a value that is shown, in characters."""
MAX_INT_BITS = 14_000
"""Largest int whose digits are shown; Python refuses to write more than 4,300 of them."""

_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    dict: ("{", "}"),
    OrderedDict: ("OrderedDict({", "})"),
    Counter: ("Counter({", "})"),
}
_EMPTY: dict[type, str] = {
    set: "set()",
    frozenset: "frozenset()",
    OrderedDict: "OrderedDict()",
    Counter: "Counter()",
}
_MAPPINGS = (dict, OrderedDict, Counter)
_PLAIN = (type(None), bool, float, complex, str, bytes, bytearray, Handle, Repr)
_ARRAYS = (("visruntime.guest.arrays", "Array"), ("visruntime.guest.arrays", "Table"))


def brief(value: Any) -> str:
    """``repr`` of a guest's value; of a large one only its type, of an array type and shape.

    What numpy writes of an array's items depends on bytes that the guest chose: of texts of a
    megabyte it takes minutes and gigabytes, and some it cannot write at all. So no ``repr`` is asked
    that might ask an array for its own: only those of types whose parts are known.
    """
    text = _Text()
    try:
        text.add_value(value)
    except (_TooLongError, RecursionError):
        return f"<{type(value).__name__}, too large to be shown>"
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
        if kind in _BRACKETS:
            self.add_container(kind, value)
        elif kind is defaultdict:
            self.add(f"defaultdict({value.default_factory!r}, {{")
            self.add_pairs(value.items())
            self.add("})")
        elif kind is deque:
            self.add("deque([")
            self.add_all(value)
            self.add("])" if value.maxlen is None else f"], maxlen={value.maxlen})")
        elif kind is Record:
            self.add(repr(Record(value.kind, value.type_name, {}))[:-2])
            self.add_fields(value.fields)
            self.add(")>")
        elif not self.add_instance(kind, value):
            self.add(self.leaf(kind, value))

    def add_container(self, kind: type, value: Any) -> None:
        if not value and kind in _EMPTY:
            self.add(_EMPTY[kind])
            return
        before, after = _BRACKETS[kind]
        self.add(before)
        if kind in _MAPPINGS:
            self.add_pairs(value.items())
        else:
            self.add_all(value)
        self.add(",)" if kind is tuple and len(value) == 1 else after)

    def add_instance(self, kind: Any, value: Any) -> bool:
        """Write an instance of a class that the owner has listed; whether it is one."""
        enum = sys.modules.get("enum")  # without which there is no instance of one
        if enum is not None and isinstance(kind, enum.EnumType):
            self.add(f"<{kind.__qualname__}.{value._name_}: ")
            self.add_value(value._value_)
            self.add(">")
            return True
        if hasattr(kind, "__dataclass_fields__"):
            fields = sys.modules["dataclasses"].fields(kind)
            shown = {field.name: _read(value, field.name) for field in fields if field.repr}
        elif issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple:
            shown = dict(zip(kind._fields, value, strict=False))
        else:
            return False
        self.add(f"{kind.__qualname__}(")
        self.add_fields(shown)
        self.add(")")
        return True

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

    def add_fields(self, fields: Mapping[str, Any]) -> None:
        for at, (name, value) in enumerate(fields.items()):
            if at:
                self.add(", ")
            self.expect(len(name))
            self.add(name if name.isprintable() else ascii(name)[1:-1])
            self.add("=")
            self.add_value(value)

    def leaf(self, kind: type, value: Any) -> str:
        """Write what has no parts; its length is known before, where the guest chose it."""
        if kind in (str, bytes, bytearray):
            self.expect(len(value))
        if kind is int and value.bit_length() > MAX_INT_BITS:
            return f"<int of {value.bit_length()} bits>"
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray:
            return f"<ndarray {value.dtype.str} {value.shape}>"
        known = kind is int or kind in _PLAIN or standard_reducer(kind) is not None
        if known or (kind.__module__, kind.__name__) in _ARRAYS:
            try:
                return repr(value)
            except ValueError:  # of an int where this process lets fewer digits be written
                pass
        return f"<{kind.__qualname__}>"


def _read(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except Exception as problem:  # noqa: BLE001 (a property of the owner's class)
        return problem

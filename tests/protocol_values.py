"""The values of the protocol, written from doc/reference/protocol.md alone; pure, for any system."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

__all__ = ["Composite", "Reader", "Violation", "decode", "encode"]


class Violation(Exception):
    """The worker said what the document does not allow."""


COMPOSITES = {
    0x20: ("range", 3),
    0x21: ("date", 3),
    0x22: ("time", 6),
    0x23: ("datetime", 9),
    0x24: ("timedelta", 3),
    0x25: ("timezone", 2),
    0x26: ("decimal", 1),
    0x27: ("fraction", 2),
    0x28: ("uuid", 1),
    0x29: ("path", 1),
    0x2A: ("record", 3),
    0x2B: ("handle", 3),
    0x2C: ("buffer", 2),
    0x2D: ("array", 3),
    0x2E: ("table", 1),
}
TAGS = {name: tag for tag, (name, _) in COMPOSITES.items()}
FIXED = {0x04: "<b", 0x05: "<i", 0x06: "<q", 0x08: "<d"}


class Composite(NamedTuple):
    """An item with fields that this host leaves as they are."""

    kind: str
    fields: tuple[Any, ...]


def encode(value: object) -> bytes:
    """Encode what this host sends."""
    return b"\x01" + item(value)


def item(value: Any) -> bytes:
    """Encode one item."""
    if value is None or isinstance(value, bool):
        return {None: b"\x01", False: b"\x02", True: b"\x03"}[value]
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return b"\x08" + struct.pack("<d", value)
    if isinstance(value, str):
        return sized(0x0A, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return sized(0x0B, value)
    if isinstance(value, Composite):
        return bytes([TAGS[value.kind]]) + b"".join(map(item, value.fields))
    if isinstance(value, dict):
        parts = [item(part) for pair in value.items() for part in pair]
        return struct.pack("<BI", 0x14, len(value)) + b"".join(parts)
    kinds: dict[type, int] = {list: 0x10, tuple: 0x11, set: 0x12, frozenset: 0x13}
    tag = kinds[type(value)]
    return struct.pack("<BI", tag, len(value)) + b"".join(map(item, value))


def sized(tag: int, content: bytes) -> bytes:
    """Encode what is a length and its bytes."""
    return struct.pack("<BI", tag, len(content)) + content


def integer(value: int) -> bytes:
    """Encode an int in the shortest form that holds it."""
    for tag, bits, form in ((0x04, 7, "<b"), (0x05, 31, "<i"), (0x06, 63, "<q")):
        if -(1 << bits) <= value < 1 << bits:
            return bytes([tag]) + struct.pack(form, value)
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return sized(0x07, value.to_bytes(size, "little", signed=True))


def decode(data: bytes) -> Any:
    """Decode exactly one value."""
    reader = Reader(data)
    if reader.take(1) != b"\x01":
        raise Violation("another version of values")
    value = reader.item(0)
    if reader.at != len(data):
        raise Violation("bytes after the value")
    return value


class Reader:
    """Reads items, each length checked against what is left."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """Take the next *size* bytes."""
        if size > len(self.data) - self.at:
            raise Violation("a length is longer than the value")
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self, size: int) -> int:
        """Take a length of parts that have at least so many bytes each."""
        number: int = struct.unpack("<I", self.take(4))[0]
        if number * size > len(self.data) - self.at:
            raise Violation("more parts than bytes")
        return number

    def item(self, depth: int) -> Any:
        """Take one item."""
        tag = self.take(1)[0]
        if depth > 64:
            raise Violation("too deep")
        if tag in (0x01, 0x02, 0x03):
            return (None, False, True)[tag - 1]
        if tag in FIXED:
            return struct.unpack(FIXED[tag], self.take(struct.calcsize(FIXED[tag])))[0]
        if tag == 0x09:
            return complex(*struct.unpack("<dd", self.take(16)))
        if tag in (0x07, 0x0A, 0x0B, 0x0C):
            content = self.take(self.count(1))
            if tag == 0x07:
                return int.from_bytes(content, "little", signed=True)
            return content.decode("utf-8", "surrogatepass") if tag == 0x0A else content
        if tag in (0x10, 0x11, 0x12, 0x13):
            items = [self.item(depth + 1) for _ in range(self.count(1))]
            return {0x10: list, 0x11: tuple, 0x12: set, 0x13: frozenset}[tag](items)
        if tag == 0x14:
            return {self.item(depth + 1): self.item(depth + 1) for _ in range(self.count(2))}
        if tag in COMPOSITES:
            kind, number = COMPOSITES[tag]
            return Composite(kind, tuple(self.item(depth + 1) for _ in range(number)))
        raise Violation(f"no tag {tag:#x}")

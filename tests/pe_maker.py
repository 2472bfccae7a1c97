"""PE files of a few hundred bytes that tests make themselves, whole or with one thing wrong."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HARDENED = 0x160  # HIGH_ENTROPY_VA, DYNAMIC_BASE, NX_COMPAT
X64, ARM64, I386 = 0x8664, 0xAA64, 0x14C
_START, _RAW = 0x1000, 0x400
_HEADERS = 0x80


def pe_file(
    *,
    machine: int = X64,
    library: bool = True,
    characteristics: int = HARDENED,
    subsystem: int = 3,
    exports: Sequence[str] = (),
    forwarded: Sequence[str] = (),
    imports: Mapping[str, Sequence[str | int]] | None = None,
    delayed: Sequence[str] = (),
    code: int = 0x60000020,
    magic: int = 0x20B,
) -> bytes:
    """Return a file with one section, whose characteristics *code* are, and nothing to execute.

    A number among *imports* is a function that is asked for by its number. Of *exports*, those in
    *forwarded* lead to another library.
    """
    body = bytearray()

    def put(data: bytes) -> int:
        """Append and return the address that it has in memory."""
        body.extend(b"\0" * (-len(body) % 8))
        at = _START + len(body)
        body.extend(data)
        return at

    def text(name: str) -> int:
        return put(name.encode() + b"\0")

    directories = [(0, 0)] * 16
    if exports:
        names = [text(name) for name in exports]
        name_table = put(struct.pack(f"<{len(names)}I", *names))
        numbers = put(struct.pack(f"<{len(names)}H", *range(len(names))))
        functions = len(body) + (-len(body) % 8)
        # Forwarders lie within the directory of exports, which is how they are told apart.
        begin = _START + functions
        size = 4 * len(names) + 40 + 64
        addresses = [begin + 8 if name in forwarded else _START - 8 for name in exports]
        function_table = put(struct.pack(f"<{len(names)}I", *addresses))
        count = len(names)
        table = (0, 0, 0, 0, 0, 1, count, count, function_table, name_table, numbers)
        at = put(struct.pack("<IIHHIIIIIII", *table))
        # The directory has to begin with the table itself: put it where its size covers both.
        directories[0] = (at, size)
        if forwarded:
            inside = put(b"other.function\0")
            index = function_table - _START
            for number, name in enumerate(exports):
                if name in forwarded:
                    struct.pack_into("<I", body, index + 4 * number, inside)
            directories[0] = (at, inside + 16 - at)
    if imports:
        rows = b""
        for name, functions_of in imports.items():
            values = [
                1 << 63 | each if isinstance(each, int) else put(b"\0\0" + each.encode() + b"\0")
                for each in functions_of
            ]
            lookups = put(struct.pack(f"<{len(values) + 1}Q", *values, 0))
            rows += struct.pack("<IIIII", lookups, 0, 0, text(name), lookups)
        directories[1] = (put(rows + bytes(20)), len(rows) + 20)
    if delayed:
        rows = b"".join(struct.pack("<IIIIIIII", 1, text(n), 0, 0, 0, 0, 0, 0) for n in delayed)
        directories[13] = (put(rows + bytes(32)), len(rows) + 32)
    optional = bytearray(112)
    struct.pack_into("<H", optional, 0, magic)
    struct.pack_into("<HH", optional, 68, subsystem, characteristics)
    struct.pack_into("<I", optional, 108, 16)
    optional += b"".join(struct.pack("<II", *each) for each in directories)
    flags = 0x22 | (0x2000 if library else 0)
    header = b"PE\0\0" + struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), flags)
    section = struct.pack(
        "<8sIIIIIIHHI", b".text", len(body), _START, len(body) + 8, _RAW, 0, 0, 0, 0, code
    )
    whole = bytearray(b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", _HEADERS))
    whole = whole.ljust(_HEADERS, b"\0") + header + bytes(optional) + section
    return bytes(whole.ljust(_RAW, b"\0") + body + bytes(8))

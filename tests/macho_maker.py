"""Mach-O files of a few hundred bytes that tests make themselves, whole or with one thing wrong."""

from __future__ import annotations

import struct

ARM64, X86_64 = 0x0100000C, 0x01000007
SYSTEM = "/usr/lib/libSystem.B.dylib"


def text(command: int, value: str, fields: int = 4) -> bytes:
    """Return a load command with a string behind *fields* numbers."""
    start = 8 + 4 * fields
    raw = value.encode() + b"\0"
    raw += b"\0" * (-(start + len(raw)) % 8)
    numbers = struct.pack("<I", start) + b"\0" * 4 * (fields - 1)
    return struct.pack("<II", command, start + len(raw)) + numbers + raw


def version(oldest: int = 12 << 16, platform: int = 1) -> bytes:
    """Return the command that says for which system a file is."""
    return struct.pack("<IIIIII", 0x32, 24, platform, oldest, oldest, 0)


SIGNATURE = struct.pack("<IIII", 0x1D, 16, 0, 0)
GOOD = (text(0xC, SYSTEM), version(), SIGNATURE)


def macho(*commands: bytes, machine: int = ARM64, kind: int = 2, flags: int = 0x200085) -> bytes:
    """Return a Mach-O file of these load commands."""
    body = b"".join(commands)
    header = struct.pack(
        "<IIIIIIII", 0xFEEDFACF, machine, 0, kind, len(commands), len(body), flags, 0
    )
    return header + body

#!/usr/bin/env python3
"""Refuse Mach-O files that would not load on the oldest macOS that we name, or reach beyond it.

    scripts/gates/macho.py FILE... [--machine arm64] [--oldest 12.0]

Rules for each file: a program or library for 64 bits and the machine that is named; built for a
macOS no newer than the oldest one; no library but libSystem; at random addresses; for arm64
signed, if only by its own linker, since that kernel starts nothing else.
"""

from __future__ import annotations

import argparse
import struct
import sys
from pathlib import Path

__all__ = ["MachoFile", "NotMacho", "problems"]

LIBRARIES = frozenset(("/usr/lib/libSystem.B.dylib",))
MACHINES = {"x86_64": 0x01000007, "arm64": 0x0100000C}
MAGIC_64 = 0xFEEDFACF
EXECUTABLE, LIBRARY = 2, 6
HEADER = struct.Struct("<IIIIIIII")
COMMAND = struct.Struct("<II")
# Load commands by their numbers in loader.h; the highest bit says that the loader must know it.
LOADS = {0xC, 0x80000018, 0x8000001F, 0x80000023}  # plain, weak, re-exported, upward
OWN_NAME, SYMBOLS, SIGNATURE, SEARCH, OLD_VERSION, VERSION = 0xD, 0x2, 0x1D, 0x8000001C, 0x24, 0x32
RANDOM_ADDRESS = 0x200000
MACOS = 1
MOST_COMMANDS = 10_000


class NotMacho(ValueError):
    """The bytes are no Mach-O file of 64 bits, or one that is cut."""


class MachoFile:
    """What a loader reads of a Mach-O file of 64 bits."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        magic, self.machine, _, self.kind, count, _, self.flags, _ = self._take(HEADER, 0)
        if magic != MAGIC_64:
            raise NotMacho("no Mach-O file of 64 bits")
        if count > MOST_COMMANDS:
            raise NotMacho("more load commands than any file has")
        self.libraries: list[str] = []
        self.searches: list[str] = []
        self.oldest: tuple[int, int] | None = None
        self.platform = MACOS
        self.is_signed = False
        self.exports: list[str] = []
        self.imports: list[str] = []
        at = HEADER.size
        for _ in range(count):
            command, size = self._take(COMMAND, at)
            if size < COMMAND.size or at + size > len(data):
                raise NotMacho("a load command that is cut")
            self._read(command, at, size)
            at += size

    def _take(self, form: struct.Struct, at: int) -> tuple[int, ...]:
        try:
            return form.unpack_from(self._data, at)
        except struct.error:
            raise NotMacho("the file is cut") from None

    def _read(self, command: int, at: int, size: int) -> None:
        if command in LOADS:
            self.libraries.append(self._text(at, size))
        elif command == SEARCH:
            self.searches.append(self._text(at, size))
        elif command == SIGNATURE:
            self.is_signed = True
        elif command == VERSION:
            self.platform, oldest = self._take(struct.Struct("<II"), at + 8)
            self.oldest = (oldest >> 16, oldest >> 8 & 0xFF)
        elif command == OLD_VERSION:
            (oldest,) = self._take(struct.Struct("<I"), at + 8)
            self.oldest = (oldest >> 16, oldest >> 8 & 0xFF)
        elif command == SYMBOLS:
            self._symbols(*self._take(struct.Struct("<IIII"), at + 8))

    def _text(self, at: int, size: int) -> str:
        (offset,) = self._take(struct.Struct("<I"), at + 8)
        raw = self._data[at + offset : at + size]
        if offset >= size or b"\0" not in raw:
            raise NotMacho("a name that does not end")
        return raw[: raw.index(b"\0")].decode("utf-8", "replace")

    def _symbols(self, at: int, count: int, strings: int, size: int) -> None:
        names = self._data[strings : strings + size]
        form = struct.Struct("<IBBHQ")
        if at + count * form.size > len(self._data) or len(names) != size:
            raise NotMacho("a table of symbols that is cut")
        for number in range(count):
            offset, kind, _, _, _ = self._take(form, at + number * form.size)
            if kind & 0xE0 or not kind & 1 or kind & 0x10:
                continue  # for debuggers, not external, or private to the linker
            end = names.find(b"\0", offset)
            if end < 0:
                raise NotMacho("a name that does not end")
            name = names[offset:end].decode("utf-8", "replace")
            (self.exports if kind & 0x0E else self.imports).append(name)


def problems(
    data: bytes, *, machine: str = "arm64", oldest: tuple[int, int] = (12, 0)
) -> list[str]:
    """Return what is wrong with a file, in words; nothing for one that may be shipped."""
    try:
        file = MachoFile(data)
    except NotMacho as error:
        return [str(error)]
    found = []
    if file.machine != MACHINES[machine]:
        found.append(f"is for another machine than {machine}")
    if file.kind not in (EXECUTABLE, LIBRARY):
        found.append("is neither a program nor a library")
    if file.platform != MACOS:
        found.append("is for another system than macOS")
    if file.oldest is None:
        found.append("does not say which macOS it needs")
    elif file.oldest > oldest:
        found.append(f"needs macOS {'.'.join(map(str, file.oldest))}")
    found += [f"needs {library}" for library in file.libraries if library not in LIBRARIES]
    found += [f"searches {path}" for path in file.searches]
    if file.kind == EXECUTABLE and not file.flags & RANDOM_ADDRESS:
        found.append("lies at a fixed address")
    if machine == "arm64" and not file.is_signed:
        found.append("is not signed, and no arm64 Mac starts it")
    return found


def main() -> int:
    """Judge the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--machine", choices=sorted(MACHINES), default="arm64")
    parser.add_argument("--oldest", default="12.0")
    options = parser.parse_args()
    major, minor = map(int, options.oldest.split("."))
    bad = 0
    for path in options.files:
        for problem in problems(path.read_bytes(), machine=options.machine, oldest=(major, minor)):
            sys.stderr.write(f"{path}: {problem}\n")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

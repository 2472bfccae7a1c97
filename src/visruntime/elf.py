"""Read what a program file says about itself, without running it."""

from __future__ import annotations

import os
import struct

from visruntime._host.files import open_followed

__all__ = ["Program"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<QQ")
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NEEDED, _STRTAB, _STRSZ, _RPATH, _RUNPATH = 1, 5, 10, 15, 29
_MACHINES = {"x86_64": 62, "aarch64": 183}
_MAX_TABLE = 16 * 1024 * 1024
"""Largest table of text that is read, in bytes."""
_MAX_SEGMENTS = 256
_MAX_ENTRIES = 4096
"""Most entries of the dynamic section; a large program has a hundred."""
_MAX_NEEDED = 512
_MAX_OFFSET = (1 << 63) - 1
"""Highest that the kernel takes."""
_MAX_TEXT = 4096
"""Longest name of a library or list of folders to search, in bytes."""


class Program:
    """The dynamic section of a 64-bit ELF file.

    ``needed`` are the libraries it names, ``search`` the directories it wants them searched in
    (``$ORIGIN`` replaced), ``loader`` the path of what starts it (``None``: nothing does).

    Raises:
        OSError: it cannot be opened, or is no regular file: what lies beside a program may be a
            guest's, and nothing here waits for it.
        ValueError: with a reason, when the file is no such program for this machine.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with open(open_followed(path), "rb") as file:
            self._descriptor = file.fileno()
            head = os.pread(self._descriptor, _HEADER.size, 0)
            if head.startswith(b"#!"):
                raise ValueError("it is a script, not a program (a version manager's shim?)")
            if head[:4] != b"\x7fELF":
                raise ValueError("it is not an ELF program")
            if len(head) < _HEADER.size or head[4] != 2 or head[5] != 1:
                raise ValueError("it is not a 64-bit little-endian program")
            fields = _HEADER.unpack(head)
            if fields[2] != _MACHINES.get(os.uname().machine, fields[2]):
                raise ValueError(f"it is made for another processor than {os.uname().machine}")
            self._segments = self._read_segments(fields[5], fields[10])
            self.loader: str | None = self._read_loader()
            self._strings = b""
            self.needed: list[str]
            self.search: list[str]
            self.needed, self.search = self._read_dynamic()

    def _read_at(self, offset: int, size: int) -> bytes:
        if offset + size > _MAX_OFFSET:
            raise ValueError("it is cut short")
        return os.pread(self._descriptor, size, offset)

    def _read(self, offset: int, size: int) -> bytes:
        data = self._read_at(offset, min(size, _MAX_TABLE))
        if len(data) < min(size, _HEADER.size):
            raise ValueError("it is cut short")
        return data

    def _read_segments(self, offset: int, count: int) -> list[tuple[int, int, int, int]]:
        if count > _MAX_SEGMENTS:
            raise ValueError(f"it has {count} segments, and at most {_MAX_SEGMENTS} are read")
        table = self._read(offset, count * _SEGMENT.size)
        segments = []
        for index in range(len(table) // _SEGMENT.size):
            kind, _, start, address, _, size, _, _ = _SEGMENT.unpack_from(
                table, index * _SEGMENT.size
            )
            segments.append((kind, start, address, size))
        return segments

    def _read_loader(self) -> str | None:
        for kind, start, _, size in self._segments:
            if kind == _INTERPRETER:
                text = self._read_at(start, min(size, _MAX_TEXT))
                return os.fsdecode(text.partition(b"\0")[0])
        return None

    def _offset(self, address: int) -> int:
        for kind, start, base, size in self._segments:
            if kind == _LOAD and base <= address < base + size:
                return start + address - base
        raise ValueError("its dynamic section is malformed")

    def _text(self, index: int) -> str:
        end = self._strings.find(b"\0", index, index + _MAX_TEXT + 1)
        if end < 0:
            raise ValueError(f"a text in it is longer than {_MAX_TEXT} bytes")
        return os.fsdecode(self._strings[index:end])

    def _read_dynamic(self) -> tuple[list[str], list[str]]:
        entries: list[tuple[int, int]] = []
        for kind, start, _, size in self._segments:
            if kind == _DYNAMIC and not entries:
                if size > _MAX_ENTRIES * _ENTRY.size:
                    raise ValueError("its dynamic section is too large")
                table = self._read(start, size)
                entries = [_ENTRY.unpack_from(table, at) for at in range(0, len(table) - 15, 16)]
        values = dict(entries)
        if _STRTAB not in values or _STRSZ not in values:
            return [], []
        self._strings = self._read(self._offset(values[_STRTAB]), values[_STRSZ])
        origin = os.path.dirname(os.path.realpath(self.path))
        needed: list[str] = []
        search: list[str] = []
        searched = set()
        for tag, value in entries:
            if tag == 0:
                break
            if tag == _NEEDED:
                needed.append(self._text(value))
                if len(needed) > _MAX_NEEDED:
                    raise ValueError(f"it names more than {_MAX_NEEDED} libraries")
            elif tag in (_RPATH, _RUNPATH) and tag not in searched:
                searched.add(tag)
                text = self._text(value).replace("${ORIGIN}", "$ORIGIN")
                parts = text.replace("$ORIGIN", origin).split(":")
                search += [os.path.normpath(part) for part in parts]
        return needed, search

    def names(self, symbol: str) -> bool:
        """Whether *symbol* is among the names of the dynamic section."""
        return b"\0" + symbol.encode() + b"\0" in self._strings

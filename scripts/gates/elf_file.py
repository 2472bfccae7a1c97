"""Read from an ELF file what decides where it runs, by what its loader will read.

Section headers are not looked at: tools drop or rewrite them, and no loader reads them.
"""

from __future__ import annotations

import struct

__all__ = ["ElfFile"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_VERSIONS_NEEDED = struct.Struct("<HHIII")
_VERSION_NEEDED = struct.Struct("<IHHII")
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_STACK, _RELRO = 0x6474E551, 0x6474E552
_NEEDED, _STRINGS, _RPATH, _TEXT_RELOCATIONS, _BIND_NOW, _RUNPATH, _FLAGS = 1, 5, 15, 22, 24, 29, 30
_FLAGS_1, _VERNEED, _VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF
_EXECUTABLE = 1
_MACHINES = {62: "x86_64", 183: "aarch64"}


class ElfFile:
    """What an ELF file asks of the machine that loads it.

    ``kind`` is 2 for a program at fixed addresses and 3 for all that can lie anywhere;
    ``versions`` are pairs (library, symbol version).

    Raises:
        ValueError: it is no 64-bit little-endian ELF file, or is cut short.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        if data[:4] != b"\x7fELF" or data[4:6] != b"\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        try:
            self._read()
        except (struct.error, IndexError) as error:
            raise ValueError(f"a broken ELF file: {error}") from None

    def _read(self) -> None:
        fields = _HEADER.unpack_from(self._data)
        self.kind: int = fields[1]
        self.machine = _MACHINES.get(fields[2], str(fields[2]))
        self._segments = [
            _SEGMENT.unpack_from(self._data, fields[5] + index * _SEGMENT.size)
            for index in range(fields[10])
        ]
        kinds = {segment[0]: segment for segment in self._segments}
        self.executable_stack = _STACK not in kinds or bool(kinds[_STACK][1] & _EXECUTABLE)
        self.relro = _RELRO in kinds
        self.interpreter: str | None = None
        if _INTERPRETER in kinds:
            self.interpreter = self._text(kinds[_INTERPRETER][2])
        entries = self._dynamic(kinds[_DYNAMIC]) if _DYNAMIC in kinds else []
        values = dict(entries)
        strings = self._offset(values[_STRINGS]) if _STRINGS in values else 0
        names = {tag: [self._text(strings + v) for t, v in entries if t == tag]
                 for tag in (_NEEDED, _RPATH, _RUNPATH)}  # fmt: skip
        self.needed = names[_NEEDED]
        self.overruled = bool(names[_RUNPATH])
        """Whether LD_LIBRARY_PATH goes before the places that it names."""
        self.search = [part for text in names[_RPATH] + names[_RUNPATH] for part in text.split(":")]
        flags, flags_1 = values.get(_FLAGS, 0), values.get(_FLAGS_1, 0)
        self.text_relocations = _TEXT_RELOCATIONS in values or bool(flags & 4)
        self.bind_now = _BIND_NOW in values or bool(flags & 8) or bool(flags_1 & 1)
        self.program = self.kind == 2 or self.interpreter is not None or bool(flags_1 & 0x08000000)
        self.versions: list[tuple[str, str]] = []
        if _VERNEED in values:
            self._read_versions(self._offset(values[_VERNEED]), values[_VERNEEDNUM], strings)

    def _read_versions(self, at: int, count: int, strings: int) -> None:
        for _ in range(count):
            _, inner, file, first, following = _VERSIONS_NEEDED.unpack_from(self._data, at)
            library = self._text(strings + file)
            one = at + first
            for _ in range(inner):
                _, _, _, name, next_one = _VERSION_NEEDED.unpack_from(self._data, one)
                self.versions.append((library, self._text(strings + name)))
                one += next_one
            at += following

    def _dynamic(self, segment: tuple[int, ...]) -> list[tuple[int, int]]:
        entries = []
        for at in range(segment[2], segment[2] + segment[5], _ENTRY.size):
            tag, value = _ENTRY.unpack_from(self._data, at)
            if tag == 0:
                break
            entries.append((tag, value))
        return entries

    def _offset(self, address: int) -> int:
        for kind, _, offset, start, _, size, *_ in self._segments:
            if kind == _LOAD and start <= address < start + size:
                return int(offset + address - start)
        raise ValueError("a broken ELF file: an address in no segment")

    def _text(self, offset: int) -> str:
        end = self._data.index(b"\0", offset)
        return self._data[offset:end].decode("utf-8", "backslashreplace")

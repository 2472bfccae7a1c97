"""Read from a PE file what decides where it runs, by what the loader of Windows will read.

The layout is the PE format's, as Microsoft documents it: headers, then directories of exports and
imports by addresses in the loaded image.
"""

from __future__ import annotations

import struct

__all__ = ["PeFile"]

_FILE_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_EXPORTS = struct.Struct("<IIHHIIIIIII")
_IMPORT = struct.Struct("<IIIII")
_DELAYED = struct.Struct("<IIIIIIII")
_PE32_PLUS = 0x20B
_DIRECTORIES = 112  # where the table of directories begins in the optional header of PE32+
_BY_NUMBER = 1 << 63
_LIBRARY = 0x2000
_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_MOST_NAMES = 65536


class PeFile:
    """What a PE file asks of the machine that loads it.

    ``imports`` has the names of each library, which is written in lower case; a function that is
    imported by its number is named ``#number``. ``forwarded`` are exports that another library
    has to provide. ``characteristics`` are the DllCharacteristics of the optional header.

    Raises:
        ValueError: it is no 64-bit PE file, or is cut short.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        if data[:2] != b"MZ":
            raise ValueError("no PE file")
        try:
            self._read()
        except (struct.error, IndexError) as error:
            raise ValueError(f"a broken PE file: {error}") from None

    def _read(self) -> None:
        (at,) = struct.unpack_from("<I", self._data, 0x3C)
        if self._data[at : at + 4] != b"PE\0\0":
            raise ValueError("no PE file")
        fields = _FILE_HEADER.unpack_from(self._data, at + 4)
        self.machine = _MACHINES.get(fields[0], f"machine {fields[0]:#x}")
        self.library = bool(fields[6] & _LIBRARY)
        optional = at + 4 + _FILE_HEADER.size
        (magic,) = struct.unpack_from("<H", self._data, optional)
        if magic != _PE32_PLUS:
            raise ValueError("no 64-bit PE file")
        self.subsystem, self.characteristics = struct.unpack_from("<HH", self._data, optional + 68)
        (count,) = struct.unpack_from("<I", self._data, optional + 108)
        self._directories = [
            struct.unpack_from("<II", self._data, optional + _DIRECTORIES + 8 * index)
            for index in range(min(count, 16))
        ]
        self._sections = [
            _SECTION.unpack_from(self._data, optional + fields[5] + index * _SECTION.size)
            for index in range(fields[1])
        ]
        self.writable_code = [
            section[0].rstrip(b"\0").decode("ascii", "backslashreplace")
            for section in self._sections
            if section[9] & 0x20000000 and section[9] & 0x80000000
        ]
        self.exports: list[str] = []
        self.forwarded: list[str] = []
        self.imports: dict[str, list[str]] = {}
        self.delayed: list[str] = []
        self._read_exports()
        self._read_imports()

    def _directory(self, index: int) -> tuple[int, int]:
        return self._directories[index] if index < len(self._directories) else (0, 0)

    def _read_exports(self) -> None:
        start, size = self._directory(0)
        if not start:
            return
        fields = _EXPORTS.unpack_from(self._data, self._offset(start))
        functions, names, numbers = map(self._offset, fields[8:11])
        for index in range(min(fields[7], _MOST_NAMES)):
            (name,) = struct.unpack_from("<I", self._data, names + 4 * index)
            (number,) = struct.unpack_from("<H", self._data, numbers + 2 * index)
            (address,) = struct.unpack_from("<I", self._data, functions + 4 * number)
            text = self._text(self._offset(name))
            self.exports.append(text)
            if start <= address < start + size:
                self.forwarded.append(text)

    def _read_imports(self) -> None:
        start, _ = self._directory(1)
        at = self._offset(start) if start else None
        while at is not None:
            lookups, _, _, name, addresses = _IMPORT.unpack_from(self._data, at)
            if not name:
                break
            library = self._text(self._offset(name)).lower()
            self.imports.setdefault(library, []).extend(self._lookups(lookups or addresses))
            at += _IMPORT.size
        start, _ = self._directory(13)
        at = self._offset(start) if start else None
        while at is not None:
            fields = _DELAYED.unpack_from(self._data, at)
            if not fields[1]:
                break
            self.delayed.append(self._text(self._offset(fields[1])).lower())
            at += _DELAYED.size

    def _lookups(self, address: int) -> list[str]:
        at = self._offset(address)
        names: list[str] = []
        while len(names) < _MOST_NAMES:
            (value,) = struct.unpack_from("<Q", self._data, at)
            if not value:
                return names
            if value & _BY_NUMBER:
                names.append(f"#{value & 0xFFFF}")
            else:
                names.append(self._text(self._offset(value & 0x7FFFFFFF) + 2))
            at += 8
        raise ValueError("a broken PE file: imports without an end")

    def _offset(self, address: int) -> int:
        for section in self._sections:
            _, _, start, size, offset = section[:5]
            if start <= address < start + size:
                return int(offset + address - start)
        raise ValueError("a broken PE file: an address in no section")

    def _text(self, offset: int) -> str:
        end = self._data.find(b"\0", offset)
        if end < 0:
            raise ValueError("a broken PE file: a name without an end")
        return self._data[offset:end].decode("utf-8", "backslashreplace")

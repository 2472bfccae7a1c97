"""The pure C of Windows, built for this machine once and called from tests by cffi.

It is in no wheel for Linux; a test that asks for it builds it from the sources.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cffi import FFI

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["WindowsLibrary"]

NATIVE = Path(__file__).parent.parent / "native/visjail"
SOURCES = (
    "windows_text.c",
    "windows_command.c",
    "windows_names.c",
    "windows_identity.c",
    "sha256.c",
)
DECLARED = """
typedef struct { const char *at; size_t size; uint32_t count; } vj_windows_strings;
const char *vj_windows_fault_text(int fault);
uint16_t vj_windows_fold(uint16_t unit);
int vj_windows_utf16(const char *text, size_t length, uint16_t *to, size_t room, size_t *written);
int vj_windows_utf8(const uint16_t *text, size_t length, char *to, size_t room, size_t *written);
int vj_windows_command_line(const vj_windows_strings *arguments, uint16_t *to, size_t room,
                            size_t *written, uint32_t *index);
int vj_windows_environment(const vj_windows_strings *entries, const char *workspace, uint16_t *to,
                           size_t room, size_t *written, uint32_t *index);
int vj_windows_name_fault(const char *name, size_t length);
size_t vj_windows_find_clash(const char **paths, size_t count);
int vj_windows_package_sid(const char *name, char *sid);
int vj_windows_capability_sid(const char *name, char *sid);
void vj_sha256(const void *data, size_t size, uint8_t *digest);
"""
ROOM = 1 << 16


class WindowsLibrary:
    """What the tests call of it, with Python's own types."""

    def __init__(self, folder: Path, compiler: str) -> None:
        output = folder / "windows.so"
        command = [compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(output)]
        subprocess.run([*command, *(str(NATIVE / name) for name in SOURCES)], check=True)
        self._ffi: Any = FFI()
        self._ffi.cdef(DECLARED)
        self._lib: Any = self._ffi.dlopen(str(output))

    def _strings(self, texts: Sequence[bytes]) -> Any:
        packed = b"".join(text + b"\0" for text in texts)
        held = self._ffi.new("char[]", packed)
        strings = self._ffi.new("vj_windows_strings *", (held, len(packed), len(texts)))
        return strings, held

    def _units(self, call: Any, *arguments: Any) -> tuple[str, str]:
        to = self._ffi.new("uint16_t[]", ROOM)
        written = self._ffi.new("size_t *")
        fault = call(*arguments, to, ROOM, written)
        units = bytes(self._ffi.buffer(to, 2 * written[0]))
        return units.decode("utf-16-le", "surrogatepass"), self.fault(fault)

    def fault(self, number: int) -> str:
        """Return the sentence of a fault; nothing for none."""
        return self._ffi.string(self._lib.vj_windows_fault_text(number)).decode() if number else ""

    def fold(self, unit: int) -> int:
        """Return the unit by which *unit* is compared."""
        return int(self._lib.vj_windows_fold(unit))

    def utf16(self, text: bytes) -> tuple[str, str]:
        """Return (text, fault)."""
        return self._units(self._lib.vj_windows_utf16, text, len(text))

    def utf8(self, units: Sequence[int]) -> tuple[bytes, str]:
        """Return (text, fault)."""
        to = self._ffi.new("char[]", ROOM)
        written = self._ffi.new("size_t *")
        given = self._ffi.new("uint16_t[]", list(units))
        fault = self._lib.vj_windows_utf8(given, len(units), to, ROOM, written)
        return bytes(self._ffi.buffer(to, written[0])), self.fault(fault)

    def command_line(self, arguments: Sequence[bytes]) -> tuple[str, str]:
        """Return (command line, fault)."""
        strings, _held = self._strings(arguments)
        index = self._ffi.new("uint32_t *")
        return self._units(lambda *a: self._lib.vj_windows_command_line(strings, *a, index))

    def environment(self, entries: Sequence[bytes], workspace: bytes) -> tuple[str, str]:
        """Return (block, fault)."""
        strings, _held = self._strings(entries)
        index = self._ffi.new("uint32_t *")
        return self._units(
            lambda *a: self._lib.vj_windows_environment(strings, workspace, *a, index)
        )

    def name_fault(self, name: bytes) -> str:
        """Return what is wrong with the name of a file."""
        return self.fault(self._lib.vj_windows_name_fault(name, len(name)))

    def clashes(self, paths: Sequence[bytes]) -> bool:
        """Tell whether Windows takes two of *paths* for one."""
        held = [self._ffi.new("char[]", path) for path in paths]
        found = self._lib.vj_windows_find_clash(self._ffi.new("const char *[]", held), len(held))
        return bool(found < len(held))

    def sid(self, kind: str, name: str) -> str:
        """Return the identifier of the "package" or "capability" *name*."""
        sid = self._ffi.new("char[184]")
        getattr(self._lib, f"vj_windows_{kind}_sid")(name.encode(), sid)
        return str(self._ffi.string(sid).decode())

    def sha256(self, data: bytes) -> bytes:
        """Return the digest of *data*."""
        digest = self._ffi.new("uint8_t[32]")
        self._lib.vj_sha256(data, len(data), digest)
        return bytes(digest)

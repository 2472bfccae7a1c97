"""The C of Windows, built for this machine once and called from tests by cffi.

It is in no wheel for Linux; a test that asks for it builds it from the sources: what is pure alone, or
the whole of WindowsJail over a Windows of the tests' own (tests/native/fake_windows_os.h).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cffi import FFI

from visruntime._native.windows import WindowsCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TestedWindows", "WindowsLibrary", "declarations"]

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "native/visjail"
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
        sources = [NATIVE / name for name in SOURCES]
        self._ffi: Any = FFI()
        self._ffi.cdef(DECLARED)
        self._lib: Any = self._ffi.dlopen(_built(folder / "windows.so", compiler, sources))

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


def _built(output: Path, compiler: str, sources: Sequence[Path]) -> str:
    command = [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O0", "-shared", "-fPIC", "-pthread"]
    command += [f"-I{NATIVE}", f"-I{ROOT / 'tests/native'}", "-o", str(output)]
    subprocess.run([*command, *map(str, sources)], check=True)
    return str(output)


def declarations() -> str:
    """Return what windows_jail.h declares, as cffi reads it."""
    text = (NATIVE / "windows_jail.h").read_text()
    text = re.sub(r"//.*", "", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


CASE = ROOT / "tests/native/test_windows_jail.c"
"""Its lines `// sources:` name what the whole of WindowsJail is made of."""
CONTROLS = """
void fake_begin(const char *directory);
void fake_end(void);
void fake_lie(uint32_t lies);
void fake_lack(uint32_t missing);
void fake_fail(uint64_t number, uint32_t code);
void fake_fail_named(const char *name, uint32_t code);
uint64_t fake_calls(void);
void fake_forget(void);
unsigned fake_left(bool tell);
unsigned fake_running(void);
bool fake_ran(void);
void fake_console_size(uint16_t *columns, uint16_t *rows);
"""


class TestedWindows:
    """A Windows of the tests' own, whose drive C: is *folder*."""

    __test__ = False

    def __init__(self, build: Path, compiler: str) -> None:
        named = re.findall(r"^// sources: (.*)$", CASE.read_text(), re.MULTILINE)
        sources = [ROOT / name for line in named for name in line.split()]
        self.ffi: Any = FFI()
        self.ffi.cdef(declarations() + CONTROLS)
        self.lib: Any = self.ffi.dlopen(_built(build / "jail.so", compiler, sources))
        self.calls = WindowsCalls(self.ffi, self.lib)

    def begin(self, folder: Path) -> None:
        """Start a fresh machine with the folders ``jails`` and ``sources``."""
        for name in ("jails", "sources/lib"):
            (folder / name).mkdir(parents=True)
        (folder / "sources/guest.exe").write_text("a program")
        (folder / "sources/lib/one.py").write_text("one = 1")
        self.lib.fake_begin(str(folder).encode())

    def end(self) -> None:
        """End it; what is left of any jail is an error."""
        left = self.lib.fake_left(True)
        self.lib.fake_end()
        assert left == 0, f"{left} objects are left; their kinds are in standard error"

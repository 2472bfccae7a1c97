"""No Windows file is shipped that would not load, or that exports or asks for another list (W69)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cross_build
import pytest
from gates import pe
from gates.pe_file import PeFile
from pe_maker import ARM64, I386, pe_file

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

NAMES = ["vj_windows_close", "vj_windows_create"]
IMPORTS = {"KERNEL32.dll": ["CreateFileW"], "msvcrt.dll": ["malloc"], "bcrypt.dll": ["Bcrypt"]}


def found(tmp_path: Path, data: bytes, **options: object) -> list[str]:
    """Return what the gate says of one file, without its name."""
    (tmp_path / "a.dll").write_bytes(data)
    broken = pe.problems(tmp_path, exports=NAMES, **options)  # type: ignore[arg-type]
    return [each.removeprefix("a.dll: ") for each in broken]


def test_a_whole_file_passes(tmp_path: Path) -> None:
    """W69: nothing is refused in a library as it should be, with what it needs and exports."""
    data = pe_file(exports=NAMES, imports=IMPORTS)
    file = PeFile(data)
    assert (file.machine, file.library, sorted(file.exports)) == ("x86_64", True, NAMES)
    assert file.imports == {
        "kernel32.dll": ["CreateFileW"],
        "msvcrt.dll": ["malloc"],
        "bcrypt.dll": ["Bcrypt"],
    }
    assert found(tmp_path, data) == []


WRONG = [
    ({"machine": ARM64}, "is for aarch64, not for x86_64"),
    ({"machine": I386, "magic": 0x10B}, "no 64-bit PE file"),
    ({"subsystem": 9}, "is for the subsystem 9"),
    ({"characteristics": 0x140}, "lies in the lower 4 GiB"),
    ({"characteristics": 0x120}, "lies at fixed addresses"),
    ({"characteristics": 0x60}, "may execute its data"),
    ({"code": 0xE0000020}, "has code that can be written (.text)"),
    ({"exports": [*NAMES, "vj_secret"]}, "exports vj_secret, which no header declares"),
    ({"exports": NAMES[:1]}, "does not export vj_windows_create"),
    ({"forwarded": NAMES[:1]}, "exports vj_windows_close of another library"),
    ({"imports": {"shell32.dll": ["a"]}},
     "needs shell32.dll, which is not among the libraries of the native code"),
    ({"imports": {"libgcc_s_seh-1.dll": ["a"]}},
     "needs libgcc_s_seh-1.dll, which is not among the libraries of the native code"),
    ({"imports": {"userenv.dll": ["CreateAppContainerProfile"]}},
     "binds CreateAppContainerProfile at load time, and some systems have none"),
    ({"imports": {"kernel32.dll": ["CreatePseudoConsole"]}},
     "binds CreatePseudoConsole at load time, and some systems have none"),
    ({"imports": {"ntdll.dll": [7]}}, "asks ntdll.dll for a function by its number"),
    ({"delayed": ["user32.dll"]}, "lets the loader find user32.dll late"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), WRONG)
def test_one_thing_wrong(tmp_path: Path, change: dict[str, object], rule: str) -> None:
    """W69, W63, W67: no rule can be broken unseen, and nothing else is said of the file."""
    whole: dict[str, object] = {"exports": NAMES, "imports": IMPORTS}
    assert found(tmp_path, pe_file(**{**whole, **change})) == [rule]  # type: ignore[arg-type]


def test_a_worker_may_ask_for_python(tmp_path: Path) -> None:
    """W69: the worker's core asks CPython's library for what python3.def names; no other does."""
    data = pe_file(exports=NAMES, imports={**IMPORTS, "python3.dll": ["PyLong_FromLong"]})
    said = "needs python3.dll, which is not among the libraries of the native code"
    assert found(tmp_path, data) == [said]
    assert found(tmp_path, data, also_needs=("python3.dll",)) == []
    assert found(tmp_path, data, also_needs=("python311.dll",)) == [said]
    assert "PyErr_SetInterruptEx" in cross_build.python_names()


def test_a_program_exports_nothing(tmp_path: Path) -> None:
    """W69: a program with a list of exports is refused, and one without needs none."""
    assert found(tmp_path, pe_file(library=False)) == []
    assert found(tmp_path, pe_file(library=False, exports=["a"])) == ["is a program and exports a"]


def test_nothing_to_judge(tmp_path: Path) -> None:
    """A folder without any PE file is no folder in which all is well."""
    (tmp_path / "a.txt").write_text("MX")
    assert pe.problems(tmp_path) == [f"{tmp_path}: no PE file in it"]


@pytest.mark.parametrize("length", range(0, 1000, 41))
def test_a_file_that_is_cut_short(tmp_path: Path, length: int) -> None:
    """W69: what ends in its middle is refused and not read beyond, wherever it ends."""
    data = pe_file(exports=NAMES, imports=IMPORTS)[:length]
    assert len(data) == length
    assert found(tmp_path, b"MZ" + data[2:] if length > 1 else b"MZ")


def test_what_a_header_declares() -> None:
    """W69: comments, types, macros and bodies declare nothing that has to be exported."""
    text = """
    // vj_comment(void) is none
    #define VJ_MACRO(x) vj_macro(x)
    typedef int (*vj_callback)(int);
    typedef struct { int (*vj_member)(void); } vj_table;
    static inline int vj_inline(int a) { return vj_callee(a); }
    int vj_first(const char *text,
                 int count);
    /* vj_other(void); */
    void vj_second(void);
    """
    assert pe.declared(text) == ["vj_first", "vj_second"]


def test_the_lists_of_files_are_whole() -> None:
    """W69: each C file for Windows is in a list that is compiled, and each that is listed exists."""
    lists = cross_build.NATIVE / "windows.cmake"
    listed = {
        *cross_build.words_of(lists, "VISJAIL_WINDOWS_SOURCES"),
        *cross_build.words_of(lists, "VISJAIL_DESKTOP_SOURCES"),
    }
    assert {path.name for path in cross_build.NATIVE.glob("windows_*.c")} <= listed
    assert [name for name in sorted(listed) if not (cross_build.NATIVE / name).is_file()] == []


def test_the_header_of_windows_is_nowhere_else() -> None:
    """W10: only the table and the helper see HANDLE; the public header has no type of Windows."""
    including = {
        path.name
        for path in cross_build.NATIVE.glob("*.[ch]")
        if "#include <windows.h>" in path.read_text()
    }
    assert including <= {"windows_win32.h", "windows_monitor.c"}
    header = (cross_build.NATIVE / "windows_jail.h").read_text()
    assert not [word for word in ("HANDLE ", "DWORD", "wchar_t", "HPCON") if word in header]

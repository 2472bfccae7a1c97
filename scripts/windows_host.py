"""A host in Python for the wine lane: this package, its modules compiled for a Python of Windows.

Its library is the lane's, whose table does without an AppContainer (tests/native/windows/lane_table.c),
since the one that is shipped refuses under wine. All else is what a wheel has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from cross_build import HELPER, NATIVE, ROOT, TESTS, compiler, windows_headers, words_of
from windows_python import folder_of, install_for_windows

if TYPE_CHECKING:
    from pathlib import Path

    from cross_build import Target

__all__ = ["build_host"]

EXTRAS = ("--extra", "aio", "--extra", "executor")
PARTS = ("_viscore.pyd", "_visconsole.pyd", "vispython.exe")


def build_host(target: Target, python: Path, work: Path) -> Path:
    """Put the package and what it imports into a folder below *work*; return that.

    The worker is there already, in ``worker``, and the helper of desktops in ``bin``.

    Raises:
        FileNotFoundError: the headers of CPython 3.11 are not installed.
    """
    host = work / "host"
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "visruntime", host / "visruntime", ignore=left_out)
    install_for_windows(host, "--no-dev", "--no-emit-project", *EXTRAS)
    for name in PARTS:
        shutil.copyfile(work / "worker" / name, host / "visruntime" / name)
    shutil.copyfile(work / "bin" / HELPER, host / "visruntime" / HELPER)
    _build_library(target, python, work, host / "visruntime" / "_visjail.pyd")
    return host


def _build_library(target: Target, python: Path, work: Path, output: Path) -> None:
    headers = folder_of("include")
    if headers is None:
        raise FileNotFoundError("no CPython 3.11 whose headers could be taken")
    declared, prelude, made = (work / f"library.{end}" for end in ("cdef.h", "csrc.c", "c"))
    text = (NATIVE / "windows_jail.h").read_text()
    declared.write_text(re.sub(r"^#.*$", "", text, flags=re.MULTILINE))
    prelude.write_text('#include "windows_jail.h"\n')
    files = [str(each) for each in (declared, prelude, made)]
    generate = [sys.executable, "-m", "cffi.gen_src", "read-sources", "visruntime._visjail"]
    subprocess.run([*generate, *files], check=True)
    names = words_of(NATIVE / "windows.cmake", "VISJAIL_WINDOWS_SOURCES")
    sources = [NATIVE / each for each in names if each != "windows_os_machine.c"]
    sources += sorted(TESTS.glob("lane*.c"))
    libraries = words_of(NATIVE / "windows.cmake", "VISJAIL_WINDOWS_LIBRARIES")
    flags = ["-std=c11", "-O2", "-shared", "-static-libgcc", "-DUNICODE", "-D_UNICODE"]
    flags += ["-DPy_LIMITED_API=0x030b0000", f"-I{NATIVE}"]
    flags += ["-isystem", str(windows_headers(headers, work / "library-include"))]
    link = [str(python / "python311.dll"), *(f"-l{each}" for each in libraries)]
    command = [*(compiler(target) or ()), *flags, "-o", str(output), str(made)]
    subprocess.run([*command, *map(str, sources), *link], check=True)

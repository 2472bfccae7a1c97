"""The files of macOS, built for this machine over calls of macOS that are made of Linux.

``tests/native/darwin`` has those calls. What runs is the code of macOS; a process is "in a sandbox" by
a mark, and nothing is denied to it. So this shows how programs start and end, and nothing of what
Seatbelt holds.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import build_macos

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["build_faults", "build_module", "build_programs"]

NATIVE = build_macos.ROOT / "tests" / "native"
DARWIN = NATIVE / "darwin"
COMPILE = (
    *("cc", "-std=gnu11", "-D_GNU_SOURCE", "-include", str(DARWIN / "darwin.h")),
    *(f"-I{DARWIN}", f"-I{build_macos.SOURCE}"),
)
STRICT = ("-Wall", "-Wextra", "-Werror")
# The linker puts the tests' own answers before those of the acts.
TRY = ("-Wl,--wrap=vj_try", str(DARWIN / "darwin_try.c"))
SHIM = str(DARWIN / "darwin.c")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=100)


def build_programs(out: Path, *names: str) -> None:
    """Build the programs of these names in *out*."""
    for name, sources in build_macos.parts().items():
        if name in names:
            more = TRY if name == "visjail-macos-init" else ()
            _run([*COMPILE, *STRICT, *sources, SHIM, *more, "-o", str(out / name)])


FAULTS = (
    *("pipe", "darwin_fcntl", "calloc", "kqueue", "kevent", "write", "read", "posix_spawn"),
    *("posix_spawnattr_init", "posix_spawn_file_actions_adddup2"),
)
"""The calls that fail one after the other."""


def build_faults(out: Path) -> Path:
    """Build, under sanitizers, the program whose calls fail one after the other."""
    wraps = [f"-Wl,--wrap={name}" for name in FAULTS]
    program = out / "macos-faults"
    library = build_macos.parts()["libvisjail.dylib"]
    _run(
        [*COMPILE, *STRICT, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
         *wraps, str(NATIVE / "macos_faults.c"), *library, SHIM, "-o", str(program)]
    )  # fmt: skip
    return program


def build_module(out: Path) -> Path:
    """Build ``_visjail`` of macOS in *out*, for this Python, and return its path."""
    source = build_macos.SOURCE
    for kind, names in (
        ("cdef.h", ("ffi.cdef.h", "ffi_macos.cdef.h")),
        ("csrc.c", ("ffi.csrc.c", "ffi_macos.csrc.c")),
    ):
        text = "".join((source / name).read_text(encoding="utf-8") for name in names)
        (out / f"_visjail.{kind}").write_text(text, encoding="utf-8")
    made, module = out / "_visjail.c", out / "_visjail.abi3.so"
    _run(
        [sys.executable, "-m", "cffi.gen_src", "read-sources", "visruntime._visjail",
         str(out / "_visjail.cdef.h"), str(out / "_visjail.csrc.c"), str(made)]
    )  # fmt: skip
    headers = sysconfig.get_paths()["include"]
    library = build_macos.parts()["libvisjail.dylib"]
    _run(
        [*COMPILE, "-shared", "-fPIC", "-DPy_LIMITED_API=0x030b0000", f"-I{headers}", str(made),
         *library, SHIM, "-o", str(module)]
    )  # fmt: skip
    return module

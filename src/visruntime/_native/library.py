"""The compiled modules, and what is wrong when a call of theirs fails."""

from __future__ import annotations

import os
import sys

if "t" in getattr(sys, "abiflags", ""):  # before they are looked for under another name
    raise ImportError(
        f"visruntime does not run on a free-threaded build of CPython ({sys.executable}): its compiled "
        "modules are for the stable ABI, which that has not; use a CPython with the GIL"
    )

from visruntime._visjail import __file__ as compiled
from visruntime._visjail import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "BINARY_DIRECTORY",
    "CORE_FILE",
    "PATH_MAX",
    "NativeError",
    "check",
    "ffi",
    "gone",
    "lib",
]

BINARY_DIRECTORY = os.path.dirname(os.path.abspath(compiled))
"""Where the compiled modules are, and in ``bin`` below it the executables."""

if sys.platform == "darwin":  # no worker is built for it
    CORE_FILE = ""
else:
    from visruntime._native.codec import CORE_FILE

PATH_MAX = 4096
"""Longest path that C takes, its NUL included."""
STATUS_NAMES = {lib.VJ_REFUSED: "refused", lib.VJ_SYSTEM: "system", lib.VJ_CLOSED: "closed"}


class NativeError(Exception):
    """A call of libvisjail failed.

    ``status`` is "refused", "system" or "closed"; ``stage`` names the step,
    ``errno`` the system's answer (0: none), ``index`` the operation of the plan (-1: none).
    """

    def __init__(self, status: str, stage: str, errno: int, index: int, text: str) -> None:
        super().__init__(f"{text}: {os.strerror(errno)}" if errno else text)
        self.status = status
        self.stage = stage
        self.errno = errno
        self.index = index


def gone() -> NativeError:
    """Make the error of who uses what was given back."""
    return NativeError("closed", "host", 0, -1, "it has been given back")


def check(status: int, error: Any) -> None:
    """Raise what a call says of itself; nothing where it went well."""
    if status == lib.VJ_OK:
        return
    if status == lib.VJ_NO_MEMORY:
        raise MemoryError
    raise NativeError(
        STATUS_NAMES.get(status, "system"),
        ffi.string(lib.vj_stage_name(error.stage)).decode(),
        error.os_error,
        error.index,
        ffi.string(error.text).decode(errors="replace"),
    )

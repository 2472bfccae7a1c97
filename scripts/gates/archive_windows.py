"""What only an archive for Windows has to have: a Python whose parts are named after its version.

Windows looks for a library beside the file that asks for it, and takes one of that name that the
process has already. So what a program asks for lies beside it, and what is loaded into CPython may
lie beside CPython's own library.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from gates.pe import LIBRARIES
from gates.pe_file import PeFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gates.contents import Entry

__all__ = ["MODULES", "problems", "version_digits"]

MODULES = tuple(
    """
    _asyncio _bz2 _ctypes _decimal _elementtree _hashlib _lzma _multiprocessing _overlapped _queue
    _socket _sqlite3 _ssl _uuid _zoneinfo pyexpat select unicodedata
    """.split()
)
"""The extension modules that a CPython of Windows has in files of their own, at least."""
_OTHERS = frozenset(
    """
    bcryptprimitives.dll cabinet.dll cfgmgr32.dll comctl32.dll crypt32.dll dbghelp.dll gdi32.dll
    iphlpapi.dll mpr.dll msi.dll msvcrt.dll ncrypt.dll ole32.dll oleaut32.dll pdh.dll
    powrprof.dll propsys.dll psapi.dll rpcrt4.dll secur32.dll shell32.dll shlwapi.dll
    ucrtbase.dll version.dll winmm.dll
    """.split()
)
_INTERFACE = re.compile(r"(api|ext)-ms-win-[a-z0-9-]+\.dll")
_PYTHON = "python"
_OF_WORKER = ("bin/_viscore.pyd", "bin/_visconsole.pyd")
"""Loaded into a CPython that the loader has loaded from `_PYTHON`."""


def version_digits(version: str) -> str:
    """Return the digits by which files of CPython *version* are named: "313" of "3.13.1"."""
    return "".join(version.split(".")[:2])


def problems(names: Mapping[str, Entry], version: str) -> Iterator[str]:
    """Yield what is missing for a CPython of *version* to start, in *names* below the root."""
    there = {name.lower() for name in names}
    digits = version_digits(version)
    if not there & {"python/lib/encodings/__init__.py", f"python/python{digits}.zip"}:
        yield "python: has no standard library"
    for module in MODULES:
        if not there & {f"python/dlls/{module}.pyd", f"python/{module}.pyd"}:
            yield f"python: has no {module}"
    for name, entry in sorted(names.items()):
        if entry.data[:2] == b"MZ":
            yield from _libraries(name, entry.data, there)


def _libraries(name: str, data: bytes, there: set[str]) -> Iterator[str]:
    try:
        asked = PeFile(data).imports
    except ValueError as error:
        yield f"{name}: {error}"
        return
    folders = {posixpath.dirname(name).lower()}
    if name in _OF_WORKER or name.startswith(f"{_PYTHON}/"):
        folders.add(_PYTHON)
    for library in sorted(asked):
        own = library in LIBRARIES | _OTHERS or _INTERFACE.fullmatch(library) is not None
        if not own and not any(f"{folder}/{library}" in there for folder in folders):
            yield f"{name}: needs {library}, which does not lie where it is looked for"

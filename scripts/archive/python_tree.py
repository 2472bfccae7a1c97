"""Repackage an installed CPython with a shared library, so that it runs from any folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from gates.elf import LIBRARIES
from gates.elf_file import ElfFile

__all__ = ["LEFT_OUT_MODULES", "MODULES", "PLACEHOLDER", "copy_python"]

MODULES = tuple(
    """
    _asyncio _bisect _blake2 _bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr
    _codecs_tw _contextvars _csv _ctypes _datetime _decimal _elementtree _hashlib _heapq
    _interpchannels _interpqueues _interpreters _json _lsprof _lzma _md5 _multibytecodec
    _multiprocessing _opcode _pickle _posixshmem _posixsubprocess _queue _random _sha1 _sha2 _sha3
    _socket _sqlite3 _ssl _statistics _struct _uuid _zoneinfo array binascii cmath fcntl grp math
    mmap pyexpat resource select syslog termios unicodedata zlib
    """.split()
)
"""The extension modules of the archive, exactly: a build of CPython that lacks a library drops a
module without an error."""
LEFT_OUT_MODULES = ("readline", "_gdbm", "_dbm", "_curses", "_curses_panel", "_tkinter")
"""What CPython would build where it finds the libraries: readline and gdbm are under the GPL, the
others no program without a screen of its own needs. Those for tests are left out, too."""
_LEFT_OUT = {
    *("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "site-packages", "__pycache__"),
    *("lib-dynload", "curses", "pydoc_data"),
}
_LEFT_OUT_FILES = {"turtle.py"}
PLACEHOLDER = "/visruntime/python"
"""What stands for the prefix of the build in text, until it is read."""
_RELOCATE = f"""
import os as _os

_prefix = _os.path.dirname(_os.path.dirname(_os.path.dirname(_os.path.abspath(__file__))))
build_time_vars = {{
    _name: _value.replace({PLACEHOLDER!r}, _prefix) if isinstance(_value, str) else _value
    for _name, _value in build_time_vars.items()
}}
"""
"""Put at the end of the build configuration: it then names the folder where the archive is."""


def copy_python(prefix: Path, target: Path) -> dict[str, Path]:
    """Copy the CPython below *prefix* to *target*.

    Returns:
        The libraries of the system that its modules need and got beside them, by name.

    Raises:
        ValueError: it has other modules than `MODULES`, or needs a library that is not there.
    """
    program = (prefix / "bin" / "python3").resolve()
    name = program.name
    shared = prefix / "lib" / f"lib{name}.so.1.0"
    if re.fullmatch(r"python3\.\d+", name) is None or not shared.is_file():
        raise ValueError(f"{prefix} is no CPython with a shared library")
    library = target / "lib" / name
    (target / "bin").mkdir(parents=True)
    _copy(program, target / "bin" / name)
    (target / "bin" / "python3").symlink_to(name)
    shutil.copytree(prefix / "lib" / name, library, symlinks=True, ignore=_ignored)
    _copy(shared, target / "lib" / shared.name)
    _copy_modules(prefix / "lib" / name / "lib-dynload", library / "lib-dynload")
    for path in library.glob("_sysconfigdata_*.py"):
        text = path.read_text().replace(str(prefix), PLACEHOLDER)
        path.write_text(text + _RELOCATE)
    (library / "site-packages").mkdir()
    (library / "site-packages" / "README").write_text("Packages go into environments, not here.\n")
    _strip([target / "bin" / name, target / "lib" / shared.name, *library.rglob("*.so")])
    return _graft(target, name)


def _ignored(folder: str, names: list[str]) -> set[str]:
    left_out = {each for each in names if each in _LEFT_OUT | _LEFT_OUT_FILES}
    left_out |= {each for each in names if each.startswith("config-") and "/lib/" in folder}
    return left_out | {each for each in names if each.endswith(".pyc")}


def _copy_modules(source: Path, target: Path) -> None:
    target.mkdir()
    found = {path.name.partition(".")[0]: path for path in source.glob("*.so")}
    missing = [name for name in MODULES if name not in found]
    if missing:
        raise ValueError(f"this CPython was built without {', '.join(missing)}")
    for name in MODULES:
        _copy(found[name], target / found[name].name)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) and target.suffix != ".so" else 0o644)


def _strip(files: list[Path]) -> None:
    subprocess.run(["strip", "--strip-unneeded", *files], check=True)


def _graft(target: Path, name: str) -> dict[str, Path]:
    """Put the libraries that are not on every system beside libpython, and let all look there."""
    places = {target / "bin" / name: "$ORIGIN/../lib"}
    places |= dict.fromkeys((target / "lib").glob("*.so*"), "$ORIGIN")
    modules = target / "lib" / name / "lib-dynload"
    places |= dict.fromkeys(modules.glob("*.so"), "$ORIGIN/../..")
    grafted: dict[str, Path] = {}
    waiting = list(places)
    while waiting:
        path = waiting.pop()
        elf = ElfFile(path.read_bytes())
        foreign = [each for each in elf.needed if each not in LIBRARIES]
        for library in foreign:
            copied = target / "lib" / library
            if not copied.exists():
                grafted[library] = _system_library(library)
                shutil.copyfile(grafted[library], copied)
                copied.chmod(0o644)
                places[copied] = "$ORIGIN"
                waiting.append(copied)
        _set_search(path, places[path] if foreign else "")
    return grafted


def _set_search(path: Path, search: str) -> None:
    mode = path.stat().st_mode
    # RPATH, since LD_LIBRARY_PATH goes before RUNPATH: the libraries of an archive are its own.
    how = ["--force-rpath", "--set-rpath", search] if search else ["--remove-rpath"]
    subprocess.run(["patchelf", *how, str(path)], check=True)
    path.chmod(mode & 0o777)


def _system_library(name: str) -> Path:
    listed = subprocess.run(
        ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
    ).stdout
    kind = {"x86_64": "x86-64", "aarch64": "AArch64"}[os.uname().machine]
    for line in listed.splitlines():
        words = line.split()
        if words and words[0] == name and kind in line:
            return Path(words[-1]).resolve()
    raise ValueError(f"{name} is needed and is not on this system")

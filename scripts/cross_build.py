#!/usr/bin/env python3
"""Compile the native code for other systems, and judge what came of it.

    uv run --isolated --only-group cross scripts/cross_build.py [--out FOLDER] [TARGET...]
    scripts/cross_build.py mingw-windows-x86_64        # without zig: seconds

TARGET is a compiler with a system and a machine, as in TARGETS; without one all are built. Nothing
of it is executed: that a file is whole, for its machine, hardened, needs only what every such
system has, and exports what the header declares, is read from the file itself (scripts/gates).
Every library of one system exports the same list, whatever built it.

zig keeps what it has compiled in VIS_CROSS_CACHE (by default ~/.cache/visruntime-cross), outside
of the repository: the first build for a machine takes minutes, the next ones seconds. A compiler
that is not there is named and left out; under VIS_REQUIRE_TOOLS=1 that fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import NamedTuple

from gates import pe
from gates.pe_file import PeFile

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native" / "visjail"
TESTS = ROOT / "tests" / "native" / "windows"
LIBRARY, HELPER = "visjail.dll", "visjail-desktop.exe"
GUEST, TABLE = "windows_guest.exe", "windows_table.exe"
PROBE, LANE, LAUNCHER = "windows_probe.exe", "windows_lane.exe", "windows_python.exe"
FAULTS = "windows_faults.exe"
FOR_TESTS = (GUEST, TABLE, PROBE, LANE, LAUNCHER, FAULTS)
"""Compiled as strictly, and not judged, for nobody gets them. The probe is a host of the library;
the lane is the same host with the library's objects and another table, for the wine lane alone.
The program of faults has the lane's table and the library's, whose calls of Win32 it lets fail."""

WORKER = ROOT / "native" / "vispython"
CORE, LOADER = "_viscore.pyd", "vispython.exe"
CORE_EXPORTS = ("PyInit__viscore", "viscore_install")
STABLE_ABI = "python3.dll"
"""The library of every CPython from 3.11 on, which leads to that of the one version."""

__all__ = [
    "TARGETS",
    "Target",
    "build",
    "build_worker",
    "cache",
    "compiler",
    "hardening",
    "problems",
    "python_names",
    "windows_headers",
    "words_of",
    "worker_problems",
]


class Target(NamedTuple):
    """A compiler, and what it compiles for."""

    compiler: str
    system: str
    machine: str

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"{self.compiler}-{self.system}-{self.machine}"


TARGETS = (
    Target("mingw", "windows", "x86_64"),
    Target("zig", "windows", "x86_64"),
    Target("zig", "windows", "aarch64"),
)
BESIDE = "visjail"
"""An option: the library that was built before."""


class Product(NamedTuple):
    """One file to link."""

    name: str
    sources: list[Path]
    options: list[str]
    before: Path | None = None
    """What the compiler reads before each file of the table (``windows_os*.c``)."""


def cache() -> Path:
    """Return the folder that outlives a build."""
    below = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("VIS_CROSS_CACHE") or os.path.join(below, "visruntime-cross"))


def words_of(file: Path, name: str) -> list[str]:
    """Return the words of ``set(name ...)`` in a file of CMake.

    Raises:
        ValueError: it sets no such list.
    """
    text = re.sub(r"#[^\n]*", "", file.read_text())
    match = re.search(rf"\bset\({name}\s+([^)]*)\)", text)
    if match is None:
        raise ValueError(f"{file} sets no {name}")
    return match[1].split()


def compiler(target: Target) -> list[str] | None:
    """Return the command of the compiler of *target*, or None if it is not there."""
    if target.compiler == "mingw":
        name = f"{target.machine}-w64-mingw32-gcc"
        return [name] if shutil.which(name) else None
    if importlib.util.find_spec("ziglang") is None:
        return None
    triple = f"{target.machine}-windows-gnu"
    return [sys.executable, "-m", "ziglang", "cc", "-target", triple]


def hardening(target: Target) -> list[str]:
    """Return the options by which a file is linked as what is shipped has to be."""
    if target.compiler != "mingw":  # zig does so by itself
        return []
    hard = ["-static-libgcc", "-Wl,--dynamicbase,--nxcompat,--high-entropy-va"]
    return [*hard, "-Wl,--no-insert-timestamp"]


def _flags() -> list[str]:
    warnings = words_of(ROOT / "CMakeLists.txt", "VIS_WARNINGS")
    # Plain C11, as the compiler of Windows takes it.
    flags = ["-std=c11", "-O2", *warnings, "-DUNICODE", "-D_UNICODE", "-municode"]
    return [*flags, f"-ffile-prefix-map={ROOT}=.", f"-I{NATIVE}"]


def _environment() -> dict[str, str]:
    places = {"ZIG_GLOBAL_CACHE_DIR": "zig", "ZIG_LOCAL_CACHE_DIR": "zig-local"}
    return {**os.environ, **{name: str(cache() / place) for name, place in places.items()}}


def _products(target: Target) -> list[Product]:
    lists = NATIVE / "windows.cmake"
    libraries = [f"-l{each}" for each in words_of(lists, "VISJAIL_WINDOWS_LIBRARIES")]
    sources = [NATIVE / each for each in words_of(lists, "VISJAIL_WINDOWS_SOURCES")]
    helper = [NATIVE / each for each in words_of(lists, "VISJAIL_DESKTOP_SOURCES")]
    hard = hardening(target)
    program = [*hard, "-municode"]
    guest, table, probe, lane = (
        sorted(TESTS.glob(f"{name}*.c")) for name in ("guest", "table", "probe", "lane")
    )
    other_table = [path for path in sources if path.name != "windows_os_machine.c"]
    sockets = ["-ladvapi32", "-lws2_32"]
    return [
        Product(LIBRARY, sources, [*hard, "-shared", str(NATIVE / "visjail.def"), *libraries]),
        Product(HELPER, helper, [*program, "-ladvapi32"]),
        Product(GUEST, guest, [*program, *sockets]),
        Product(TABLE, [*table, *sources], [*program, *libraries]),
        Product(PROBE, probe, [*program, *sockets, BESIDE]),
        Product(LAUNCHER, [TESTS / "launcher.c"], program),
        Product(LANE, [*probe, *lane, *other_table], [*program, *sockets, *libraries]),
        Product(
            FAULTS,
            [TESTS / "faults.c", *lane, *other_table],
            [*program, *libraries],
            TESTS / "faulty_calls.h",
        ),
    ]


def build(target: Target, folder: Path) -> Path:
    """Build everything for *target* below *folder*; return where it is.

    Raises:
        FileNotFoundError: its compiler is not there.
        subprocess.CalledProcessError: a file does not compile without a warning.
    """
    command = compiler(target)
    if command is None:
        raise FileNotFoundError(target.compiler)
    flags = _flags()
    out = folder / target.name
    shutil.rmtree(out, ignore_errors=True)
    objects = out.with_name(f"{out.name}-objects")
    for each in (out, objects):
        each.mkdir(parents=True, exist_ok=True)
    environment = _environment()
    compiled: set[str] = set()
    for product in _products(target):
        files = []
        for source in product.sources:
            before = product.before if source.stem.startswith("windows_os") else None
            file = objects / f"{source.stem}{f'-{before.stem}' if before else ''}.o"
            files.append(str(file))
            if file.name not in compiled:
                compiled.add(file.name)
                read = ["-include", str(before)] if before else []
                once = [*command, *flags, *read, "-c", "-o", str(file), str(source)]
                subprocess.run(once, check=True, env=environment)
        options = [str(out / LIBRARY) if each is BESIDE else each for each in product.options]
        if product.name == LIBRARY and target.compiler == "zig":
            options.append(f"-Wl,--out-implib,{out / 'visjail.lib'}")
        link = [*command, "-O2", "-o", str(out / product.name), *files, *options]
        subprocess.run(link, check=True, env=environment)
    for left in (*out.glob("*.pdb"), *out.glob("*.lib")):
        left.unlink()
    return out


def build_worker(target: Target, folder: Path) -> Path:
    """Build the loader and the core for *target* below *folder*; return where they are.

    The headers are this Python's, of which the stable ABI of 3.11 is used, with the sizes of Windows.

    Raises:
        FileNotFoundError: the compiler, or the headers of this Python, are not there.
        subprocess.CalledProcessError: a file does not compile without a warning.
    """
    command = compiler(target)
    headers = Path(sysconfig.get_path("include"))
    if command is None or not (headers / "Python.h").is_file():
        raise FileNotFoundError(target.compiler if command is None else f"{headers}/Python.h")
    out = folder / f"{target.name}-worker"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    lists = WORKER / "windows.cmake"
    loader, core = (
        [str(WORKER / each) for each in words_of(lists, name)]
        for name in ("VISPYTHON_WINDOWS_SOURCES", "VISCORE_WINDOWS_SOURCES")
    )
    sizes = ["-isystem", str(windows_headers(headers, out / "include"))]
    stub = out / "python3.a"
    environment, flags, hard = _environment(), _flags(), hardening(target)
    run = [*_dlltool(target), "-d", str(WORKER / "python3.def"), "-D", STABLE_ABI, "-l", str(stub)]
    subprocess.run(run, check=True, env=environment)
    run = [*command, *flags, '-DVIS_VERSION="0"', *loader, *hard, "-o", str(out / LOADER)]
    subprocess.run(run, check=True, env=environment)
    run = [*command, *flags, "-DPy_LIMITED_API=0x030b0000", *sizes, *core, str(stub), *hard]
    run += ["-shared", "-o", str(out / CORE)]
    subprocess.run(run, check=True, env=environment)
    shutil.rmtree(out / "include")
    for left in (stub, *out.glob("*.pdb"), *out.glob("*.lib")):
        left.unlink()
    return out


def windows_headers(headers: Path, folder: Path) -> Path:
    """Make *folder*, of CPython's *headers* with the sizes of Windows in place of this machine's."""
    shutil.copytree(headers, folder)
    shutil.copyfile(TESTS / "python" / "pyconfig.h", folder / "pyconfig.h")
    return folder


def _dlltool(target: Target) -> list[str]:
    if target.compiler == "mingw":
        return [f"{target.machine}-w64-mingw32-dlltool"]
    machine = {"x86_64": "i386:x86-64", "aarch64": "arm64"}[target.machine]
    return [sys.executable, "-m", "ziglang", "dlltool", "-m", machine]


def worker_problems(target: Target, folder: Path) -> list[str]:
    """Return what keeps the files that :func:`build_worker` made from being shipped."""
    found = pe.problems(
        folder, machine=target.machine, exports=CORE_EXPORTS, also_needs=(STABLE_ABI,)
    )
    found += [
        f"{folder.name} lacks {name}" for name in (CORE, LOADER) if not (folder / name).is_file()
    ]
    if (folder / CORE).is_file():
        asked = PeFile((folder / CORE).read_bytes()).imports.get(STABLE_ABI, [])
        unused = python_names() - set(asked)
        found += [f"{CORE} does not ask for {name}, which python3.def has" for name in unused]
    return [f"{target.name}: {each}" for each in found]


def python_names() -> set[str]:
    """Return what the core may ask of CPython: the names of python3.def."""
    lines = (WORKER / "python3.def").read_text().split("EXPORTS\n")[1].splitlines()
    return {line.split()[0] for line in lines}


def problems(target: Target, folder: Path) -> list[str]:
    """Return what keeps the files that :func:`build` made from being shipped."""
    exports = pe.declared((NATIVE / "windows_jail.h").read_text())
    found = pe.problems(folder, machine=target.machine, exports=exports, ignored=FOR_TESTS)
    found += [
        f"{folder.name} lacks {name}" for name in (LIBRARY, HELPER) if not (folder / name).is_file()
    ]
    return [f"{target.name}: {each}" for each in found]


def main() -> int:
    """Build, judge, say how long it took; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="one of TARGETS")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "cross")
    options = parser.parse_args()
    known = {target.name: target for target in TARGETS}
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        parser.error(f"no target: {', '.join(unknown)} (there are {', '.join(known)})")
    found, absent = [], []
    for target in (known[name] for name in options.targets or known):
        if compiler(target) is None:
            absent.append(target)
            continue
        begun = time.monotonic()
        try:
            found += problems(target, build(target, options.out))
            found += worker_problems(target, build_worker(target, options.out))
        except subprocess.CalledProcessError as error:
            found.append(f"{target.name}: {error.cmd[0]} ended with {error.returncode}")
        print(f"built   {target.name} ({time.monotonic() - begun:.1f} s)", flush=True)
    for target in absent:
        print(f"SKIPPED {target.name}: no {target.compiler} here (see {Path(__file__).name})")
    print("\n".join(found) if found else "cross: what was built may be shipped")
    required = os.environ.get("VIS_REQUIRE_TOOLS") == "1"
    return 1 if found or (absent and required) else 0


if __name__ == "__main__":
    sys.exit(main())

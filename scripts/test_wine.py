#!/usr/bin/env python3
"""Run what wine can show of WindowsJail: mechanics of Win32, and that it refuses where it must.

    scripts/test_wine.py [ARGUMENT OF PYTEST...]

wine is a Windows without AppContainers: nothing that passes here is a word about enforcement on
Windows. What the lane needs are wine64, the mingw compiler, and an ordinary uid, because descriptors
become modes of files, and root has all of them. It builds the programs, puts a CPython of Windows
together (scripts/windows_python.py) with this package beside it (scripts/windows_host.py), makes a
prefix of its own below TMPDIR, runs tests/windows/wine and removes them. Where wine or the compiler
is missing it says so; under VIS_REQUIRE_TOOLS=1 that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cross_build
import windows_archive
import windows_host
import windows_python

TARGET = next(each for each in cross_build.TARGETS if each.compiler == "mingw")
WINE = ("/usr/lib/wine/wine64", "wine64", "wine")
BOOT_SECONDS, END_SECONDS = 180, 30


def program() -> str | None:
    """Return the path of wine for programs of 64 bits."""
    return next((path for name in WINE if (path := shutil.which(name))), None)


def server() -> str:
    """Return the path of the server that wine's processes share."""
    return shutil.which("wineserver") or "/usr/lib/wine/wineserver"


def environment(work: Path) -> dict[str, str]:
    """Return what a program under wine is started with: nothing of the caller's."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work),
        "WINEPREFIX": str(work / "prefix"),
        "WINEDEBUG": "-all",
        # Neither of the two big downloads that it would offer.
        "WINEDLLOVERRIDES": "mscoree,mshtml=",
        "LANG": "C.UTF-8",
    }


def prepare(wine: str, work: Path) -> None:
    """Build the programs and start the prefix, as a Windows 10."""
    cross_build.build(TARGET, work)
    (work / TARGET.name).rename(work / "bin")
    python = windows_python.assemble(work / "python", work / "bin" / cross_build.LAUNCHER)
    windows_python.build_guard(python, TARGET, work)
    windows_python.build_worker_beside(python, TARGET, work)
    windows_host.build_host(TARGET, python, work)
    windows_archive.pack(TARGET, work)
    # One server for the whole lane; without -p each pause would end it, and begin anew.
    (work / "prefix").mkdir()
    subprocess.run([server(), "-p"], check=True, env=environment(work), timeout=END_SECONDS)
    version = ("add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win10", "/f")
    subprocess.run(
        [wine, "reg", *version],
        check=True,
        env=environment(work),
        timeout=BOOT_SECONDS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def finish(work: Path) -> None:
    """End what is left in the prefix, and remove it."""
    for word in ("-k", "-w"):
        subprocess.run([server(), word], check=False, env=environment(work), timeout=END_SECONDS)
    shutil.rmtree(work, ignore_errors=True)


def main() -> int:
    """Run the lane; the exit code of pytest, or 1 for a tool that is missing and required."""
    wine, compiler = program(), cross_build.compiler(TARGET)
    absent = [
        package
        for package, there in (
            ("wine64", wine),
            ("gcc-mingw-w64-x86-64", compiler),
            ("CPython 3.11 with its headers", windows_python.is_possible()),
        )
        if not there
    ]
    if wine is None or absent:
        print(f"SKIPPED: the wine lane needs {', '.join(absent)} (apt-get install)")
        return int(os.environ.get("VIS_REQUIRE_TOOLS") == "1")
    if os.geteuid() == 0:
        print("the wine lane runs as an ordinary uid: for root every descriptor is open")
        return 1
    work = Path(tempfile.mkdtemp(prefix="visruntime-wine."))
    try:
        prepare(wine, work)
        tests = [sys.executable, "-m", "pytest", "-q", "tests/windows/wine", *sys.argv[1:]]
        result = subprocess.run(
            tests,
            check=False,
            cwd=cross_build.ROOT,
            env={**os.environ, "VIS_WINE": str(work), "VIS_WINE_PROGRAM": wine},
        )
        return result.returncode
    finally:
        finish(work)


if __name__ == "__main__":
    sys.exit(main())

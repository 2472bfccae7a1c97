#!/usr/bin/env python3
"""Put together a CPython newer than those of this system, from packages of Debian, to test with.

    uv run --isolated --only-group packaging scripts/debian_python.py 3.14 --out FOLDER

FOLDER then has ``bin/python3.14`` and all that it needs, its C library included, so that it starts on a
system whose own is older. It contains its interpreter (boot mode P), and has the headers and the tests
of its version. It is a fixture of tests: it gets no updates and is never shipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from archive.apt import PrivateApt, debian_mirror
from gates.elf_file import ElfFile

SUITES = ("forky", "sid")
"""Releases of Debian in which it is looked for: all newer than the one of the version before."""
PACKAGES = ("{}-minimal", "lib{}-stdlib", "lib{}-dev", "lib{}-testsuite")
ASK = "import ssl, sqlite3, ctypes, lzma, bz2, zlib, sys; print(sys.version)"
"""Run at last; imports what needs the libraries of Debian."""


def assemble(version: str, out: Path) -> str:
    """Make it, and return how it names itself.

    Raises:
        OSError: Debian does not give it, or it does not start.
    """
    name = f"python{version}"
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        system = Path(work) / "system"
        system.mkdir()
        for package in download(name, Path(work) / "apt"):
            subprocess.run(["dpkg-deb", "--extract", package, system], check=True)
        staged = Path(work) / "python"
        lay_out(name, system / "usr", staged)
        staged.rename(out)
    program = out / "bin" / name
    libraries = out / "lib"
    loader = libraries / Path(ElfFile(program.read_bytes()).interpreter or "").name
    patches = ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath", str(libraries)]
    subprocess.run(["patchelf", *patches, program], check=True)
    done = subprocess.run([program, "-I", "-c", ASK], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{program} does not start: {done.stderr}")
    return done.stdout.strip()


def download(name: str, folder: Path) -> list[Path]:
    """Return the packages of that Python, and of all that it needs, as if nothing were installed."""
    nothing = folder.parent / "nothing-installed"
    nothing.touch()
    mirror = debian_mirror()
    apt = PrivateApt(
        folder,
        [f"deb {mirror} {suite} main" for suite in SUITES],
        f"Dir::State::Status={nothing}",
        # A mirror that is late is good enough here; who has signed is checked all the same.
        "Acquire::Check-Valid-Until=false",
    )
    apt.run("apt-get", "-qq", "update")
    wanted = [each.format(name) for each in PACKAGES]
    apt.run(
        "apt-get", "-qq", "-y", "--no-install-recommends", "--download-only", "install", *wanted
    )
    return sorted(apt.archives.glob("*.deb"))


def lay_out(name: str, system: Path, prefix: Path) -> None:
    """Copy what was unpacked in *system* to a prefix of its own."""
    for part in ("bin", "lib"):
        (prefix / part).mkdir(parents=True)
    shutil.copy(system / "bin" / name, prefix / "bin")
    for link in ("python3", "python"):
        (prefix / "bin" / link).symlink_to(name)
    standard = prefix / "lib" / name
    shutil.copytree(system / "lib" / name, standard, symlinks=True)
    for theirs in (standard / "EXTERNALLY-MANAGED", standard / "sitecustomize.py"):
        theirs.unlink(missing_ok=True)  # of the system that it was made for
    triplet = f"{os.uname().machine}-linux-gnu"
    headers = prefix / "include" / name
    shutil.copytree(system / "include" / name, headers)
    shutil.copy(system / "include" / triplet / name / "pyconfig.h", headers)
    for library in (system / "lib" / triplet).glob("*.so*"):
        # Links may be absolute, and text files tell the linker what to do.
        if library.exists() and library.read_bytes()[:4] == b"\x7fELF":
            shutil.copy(library, prefix / "lib" / library.name)


def main() -> int:
    """Make it, and print how it names itself."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="such as 3.14")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    try:
        print(assemble(options.version, options.out.resolve()))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no CPython {options.version}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

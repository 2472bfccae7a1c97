"""The CPythons of this machine, their environments and copies of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def installed_interpreters() -> list[str]:
    """Return one path for each CPython from 3.11 on that is found here, the current one first."""
    found = {os.path.realpath(sys.executable): sys.executable}
    candidates = [
        shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin") for minor in range(11, 15)
    ]
    for root in (".pyenv/versions", ".local/share/uv/python"):
        candidates += [str(path) for path in Path.home().glob(f"{root}/*/bin/python3.1?")]
    for path in candidates:
        if path is not None and path[-2:] >= "11":
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
    """Return a CPython 3.*minor* of this machine; skip the test where there is none."""
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    for path in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}")):
        return str(path)
    pytest.skip(f"no CPython 3.{minor} in ~/.pyenv/versions")

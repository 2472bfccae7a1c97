"""What is shipped, as the tests here get it: built once, by ``.ci/run`` or by hand.

``VIS_DIST`` names the folder that scripts/build_wheel.py and scripts/pack_archive.py wrote to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def shipped(pattern: str, *, but: str = "none") -> Path:
    """Return the one file of that name in ``VIS_DIST``, of those without *but* in it.

    Without the variable the test skips, or fails under ``VIS_REQUIRE_TOOLS=1``.
    """
    folder = os.environ.get("VIS_DIST")
    if not folder:
        how = "VIS_DIST names no folder with what scripts/build_wheel.py built"
        if os.environ.get("VIS_REQUIRE_TOOLS") == "1":
            pytest.fail(how)
        pytest.skip(how)
    (found,) = (path for path in Path(folder).glob(pattern) if but not in path.name)
    return found


@pytest.fixture(scope="session")
def wheel() -> Path:
    """Return the repaired wheel."""
    return shipped("visruntime-*-manylinux_2_35_*.whl")


@pytest.fixture(scope="session")
def source() -> Path:
    """Return the source distribution."""
    return shipped("visruntime-*.tar.gz", but="-linux-")


@pytest.fixture(scope="session")
def archive() -> Path:
    """Return the platform archive; the test skips where no Python was there to make it of."""
    shipped("visruntime-*-manylinux_2_35_*.whl")
    found = sorted(Path(os.environ["VIS_DIST"]).glob("visruntime-*-linux-*.tar.gz"))
    if not found:
        pytest.skip("no platform archive was packed: no CPython 3.13 with a shared library here")
    return found[0]


@pytest.fixture
def python_of(tool: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that finds a Python of a version; the test skips where there is none."""

    def find(version: str) -> str:
        command = [tool("uv"), "python", "find", "--no-python-downloads", "--no-project", version]
        variables = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, env=variables, cwd="/"
        )
        managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
        others = []
        with suppress(PermissionError):  # another user's
            others = sorted(map(str, managed.glob(f"{version}.*/bin/python")))
        for candidate in [found.stdout.strip(), *others]:
            if candidate and os.access(candidate, os.X_OK):
                return candidate
        pytest.skip(f"no Python {version} on this machine")

    return find


@pytest.fixture
def without_compilers(tmp_path: Path) -> str:
    """Return a PATH with neither compiler nor build tool in it, but uv."""
    folder = tmp_path / "path"
    folder.mkdir()
    uv = shutil.which("uv")
    if uv is not None:
        (folder / "uv").symlink_to(os.path.realpath(uv))
    for name in ("sh", "env", "cat", "ls"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return str(folder)

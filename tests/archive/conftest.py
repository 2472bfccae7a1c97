"""What is shipped, as the tests here get it: built once, by ``.ci/run`` or by hand.

``VIS_DIST`` names the folder that scripts/build_wheel.py and scripts/pack_archive.py wrote to.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from required import missing

from visruntime import bundle


def shipped(pattern: str, *, but: str = "none") -> Path:
    """Return the one file of that name in ``VIS_DIST``, of those without *but* in it.

    Where there is none the test skips, or fails under ``VIS_REQUIRE_TOOLS=1``.
    """
    folder = os.environ.get("VIS_DIST")
    if not folder:
        missing("VIS_DIST names no folder with what scripts/build_wheel.py built")
    found = [path for path in Path(folder).glob(pattern) if but not in path.name]
    if not found:
        missing(f"VIS_DIST has no {pattern}: it was not built")
    (one,) = found
    return one


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
    """Return the platform archive."""
    return shipped("visruntime-*-linux-*.tar.gz")


@pytest.fixture(scope="session")
def extracted(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> bundle.Bundle:
    """Return the archive, installed into a state of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("state")))
        return bundle.install(archive)


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

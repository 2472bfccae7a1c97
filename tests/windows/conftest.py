"""What tests about Windows share."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from required import missing
from windows_library import WindowsLibrary

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def windows(tmp_path_factory: pytest.TempPathFactory) -> WindowsLibrary:
    """Return the pure C of Windows, built for this machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("cc is not installed")
    folder: Path = tmp_path_factory.mktemp("windows")
    return WindowsLibrary(folder, compiler)

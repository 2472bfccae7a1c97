"""What tests about Windows share."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from required import missing
from windows_library import TestedWindows, WindowsLibrary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def compiler() -> str:
    """Return the C compiler of this machine."""
    found = shutil.which("cc")
    if found is None:
        missing("cc is not installed")
    return found


@pytest.fixture(scope="session")
def windows(tmp_path_factory: pytest.TempPathFactory, compiler: str) -> WindowsLibrary:
    """Return the pure C of Windows, built for this machine."""
    return WindowsLibrary(tmp_path_factory.mktemp("windows"), compiler)


@pytest.fixture(scope="session")
def built_windows(tmp_path_factory: pytest.TempPathFactory, compiler: str) -> TestedWindows:
    """Return the whole of WindowsJail over a Windows of the tests' own."""
    return TestedWindows(tmp_path_factory.mktemp("windows"), compiler)


@pytest.fixture
def machine(built_windows: TestedWindows, tmp_path: Path) -> Iterator[TestedWindows]:
    """Return it with a fresh disk; nothing of any jail may be left at the end."""
    folder = tmp_path / "c"
    built_windows.begin(folder.resolve())
    yield built_windows
    built_windows.end()

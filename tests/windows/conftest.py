"""What tests about Windows share."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from required import missing
from windows_library import TestedWindows, WindowsLibrary

import visruntime as vr
from visruntime._windows.python import StagedPython
from visruntime._worker import windows as transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windows_relay import RelayedCalls


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


@pytest.fixture
def calls() -> RelayedCalls:
    """Return the calls of a Windows of the tests' own."""
    from windows_relay import RelayedCalls  # not where Windows itself is tested

    return RelayedCalls()


@pytest.fixture
def mode_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect the core as it comes into this machine's Python, which may have no shared library."""
    from visruntime.environments import find_interpreter
    from visruntime.processes import TrustedStart

    interpreter = find_interpreter(None, probe=TrustedStart.probe)
    monkeypatch.setattr(transport, "MODE", interpreter.mode)


@pytest.fixture
def open_jail(mode_of_this_python: None) -> Callable[[RelayedCalls], vr.WindowsJail]:
    """Return what opens a jail over such calls, with a worker in it."""
    from windows_relay import ROOT

    def open_one(calls: RelayedCalls) -> vr.WindowsJail:
        jail = vr.WindowsJail._over(calls, r"C:\jails")  # type: ignore[arg-type]
        jail._python = StagedPython(ROOT + r"\app", "python311.dll", sys.version)
        return jail

    return open_one


@pytest.fixture
def jail(
    calls: RelayedCalls, open_jail: Callable[[RelayedCalls], vr.WindowsJail]
) -> Iterator[vr.WindowsJail]:
    """Return such a jail; no program of it may be left."""
    with open_jail(calls) as jail:
        yield jail
    assert calls.closed
    assert calls.programs == {}

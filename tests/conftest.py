"""What many tests need: fresh directories, an ordinary uid, and tools that may be missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from required import missing

import visruntime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# What watches the tests needs signals and descriptors of Linux.
pytest_plugins = ["stalls"] if sys.platform == "linux" else []


def pytest_configure() -> None:
    """Refuse to test something else than ``VIS_SUBJECT`` names.

    Without the variable it is the source tree; else a wheel that is installed here, or an unpacked
    archive whose Python runs this.
    """
    subject = os.environ.get("VIS_SUBJECT")
    if not subject:
        return
    package = os.path.realpath(visruntime.__file__)
    sources = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "src")
    prefix = os.path.realpath(sys.base_prefix)
    if package.startswith(sources + os.sep):
        raise pytest.UsageError(f"VIS_SUBJECT is {subject}, and the source tree is imported")
    if os.path.isdir(subject) and prefix != os.path.join(os.path.realpath(subject), "python"):
        raise pytest.UsageError(f"VIS_SUBJECT is {subject}, and the Python of {prefix} runs")


ORDINARY_UID = 1000

# A runner in the background has SIGINT ignored, and every program it starts would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a fresh directory that a test may grant to a jail."""
    directory = tmp_path.resolve() / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a fresh directory beside the workspace that no test grants."""
    directory = tmp_path.resolve() / "outside"
    directory.mkdir()
    return directory


@pytest.fixture
def tool() -> Callable[[str], str]:
    """Return a function that finds a program; where it is not installed: `missing`."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            missing(f"{name} is not installed")
        return path

    return find


@pytest.fixture
def ordinary_uid() -> Callable[[Sequence[str]], subprocess.CompletedProcess[str]]:
    """Return a function that runs a command under a uid without rights.

    A root caller's command runs under ``ORDINARY_UID`` without groups; for anybody else it
    runs as it is.
    """

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        prefix: list[str] = []
        if os.geteuid() == 0:
            ids = [f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups"]
            prefix = ["setpriv", *ids, "--"]
        return subprocess.run(
            [*prefix, *command],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.defpath, "HOME": "/nonexistent"},
            cwd="/",
        )

    return run

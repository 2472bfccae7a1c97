"""What many tests need: fresh directories, an ordinary uid, and tools that may be missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytest_plugins = ["stalls"]
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
    """Return a function that finds a program, and skips the test where it is not installed.

    Under ``VIS_REQUIRE_TOOLS=1``, which ``.ci/run`` sets, a missing program fails the test.
    """

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        if os.environ.get("VIS_REQUIRE_TOOLS") == "1":
            pytest.fail(f"{name} is not installed, and VIS_REQUIRE_TOOLS=1 asks for it")
        pytest.skip(f"{name} is not installed")

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

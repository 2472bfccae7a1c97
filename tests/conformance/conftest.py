"""What the suites that others wrote need."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def large_tool() -> Callable[[str], str]:
    """Return a function that finds a program which only the long lane of .ci/run installs.

    Under ``VIS_FULL=1`` a missing program fails the test.
    """

    def find(name: str) -> str:
        path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
        if path is not None:
            return path
        if os.environ.get("VIS_FULL") == "1":
            pytest.fail(f"{name} is not installed, and VIS_FULL=1 asks for it")
        pytest.skip(f"{name} is not installed; the long lane (VIS_FULL=1) installs it")

    return find

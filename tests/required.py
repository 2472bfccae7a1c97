"""What becomes of a test that lacks something of its machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it under ``VIS_REQUIRE_TOOLS=1``, which ``.ci/run`` sets."""
    if os.environ.get("VIS_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{what}, and VIS_REQUIRE_TOOLS=1 asks for it")
    pytest.skip(what)

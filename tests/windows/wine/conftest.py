"""The prefix of a run of the lane, which scripts/test_wine.py has made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wine_helpers import Wine

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture(scope="session")
def wine() -> Wine:
    """Return the prefix of this run of the lane."""
    return Wine(Path(os.environ["VIS_WINE"]), os.environ["VIS_WINE_PROGRAM"])


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Give each test of this folder the time that programs under wine take."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(180))

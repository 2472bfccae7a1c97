"""What the escape tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def outside_file(outside: Path) -> Path:
    """Return a file with a secret in a folder that no test grants."""
    path = outside / "secret.txt"
    path.write_text("top-secret")
    return path


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """Return a jail without any grant."""
    with Jail(JailPolicy()) as opened:
        yield opened

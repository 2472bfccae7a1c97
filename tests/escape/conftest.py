"""What the escape tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, backends
from names_tree import places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def outside_file(outside: Path) -> Path:
    """Return a file with a secret in a folder that no test grants."""
    path = outside / "secret.txt"
    path.write_text("top-secret")
    return path


@pytest.fixture(scope="module", params=backends("namespaces", "bubblewrap"))
def jail(request: pytest.FixtureRequest) -> Iterator[Jail]:
    """Return a jail without any grant, by each back end with places of the jail's own."""
    with Jail(JailPolicy(), backend=request.param) as opened:
        yield opened


@pytest.fixture(params=range(len(places())), ids=lambda number: ("hidden", "open")[number])
def top(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a tree as names_tree.py describes it."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix=".vis-names-", dir=places()[request.param]))
    os.chmod(folder, 0o755)
    os.makedirs(f"{folder}/tree/.git")
    os.mkdir(f"{folder}/tree/free")
    yield f"{folder}/tree"
    shutil.rmtree(folder)

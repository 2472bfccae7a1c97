"""What several tests of macOS need: its programs, built once."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from darwin_build import build_programs
from required import missing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """Build helper, watcher and probe in a folder ``bin``, where an ordinary user can execute them."""
    if shutil.which("cc") is None:
        missing("there is no C compiler (cc)")
    with tempfile.TemporaryDirectory(prefix="vj", dir="/tmp") as name:
        out = Path(name)
        out.chmod(0o755)
        (out / "bin").mkdir(mode=0o755)
        build_programs(out / "bin", "visjail-macos-init", "visjail-macos-watch", "macos-probe")
        yield out

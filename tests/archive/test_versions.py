"""No program of an archive is of another version than the archive says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from archive import versions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'uv 1.2.3 (of a day)'", ""),
        ("echo 'uv 1.2.30'", "bin/uv: says 'uv 1.2.30', and is to be uv 1.2.3"),
        ("echo 'other 1.2.3'", "bin/uv: says 'other 1.2.3', and is to be uv 1.2.3"),
        ("echo 'uv 1.2.3'; exit 1", "bin/uv: says 'uv 1.2.3', and is to be uv 1.2.3"),
        ("echo broken >&2; exit 1", "bin/uv: says 'broken', and is to be uv 1.2.3"),
    ],
)
def test_what_a_program_says(tmp_path: Path, script: str, problem: str) -> None:
    """Neither another version, nor another program, nor one that fails passes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/uv").chmod(0o755)
    found = versions.problems(tmp_path, {"bin/uv": "uv 1.2.3"})
    assert found == ([problem] if problem else [])


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    """One that is not there is named like one of another version."""
    assert versions.problems(tmp_path, {"bin/uv": "uv 1.2.3"}) == [
        "bin/uv: cannot be started (No such file or directory)"
    ]

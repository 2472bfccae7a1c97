"""The benchmark script runs; what it measures is never judged by a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import bench
import pytest
import readme

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_uid


GROUPS = (
    "1 2 2b 3 4 5 6 7 8",
    "9 10 11 12 13a 13b 13c",
    "14a 14b 15 16",
    "18",
    "17a 17b",
    "17c 17d",
    "17e 17f",
)
LONG = ("14a 14b 15 16", "17a 17b", "17c 17d", "17e 17f")
"""Ten seconds each, with real rivals. With VIS_FULL=1 .ci/run also takes all rows with all rounds."""


def test_every_row_is_in_a_group() -> None:
    """No row of the script may be left out below."""
    assert sorted(" ".join(GROUPS).split()) == sorted(bench.ROWS)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("group", GROUPS)
def test_every_row_is_measured(tmp_path: Path, tool: Callable[[str], str], group: str) -> None:
    """No row fails or is left out, and each has its baseline, goal and ratio."""
    if group in LONG and os.environ.get("VIS_FULL") != "1":
        pytest.skip("takes ten seconds; VIS_FULL=1 asks for it")
    tool("bwrap")
    file = tmp_path / "bench.json"
    script = readme.ROOT / "scripts" / "bench.py"
    rows = group.split()
    result = subprocess.run(
        [sys.executable, script, "--rounds", "1", "--rows", ",".join(rows), "--json", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(file.read_text())
    assert report["not_measured"] == {}
    assert [row["number"] for row in report["rows"]] == rows
    for row in report["rows"]:
        assert row["goal"] > 0
        assert row["ratio"] > 0
        assert row["ours_ms"] > 0
        assert row["baseline_ms"] > 0
        assert f"{row['ratio']:.2f}" in result.stdout

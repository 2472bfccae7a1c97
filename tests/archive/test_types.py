"""What a type checker sees of the wheel: every public name has a type that is written down."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from interpreters import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PYRIGHT = "pyright==1.1.414"


@pytest.mark.skipif(os.environ.get("VIS_FULL") != "1", reason="fetches a type checker; VIS_FULL=1")
@pytest.mark.timeout(300)
def test_every_public_name_has_a_type(
    wheel: Path, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """No name of the package is left for each type checker to guess."""
    tool("node")
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    steps: list[list[str | Path]] = [
        ["uv", "venv", "-q", "--python", interpreter(13), environment],
        ["uv", "pip", "install", "-q", "--python", python, f"{wheel}[aio]", PYRIGHT],
    ]
    for step in steps:
        subprocess.run(step, check=True, cwd=tmp_path)
    done = subprocess.run(
        [
            *(environment / "bin" / "pyright", "--verifytypes", "visruntime"),
            *("--ignoreexternal", "--outputjson"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{environment}/bin:{os.environ['PATH']}"},
        timeout=240,
    )
    said = json.loads(done.stdout[done.stdout.index("{") :])["typeCompleteness"]
    unsure = [
        f"{each['name']}: {one['message']}"
        for each in said["symbols"]
        for one in each["diagnostics"]
    ]
    assert unsure == []
    assert said["completenessScore"] == 1
    assert said["exportedSymbolCounts"]["withKnownType"] > 1000

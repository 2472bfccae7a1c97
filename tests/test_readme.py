"""README.md: its two commands and its Python code are true."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import readme

if TYPE_CHECKING:
    from pathlib import Path


def test_two_commands() -> None:
    """The README has exactly the two commands that a newcomer types; another test runs the first."""
    first, second = map(shlex.split, readme.commands())
    assert first[:4] == ["uv", "run", "visruntime", "run"]
    assert second == ["uv", "run", "pytest"]


def test_python_code_runs_as_shown(tmp_path: Path) -> None:
    """The README's Python code runs and prints what its comments say."""
    (code,) = readme.blocks("python")
    for name in ("data", "report"):
        (tmp_path / name).mkdir()
    result = subprocess.run(
        [sys.executable, "-c", code.replace("/srv", str(tmp_path))],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    printed = result.stdout.splitlines()
    comments = re.findall(r"# (\d+(?: cat: .*)?)$", code, re.MULTILINE)
    assert [line for line in printed if line] == [comments[0], "namespaces", comments[1]]
    assert (tmp_path / "report" / "log").read_text() == "done\n"


def test_links_lead_somewhere() -> None:
    """No relative link of a document at the top leads to a file that does not exist."""
    documents = sorted(readme.ROOT.glob("*.md")) + sorted((readme.ROOT / "doc").rglob("*.md"))
    assert readme.ROOT / "README.md" in documents
    dead = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert dead == []

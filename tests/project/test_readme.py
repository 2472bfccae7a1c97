"""The documents are true: README.md's commands and code, the recipes, and the links."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import readme


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


RECIPES = [
    line for block in readme.blocks("sh", "doc/how-to.md") for line in block.splitlines() if line
]


PYTHON_RECIPES = [
    code
    for document in (
        "doc/tutorial.md",
        "doc/how-to.md",
        "doc/confinement.md",
        "doc/control.md",
        "doc/callbacks.md",
        "doc/copies.md",
        "doc/pools.md",
        "doc/runs.md",
        "doc/async.md",
        "doc/values.md",
    )
    for code in readme.blocks("python", document)
]


@pytest.mark.parametrize("code", PYTHON_RECIPES)
def test_python_recipe_prints_what_it_says(code: str, tmp_path: Path) -> None:
    """Each recipe in Python prints what stands behind its print calls."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    said = re.findall(r"print\(.*\)(?:  |\n *)# (.+)$", code, re.MULTILINE)
    assert said
    assert result.stdout.splitlines() == said


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a small project like the one that the recipes work on."""
    folder = tmp_path.resolve() / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "key").write_text("swordfish\n")
    (folder / ".env").write_text("PASSWORD=swordfish\n")
    (folder / "test_sum.py").write_text(
        "import unittest\n\n\nclass Sum(unittest.TestCase):\n"
        "    def test_sum(self):\n        self.assertEqual(1 + 1, 2)\n"
    )
    return folder


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_does_what_it_says(recipe: str, project: Path) -> None:
    """No recipe of the how-to ends in another way than it says."""
    command, _, expected = recipe.partition("  # exit ")
    before = sorted(project.rglob("*"))
    scripts = Path(sys.executable).parent
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=project,
        env=os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == int(expected or 0), result.stderr
    assert "swordfish" not in result.stdout
    made = {path.name for path in project.rglob("*")} - {path.name for path in before}
    assert made == {name for name in ("artifact.txt", "report.json") if f"{name}" in command}


def test_how_to_has_recipes() -> None:
    """The how-to does not lose its commands to a change of its layout."""
    assert len(RECIPES) > 12


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

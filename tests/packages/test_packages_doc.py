"""The document about packages is true: its code prints, and its commands end, as it says."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
import readme
from packages_helpers import make_project, make_wheel, require_uv

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.one_uid

DOCUMENT = "doc/packages.md"
RECIPES = [line for block in readme.blocks("sh", DOCUMENT) for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the document speaks of."""
    require_uv()
    folder = tmp_path_factory.mktemp("document").resolve()
    held = make_wheel(folder / "wheels", "greeting", "1.0", {"greeting.py": "word = 'hello'\n"})
    make_project(folder / "project", {"greeting": ("1.0", held)})
    script = '# /// script\n# dependencies = ["greeting"]\n# ///\nimport greeting\n'
    (folder / "script.py").write_text(script)
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *command* in *folder* with a cache of its own there."""
    cache = str(folder / "cache")
    return readme.run(command, folder, XDG_CACHE_HOME=cache, UV_CACHE_DIR=f"{cache}/uv")


@pytest.mark.parametrize("code", readme.blocks("python", DOCUMENT))
def test_code_prints_what_it_says(code: str, prepared: Path) -> None:
    """Each piece of code prints what stands behind its print calls."""
    result = run([sys.executable, "-c", code], prepared)
    assert result.returncode == 0, result.stderr
    said = re.findall(r"print\(.*\)  # (.+)$", code, re.MULTILINE)
    assert said
    assert result.stdout.splitlines() == said


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_command_ends_as_it_says(recipe: str, prepared: Path) -> None:
    """No command of the document ends in another way than it says."""
    command, _, expected = recipe.partition("  # exit ")
    shutil.rmtree(prepared / "cache", ignore_errors=True)
    result = run(["sh", "-c", command], prepared)
    assert result.returncode == int(expected or 0), result.stderr


def test_the_document_has_commands() -> None:
    """It does not lose its commands to a change of its layout."""
    assert len(RECIPES) == 4

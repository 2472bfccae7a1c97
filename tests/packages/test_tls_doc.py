"""doc/tls.md is true: its code prints and its commands end as they say."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
import readme

from visruntime.config import ConfigFile

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

DOCUMENT = "doc/tls.md"
COMMANDS = [line for block in readme.blocks("sh", DOCUMENT) for line in block.splitlines() if line]


@pytest.mark.parametrize("code", readme.blocks("python", DOCUMENT))
def test_python_prints_what_it_says(code: str, tmp_path: Path) -> None:
    """Each print call prints what stands behind it."""
    result = readme.run([sys.executable, "-c", code], tmp_path)
    assert result.returncode == 0, result.stderr
    said = re.findall(r"\)  # (.+)$", code, re.MULTILINE)
    assert said
    assert result.stdout.splitlines() == said


@pytest.mark.parametrize("recipe", COMMANDS)
def test_commands_end_as_they_say(recipe: str, tmp_path: Path) -> None:
    """Each command ends with 0, or with the code in its comment."""
    command, _, expected = recipe.partition("  # exit ")
    result = readme.run(["sh", "-c", command], tmp_path)
    assert result.returncode == int(expected or 0), result.stderr


def test_the_page_loses_nothing_to_its_layout() -> None:
    """There are commands and code, and the table is one that files may hold."""
    assert len(COMMANDS) == 4
    (text,) = readme.blocks("toml", DOCUMENT)
    assert tomllib.loads(text) == {"python": {"tls_strict": False}}


def test_the_table_is_read_as_shown(tmp_path: Path) -> None:
    """The documented file is one that is taken."""
    (text,) = readme.blocks("toml", DOCUMENT)
    (tmp_path / "visruntime.toml").write_text(text)
    assert ConfigFile(tmp_path.resolve() / "visruntime.toml").python.tls_strict is False

"""The documents are true: README.md's commands and code, the recipes, and the links."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import readme
from website import navigation

from visruntime import protocol
from visruntime._native import decode, encode


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


# Documents whose code other tests run, in a folder that they prepare or against what they describe.
TRIED_ELSEWHERE = {
    "README.md": ("python", "sh"),
    "doc/packages.md": ("python", "sh"),
    "doc/tls.md": ("python", "sh"),
    "doc/reference/protocol.md": ("python",),
}
DOCUMENTS = sorted(
    path.relative_to(readme.ROOT).as_posix()
    for path in [*readme.ROOT.glob("*.md"), *(readme.ROOT / "doc").rglob("*.md")]
)


def tried_here(language: str) -> list[str]:
    """Return the blocks of all documents that this file runs; a new document is among them."""
    return [
        code
        for document in DOCUMENTS
        if language not in TRIED_ELSEWHERE.get(document, ())
        for code in readme.blocks(language, document)
    ]


RECIPES = [line for block in tried_here("sh") for line in block.splitlines() if line]
PYTHON_RECIPES = tried_here("python")


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
    env = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"}
    if "--cache" in command:  # what it keeps is not the user's
        env["XDG_CACHE_HOME"] = str(project.parent / "state")
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=project,
        env=env,
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


def test_the_protocol_document_shows_how_to_talk() -> None:
    """The code of the protocol's page sends what a worker can read, and reads what it answers."""
    (code,) = readme.blocks("python", "doc/reference/protocol.md")
    ours, theirs = socket.socketpair()
    with theirs:
        payload = encode(2, max_bytes=100, max_depth=8, max_nodes=8)
        theirs.sendall(protocol.FrameEncoder(protocol.GUEST_TYPES).frame(protocol.RESULT, payload))
        names: dict[str, Any] = {"sock": ours}
        exec(code, names)
        (frame,) = protocol.FrameDecoder(protocol.HOST_TYPES).feed(theirs.recv(4096))
    assert (names["kind"], names["value"]) == (protocol.RESULT, 2)
    assert frame[0] == protocol.RUN
    assert decode(frame[-1], max_bytes=100, max_depth=8, max_nodes=8) == {"code": "1+1"}


def test_how_to_has_recipes() -> None:
    """The how-to does not lose its commands to a change of its layout."""
    assert len(readme.blocks("sh", "doc/how-to.md")) > 12
    assert set(readme.blocks("python", "doc/how-to.md")) < set(PYTHON_RECIPES)


def test_code_that_is_tried_elsewhere_is_there() -> None:
    """No document stays left out here after its code has gone."""
    for document, languages in TRIED_ELSEWHERE.items():
        for language in languages:
            assert readme.blocks(language, document), f"{document} has no {language}"


def test_links_lead_somewhere() -> None:
    """No relative link leads to a file or a heading that does not exist."""
    assert "README.md" in DOCUMENTS
    dead = []
    fragments = 0
    for name in DOCUMENTS:
        document = readme.ROOT / name
        for target in re.findall(r"\]\((?!https?://)([^)]+)\)", document.read_text()):
            path, _, fragment = target.partition("#")
            found = document.parent / path if path else document
            if not found.exists():
                dead.append(f"{name}: {target}")
            elif fragment:
                fragments += 1
                if fragment not in readme.anchors(found.read_text()):
                    dead.append(f"{name}: {target} is no heading")
    assert fragments > 5
    assert dead == []


def test_headings_are_named_as_a_forge_does() -> None:
    """A link to a heading is not checked against names that no forge gives."""
    text = "# A `b_c`, d!\n## A\n## A\n```sh\n# no heading\n```\n## [L](x) and **b**-c\n"
    assert readme.anchors(text) == {"a-b_c-d", "a", "a-1", "l-and-b-c"}


def test_the_index_lists_every_document() -> None:
    """No document is in no menu of the site."""
    listed = {
        entry.path
        for section in navigation.sections(
            (readme.ROOT / "doc/index.md").read_text(), "doc/index.md"
        )
        for entry in section.entries
    }
    assert listed == set(DOCUMENTS) - {"doc/index.md"}

"""Read the fenced code blocks of the documents, so that tests run what newcomers copy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, document: str = "README.md") -> list[str]:
    """Return the text of the blocks in *language*, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for name, body in FENCE.findall(text) if name == language]


def anchors(text: str) -> set[str]:
    """Return the fragments by which a forge and the site lead to the headings of *text*."""
    found: set[str] = set()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", outside, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
        same = [name, *(f"{name}-{n}" for n in range(1, 100))]
        found.add(next(each for each in same if each not in found))
    return found


def commands() -> list[str]:
    """Return the lines of the first shell block: the two commands, in order."""
    return blocks("sh")[0].splitlines()


def run(command: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a document in *folder*, with this environment's programs first."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )

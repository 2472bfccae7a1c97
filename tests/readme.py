"""Read the fenced code blocks of the documents, so that tests run what newcomers copy."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, document: str = "README.md") -> list[str]:
    """Return the text of the blocks in *language*, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for name, body in FENCE.findall(text) if name == language]


def commands() -> list[str]:
    """Return the lines of the first shell block: the two commands, in order."""
    return blocks("sh")[0].splitlines()

#!/usr/bin/env python3
"""Write the pages that follow from headers, from measured figures and from records of whole runs.

    uv run python scripts/generate_documents.py [--check]

They are committed, so that a forge shows them: doc/reference/c.md from the headers of libvisjail,
cli.md from what the commands say of themselves, and so completions of shells and the manual page in
src/visruntime/cli/texts, benchmarks.md with its plot from
doc/shown/benchmarks.json, platforms.md from doc/shown/runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import generated
from completion import bash, fish, manual, zsh
from completion.words import commands
from website import benchmarks, c_reference, cli_reference, platforms

DOCUMENTS = Path(__file__).resolve().parent.parent / "doc"
TEXTS = DOCUMENTS.parent / "src" / "visruntime" / "cli" / "texts"


def _figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCUMENTS / "shown" / "benchmarks.json").read_text())
    return found


def records(more: str | None = None) -> list[dict[str, Any]]:
    """Return the records that are committed, and those of the folder *more*."""
    folders = [DOCUMENTS / "shown" / "runs", *([Path(more)] if more else [])]
    return [
        json.loads(path.read_text())
        for folder in folders
        for path in sorted(folder.rglob("*.json"))
    ]


OUTPUTS = {
    DOCUMENTS / "reference" / "c.md": c_reference.markdown,
    DOCUMENTS / "reference" / "cli.md": cli_reference.markdown,
    DOCUMENTS / "reference" / "benchmarks.md": lambda: benchmarks.markdown(_figures()),
    DOCUMENTS / "figures" / "benchmarks.svg": lambda: benchmarks.plot(_figures()),
    TEXTS / "visruntime.bash": lambda: bash.script(commands()),
    TEXTS / "visruntime.zsh": lambda: zsh.script(commands()),
    TEXTS / "visruntime.fish": lambda: fish.script(commands()),
    TEXTS / "visruntime.1": manual.page,
    DOCUMENTS / "reference" / "platforms.md": lambda: platforms.markdown(records()),
}


if __name__ == "__main__":
    sys.exit(generated.main_of_several(__doc__ or "", OUTPUTS))

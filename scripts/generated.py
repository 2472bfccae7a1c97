"""What the generators of committed files share: write the file, or say how it differs."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def main(description: str, output: Path, generate: Callable[[], str]) -> int:
    """Write *output*, or with ``--check`` compare it with what would be written."""
    return main_of_several(description, {output: generate})


def main_of_several(description: str, outputs: Mapping[Path, Callable[[], str]]) -> int:
    """The same for several files."""
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="exit 1 and print the difference")
    options = parser.parse_args()
    return max(
        [_one(output, generate, check=options.check) for output, generate in outputs.items()]
    )


def _one(output: Path, generate: Callable[[], str], *, check: bool) -> int:
    text = generate()
    if not check:
        output.write_text(text)
        return 0
    committed = output.read_text() if output.exists() else ""
    difference = "".join(
        difflib.unified_diff(
            committed.splitlines(keepends=True),
            text.splitlines(keepends=True),
            output.name,
            "generated now",
        )
    )
    sys.stdout.write(difference)
    return 1 if difference else 0

"""What the programs of a staged archive say of themselves: exactly what its manifest will say."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["problems"]

_SECONDS = 60


def problems(tree: Path, programs: dict[str, str]) -> list[str]:
    """Return which of *programs* is of another version, by its place in *tree* and what it has to say.

    That is the name and the version, the first two words of ``--version``: a program that was left
    over from another build is found before anybody gets it.
    """
    found = []
    for place, expected in programs.items():
        try:
            done = subprocess.run(
                [tree / place, "--version"],
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            found.append(f"{place}: says nothing in {_SECONDS} s")
            continue
        except OSError as error:
            found.append(f"{place}: cannot be started ({error.strerror})")
            continue
        said = " ".join(done.stdout.split()[:2])
        if done.returncode != 0 or said != expected:
            found.append(f"{place}: says {said or done.stderr.strip()!r}, and is to be {expected}")
    return found

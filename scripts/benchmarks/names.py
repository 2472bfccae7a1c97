"""What work costs beside protected names that do not exist, compared with a plain grant.

In a folder that was there when the jail opened a call that makes a name is let go on; behind
the wall, at the top of the workspace or in a folder made later, the broker makes the name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = 1000
FREE, WALLED = "free/made", "made"

CHECKOUT = ["sh", "-c", "rm -rf PLACE && git checkout -q -- PLACE"]
UNZIP = [
    "/usr/bin/python3",
    "-ISc",
    (
        "import shutil, zipfile; shutil.rmtree('PLACE', ignore_errors=True); "
        "zipfile.ZipFile('archive.zip').extractall('PLACE')"
    ),
]
LOOP = [
    "/usr/bin/python3",
    "-ISc",
    (
        "import os; os.makedirs('PLACE', exist_ok=True); os.chdir('PLACE')\n"
        "for _ in range(2000):\n"
        "    os.close(os.open('name', os.O_CREAT | os.O_WRONLY)); os.unlink('name')"
    ),
]


def fill(top: str) -> None:
    """Make a repository with the files in both places, and an archive of them."""
    names = [f"{number % 20}/{number}" for number in range(FILES)]
    with zipfile.ZipFile(f"{top}/archive.zip", "w") as archive:
        for name in names:
            archive.writestr(name, f"{name}\n" * 40)
    for place in (FREE, WALLED):
        with zipfile.ZipFile(f"{top}/archive.zip") as archive:
            archive.extractall(f"{top}/{place}")
    git = ["git", "-C", top, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "free", "made"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    shutil.rmtree(f"{top}/{WALLED}")  # so that it is made while the jail is open


def row(
    number: str, what: str, goal: float, command: list[str], place: str
) -> Callable[[], contextlib.AbstractContextManager[Row]]:
    """Return the row that compares *command* in *place*, with protected names and without."""
    words = [word.replace("PLACE", place) for word in command]

    @contextlib.contextmanager
    def measured() -> Iterator[Row]:
        if shutil.which("git") is None:
            raise LookupError("git is not installed")
        top = os.path.realpath(tempfile.mkdtemp(prefix=".vis-bench-"))
        try:
            fill(top)
            with (
                vr.Jail(vr.JailPolicy.workspace(top)) as protected,
                vr.Jail(vr.JailPolicy(write=[top])) as plain,
            ):
                yield Row(
                    number,
                    what,
                    goal,
                    lambda: protected.run(words, cwd=top, check=True),
                    lambda: plain.run(words, cwd=top, check=True),
                    {},
                )
        finally:
            shutil.rmtree(top)

    return measured


checkout_free = row("17a", "git checkout of 1,000 files beside the wall", 1.2, CHECKOUT, FREE)
checkout_walled = row("17b", "the same, made by the broker", 1.5, CHECKOUT, WALLED)
unzip_free = row("17c", "unzip of 1,000 files beside the wall", 1.2, UNZIP, FREE)
unzip_walled = row("17d", "the same, made by the broker", 1.65, UNZIP, WALLED)
loop_free = row("17e", "create and unlink in a loop beside the wall", 1.8, LOOP, FREE)
loop_walled = row("17f", "the same, made by the broker", 6.2, LOOP, WALLED)

"""Programs of Windows under wine, as scripts/test_wine.py has built them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def only_in_the_lane() -> None:
    """Skip the module that calls it, unless scripts/test_wine.py runs it: a lane of its own."""
    if "VIS_WINE" not in os.environ:
        pytest.skip("scripts/test_wine.py runs these tests", allow_module_level=True)


def windows_name(path: Path) -> str:
    """Return the name that a program of Windows has for a file of this machine."""
    return "Z:" + str(path).replace("/", "\\")


SECONDS = 60
"""How long one program may take, the start of wine included."""


class Answer(NamedTuple):
    """What became of a program."""

    code: int
    lines: list[str]
    aside: list[str]  # what wine said of its own processes

    def value(self, name: str) -> str:
        """Return what stands behind *name* in the one line that begins with it."""
        (line,) = [each for each in self.lines if each.startswith(f"{name} ")]
        return line.removeprefix(f"{name} ")


class Wine:
    """A prefix, with the programs of the lane."""

    def __init__(self, work: Path, program: str) -> None:
        self.binaries = work / "bin"
        self.drive = work / "prefix" / "drive_c"
        self.work, self._program = work, program
        self._folders = 0

    def folder(self) -> tuple[str, Path]:
        """Return a new folder: its path for Windows, and where it is."""
        self._folders += 1
        name = f"visjail-{self._folders}"
        place = self.drive / name
        place.mkdir()
        return rf"C:\{name}", place

    def run(
        self,
        *command: str,
        input: bytes = b"",
        cwd: Path | None = None,
        variables: dict[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> Answer:
        """Run a program of the lane; its name is that of a file in ``bin``, or a path."""
        program = self.binaries / command[0]
        result = subprocess.run(
            [self._program, str(program if program.is_file() else command[0]), *command[1:]],
            input=input,
            capture_output=True,  # apart: what wine says of itself is nobody's answer
            check=False,
            timeout=seconds,
            cwd=cwd or self.work,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.work),
                "WINEPREFIX": str(self.work / "prefix"),
                "WINEDEBUG": "-all",
                "WINEDLLOVERRIDES": "mscoree,mshtml=",
                "LANG": "C.UTF-8",
                **(variables or {}),
            },
        )
        text = result.stdout.decode("utf-8", "backslashreplace")
        aside = result.stderr.decode("utf-8", "backslashreplace").splitlines()
        return Answer(result.returncode, text.replace("\r", "").splitlines(), aside)

    def table(self, *tests: str) -> Answer:
        """Run tests of the table, each of which has to say that it passed."""
        answer = self.run("windows_table.exe", self.folder()[0], *tests)
        assert [line for line in answer.lines if line.startswith("ok ")] == [
            f"ok {test}" for test in tests
        ], "\n".join([*answer.lines, *answer.aside])
        assert answer.code == 0
        return answer

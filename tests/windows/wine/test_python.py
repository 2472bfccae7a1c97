"""A real CPython of Windows, staged and run by WindowsJail over wine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wine_helpers import only_in_the_lane

if TYPE_CHECKING:
    from wine_helpers import Wine

only_in_the_lane()

SCRIPTS = Path(__file__).parent.parent / "scripts"
WAYS = ("call", "open", "read", "raw", "kept", "subclass")


def run(wine: Wine, probe: str, script: str, tmp_path: Path) -> tuple[list[str], Path]:
    """Stage the Python with a script in it; return what it said, and where its work is."""
    staged = tmp_path / "python"
    shutil.copytree(wine.work / "python", staged)
    shutil.copyfile(SCRIPTS / script, staged / "script.py")
    windows, place = wine.folder()
    named = "Z:" + str(staged).replace("/", "\\")
    answer = wine.run("windows_lane.exe", windows, probe, variables={"VIS_PROBE_PYTHON": named})
    assert answer.code == 0, "\n".join([*answer.lines, *answer.aside])
    assert answer.lines[-1] == f"ok {probe}"
    (work,) = place.glob("vj-*/work")
    return answer.lines, work


def test_a_staged_python_runs(wine: Wine, tmp_path: Path) -> None:
    """W63, W23: it is whole, its folders are the jail's, and what it wrote stays.

    It starts a process of its own, and loads its libraries from beside it.
    """
    lines, work = run(wine, "python", "whole.py", tmp_path)
    assert lines[:-1] == [
        "modules 21 of 21",
        "platform win32 3 cpython",
        r"program app\python\python.exe",
        "directory work",
        r"temporary temp\Packages\visruntime.*\AC\Temp",
        "wrote 4",
        "process child",
    ]
    assert (work / "kept.txt").read_text() == "kept"
    assert not (work.parent / "app").exists()


@pytest.mark.timeout(240)
def test_consoles_are_guarded(wine: Wine, tmp_path: Path) -> None:
    """W62: no way to open a console is unseen by the audit hook; without the guard each of them is.

    The guard is the worker's own, in a real CPython, on a console that it could open.
    """
    _, work = run(wine, "python-console", "consoles.py", tmp_path)
    lines = (work / "result.txt").read_text().splitlines()
    assert lines == [
        *(f"control {way} opened 0" for way in WAYS),
        *(f"guarded {way} refused 1" for way in WAYS),
        "ended 0",
    ]

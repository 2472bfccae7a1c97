"""Another root file system is entered for one command, and nothing of it stays mounted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gates.elf import LOADERS

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "in_root.sh"
TRIED = """
test ! -e "$1" || exit 11
test -e "$2/given" || exit 12
test -e /proc/self/status || exit 13
echo made >/made
echo made >"$2/made"
exit 7
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root file system with a shell and nothing else."""
    folder = tmp_path / "root"
    shell = os.path.realpath("/bin/sh")
    told = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    for file in {shell, LOADERS[os.uname().machine], *re.findall(r"=> (/\S+)", told)}:
        (folder / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file[1:])
    for name in ("dev", "proc", "sys"):
        (folder / name).mkdir()
    return folder


def test_a_command_in_another_root(root: Path, tmp_path: Path, tool: Callable[[str], str]) -> None:
    """It must see no file of this system but the folders that are named, and leave no mount."""
    tool("bwrap")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/given").touch()
    shell = os.path.realpath("/bin/sh")
    inside = [shell, "-c", TRIED, shell, __file__, str(tmp_path / "work")]
    assert subprocess.run(inside, check=False).returncode == 11  # the control
    variables = {name: text for name, text in os.environ.items() if name != "SSL_CERT_FILE"}
    done = subprocess.run(
        [SCRIPT, root, tmp_path / "work", "--", *inside],
        cwd=tmp_path / "work",
        env=variables,
        check=False,
        timeout=30,
    )
    assert done.returncode == 7
    assert (root / "made").read_text() == (tmp_path / "work/made").read_text() == "made\n"
    assert str(root) not in Path("/proc/self/mountinfo").read_text()

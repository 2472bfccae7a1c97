"""Boundary: what the host makes for itself. No guest of another jail may reach it meanwhile."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import visruntime
from visruntime._jail import bubblewrap, making
from visruntime._jail.state_folder import state_folder
from visruntime._packages import trial_folder as trials
from visruntime.errors import JailUnavailable

SOURCES = Path(visruntime.__file__).parent
TEMPORARY = {"tempfile", "TMPDIR", "mkdtemp", "mkstemp", "gettempdir"}
NAMED_FOR_A_REASON = {
    ("_host/imports.py", "tempfile"),  # a list of names of modules
    ("jail.py", "TMPDIR"),  # a variable of the guest
    ("_jail/report.py", "TMPDIR"),  # what a note says of it
    ("_jail/macos_open.py", "TMPDIR"),  # a variable of the guest
    # The guest's own HOME on macOS, which has no mounts, in the user's folder of mode 0700.
    *(("_jail/macos_folder.py", name) for name in ("tempfile", "gettempdir", "mkdtemp")),
}
WATCHED = """
import json, os, sys
made, busy = [], []

def watch(event, details):
    if busy or event not in ("open", "os.mkdir", "os.symlink", "os.rename", "os.link"):
        return
    if event == "open" and not (details[2] or 0) & (os.O_CREAT | os.O_TRUNC):
        return
    path = details[1] if event in ("os.symlink", "os.rename", "os.link") else details[0]
    if not isinstance(path, (str, bytes)):
        return
    busy.append(1)
    at = details[2] if event == "os.mkdir" else -1
    # An open does not say in which folder a name is looked up: what has no slash was made by one.
    if at not in (-1, None):
        path = os.path.join(os.readlink(f"/proc/self/fd/{at}"), os.fsdecode(path))
    if event != "os.mkdir" or not os.path.exists(path):
        made.append([event, os.fsdecode(path)])
    busy.clear()

sys.addaudithook(watch)
"""


def made_by(text: str, temporary: Path, state: Path) -> list[tuple[str, str]]:
    """Return (event, path) of all that a Python process makes by its own name."""
    done = subprocess.run(
        [sys.executable, "-c", f"{WATCHED}\n{text}\nprint(json.dumps(made))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ
        | {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(state), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return [(event, path) for event, path in json.loads(done.stdout.splitlines()[-1])]


def test_no_module_of_the_host_uses_the_place_of_temporary_files() -> None:
    """A guest may have a write grant there; each place that only names it has its reason."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        if path.parent.name == "guest":
            continue  # runs in the jail
        text = path.read_text()
        tree = ast.parse(text if any(name in text for name in TEMPORARY) else "")
        for node in ast.walk(tree):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {node.module or "", *(alias.name for alias in node.names)}
            elif isinstance(node, ast.Name):
                names = {node.id}
            elif isinstance(node, ast.Attribute):
                names = {node.attr}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = set(node.value.split())  # a name of a variable, or a list of names
            found |= {(str(path.relative_to(SOURCES)), name) for name in names & TEMPORARY}
    assert found == NAMED_FOR_A_REASON


@pytest.mark.parametrize(
    "text",
    [
        "from visruntime import _doctor_probes as d\nd._files()\nwith d._things(): pass",
        "from visruntime.confinement import examine as e\ne.ATTEMPTS = ()\ne.check_confinement()",
        "from visruntime._jail.bubblewrap import *\nfollows_links(find_bubblewrap())",
    ],
    ids=["doctor", "confinement", "bubblewrap"],
)
def test_what_is_tried_is_made_in_the_state_folder(text: str, tmp_path: Path) -> None:
    """A guest with a write grant over TMPDIR must meet nothing of the host's, to swap it."""
    temporary, state = tmp_path / "temporary", tmp_path / "state"
    temporary.mkdir()
    state.mkdir()
    before = os.stat(temporary).st_mtime_ns
    made = made_by(text, temporary, state)
    assert made or "follows_links" in text
    for event, path in made:
        inside = f"{path}/".startswith((f"{state}/", "/dev/", "/proc/self/"))
        assert inside or "/" not in path, (event, path)
    assert os.stat(temporary).st_mtime_ns == before


def test_a_trial_folder_is_made_anew_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are there already, as links too, must be refused and lead nowhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "kept"
    kept.write_bytes(b"kept")
    with trials.trial_folder() as path:
        assert path.startswith(state_folder() + "/building/")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        folder = os.open(path, os.O_RDONLY)
        try:
            for name in ("file", "folder"):
                os.symlink(kept, f"{path}/{name}")
            with pytest.raises(FileExistsError):
                making.make_file("file", folder, b"x")
            with pytest.raises(FileExistsError):
                making.make_folder("folder", folder)
            making.make_file("other", folder, b"x", 0o700)
        finally:
            os.close(folder)
        assert stat.S_IMODE(os.stat(f"{path}/other").st_mode) == 0o700
    assert kept.read_bytes() == b"kept"
    assert not os.path.lexists(path)


@pytest.mark.parametrize(
    ("link", "follows"),
    [
        ("echo 'bwrap: x: Too many levels of symbolic links' >&2; exit 1", False),
        ("echo 'bwrap: x: Not a directory' >&2; exit 1", False),
        ("exit 0", True),
        ("exit 1", None),
        ("echo 'bwrap: x: No such file or directory' >&2; exit 1", None),
        ("echo 'bwrap: x: Not a directory' >&2; kill -9 $$", None),
    ],
)
def test_only_a_refusal_of_the_link_says_that_none_is_followed(
    link: str, *, follows: bool | None, tmp_path: Path
) -> None:
    """Whatever else goes wrong in the probe must not make a jail that trusts this bwrap."""
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\ncase "$*" in */link/made*) {link};; esac\n')
    program.chmod(0o755)
    if follows is None:
        with pytest.raises(JailUnavailable, match="makes no jail here"):
            bubblewrap.follows_links(str(program))
    else:
        assert bubblewrap.follows_links(str(program)) is follows

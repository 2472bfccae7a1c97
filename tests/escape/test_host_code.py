"""Boundary: code of the host that comes from elsewhere than ``sys.path``. No guest changes it."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from visruntime._host.import_places import mapped_programs

TESTS = str(Path(__file__).parent.parent)

HOST = """
import ctypes, importlib.util, json, os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append({tests!r})
assert here not in sys.path
from jail_helpers import Jail, JailPolicy, inside, outside

# As `pip install -e` makes it for a project whose package stands beside its pyproject.toml.
MAPPING = {{name: here + "/" + name for name in ("foo", "lazy", "single")}}

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in MAPPING: return None
        folder = MAPPING[name]
        return importlib.util.spec_from_file_location(
            name, folder + "/__init__.py", submodule_search_locations=[folder])

class EditableFinder:
    __module__ = "_editable_of_somebody"
    def find_spec(self, name, path=None, target=None): return None

sys.meta_path += [Finder, EditableFinder()]
import foo
ctypes.CDLL(here + "/library.so")

TRY = '''
here = %r
def make(name): return opened(here + "/" + name, os.O_CREAT | os.O_WRONLY)
def change(name): return opened(here + "/" + name, os.O_WRONLY)
answer([
    make("foo/sub.py"), make("lazy/sub.py"), change("single.py"), change("library.so"),
    change("host.py"), make("lib/libsqlite3.so.0"), make("free/file"), make("more.py"),
    attempt(os.rename, here + "/foo", here + "/aside"),
    attempt(os.rename, here + "/library.so", here + "/aside.so"),
    attempt(os.unlink, here + "/host.py"),
])
''' % here
CLEAN = '''
here = %r
for name in ("foo/sub.py", "lazy/sub.py", "lib/libsqlite3.so.0", "free/file", "more.py"):
    if os.path.exists(here + "/" + name): os.unlink(here + "/" + name)
answer(None)
''' % here
got = []
for grant in (here, os.path.dirname(here)):
    with Jail(JailPolicy(write=[grant])) as jail:
        got.append([inside(jail, TRY), [note for note in jail.report.notes if "imports" in note]])
    outside(CLEAN)
with Jail(JailPolicy(write=[here + "/foo", here + "/lib"])) as jail:
    tries = "here = %r\\nanswer([opened(here + n, os.O_CREAT | os.O_WRONLY) for n in " % here
    tries += "('/foo/sub.py', '/lib/libsqlite3.so.0')])"
    got.append([inside(jail, tries), [note for note in jail.report.notes if "imports" in note]])
outside(CLEAN)
# A package without __init__.py, in a grant within a folder of sys.path.
other = os.path.dirname(here) + "/other"
sys.path.append(other)
import space.tool
with Jail(JailPolicy(write=[other + "/space"])) as jail:
    got.append([note for note in jail.report.notes if "imports" in note])
from visruntime._host.trusted_finder import GUESTS
got.append(GUESTS.known)
import shutil
shutil.copy(here + "/host.py", here + "/kept.py")
got.append(outside(TRY))
print(json.dumps(got))
"""


def make_project(here: Path) -> None:
    """Make what the host runs, in the folder *here*."""
    for name in ("foo", "lazy", "lib", "free"):
        (here / name).mkdir(parents=True)
    for name in ("foo/__init__.py", "lazy/__init__.py", "single.py"):
        (here / name).write_text("")
    library = next(Path(sysconfig.get_path("purelib")).glob("_cffi_backend*.so"))
    shutil.copy(library, here / "library.so")


def test_what_the_host_runs_from_elsewhere_is_read_only(tmp_path: Path) -> None:
    """Editable installs, mapped libraries, the script and LD_LIBRARY_PATH must not be changed."""
    here = tmp_path.resolve() / "all" / "project"
    make_project(here)
    (here.parent / "other" / "space").mkdir(parents=True)
    (here.parent / "other" / "space" / "tool.py").write_text("")
    (here / "host.py").write_text(HOST.format(tests=TESTS))
    result = subprocess.run(
        [sys.executable, "-I", str(here / "host.py")],
        env={**os.environ, "LD_LIBRARY_PATH": f"{here}/lib"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    granted, above, themselves, space, known, control = json.loads(result.stdout.splitlines()[-1])
    for attempts, notes in (granted, above):
        assert attempts[:6] == [errno.EROFS] * 6
        assert attempts[6:8] == [0, 0]
        assert attempts[8:] == [errno.EBUSY] * 3
        assert len(notes) == 1
        assert "_editable_of_somebody.EditableFinder" in notes[0]
    attempts, notes = themselves
    assert attempts == [0, 0]
    assert any(f"{here.parent}/other/space is a package that the host" in note for note in space)
    assert known is True
    assert any(f"{here}/foo is a package that the host has imported" in note for note in notes)
    assert any(f"{here}/lib is on the host's LD_LIBRARY_PATH" in note for note in notes)
    assert control == [0] * 11


COMMAND = """
import site
site.addsitedir({site!r})
import os
import visruntime as vr
for name in ("cache/uv", "cache/pip", "cache/visruntime"):
    os.makedirs(os.path.join(os.environ["HOME"], name), exist_ok=True)
try:
    with vr.Jail(vr.JailPolicy(write=[os.environ["HOME"]])) as jail:
        print([note for note in jail.report.notes if "imports" in note])
except vr.PolicyError as error:
    print(error)
"""


@pytest.mark.parametrize("way", ["plain", "link"])
def test_how_the_host_is_started_next_time_is_said_or_refused(tmp_path: Path, way: str) -> None:
    """A user's site that is still to come must be noted; a link to the command is refused."""
    home = tmp_path.resolve() / "home"
    (home / "bin").mkdir(parents=True)
    script = tmp_path.resolve() / "tool"
    script.write_text(COMMAND.format(site=sysconfig.get_path("purelib")))
    started = script
    if way == "link":
        started = home / "bin" / "tool"
        started.symlink_to(script)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name not in ("UV_CACHE_DIR", "PIP_CACHE_DIR")
    }
    # Not the environment's own: that has no user site.
    base = os.path.realpath(sys.executable)
    result = subprocess.run(
        [base, str(started)],
        env={**environment, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    if way == "link":
        assert f"{started} is a link to {script}, the host's own script" in result.stdout
    else:
        assert f"{home}/.local/lib/python" in result.stdout
        assert "does not exist, is where the host's interpreter looks" in result.stdout


@pytest.mark.parametrize("name", ["plain", "line\nend", "back\\012slash"])
def test_what_is_mapped_is_found_by_any_name(tmp_path: Path, name: str) -> None:
    """The kernel writes a line's end in its own way; the file must be kept as any other."""
    folder = tmp_path.resolve() / name
    folder.mkdir()
    (folder / "program").write_bytes(b"x" * mmap.PAGESIZE)
    assert mapped_programs([str(folder)]) == []
    with (
        open(folder / "program", "rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    ):
        assert mapped_programs([str(folder)]) == [str(folder / "program")]
        assert mapped_programs([str(folder / "other")]) == []

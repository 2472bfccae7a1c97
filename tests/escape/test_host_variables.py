"""Boundary: code that the host runs because a variable or the build of an editable install says so."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from visruntime._host.loader_variables import library_folders, named_by_variables
from visruntime._host.trusted_finder import Guests

TESTS = str(Path(__file__).parent.parent)

HOST = """
import json, os, sys
here = sys.argv[1]
sys.path.append({tests!r})
from jail_helpers import Jail, JailPolicy, inside, outside

class Builder:
    # As scikit-build-core (editable.rebuild) and meson-python leave them in a process.
    __module__ = "_editable_of_demo"
    def __init__(self, **fields): self.__dict__.update(fields)
    def find_spec(self, name, path=None, target=None): return None

sys.meta_path.insert(0, Builder(path=here + "/build", rebuild_flag=True, rebuilt=False,
    known_source_files={{"demo": here + "/demo/__init__.py"}}))
sys.meta_path.insert(0, Builder(_build_path=here + "/meson", _build_cmd=["ninja"]))
sys.meta_path.insert(0, Builder(path=here + "/by-hand", rebuild_flag=False))

FILES = {files!r}
TRY = '''
here = %r
answer([opened(here + "/" + name, os.O_CREAT | os.O_WRONLY) for name in %r])
''' % (here, FILES)
got = []
with Jail(JailPolicy(write=[here])) as jail:
    got.append([inside(jail, TRY), jail.report.notes])
got.append(outside(TRY))
print(json.dumps(got))
"""

FREE = ["free", "by-hand/Makefile", "lib/file"]


def run_host(here: Path, files: list[str], **variables: str) -> list[Any]:
    """Return what the attempts inside gave, the notes, and what they gave outside."""
    result = subprocess.run(
        [sys.executable, "-I", "-c", HOST.format(tests=TESTS, files=files), str(here)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    (inside, notes), outside = json.loads(result.stdout.splitlines()[-1])
    return [inside, notes, outside]


def test_what_variables_and_builds_lead_to_is_read_only(tmp_path: Path) -> None:
    """A guest must change no file that the loader, OpenSSL, iconv or a build reads for the host."""
    here = tmp_path.resolve() / "work"
    library = f"lib/{sys.implementation._multiarch}"
    if not os.path.isdir(f"/{library}"):
        library = "lib64"
    for name in ("build", "meson", "by-hand", library, "modules", "gconv", "engines", "free.d"):
        (here / name).mkdir(parents=True)
    for name in ("openssl.cnf", "start.py", "CMakeLists.txt"):
        (here / name).write_text("")
    kept = [
        "build/Makefile",
        "meson/build.ninja",
        f"{library}/libffi.so.8",
        "modules/p.so",
        "engines/e.so",
        "gconv/gconv-modules",
        "openssl.cnf",
        "start.py",
    ]
    inside, notes, outside = run_host(
        here,
        [*kept, *FREE, "CMakeLists.txt"],
        LD_LIBRARY_PATH=f"{here}/$LIB",
        OPENSSL_CONF=f"{here}/openssl.cnf",
        OPENSSL_MODULES=f"{here}/modules",
        OPENSSL_ENGINES=f"{here}/engines",
        GCONV_PATH=f"{here}/gconv:{here}/missing",
        PYTHONSTARTUP=f"{here}/start.py",
    )
    assert inside == [errno.EROFS] * len(kept) + [0] * 4
    assert outside == [0] * (len(kept) + 4)
    assert any(f"builds it in {here}/build first" in note for note in notes)
    assert any(f"builds it in {here}/meson first" in note for note in notes)
    assert not any("by-hand" in note for note in notes)
    assert any(
        f"{here}/missing, which does not exist, is what the host's GCONV" in n for n in notes
    )


def test_names_that_the_loader_replaces_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loader puts in must be among the folders; a name without a slash is no path."""
    machine = os.uname().machine
    monkeypatch.setenv("LD_LIBRARY_PATH", "/a/$PLATFORM:$ORIGIN/../lib;/b/${ORIGIN}:/c/$LIBS:")
    found = library_folders()
    own = os.path.dirname(os.path.realpath(sys.executable))
    assert f"/a/{machine}" in found
    assert found[-4:] == [f"{own}/../lib", f"/b/{own}", "/c/$LIBS", ""]
    monkeypatch.setenv("LD_PRELOAD", "/a/one.so libtwo.so:./three.so")
    assert [path for path, name in named_by_variables() if name == "LD_PRELOAD"] == [
        "/a/one.so",
        "./three.so",
    ]


class Builder:
    """Builds before it answers, as finders of editable installs do."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self.rebuild_flag = True
        self.rebuilt = False
        self.asked = 0

    def find_spec(self, *_: object) -> None:
        """Count how often it was asked."""
        self.asked += 1


def test_a_guarded_import_starts_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finder that would build must not be asked by whoever leaves places of guests out."""
    finder = Builder(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    guests = Guests()
    guests.remember([("write", str(tmp_path))])
    with guests.left_out():
        with pytest.raises(ModuleNotFoundError):
            import_module("vis_missing")
        assert finder.asked == 0
        finder.rebuilt = True  # and will not build once more
        with pytest.raises(ModuleNotFoundError):
            import_module("vis_missing")
    assert finder.asked == 1

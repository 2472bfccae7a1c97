"""``visruntime run`` with packages: from a project, by ``--with``, or as a script asks for them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from packages_helpers import make_wheel, require_uv

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

COMMAND = [sys.executable, "-m", "visruntime", "run"]
SCRIPT = '# /// script\n# requires-python = ">=3.11"\n# dependencies = ["tinyb"]\n# ///\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the environments of a test below its own folder."""
    require_uv()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    make_wheel(tmp_path / "wheels", "tinyb", "1.2", {"tinyb.py": "y = 2\n"})


def visruntime(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with *words*, as a user would."""
    return subprocess.run(
        [*COMMAND, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        stdin=subprocess.DEVNULL,
    )


def test_with_gives_a_package(tmp_path: Path) -> None:
    """What is named comes from the wheelhouse, and nothing is said of it."""
    words = ["--with", "tinyb>=1", "--wheelhouse", "wheels", "-c", "import tinyb; print(tinyb.y)"]
    for _ in range(2):
        done = visruntime(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_a_script_that_needs_packages_says_which_flag(tmp_path: Path) -> None:
    """Without leave to fetch anything the script does not run; with a wheelhouse it does."""
    (tmp_path / "s.py").write_text(SCRIPT + "import sys, tinyb\nprint(tinyb.y, sys.argv)\n")
    refused = visruntime("s.py", "x", cwd=tmp_path)
    assert refused.returncode == 125
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert "--index default" in refused.stderr
    assert "--wheelhouse DIR" in refused.stderr
    done = visruntime("--wheelhouse", "wheels", "s.py", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 ['s.py', 'x']\n", "")
    # An environment that the user chose is the script's, whatever its metadata asks for.
    own = visruntime("--python", sys.executable, "s.py", cwd=tmp_path)
    assert own.returncode == 1
    assert "No module named 'tinyb'" in own.stderr


def test_a_script_for_another_python_does_not_run(tmp_path: Path) -> None:
    """The version that it asks for is checked, also where it needs no packages."""
    (tmp_path / "s.py").write_text('# /// script\n# requires-python = "<3.11"\n# ///\nprint(1)\n')
    done = visruntime("s.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (125, "")
    assert "needs Python <3.11" in done.stderr
    (tmp_path / "s.py").write_text('# /// script\n# requires-python = ">=3.11"\n# ///\nprint(1)\n')
    assert visruntime("s.py", cwd=tmp_path).stdout == "1\n"


def test_a_missing_module_names_the_flag(tmp_path: Path) -> None:
    """The line after the traceback is what to type next."""
    bare = visruntime("-c", "import nothere", cwd=tmp_path)
    assert bare.returncode == 1
    assert bare.stderr.splitlines()[-1].startswith(
        "visruntime: this interpreter has no nothere: add --with nothere "
    )
    words = ["--with", "tinyb", "--wheelhouse", "wheels", "-c", "import nothere.inner"]
    assert visruntime(*words, cwd=tmp_path).stderr.splitlines()[-1] == (
        "visruntime: the script has no nothere; to add its package: --with nothere"
    )
    own = visruntime("-c", "raise ModuleNotFoundError('no', name='../x')", cwd=tmp_path)
    assert own.stderr.splitlines()[-1] == "ModuleNotFoundError: no"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--project", ".", "--with", "x", "-c", ""], "uv add --project"),
        (["--project", ".", "-c", ""], "is no project"),
        (["--group", "dev", "-c", ""], "go with --project"),
        (["--with", "-e .", "-c", ""], "option of pip"),
        (["--with", "x", "--wheelhouse", "missing", "-c", ""], "no folder"),
        (["--with", "x", "--hashes", "none", "-c", ""], "--hashes"),
        (["--with", "x", "--index", "", "-c", ""], "--index"),
    ],
)
def test_flags_that_make_no_sense_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    """One line says what is wrong, and nothing runs."""
    done = visruntime(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_for_terminals(tmp_path: Path, *, quiet: bool) -> None:
    """A build says what it does where somebody sees it, and nowhere else, nor if told to be quiet."""
    words = [*COMMAND, "--with", "tinyb", "--wheelhouse", "wheels"]
    words += ["--quiet"] if quiet else []
    words += ["-c", "print(1)"]
    master, terminal = pty.openpty()
    done = subprocess.run(
        words,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        check=False,
        timeout=50,
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:
        pass  # Linux: the end of a terminal that nobody holds any more
    os.close(master)
    assert done.stdout == b"1\n"
    assert (b"visruntime: installing the packages of the script" in shown) is not quiet
    assert (b"tinyb==1.2" in shown) is not quiet
    assert shown or quiet

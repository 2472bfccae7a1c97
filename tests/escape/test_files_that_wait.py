"""A file of a project that is none: a FIFO in its place, or a link to a device.

The host reads files that a guest, or a stranger, may have put into a folder. To open a FIFO is to
wait for whoever opens its other end, which nobody does: no time limit of a run counts then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from visruntime import bundle
from visruntime._packages.request import (
    of_project,
    of_script,
    read_requirements,
    read_script,
)
from visruntime._packages.uv import find_uv
from visruntime._policy.git_names import further_names
from visruntime._policy.secret_names import _holds_key
from visruntime._worker.probe import _read as read_answer
from visruntime._worker.tls import _check_bundle
from visruntime.cli.run import _script
from visruntime.config import ConfigFile
from visruntime.elf import Program
from visruntime.environments import find_interpreter
from visruntime.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 5.0
SCRIPT = b"# /// script\n# dependencies = ['a']\n# ///\n"


@pytest.fixture(autouse=True)
def hurried() -> Iterator[None]:
    """End a test that waits."""

    def late(*_: object) -> None:
        raise TimeoutError("the host waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def unasked(*_: object) -> tuple[int, bytes]:
    """Stand where an interpreter would be asked, which none here is."""
    raise AssertionError("it was started")


def make_fifo(path: Path) -> None:
    """Make what is waited for."""
    os.mkfifo(path, 0o777)


def make_device(path: Path) -> None:
    """Make what never ends."""
    path.symlink_to("/dev/zero")


# What the host reads, by the name of the file, and how it is made to.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "program": ("python", lambda path: Program(str(path))),
    "interpreter": ("python", lambda path: find_interpreter(path, probe=unasked)),
    "uv": ("uv", find_uv),
    "policy": ("visruntime.toml", lambda path: ConfigFile(path).policy()),
    "project's policy": ("pyproject.toml", lambda path: ConfigFile(path).policy()),
    "project": (
        "pyproject.toml",
        lambda path: of_project(str(path.parent), extras=(), groups=(), editable=True),
    ),
    "lock": (
        "uv.lock",
        lambda path: of_project(str(path.parent), extras=(), groups=(), editable=True),
    ),
    "requirements": ("r.txt", lambda path: read_requirements(str(path))),
    "script": ("s.py", lambda path: read_script(str(path))),
    "script of the command": ("s.py", lambda path: _script(str(path), "s.py")),
    "script's lock": ("s.py.lock", lambda path: of_script(SCRIPT, str(path)[: -len(".lock")])),
    "archive": ("a.tar.gz", bundle.verify),
    "authorities": ("ca.pem", lambda path: _check_bundle(str(path))),
}
SILENT: dict[str, tuple[str, Callable[[Path], object]]] = {
    "answer": ("answer", lambda path: read_answer(str(path))),
    "key": ("k.pem", lambda path: _holds_key(str(path))),
    "settings of git": (".git/config", lambda path: further_names(str(path.parents[1]))),
}


@pytest.mark.parametrize("make", [make_fifo, make_device])
@pytest.mark.parametrize("what", READERS)
def test_what_the_host_reads_is_a_file(
    tmp_path: Path, what: str, make: Callable[[Path], None]
) -> None:
    """It is refused as it is, and neither waited for nor read for ever."""
    name, read = READERS[what]
    if what == "lock":
        (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\n')
    make(tmp_path / name)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (each has its own; which, is below)
        read(tmp_path / name)
    assert not isinstance(caught.value, (TimeoutError, AssertionError, MemoryError))
    said = str(caught.value)
    assert any(part in said for part in ("no regular file", "is a link", "not an executable file"))


@pytest.mark.parametrize("make", [make_fifo, make_device])
@pytest.mark.parametrize("what", SILENT)
def test_what_the_host_looks_into_is_a_file(
    tmp_path: Path, what: str, make: Callable[[Path], None]
) -> None:
    """What only adds to something is passed over."""
    name, read = SILENT[what]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    assert not read(tmp_path / name)


@pytest.fixture
def program(tmp_path: Path, tool: Callable[[str], str]) -> Path:
    """Return a program that wants its library beside itself, where that is."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    library = folder / "libpython3.11.so.1.0"
    shared = ["-shared", "-nostdlib", f"-Wl,-soname,{library.name}", "-o", str(library)]
    linked = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", str(library), "-o", f"{folder}/python"]
    for source, options in (("int x;", shared), ("int main(void) { return 0; }", linked)):
        command = [tool("cc"), "-x", "c", "-", "-x", "none", *options]
        subprocess.run(command, input=source.encode(), check=True)
    return folder / "python"


@pytest.mark.parametrize("make", [make_fifo, make_device])
def test_the_library_beside_a_program_is_a_file(
    program: Path, make: Callable[[Path], None]
) -> None:
    """A hostile ``venv/bin/python`` must not make the host wait for what lies beside it."""
    library = program.parent / "libpython3.11.so.1.0"

    class Asked(Exception):
        pass

    def probe(*_: object) -> tuple[int, bytes]:
        raise Asked

    # The control: with the library in its place, the interpreter would be asked next.
    with pytest.raises(Asked):
        find_interpreter(program, probe=probe)
    library.unlink()
    make(library)
    command = [
        sys.executable,
        "-m",
        "visruntime",
        "run",
        "--timeout",
        "2",
        "--python",
        str(program),
    ]
    # Another libpython3.11 of this machine may be taken instead.
    with pytest.raises((Asked, PolicyError), match=r"regular file|through a link|^$"):
        find_interpreter(program, probe=probe)
    ended = subprocess.run([*command, "-"], check=False, capture_output=True, input=b"", timeout=30)
    assert ended.returncode != 0
    assert b"Traceback" not in ended.stderr

"""examples/host: a host in C that has no Python of its own, against the sources and the archive."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from archive.worker import BOOTSTRAP, START
from interpreters import programs
from required import missing

from visruntime._jail.diagnose import init_path
from visruntime._worker.start import LOAD, bootstrap
from visruntime.environments import CORE, LOADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime.bundle import Bundle

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native" / "visjail"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror")


class Host:
    """A compiled host, and the folder that it takes its parts from."""

    def __init__(self, program: Path, root: Path) -> None:
        self.program = program
        self.root = root

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run it, with nothing of ours in its environment."""
        return subprocess.run(
            [self.program, self.root, *words],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/nonexistent"},
            timeout=50,
        )


def compile_with(command: list[str]) -> None:
    """Run a compiler, which must find nothing to warn of."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), command


def installed_python() -> Path:
    """Return the prefix of a CPython 3.13 with a shared library."""
    prefixes = [Path(os.path.realpath(program)).parents[1] for program in programs("3.13")]
    shared = [each for each in prefixes if (each / "lib" / "libpython3.13.so.1.0").exists()]
    if not shared:
        missing("no CPython 3.13 with a shared library in PATH, nor installed by pyenv or uv")
    return shared[0]


@pytest.fixture(scope="module")
def from_sources(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """Return the host, compiled with the library of this tree, and laid out as an archive is."""
    folder = tmp_path_factory.mktemp("host")
    tree = folder / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / START).parent.mkdir(parents=True)
    shutil.copy(init_path(), tree / "bin")
    shutil.copy(LOADER, tree / "bin")
    shutil.copy(CORE, tree / "lib")
    (tree / START).write_text(LOAD)
    (tree / BOOTSTRAP).write_bytes(bootstrap(same_as_host=False))
    (tree / "python").symlink_to(installed_python())
    cmake = (NATIVE / "CMakeLists.txt").read_text()
    sources = re.search(r"set\(VISJAIL_SOURCES([^)]*)\)", cmake)
    assert sources is not None
    library = [f"native/visjail/{name}" for name in sources[1].split()]
    example = sorted(map(str, ROOT.glob("examples/host/*.c")))
    options = ["-std=c11", "-D_GNU_SOURCE", *WARNINGS, "-Inative/visjail", "-pthread"]
    compile_with(["cc", *options, *example, *library, "-o", str(folder / "host")])
    return Host(folder / "host", tree)


@pytest.fixture(scope="module")
def from_archive(extracted: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """Return the host, compiled by the command of the documents against an unpacked archive."""
    if shutil.which("pkg-config") is None:
        missing("pkg-config is not installed")
    folder = tmp_path_factory.mktemp("host")
    page = (ROOT / "doc" / "c-host.md").read_text()
    (command,) = re.findall(r"^cc (?:.*\\\n)*.*$", page, re.MULTILINE)
    variables = os.environ | {"ARCHIVE": extracted.folder}
    done = subprocess.run(
        ["sh", "-euc", command.replace("-o host", f"-o {shlex.quote(str(folder / 'host'))}")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT / "examples" / "host",
        env=variables,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return Host(folder / "host", Path(extracted.folder))


@pytest.fixture(params=["from_sources", "from_archive"])
def host(request: pytest.FixtureRequest) -> Host:
    """Return each of the two."""
    made = request.getfixturevalue(request.param)
    assert isinstance(made, Host)
    return made


def test_a_program_in_a_jail(host: Host, tmp_path: Path) -> None:
    """A program of a C host may not read what it was not granted, nor hide how it ended."""
    secret = tmp_path / "secret"
    secret.write_text("swordfish\n")
    done = host("run", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr == "err\nhost: exit code 3, 4 of 4 bytes of output\n"
    refused = host("run", "cat", str(secret))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "No such file or directory" in refused.stderr
    control = subprocess.run(["cat", secret], capture_output=True, text=True, check=True)
    assert control.stdout == "swordfish\n"
    assert host("run", "no-such-program").returncode == 125
    assert host("run", "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_what_a_guest_prints_commands_no_terminal(host: Host) -> None:
    """No control character of a guest may reach the terminal of a C host."""
    done = host("run", "printf", r"a\033[2Jb\n")
    assert done.stdout == "a?[2Jb\n"
    assert host("eval", r"'a\x1b[2Jb'").stdout == "a?[2Jb\n"


@pytest.mark.parametrize(
    ("expression", "printed"),
    [
        ("6*7", "42\n"),
        ("-70000", "-70000\n"),
        ("2**40", f"{2**40}\n"),
        ("1.25", "1.25\n"),
        ("'text'", "text\n"),
        ("None", "None\n"),
        ("[1, {2: 3}]", "a value with the tag 0x10, of 16 bytes\n"),
    ],
)
def test_a_worker_evaluates(from_sources: Host, expression: str, printed: str) -> None:
    """What a worker answers by frames is printed as it is, by a host without Python."""
    done = from_sources("eval", expression)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_the_worker_is_jailed(host: Host, tmp_path: Path) -> None:
    """The worker of a C host is in the jail, and an error of the guest's is told as such."""
    secret = tmp_path / "secret"
    secret.write_text("swordfish\n")
    done = host("eval", f"open({str(secret)!r}).read()")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("FileNotFoundError: [Errno 2] No such file or directory")
    assert secret.read_text() == "swordfish\n"
    for act in ("__import__('os')._exit(3)", "bytes(9_000_000)"):
        gone = host("eval", act)
        assert (gone.returncode, gone.stdout) == (125, "")
        assert gone.stderr == "host: worker: it is gone, or says what this host does not know\n"


def test_the_python_is_that_of_the_archive(from_archive: Host) -> None:
    """The C host must find the Python of its archive, where no other is in reach."""
    done = from_archive("eval", "__import__('sys').base_prefix")
    assert (done.returncode, done.stdout) == (0, f"{from_archive.root}/python\n"), done.stderr


def test_what_it_cannot_start(from_sources: Host, tmp_path: Path) -> None:
    """A folder that is no archive, and words that it does not know, are refused in one line."""
    for words in ((), ("run",), ("eval", "1", "2"), ("walk", "x")):
        done = from_sources(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
        assert done.stderr.startswith("host: usage: ")
    done = Host(from_sources.program, tmp_path / "none")("run", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.endswith("No such file or directory\n")


def test_the_library_alone(tmp_path: Path, tool: Callable[[str], str]) -> None:
    """VIS_LIBRARY_ONLY must build libvisjail without Python, and nothing else."""
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(tmp_path), "-DVIS_LIBRARY_ONLY=ON"]
    done = subprocess.run(configure, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    assert "Python" not in done.stdout
    listed = subprocess.run(
        [tool("cmake"), "--build", str(tmp_path), "--target", "help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    ).stdout
    assert "visjail" in listed
    assert "vispython" not in listed

"""The wheel that is published works where nothing but it is there: no checkout, no compiler."""

from __future__ import annotations

import os
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gates import elf
from gates import wheel as wheel_gate
from interpreters import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FULL = os.environ.get("VIS_FULL") == "1"
VERSIONS = ("3.11", "3.12", "3.13")
EVERY = [(how, version) for how in ("pip", "uv pip", "uv tool") for version in VERSIONS]
# One of each without VIS_FULL=1.
SOME = [("pip", "3.11"), ("uv pip", "3.12"), ("uv tool", "3.13")]
SOURCES = Path(__file__).parents[2] / "src"


def run(
    command: list[str | Path], variables: Mapping[str, str], folder: Path, *, umask: int = -1
) -> subprocess.CompletedProcess[str]:
    """Run a command in *folder* with these variables only."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=variables,
        cwd=folder,
        umask=umask,
    )


class Installed:
    """A visruntime that was installed from the wheel, and what it needs to run."""

    def __init__(
        self, program: Path, python: Path, variables: dict[str, str], folder: Path
    ) -> None:
        self.program = program
        self.python = python
        self.variables = variables
        self.folder = folder

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``visruntime ARGUMENTS``."""
        return run([self.program, *arguments], self.variables, self.folder)

    def package(self) -> Path:
        """Return the folder of the installed package."""
        code = "import visruntime; print(visruntime.__file__)"
        shown = run([self.python, "-I", "-c", code], self.variables, self.folder)
        assert shown.returncode == 0, shown.stderr
        return Path(shown.stdout.strip()).parent


@pytest.fixture
def install(
    wheel: Path,
    tmp_path: Path,
    without_compilers: str,
) -> Callable[[str, str], Installed]:
    """Return a function that installs the wheel for a Python, under the umask 077."""

    def make(how: str, version: str) -> Installed:
        python = interpreter(int(version.removeprefix("3.")))
        folder = tmp_path / "empty"
        folder.mkdir()
        kept = ("UV_CACHE_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "XDG_CACHE_HOME")
        variables = {name: os.environ[name] for name in kept if name in os.environ}
        home = os.environ.get("HOME", "/nonexistent")
        variables |= {"PATH": without_compilers, "HOME": home, "UV_LINK_MODE": "copy"}
        variables |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_NO_PROGRESS": "1"}
        variables |= {"UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "UV_PYTHON_DOWNLOADS": "never"}
        inner = tmp_path / "venv"
        own = inner / "bin" / "python"
        ways: dict[str, list[list[str | Path]]] = {
            "pip": [
                [python, "-m", "venv", inner],
                [own, "-m", "pip", "install", "-q", "--only-binary=:all:", wheel],
            ],
            "uv pip": [
                ["uv", "venv", "-q", "--python", python, inner],
                ["uv", "pip", "install", "-q", "--no-build", "--python", own, wheel],
            ],
            "uv tool": [["uv", "tool", "install", "-q", "--no-build", "--python", python, wheel]],
        }
        for step in ways[how]:
            done = run(step, variables, folder, umask=0o077)
            assert done.returncode == 0, (step, done.stdout, done.stderr)
        if how == "uv tool":
            program = tmp_path / "bin" / "visruntime"
            own = tmp_path / "tools" / "visruntime" / "bin" / "python"
        else:
            program = inner / "bin" / "visruntime"
        return Installed(program, own, variables, folder)

    return make


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("how", "version"), EVERY if FULL else SOME)
def test_the_installed_wheel_runs_python(
    install: Callable[[str, str], Installed], how: str, version: str
) -> None:
    """Neither installer nor umask nor version may cost a program its run bit, or a user a jail."""
    installed = install(how, version)
    shown = installed("run", "-c", "import sys; print(6 * 7, *sys.version_info[:2])")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"42 {version.replace('.', ' ')}\n"
    refused = installed("run", "-c", "open('/etc/hostname')")
    assert refused.returncode == 1
    assert "PermissionError" in refused.stderr or "FileNotFoundError" in refused.stderr
    shown = installed("doctor")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    package = installed.package()
    assert not package.is_relative_to(SOURCES)
    for name in wheel_gate.PROGRAMS:
        mode = stat.S_IMODE((package.parent / name).stat().st_mode)
        assert mode & 0o100, (name, oct(mode))
        assert not mode & 0o7022, (name, oct(mode))


@pytest.mark.timeout(300)
def test_a_program_without_its_run_bit_is_named(install: Callable[[str, str], Installed]) -> None:
    """A file that lost its run bit is neither repaired in silence nor a riddle."""
    installed = install("uv pip", "3.11")
    package = installed.package()
    for name in ("vispython", "bin/visjail-init"):
        program = package / name
        mode = program.stat().st_mode
        program.chmod(0o644)
        refused = installed("run", "-c", "pass")
        assert refused.returncode in (125, 126), refused
        assert str(program) in refused.stderr
        assert f"chmod +x {program}" in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert stat.S_IMODE(program.stat().st_mode) == 0o644
        program.chmod(mode)
    assert installed("run", "-c", "pass").returncode == 0


def test_the_wheel_passes_its_gates(wheel: Path, source: Path) -> None:
    """Nothing is in the wheel or the source distribution that a gate refuses."""
    assert wheel_gate.problems(wheel) == []
    assert wheel_gate.problems(source) == []
    hardened = (*wheel_gate.PROGRAMS, *wheel_gate.COMPILED)
    assert elf.problems(wheel, machine=os.uname().machine, hardened=hardened) == []


def test_the_wheel_names_no_folder_of_its_build(wheel: Path) -> None:
    """No compiled file holds the folder that it was built in."""
    with zipfile.ZipFile(wheel) as archive:
        for name in (*wheel_gate.PROGRAMS, *wheel_gate.COMPILED):
            data = archive.read(name)
            for path in (b"/home/", b"/root/", b"/builds/", b"/src/visruntime", b"native/vis"):
                # Our own files are named from the top of the repository.
                at = data.find(path)
                assert at < 0 or data[at - 1] in b"\0.", (name, data[at - 60 : at + 60])


def built_from(source: Path, folder: Path, uv: str) -> dict[str, str]:
    """Unpack *source* into *folder* and build there; return the digests of what comes out."""
    folder.mkdir()
    # By tar: the filter of tarfile came with Python 3.11.4.
    subprocess.run(["tar", "-xzf", source, "-C", folder, "--no-same-owner"], check=True)
    (copy,) = folder.iterdir()
    command = [uv, "run", "-q", "--frozen", "--isolated", "--only-group", "packaging"]
    command += ["scripts/build_wheel.py", "--out", str(folder / "dist")]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, check=True, cwd=copy, env=variables, stdout=subprocess.DEVNULL)
    files = (folder / "dist").iterdir()
    return {each.name: wheel_gate.digest(each.read_bytes()) for each in files}


# Two fixtures, so that each build has the time without progress that a test may take.
@pytest.fixture
def one_build(source: Path, tmp_path: Path, tool: Callable[[str], str]) -> dict[str, str]:
    """Return what a build in one folder gives."""
    return built_from(source, tmp_path / "one", tool("uv"))


@pytest.fixture
def other_build(source: Path, tmp_path: Path, tool: Callable[[str], str]) -> dict[str, str]:
    """Return what a build in another folder gives."""
    return built_from(source, tmp_path / "another place", tool("uv"))


@pytest.mark.skipif(not FULL, reason="two more builds: VIS_FULL=1 asks for them")
@pytest.mark.timeout(900)
def test_two_folders_give_the_same_bytes(
    one_build: dict[str, str], other_build: dict[str, str]
) -> None:
    """Neither the folder nor the hour of a build is seen in the wheel or its source."""
    assert len(one_build) == 2
    assert one_build == other_build


@pytest.mark.skipif(not FULL, reason="fetches cibuildwheel: VIS_FULL=1 asks for it")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("platform", "machines", "builds"),
    [
        ("macos", ("--archs", "x86_64,arm64"), ["cp311-macosx_x86_64", "cp311-macosx_arm64"]),
        ("windows", (), ["cp311-win_amd64"]),
    ],
)
def test_other_platforms_build_one_wheel_for_each_machine(
    tool: Callable[[str], str], platform: str, machines: tuple[str, ...], builds: list[str]
) -> None:
    """No further Python or machine is built for than a release has wheels for, and none is left out."""
    command = [tool("uv"), "run", "-q", "--frozen", "--isolated", "--only-group", "cibuildwheel"]
    command += ["cibuildwheel", "--platform", platform, *machines]
    done = subprocess.run(
        [*command, "--print-build-identifiers", "."],
        capture_output=True, text=True, check=False, cwd=SOURCES.parent,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, builds), done.stderr

"""The installed archive works where there is nothing else: no shell, no network, no tool, no Python.

The namespace holds the loader and the libraries of glibc and gcc, the archive, and a work folder.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from archive.apt import mirror_in
from gates.elf import LIBRARIES, LOADERS
from required import missing
from runtime_helpers import not_granted
from system_packages import unpacked

from visruntime import JailPolicy, Runtime, TrustedRuntime
from visruntime._host.own_version import own_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime import bundle

MACHINE = os.uname().machine
SECONDS_TO_INSTALL = 3
HERE = (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").removeprefix("glibc ")
NEWER = {"bookworm": "trixie", "trixie": "forky", "jammy": "noble", "noble": "resolute"}
"""By release of Debian or Ubuntu the later one whose glibc is tried, too."""
full = pytest.mark.skipif(os.environ.get("VIS_FULL") != "1", reason="VIS_FULL=1 asks for it")
LIBRARY_FOLDERS = (f"/lib/{MACHINE}-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")
MODULES = "ssl, sqlite3, ctypes, lzma, bz2, zlib, uuid, hashlib, decimal, socket, asyncio, pyexpat"
PROJECT = """
[project]
name = "greeting"
version = "1"
requires-python = ">=3.13"
[build-system]
requires = ["uv_build>=0.13,<0.14"]
build-backend = "uv_build"
"""
APP = """
[project]
name = "app"
version = "1"
requires-python = ">=3.13"
dependencies = ["greeting==1"]
"""
WORKER = """
import socket, subprocess, sys
host, channel = socket.socketpair(socket.AF_UNIX, {channel})
other, control = socket.socketpair(socket.AF_UNIX, {control})
descriptors = (channel.fileno(), control.fileno())
command = ["/opt/vis/bin/vispython", "--archive", "--channel", str(descriptors[0])]
command += ["--control", str(descriptors[1]), "--", "-I", "-S", "-c", sys.argv[1]]
sys.exit(subprocess.run(command, pass_fds=descriptors).returncode)
"""
LOADED = """
import ssl, sqlite3, _ctypes
for line in open("/proc/self/maps"):
    if ".so" in line:
        print(line.split()[-1])
"""
CHECK_PLACES = """
import sys
places = [sys.prefix, sys.base_prefix, sys.executable, *sys.path]
assert all(place.startswith("/opt/vis/python") for place in places), places
print("inside")
"""


class Libraries(NamedTuple):
    """The libraries that every system has: below which folder, and of which glibc."""

    root: Path
    glibc: str


@pytest.fixture(scope="module")
def newer_glibc(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """Return those of a later release of this system."""
    folder = tmp_path_factory.mktemp("glibc")
    glibc = unpacked(folder, NEWER, "libc6", "libgcc-s1")["libc6"].partition("-")[0]
    if numbers(glibc) <= numbers(HERE):
        missing(f"no glibc newer than {HERE} is to be had: the later release has {glibc}")
    return Libraries(folder / "root", glibc)


def numbers(version: str) -> list[int]:
    """Return a version as something that can be compared."""
    return [int(part) for part in version.split(".")]


@pytest.fixture(params=["this glibc", pytest.param("a newer glibc", marks=full)])
def libraries(request: pytest.FixtureRequest) -> Libraries:
    """Return the libraries that the archive is tried with."""
    newer = request.param == "a newer glibc"
    return request.getfixturevalue("newer_glibc") if newer else Libraries(Path("/"), HERE)


@pytest.fixture
def alone(
    extracted: bundle.Bundle, tmp_path: Path, tool: Callable[[str], str], libraries: Libraries
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command in a namespace with the archive and nothing else."""
    work = tmp_path / "work"
    work.mkdir()
    loader = LOADERS[MACHINE]
    command = [tool("bwrap"), "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--ro-bind", extracted.folder, "/opt/vis", "--bind", str(work), "/work"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    places = {f"{folder}/{library}" for folder in LIBRARY_FOLDERS for library in LIBRARIES}
    for place in sorted({loader, *places}):
        # Packages of Debian have all below /usr, to which the system's own links lead.
        theirs = [libraries.root / place[1:], libraries.root / "usr" / place[1:]]
        for file in (os.path.realpath(each) for each in theirs if each.exists()):
            command += ["--ro-bind", file, place]
            break
    command += ["--dir", "/tmp", "--chdir", "/work"]
    variables = {
        "PATH": "/nonexistent",
        "HOME": "/work",
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON": f"/opt/vis/{os.path.relpath(extracted.python, extracted.folder)}",
        "UV_CACHE_DIR": "/work/cache",
    }
    for name, value in variables.items():
        command += ["--setenv", name, value]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "--", *words], capture_output=True, text=True, check=False, cwd="/", env={}
        )

    run.work = work  # type: ignore[attr-defined]
    return run


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command printed, which must have succeeded."""
    assert done.returncode == 0, (done.args, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.timeout(120)
def test_uv_builds_and_syncs_a_project(
    alone: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The archive's uv needs no tool of the host to build, install, check and run."""
    work: Path = alone.work  # type: ignore[attr-defined]
    (work / "greeting/src/greeting").mkdir(parents=True)
    (work / "greeting/pyproject.toml").write_text(PROJECT)
    (work / "greeting/src/greeting/__init__.py").write_text("WORD = 'hello'\n")
    (work / "app").mkdir()
    (work / "app/pyproject.toml").write_text(APP)
    uv = "/opt/vis/bin/uv"
    succeeded(alone(uv, "build", "--wheel", "--out-dir", "/work/wheels", "/work/greeting"))
    links = ("--no-index", "--find-links", "/work/wheels", "--project", "/work/app")
    succeeded(alone(uv, "sync", *links))
    succeeded(alone(uv, "sync", "--frozen", "--check", *links))
    code = "import greeting, sys; print(greeting.WORD, sys.base_prefix)"
    shown = alone(uv, "run", "--no-sync", "--project", "/work/app", "python", "-c", code)
    assert succeeded(shown) == "hello /opt/vis/python\n"
    assert alone("/bin/sh", "-c", "true").returncode != 0  # there is no shell, indeed


def test_the_interpreter_is_whole(
    alone: Callable[..., subprocess.CompletedProcess[str]], libraries: Libraries
) -> None:
    """No module needs a library of the host, and no path leads out of the archive."""
    python = "/opt/vis/python/bin/python3.13"
    code = f"import {MODULES}\n{CHECK_PLACES}"
    assert succeeded(alone(python, "-I", "-S", "-c", code)) == "inside\n"
    code = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
    assert succeeded(alone(python, "-I", "-S", "-c", code)) == f"glibc {libraries.glibc}\n"
    code = "import sysconfig; print(*sysconfig.get_config_vars().values(), sep='\\n')"
    for line in succeeded(alone(python, "-I", "-S", "-c", code)).splitlines():
        assert "pyenv" not in line, line
        assert "/visruntime/python" not in line, line


def test_vispython_starts_the_python_beside_it(
    alone: Callable[..., subprocess.CompletedProcess[str]], extracted: bundle.Bundle
) -> None:
    """Without an interpreter named, the loader finds that of its own archive, and no other."""
    python = "/opt/vis/python/bin/python3.13"
    driver = WORKER.format(channel="socket.SOCK_STREAM", control="socket.SOCK_SEQPACKET")
    assert succeeded(alone(python, "-I", "-S", "-c", driver, CHECK_PLACES)) == "inside\n"
    version = succeeded(alone("/opt/vis/bin/vispython", "--version"))
    assert version == f"vispython {own_version()}\n"
    components = {each["name"]: each["version"] for each in extracted._manifest.components}
    assert succeeded(alone("/opt/vis/bin/uv", "--version")).split()[:2] == ["uv", components["uv"]]
    assert components["visruntime"] == extracted.version == own_version()


def test_the_loaded_libraries_are_the_archives_own(
    extracted: bundle.Bundle, tmp_path: Path
) -> None:
    """No library that LD_LIBRARY_PATH has under the same name is loaded instead."""
    decoys = tmp_path / "decoys"
    shutil.copytree(Path(extracted.folder, "python/lib"), decoys, ignore=only_libraries)
    (libm,) = {os.path.realpath(f"{f}/libm.so.6") for f in LIBRARY_FOLDERS if
               os.path.exists(f"{f}/libm.so.6")}  # fmt: skip
    shutil.copy(libm, decoys / "libm.so.6")
    python, worker = extracted.python, Path(extracted.folder, "bin/vispython")
    driver = WORKER.format(channel="socket.SOCK_STREAM", control="socket.SOCK_SEQPACKET")
    # No bytecode, which nothing of the archive may be joined by.
    driver = driver.replace("/opt/vis/bin/vispython", str(worker)).replace('"-S"', '"-S", "-B"')
    for words in (["-c", LOADED], ["-c", driver, LOADED]):
        done = subprocess.run(
            [python, "-I", "-S", "-B", *words], capture_output=True, text=True, check=False,
            env={"LD_LIBRARY_PATH": str(decoys)}, timeout=50,
        )  # fmt: skip
        loaded = set(succeeded(done).split())
        own = {path for path in loaded if path.startswith(f"{extracted.folder}/python/lib/")}
        names = {os.path.basename(path).partition(".")[0] for path in own}
        assert {"libpython3", "libssl", "libcrypto", "libsqlite3"} <= names
        # The control: of what the archive leaves to the system, the decoy is taken.
        assert {path for path in loaded if path.startswith(str(decoys))} == {
            str(decoys / "libm.so.6")
        }


def only_libraries(folder: str, names: list[str]) -> list[str]:
    """Return what of a folder is no shared library."""
    return [name for name in names if ".so" not in name or os.path.isdir(f"{folder}/{name}")]


def test_a_jailed_worker_of_the_archive(
    extracted: bundle.Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python="bundle"`` must run the archive's Python, and none of the host's."""
    state = Path(extracted.folder).parents[3]
    monkeypatch.setenv("XDG_CACHE_HOME", str(state))
    code = "(__import__('sys').base_prefix, __import__('sys').version_info[:2])"
    expected = (f"{extracted.folder}/python", (3, 13))
    module = f"{extracted.folder}/python/lib/python3.13/os.py"
    acts = (
        (f"open({not_granted()!r})", errno.ENOENT),
        (f"open({module!r}, 'ab')", errno.EROFS),
    )
    with (
        Runtime(JailPolicy(), python="bundle") as runtime,
        TrustedRuntime(python="bundle") as trusted,
    ):
        for worker in (runtime, trusted):
            assert worker.eval(code) == expected
            assert worker.run("import ssl, sqlite3, ctypes").error is None
        for act, number in acts:
            error = runtime.run(act).error
            assert error is not None
            assert error.errno == number, act
            assert trusted.run(act).error is None, act  # the control


@full
def test_installing_takes_three_seconds_at_most(archive: Path, tmp_path: Path) -> None:
    """Neither unpacking nor comparing nor starting the command may cost more than is promised."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "visruntime", "bundle", "install", str(archive)]
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL, timeout=50)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of the processor, so that what else runs on this machine does not count.
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert 0 < spent <= SECONDS_TO_INSTALL


def test_its_files_are_private(extracted: bundle.Bundle) -> None:
    """Nobody else can change what was installed, and no file of it gives rights."""
    state = Path(extracted.folder).parents[2]
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in Path(extracted.folder).rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISLNK(mode) or not mode & 0o7022, path


@pytest.mark.parametrize(
    "text",
    [
        "deb-src X a main\ndeb X b-updates main\ndeb [signed-by=/k] MIRROR b main universe\n",
        "Types: deb\nURIs: X\nSuites: a\n\nTypes: deb\nURIs: MIRROR\nSuites: b b-updates\n",
        "deb MIRROR b main\n",
    ],
)
def test_the_mirror_is_that_of_the_systems_own_packages(text: str) -> None:
    """No other mirror is asked, where a system has several."""
    assert mirror_in(["deb Y other main\n", text], "b") == "MIRROR"
    assert mirror_in([text], "c") is None

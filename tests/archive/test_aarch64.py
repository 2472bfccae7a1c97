"""The wheel for aarch64, compiled here: its ABI, and its worker on an emulated processor.

Emulation shows that programs, protocol, codec and audit hook work. It has neither namespaces nor
Landlock, so nothing about confinement is shown; that is for a machine of that kind.
"""

from __future__ import annotations

import base64
import os
import platform
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cross_wheel import TAG, retag
from gates import elf
from gates import wheel as wheel_gate
from protocol_client import Client

from visruntime._worker.start import LOAD, bootstrap

ROOT = Path(__file__).parents[2]
SECONDS = 600
LIBRARY = "usr/lib/aarch64-linux-gnu/libpython3.11.so.1.0"
# Of Debian 12: a CPython and what it is linked with.
PACKAGES = (
    *("libc6", "libgcc-s1", "zlib1g", "libexpat1", "libffi8", "libssl3", "libpython3.11"),
    *("libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal"),
)
full = pytest.mark.skipif(
    os.environ.get("VIS_FULL") != "1", reason="compiles everything with zig; VIS_FULL=1 asks for it"
)


def run(command: list[str | Path], folder: Path, **more: str) -> str:
    """Run a command, which must succeed, and return what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **more},
        timeout=SECONDS,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package that the wheel for aarch64 installs."""
    out = tmp_path_factory.mktemp("aarch64")
    groups = ("--only-group", "packaging", "--only-group", "cross")
    build = ["uv", "run", "--quiet", "--frozen", "--isolated", *groups, "scripts/cross_wheel.py"]
    # A copy of the repository has no commit to take the time of.
    run([*build, "--out", out], ROOT, SOURCE_DATE_EPOCH="1700000000")
    (built,) = out.glob("*.whl")
    assert built.name.endswith(f"-{TAG}.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(out)
    for name in wheel_gate.PROGRAMS:
        (out / name).chmod(0o755)
    return out / "visruntime"


@pytest.fixture(scope="module")
def emulated(package: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command that runs an aarch64 program, with a root that has a CPython for it."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    system = platform.freedesktop_os_release()
    if (system["ID"], system.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip("a root of aarch64 is made from the packages of Debian 12, on Debian 12")
    if emulator is None:
        pytest.fail("qemu-user-static is not installed, and VIS_FULL=1 asks for it")
    folder = tmp_path_factory.mktemp("root")
    for name in ("state/lists/partial", "cache/archives/partial", "root", "packages"):
        (folder / name).mkdir(parents=True)
    options = {
        "Dir::State": f"{folder}/state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": f"{folder}/cache",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",  # as who runs this
    }
    apt = ["apt-get", "-qq", *(word for pair in options.items() for word in ("-o", "=".join(pair)))]
    run([*apt, "update"], folder)
    run([*apt, "download", *PACKAGES], folder / "packages")
    for each in (folder / "packages").glob("*.deb"):
        run(["dpkg-deb", "-x", each, folder / "root"], folder)
    return [emulator, "-L", f"{folder}/root"]


def worker(package: Path, emulated: list[str]) -> list[str]:
    """Return the command of a worker up to the version of its Python."""
    root = emulated[-1]
    loader = [*emulated, f"{package}/vispython", "--channel", "3", "--control", "4", "--harden"]
    loader += ["--core", f"{package}/_viscore.abi3.so", "--name", f"{root}/usr/bin/python3.11"]
    return [*loader, "--library", f"{root}/{LIBRARY}", "--expect"]


@full
@pytest.mark.timeout(SECONDS)
def test_an_emulated_worker(package: Path, emulated: list[str]) -> None:
    """Another Python is refused; hook, codec, control thread, interrupt and end work there."""
    command = worker(package, emulated)
    refused = subprocess.run(
        [*command, "another", "--", "-c", ""],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 121
    version = refused.stderr.partition("than python: ")[2].removesuffix("\n")
    made: dict[str, Any] = {
        "argv": [*command, version, "--", "-I", "-S", "-B", "-X", "utf8", "-c", LOAD],
        "read": [],
        "channel": 3,
        "control": 4,
        "python": version,
        "mode": "L",
        "bootstrap": base64.b64encode(bootstrap(same_as_host=False)),
    }
    client = Client(made, jailed=False)
    try:
        assert client.hello["hook_before_init"] is True
        said = client.execute("import platform; (platform.machine(), 2**80, {1.5: ['é']})")
        assert (said["error"], said["value"]) == (None, ("aarch64", 2**80, {1.5: ["é"]}))
        client.order("H", 7)
        assert client.heard() == b"H" + (7).to_bytes(8, "little")
        client.begin("run", code="while True: pass", inputs={}, filename=None)
        client.order("I", client.run)
        assert client.reply()["error"]["interrupted"] is True
        assert client.goodbye() == 0
    finally:
        client.close()


@full
@pytest.mark.timeout(SECONDS)
def test_the_emulated_command(package: Path, emulated: list[str], tmp_path: Path) -> None:
    """No decision of the library is another one there, and the supervisor refuses what is no plan."""
    site = tmp_path / "site"
    install = ["uv", "pip", "install", "--quiet", "--no-build", "--python-version", "3.11", "cffi"]
    run([*install, "--python-platform", "aarch64-manylinux_2_35", "--target", site], tmp_path)
    python: list[str | Path] = [*emulated, f"{emulated[-1]}/usr/bin/python3.11"]
    paths = os.pathsep.join((str(package.parent), str(site)))
    told = run([*python, "-m", "visruntime", "version"], tmp_path, PYTHONPATH=paths)
    assert ", aarch64\n" in told
    # The emulator shows its own root to who walks down from there, so no file is looked at.
    code = """
from visruntime import _native
rules = [("write", "/w"), ("deny", "/w/no")]
print(*(_native.decide(rules, "write", path)[0] for path in ("/w/yes", "/w/no/x", "/x")))
"""
    assert run([*python, "-c", code], tmp_path, PYTHONPATH=paths) == "True False False\n"
    supervisor = [*emulated, f"{package}/bin/visjail-init"]
    assert subprocess.run(supervisor, check=False, timeout=60).returncode == 125


def test_a_wheel_that_says_another_machine(wheel: Path, tmp_path: Path) -> None:
    """A tag makes no other machine's wheel: the gate looks at what is inside."""
    if platform.machine() == "aarch64":
        pytest.skip("here it is that machine's")
    finished = retag(Path(shutil.copy(wheel, tmp_path)), TAG)
    assert wheel_gate.problems(finished) == []
    broken = elf.problems(finished, machine="aarch64")
    assert [line for line in broken if line.startswith("visruntime/vispython: is for x86_64")]
    assert len(broken) >= len((*wheel_gate.PROGRAMS, *wheel_gate.COMPILED))

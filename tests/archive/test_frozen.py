"""A host that PyInstaller has frozen, from the wheel, finds what jails and workers are made of."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from interpreters import interpreter

if TYPE_CHECKING:
    from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 300
# Imported only here: what the recipe forgets is missing in the frozen program.
HOST = """
import errno, json, sys
import visruntime as vr
from visruntime import cli
from visruntime._native.library import BINARY_DIRECTORY

secret, python = sys.argv[1:]
told = {"frozen": sys.frozen, "control": open(secret).read()}
with vr.Jail(vr.JailPolicy()) as jail:
    told["init"] = BINARY_DIRECTORY
    told["jailed"] = jail.run(["cat", secret]).exit_code
    told["ran"] = jail.run(["sh", "-c", "echo out; exit 3"]).stdout_text
    told["backend"] = jail.report.backend
with vr.Runtime(vr.JailPolicy(), python=python) as runtime:
    told["value"] = runtime.eval("6 * 7")
    told["python"] = runtime.eval("__import__('sys').executable")
    error = runtime.run(f"open({secret!r})").error
    told["errno"] = error and errno.errorcode[error.errno]
try:
    vr.Runtime(vr.JailPolicy())
except vr.PolicyError as problem:
    told["own"] = str(problem)
lines = (["why", "read", "/usr"], ["completion", "bash"], ["schema", "report"], ["exec", "true"])
told["commands"] = [cli.main(words) for words in lines]
sys.stdout.flush()
print("\\n" + json.dumps(told))
"""


@pytest.fixture(scope="module")
def frozen(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the frozen host, moved away from where it was made."""
    if os.environ.get("VIS_FULL") != "1":
        pytest.skip("freezing a host takes a quarter of a minute; VIS_FULL=1 asks for it")
    folder = tmp_path_factory.mktemp("frozen")
    python = folder / "environment" / "bin" / "python"
    pins = folder / "pins.txt"
    (folder / "host.py").write_text(HOST)
    export = ["uv", "export", "--quiet", "--frozen", "--only-group", "frozen", "--no-header"]
    steps: list[tuple[list[str | Path], Path]] = [
        ([*export, "--output-file", pins], ROOT),
        (["uv", "venv", "-q", "--python", interpreter(13), folder / "environment"], folder),
        (["uv", "pip", "install", "-q", "--python", python, wheel], folder),
        (
            ["uv", "pip", "install", "-q", "--python", python, "--require-hashes", "-r", pins],
            folder,
        ),
        ([python.parent / "pyinstaller", "--onedir", "--log-level", "ERROR", "host.py"], folder),
    ]
    for step, place in steps:
        done = subprocess.run(
            step, capture_output=True, text=True, check=False, cwd=place, timeout=SECONDS
        )
        assert done.returncode == 0, (step, done.stdout, done.stderr)
    moved = folder / "moved"
    shutil.move(folder / "dist" / "host", moved)
    shutil.rmtree(folder / "environment")
    return moved


@pytest.mark.timeout(SECONDS)
def test_a_frozen_host_runs_jobs_in_jails(frozen: Path, tmp_path: Path) -> None:
    """No program, no source of the guest's and no module may be missing, and the jail must hold."""
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    python = interpreter(13)
    done = subprocess.run(
        [frozen / "host", secret, python],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/nonexistent")},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["frozen"]
    assert told["backend"] == "namespaces"
    assert told["init"] == str(frozen / "_internal" / "visruntime")
    assert (told["control"], told["jailed"], told["ran"]) == ("swordfish", 1, "out\n")
    assert (told["value"], told["python"], told["errno"]) == (42, python, "ENOENT")
    assert 'python="bundle"' in told["own"]
    assert told["commands"] == [0, 0, 0, 0]

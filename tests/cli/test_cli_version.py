"""``visruntime version`` says what a bug report needs, to people and to programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from visruntime.cli import main

pytestmark = pytest.mark.one_uid


def test_version_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON object must name version, Python, kernel, libc and the package's own folder."""
    assert main(["version", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["visruntime"] == version("visruntime")
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["kernel"] == os.uname().release
    assert facts["machine"] == os.uname().machine
    assert facts["libc"].startswith("glibc ")
    assert os.path.isfile(os.path.join(facts["package"], "vispython"))
    assert isinstance(facts["bundles"], list)


def test_version_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """The plain form and --version must agree, and operands are refused."""
    assert main(["version"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{first}\n"
    assert main(["version", "now"]) == 125


def test_python_m_is_the_command() -> None:
    """``python -m visruntime`` must be the same command."""
    done = subprocess.run(
        [sys.executable, "-m", "visruntime", "version", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["visruntime"] == version("visruntime")


@pytest.mark.parametrize("words", [["--help"], ["doctor", "--help"], ["why", "read", "/etc"]])
def test_nothing_is_coloured(words: list[str]) -> None:
    """What we print has no escape sequence, on whatever terminal, so NO_COLOR changes nothing."""
    shown = []
    for variables in ({"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}):
        done = subprocess.run(
            [sys.executable, "-m", "visruntime", *words],
            capture_output=True,
            check=False,
            env={**os.environ, **variables},
        )
        assert b"\x1b" not in done.stdout + done.stderr
        shown.append((done.returncode, done.stdout, done.stderr))
    assert shown[0] == shown[1]

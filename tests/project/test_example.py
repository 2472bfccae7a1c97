"""The shipped example: its one command, what it writes, and what it fails to do."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from itertools import count
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import readme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EXAMPLES = readme.ROOT / "examples"
SALES = EXAMPLES / "sales"
OUT = SALES / "out"
SVG = "{http://www.w3.org/2000/svg}"


def attempts(report: str) -> dict[str, str]:
    """Return the script's own account: what it tried, and how that ended."""
    section = report.partition("## What this script tried on the side")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {name: outcome for name, outcome in rows if name != "Attempt"}


class Service:
    """A listening socket on the loopback interface, on a port that the script tries."""

    def __init__(self) -> None:
        source = (SALES / "analyze.py").read_text()
        ports = re.search(r"^PORTS = \(([\d, ]+)\)", source, re.MULTILINE)
        assert ports is not None
        for port in map(int, ports[1].split(",")):
            self.socket = socket.socket()
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self.socket.bind(("127.0.0.1", port))
            except OSError:
                self.socket.close()
                continue
            self.socket.listen()
            self.socket.setblocking(False)
            return
        pytest.fail("every port that the example tries is taken on this machine")

    def connections(self) -> int:
        """Return how many connections arrived since the last call; the backlog holds them."""
        for arrived in count():
            try:
                self.socket.accept()[0].close()
            except BlockingIOError:
                return arrived
        raise AssertionError


@pytest.fixture
def service() -> Iterator[Service]:
    """Listen where the script calls, so that a refusal is the jail's and not an empty port's."""
    listening = Service()
    yield listening
    listening.socket.close()


def test_unjailed_the_script_does_harm(tmp_path: Path, service: Service) -> None:
    """Without a jail the same script reads the secret, writes outside and reaches a service."""
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy)
    result = subprocess.run(
        [sys.executable, "-I", "analyze.py"],
        cwd=copy / "sales",
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    tried = attempts((copy / "sales" / "out" / "report.md").read_text())
    for name in (
        "read ../secret.txt",
        "change ../secret.txt",
        "plant data/planted.csv",
        "change data/sales.csv",
        "connect to 127.0.0.1",
    ):
        assert tried[name].startswith("**SUCCEEDED**"), name
    assert service.connections() == 1


def test_readme_command_runs_the_script_and_stops_the_rest(
    tool: Callable[[str], str], service: Service
) -> None:
    """The README's first command makes report and chart; nothing else that the script tries works."""
    command = shlex.split(readme.commands()[0])
    assert command[:2] == ["uv", "run"]
    command[0] = tool("uv")
    for name in ("report.md", "chart.svg"):
        (OUT / name).unlink(missing_ok=True)
    before = (SALES / "data" / "sales.csv").read_bytes()
    result = subprocess.run(
        command,
        cwd=readme.ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    assert "every attempt on the side failed" in result.stdout

    report = (OUT / "report.md").read_text()
    assert "1,991 orders from 2025-01 to 2026-06" in report
    tried = attempts(report)
    assert len(tried) == 10
    assert [name for name, outcome in tried.items() if "SUCCEEDED" in outcome] == []
    assert tried["read ../secret.txt"].startswith(("failed: ENOENT", "failed: EACCES"))
    assert tried["change ../secret.txt"].startswith(("failed: ENOENT", "failed: EACCES"))
    assert tried["plant data/planted.csv"].startswith(("failed: EROFS", "failed: EACCES"))
    assert tried["change data/sales.csv"].startswith(("failed: EROFS", "failed: EACCES"))
    assert tried["connect to 127.0.0.1"].startswith("failed: ECONNREFUSED")
    assert tried["connect to 192.0.2.1:443"].startswith("failed: ENETUNREACH")
    assert tried["send UDP to 192.0.2.1:53"].startswith("failed: ENETUNREACH")
    secret = (EXAMPLES / "secret.txt").read_text().split()[-1]
    assert secret not in report + result.stdout + result.stderr
    assert [file.name for file in (SALES / "data").iterdir()] == ["sales.csv"]
    assert (SALES / "data" / "sales.csv").read_bytes() == before
    assert service.connections() == 0

    chart = ET.parse(OUT / "chart.svg").getroot()
    assert chart.tag == f"{SVG}svg"
    assert len(chart.findall(f"{SVG}rect/{SVG}title")) == 18 * 4
    assert (OUT / "report.md").stat().st_uid == OUT.stat().st_uid


def test_data_is_what_the_generator_writes(tmp_path: Path) -> None:
    """The committed CSV file never differs from what its script writes."""
    copy = tmp_path / "generate_data.py"
    shutil.copy(SALES / "generate_data.py", copy)
    (tmp_path / "data").mkdir()
    subprocess.run([sys.executable, "-I", copy], check=True)
    assert (tmp_path / "data" / "sales.csv").read_bytes() == (
        SALES / "data" / "sales.csv"
    ).read_bytes()

"""What the tests of Python workers share."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from interpreters import programs

from visruntime.policy import JailPolicy
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

AnyRuntime = Runtime | TrustedRuntime


@pytest.fixture(params=["trusted", "jailed"])
def runtime(request: pytest.FixtureRequest) -> Iterator[AnyRuntime]:
    """Return a runtime with the host's interpreter, without and with a jail."""
    running = TrustedRuntime() if request.param == "trusted" else Runtime(JailPolicy())
    with running:
        yield running


def children_of(pid: int) -> set[int]:
    """Return the live children of a process."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _worker_pythons() -> list[str | None]:
    """Return the host's own interpreter as None, and one path for each other version found."""
    found: dict[str, str | None] = {f"3.{sys.version_info[1]}-own": None}
    for version in ("3.11", "3.12", "3.13", "3.14", "3.15"):
        for path in programs(version):
            if not os.path.samefile(path, sys.executable):
                found[version] = path
    static = Path("/usr/bin/python3.11")  # Debian's, which contains its interpreter: mode P
    if static.exists() and str(static) not in found.values():
        found["static"] = str(static)
    return list(found.values())


WORKER_PYTHONS = _worker_pythons()
"""Interpreters that can be workers here: ``None`` for the host's own, else a path."""


def not_granted() -> str:
    """Return a file that everybody reads, and that a policy does not grant unasked."""
    policy = JailPolicy()
    for path in ("/etc/debian_version", "/etc/issue", "/etc/profile", "/etc/shells"):
        if os.access(path, os.R_OK) and not policy.why("read", path).allowed:
            return path
    pytest.fail("no file of this system is outside of the default policy")

"""What the tests of Python workers share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}

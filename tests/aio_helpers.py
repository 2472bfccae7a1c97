"""What the tests of `visruntime.aio` share: both event loops, and what a test must not leave."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BACKENDS = ("asyncio", "trio")


def run_on(backend: str, test: Callable[[], Awaitable[Any]]) -> Any:
    """Run *test* in a loop of *backend*, and check that nothing is left of it."""
    gc.collect()
    before = _descriptors(), _children()
    result = anyio.run(test, backend=backend)
    until = time.monotonic() + 5
    while busy_threads() and time.monotonic() < until:
        time.sleep(0.005)  # a thread that has said its last word still has to return
    assert busy_threads() == []
    gc.collect()
    after = _descriptors(), _children()
    assert after[1] <= before[1], "a process is left"
    assert after[0] <= before[0], "a descriptor is left"
    return result


def busy_threads() -> list[str]:
    """Return what threads other than this one do in our package; idle ones of the loops do not."""
    busy = []
    for number, frame in sys._current_frames().items():
        inner: Any = frame
        while inner is not None:
            name = inner.f_globals.get("__name__", "")
            if name.startswith("visruntime") and number != threading.get_ident():
                busy.append(f"{name}.{inner.f_code.co_name}")
            inner = inner.f_back
    return busy


def _children() -> set[int]:
    """Return the live children of this process; unlike other ways this one bears ending threads."""
    children: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):
            children |= set(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
    return children


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))

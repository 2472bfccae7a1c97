"""What the tests of `visruntime.aio` share: both event loops, and what a test must not leave."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
from runtime_helpers import children_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BACKENDS = ("asyncio", "trio")


def run_on(backend: str, test: Callable[[], Awaitable[Any]]) -> Any:
    """Run *test* in a loop of *backend*, and check that nothing is left of it."""
    gc.collect()
    before = _descriptors(), children_of(os.getpid())
    result = anyio.run(test, backend=backend)
    until = time.monotonic() + 5
    while busy_threads() and time.monotonic() < until:
        time.sleep(0.005)  # a thread that has said its last word still has to return
    assert busy_threads() == []
    gc.collect()
    after = _descriptors(), children_of(os.getpid())
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
            if name.startswith("visruntime") and number != _this_thread():
                busy.append(f"{name}.{inner.f_code.co_name}")
            inner = inner.f_back
    return busy


def _this_thread() -> int:
    import threading

    return threading.get_ident()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))

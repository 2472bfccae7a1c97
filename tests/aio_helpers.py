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

import visruntime as vr
from visruntime.aio import AsyncRuntime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BACKENDS = ("asyncio", "trio")

STUBBORN = """
import time
while True:
    try:
        print('begun', flush=True)
        time.sleep(1000)
    except BaseException:
        pass
"""
"""A guest that swallows interrupts."""


def run_on(backend: str, test: Callable[[], Awaitable[Any]]) -> Any:
    """Run *test* in a loop of *backend*, and check that nothing is left of it."""
    gc.collect()
    before = _descriptors(), _children()
    result = anyio.run(test, backend=backend)
    # A thread that has said its last word still has to return, and to let go of what it held.
    until = time.monotonic() + 5
    while any(left := _left(*before)) and time.monotonic() < until:
        time.sleep(0.005)
        gc.collect()
    assert left == ([], {}, set()), "busy threads, descriptors or processes are left"
    return result


def with_worker(backend: str, test: Callable[[AsyncRuntime], Awaitable[Any]]) -> None:
    """Run *test* with an open jailed runtime."""

    async def main() -> None:
        async with AsyncRuntime(vr.JailPolicy()) as runtime:
            await test(runtime)

    run_on(backend, main)


def _left(
    descriptors: dict[str, str], children: set[int]
) -> tuple[list[str], dict[str, str], set[int]]:
    """Return what there is more than before: busy threads, descriptors and processes."""
    now = _descriptors()
    more = {number: what for number, what in now.items() if descriptors.get(number) != what}
    return busy_threads(), more, _children() - children


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


def _descriptors() -> dict[str, str]:
    """Return what each descriptor of this process is."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found

"""What a fresh worker costs that is a copy of a zygote, in time and in memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import PYTHON, Result, Row, policy, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COPIES = 10
"""Idle workers over which the memory of one is averaged."""
MEMORY_GOAL_MIB = 3.0


def _fresh(runtime: vr.Runtime, code: str) -> Callable[[], object]:
    """Return a step that gets a fresh worker and runs *code*; the worker ends afterwards."""

    def step() -> object:
        runtime.run(code, check=True)
        return runtime.reset

    return step


@contextlib.contextmanager
def fresh_worker() -> Iterator[Row]:
    """Measure the first result of a fresh worker from a zygote."""
    context = multiprocessing.get_context("forkserver")

    def forkserver() -> object:
        process = context.Process(target=int)
        process.start()
        process.join()
        return process.close

    with vr.Runtime(policy(), preload=[]) as runtime:
        yield Row(
            "6",
            "fresh worker from a zygote: run('1+1') / python -I -c pass",
            0.2,
            _fresh(runtime, "1+1"),
            started(PYTHON, "-I", "-c", "pass"),
            {"forkserver": forkserver},
        )


@contextlib.contextmanager
def numpy_preloaded() -> Iterator[Row]:
    """Measure a fresh worker that has numpy, beside an interpreter that imports it."""
    code = "import numpy as np; np.zeros(1)"
    with vr.Runtime(policy(), preload=["numpy"]) as runtime:
        try:
            runtime.exec("1")
        except vr.GuestError as problem:
            raise LookupError(f"numpy: {problem}") from None
        runtime.reset()
        yield Row(
            "12",
            "numpy preloaded: run('np.zeros(1)') / cold import",
            0.05,
            _fresh(runtime, code + "\nNone"),
            started(sys.executable, "-c", code),
            {},
        )


def _proportional_mib(pid: int) -> float:
    """Return the memory of a process, each shared page divided among those that have it."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise LookupError("the kernel tells no proportional size")


def _idle(make: Callable[[], vr.Runtime]) -> float:
    """Return the MiB that one more idle worker of *make* takes."""
    before: dict[int, float] = {}
    with contextlib.ExitStack() as stack:
        runtimes = [stack.enter_context(make()) for _ in range(COPIES)]
        for runtime in runtimes:
            runtime.run("1+1")
        for runtime in runtimes:
            meter = runtime._live_worker().process._usage  # type: ignore[attr-defined]
            before[~(meter._clock >> 3)] = 0.0
        return sum(map(_proportional_mib, before)) / len(before)


@contextlib.contextmanager
def idle_memory() -> Iterator[Result]:
    """Measure the memory of one more idle worker; the figures are MiB, not milliseconds."""
    with vr.Runtime(policy()) as original:
        original.run("1+1")
        cold = _idle(lambda: vr.Runtime(policy()))
        ours = _idle(original.fork)
    yield Result(
        "11",
        "memory of one more idle copy, MiB (base: a cold worker)",
        MEMORY_GOAL_MIB,
        round(ours, 2),
        round(ours, 2),
        round(cold, 2),
        {},
    )

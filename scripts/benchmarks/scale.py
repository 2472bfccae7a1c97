"""What one more jail costs, when there are many."""

from __future__ import annotations

import contextlib
import os
import statistics
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import TRUE, Result, policy, started, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

JAILS = 200
EDGE = 20
"""How many of the first and of the last jails are compared."""
KERNEL_MEMORY = ("Slab", "PageTables", "KernelStack")


def kernel_kib() -> int:
    """Return what the kernel holds for its own objects, of the whole machine."""
    with open("/proc/meminfo", encoding="ascii") as file:
        values = dict(line.split(":", 1) for line in file)
    return sum(int(values[name].split()[0]) for name in KERNEL_MEMORY)


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def many_jails() -> Iterator[Result]:
    """Open jail after jail and keep them: the price of one must not grow."""
    baseline = started(TRUE)
    chosen = policy()
    ratios: list[float] = []
    times: list[float] = []
    base_times: list[float] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(vr.Jail(chosen))
        before = kernel_kib(), descriptors()
        for _ in range(JAILS):
            base_times.append(timed(baseline))
            times.append(timed(lambda: stack.enter_context(vr.Jail(chosen))))
            ratios.append(times[-1] / base_times[-1])
        memory, files = (kernel_kib() - before[0]) / JAILS, (descriptors() - before[1]) / JAILS
        first, last = statistics.median(ratios[:EDGE]), statistics.median(ratios[-EDGE:])
        yield Result(
            "16",
            f"the last of {JAILS} open jails / the first, each / a start",
            1.5,
            round(last / first, 3),
            round(statistics.median(times[-EDGE:]) * 1000, 3),
            round(statistics.median(base_times[-EDGE:]) * 1000, 3),
            {"kernel MiB a jail": round(memory / 1024, 3), "descriptors": round(files, 2)},
        )

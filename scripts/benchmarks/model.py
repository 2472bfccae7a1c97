"""What a row of the table is, and how it is measured."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Callable

TRUE = "/bin/true"
# The plain interpreter: a virtual environment's .pth files would slow ours and the baseline
# alike and so flatter the ratio.
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
BUBBLEWRAP = shutil.which("bwrap")


class Row(NamedTuple):
    """One line of the table, ready to be measured."""

    number: str
    what: str
    goal: float
    ours: Callable[[], object]
    baseline: Callable[[], object]
    peers: dict[str, Callable[[], object]]


class Result(NamedTuple):
    """What one row came to; times are medians in milliseconds."""

    number: str
    what: str
    goal: float
    ratio: float
    ours_ms: float
    baseline_ms: float
    peers: dict[str, float]


def started(*command: str, env: dict[str, str] | None = None) -> Callable[[], object]:
    """Return a step that runs *command* as an ordinary host program would."""

    def step() -> object:
        return subprocess.run(command, capture_output=True, check=True, env=env)

    return step


def jailed(jail: vr.Jail, *command: str) -> Callable[[], object]:
    """Return a step that runs *command* in an open jail."""

    def step() -> object:
        return jail.run(list(command), check=True)

    return step


def bubblewrapped(*command: str) -> dict[str, Callable[[], object]]:
    """Return bubblewrap as a peer, where it is installed."""
    if BUBBLEWRAP is None:
        return {}
    flags = "--unshare-all --die-with-parent --ro-bind / / --proc /proc --dev /dev".split()
    return {"bubblewrap": started(BUBBLEWRAP, *flags, *command)}


def sandlocked(*command: str) -> dict[str, Callable[[], object]]:
    """Return sandlock as a peer, where it is installed: the host's programs, readable."""
    try:
        sandlock = importlib.import_module("sandlock")
    except ImportError:
        return {}
    box = sandlock.Sandbox(fs_readable=["/usr", "/lib", "/lib64", "/bin", "/etc"])

    def step() -> object:
        if box.run(list(command)).exit_code != 0:
            raise AssertionError(command)
        return None

    return {"sandlock": step}


def policy(*, python: bool = False) -> vr.JailPolicy:
    """Return the default policy, with the interpreter readable where a row starts it itself."""
    return vr.JailPolicy(read=[sys.base_prefix] if python else [])


def timed(step: Callable[[], object]) -> float:
    """Return the seconds that *step* took; what it returns to be called is called afterwards."""
    start = time.perf_counter()
    after = step()
    elapsed = time.perf_counter() - start
    if callable(after):
        after()
    return elapsed


def measure(row: Row, rounds: int) -> Result:
    """Run all steps of a row *rounds* times, interleaved."""
    steps = {"ours": row.ours, "baseline": row.baseline, **row.peers}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        timed(step)  # the first call pays for what is loaded once
    names = list(steps)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                times[name].append(timed(steps[name]))
    finally:
        gc.enable()

    def ratio(name: str) -> float:
        pairs = zip(times[name], times["baseline"], strict=True)
        return statistics.median(mine / base for mine, base in pairs)

    def milliseconds(name: str) -> float:
        return statistics.median(times[name]) * 1000

    return Result(
        row.number,
        row.what,
        row.goal,
        round(ratio("ours"), 3),
        round(milliseconds("ours"), 3),
        round(milliseconds("baseline"), 3),
        {name: round(ratio(name), 3) for name in row.peers},
    )

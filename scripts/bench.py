#!/usr/bin/env python3
"""Measure what visruntime costs, each row beside its baseline in the same interleaved run.

A machine that others share drifts by a factor of two or three in a minute, so that times say
little. The ratios of one round say much: ours and the baseline run one after the other, in
an order that changes each round, and a row's figure is the median of those ratios. Nothing
here is a test; a goal that is not met is printed, and is no failure.

    uv run python scripts/bench.py [--rounds 60] [--rows 1,4] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRUE = "/bin/true"
SOURCES = str(Path(vr.__file__).resolve().parent.parent)
# The plain interpreter: a virtual environment's .pth files would slow ours and the baseline
# alike and so flatter the ratio.
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
BUBBLEWRAP = shutil.which("bwrap")
CALLS = 50
"""Calls in one timed step, where one call is too short to time."""
PAYLOAD = 1024
"""Bytes of a callback's argument."""


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


def started(*command: str) -> Callable[[], object]:
    """Return a step that runs *command* as an ordinary host program would."""

    def step() -> object:
        return subprocess.run(command, capture_output=True, check=True)

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


def policy(*, python: bool = False) -> vr.JailPolicy:
    """Return the default policy, with the interpreter readable where a row starts it itself."""
    return vr.JailPolicy(read=[sys.base_prefix] if python else [])


@contextlib.contextmanager
def row_1() -> Iterator[Row]:
    """Measure a command in an open jail."""
    with vr.Jail(policy()) as jail:
        what = "command in an open jail / subprocess.run"
        yield Row("1", what, 1.1, jailed(jail, TRUE), started(TRUE), bubblewrapped(TRUE))


@contextlib.contextmanager
def row_2() -> Iterator[Row]:
    """Measure a jail that is opened for one command, and closed."""
    plain = bubblewrapped(TRUE)
    if not plain:
        raise LookupError("bubblewrap is not installed")

    def ours() -> None:
        with vr.Jail(policy()) as jail:
            jail.run([TRUE], check=True)

    yield Row("2", "new jail and one command / bubblewrap", 0.65, ours, plain["bubblewrap"], {})


@contextlib.contextmanager
def row_4() -> Iterator[Row]:
    """Measure a Python program in an open jail."""
    command = (PYTHON, "-I", "-c", "pass")
    with vr.Jail(policy(python=True)) as jail:
        what = "python -I -c pass in an open jail / bare"
        yield Row(
            "4", what, 1.1, jailed(jail, *command), started(*command), bubblewrapped(*command)
        )


@contextlib.contextmanager
def row_5() -> Iterator[Row]:
    """Measure a worker from nothing to its first result, the jail's opening included."""
    last: list[vr.Runtime] = []

    def close() -> None:
        while last:
            last.pop().close()

    def ours() -> Callable[[], None]:
        last.append(vr.Runtime(policy()))
        if last[-1].run("1+1").value != 2:
            raise AssertionError("1+1")
        return close  # after the clock has stopped

    bare = started(PYTHON, "-I", "-S", "-c", "pass")
    yield Row("5", "worker start to first result / python -I -S -c pass", 1.5, ours, bare, {})


@contextlib.contextmanager
def row_8() -> Iterator[Row]:
    """Measure a short run on a live worker."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool, vr.Runtime(policy()) as runtime:

        def ours() -> None:
            for _ in range(CALLS):
                runtime.run("1+1")

        def baseline() -> None:
            for _ in range(CALLS):
                pool.apply(eval, ("1+1",))

        yield Row("8", "run('1+1') on a live worker / Pool.apply", 1.0, ours, baseline, {})


ECHO = """
import socket, sys
peer = socket.socket(fileno=int(sys.argv[1]))
while data := peer.recv(65536):
    peer.sendall(data)
"""


@contextlib.contextmanager
def row_9() -> Iterator[Row]:
    """Measure a callback from the guest into the host, all on one processor.

    A round trip over two takes four times as long, and where each side of the comparison
    lands is chance.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    mine, theirs = socket.socketpair()
    echo = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    payload = b"x" * PAYLOAD

    def baseline() -> None:
        for _ in range(CALLS):
            mine.sendall(payload)
            left = PAYLOAD
            while left:
                left -= len(mine.recv(65536))

    try:
        with vr.Runtime(policy()) as runtime:
            runtime.expose("echo", lambda data: data)
            runtime.exec(f"def calls(data):\n    for _ in range({CALLS}): echo(data)\n")

            def ours() -> None:
                runtime.call("calls", payload)

            yield Row("9", "callback of 1 KiB / raw socketpair round trip", 2.5, ours, baseline, {})
    finally:
        os.sched_setaffinity(0, before)
        mine.close()
        echo.wait()


@contextlib.contextmanager
def row_15() -> Iterator[Row]:
    """Measure the import."""
    code = f"import sys; sys.path.insert(0, {SOURCES!r}); import visruntime"
    ours = started(PYTHON, "-I", "-S", "-c", code)
    bare = started(PYTHON, "-I", "-S", "-c", "pass")
    yield Row("15", "python -c 'import visruntime' / -c pass", 1.5, ours, bare, {})


ROWS = {"1": row_1, "2": row_2, "4": row_4, "5": row_5, "8": row_8, "9": row_9, "15": row_15}


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


def line(result: Result) -> str:
    """Return one line of the table."""
    peers = ", ".join(f"{name} {ratio:.2f}" for name, ratio in result.peers.items())
    verdict = "met" if result.ratio <= result.goal else "NOT MET"
    return (
        f"{result.number:>3}  {result.what:<54} {result.ratio:>6.2f}  {result.goal:>5.2f}  "
        f"{verdict:<7}  {result.ours_ms:>8.2f} {result.baseline_ms:>8.2f}  {peers}"
    )


def main() -> int:
    """Measure the chosen rows, print the table and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=60, help="rounds per row (60)")
    parser.add_argument("--rows", default=",".join(ROWS), help="numbers, with commas between")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    chosen = options.rows.split(",")
    if options.rounds < 1 or not set(chosen) <= set(ROWS):
        parser.error(f"rounds are positive, and rows are of {', '.join(ROWS)}")

    print(
        f"{'row':>3}  {'what':<54} {'ratio':>6}  {'goal':>5}  {'':<7}  {'ours ms':>8} {'base ms':>8}"
    )
    results: list[Result] = []
    unmeasured: dict[str, str] = {}
    for number in chosen:
        try:
            with ROWS[number]() as row:
                results.append(measure(row, options.rounds))
        except LookupError as reason:
            unmeasured[number] = str(reason)
            print(f"{number:>3}  not measured: {reason}")
        else:
            print(line(results[-1]), flush=True)
    if options.json:
        report = {
            "machine": {
                "kernel": platform.release(),
                "architecture": platform.machine(),
                "processors": os.cpu_count(),
                "python": platform.python_version(),
                "uid": os.geteuid(),
            },
            "visruntime": version("visruntime"),
            "rounds": options.rounds,
            "rows": [result._asdict() for result in results],
            "not_measured": unmeasured,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

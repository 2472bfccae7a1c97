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
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import arrays, calls, copies, fresh, names, scale, starts, streams, workers
from benchmarks.model import Result, measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROWS: dict[str, Callable[[], Any]] = {
    "1": starts.command_in_an_open_jail,
    "2": starts.new_jail,
    "2b": starts.new_jail_of_the_same_policy,
    "3": starts.new_jail_without_namespaces,
    "4": starts.python_in_an_open_jail,
    "5": starts.worker,
    "6": copies.fresh_worker,
    "7": fresh.from_a_pool,
    "8": workers.short_run,
    "9": workers.callback,
    "10": arrays.out_of_a_worker,
    "11": copies.idle_memory,
    "12": copies.numpy_preloaded,
    "13a": calls.opening,
    "13b": calls.stat,
    "13c": calls.getppid,
    "14a": streams.pipe,
    "14b": streams.terminal,
    "15": workers.import_of_the_package,
    "16": scale.many_jails,
    "17a": names.checkout_free,
    "17b": names.checkout_walled,
    "17c": names.unzip_free,
    "17d": names.unzip_walled,
    "17e": names.loop_free,
    "17f": names.loop_walled,
    "18": workers.run_from_the_shell,
}


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
                measured = row if isinstance(row, Result) else measure(row, options.rounds)
                results.append(measured)
        except LookupError as reason:
            unmeasured[number] = str(reason)
            print(f"{number:>3}  not measured: {reason}")
        else:
            print(line(results[-1]), flush=True)
    if options.json:
        report = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
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

"""What system calls cost inside a jail."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import PYTHON, Row, policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

CALLS = 3000
SERVER = """
import os, sys
def opens():
    os.close(os.open("/usr/bin/env", os.O_RDONLY))
def stats():
    os.stat("/usr/bin/env")
def parents():
    os.getppid()
for line in sys.stdin:
    call = globals()[line.strip()]
    for _ in range(CALLS): call()
    print("done", flush=True)
""".replace("CALLS", str(CALLS))


def asks(to: IO[bytes] | None, answers: IO[bytes] | None, call: str) -> Callable[[], None]:
    """Return a step that has the process behind the pipes make the calls."""
    if to is None or answers is None:
        raise AssertionError("no pipes")

    def step() -> None:
        to.write(call.encode() + b"\n")
        to.flush()
        if answers.readline() != b"done\n":
            raise AssertionError(call)

    return step


def row(number: str, what: str, goal: float, call: str) -> Callable[[], object]:
    """Return the row that compares *call* inside and outside."""

    @contextlib.contextmanager
    def measured() -> Iterator[Row]:
        command = [PYTHON, "-I", "-S", "-c", SERVER]
        pipe = subprocess.PIPE
        with (
            vr.Jail(policy(python=True)) as jail,
            jail.spawn(command, stdin=pipe, stdout=pipe) as inside,
            subprocess.Popen(command, stdin=pipe, stdout=pipe) as outside,
        ):
            ours = asks(inside.stdin, inside.stdout, call)
            baseline = asks(outside.stdin, outside.stdout, call)
            yield Row(number, what, goal, ours, baseline, {})

    return measured


opening = row("13a", "open and close of a file, inside / outside", 2.0, "opens")
stat = row("13b", "stat, inside / outside", 1.15, "stats")
getppid = row("13c", "getppid, inside / outside", 1.15, "parents")

"""What it costs to use a worker that lives, and to import the package."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import PYTHON, Row, policy, started

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = str(Path(vr.__file__).resolve().parent.parent)
CALLS = 50
"""Calls in one timed step, where one call is too short to time."""
PAYLOAD = 1024
"""Bytes of a callback's argument."""


@contextlib.contextmanager
def short_run() -> Iterator[Row]:
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
def callback() -> Iterator[Row]:
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
def import_of_the_package() -> Iterator[Row]:
    """Measure the import."""
    code = f"import sys; sys.path.insert(0, {SOURCES!r}); import visruntime"
    ours = started(PYTHON, "-I", "-S", "-c", code)
    bare = started(PYTHON, "-I", "-S", "-c", "pass")
    yield Row("15", "python -c 'import visruntime' / -c pass", 1.5, ours, bare, {})


@contextlib.contextmanager
def run_from_the_shell() -> Iterator[Row]:
    """Measure the smallest run of the command line: imports, a jail, a worker and their end."""
    command = str(Path(sys.executable).parent / "visruntime")
    # With bytecode, as wherever the package was used once: the first call writes it.
    environment = {n: text for n, text in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    ours = started(command, "run", "-c", "pass", env=environment)
    bare = started(sys.executable, "-I", "-c", "pass", env=environment)
    yield Row("18", "visruntime run -c pass / python -I -c pass", 3.5, ours, bare, {})

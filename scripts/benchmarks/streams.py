"""How fast output comes out of a jail."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import Row, policy

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE_BYTES = 1 << 30
TERMINAL_BYTES = 64 << 20
READ_SIZE = 1 << 16
PIPE_COMMAND = ["head", "-c", str(PIPE_BYTES), "/dev/zero"]
TERMINAL_COMMAND = ["head", "-c", str(TERMINAL_BYTES), "/dev/zero"]


def read_all(descriptor: int) -> int:
    """Return how many bytes come before the end."""
    total = 0
    buffer = bytearray(READ_SIZE)
    while True:
        try:
            count = os.readv(descriptor, [buffer])
        except OSError:  # EIO: the last program let go of the terminal
            return total
        if not count:
            return total
        total += count


@contextlib.contextmanager
def pipe() -> Iterator[Row]:
    """Measure the capture of 1 GiB."""

    def baseline() -> None:
        with subprocess.Popen(PIPE_COMMAND, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None
            if read_all(process.stdout.fileno()) != PIPE_BYTES:
                raise AssertionError("bytes are missing")

    with vr.Jail(policy()) as jail:

        def ours() -> None:
            if jail.run(PIPE_COMMAND).stdout_total != PIPE_BYTES:
                raise AssertionError("bytes are missing")

        yield Row("14a", "capture of 1 GiB / a bare pipe", 1.25, ours, baseline, {})


@contextlib.contextmanager
def terminal() -> Iterator[Row]:
    """Measure what a terminal session reads."""

    def baseline() -> None:
        master, slave = pty.openpty()
        with subprocess.Popen(TERMINAL_COMMAND, stdin=slave, stdout=slave, stderr=slave):
            os.close(slave)
            if read_all(master) != TERMINAL_BYTES:
                raise AssertionError("bytes are missing")
        os.close(master)

    with vr.Jail(policy()) as jail:
        session = jail.terminal(TERMINAL_COMMAND)

        def ours() -> None:
            session.run()
            if session.wait().stdout_total != TERMINAL_BYTES:
                raise AssertionError("bytes are missing")

        yield Row("14b", "terminal session of 64 MiB / a bare pty", 1.11, ours, baseline, {})

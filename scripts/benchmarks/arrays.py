"""What an array costs on its way out of a worker."""

from __future__ import annotations

import contextlib
import multiprocessing
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import Row, policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

ITEMS = 100 * 2**20 // 8


def _serve(connection: Connection) -> None:
    import numpy

    array = numpy.ones(ITEMS)
    while connection.recv():
        connection.send(array)


@contextlib.contextmanager
def out_of_a_worker() -> Iterator[Row]:
    """Measure 100 MiB of an array out of a worker, beside a pipe of multiprocessing."""
    import numpy

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    with vr.Runtime(policy()) as runtime:
        runtime.exec(f"import numpy\narray = numpy.ones({ITEMS})")

        def step() -> None:
            if runtime.get("array")[-1] != 1.0:
                raise AssertionError("another array came")

        def baseline() -> None:
            ours.send(True)
            if ours.recv()[-1] != 1.0:
                raise AssertionError("another array came")

        assert numpy.ones(1)[0] == 1.0
        yield Row("10", "100 MiB of an array out of a worker / a Pipe", 0.2, step, baseline, {})
    ours.send(False)
    process.join()

"""What a fresh worker costs where some are kept ready, beside the tools that people use for it."""

from __future__ import annotations

import contextlib
import multiprocessing
from typing import TYPE_CHECKING, Any

import visruntime as vr
from benchmarks.model import PYTHON, Row, policy, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READY = 2
"""Workers kept ready; the stock is full again before each step begins."""


@contextlib.contextmanager
def from_a_pool() -> Iterator[Row]:
    """Measure a worker that nobody has used, from a warm pool."""
    with contextlib.ExitStack() as held:
        pool = held.enter_context(vr.RuntimePool(policy(), min_idle=READY, max_size=2 * READY))

        def ours() -> Callable[[], None]:
            runtime = pool.acquire()
            if runtime.run("1+1").value != 2:
                raise AssertionError("1+1")

            def after() -> None:  # the clock has stopped
                pool.release(runtime)
                pool.wait_ready()

            return after

        pool.wait_ready()
        bare = started(PYTHON, "-I", "-c", "pass")
        what = "run('1+1') in a fresh pooled worker / python -I -c pass"
        yield Row("7", what, 0.06, ours, bare, peers(held))


def peers(held: contextlib.ExitStack) -> dict[str, Callable[[], object]]:
    """Return the peers that are installed; *held* ends what they start.

    multiprocessing, loky and execnet give a process that nobody has used; pydantic-monty gives a
    session of a language of its own, in a process that had others before.
    """
    return {
        "multiprocessing": _multiprocessing(held),
        **_optional(held, "loky", _loky),
        **_optional(held, "execnet", _execnet),
        **_optional(held, "pydantic_monty", _monty),
    }


def _optional(
    held: contextlib.ExitStack,
    module: str,
    make: Callable[[contextlib.ExitStack, Any], Callable[[], object]],
) -> dict[str, Callable[[], object]]:
    try:
        found = __import__(module)
    except ModuleNotFoundError:
        return {}
    return {module: make(held, found)}


def _multiprocessing(held: contextlib.ExitStack) -> Callable[[], object]:
    """One process of a warm fork server for each task."""
    context = multiprocessing.get_context("forkserver")
    pool = held.enter_context(context.Pool(1, maxtasksperchild=1))

    def step() -> None:
        if pool.apply(eval, ("1+1",)) != 2:
            raise AssertionError("1+1")

    return step


def _loky(_held: contextlib.ExitStack, loky: Any) -> Callable[[], object]:
    def step() -> Callable[[], object]:
        executor = loky.ProcessPoolExecutor(1)
        if executor.submit(eval, "1+1").result() != 2:
            raise AssertionError("1+1")
        return lambda: executor.shutdown(wait=True)

    return step


def _execnet(_held: contextlib.ExitStack, execnet: Any) -> Callable[[], object]:
    def step() -> Callable[[], object]:
        gateway = execnet.makegateway(f"popen//python={PYTHON}")
        if gateway.remote_exec("channel.send(1+1)").receive() != 2:
            raise AssertionError("1+1")
        return gateway.exit  # type: ignore[no-any-return]

    return step


def _monty(held: contextlib.ExitStack, monty: Any) -> Callable[[], object]:
    """One session of a warm pool of its processes."""
    pool = held.enter_context(monty.Monty())

    def step() -> None:
        with pool.checkout() as session:
            if session.feed_run("1+1") != 2:
                raise AssertionError("1+1")

    return step

"""Functions of the host that do not return, and the end of the runtime whose guest called them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

from visruntime._runtime import control
from visruntime.errors import CommandTimeout, JailClosed, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


class _Hanging:
    """A function of the host that returns when the test lets it; what it does then is kept."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()
        self.after: Callable[[], Any] = lambda: "late"
        self.came: list[object] = []

    def __call__(self) -> str:
        self.entered.set()
        self.released.wait(60)
        try:
            self.came.append(self.after())
        except BaseException as problem:
            self.came.append(problem)
        return "late"


@pytest.fixture
def hanging() -> Iterator[_Hanging]:
    """Return such a function, which ends with the test."""
    function = _Hanging()
    yield function
    function.released.set()


class _Run(threading.Thread):
    """A run in a thread of its own, as a host with threads makes it; what came of it is kept."""

    def __init__(self, runtime: AnyRuntime, code: str) -> None:
        super().__init__(daemon=True)
        self._runtime, self._code = runtime, code
        self.came: object = None
        self.start()

    def run(self) -> None:
        """Make it."""
        try:
            self.came = self._runtime.run(self._code)
        except BaseException as problem:
            self.came = problem


def test_a_function_that_hangs_does_not_hold_up_the_end(
    runtime: AnyRuntime, hanging: _Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """close() must not wait for ever, its worker ends, and the late run says what held it up."""
    monkeypatch.setattr(control, "CALL_SECONDS", 0.5)
    runtime.expose("hang", hanging)
    hanging.after = lambda: runtime.run("1")
    run = _Run(runtime, "hang()")
    assert hanging.entered.wait(20)
    process = runtime._running_worker().process
    started = time.monotonic()
    runtime.close()
    assert 0.5 < time.monotonic() - started < 5
    assert process.has_ended()
    assert run.is_alive()
    runtime.close()  # again is nothing, and waits no more
    hanging.released.set()
    run.join(10)
    assert not run.is_alive()
    death = run.came
    assert isinstance(death, WorkerDied)
    assert death.stopped_by == "killed"
    assert death.result.session_lost
    assert (death.result.stop.reason, death.result.stop.function) == ("cancel", "hang")
    assert "__call__" in death.result.stop.host_stack
    # The function itself went on, and could do nothing with the runtime.
    assert "cannot use the runtime" in str(hanging.came[0])
    assert runtime._worker is None


def test_a_function_that_returns_in_time_is_waited_for(
    runtime: AnyRuntime, hanging: _Hanging
) -> None:
    """close() must not break a run of another thread whose function takes a moment."""
    runtime.expose("hang", hanging)
    run = _Run(runtime, "hang() + '!'")
    assert hanging.entered.wait(20)
    threading.Timer(0.8, hanging.released.set).start()
    runtime.close()
    run.join(10)
    assert getattr(run.came, "value", run.came) == "late!"


def test_a_guest_that_calls_again_and_again_is_waited_for(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound must be of one call: a run that calls many is as any that another thread is in."""
    monkeypatch.setattr(control, "CALL_SECONDS", 0.6)
    entered = threading.Event()

    def short() -> None:
        entered.set()
        time.sleep(0.3)

    runtime.expose("short", short)
    run = _Run(runtime, "for _ in range(5): short()\n'done'")
    assert entered.wait(20)
    runtime.close()
    run.join(10)
    assert getattr(run.came, "value", run.came) == "done"


def test_an_async_function_that_hangs_is_cancelled_at_the_end(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that can be cancelled must be, and its run ends with the runtime."""
    monkeypatch.setattr(control, "CALL_SECONDS", 0.5)
    entered, cleaned = threading.Event(), threading.Event()

    async def wait() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    runtime.expose("wait", wait)
    run = _Run(runtime, "wait()")
    assert entered.wait(20)
    runtime.close()
    run.join(5)
    assert not run.is_alive()
    assert cleaned.wait(5)


def test_after_kill_nothing_is_waited_for(runtime: AnyRuntime, hanging: _Hanging) -> None:
    """A runtime whose worker was killed must close at once, whatever its host function does."""
    runtime.expose("hang", hanging)
    run = _Run(runtime, "hang()")
    assert hanging.entered.wait(20)
    started = time.monotonic()
    runtime.kill()
    runtime.close()
    assert time.monotonic() - started < 3
    hanging.released.set()
    run.join(10)
    assert isinstance(run.came, WorkerDied)


@pytest.mark.parametrize("way", ["close", "cancel", "block", "kill", "wall"])
def test_a_function_that_hangs_does_not_hold_up_a_started_run(
    runtime: AnyRuntime, hanging: _Hanging, way: str
) -> None:
    """A run that start() began must end within the grace though its function does not."""
    runtime.expose("hang", hanging)
    run = runtime.start("hang()", timeout=1 if way == "wall" else None)
    assert hanging.entered.wait(20)
    started = time.monotonic()
    if way == "block":
        with run:
            pass
    elif way != "wall":
        {"close": runtime.close, "cancel": run.cancel, "kill": runtime.kill}[way]()
    if way == "kill":
        with pytest.raises(WorkerDied) as killed:
            run.result(timeout=5)
        assert killed.value.stopped_by == "killed"
    elif way == "wall":
        with pytest.raises(CommandTimeout) as late:
            run.result(timeout=5)
        stop = late.value.result.stop
        assert (stop.reason, stop.function) == ("wall", "hang")
    else:
        result = run.result(timeout=5)
        assert result.stopped_by == "cancelled"
        assert result.stop is not None
        assert (result.stop.reason, result.stop.function) == ("cancel", "hang")
        assert "__call__" in result.stop.host_stack
    assert time.monotonic() - started < 5
    assert run.done
    assert not hanging.came


def test_a_function_of_a_closed_runtime_can_do_nothing_with_it(
    runtime: AnyRuntime, hanging: _Hanging
) -> None:
    """A thread that is left over must not use the runtime, and its answer goes nowhere."""
    runtime.expose("hang", hanging)
    hanging.after = lambda: runtime.run("1")
    run = runtime.start("hang()")
    assert hanging.entered.wait(20)
    runtime.close()
    assert run.result(timeout=5).stopped_by == "cancelled"
    hanging.released.set()
    deadline = time.monotonic() + 10
    while not hanging.came and time.monotonic() < deadline:
        time.sleep(0.01)
    assert isinstance(hanging.came[0], JailClosed)


def test_a_question_that_nobody_answers_does_not_hold_up_a_started_run(
    runtime: AnyRuntime, hanging: _Hanging
) -> None:
    """What answers input() is a function of the host like others."""
    run = runtime.start("input()", stdin=lambda _prompt, _password: hanging())
    assert hanging.entered.wait(20)
    runtime.close()
    assert run.result(timeout=5).stopped_by == "cancelled"

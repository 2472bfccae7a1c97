"""What a worker does between two runs, or instead of answering, and that it holds up nobody."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import until
from runtime_helpers import runtime

from visruntime import CommandTimeout, ProtocolViolation, Timeouts, WorkerDied
from visruntime._worker import conversation, copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module

SEND = (
    "import os, socket, stat, threading\n"
    "def send(data):\n"
    "    for name in map(int, os.listdir('/proc/self/fd')):\n"
    "        try:\n"
    "            if name < 3 or not stat.S_ISSOCK(os.fstat(name).st_mode): continue\n"
    "            end = socket.socket(fileno=os.dup(name))\n"
    "            if end.type == socket.SOCK_STREAM: end.sendall(data)\n"
    "        except OSError: pass\n"
)
STOP = (
    "import os, signal, threading\n"
    "threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGSTOP]).start()"
)
SOON = 6.0
"""Seconds in which a call ends that is limited to half of one, on a busy machine too."""


def goes_on(runtime: AnyRuntime) -> bool:
    """Whether the next call has a worker again, and a fresh one."""
    return bool(runtime.run("'kept' in globals()", timeout=20).value is False)


def test_a_worker_that_ended_between_two_runs_is_told_and_replaced(runtime: AnyRuntime) -> None:
    """Its end must not be taken for a result, nor cost more than one call."""
    runtime.exec("kept = 1\nimport os, threading\nthreading.Timer(0.1, os._exit, [3]).start()")
    live = runtime._worker
    assert live is not None
    assert until(live.process.has_ended)
    with pytest.raises(WorkerDied, match="exit code 3") as caught:
        runtime.run("1", timeout=20)
    assert caught.value.exit_code == 3
    assert goes_on(runtime)


def test_bytes_that_nobody_asked_for_end_the_worker(runtime: AnyRuntime) -> None:
    """What a guest writes into the channel between two runs must answer no request."""
    runtime.exec("kept = 1\n" + SEND)
    assert runtime.run("1 + 1").value == 2  # the control: it has sent nothing yet
    runtime.exec("threading.Timer(0.1, send, [b'x' * 4096]).start()")
    time.sleep(0.5)
    with pytest.raises(ProtocolViolation, match="nobody had asked for"):
        runtime.run("1", timeout=20)
    assert goes_on(runtime)


def test_a_frame_of_an_unknown_version_ends_the_worker(runtime: AnyRuntime) -> None:
    """A frame that this host cannot know must not be read as one that it does."""
    runtime.exec("kept = 1\n" + SEND)
    with pytest.raises(ProtocolViolation, match="frame version 2, expected 1"):
        runtime.run("send(bytes([2]) + bytes(15))", timeout=20)
    assert goes_on(runtime)


def _reset(runtime: AnyRuntime) -> None:
    runtime.set_timeouts(0.5)
    try:
        runtime.reset()
    finally:
        runtime.set_timeouts(None)


def _pause(runtime: AnyRuntime) -> None:
    runtime.pause()
    runtime.resume()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda runtime: runtime.run("1", inputs={"x": bytes(30_000_000)}, timeout=0.5),
            CommandTimeout,
        ),
        (_reset, CommandTimeout),
        (lambda runtime: runtime.expose("late", abs), WorkerDied),
        (lambda runtime: runtime.fork(), WorkerDied),
    ],
    ids=["big input", "reset", "expose", "fork"],
)
def test_a_worker_that_stopped_itself_holds_up_no_call(
    monkeypatch: pytest.MonkeyPatch,
    runtime: AnyRuntime,
    call: Callable[[AnyRuntime], object],
    error: type[Exception],
) -> None:
    """A guest that stands still by itself is no paused one: each call ends at its limit."""
    monkeypatch.setattr(conversation, "_ASIDE", Timeouts(wall=0.5))
    monkeypatch.setattr(copy, "COPY_SECONDS", 0.5)
    runtime.exec("kept = 1\n" + STOP)
    time.sleep(0.5)
    with pytest.raises(TimeoutError):  # the control: it does stand still
        runtime.ping(0.1)
    begun = time.monotonic()
    with pytest.raises(error):
        call(runtime)
    assert time.monotonic() - begun < SOON
    monkeypatch.undo()
    runtime.kill()
    assert goes_on(runtime)


def test_a_worker_that_stopped_itself_can_be_paused_and_closed(runtime: AnyRuntime) -> None:
    """What any thread may do with a worker waits for none that stands still by itself."""
    runtime.exec(STOP)
    time.sleep(0.5)
    begun = time.monotonic()
    _pause(runtime)
    with pytest.raises(CommandTimeout):
        runtime.run("while True: pass", timeout=0.5)
    runtime.exec(STOP)
    time.sleep(0.5)
    _pause(runtime)
    runtime.close()
    assert time.monotonic() - begun < 2 * SOON

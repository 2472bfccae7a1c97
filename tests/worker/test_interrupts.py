"""Time limits and interrupts: soft first, then for good."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from runtime_helpers import runtime

from visruntime._worker.control import STACKS_SECONDS, Control
from visruntime.errors import (
    CommandTimeout,
)

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


# ---- time limits and interrupts ----


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "while True:\n    try: 1/0\n    except BaseException: pass",
        "sum(range(10**12))",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(99)",
    ],
    ids=["loop", "swallow", "c-loop", "regex", "masked"],
)
def test_pw_02_time_limits_are_real(runtime: AnyRuntime, code: str) -> None:
    """PW-02: whatever the code does, the call returns, nothing burns on, the next call works."""
    runtime.run("1")
    started = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        runtime.run("print('so far', flush=True)\n" + code, timeout=1)
    assert time.monotonic() - started < 3
    assert caught.value.result.stopped_by == "timeout"
    assert caught.value.result.stdout == b"so far\n"
    assert runtime.eval("1+1") == 2
    assert runtime.run("import time; time.sleep(.3)").usage.cpu_seconds < 0.2  # type: ignore[operator]


_INTERRUPTIBLE = {
    "sleep": "import time; time.sleep(60)",
    "recv": "import socket; a, b = socket.socketpair(); a.recv(1)",
    "read": "import os; r, w = os.pipe(); os.read(r, 1)",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "join": "import threading, time; t = threading.Thread(target=time.sleep, args=(3,), daemon=True)\n"
    "t.start(); t.join()",
    "queue": "import queue; queue.Queue().get()",
    "select": "import select; select.select([], [], [])",
    "child": "import subprocess; subprocess.run(['sleep', '5'])",
    "regex": "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "bigint": "x = 3 ** (10 ** 9)",
    "loop": "while True: pass",
    "ignored": "import signal, time\nfor s in range(34, 65):\n"
    "    try: signal.signal(s, signal.SIG_IGN)\n"
    "    except OSError: pass\ntime.sleep(60)",
    "await": "import asyncio\nawait asyncio.sleep(60)",
    "repr": "class Slow:\n    def __repr__(self):\n        while True: pass\nSlow()",
}


@pytest.mark.parametrize("code", _INTERRUPTIBLE.values(), ids=_INTERRUPTIBLE.keys())
def test_interrupts_keep_the_session(runtime: AnyRuntime, code: str) -> None:
    """A soft interrupt ends waits, C code and loops within the grace; names stay bound."""
    runtime.exec("kept = 41")
    started = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        runtime.run(code, timeout=0.3)
    assert time.monotonic() - started < 1.2
    result = caught.value.result
    assert not result.session_lost
    assert result.error.interrupted
    assert result.error.type_name == "visruntime.VisInterrupt"
    assert runtime.eval("kept + 1") == 42


def test_the_time_from_interrupt_to_effect_is_short(runtime: AnyRuntime) -> None:
    """Half of all interrupts of a sleep take effect within 50 ms."""
    delays = []
    for _ in range(9):
        started = time.monotonic()
        with pytest.raises(CommandTimeout):
            runtime.run("import time; time.sleep(60)", timeout=0.1)
        delays.append(time.monotonic() - started - 0.1)
    assert sorted(delays)[4] < 0.05


def test_interrupt_from_another_thread(runtime: AnyRuntime) -> None:
    """``interrupt()`` ends the run under way as data, and does nothing between runs."""
    runtime.run("1")
    runtime.interrupt()
    assert runtime.eval("1+1") == 2
    timer = threading.Timer(0.3, runtime.interrupt)
    timer.start()
    result = runtime.run("import time; time.sleep(60)", timeout=10)
    timer.join()
    assert result.error is not None
    assert result.error.interrupted
    assert result.stopped_by is None
    assert result.usage.wall_seconds < 5


def test_a_time_limit_may_be_shorter_than_the_way_to_the_guest(runtime: AnyRuntime) -> None:
    """An interrupt that arrives before its run has begun is obeyed once it has."""
    runtime.exec("kept = 1")
    for _ in range(5):
        with pytest.raises(CommandTimeout) as caught:
            runtime.run("while True: pass", timeout=1e-9)
        assert not caught.value.result.session_lost
    assert runtime.get("kept") == 1


def test_guest_can_clean_up_when_interrupted(runtime: AnyRuntime) -> None:
    """``finally`` runs, and ``except Exception`` does not swallow the interrupt."""
    with pytest.raises(CommandTimeout) as caught:
        runtime.run(
            "import time\ntry:\n    time.sleep(60)\nexcept Exception:\n    print('no')\n"
            "finally:\n    print('cleaned')",
            timeout=0.2,
        )
    assert caught.value.result.stdout == b"cleaned\n"


def test_stacks_end_though_the_worker_writes_without_end(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that floods its control socket cannot hold ``stacks`` beyond its limit."""
    runtime.run("1")
    assert "Thread" in runtime.stacks()
    started = time.monotonic()

    def flood(_control: Control, _timeout: float) -> bytes:
        return b"x" if time.monotonic() - started < 20 else b""

    monkeypatch.setattr(Control, "_read", flood)
    with pytest.raises(TimeoutError):
        runtime.stacks()
    assert time.monotonic() - started < STACKS_SECONDS + 1


def test_orders_to_a_worker_that_was_ended_are_nothing(runtime: AnyRuntime) -> None:
    """``interrupt`` and ``stacks`` may come from another thread after the worker was killed."""
    runtime.run("1")
    worker = runtime._worker
    assert worker is not None
    worker.kill()
    worker.interrupt()
    with pytest.raises(TimeoutError):
        worker.stacks()


def test_stacks_are_shown_while_c_code_runs(runtime: AnyRuntime) -> None:
    """``stacks`` answers though the interpreter's lock is held."""
    runtime.run("1")
    texts: list[str] = []
    timer = threading.Timer(0.4, lambda: texts.append(runtime.stacks()))
    timer.start()
    with pytest.raises(CommandTimeout):
        runtime.run("def deep():\n    sum(range(10**12))\ndeep()", timeout=1)
    timer.join()
    assert "in deep" in texts[0]
    assert "in <module>" in texts[0]

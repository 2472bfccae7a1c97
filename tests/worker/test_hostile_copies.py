"""Workers that lie about their copies: none is taken for what it is not, or waited for without end."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from runtime_helpers import children_of, runtime

from visruntime._worker import copy as _worker_copy
from visruntime._worker.confinement import WorkerConfinement
from visruntime.errors import (
    ForkRefused,
    ProtocolViolation,
    WorkerDied,
)
from visruntime.policy import JailPolicy
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_helpers import AnyRuntime

__all__ = ["runtime"]


HOSTILE = """
import os, socket, struct, stat, sys, time, _viscore
def stranger():
    'The channel that the host meant for a copy.'
    for name in sorted(os.listdir('/proc/self/fd'), key=int, reverse=True):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode): continue
            s = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        if s.type == socket.SOCK_STREAM and int(name) < 900:
            return s
def hello():
    import marshal
    body = _viscore.encode({'hook_before_init': True, 'mode': 'L', 'python': sys.version, 'pid': 1})
    return struct.pack('<BBHIQ', 1, 1, 0, len(body), 1) + body
"""


def lie(runtime: AnyRuntime, body: str) -> None:
    """Have the guest answer the next order to fork with *body* instead of a copy."""
    runtime.exec(HOSTILE)
    runtime.exec("def copy(keeper):\n" + body + "\n_viscore.copy = copy")


def test_a_worker_that_says_that_it_was_copied_is_found_out(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that does not come must not be waited for without end."""
    monkeypatch.setattr(_worker_copy, "COPY_SECONDS", 0.5)
    lie(runtime, " _viscore.refuse_copy()\n return False")
    with pytest.raises(WorkerDied, match=r"ended before it was ready|not copied within"):
        runtime.fork()
    assert runtime.eval("1") == 1


@pytest.mark.parametrize("verb", ["fork", "run", "warm_up"])
def test_a_worker_that_is_not_confined_as_asked_is_never_used(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Whatever asked for it first, it must not answer the next call either."""
    with TrustedRuntime() as runtime:
        confined = {"confine": WorkerConfinement(processes=False).settings(())}
        monkeypatch.setattr(runtime, "_settings", lambda: confined)
        acts: dict[str, Callable[[], object]] = {
            "fork": runtime.fork,
            "run": lambda: runtime.run("1"),
            "warm_up": runtime.warm_up,
        }
        before = children_of(os.getpid())
        for _ in range(2):
            with pytest.raises(ProtocolViolation, match="did not refuse to start processes"):
                acts[verb]()
            assert children_of(os.getpid()) <= before
        monkeypatch.undo()
        assert runtime.run("6 * 7").value == 42


def test_a_worker_cannot_be_its_own_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process must never count as two workers."""
    monkeypatch.setattr(_worker_copy, "COPY_SECONDS", 2.0)
    with Runtime(JailPolicy()) as runtime:
        lie(runtime, " s = stranger(); s.send(hello()); globals()['kept'] = s\n return False")
        with pytest.raises(ProtocolViolation, match="another worker spoke"):
            runtime.fork()
        assert runtime.eval("1") == 1


def test_a_child_of_the_worker_cannot_be_its_copy() -> None:
    """The keeper must take only what it has inherited, since nothing else is its to measure."""
    with Runtime(JailPolicy()) as runtime:
        lie(
            runtime,
            " s = stranger()\n if os.fork() == 0:\n  s.send(hello()); time.sleep(60)\n return False",
        )
        with pytest.raises(WorkerDied, match="ended before it was ready"):
            runtime.fork()
        assert runtime.eval("1") == 1


def test_a_copy_that_sends_descriptors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor of a guest may come to be one of the host's."""
    # As on a kernel before 6.16, where the socket itself cannot refuse them.
    monkeypatch.setattr("visruntime.worker._refuse_descriptors", lambda _end: None)
    with Runtime(JailPolicy()) as runtime:
        lie(
            runtime,
            " s = stranger()\n socket.send_fds(s, [hello()], [0] * 200); globals()['kept'] = s\n"
            " return False",
        )
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ProtocolViolation, match="descriptors"):
            runtime.fork()
        assert len(os.listdir("/proc/self/fd")) == before
        assert runtime.eval("1") == 1


def test_a_worker_that_is_frozen_is_given_up(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that answers nothing must not hold its host, and the next one is fine."""
    monkeypatch.setattr(_worker_copy, "COPY_SECONDS", 0.5)
    runtime.exec(
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: time.sleep(100))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)"
    )
    time.sleep(0.1)
    begun = time.monotonic()
    with pytest.raises(WorkerDied, match="not copied within"):
        runtime.fork()
    assert time.monotonic() - begun < 3
    with runtime.fork() as copy:
        assert copy.eval("1") == 1


@pytest.mark.parametrize(
    "answer",
    ["{'id': 77, 'refused': None}", "{'id': i, 'refused': 1}", "{}", "[1]", "None"],
)
def test_an_answer_of_another_shape_ends_the_worker(answer: str) -> None:
    """What is not the agreed answer must not be believed."""
    with TrustedRuntime() as runtime:
        number = "sys.modules['_visguest.worker']"
        runtime.exec(
            f"import sys, _viscore\nw = {number}\nreal = _viscore.encode\n"
            f"def lying(value, **k):\n"
            f" if isinstance(value, dict) and 'refused' in value:\n"
            f"  i = value['id']\n  value = {answer}\n return real(value, **k)\n"
            "_viscore.encode = lying"
        )
        with pytest.raises(ProtocolViolation):
            runtime.fork()
        assert runtime.eval("1") == 1


def test_a_reason_of_the_guest_is_cut_and_cleaned(runtime: AnyRuntime) -> None:
    """Control sequences of a guest must not come to the host's terminal in an error."""
    runtime.fork().close()  # the module comes with the first order
    runtime.exec(
        "import sys\nm = sys.modules['_visguest.copying']\n"
        "m.refusal = lambda session: '\\x1b[2J' + 'x' * 100000"
    )
    with pytest.raises(ForkRefused) as refusal:
        runtime.fork()
    assert "\x1b" not in str(refusal.value)
    assert len(str(refusal.value)) < 2000

"""What small frames of a worker say: whatever is in a part of one, the host raises one error."""

from __future__ import annotations

import datetime as dt
import math
import os
import select
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from runtime_helpers import runtime
from worker.test_hostile_copies import lie

from visruntime._runtime.events import Feed
from visruntime._runtime.run import _claims
from visruntime._worker.claims import MAX_PARTS
from visruntime._worker.exchange import Exchange
from visruntime._worker.values import WorkerValues
from visruntime.callbacks import Callbacks
from visruntime.errors import ProtocolViolation
from visruntime.guest.arrays import Array, Table
from visruntime.policy import JailPolicy
from visruntime.protocol import FORK, GUEST_TYPES, HELLO, RESULT, FrameEncoder, Handle, Record
from visruntime.results import GuestFailure
from visruntime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module

HOSTILE: list[Any] = [
    *(numpy.zeros(2), numpy.zeros(()), numpy.zeros(0), numpy.zeros((2, 2), "i4")),
    *(Array("<i4", (1,), bytes(4)), Table(b"x"), Handle(1, "t", "r"), Decimal("nan")),
    *(Record("dataclass", "T", {"id": 1, "name": "f", "size": 1}), range(3), dt.timedelta(1)),
    *(None, True, -1, 0, 1 << 63, 1 << 64, 10**400, math.nan, math.inf, 1j),
    *("", "x", "x" * 30_000, "\ud800", "\x1b[2J", b"", b"x" * 30_000),
    *([], [1], [numpy.zeros(2)], (), (1, 2, 3, 4, 5, 6, 7), {}, {"id": 1}, {1: 2}, {1}, [[[[]]]]),
]
"""In the place of each part of a frame. Some are right there, and must be taken then."""

FAILURE: dict[str, Any] = {
    "type": "E",
    "message": "m",
    "notes": ["n"],
    "errno": 2,
    "path": "/x",
    "frames": [("f.py", 3, "g", "s", 4, 3, 10)],
    "exceptions": [],
    "cause": None,
    "context": None,
    "interrupted": False,
    "cancelled": True,
}
DENIAL = ("open", "read", "deny[0]", "/x", 13, "f.py", 1)
REPLY: dict[str, Any] = {
    "id": 1,
    "value": 7,
    "error": FAILURE,
    "exit_code": 1,
    "tasks": ["t"],
    "trips": {"open": 1},
    "denials": ([DENIAL], 0),
}


def variants(value: Any) -> Iterator[Any]:
    """Yield *value* with each part of it replaced by each hostile value, or left out."""
    yield from HOSTILE
    if isinstance(value, dict):
        for key, part in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            yield rest
            for odd in (7, None, "", "\x1b", ("id",)):
                yield {**rest, odd: part}
            for other in variants(part):
                yield {**rest, key: other}
    elif isinstance(value, (list, tuple)):
        kind = type(value)
        yield kind([*value, *value])
        for at, part in enumerate(value):
            for other in variants(part):
                yield kind([*value[:at], other, *value[at + 1 :]])


class Waiter:
    """Waits for functions of the host as a run without limits does."""

    threads = False

    def call_begins(self, call: object) -> None:
        """Nothing."""

    def wait(self, call: object) -> None:
        """Nothing: the functions here have ended when they return."""

    def call_ends(self) -> None:
        """Nothing."""


WAITER: Any = Waiter()


def call(payload: bytes) -> None:
    """Answer a CALLBACK frame."""
    callbacks = Callbacks()
    callbacks.prepare({"f": lambda *_, **__: None})()
    callbacks.answer(payload, WAITER, lambda *_: None, WorkerValues(select.poll()))


def lend(payload: bytes) -> None:
    """Answer a BUFFER frame."""
    values = WorkerValues(select.poll())
    values.lend(payload)
    values.end_run()


def ask(payload: bytes) -> None:
    """Answer an INPUT frame."""
    Feed(ask=lambda *_: "x").answer(payload, Callbacks(), WAITER)


def show(payload: bytes) -> None:
    """Take a DISPLAY frame, and write it as a host may do."""
    feed = Feed()
    feed.display(payload)
    repr(feed.displays.take())


def tell(payload: bytes) -> None:
    """Take a DENIED frame."""
    feed = Feed()
    feed.denial(payload)
    repr(feed.denials.all(None))


def reply(payload: bytes) -> None:
    """Take a RESULT frame as a run does."""
    exchange = Exchange(WorkerValues(select.poll()).decode)
    exchange._state, exchange.run_number = "running", 1
    ((_, claim),) = exchange.receive(FrameEncoder(GUEST_TYPES).frame(RESULT, payload))
    claims = _claims(claim, lambda _errno, _path: None)
    Feed().denials.all(claim.get("denials"))
    repr(claims)


def failure(payload: bytes) -> None:
    """Take the description of an error by itself."""
    claim = WorkerValues(select.poll()).decode(payload)
    _ = GuestFailure.from_claim(claim, lambda _errno, _path: None).traceback


def start(state: str, kind: int) -> Callable[[bytes], None]:
    """Return what takes the one frame of that kind which may come in *state*."""

    def take(payload: bytes) -> None:
        exchange = Exchange(WorkerValues(select.poll()).decode)
        exchange._state = state
        exchange.receive(FrameEncoder(GUEST_TYPES).frame(kind, payload))

    return take


FRAMES: dict[str, tuple[Callable[[bytes], None], Any]] = {
    "call": (call, {"id": 1, "name": "f", "args": [1], "kwargs": {"k": 2}}),
    "lend": (lend, {"id": 1, "size": 99_999, "copied": True}),
    "ask": (ask, {"id": 1, "prompt": "p", "password": False}),
    "show": (show, {"data": {"text/plain": "x"}, "display_id": "d", "update": True}),
    "tell": (tell, {"denial": DENIAL}),
    "reply": (reply, REPLY),
    "failure": (failure, FAILURE),
    "hello": (start("starting", HELLO), {"hook_before_init": True, "python": "3", "mode": "L"}),
    "hello of a copy": (start("copied", HELLO), {"hook_before_init": True, "mode": "L"}),
    "ready": (start("booting", RESULT), {"id": 0, "error": None}),
    "fork": (start("forking", FORK), {"id": 0, "refused": "no"}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_part_of_any_type_is_taken_or_a_violation(name: str) -> None:
    """No value of a guest in any part of a frame may raise what the host does not expect."""
    take, right = FRAMES[name]
    take(WorkerValues(select.poll()).encode(right))  # the control
    violations = 0
    for value in variants(right):
        try:
            take(WorkerValues(select.poll()).encode(value))
        except ProtocolViolation:
            violations += 1
    assert violations > len(HOSTILE) // 2


@pytest.mark.parametrize("name", ["lend", "ask", "show", "tell", "hello", "ready", "fork"])
def test_a_frame_without_values_has_few_parts(name: str) -> None:
    """A part takes one byte in the frame and hundreds in memory: 50 MiB of a megabyte."""
    take, right = FRAMES[name]
    take(WorkerValues(select.poll()).encode({**right, "x": b"x" * 1000}))  # the control
    wide: list[Any] = [[None] * 200_000, [set()] * MAX_PARTS]
    for many in wide:
        with pytest.raises(ProtocolViolation, match="more parts than allowed"):
            take(WorkerValues(select.poll()).encode({**right, "x": many}))


FORGE = r"""
import _viscore, os, socket, stat, struct, sys, time
def channel():
    for name in map(int, os.listdir('/proc/self/fd')):
        try:
            if name < 3 or not stat.S_ISSOCK(os.fstat(name).st_mode): continue
            s = socket.socket(fileno=os.dup(name))
        except OSError: continue
        if s.type == socket.SOCK_STREAM: return s
def frame(kind, payload):
    # The bootstrap's HELLO, READY and the result of the first run came before.
    return struct.pack('<BBHIQ', 1, kind, 0, len(payload), 4) + payload
"""


def test_an_array_where_a_call_is_meant_ends_the_worker(runtime: AnyRuntime) -> None:
    """In a host that has imported numpy it must not raise out of the run as an IndexError."""
    runtime.run(FORGE)
    array = WorkerValues(select.poll()).encode(numpy.zeros(2))
    with pytest.raises(ProtocolViolation, match="called a host function wrongly"):
        runtime.run(f"channel().sendall(frame(4, {array!r})); time.sleep(5)", timeout=5)
    assert runtime.run("1").value == 1


def test_a_frame_with_descriptors_ends_the_worker(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor of a guest may come with a frame, nor be dropped as if it had not."""
    code = (
        "body = _viscore.encode(dict(id=2, value='forged', error=None, exit_code=None, tasks=[],\n"
        "  trips={}, denials=None))\n"
        "try: socket.send_fds(channel(), [frame(7, body)], FDS)\n"
        "except PermissionError: 'refused by the kernel'\n"
        "else: time.sleep(5)"
    )
    runtime.run(FORGE)
    control = runtime.run(code.replace("FDS", "[]"), timeout=5)
    assert control.value == "forged"
    runtime.kill()
    # As on a kernel before 6.16, where the socket itself cannot refuse them.
    monkeypatch.setattr("visruntime.worker._refuse_descriptors", lambda _end: None)
    runtime.run(FORGE)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProtocolViolation, match="descriptors"):
        runtime.run(code.replace("FDS", "[0, 1]"), timeout=5)
    runtime.run("1")
    assert len(os.listdir("/proc/self/fd")) <= before


def test_out_of_band_bytes_stand_for_no_copy() -> None:
    """A byte that wakes the host and is not there to be read must not hold it, nor be a copy."""
    with Runtime(JailPolicy()) as runtime:
        lie(
            runtime,
            " s = stranger(); s.send(b'x', socket.MSG_OOB); globals()['kept'] = s\n return False",
        )
        begun = time.monotonic()
        with pytest.raises(ProtocolViolation, match="another worker spoke"):
            runtime.fork()
        assert time.monotonic() - begun < 3
        assert runtime.eval("1") == 1


def test_of_the_hello_of_a_copy_nothing_of_the_guest_is_kept(runtime: AnyRuntime) -> None:
    """A copy must not fill the host with what it says of itself, whatever that is."""
    kept = dict(runtime.fork()._worker.hello)  # type: ignore[union-attr]
    runtime.exec(
        "import _viscore, sys\nclass Lying:\n"
        " def __getattr__(self, name): return getattr(_viscore, name)\n"
        " def encode(self, value, **k):\n"
        "  if type(value) is dict and 'hook_before_init' in value: value = value | more\n"
        "  return _viscore.encode(value, **k)\n"
        "more = {'x': b'x' * 900_000}\n"
        "sys.modules['_visguest.worker'].core = Lying()"
    )
    with runtime.fork() as copy:
        assert copy._worker is not None
        assert copy._worker.hello == kept
        assert copy.eval("len(more['x'])") == 900_000  # the control
    runtime.exec("more = {'x': [set()] * 200_000}")
    with pytest.raises(ProtocolViolation, match="more parts than allowed"):
        runtime.fork()
    assert runtime.eval("1") == 1

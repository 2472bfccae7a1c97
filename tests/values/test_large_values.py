"""Large arrays and bytes come through a pipe of the host's, whatever a guest does with it."""

from __future__ import annotations

import fcntl
import os
import select
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from runtime_helpers import runtime
from values.test_arrays import ASK, descriptors, shared

from visruntime import _native
from visruntime._worker import lending
from visruntime.errors import ProtocolViolation, WorkerDied
from visruntime.executor import JailExecutor
from visruntime.guest.values import Handle
from visruntime.policy import JailPolicy
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime", "shared"]

LARGE = 3_000_001
"""Bytes that no frame carries and no pipe holds, and no whole number of pages."""


def owner_of(value: Any) -> object:
    """Return what holds the bytes of an array of numpy's."""
    while isinstance(value, numpy.ndarray):
        value = value.base
    return value.obj


def test_long_bytes_cross_both_ways(runtime: AnyRuntime) -> None:
    """Bytes and bytearrays larger than a frame holds arrive as what they were, and are no others."""
    ours = os.urandom(LARGE)
    runtime.set("x", [ours, bytearray(ours)])
    runtime.exec("kinds = [type(each).__name__ for each in x]; x[1][0] ^= 1")
    assert runtime.get("kinds") == ["bytes", "bytearray"]
    back = runtime.get("x")
    assert back[0] == ours
    assert type(back[0]) is bytes
    assert type(back[1]) is bytearray
    assert back[1][1:] == ours[1:]
    assert back[1][0] == ours[0] ^ 1
    assert len(runtime.eval("bytes(70 << 20)")) == 70 << 20
    for kind in (bytes, bytearray):
        runtime.set("x", kind(ours * 4))
        assert runtime.eval(f"type(x).__name__, bytes(x[:{LARGE}])") == (kind.__name__, ours)


def test_a_memoryview_arrives_as_bytes(runtime: AnyRuntime) -> None:
    """The bytes that it shows cross; what has another shape stays with the guest."""
    for size in (10, LARGE):
        assert runtime.eval(f"memoryview(bytearray(b'ab' * {size}))[1:]") == (b"ab" * size)[1:]
        runtime.set("x", memoryview(b"ab" * size))
        assert runtime.eval("type(x).__name__, len(x)") == ("bytes", 2 * size)
    for code in ("memoryview(b'abcdefgh').cast('d')", "memoryview(bytes(100))[::2]"):
        assert type(runtime.eval(code)).__name__ == "Handle"
    with pytest.raises(TypeError, match="memoryview"):
        runtime.set("x", memoryview(b"abcdefgh").cast("d"))


def test_host_functions_take_and_return_long_bytes(runtime: AnyRuntime) -> None:
    """Arguments and results of callbacks go the same way; they count for the budget."""
    runtime.expose("double", lambda data: data + data)
    result = runtime.run(f"len(double(bytes({LARGE})))")
    assert result.value == 2 * LARGE
    assert result.host_calls.bytes > 3 * LARGE


def test_many_long_bytes_go_with_the_frame(runtime: AnyRuntime) -> None:
    """Where so many are out that no more are lent, bytes cross as they always did."""
    runtime.exec("import numpy\nx = [numpy.ones(9_000) for _ in range(63)]")
    value = runtime.eval(f"[*x, bytes({LARGE}), b'a' * {LARGE}]")
    assert value[-2:] == [bytes(LARGE), b"a" * LARGE]
    runtime.set("y", [*value[:-2], bytes(LARGE), b"b" * LARGE])
    assert runtime.eval(f"y[-1] == b'b' * {LARGE}") is True


def test_keys_of_any_length(runtime: AnyRuntime) -> None:
    """Long bytes as a key stay in the frame."""
    key = bytes(LARGE)
    runtime.set("x", {key: 1})
    assert runtime.eval("x") == {key: 1}


def test_what_is_changed_afterwards_does_not_show(runtime: AnyRuntime) -> None:
    """Pages are lent to the kernel: none may still be in the pipe when the guest goes on."""
    runtime.exec(
        "import numpy, threading\nx = numpy.zeros(2_000_000)\ndef spoil():\n    x[:] = 7\n"
    )
    kept: list[Any] = []
    runtime.expose("keep", lambda value, _: kept.append(value))
    runtime.exec(
        "class Spoil:\n"
        "    def __repr__(self):\n"  # encoded after the array, and before the frame is sent
        "        spoil()\n"
        "        return ''\n"
        "keep(x, Spoil())"
    )
    assert kept[0].sum() == 0
    assert runtime.eval("x[0]") == 7.0


def test_output_is_read_meanwhile(runtime: AnyRuntime) -> None:
    """A guest that prints more than a pipe holds while it sends is not stuck."""
    runtime.exec("import numpy, threading, sys\nx = numpy.ones(5_000_000)")
    result = runtime.run(
        "t = threading.Thread(target=lambda: sys.stdout.write('y' * 5_000_000))\n"
        "t.start()\n"
        "y = x * 2\n"
        "t.join()\n"
        "y"
    )
    assert result.value.sum() == 10_000_000
    assert len(result.stdout) == 5_000_000


def test_a_copy_of_a_worker_sends_large_values_too(runtime: AnyRuntime) -> None:
    """A fork has pipes of its own, and the original's go on."""
    runtime.exec(f"x = b'x' * {LARGE}")
    with runtime.fork() as copy:
        assert copy.get("x") == runtime.get("x") == b"x" * LARGE


def test_tasks_of_an_executor_carry_long_bytes() -> None:
    """Pickled arguments and plain results may be larger than a frame."""
    with JailExecutor(JailPolicy(), max_workers=1, timeout=60) as executor:
        assert executor.submit(len, bytes(70 << 20)).result() == 70 << 20
        assert executor.submit(bytes, LARGE).result() == bytes(LARGE)


# ---- hostile guests ----


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("n, d = borrow(99999); named(n, 99999)", "nothing written"),
        ("n, d = borrow(99999); os.write(d, bytes(40000)); named(n, 99999)", "too little"),
        ("n, d = borrow(99999); os.write(d, b'x'); os.close(d); named(n, 99999)", "closed"),
        ("n, d = borrow(40000); os.write(d, bytes(40000)); named(n, 39999)", "another size"),
        ("n, d = borrow(40000); os.write(d, bytes(40000)); [named(n, 40000)] * 2", "used twice"),
    ],
)
def test_a_pipe_that_was_not_filled_is_a_violation(
    runtime: AnyRuntime, code: str, why: str
) -> None:
    """What a guest says that it has written must be there, once; the host waits for nothing."""
    runtime.exec(ASK + "import os")
    before = descriptors()
    with pytest.raises(ProtocolViolation, match="malformed value"):
        runtime.run(code)
    assert runtime.eval("1 + 1") == 2, why
    assert descriptors() <= before + 1


def test_more_than_was_announced_is_not_read(runtime: AnyRuntime) -> None:
    """The host takes the size that it has lent, and closes its end."""
    runtime.exec(ASK + "import os, time")
    code = (
        "n, d = borrow(40000)\n"
        "os.write(d, b'a' * 40000 + b'more')\n"
        "end = time.monotonic() + 20\n"
        "refused = False\n"
        "while not refused and time.monotonic() < end:\n"
        "    try:\n"
        "        os.write(d, bytes(40000))\n"
        "    except BrokenPipeError:\n"
        "        refused = True\n"
        "refused, named(n, 40000)"
    )
    refused, data = runtime.run(code).value
    assert refused
    assert data == b"a" * 40000


def test_what_is_given_up_costs_nothing(runtime: AnyRuntime) -> None:
    """Pipes that are never filled, closed or held end with their run."""
    runtime.exec(ASK + "import os")
    before = descriptors()
    runtime.run("[os.close(borrow(1 << 20)[1]) for _ in range(8)]")
    assert descriptors() <= before
    runtime.run("held = [borrow(1 << 20) for _ in range(8)]")
    assert descriptors() <= before
    assert runtime.eval("bytes(2_000_000)") == bytes(2_000_000)


def test_the_end_of_a_worker_that_is_sending(runtime: AnyRuntime) -> None:
    """A worker that dies in the middle leaves nothing open, and the next one is fine."""
    runtime.exec("1")
    before = descriptors()
    for code in (
        "n, d = borrow(1 << 20); os.write(d, b'x'); os.kill(os.getpid(), 9)",
        "os.fork() or time.sleep(9); n, d = borrow(1 << 20); os.kill(os.getpid(), 9)",
    ):
        with pytest.raises((WorkerDied, ProtocolViolation)):
            runtime.run(ASK + "import os, time\n" + code)
        assert runtime.eval("1 + 1") == 2
        assert descriptors() <= before + 1


def test_an_interrupt_while_a_value_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that is stopped in the middle gives the value up, and its session lives on."""
    with TrustedRuntime() as runtime:
        runtime.exec(f"x = bytes({LARGE})")
        with monkeypatch.context() as patched:  # a host that reads nothing
            patched.setattr(lending.Lending, "read", lambda *_: True)
            timer = threading.Timer(0.2, runtime.interrupt)
            timer.start()
            result = runtime.run("x")
            timer.join()
        assert result.error is not None
        assert result.error.interrupted
        assert runtime.get("x") == bytes(LARGE)


def test_the_host_copies_only_so_much_in_a_run(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a bound arrays lie in pages of the guest: it cannot fill the host's memory."""
    monkeypatch.setattr(lending, "MAX_COPIED", 4 * LARGE)
    monkeypatch.setattr(lending, "_RESERVED", LARGE)
    runtime.exec(ASK + "import os, stat")
    kinds = runtime.eval(f"[stat.S_ISFIFO(os.fstat(borrow({LARGE})[1]).st_mode) for _ in range(5)]")
    assert kinds == [True, True, True, False, False]
    kept: list[Any] = []
    runtime.expose("keep", kept.append)
    runtime.exec(
        f"for _ in range(5): keep(arrays.Array('|u1', ({LARGE},), bytes({LARGE})))\n"
        "keep(arrays.Array('|u1', (900_000,), bytes(900_000)))"  # has its part, whatever arrays took
    )
    copied = [type(owner_of(value)) is bytes for value in kept]
    assert copied == [True, True, True, False, False, True]


def test_bytes_are_never_copied_out_of_memory_of_the_guest(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count with all that is copied; beyond they cross in frames, or not at all."""
    monkeypatch.setattr(lending, "MAX_COPIED", 2 * LARGE)
    monkeypatch.setattr(lending, "_RESERVED", 0)
    assert runtime.eval(f"[bytes({LARGE})] * 5") == [bytes(LARGE)] * 5
    assert type(runtime.eval("bytes(65 << 20)")) is Handle
    runtime.exec(ASK)
    code = (
        f"[borrow({LARGE}) for _ in range(2)]\n"
        f"n, d = borrow({LARGE})\n"
        f"buffers._fill(d, bytes({LARGE}))\n"
        f"named(n, {LARGE})"
    )
    with pytest.raises(ProtocolViolation, match="malformed value"):
        runtime.run(code)


def test_small_values_are_never_mapped(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lets the host have 65,530 mappings: a guest cannot use them up, page by page."""
    monkeypatch.setattr(lending, "MAX_COPIED", 2_000_000)
    runtime.exec(ASK + "x = [arrays.Array('|u1', (100_000,), bytes(100_000))] * 60")
    before = len(Path("/proc/self/maps").read_text().splitlines())
    value = runtime.eval("x")
    assert all(type(owner_of(each)) is bytes for each in value)
    assert len(Path("/proc/self/maps").read_text().splitlines()) < before + 30
    result = runtime.run("[borrow(900_000) for _ in range(3)]")
    assert result.error is not None
    assert "that the host copies" in result.error.message


def test_what_is_given_up_is_not_charged(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that books all that is copied, and closes it, has the rest of its run copied."""
    monkeypatch.setattr(lending, "MAX_COPIED", LARGE)
    monkeypatch.setattr(lending, "_RESERVED", 0)
    runtime.exec(ASK + "import os, stat")
    code = (
        "def copied():\n"
        f"    n, d = borrow({LARGE})\n"
        "    yes = stat.S_ISFIFO(os.fstat(d).st_mode)\n"
        "    os.close(d)\n"
        "    return yes\n"
        "[copied() for _ in range(5)]"
    )
    assert runtime.run(code).value == [True] * 5


@pytest.mark.parametrize("size", [40_000, 1_100_000])
def test_few_descriptors_of_the_host_are_lent(runtime: AnyRuntime, size: int) -> None:
    """Values that are not written hold few, and those that are written hold none."""
    held: list[int] = []
    runtime.expose("look", lambda: held.append(descriptors()))
    runtime.exec(ASK)
    code = (
        "look()\n"
        "for _ in range(64):\n"
        "    try: borrow({size})\n"
        "    except ValueError as problem: said = str(problem)\n"
        "look()\n"
        "said"
    )
    assert "not written yet" in runtime.run(code.format(size=size)).value
    assert held[1] - held[0] <= lending.MAX_OPEN
    for small in (1, 32 * 1024):
        result = runtime.run(f"borrow({small})")
        assert result.error is not None
        assert "with the frame" in result.error.message
    assert len(runtime.eval(f"[arrays.Array('|u1', ({size},), bytes({size}))] * 64")) == 64


@pytest.mark.usefixtures("shared")
def test_sealed_memory_holds_no_descriptor(runtime: AnyRuntime) -> None:
    """Of many arrays that lie in the guest's memory, the last one only is a descriptor."""
    held: list[int] = []
    runtime.exec(ASK + "class Look:\n    def __repr__(self): look(); return ''")
    runtime.expose("look", lambda: held.append(descriptors()))
    before = descriptors()
    value = runtime.eval("[*[arrays.Array('|u1', (40_000,), b'a' * 40_000)] * 20, Look()]")
    assert all(each.sum() == 97 * 40_000 for each in value[:-1])
    assert held[-1] <= before + 2


# ---- the parts ----


def test_an_intake_shows_nothing_before_it_is_full() -> None:
    """Memory that was not written to is shown to nobody, and nothing is taken twice."""
    reader, writer = os.pipe()
    try:
        intake = _native.make_intake(10)
        os.write(writer, b"12345")
        assert intake.read(reader) == 5
        with pytest.raises(ValueError, match="missing"):
            intake.take()
        os.write(writer, b"67890 and more")
        assert intake.read(reader) == 0
        assert intake.read(reader) == 0
        assert intake.take() == b"1234567890"
        with pytest.raises(ValueError, match="taken"):
            intake.take()
        with pytest.raises(ValueError, match="taken"):
            intake.read(reader)
        os.set_blocking(reader, False)
        os.read(reader, 99)
        other = _native.make_intake(1)
        with pytest.raises(BlockingIOError):
            other.read(reader)
        os.close(writer)
        writer = -1
        with pytest.raises(EOFError):
            other.read(reader)
        for size in (0, -1):
            with pytest.raises(ValueError, match="positive"):
                _native.make_intake(size)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def test_an_array_over_copied_bytes_is_read_only_and_aligned(runtime: AnyRuntime) -> None:
    """Numpy takes what has come as it lies: no second copy, no write."""
    runtime.exec("import numpy")
    value = runtime.eval("numpy.arange(500_000, dtype='c16')")
    assert value.flags.aligned
    assert not value.flags.writeable
    assert not value.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 1
    assert numpy.asarray(value) is value


class Noted:
    """Stands in for a run's note of a call, and counts them."""

    count = 0
    now = 0

    def __enter__(self) -> None:
        Noted.count += 1
        Noted.now += 1

    def __exit__(self, *_: object) -> None:
        Noted.now -= 1


def test_no_call_on_what_is_lent_goes_unnoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest has the locks of what it is lent: the keepers must see who waits for one."""
    calls: list[tuple[str, int]] = []

    def watch(holder: object, name: str) -> None:
        real = getattr(holder, name)

        def call(*arguments: Any) -> Any:
            calls.append((name, Noted.now))
            return real(*arguments)

        monkeypatch.setattr(holder, name, call)

    data = os.urandom(LARGE)
    lent = lending.Lending(select.poll())
    lent.noted = Noted
    watch(os, "close")
    watch(_native, "map_memory")
    number, theirs = lent.lend(LARGE, copied=True)
    os.write(theirs, data[: 64 << 10])  # fits
    before = Noted.count
    assert lent.read(lent._lent[number].descriptor)
    assert Noted.count == before + 1
    lent.end_run()
    monkeypatch.setattr(lending, "MAX_COPIED", 0)
    monkeypatch.setattr(lending, "_RESERVED", 0)
    number, memory = lent.lend(LARGE, copied=False)
    os.pwrite(memory, data, 0)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, lending.ALL_SEALS)
    assert lent.take(number, LARGE) == data
    assert calls == [("close", 1), ("map_memory", 1), ("close", 1)]
    assert Noted.now == 0
    for descriptor in (theirs, memory):
        os.close(descriptor)

"""Bytes that no honest end sends: the value codec refuses them, pays for no claim and leaks nothing."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import gc
import pathlib
import struct
import threading
import time
import tracemalloc
import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from values.test_codec import Box, Color, V, head, str_value

from visruntime._native import decode, encode
from visruntime.guest.values import Handle, Record, Repr

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

SAMPLE = encode(
    [None, True, 1, 300, 1 << 40, 1 << 90, 1.5, 2j, "é\udc80", b"b", bytearray(b"a"), (1,), {1},
     frozenset("x"),
     {"k": [()]}, range(3), dt.datetime(2020, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "X")),
     dt.time(1), dt.date(1, 1, 1), decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.UUID(int=1),
     pathlib.PurePosixPath("/a"), Color.RED, Handle(1, "t", "r"), Repr("t", "r"),
     collections.OrderedDict(a=1), collections.Counter("a"), collections.deque([1], 3),
     collections.defaultdict(list, {1: [2]}), collections.defaultdict(None)]
)  # fmt: skip


def has_set(value: Any) -> bool:
    """Whether a set, whose order is free, is somewhere in *value*."""
    if isinstance(value, (set, frozenset)):
        return True
    if isinstance(value, dict):
        return any(map(has_set, value)) or any(map(has_set, value.values()))
    if isinstance(value, Record):
        return has_set(dict(value.fields))
    return isinstance(value, (list, tuple, collections.deque)) and any(map(has_set, value))


def assert_refused_or_canonical(data: bytes) -> None:
    """Assert that *data* is a ValueError or the one encoding of a value."""
    try:
        value = decode(data)
    except ValueError:
        return
    assert has_set(value) or encode(value) == data


def test_truncation_at_every_byte() -> None:
    """No beginning of a value is taken for a value."""
    assert encode(decode(SAMPLE)) == SAMPLE
    for cut in range(len(SAMPLE)):
        with pytest.raises(ValueError, match="cannot decode"):
            decode(SAMPLE[:cut])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutations(data: st.DataObject) -> None:
    """A damaged value is refused, or is the only encoding of another value."""
    hostile = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(hostile) - 1))
        hostile[at] = data.draw(st.integers(0, 255))
    assert_refused_or_canonical(bytes(hostile))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes(data: bytes) -> None:
    """Random bytes are refused, or are the only encoding of a value."""
    assert_refused_or_canonical(V + data)


@pytest.mark.parametrize("tag", [0, *range(0x0D, 0x10), *range(0x15, 0x20), *range(0x32, 0x100)])
def test_unknown_tags(tag: int) -> None:
    """No unknown tag means anything."""
    with pytest.raises(ValueError, match="an unknown tag at byte 1"):
        decode(V + bytes((tag,)) + bytes(64))


@pytest.mark.parametrize("tag", [0x07, 0x0A, 0x0B, 0x0C, *range(0x10, 0x15)])
def test_lying_lengths_allocate_nothing(tag: int) -> None:
    """A length without the bytes behind it is refused before memory is taken."""
    tracemalloc.start()
    try:
        for length in (0xFFFFFFFF, 0x7FFFFFFF, 1 << 24, 5):
            with pytest.raises(ValueError, match="a length is larger than the data that is left"):
                decode(V + head(tag, length) + b"\x01" * 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_nested_claims_are_paid_once() -> None:
    """Containers that all claim the same bytes cannot multiply what is allocated."""
    size = 400_000
    data = V + b"".join(head(0x10, size - 5 * level) for level in range(1, 60)) + b"\x01" * size
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more parts than allowed"):
            decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1_000_000 + 100_000


def test_part_bomb() -> None:
    """More than a million parts are refused, and a million are not."""
    for tag, each in ((0x10, b"\x13\0\0\0\0"), (0x11, b"\x01")):
        assert len(decode(V + head(tag, 999_999) + each * 999_999)) == 999_999
        with pytest.raises(ValueError, match="more parts than allowed at byte 2"):
            decode(V + head(tag, 1_000_000) + each * 1_000_000)


@pytest.mark.parametrize(
    "level",
    [
        head(0x10, 1),
        head(0x11, 1),
        head(0x12, 1),
        head(0x13, 1),
        head(0x14, 1),
        head(0x14, 1) + b"\x01",
        b"\x20",
        b"\x2a",
        b"\x2b",
    ],
)
def test_depth_bomb(level: bytes) -> None:
    """Endless nesting of any kind ends at the limit, not at the end of the C stack."""
    for depth in (64, 256):
        with pytest.raises(ValueError, match="more levels than allowed"):
            decode(V + level * 200_000, max_depth=depth)


def test_colliding_keys() -> None:
    """Keys chosen to collide cannot make the host work in quadratic time."""
    count = 60_000
    modulus = (1 << 61) - 1
    for make in (frozenset, dict.fromkeys):
        honest = encode(make([i * (modulus - 1) + 7 for i in range(1, count)]))
        assert len(decode(honest)) == count - 1
    keys = b"".join(encode(i * modulus)[1:] for i in range(count))
    with pytest.raises(ValueError, match="keys that collide on purpose"):
        decode(V + head(0x12, count) + keys)


def colliding(count: int, beside: int) -> bytes:
    """Return a list of *beside* empty parts and a set of *count* ints with one hash."""
    keys = b"".join(encode(i * ((1 << 61) - 1))[1:] for i in range(1, count + 1))
    return V + head(0x10, beside + 1) + b"\x01" * beside + head(0x12, count) + keys


def test_parts_that_cost_nothing_buy_no_time() -> None:
    """What stands beside keys that collide, cheap to send, must not pay for their filling."""
    assert len(decode(colliding(1000, 950_000))) == 950_001
    hostile = colliding(16_000, 950_000)
    before = time.thread_time()
    with pytest.raises(ValueError, match="keys that collide on purpose"):
        decode(hostile)
    assert time.thread_time() - before < 1


@pytest.mark.parametrize("form", ["set", "dict", "OrderedDict", "Counter", "defaultdict"])
def test_other_threads_run_while_keys_are_filled(form: str) -> None:
    """Filling a large set or dict must not keep all other threads of the host from running."""
    keys = [i << 32 for i in range(400_000)]
    value: Any = set(keys) if form == "set" else dict.fromkeys(keys)
    if form not in ("set", "dict"):
        arguments = (None,) if form == "defaultdict" else ()
        value = getattr(collections, form)(*arguments, value)
    data = encode(value)
    # On a busy machine the other thread may be late by itself, but not each time.
    assert any(longest_turn(data, value) < 0.5 for _ in range(10))


def longest_turn(data: bytes, value: object) -> float:
    """Return the largest share of a decoding in which no other thread had its turn."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    turns = []
    done = threading.Event()

    def take_turns() -> None:
        while not done.wait(0.001):
            turns.append(time.clock_gettime(clock))

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        start = time.thread_time()
        got = decode(data)
        end = time.thread_time()
    finally:
        done.set()
        thread.join()
    assert got == value
    seen = [start, *(turn for turn in turns if start < turn < end), end]
    return max(after - before for before, after in pairwise(seen)) / (end - start)


HONEST: dict[str, Callable[[], Any]] = {
    "ints": lambda: {i << 32 for i in range(300_000)},
    "texts": lambda: {f"key number {i}": None for i in range(300_000)},
    "tuples": lambda: {(i, -i) for i in range(100_000)},
    "large ints": lambda: {(1 << 8000) + i for i in range(20_000)},
    "decimals": lambda: {decimal.Decimal(i) / 7 for i in range(100_000)},
    "fractions": lambda: {fractions.Fraction(i, (1 << 61) - 3) for i in range(1, 50_000)},
    "one key of many": lambda: {frozenset(range(300_000))},
    "a collection": lambda: collections.OrderedDict((i << 32, None) for i in range(200_000)),
}


@pytest.mark.parametrize("name", HONEST)
def test_large_honest_values_are_not_refused(name: str) -> None:
    """The control: many keys that nobody chose to collide must cross, whatever their type."""
    value = HONEST[name]()
    assert decode(encode(value)) == value


@pytest.mark.parametrize("wrapped", [False, True])
def test_costly_comparisons(wrapped: bool) -> None:  # noqa: FBT001
    """A small set of keys that are slow to compare and collide is refused as a large one is."""
    modulus = (1 << 61) - 1
    shared = b"".join(encode(i * modulus)[1:] for i in range(500))
    keys = b""
    for i in range(60):
        keys += head(0x11, 1) * wrapped + head(0x13, 501) + shared + encode((500 + i) * modulus)[1:]
    with pytest.raises(ValueError, match="keys that collide on purpose"):
        decode(V + head(0x12, 60) + keys)
    assert len(decode(V + head(0x12, 3) + keys[: len(keys) // 20])) == 3


def test_large_ints_in_keys() -> None:
    """An int so large that comparing it could take hours is no key, but still a value."""
    limit = (1 << 8191) - 1  # 1024 bytes
    for value in ({limit: 1}, {(0, -limit - 1)}, {0: limit + 1}, [{1}, limit + 1]):
        assert decode(encode(value)) == value
    for bad in ({limit + 1: 1}, {(0, -limit - 2)}, {frozenset({limit + 1})}):
        with pytest.raises(ValueError, match="a key with an int over 1024 bytes"):
            encode(bad)
    number = encode(limit + 1)[1:]
    filler = b"".join(encode(i)[1:] for i in range(64))
    for data in (
        head(0x12, 1) + number,
        head(0x14, 1) + number + b"\x01",
        head(0x12, 1) + head(0x11, 1) + number,
        head(0x12, 65) + filler + number,
    ):
        with pytest.raises(ValueError, match="an int that is too large for a key"):
            decode(V + data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends too early at byte 0"),
        (b"\x02\x01", "unknown format version at byte 0"),
        (b"\x01", "ends too early at byte 1"),
        (V + b"\x01\x01", "bytes after the value at byte 2"),
        (V + b"\x05\x7f\0\0\0", "not in its shortest form"),
        (V + b"\x05\x80\xff\xff\xff", "not in its shortest form"),
        (V + b"\x06" + struct.pack("<q", -(1 << 31)), "not in its shortest form"),
        (V + head(0x07, 0), "not in its shortest form"),
        (V + head(0x07, 8) + b"\x80" * 8, "not in its shortest form"),
        (V + head(0x07, 9) + b"\xff" * 9, "not in its shortest form"),
        (V + head(0x07, 9) + b"\x01" * 8 + b"\0", "not in its shortest form"),
        (V + head(0x0A, 2) + b"\xc0\x80", "not UTF-8"),
        (V + head(0x0A, 1) + b"\xff", "not UTF-8"),
        (V + head(0x0A, 4) + b"\xf5\x80\x80\x80", "not UTF-8"),
        (V + head(0x12, 2) + b"\x04\x01\x04\x01", "a key appears twice at byte 8"),
        (V + head(0x12, 2) + b"\x04\x01\x03", "a key appears twice"),
        (V + head(0x14, 2) + b"\x04\x01\x01\x04\x01\x01", "a key appears twice at byte 9"),
        (V + head(0x12, 1) + head(0x10, 0), "a key cannot be hashed at byte 6"),
        (V + head(0x14, 1) + head(0x11, 1) + head(0x12, 0) + b"\x01", "a key cannot be hashed"),
        (V + head(0x12, 65) + head(0x10, 0) + b"\x01" * 64, "a key cannot be hashed"),
        (V + head(0x12, 65) + b"\x01" * 65, "a key appears twice"),
        (V + b"\x20\x04\0\x04\1\x04\0", "fields that its type does not allow at byte 1"),
        (V + b"\x20\x04\0\x04\1\x03", "fields that its type does not allow"),
        (V + b"\x20\x04\0" + encode(1 << 9000)[1:] + b"\x04\1", "fields that its type"),
        (V + b"\x21\x04\0\x04\1\x04\1", "fields that its type"),
        (V + b"\x22" + b"\x04\0" * 5 + b"\x04\0", "fields that its type"),
        (V + b"\x24\x04\0\x04\xff\x04\0", "fields that its type"),
        (V + b"\x24\x06" + struct.pack("<q", 1 << 40) + b"\x04\0\x04\0", "fields that its type"),
        (V + b"\x25\x24\x04\1\x04\0\x04\0\x01", "fields that its type"),
        (V + b"\x25\x04\0\x01", "fields that its type"),
        (V + b"\x26" + str_value("1_0"), "fields that its type"),
        (V + b"\x26" + str_value(" 1"), "fields that its type"),
        (V + b"\x26" + str_value("x"), "fields that its type"),
        (V + b"\x26" + str_value("1" * 100_001), "fields that its type"),
        (V + b"\x27\x04\2\x04\4", "fields that its type"),
        (V + b"\x27\x04\1\x04\0", "fields that its type"),
        (V + b"\x27\x04\1\x04\xff", "fields that its type"),
        (V + b"\x27" + encode(1 << 8193)[1:] + b"\x04\1", "fields that its type"),
        (V + b"\x28" + head(0x0B, 15) + bytes(15), "fields that its type"),
        (V + b"\x29" + str_value("a//b"), "fields that its type"),
        (V + b"\x29" + head(0x0B, 0), "fields that its type"),
        (V + b"\x2a\x04\3" + str_value("T") + head(0x14, 0), "fields that its type"),
        (V + b"\x2a\x03" + str_value("T") + head(0x14, 0), "fields that its type"),
        (V + b"\x2a\x04\0" + str_value("T" * 1025) + head(0x14, 0), "fields that its type"),
        (
            V + b"\x2a\x04\0" + str_value("T") + head(0x14, 1) + b"\x04\0\x01",
            "fields that its type",
        ),
        (V + b"\x2a\x04\0" + str_value("T") + head(0x10, 0), "fields that its type"),
        (V + b"\x2b\x04\xff" + str_value("T") * 2, "fields that its type"),
        (V + b"\x2b\x04\1" + str_value("T") + str_value("r" * 8193), "fields that its type"),
    ],
)
def test_wrong_forms(data: bytes, reason: str) -> None:
    """No second form of a value, and no value that its type does not allow, is accepted."""
    with pytest.raises(ValueError, match=reason):
        decode(data)


@pytest.mark.parametrize(
    "data", [bytearray(V + b"\x01"), memoryview(V + b"\x01"), "\x01\x01", None]
)
def test_only_bytes_are_decoded(data: Any) -> None:
    """Memory that could change while it is read is not decoded."""
    with pytest.raises(TypeError, match="exactly a bytes object"):
        decode(data)


def test_nothing_leaks() -> None:
    """Neither values nor refusals leave memory behind, wherever the refusal happens."""
    hostile = [SAMPLE[:cut] for cut in range(0, len(SAMPLE), 3)]
    collide = V + head(0x12, 66) + b"".join(encode((i, "x"))[1:] for i in range(65)) + head(0x10, 0)
    hostile += [collide, V + head(0x14, 1) + head(0x10, 0) + str_value("v" * 99)]
    loop: list[Any] = [1 << 99, "\udc80" * 9]
    loop.append(Box(1, loop))

    def work() -> None:
        for data in hostile:
            with pytest.raises(ValueError, match="cannot decode"):
                decode(data)
        for value, error in (
            (loop, ValueError),
            ([object()], TypeError),
            ([{1: b"x" * 999}], ValueError),
        ):
            with pytest.raises(error):
                encode(value, max_bytes=600)
        assert encode(decode(SAMPLE)) == SAMPLE

    for _ in range(3):
        work()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            work()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000

"""The value codec: what crosses comes out exactly, and hostile bytes get a ValueError."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import struct
import subprocess
import sys
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visruntime._native import decode, encode
from visruntime.guest import values
from visruntime.guest.values import Handle, Record, Repr

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

V = b"\x01"  # the version byte that opens every value


def str_value(text: str) -> bytes:
    """Return the encoding of a str, without the version byte."""
    data = text.encode("utf-8", "surrogatepass")
    return b"\x0a" + struct.pack("<I", len(data)) + data


def head(tag: int, length: int) -> bytes:
    """Return a tag and a length."""
    return bytes((tag,)) + struct.pack("<I", length)


# ---- what crosses ----

offsets = st.timedeltas(min_value=dt.timedelta(hours=-23), max_value=dt.timedelta(hours=23))
zones = (
    st.none()
    | st.builds(dt.timezone, offsets)
    | st.builds(dt.timezone, offsets, st.text(max_size=200))
)
texts = st.text(st.characters(), max_size=20) | st.text(
    st.characters(categories=["Cs", "Ll", "So"]), max_size=20
)


scalar_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(1 << 700), max_value=1 << 700)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | texts
    | st.binary(max_size=20)
    | st.dates()
    | st.times(timezones=zones)
    | st.datetimes(timezones=zones)
    | st.timedeltas()
    | offsets.map(dt.timezone)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.builds(range, st.integers(), st.integers(), st.integers(min_value=1))
    | texts.map(pathlib.PurePosixPath)
    | st.builds(Handle, st.integers(0, (1 << 63) - 1), texts, texts)
)


# Each layer is drawn through a function: hypothesis prints strategies whole in its messages.
@st.composite
def scalars(draw: st.DrawFn) -> Any:
    """Draw a value that holds no other and can be a key."""
    return draw(scalar_values)


def extend_key(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return what holds keys and can be a key."""
    kinds = st.sampled_from(values.RECORD_KINDS)
    return (
        st.lists(inner, max_size=4).map(tuple)
        | st.frozensets(inner, max_size=4)
        | st.builds(Record, kinds, texts, st.dictionaries(texts, inner, max_size=3))
    )


key_values = st.recursive(scalars(), extend_key, max_leaves=8)


@st.composite
def keys(draw: st.DrawFn) -> Any:
    """Draw a value that can be a key."""
    return draw(key_values)


def extend_value(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return what holds any value."""
    tables = st.dictionaries(keys(), inner, max_size=3)
    factories = st.sampled_from([None, list, dict, set, int, float, str, bytes, bool, tuple])
    lengths = st.none() | st.integers(3, 1 << 40)
    return (
        st.lists(inner, max_size=5)
        | tables.map(collections.OrderedDict)
        | st.builds(collections.deque, st.lists(inner, max_size=3), lengths)
        | st.builds(collections.defaultdict, factories, tables)
        | st.dictionaries(keys(), inner, max_size=5)
        | st.lists(inner, max_size=3).map(tuple)
    )


counters = st.dictionaries(keys(), st.integers(), max_size=3).map(collections.Counter)
leaf_values = (
    keys()
    | st.sets(keys(), max_size=5)
    | st.binary(max_size=20).map(bytearray)
    | st.builds(Repr, texts, texts)
    | counters
)
all_values = st.recursive(leaf_values, extend_value, max_leaves=20)


@st.composite
def everything(draw: st.DrawFn) -> Any:
    """Draw any value."""
    return draw(all_values)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal and of equal types all the way down."""
    if type(left) is not type(right) or bool(left != right):
        return False
    if isinstance(left, (list, tuple, collections.deque)):
        lengths = (getattr(each, "maxlen", None) for each in (left, right))
        return all(map(same, left, right)) and len(set(lengths)) == 1
    if isinstance(left, dict):
        made_by = [getattr(each, "default_factory", None) for each in (left, right)]
        return all(map(same, left.items(), right.items())) and made_by[0] is made_by[1]
    if isinstance(left, (dt.datetime, dt.time)):
        return left.fold == right.fold and same(left.tzinfo, right.tzinfo)
    if isinstance(left, dt.timezone):
        return bool(left.tzname(None) == right.tzname(None))
    return isinstance(left, (set, frozenset, Record)) or repr(left) == repr(right)


@settings(max_examples=150, deadline=None)
@given(everything())
def test_round_trip(value: Any) -> None:
    """No value of any supported type, however nested, comes back changed."""
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        sign * ((1 << bits) + off)
        for bits in (7, 8, 31, 32, 63, 64, 71, 72)
        for off in (-1, 0, 1)
        for sign in (1, -1)
    ]
    + [1 << 200_000, -(1 << 200_000)],
    ids=lambda value: f"{value.bit_length()}-bits",
)
def test_int_boundaries(value: int) -> None:
    """No int is mangled where the encoding changes width, and none depends on the digit limit."""
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "bits", [0x7FF8000000000001, 0xFFF8000000000123, 0x7FF0000000000001, 1 << 63, 0x7FF << 52, 1]
)
def test_float_bits(bits: int) -> None:
    """No float loses a bit: NaN payloads, signed zero, infinity and subnormals stay."""
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    assert struct.pack("<d", decode(encode(value))) == struct.pack("<Q", bits)
    pair = decode(encode(complex(value, -0.0)))
    assert struct.pack("<d", pair.real) == struct.pack("<Q", bits)
    assert math.copysign(1, pair.imag) == -1


@pytest.mark.parametrize(
    "text", ["", "a\0b", "\udc80", "\ud83d\ude00", "😀" * 5000, "é\udfff" * 3000]
)
def test_text_is_exact(text: str) -> None:
    """No code point is replaced or joined, lone surrogates included, in short and long text."""
    assert decode(encode(text)) == text


@pytest.mark.parametrize("text", ["-0", "1E+999999", "1.50", "NaN", "-sNaN12", "Infinity", "0E-10"])
def test_decimal_is_exact(text: str) -> None:
    """No Decimal loses sign, exponent, trailing zeros or NaN payload."""
    assert str(decode(encode(decimal.Decimal(text)))) == text


def test_decimal_does_not_depend_on_the_context() -> None:
    """A host that writes small letters, or counts with few digits, reads what a worker wrote."""
    values = [decimal.Decimal(text) for text in ("1E+5", "-1.5E-400", "Infinity", "NaN12", "sNaN")]
    plain = [encode(value) for value in values]
    with decimal.localcontext(decimal.Context(prec=2, capitals=0, Emax=9, Emin=-9)):
        assert [encode(value) for value in values] == plain
        assert [repr(decode(data)) for data in plain] == [repr(value) for value in values]


def test_dict_order() -> None:
    """The order of a dict never changes."""
    assert list(decode(encode({"b": 1, "a": 2, 0: 3}))) == ["b", "a", 0]


class Color(enum.Enum):
    """A guest's enum."""

    RED = "r"


class Level(enum.IntEnum):
    """An enum whose members are ints too."""

    HIGH = 3


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024


@dataclasses.dataclass
class Box:
    """A guest's dataclass."""

    size: int
    inside: Any = None


def test_classes_become_records() -> None:
    """No instance of a named class is made: dataclasses, named tuples and enums become Records."""
    got = decode(encode([Box(1, Point(2, 3)), Color.RED, Level.HIGH]))
    name = f"{__name__}."
    assert got == [
        Record(
            "dataclass",
            f"{name}Box",
            {"size": 1, "inside": Record("namedtuple", f"{name}Point", {"x": 2, "y": 3})},
        ),
        Record("enum", f"{name}Color", {"name": "RED", "value": "r"}),
        Record("enum", f"{name}Level", {"name": "HIGH", "value": 3}),
    ]
    assert decode(encode(got)) == got


def test_record_is_frozen_and_shows_no_control_sequence() -> None:
    """A Record cannot be changed, and neither it nor a Handle prints what a terminal obeys."""
    record = Record("enum", "a\x1b[2J", {"name\x1b": 1})
    with pytest.raises(AttributeError):
        record.kind = "dataclass"
    with pytest.raises(TypeError):
        record.fields["x"] = 1  # type: ignore[index]
    assert "\x1b" not in repr(record)
    assert "\x1b" not in repr(Handle(1, "t\x1b", "r\x1b\n"))


class Number(int):
    """An int that lies about itself."""

    def to_bytes(self, *args: Any, **kwargs: Any) -> bytes:
        """Lie."""
        raise AssertionError

    def bit_length(self) -> int:
        """Lie."""
        raise AssertionError


class Text(str):
    """A str subclass."""

    __slots__ = ()


class Real(float):
    """A float subclass."""


def test_subclasses_of_int_float_str_cross_as_their_base() -> None:
    """Subclasses of int, float and str lose their class, and their overrides are not called."""
    got = decode(encode([Number(1 << 80), Text("a"), Real(1.5)]))
    assert got == [1 << 80, "a", 1.5]
    assert [type(item) for item in got] == [int, str, float]


@pytest.mark.parametrize(
    "value",
    [
        collections.ChainMap(),
        type("O", (collections.OrderedDict,), {})(a=1),
        type("L", (list,), {})(),
        type("B", (bytes,), {})(),
        object(),
        ...,
        int,
        memoryview(b""),
        pathlib.PureWindowsPath("c:/a"),
        type("D", (dt.datetime,), {})(2020, 1, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused(value: Any) -> None:
    """No other type is flattened silently: the error names the path and the type."""
    with pytest.raises(TypeError, match=r"cannot encode value\[0\]\['k'\]: no encoding for type"):
        encode([{"k": value}])


def test_time_zone_with_rules_is_refused() -> None:
    """A zone whose offset varies never crosses as a fixed one; the error says what to do."""
    value = dt.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    with pytest.raises(TypeError, match=r"value\[1\]: a time zone of type ZoneInfo .*astimezone"):
        encode((0, value))


# ---- limits of encode() ----


def test_cycles_are_refused() -> None:
    """No cycle is followed: the error names where the value meets itself."""
    loop: list[Any] = [1]
    loop.append({"k": loop})
    with pytest.raises(ValueError, match=r"value\[1\]\['k'\]: it contains itself"):
        encode(loop)
    box = Box(1)
    box.inside = [box]
    with pytest.raises(ValueError, match="contains itself"):
        encode(box)
    shared: list[Any] = []
    assert decode(encode([shared, shared])) == [[], []]


def nested(levels: int) -> Any:
    """Return *levels* lists in each other."""
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


def test_depth() -> None:
    """Neither side goes deeper than max_depth, and both count alike."""
    assert decode(encode(nested(64))) == nested(64)
    with pytest.raises(ValueError, match="more than 64 levels"):
        encode(nested(65))
    deep = encode(nested(65), max_depth=65)
    with pytest.raises(ValueError, match="more levels than allowed at byte 321"):
        decode(deep)
    assert decode(deep, max_depth=65) == nested(65)
    aware = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    data = encode(aware, max_depth=3)
    assert decode(data, max_depth=3) == aware
    with pytest.raises(ValueError, match="levels"):
        encode(aware, max_depth=2)
    with pytest.raises(ValueError, match="levels"):
        decode(data, max_depth=2)


@pytest.mark.parametrize(
    "value", [[1, 2], {1: 2}, {1, 2}, (1, 2), range(3), "abcdef", b"abcdef", 1 << 90, "é" * 5000]
)
def test_both_sides_count_alike(value: Any) -> None:
    """What fits the limits of one side fits the same limits of the other, to the unit."""
    data = encode(value)
    assert encode(value, max_bytes=len(data)) == data
    assert decode(data, max_bytes=len(data)) == value
    with pytest.raises(ValueError, match="larger than"):
        encode(value, max_bytes=len(data) - 1)
    with pytest.raises(ValueError, match="more bytes than allowed"):
        decode(data, max_bytes=len(data) - 1)
    nodes = next(n for n in range(1, 10) if fits(value, n))
    assert decode(data, max_nodes=nodes) == value
    if nodes > 1:
        with pytest.raises(ValueError, match="more parts"):
            decode(data, max_nodes=nodes - 1)


def fits(value: Any, nodes: int) -> bool:
    """Whether *value* has at most *nodes* parts."""
    try:
        encode(value, max_nodes=nodes)
    except ValueError:
        return False
    return True


def test_container_that_changes_meanwhile() -> None:
    """A container that changes size while it is encoded is an error, not a broken message."""
    target: list[Any] = [object(), 2, 3]

    def shrink(_: object) -> tuple[int, str, str]:
        target.pop()
        return (1, "t", "r")

    with pytest.raises(RuntimeError, match="changed size"):
        encode(target, default=shrink)
    table: dict[Any, Any] = {1: object(), 2: 3}

    def add(_: object) -> tuple[int, str, str]:
        table[len(table) + 10] = 1
        return (1, "t", "r")

    with pytest.raises(RuntimeError, match="changed size"):
        encode(table, default=add)


def test_errors_of_callbacks_pass_through() -> None:
    """An exception that default() raises is not hidden."""
    with pytest.raises(ZeroDivisionError):
        encode([object()], default=lambda _: (1 // 0, "t", "r"))


@pytest.mark.parametrize(
    ("keyword", "value", "error"),
    [
        ("max_bytes", 0, ValueError),
        ("max_bytes", 1 << 32, ValueError),
        ("max_depth", 257, ValueError),
        ("max_nodes", -1, ValueError),
        ("max_nodes", 1 << 99, ValueError),
        ("max_depth", "1", TypeError),
        ("surprise", 1, TypeError),
    ],
)
def test_wrong_options(keyword: str, value: Any, error: type[Exception]) -> None:
    """A limit that cannot be kept is refused by both functions."""
    with pytest.raises(error, match=keyword):
        encode(None, **{keyword: value})
    with pytest.raises(error, match=keyword):
        decode(V + b"\x01", **{keyword: value})


def test_types_are_bound_once() -> None:
    """Nobody replaces the codec's types after the start; the same ones again are no change."""
    core = sys.modules["visruntime._viscore"]
    values.install(core)
    with pytest.raises(RuntimeError, match="bound already"):
        core.bind_types(lambda _: None, values.BUILDERS)


def test_fuzzing_under_sanitizers(tool: Callable[[str], str]) -> None:
    """A few seconds of damaged input find no memory error and no second form of a value."""
    tool("gcc")
    script = Path(__file__).parents[1] / "native" / "fuzz_codec.py"
    done = subprocess.run(
        [sys.executable, str(script), "--seconds", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 1000

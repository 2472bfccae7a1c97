"""What a guest claims of its errors and values: bounded before anything is built from it."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import re
import time
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import pytest
from runtime_helpers import runtime

from visruntime._native import decode, encode
from visruntime._runtime.brief import brief
from visruntime._runtime.traceback import MAX_TRACEBACK, printable
from visruntime._worker.confinement import trusted_report
from visruntime.errors import GuestError, ProtocolViolation
from visruntime.protocol import Handle, Record
from visruntime.results import (
    MAX_FAILURES,
    MAX_TEXT,
    MAX_TOTAL,
    GuestFailure,
    RunResult,
    RunUsage,
)

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


def claim(**changes: Any) -> dict[str, Any]:
    """Return the description of an error as a worker sends it."""
    empty: dict[str, Any] = {"notes": [], "frames": [], "exceptions": []}
    nothing = dict.fromkeys(("errno", "path", "cause", "context"))
    return {"type": "E", "message": "m", **empty, **nothing, **changes}


def failure(**changes: Any) -> GuestFailure:
    """Return what the host makes of it."""
    return GuestFailure.from_claim(claim(**changes), lambda _errno, _path: None)


FRAME = ("f.py", 3, "g", "    source", 4, 3, 10)


def test_a_claim_of_the_agreed_shape_is_taken() -> None:
    """The control of the refusals below: the same parts, within their bounds."""
    taken = failure(notes=["n"], frames=[FRAME], errno=2, path="/x", cause=claim(message="c"))
    assert taken.traceback == (
        "E: c\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "f.py", line 3, in g\n    source\nE: m\nn\n'
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"message": "x" * (MAX_TEXT + 1)},
        {"type": "x" * (MAX_TEXT + 1)},
        {"notes": ["x" * MAX_TEXT] * (MAX_TOTAL // MAX_TEXT + 1)},
        {"notes": ["x"] * 201},
        {"frames": [("f" * MAX_TEXT, *FRAME[1:])] * (MAX_TOTAL // MAX_TEXT + 1)},
        {"frames": [("f.py", 10**6000, *FRAME[2:])]},
        {"frames": [(*FRAME[:4], -(10**9), 3, 10)]},
        {"errno": 10**6000},
        {"errno": -1},
        {"exceptions": [claim()] * MAX_FAILURES},
        {"exceptions": [claim(message="x" * MAX_TEXT, notes=["x" * MAX_TEXT] * 4)] * 12},
    ],
)
def test_claims_out_of_bounds_are_violations(changes: dict[str, Any]) -> None:
    """No text, number or count of an error may be of the size that the guest likes."""
    with pytest.raises(ProtocolViolation):
        failure(**changes)


def nested(depth: int, character: str) -> dict[str, Any]:
    """Return a group in a group in a group, with as much text as is let through."""
    text = (character * MAX_TEXT)[:MAX_TEXT]
    inner = claim(message=text, notes=[text] * (MAX_TOTAL // MAX_TEXT - 2))
    for _ in range(depth):
        inner = claim(message="", exceptions=[inner])
    return inner


@pytest.mark.parametrize("character", ["\n", "\r", "\x01", "é", "x"])
def test_a_traceback_has_a_length_that_no_nesting_multiplies(character: str) -> None:
    """Line breaks in deeply nested groups cost the host neither much memory nor time."""
    hostile = failure(**nested(MAX_FAILURES - 1, character))
    started = time.monotonic()
    text = hostile.traceback
    assert time.monotonic() - started < 1
    assert MAX_TRACEBACK // 100 < len(text) < MAX_TRACEBACK * 1.01
    assert not set(text) & {"\r", "\x01"}


def test_groups_are_indented() -> None:
    """Members of a group stand behind a bar for each level, line breaks included."""
    group = failure(exceptions=[claim(message="a\nb", exceptions=[claim()])])
    assert group.traceback == (
        "E: m\n"
        "  +---------------- 1 ----------------\n"
        "  | E: a\n  | b\n"
        "  |   +---------------- 1 ----------------\n"
        "  |   | E: m\n"
    )


def test_colours_are_ours_alone() -> None:
    """Colours change no character of a traceback, and none of a guest's own gets through."""
    hostile = "\x1b[31mred\x1b[0m\nnext"
    frame = ("\x1b]0;t\x07.py", 3, "g\x9b1m", "    a = source\x1b[5m + b", 8, 3, 14)
    taken = failure(
        message=hostile,
        notes=[hostile],
        frames=[frame, FRAME],
        context=claim(message=hostile),
        exceptions=[claim(frames=[frame])],
    )
    coloured = taken.render(colour=True)
    sequences = set(re.findall(r"\x1b\[[0-9;]*m", coloured))
    assert sequences == {"\x1b[35m", "\x1b[1;35m", "\x1b[1;31m", "\x1b[0m"}
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == taken.render() == taken.traceback
    assert not set(taken.traceback) & {"\x1b", "\x07", "\x9b"}
    long = failure(**nested(MAX_FAILURES - 1, "x\n")).render(colour=True)
    assert len(long) < MAX_TRACEBACK * 1.01


def test_printable_replaces_what_a_terminal_obeys() -> None:
    """Control, format and surrogate characters go; text of any script stays."""
    assert printable("a\x1b[31m\x9b\u202e\ud800\r\x00") == "a\ufffd[31m" + "\ufffd" * 5
    assert printable("tab\tline\n漢字 é") == "tab\tline\n漢字 é"
    started = time.monotonic()
    assert len(printable("\x01x\n" * 10**6)) == 3 * 10**6
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    "value",
    [
        10**6000,
        [10**6000],
        {"k": (1, {10**6000})},
        Record("dataclass", "T", {"x": 10**6000}),
        Decimal("1" * 90_000),
        "x" * 10**7,
        [[]] * 10**6,
        b"x" * 10**7,
        "\U000f0000" * 9_000,
        [Record("namedtuple", "q" * 1000, {})] * 3000,
        dt.time(1, tzinfo=dt.timezone(dt.timedelta(0), "A" * 10**7)),
    ],
    ids=[
        *("int", "list", "nested", "record", "decimal", "str", "many", "bytes"),
        *("escapes", "records", "zone"),
    ],
)
def test_the_repr_of_a_result_is_short_and_never_raises(value: Any) -> None:
    """A value that CPython refuses to write out, or of megabytes, does not break a log line."""
    usage, report = RunUsage(0.0, None, None), trusted_report([])
    assert len(repr(RunResult(usage=usage, report=report, value=value))) < 100
    assert "value=[1, 'x']" in repr(RunResult(usage=usage, report=report, value=[1, "x"]))


@pytest.mark.parametrize(
    "array",
    [
        numpy.full(20, b"\x01" * 1048576, dtype="S1048576"),
        numpy.frombuffer(b"\xff" * 4, "<u4").view("<U1").reshape(()),
        numpy.array([2**63 - 1, -(2**63) + 1], "M8[Y]"),
    ],
    ids=["long", "no-characters", "no-dates"],
)
@pytest.mark.parametrize("around", ["", "list", "dict", "record"])
def test_the_repr_of_an_array_is_its_type_and_shape(array: Any, around: str) -> None:
    """Some arrays take numpy minutes and gigabytes to write, and others it cannot write."""
    expected = f"<ndarray {array.dtype.str} {array.shape}>"
    value, shown = {
        "": (array, expected),
        "list": ([array, 1], f"[{expected}, 1]"),
        "dict": ({"k": (array,)}, f"{{'k': ({expected},)}}"),
        "record": (
            Record("dataclass", "T", {"x": array}),
            f"<Record dataclass T(x={expected})>",
        ),
    }[around]
    started = time.monotonic()
    assert brief(value) == shown
    assert time.monotonic() - started < 1


@dataclasses.dataclass
class Held:
    """A class of the owner's, with fields of every kind."""

    a: Any
    hidden: int = dataclasses.field(default=1, repr=False)
    late: int = dataclasses.field(init=False)


class Pair(NamedTuple):
    """A named tuple of the owner's."""

    a: Any
    b: Any


class Shade(enum.Enum):
    """An enum of the owner's."""

    DARK = "d"


class Opaque:
    """What the constructor of such a class may have made."""

    def __repr__(self) -> str:
        pytest.fail("no repr of the owner's is asked for")


LONG: Any = numpy.full(300, "\U0001f600" * 20_000, dtype="U20000")
LONG_SHOWN = "<ndarray <U20000 (300,)>"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Held(LONG), f"Held(a={LONG_SHOWN}, late=<AttributeError>)"),
        (Pair(LONG, [Held(1)]), f"Pair(a={LONG_SHOWN}, b=[Held(a=1, late=<AttributeError>)])"),
        (collections.OrderedDict(k=LONG), f"OrderedDict({{'k': {LONG_SHOWN}}})"),
        (collections.Counter(k=LONG), f"Counter({{'k': {LONG_SHOWN}}})"),
        (collections.deque([LONG]), f"deque([{LONG_SHOWN}])"),
        (collections.deque([LONG, 1], 3), f"deque([{LONG_SHOWN}, 1], maxlen=3)"),
        (
            collections.defaultdict(list, {(1,): LONG}),
            f"defaultdict(<class 'list'>, {{(1,): {LONG_SHOWN}}})",
        ),
        ([Shade.DARK, Opaque()], "[<Shade.DARK: 'd'>, <Opaque>]"),
        (LONG[0], "<str_>"),
        ([10**5000, 1], "[<int of 16610 bits>, 1]"),
        (collections.OrderedDict(), "OrderedDict()"),
    ],
    ids=lambda value: value[:12] if type(value) is str else type(value).__name__,
)
def test_no_array_is_written_wherever_it_is(value: Any, shown: str) -> None:
    """Nor what any other type says of itself: a guest's bytes could cost minutes, or hide a list."""
    started = time.monotonic()
    assert brief(value) == shown
    assert time.monotonic() - started < 1


def test_what_holds_itself_is_too_large_to_be_shown() -> None:
    """A class of the owner's may make a cycle, which data of a guest never is."""
    held = Held(1)
    held.a = held
    assert brief([held]) == "<list, too large to be shown>"


PLAIN: list[Any] = [
    *(Pair(1, "x"), Shade.DARK, collections.deque([1]), collections.defaultdict(int, {"a": 1})),
    *(collections.Counter(), collections.Counter({"a": 2}), collections.deque(maxlen=2)),
    *(dt.timedelta(1), dt.UTC, Fraction(1, 3), uuid.UUID(int=1), PurePosixPath("/a")),
    *(None, True, -7, 1.5, 2j, "a'b\x1b", b"x", bytearray(b"x"), (), (1,), (1, [2]), [], {}),
    *({"a": {1: "b"}}, set(), {1}, frozenset(), frozenset({"x"}), range(3), Decimal("1.50")),
    *(dt.date(2026, 1, 2), Record("enum", "m.E", {"name": "A", "value": 1}), Handle(7, "t", "<t>")),
    *(Record("namedtuple", "m\x1b", {}), Record("dataclass", "m", {"\x1b": 1, "b": [()]})),
]


@pytest.mark.parametrize("value", PLAIN, ids=map(ascii, PLAIN))
def test_the_repr_of_a_small_value_is_its_own(value: Any) -> None:
    """What is short and harmless must not look otherwise than in Python."""
    assert brief(value) == repr(value)
    assert brief([value]) == f"[{value!r}]"


@pytest.mark.parametrize(
    "made", ["zone", "d.time(1, tzinfo=zone)", "d.datetime(1, 1, 1, 1, tzinfo=zone)"]
)
def test_what_has_a_long_name_of_a_zone_stays_there(runtime: AnyRuntime, made: str) -> None:
    """It becomes a handle as a whole, as every value that does not cross."""
    code = f"import datetime as d\nzone = d.timezone(d.timedelta(0), 'Z' * 201)\n[{made}]"
    result = runtime.run(code)
    assert result.error is None
    assert isinstance(result.value[0], Handle)


def test_names_of_time_zones_are_bounded() -> None:
    """A name is in the repr of every time that has it, so that none is long, on either side."""
    zone = dt.timezone(dt.timedelta(0), "Z" * 200)
    assert decode(encode(zone)).tzname(None) == "Z" * 200
    with pytest.raises(TypeError, match="a time zone name of more than 200 characters"):
        encode(dt.timezone(dt.timedelta(0), "Z" * 201))
    forged = encode(zone).replace(b"Z" * 200, b"Z" * 201).replace(b"\xc8\0\0\0", b"\xc9\0\0\0")
    with pytest.raises(ValueError, match="fields that its type does not allow"):
        decode(forged)


@pytest.mark.parametrize(
    "forged",
    [
        "tasks=['x'] * 101",
        "tasks=['x' * 201]",
        "tasks=[1]",
        "trips={'x' * 101: 1}",
        "trips={'x': 10**6000}",
        "trips={str(n): 1 for n in range(101)}",
    ],
)
def test_replies_out_of_bounds_are_violations(runtime: AnyRuntime, forged: str) -> None:
    """Names of tasks and trips have a count and a length."""
    forge = (
        "import _viscore as c, time\n"
        "reply = dict(id=1, value=None, error=None, exit_code=None, tasks=[], trips={{}})\n"
        "c.send(7, c.encode(reply | dict({})))\ntime.sleep(30)"
    )
    with pytest.raises(ProtocolViolation):
        runtime.run(forge.format(forged))
    assert runtime.run(forge.format("tasks=['x'] * 100")).error is None


CHAIN = """
e = None
for _ in range(30):
    try:
        exec("\\n" * 99 + "x" * 400 + "()")
    except Exception as f:
        for _ in range(100): f.add_note("n" * 500)
        f.__context__ = e
        e = f
raise e
"""


@pytest.mark.parametrize(
    "code",
    [
        "raise type('E' * 30_000, (Exception,), {})('m')",
        "e = ValueError('m' * 10**6)\nfor _ in range(300): e.add_note('n' * 10**5)\nraise e",
        "raise SyntaxError('m', ('f', 10**6000, -5, 't' * 10**5, 10**6000, 'x'))",
        "raise OSError(10**6000, 'm', 'p' * 10**5)",
        "def f(n):\n    if n: f(n - 1)\n    raise ValueError('m' * 10**5)\nf(500)",
        "raise ExceptionGroup('m' * 10**5, [ValueError('v' * 10**5) for _ in range(300)])",
        CHAIN,
    ],
    ids=["type", "notes", "syntax", "errno", "frames", "group", "chain"],
)
def test_errors_of_any_size_are_described_within_the_bounds(runtime: AnyRuntime, code: str) -> None:
    """A worker cuts what its guest raises, so that no honest program loses its session."""
    runtime.exec("kept = 1")
    with pytest.raises(GuestError) as caught:
        runtime.exec(code)
    assert len(caught.value.traceback) <= MAX_TRACEBACK
    assert runtime.get("kept") == 1

"""Records become objects of the classes that the owner has listed, and of no others."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable  # noqa: TC003 (a hint that is looked up)
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest

import visruntime as vr
from visruntime._runtime.known_types import Mismatch, known_types
from visruntime.errors import GuestError
from visruntime.guest.values import Record
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid


class Color(enum.Enum):
    """A plain enum with a second name for a member."""

    RED = "r"
    CRIMSON = "r"  # noqa: PIE796
    PAIR = (1, 2)


class Level(enum.IntEnum):
    """One whose members equal ints."""

    HIGH = 3


class Point(NamedTuple):
    """A named tuple with hints."""

    x: int
    y: float = 0.0


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024


@dataclasses.dataclass(frozen=True)
class Key:
    """A dataclass that can be a key."""

    name: str


@dataclasses.dataclass
class Box:
    """A dataclass with others inside, a check of its own and a field that it makes itself."""

    size: int
    inside: Box | None = None
    points: list[Point] = dataclasses.field(default_factory=list)
    color: Color = Color.RED
    call: Callable[..., int] | None = None
    area: int = dataclasses.field(init=False, default=0)
    boxes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")
        self.area = self.size**2


LISTED = (Color, Level, Point, Pair, Key, Box)
GUEST = """
import dataclasses, enum, collections
from typing import NamedTuple
class Color(enum.Enum):
    RED = "r"; PAIR = (1, 2); NEW = 5
class Level(enum.IntEnum):
    HIGH = 3
class Point(NamedTuple):
    x: int
    y: float = 0.0
Pair = collections.namedtuple("Pair", "a b")
@dataclasses.dataclass(frozen=True)
class Key:
    name: str
@dataclasses.dataclass
class Box:
    size: int
    inside: object = None
    points: list = dataclasses.field(default_factory=list)
    color: object = Color.RED
    call: object = None
    area: int = -1
class Unlisted(NamedTuple):
    x: int
"""


@pytest.fixture(scope="module")
def typed() -> Iterator[TrustedRuntime]:
    """Return a runtime whose guest has classes of the listed names."""
    names = {f"__main__.{kind.__name__}": kind for kind in LISTED}
    with TrustedRuntime(types=names) as runtime:
        runtime.exec(GUEST)
        yield runtime


def test_listed_classes_come_back(typed: TrustedRuntime) -> None:
    """Dataclasses, named tuples and enum members, in each other, as keys, and in callbacks."""
    assert typed.eval("[Point(1, 2.5), Pair([], {}), Level.HIGH, Color.PAIR]") == [
        Point(1, 2.5),
        Pair([], {}),
        Level.HIGH,
        Color.PAIR,
    ]
    box = typed.eval("Box(3, Box(1), [Point(1, 2)], Color.PAIR)")
    assert box == Box(3, Box(1), [Point(1, 2)], Color.PAIR)
    assert type(box.points[0]) is Point
    assert typed.eval("{Color.RED: {Key('a')}, Key('b'): 1}") == {
        Color.RED: {Key("a")},
        Key("b"): 1,
    }
    got: list[Any] = []
    typed.expose("take", got.append)
    typed.exec("take(Point(1))")
    assert got == [Point(1)]
    with typed.fork() as copy:
        assert copy.eval("Point(1)") == Point(1)


def test_unlisted_classes_stay_records(typed: TrustedRuntime) -> None:
    """Whatever is not listed is a Record, also when its name is that of a class of the host."""
    value = typed.eval("Unlisted(1)")
    assert type(value) is Record
    typed.exec("Unlisted.__module__ = 'visruntime.runtime'; Unlisted.__qualname__ = 'Runtime'")
    assert type(typed.eval("Unlisted(1)")) is Record
    # The kind counts, too.
    typed.exec("class Other(enum.Enum):\n    RED = 'r'\nOther.__qualname__ = 'Point'")
    assert type(typed.eval("Other.RED")) is Record
    with TrustedRuntime() as plain:
        plain.exec(GUEST)
        assert type(plain.eval("Point(1)")) is Record


def test_fields_that_the_class_makes_are_not_the_guests(typed: TrustedRuntime) -> None:
    """A field without a place in the constructor is what the class says."""
    assert typed.eval("Box(3, area=1000)").area == 9


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("Box('3')", "Box.size: expected int, not str"),
        ("Box(True)", "Box.size: expected int, not bool"),
        ("Box(1, points=[1])", r"Box.points\[0\]: expected Point, not int"),
        ("Box(1, Unlisted(1))", "Box.inside: expected"),
        ("Box(-1)", "Box: ValueError: negative"),
        ("Point(1, 'y')", "Point.y: expected float, not str"),
        ("Color.NEW", "Color has no member 'NEW'"),
        ("Key(b'a')", "Key.name: expected str, not bytes"),
        ("{Key(1): 1}", "Key.name: expected str, not int"),
        ("{Level.HIGH: 1, 3: 2}", "a key appears twice"),
    ],
)
def test_what_is_not_like_its_class_is_an_error_of_the_run(
    typed: TrustedRuntime, code: str, why: str
) -> None:
    """No object of wrong parts is made; the rest of the result is there, and the worker lives."""
    typed.exec("Level.HIGH.__class__.__hash__ = lambda self: 99; globals()['left'] = 1")
    typed.exec("Level.__eq__ = lambda self, other: self is other")
    result = typed.run(f"print('said')\n{code}")
    assert result.value is None
    assert result.error is not None, result.value
    assert result.error.type_name == "visruntime.ValueMismatch"
    assert vr.RunResult is type(result)
    assert result.stdout == b"said\n"
    with pytest.raises(GuestError, match=why):
        typed.eval(code)
    assert typed.get("left") == 1


def test_a_host_function_is_not_called_with_a_mismatch(typed: TrustedRuntime) -> None:
    """The guest gets a TypeError, and the next call is as ever."""
    got: list[Any] = []
    typed.expose("take", got.append)
    result = typed.run("take([Box('3')])")
    assert result.error is not None
    assert "Box.size: expected int, not str" in result.error.message
    assert not got
    typed.exec("take(Box(3))")
    assert got == [Box(3)]


def test_a_mismatch_beside_a_large_value(typed: TrustedRuntime) -> None:
    """What lies beside the frame is there for the second look, too."""
    assert typed.eval("[Key('a'), bytes(2_000_000)]")[1] == bytes(2_000_000)
    with pytest.raises(GuestError, match="appears twice"):
        typed.eval("[bytes(2_000_000), {Level.HIGH: 1, 3: 2}]")
    assert typed.eval("bytes(2_000_000)") == bytes(2_000_000)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Record("namedtuple", "P", {"x": 1}), "the record has no field 'y'"),
        (Record("namedtuple", "P", {"x": 1, "y": 1.0, "__class__": 1}), "has no field '__class__'"),
        (Record("namedtuple", "P", {"x": 1, "y": 1.0, "\x1b" * 999: 1}), "has no field"),
        (Record("enum", "C", {"name": "RED", "value": "x"}), "Color.RED has another value"),
        (Record("enum", "C", {"name": "PAIR", "value": [1, 2]}), "Color.PAIR has another value"),
        (Record("enum", "C", {"name": "CRIMSON", "value": "r"}), "no member 'CRIMSON'"),
        (Record("enum", "C", {"name": "__members__", "value": "r"}), "no member"),
        (Record("enum", "C", {"name": ["RED"], "value": "r"}), "no member of type list"),
        (Record("enum", "C", {"name": "RED"}), "the record has no field 'value'"),
    ],
)
def test_records_that_lie(record: Record, why: str) -> None:
    """Fields are those of the class, no more and no fewer; a message shows no control sequence."""
    types = known_types({"P": Point, "C": Color})
    assert types is not None
    with pytest.raises(Mismatch) as caught:
        types.build(record)
    assert why in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_classes_are_known_by_their_own_names() -> None:
    """A list of classes takes the names that they have here."""
    types = known_types([Point])
    assert types is not None
    fields = {"x": 1, "y": 2.0}
    assert types.build(Record("namedtuple", f"{__name__}.Point", fields)) == Point(1, 2.0)
    assert known_types([]) is None


@dataclasses.dataclass
class Needy:
    """Needs what is no field."""

    size: int
    more: dataclasses.InitVar[int]


@dataclasses.dataclass
class Unclear:
    """Has a hint that names nothing."""

    size: Nowhere  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("types", "error", "why"),
    [
        ([int], TypeError, "is no dataclass, named tuple or enum"),
        ([Point(1)], TypeError, "is no class"),
        (Point, TypeError, "give a list"),
        ("Point", TypeError, "give a list"),
        ([Needy], TypeError, "cannot be made of its fields"),
        ([Unclear], TypeError, "cannot be looked up"),
        ([Point, Point], ValueError, "two classes are called"),
        ({1: Point}, TypeError, "are text"),
    ],
)
def test_what_cannot_be_listed_is_refused_at_once(
    types: Any, error: type[Exception], why: str
) -> None:
    """The owner hears it before anything starts."""
    with pytest.raises(error, match=why):
        TrustedRuntime(types=types)

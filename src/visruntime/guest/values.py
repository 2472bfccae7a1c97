"""The composite types of the value codec: how they are taken apart and built again.

The native codec calls `reduce_value` for every value that is not of a basic type, and one
member of `BUILDERS` for every composite tag that it reads. Builders see hostile fields: they
check each one and raise, and they never look up, import or call what a field names. A guest's
dataclass, named tuple or enum member arrives as a `Record`, any other object as a `Handle`.

Standard library only; heavy modules are imported when the first value needs them.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing costs a worker's start-up more than this module does
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import MappingProxyType
    from typing import Any, Final, NoReturn
else:
    MappingProxyType = type(type.__dict__)  # importing types costs more than this module does

__all__ = [
    "BUILDERS",
    "Handle",
    "Record",
    "Repr",
    "install",
    "reduce_value",
    "standard_reducer",
]

RANGE: Final = 0x20
DATE: Final = 0x21
TIME: Final = 0x22
DATETIME: Final = 0x23
TIMEDELTA: Final = 0x24
TIMEZONE: Final = 0x25
DECIMAL: Final = 0x26
FRACTION: Final = 0x27
UUID: Final = 0x28
PATH: Final = 0x29
RECORD: Final = 0x2A
HANDLE: Final = 0x2B
BUFFER: Final = 0x2C
ARRAY: Final = 0x2D
TABLE: Final = 0x2E
REPR: Final = 0x2F
COLLECTION: Final = 0x30
BLOB: Final = 0x31

MAX_INT_BITS: Final = 8192
"""Bits of an int inside a range or Fraction: building those divides, in quadratic time."""
MAX_DECIMAL_CHARACTERS: Final = 100_000
"""Characters of a Decimal's text."""
MAX_ZONE_NAME: Final = 200
"""Characters of the name of a time zone, which is in the repr of every time that has it."""
MAX_TYPE_NAME: Final = 1024
"""Characters of a type name in a `Record` or `Handle`."""
MAX_REPR: Final = 8192
"""Characters of the repr that a `Handle` or a `Repr` carries."""

RECORD_KINDS: Final = ("dataclass", "namedtuple", "enum")
"""The number on the wire is the index."""
COLLECTIONS: Final = ("OrderedDict", "Counter", "deque", "defaultdict")
"""Those of the module of that name; the number on the wire is the index."""
FACTORIES: Final = ("bool", "bytes", "dict", "float", "int", "list", "set", "str", "tuple")
"""What a defaultdict may make its values with; the name crosses."""


def _printable(text: str) -> str:
    """*text* without control sequences, for a repr."""
    return text if text.isprintable() else ascii(text)[1:-1]


class _Frozen:
    """What cannot be changed once it is made."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} objects cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} objects cannot be changed")


class Record(_Frozen):
    """The data of a dataclass, named tuple or enum member, without its class.

    ``kind`` is ``"dataclass"``, ``"namedtuple"`` or ``"enum"``; ``type_name`` is the qualified
    name that the other side gave, a claim and nothing more; ``fields`` is a read-only mapping
    in field order (an enum member has ``name`` and ``value``).
    """

    __slots__ = ("_hash", "fields", "kind", "type_name")

    kind: str
    type_name: str
    fields: Mapping[str, Any]
    _hash: int | None

    def __init__(self, kind: str, type_name: str, fields: Mapping[str, Any]) -> None:
        if kind not in RECORD_KINDS:
            raise ValueError(f"kind must be one of {', '.join(RECORD_KINDS)}")
        if type(type_name) is not str or len(type_name) > MAX_TYPE_NAME:
            raise ValueError(f"type_name must be a str of at most {MAX_TYPE_NAME} characters")
        copy = dict(fields)
        for name in copy:
            if type(name) is not str:
                raise ValueError("field names must be str")
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "type_name", type_name)
        put(self, "fields", MappingProxyType(copy))
        put(self, "_hash", None)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.kind == other.kind
            and self.type_name == other.type_name
            and self.fields == other.fields
        )

    def __hash__(self) -> int:
        if self._hash is None:
            value = hash((self.kind, self.type_name, frozenset(self.fields.items())))
            object.__setattr__(self, "_hash", value)
            return value
        return self._hash

    def __repr__(self) -> str:
        fields = ", ".join(f"{_printable(name)}={value!r}" for name, value in self.fields.items())
        return f"<Record {self.kind} {_printable(self.type_name)}({fields})>"


class Handle(_Frozen):
    """Stands for an object that does not cross: its id there, type name and bounded repr.

    Type name and repr are the other side's claim. A handle that is sent back names the same
    object again.
    """

    __slots__ = ("id", "repr", "type_name")

    id: int
    type_name: str
    repr: str

    def __init__(self, id: int, type_name: str, repr: str) -> None:
        if type(id) is not int or not 0 <= id < 1 << 63:
            raise ValueError("id must be an int from 0 to 2**63 - 1")
        if type(type_name) is not str or len(type_name) > MAX_TYPE_NAME:
            raise ValueError(f"type_name must be a str of at most {MAX_TYPE_NAME} characters")
        if type(repr) is not str or len(repr) > MAX_REPR:
            raise ValueError(f"repr must be a str of at most {MAX_REPR} characters")
        put = object.__setattr__
        put(self, "id", id)
        put(self, "type_name", type_name)
        put(self, "repr", repr)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return (self.id, self.type_name, self.repr) == (other.id, other.type_name, other.repr)

    def __hash__(self) -> int:
        return hash((Handle, self.id))

    def __repr__(self) -> str:
        return f"<Handle {self.id} {_printable(self.type_name)} {_printable(self.repr)}>"


class Repr(_Frozen):
    """What another object's ``repr`` said, where the rule for unknown types is ``"repr"``.

    ``type_name`` and ``text``, which is cut, are the other side's claim. It is no str, so that no
    text that a guest sends can be taken for one.
    """

    __slots__ = ("text", "type_name")

    type_name: str
    text: str

    def __init__(self, type_name: str, text: str) -> None:
        if type(type_name) is not str or len(type_name) > MAX_TYPE_NAME:
            raise ValueError(f"type_name must be a str of at most {MAX_TYPE_NAME} characters")
        if type(text) is not str or len(text) > MAX_REPR:
            raise ValueError(f"text must be a str of at most {MAX_REPR} characters")
        put = object.__setattr__
        put(self, "type_name", type_name)
        put(self, "text", text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Repr):
            return NotImplemented
        return (self.type_name, self.text) == (other.type_name, other.text)

    def __hash__(self) -> int:
        return hash((Repr, self.type_name, self.text))

    def __repr__(self) -> str:
        return f"<Repr {_printable(self.type_name)} {_printable(self.text)}>"


# ---- taking apart ----


def _small(value: int, what: str) -> int:
    if value.bit_length() > MAX_INT_BITS:
        raise TypeError(f"{what} with an int of more than {MAX_INT_BITS} bits")
    return value


def _type_name(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if len(name) > MAX_TYPE_NAME:
        raise TypeError(f"a type name of more than {MAX_TYPE_NAME} characters")
    return name


def _fixed_zone(value: Any) -> Any:
    """The tzinfo of *value* if it has a fixed offset."""
    zone = value.tzinfo
    if zone is not None and type(zone) is not sys.modules["datetime"].timezone:
        raise TypeError(
            f"a time zone of type {type(zone).__qualname__} does not cross, only fixed offsets: "
            "use .astimezone(datetime.timezone.utc) first"
        )
    if zone is not None:
        _zone_parts(zone)  # else the zone alone would become a handle, which no time can have
    return zone


def _zone_parts(zone: Any) -> tuple[Any, Any]:
    """Offset and name, which may be None."""
    offset, name = (*zone.__getinitargs__(), None)[:2]
    if name is not None and len(name) > MAX_ZONE_NAME:
        raise TypeError(f"a time zone name of more than {MAX_ZONE_NAME} characters")
    return offset, name


def _clock(value: Any) -> tuple[Any, ...]:
    clock = (value.hour, value.minute, value.second, value.microsecond)
    return (*clock, value.fold, _fixed_zone(value))


def _reduce_date(value: Any) -> tuple[Any, ...]:
    return (DATE, value.year, value.month, value.day)


def _reduce_time(value: Any) -> tuple[Any, ...]:
    return (TIME, *_clock(value))


def _reduce_datetime(value: Any) -> tuple[Any, ...]:
    return (DATETIME, value.year, value.month, value.day, *_clock(value))


def _reduce_timedelta(value: Any) -> tuple[Any, ...]:
    return (TIMEDELTA, value.days, value.seconds, value.microseconds)


def _reduce_timezone(value: Any) -> tuple[Any, ...]:
    return (TIMEZONE, *_zone_parts(value))


def _decimal_text(value: Any) -> str:
    """The one text of a Decimal: its ``str`` where the context says no small letters."""
    return str(value).replace("e", "E")


def _reduce_decimal(value: Any) -> tuple[Any, ...]:
    text = _decimal_text(value)
    if len(text) > MAX_DECIMAL_CHARACTERS:
        raise TypeError(f"a Decimal of more than {MAX_DECIMAL_CHARACTERS} characters")
    return (DECIMAL, text)


def _reduce_fraction(value: Any) -> tuple[Any, ...]:
    parts = (value.numerator, value.denominator)
    return (FRACTION, *(_small(part, "a Fraction") for part in parts))


def _reduce_range(value: range) -> tuple[Any, ...]:
    return (RANGE, *(_small(part, "a range") for part in (value.start, value.stop, value.step)))


def _reduce_uuid(value: Any) -> tuple[Any, ...]:
    return (UUID, value.bytes)


def _reduce_path(value: Any) -> tuple[Any, ...]:
    return (PATH, str(value))


def _reduce_record(value: Record) -> tuple[Any, ...]:
    return (RECORD, RECORD_KINDS.index(value.kind), value.type_name, dict(value.fields))


def _reduce_handle(value: Handle) -> tuple[Any, ...]:
    return (HANDLE, value.id, value.type_name, value.repr)


def _reduce_repr(value: Repr) -> tuple[Any, ...]:
    return (REPR, value.type_name, value.text)


def _reduce_ordered(value: Any) -> tuple[Any, ...]:
    return (COLLECTION, 0, dict(value.items()), None)


def _reduce_counter(value: Any) -> tuple[Any, ...]:
    return (COLLECTION, 1, dict(value), None)


def _reduce_deque(value: Any) -> tuple[Any, ...]:
    return (COLLECTION, 2, list(value), value.maxlen)


def _reduce_defaults(value: Any) -> tuple[Any, ...]:
    factory = value.default_factory
    if factory is None:
        return (COLLECTION, 3, dict(value), None)
    name = getattr(factory, "__name__", None)
    builtins = sys.modules["builtins"]
    if name not in FACTORIES or getattr(builtins, name) is not factory:
        raise TypeError(f"a defaultdict whose factory is none of {', '.join(FACTORIES)}")
    return (COLLECTION, 3, dict(value), name)


_REDUCERS: Final[Mapping[tuple[str, str], Callable[[Any], tuple[Any, ...]]]] = MappingProxyType(
    {
        ("builtins", "range"): _reduce_range,
        ("datetime", "date"): _reduce_date,
        ("datetime", "time"): _reduce_time,
        ("datetime", "datetime"): _reduce_datetime,
        ("datetime", "timedelta"): _reduce_timedelta,
        ("datetime", "timezone"): _reduce_timezone,
        ("decimal", "Decimal"): _reduce_decimal,
        ("fractions", "Fraction"): _reduce_fraction,
        ("uuid", "UUID"): _reduce_uuid,
        ("pathlib", "PurePosixPath"): _reduce_path,
        ("pathlib", "PosixPath"): _reduce_path,
        ("collections", "OrderedDict"): _reduce_ordered,
        ("collections", "Counter"): _reduce_counter,
        ("collections", "deque"): _reduce_deque,
        ("collections", "defaultdict"): _reduce_defaults,
    }
)
"""By the module and name under which the standard library publishes the type."""


def standard_reducer(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """The reducer of exactly *kind*; a type that only has the name of one gets none."""
    # pathlib's classes name a private module on Python 3.13.
    module_name = str(kind.__module__).partition(".")[0]
    reducer = _REDUCERS.get((module_name, kind.__name__))
    if reducer is None:
        return None
    module = sys.modules.get(module_name)
    return reducer if getattr(module, kind.__name__, None) is kind else None


def _reduce_dataclass(value: Any, kind: type) -> tuple[Any, ...]:
    fields = {}
    for field in sys.modules["dataclasses"].fields(kind):
        try:
            fields[field.name] = getattr(value, field.name)
        except AttributeError:
            raise TypeError(f"the dataclass has no value for {field.name!r}") from None
    return (RECORD, 0, _type_name(kind), fields)


def _reduce_instance(value: Any, kind: type) -> tuple[Any, ...] | None:
    """Dataclass, named tuple and enum members; None for anything else."""
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(kind, enum.EnumType):
        # The plain value: the member itself may be an int or a str.
        return (RECORD, 2, _type_name(kind), {"name": value._name_, "value": value._value_})
    if "dataclasses" in sys.modules and hasattr(kind, "__dataclass_fields__"):
        return _reduce_dataclass(value, kind)
    names = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and type(names) is tuple and len(names) == len(value):
        return (RECORD, 1, _type_name(kind), dict(zip(names, value, strict=True)))
    return None


def reduce_value(value: Any) -> tuple[Any, ...] | None:
    """Take *value* apart into ``(tag, *fields)``, or return None if it is of no composite type.

    Raises:
        TypeError: the type crosses, but not this value of it.
    """
    kind = type(value)
    if kind is Record:
        return _reduce_record(value)
    if kind is Handle:
        return _reduce_handle(value)
    if kind is Repr:
        return _reduce_repr(value)
    reducer = standard_reducer(kind)
    return reducer(value) if reducer is not None else _reduce_instance(value, kind)


# ---- building ----


def _stdlib(name: str) -> Any:
    """A module of the standard library, imported when the first value needs it."""
    return sys.modules.get(name) or __import__(name)


def _check_ints(*values: object) -> None:
    for value in values:
        if type(value) is not int:
            raise ValueError("not an int")


def _build_range(start: Any, stop: Any, step: Any) -> range:
    _check_ints(start, stop, step)
    for part in (start, stop, step):
        _small(part, "a range")
    return range(start, stop, step)


def _build_date(year: Any, month: Any, day: Any) -> Any:
    _check_ints(year, month, day)
    return _stdlib("datetime").date(year, month, day)


def _build_time(*fields: Any) -> Any:
    *clock, fold, zone = fields
    _check_ints(*clock, fold)
    datetime = _stdlib("datetime")
    if zone is not None and type(zone) is not datetime.timezone:
        raise ValueError("not a time zone")
    return datetime.time(*clock, zone, fold=fold)


def _build_datetime(year: Any, month: Any, day: Any, *clock: Any) -> Any:
    date = _build_date(year, month, day)
    return _stdlib("datetime").datetime.combine(date, _build_time(*clock))


def _build_timedelta(days: Any, seconds: Any, micro: Any) -> Any:
    _check_ints(days, seconds, micro)
    if not (0 <= seconds < 86_400 and 0 <= micro < 1_000_000):
        raise ValueError("not normalised")
    return _stdlib("datetime").timedelta(days, seconds, micro)


def _build_timezone(offset: Any, name: Any) -> Any:
    datetime = _stdlib("datetime")
    if type(offset) is not datetime.timedelta:
        raise ValueError("not an offset")
    if name is None:
        return datetime.timezone(offset)
    if type(name) is not str or len(name) > MAX_ZONE_NAME:
        raise ValueError("not a name")
    return datetime.timezone(offset, name)


def _build_decimal(text: Any) -> Any:
    if type(text) is not str or len(text) > MAX_DECIMAL_CHARACTERS:
        raise ValueError("not a decimal")
    value = _stdlib("decimal").Decimal(text)
    if _decimal_text(value) != text:
        raise ValueError("not in canonical form")
    return value


def _build_fraction(numerator: Any, denominator: Any) -> Any:
    _check_ints(numerator, denominator)
    _small(numerator, "a Fraction")
    _small(denominator, "a Fraction")
    value = _stdlib("fractions").Fraction(numerator, denominator)
    if value.denominator != denominator:
        raise ValueError("not in lowest terms")
    return value


def _build_uuid(data: Any) -> Any:
    if type(data) is not bytes:
        raise ValueError("not 16 bytes")
    return _stdlib("uuid").UUID(bytes=data)


def _build_path(text: Any) -> Any:
    if type(text) is not str:
        raise ValueError("not a path")
    root = text[: 1 + (text[1:2] == "/")] if text.startswith("/") else ""
    parts = text[len(root) :].split("/") if text not in (root, ".") else []
    if not text or "" in parts or "." in parts:
        raise ValueError("not in canonical form")
    path = _stdlib("pathlib").PurePosixPath
    # To parse a path is to intern its parts (3.12 does so at its first str), and these versions
    # keep for ever what they have interned (python/cpython#113993).
    if (3, 12) <= sys.version_info < (3, 12, 7):
        return path()._from_parsed_parts("", root, parts)
    return path(text)


def _build_record(kind: Any, type_name: Any, fields: Any) -> Record:
    if type(kind) is not int or not 0 <= kind < len(RECORD_KINDS) or type(fields) is not dict:
        raise ValueError("not a record")
    return Record(RECORD_KINDS[kind], type_name, fields)


def _build_collection(kind: Any, data: Any, more: Any) -> Any:
    if type(kind) is not int or not 0 <= kind < len(COLLECTIONS):
        raise ValueError("not a collection")
    if type(data) is not (list if kind == 2 else dict):
        raise ValueError("not the data of a collection")
    collections = _stdlib("collections")
    if kind == 2:
        if more is not None and (type(more) is not int or not len(data) <= more < 1 << 63):
            raise ValueError("not the length of a deque")
        return collections.deque(data, more)
    if kind == 3:
        if more is not None and (type(more) is not str or more not in FACTORIES):
            raise ValueError("not a factory")
        # One of a closed list of builtin types, each of which makes an empty value.
        factory = None if more is None else getattr(_stdlib("builtins"), more)
        return _filled(collections.defaultdict(factory), data)
    if more is not None:
        raise ValueError("not a collection")
    return _filled(collections.OrderedDict() if kind == 0 else collections.Counter(), data)


def _filled(target: dict[Any, Any], data: Any) -> dict[Any, Any]:
    """Return *target* with *data*, put there one by one: other threads get turns in between."""
    for key, value in data.items():
        target[key] = value  # noqa: PERF403
    return target


def build_blob(kind: Any, data: Any) -> Any:
    """Build bytes (0) or a bytearray (1) from what a buffer holds."""
    if type(kind) is not int or not 0 <= kind <= 1 or type(data) is not memoryview:
        raise ValueError("not bytes in a buffer")
    if kind == 1:
        return bytearray(data)
    whole = data.obj
    return whole if type(whole) is bytes and len(whole) == len(data) else bytes(data)


def _no_buffer(*_: Any) -> NoReturn:
    raise ValueError("no buffer can come along here")


def check_data(data: Any) -> Any:
    """Return *data* of an array or a table if a value has only that one encoding with it."""
    if type(data) not in (bytes, memoryview):
        raise ValueError("the data is neither bytes nor a buffer")
    return data


def _build_array(dtype: Any, shape: Any, data: Any) -> Any:
    from .arrays import Array

    return Array(dtype, shape, check_data(data))


def _build_table(data: Any) -> Any:
    from .arrays import Table

    return Table(check_data(data))


def _convert_array(dtype: Any, shape: Any, data: Any) -> Any:
    from .arrays import convert_array

    return convert_array(_build_array(dtype, shape, data))


def _convert_table(data: Any) -> Any:
    from .arrays import convert_table

    return convert_table(_build_table(data))


BUILDERS: Final[tuple[Callable[..., Any], ...]] = (
    *(_build_range, _build_date, _build_time, _build_datetime, _build_timedelta),
    *(_build_timezone, _build_decimal, _build_fraction, _build_uuid, _build_path),
    *(_build_record, Handle),
    *(_no_buffer, _build_array, _build_table),
    *(Repr, _build_collection, build_blob),
)
"""By tag, from `RANGE` on."""


CONVERTING_BUILDERS: Final[tuple[Callable[..., Any], ...]] = (
    *BUILDERS[:13],
    _convert_array,
    _convert_table,
    *BUILDERS[15:],
)
"""Those of a worker, where arrays become what its libraries make of them."""


def install(core: Any, builders: tuple[Callable[..., Any], ...] = BUILDERS) -> None:
    """Give the native codec of the module *core* its composite types."""
    core.bind_types(reduce_value, builders)

"""Classes of the owner's that records of a guest become again.

A record names its class, and that is a claim. Only classes that the owner has listed are made, of
fields that have the right names and types; nothing is looked up or imported because of a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from visruntime._callbacks.schema import Check
    from visruntime.guest.values import Record

    Build = Callable[[Record], Any]

__all__ = ["KnownTypes", "Mismatch", "known_types"]

_MAX_SHOWN = 100
"""Longest name of a guest's that a message repeats, in characters."""


class Mismatch(ValueError):
    """A record that claims to be of a listed class is not like that class."""


class KnownTypes:
    """The listed classes, by the names that records of them have."""

    __slots__ = ("_builds",)

    def __init__(self, builds: Mapping[tuple[str, str], Build]) -> None:
        self._builds = builds

    def build(self, record: Record) -> Any:
        """Return an instance of the class that *record* names; itself where that is not listed.

        Raises:
            Mismatch: the class is listed, and does not take these fields.
        """
        build = self._builds.get((record.kind, record.type_name))
        return record if build is None else build(record)


def known_types(types: Iterable[type] | Mapping[str, type]) -> KnownTypes | None:
    """Read ``types=``; ``None`` where nothing is listed.

    Raises:
        TypeError: one is no dataclass, named tuple or enum, or could not be made of its fields.
        ValueError: two have one name.
    """
    if isinstance(types, (str, type)) or not isinstance(types, Iterable):
        raise TypeError(f"types: give a list of classes, not {types!r:.100}")
    named = isinstance(types, Mapping)
    pairs = types.items() if isinstance(types, Mapping) else ((_name(kind), kind) for kind in types)
    builds: dict[tuple[str, str], Build] = {}
    for name, kind in pairs:
        if named and not isinstance(name, str):
            raise TypeError("types: the names of classes are text")
        word, build = _builder(kind)
        if (word, name) in builds:
            raise ValueError(f"types: two classes are called {name}")
        builds[word, name] = build
    return KnownTypes(builds) if builds else None


def _name(kind: Any) -> str:
    if not isinstance(kind, type):
        raise TypeError(f"types: {kind!r} is no class")
    return f"{kind.__module__}.{kind.__qualname__}"


def _builder(kind: Any) -> tuple[str, Build]:
    import dataclasses
    import enum

    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            return "enum", _build_enum(kind)
        if dataclasses.is_dataclass(kind):
            return "dataclass", _build_dataclass(kind)
        if issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple:
            return "namedtuple", _build_named_tuple(kind)
    raise TypeError(f"types: {kind!r} is no dataclass, named tuple or enum")


def _build_enum(kind: Any) -> Build:
    members = dict(kind.__members__)

    def build(record: Record) -> Any:
        _check_names(kind, record, ("name", "value"))
        name, value = record["name"], record["value"]
        member = members.get(name) if type(name) is str else None
        # By its own name, since another name of a member would be a second one of the same.
        if member is None or member.name != name:
            raise Mismatch(f"{kind.__qualname__} has no member {_shown(name)}")
        if type(member.value) is not type(value) or member.value != value:
            raise Mismatch(f"{kind.__qualname__}.{name} has another value")
        return member

    return build


def _build_dataclass(kind: Any) -> Build:
    import dataclasses

    fields = dataclasses.fields(kind)
    names = tuple(field.name for field in fields)
    given = tuple(field.name for field in fields if field.init)
    _check_constructor(kind, given)
    checks = _checks(kind, given)

    def build(record: Record) -> Any:
        _check_names(kind, record, names)
        return _make(kind, {name: record[name] for name in given}, checks)

    return build


def _build_named_tuple(kind: Any) -> Build:
    names = kind._fields
    _check_constructor(kind, names)
    checks = _checks(kind, names)

    def build(record: Record) -> Any:
        _check_names(kind, record, names)
        return _make(kind, {name: record[name] for name in names}, checks)

    return build


def _check_constructor(kind: Any, given: tuple[str, ...]) -> None:
    """Make sure that the class can be called with just these keywords."""
    from visruntime._callbacks.schema import signature_of

    try:
        signature_of(kind).bind(**dict.fromkeys(given))
    except TypeError as problem:
        raise TypeError(
            f"types: {kind.__qualname__} cannot be made of its fields: {problem}"
        ) from None


def _checks(kind: Any, names: tuple[str, ...]) -> dict[str, Check]:
    """The checks of those fields whose type hints can be checked."""
    import typing

    from visruntime._callbacks.schema import make_check

    try:
        hints = typing.get_type_hints(kind)  # the owner's own source text
    except Exception as problem:
        raise TypeError(
            f"types: the type hints of {kind.__qualname__} cannot be looked up: {problem}"
        ) from problem
    checks = {}
    for name in names:
        try:
            check = make_check(hints[name], name) if name in hints else None
        except TypeError:
            continue  # a type that no value could be told to be of
        if check is not None:
            checks[name] = check
    return checks


def _check_names(kind: Any, record: Record, names: tuple[str, ...]) -> None:
    if record.fields.keys() == set(names):
        return
    for name in names:
        if name not in record.fields:
            raise Mismatch(f"{kind.__qualname__}: the record has no field {name!r}")
    extra = next(name for name in record if name not in names)
    raise Mismatch(f"{kind.__qualname__} has no field {_shown(extra)}")


def _make(kind: Any, fields: dict[str, Any], checks: Mapping[str, Check]) -> Any:
    for name, check in checks.items():
        try:
            check(fields[name], f"{kind.__qualname__}.{name}")
        except TypeError as problem:
            raise Mismatch(str(problem)) from None
    try:
        return kind(**fields)
    except Exception as problem:
        raise Mismatch(f"{kind.__qualname__}: {type(problem).__name__}: {problem}") from problem


def _shown(name: object) -> str:
    return ascii(name[:_MAX_SHOWN]) if isinstance(name, str) else f"of type {type(name).__name__}"

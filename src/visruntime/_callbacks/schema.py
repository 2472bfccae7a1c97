"""Checks of the arguments of a guest against the type hints of a host function.

What is known of each annotation is made into a small function once, when the function is exposed,
so that a call costs no more than comparing types. Nothing here converts a value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect
    from collections.abc import Mapping, Sequence

__all__ = ["Check", "Schema", "bound_keywords", "schema_of", "signature_of"]

Check = Callable[[Any, str], None]
"""Raises TypeError where a value, named by the text, is not of the type."""

_ANYTHING: tuple[Any, ...] = (Any, object)
_FLOATS = (float, int)
_COMPLEX = (complex, float, int)


class Schema:
    """What the arguments of one function must be; made by :func:`schema_of`."""

    __slots__ = ("_by_name", "_name", "_positional", "_rest", "_rest_named")

    def __init__(
        self,
        name: str,
        positional: Sequence[tuple[str, Check | None]],
        by_name: Mapping[str, Check | None],
        rest: tuple[str, Check | None] | None,
        rest_named: Check | None,
    ) -> None:
        self._name = name
        self._positional = positional
        self._by_name = by_name
        self._rest = rest
        self._rest_named = rest_named

    def check(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Make sure that each argument is of its type; how many there are is the call's affair.

        Raises:
            TypeError: naming the function, the argument and the part of it that is wrong.
        """
        known = len(self._positional)
        for at, value in enumerate(arguments):
            name, check = self._positional[at] if at < known else self._rest or ("", None)
            if check is not None:
                check(value, f"{self._name}() argument {name!r}")
        for name, value in keywords.items():
            check = self._by_name.get(name, self._rest_named)
            if check is not None:
                check(value, f"{self._name}() argument {name[:100]!r}")


def schema_of(name: str, function: Callable[..., Any]) -> Schema | None:
    """Read the type hints of *function*; ``None`` where it has none.

    Raises:
        TypeError: a hint is one that cannot be checked, or cannot be looked up.
    """
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return None  # one that is written in C says nothing
    positional: list[tuple[str, Check | None]] = []
    by_name: dict[str, Check | None] = {}
    rest: tuple[str, Check | None] | None = None
    rest_named: Check | None = None
    for parameter in signature.parameters.values():
        check = None
        if parameter.annotation is not parameter.empty:
            where = f"{name}: the type hint of {parameter.name!r}"
            check = make_check(resolve(parameter.annotation, function, where), where)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = (parameter.name, check)
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            rest_named = check
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append((parameter.name, check))
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            by_name[parameter.name] = check
    checks = [check for _, check in positional] + [*by_name.values(), rest_named, rest and rest[1]]
    if not any(checks):
        return None
    return Schema(name, positional, by_name, rest, rest_named)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of *function*; its hints are text where one of them names nothing.

    Python 3.14 looks them up when it is asked for them (PEP 649), and not where they are written.

    Raises:
        TypeError: it says nothing of itself.
        ValueError: the same.
    """
    import inspect

    try:
        return inspect.signature(function)
    except Exception:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.STRING)
        raise


def bound_keywords(function: Callable[..., Any]) -> frozenset[str]:
    """Return the keywords that a `functools.partial` binds, which a caller could bind anew."""
    import functools

    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound.update(function.keywords)
        function = function.func
    return frozenset(bound)


def resolve(annotation: Any, function: Callable[..., Any], where: str) -> Any:
    """Look a hint that is text up where the function was written.

    Raises:
        TypeError: there is no such name there.
    """
    if not isinstance(annotation, str):
        return annotation
    import inspect

    names = getattr(inspect.unwrap(function), "__globals__", None)
    if names is None:
        names = getattr(type(function).__call__, "__globals__", {})
    try:
        return eval(annotation, names)  # noqa: S307 (the host's own source text, as typing does it)
    except Exception as problem:
        raise TypeError(
            f"{where} is {annotation!r}, which cannot be looked up ({problem}); give "
            "check=False to pass arguments on unchecked"
        ) from problem


def make_check(annotation: Any, where: str) -> Check | None:
    """Return the check of one annotation; ``None`` where anything goes.

    Raises:
        TypeError: no value that crosses could be told to be of that type.
    """
    import types
    import typing

    if annotation in _ANYTHING:
        return None
    if annotation is None:
        annotation = type(None)
    if isinstance(annotation, typing.NewType):
        return make_check(annotation.__supertype__, where)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return make_check(parts[0], where)
    if origin is typing.Literal:
        return _literal(parts)
    if origin in (typing.Union, types.UnionType):
        return _union(annotation, [make_check(part, where) for part in parts])
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, where)
    if origin is not None:
        return _container(annotation, origin, parts, where)
    if isinstance(annotation, type) and not getattr(annotation, "_is_protocol", False):
        return _plain(annotation)
    raise TypeError(
        f"{where}, {annotation!r}, is none that a guest's argument can be checked against; give "
        "check=False to pass arguments on unchecked"
    )


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _wrong(where: str, expected: str, value: Any) -> TypeError:
    return TypeError(f"{where}: expected {expected}, not {type(value).__name__}")


def _plain(kind: type) -> Check:
    # A bool is an int to Python, and hardly ever what a function for numbers is meant for.
    exact: tuple[type, ...] | None = {
        int: (int,), float: _FLOATS, complex: _COMPLEX, type(None): (type(None),)
    }.get(kind)  # fmt: skip
    name = "None" if kind is type(None) else kind.__name__

    def check(value: Any, where: str) -> None:
        if type(value) not in exact if exact is not None else not isinstance(value, kind):
            raise _wrong(where, name, value)

    return check


def _literal(allowed: tuple[Any, ...]) -> Check:
    pairs = {(type(value), value) for value in allowed}

    def check(value: Any, where: str) -> None:
        # A list has no hash, and is none of them.
        if type(value) not in (int, bool, str, bytes, type(None)) or (
            (type(value), value) not in pairs
        ):
            shown = ", ".join(map(repr, allowed))
            raise TypeError(f"{where}: expected one of {shown}")

    return check


def _union(annotation: Any, checks: list[Check | None]) -> Check | None:
    if None in checks:
        return None

    def check(value: Any, where: str) -> None:
        problems = []
        for member in checks:
            try:
                member(value, where)  # type: ignore[misc]
            except TypeError as problem:
                problems.append(problem)
            else:
                return
        # What is wrong within a list says more than that the list is no None.
        for inner in problems:
            if str(inner).startswith(f"{where}["):
                raise inner
        raise _wrong(where, _name(annotation), value)

    return check


def _typed_dict(kind: Any, where: str) -> Check:
    import typing

    try:
        hints = typing.get_type_hints(kind)
    except Exception as problem:
        raise TypeError(
            f"{where}: the type hints of {kind.__name__} cannot be looked up ({problem}); give "
            "check=False to pass arguments on unchecked"
        ) from problem
    checks = {key: make_check(hint, f"{where}, {key!r}") for key, hint in hints.items()}
    required = kind.__required_keys__

    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _wrong(where, kind.__name__, value)
        for key in required:
            if key not in value:
                raise TypeError(f"{where}: {kind.__name__} needs {key!r}")
        for key, member in value.items():
            if key not in checks:
                raise TypeError(f"{where}: {kind.__name__} has no {_key(key)}")
            part = checks[key]
            if part is not None:
                part(member, f"{where}[{key!r}]")

    return check


def _container(annotation: Any, origin: Any, parts: tuple[Any, ...], where: str) -> Check:
    import typing
    from collections import abc

    is_empty_tuple = origin is tuple and annotation is not typing.Tuple  # noqa: UP006 (it may be said)
    if not parts and not is_empty_tuple:  # typing.List and the like
        return _plain(origin)
    if origin is tuple and not (len(parts) == 2 and parts[1] is ...):
        return _fixed_tuple(annotation, [make_check(part, where) for part in parts])
    if origin in (dict, abc.Mapping, abc.MutableMapping):
        key, value = (make_check(part, where) for part in parts)
        return _mapping(annotation, key, value)
    kinds = {
        list: (list,),
        tuple: (tuple,),
        set: (set,),
        frozenset: (frozenset,),
        abc.Set: (set, frozenset),
        abc.MutableSequence: (list,),
        abc.Sequence: (list, tuple),
        abc.Collection: (list, tuple, set, frozenset),
        abc.Iterable: (list, tuple, set, frozenset),
    }.get(origin)
    if kinds is None:
        raise TypeError(
            f"{where}, {annotation!r}, is none that a guest's argument can be checked against; "
            "give check=False to pass arguments on unchecked"
        )
    return _items(annotation, kinds, make_check(parts[0], where))


def _items(annotation: Any, kinds: tuple[type, ...], item: Check | None) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) not in kinds:
            raise _wrong(where, _name_of_container(annotation), value)
        if item is not None:
            for at, member in enumerate(value):
                item(member, f"{where}[{at}]")

    return check


def _fixed_tuple(annotation: Any, checks: list[Check | None]) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not tuple or len(value) != len(checks):
            raise _wrong(where, _name_of_container(annotation), value)
        for at, (member, item) in enumerate(zip(value, checks, strict=True)):
            if item is not None:
                item(member, f"{where}[{at}]")

    return check


def _mapping(annotation: Any, key: Check | None, item: Check | None) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _wrong(where, _name_of_container(annotation), value)
        for name, member in value.items():
            if key is not None:
                key(name, f"{where}: a key")
            if item is not None:
                item(member, f"{where}[{_key(name)}]")

    return check


def _key(key: Any) -> str:
    """Name a key of a guest, however large it is."""
    if type(key) is str:
        return repr(key[:100])
    if type(key) in (bool, float, type(None)) or (type(key) is int and key.bit_length() < 200):
        return repr(key)
    return f"<{type(key).__name__}>"


def _name_of_container(annotation: Any) -> str:
    return str(annotation).removeprefix("typing.").removeprefix("collections.abc.")

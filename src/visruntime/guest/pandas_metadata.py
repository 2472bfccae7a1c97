"""What a table may say about the frame that it was, before pandas is asked what that means.

pandas makes a type of any text that it finds there, and some texts name files: a time zone of
``dateutil//a/path`` is opened and read whole, wherever it is, and whatever stands there by then. So
such texts are of a closed list, and zones are keys of the zone database.

Standard library only.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["check_types", "check_zone"]

MAX_BYTES = 16 << 20
"""Bytes of such metadata, which takes some twenty times as much when it is read: 100,000 columns."""

MAX_LEVEL_NAME, MAX_LEVEL_NAMES = 1 << 10, 1 << 16
"""Characters of the name of a column, and of all together, where names have levels, which pyarrow reads
as expressions of Python, with some 500 times as much memory, or are times or numbers."""
_TEXTS = (None, "unicode", "string", "empty")

_NAME = "[A-Za-z0-9_+-]{1,64}"
_ZONE = rf"(?:{_NAME}(?:/{_NAME}){{0,4}}|[+-][0-9]{{2}}:[0-9]{{2}})"
_TIME = "(?:datetime64|timedelta64)"
_TYPES = (
    r"(?:object|bool|boolean|category|str|string|unicode|bytes|date|time|decimal|empty"
    r"|datetime|datetimetz|timedelta|timedelta64|categorical|floating|integer|period|interval"
    r"|mixed[a-z-]{0,32}"
    r"|[Uu]?[Ii]nt(?:8|16|32|64)|[Ff]loat(?:16|32|64)|complex(?:64|128)"
    rf"|{_TIME}(?:\[(?:D|s|ms|us|ns)\])?"
    rf"|datetime64\[(?:s|ms|us|ns), (?P<zone>{_ZONE})\]"
    r"|(?:string|[a-z0-9_]{1,16})\[(?:python|pyarrow|pyarrow_numpy)\]"
    r"|period\[[A-Z]{1,3}(?:-[A-Z]{3})?\]"
    r"|interval\[(?:int64|float64|datetime64\[ns\]), (?:left|right|both|neither)\])"
)
"""What pyarrow writes as ``numpy_type`` and ``pandas_type`` for the frames of pandas."""


def check_zone(zone: object) -> None:
    """Refuse a time zone that is neither a key of the zone database nor hours and minutes.

    Raises:
        ValueError: it is such a one.
    """
    if (
        not isinstance(zone, str)
        or re.fullmatch(_ZONE, zone) is None
        or zone.lower().startswith("dateutil/")
    ):
        raise ValueError(f"a table with a time zone that is no name of one: {zone!r:.80}")


def check_types(metadata: bytes, names: Sequence[str] = ()) -> None:
    """Refuse metadata by which pandas would make a type that is not of the list.

    Args:
        metadata: what the schema says.
        names: of its columns.

    Raises:
        ValueError: it is such, or none; the message says how the table can be read without.
    """
    if len(metadata) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES >> 20} MiB of metadata for pandas")
    try:
        told = json.loads(metadata)
    except RecursionError:
        raise ValueError("metadata for pandas that is nested without end") from None
    (told,) = _listed([told])
    _check_columns(told.get("columns", []), ("numpy_type",))
    # Of the names of columns pandas makes the other type too.
    levels = told.get("column_indexes", [])
    _check_columns(levels, ("numpy_type", "pandas_type"))
    if len(levels) > 1 or any(level.get("pandas_type") not in _TEXTS for level in levels):
        _check_names(told, names)


def _check_names(told: dict[str, Any], names: Sequence[str]) -> None:
    """Bound the names of columns, where pyarrow and pandas make something else than a text of them."""
    read: list[Any] = [*names]
    for column in _listed(told.get("columns", [])):
        read += [column.get("name"), column.get("field_name")]
    indexes = told.get("index_columns", [])
    if type(indexes) is not list:
        raise ValueError("metadata for pandas that is none")
    read += [each for each in indexes if not isinstance(each, dict)]
    for each in indexes:
        if isinstance(each, dict):  # a range
            read.append(each.get("name"))
    if not all(isinstance(name, str | None) for name in read):
        raise ValueError("metadata for pandas with a name that is no text")
    sizes = [len(name) for name in read if name is not None]
    if sum(sizes) > MAX_LEVEL_NAMES or max(sizes, default=0) > MAX_LEVEL_NAME:
        raise ValueError(
            "a table with levels of columns, or names that are no texts, and more than "
            f"{MAX_LEVEL_NAME} characters in one of them, or {MAX_LEVEL_NAMES} together"
        )


def _check_columns(columns: object, keys: tuple[str, ...]) -> None:
    for column in _listed(columns):
        for key in keys:
            _check_type(column.get(key))
        more = column.get("metadata")
        if isinstance(more, dict) and more.get("timezone") is not None:
            check_zone(more["timezone"])


def _listed(columns: object) -> list[dict[str, Any]]:
    if not isinstance(columns, list) or not all(isinstance(each, dict) for each in columns):
        raise ValueError("metadata for pandas that is none")
    return columns


def _check_type(name: object) -> None:
    if name is None:
        return
    found = re.fullmatch(_TYPES, name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(
            f"a table whose metadata for pandas names the type {name!r:.80}: "
            "to_arrow().to_pandas(ignore_metadata=True) reads it without"
        )
    if found["zone"] is not None:
        check_zone(found["zone"])

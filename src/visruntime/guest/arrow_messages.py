"""What the headers of an Arrow IPC stream say, before pyarrow makes a table of it.

A table that a guest wrote must take no more memory than the bytes that came, and no more time than
these. pyarrow reads offsets as they are: in FlatBuffers many offsets may lead to one text or one
field, and in a batch many columns may name the same bytes. So each is counted as often as it is
named, and there may be no more of them than there are bytes.

The numbers are those of Message.fbs and Schema.fbs of Arrow (format version 5). pyarrow has verified
a header before we see it, so no offset leads out of it, and has no name for what we ask.

Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Messages"]

MAX_LOOKED_AT = 4 << 30
"""Bytes of dictionaries that pyarrow looks at in one table: it does so again for each batch."""

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""The key by which Arrow 0.17 said it, which all later ones understand."""
_COMPRESSED = "a table that is compressed: a few bytes of it could fill the memory"
_TIMESTAMP = 10
_VIEWS = range(23, 27)
"""BinaryView, Utf8View, ListView and LargeListView: many items may show the same bytes, and to look
whether a text is UTF-8 is to read it as often as it is shown."""
_FIELD_BYTES = 16
"""A field that is written once takes more: three offsets, a type and a vector."""


class Messages:
    """The messages of one stream, one after the other."""

    __slots__ = ("_dictionaries", "_looked_at")

    def __init__(self) -> None:
        self._dictionaries: dict[int, int] = {}  # bytes of each, by its number
        self._looked_at = 0

    def check(self, header: memoryview, body: int) -> None:
        """Refuse a message of which pyarrow would make more than the bytes that came.

        Args:
            header: the metadata of the message.
            body: how many bytes follow it.

        Raises:
            ValueError: it is such a one; the message says why.
        """
        message = _follow(header, 0)
        kind = _number(header, _field(header, message, 1), 1)
        table = _table(header, message, 2)
        if kind == _SCHEMA:
            _check_schema(header, message, table)
        elif kind == _DICTIONARY:
            if _number(header, _field(header, table, 2), 1):
                raise ValueError("a table that adds to a dictionary: each addition is a copy of it")
            self._dictionaries[_number(header, _field(header, table, 0), 8)] = body
            table = _table(header, table, 1)
        elif kind == _BATCH:
            self._looked_at += sum(self._dictionaries.values())
            if self._looked_at > MAX_LOOKED_AT:
                raise ValueError("a table with a large dictionary and too many batches")
        if kind in (_DICTIONARY, _BATCH):
            _check_compression(header, table)
            _check_buffers(header, table, body)
        if _OLD_COMPRESSION in bytes(header):
            raise ValueError(_COMPRESSED)


def _check_compression(header: memoryview, batch: int) -> None:
    if _field(header, batch, 3):
        raise ValueError(_COMPRESSED)


def _check_schema(header: memoryview, message: int, schema: int) -> None:
    if _number(header, _field(header, schema, 0), 2):
        raise ValueError("a table whose numbers are not little-endian")
    room = len(header) - _pairs(header, message, 4) - _pairs(header, schema, 2)
    levels = [_entries(header, schema, 1)]
    while levels and room >= 0:
        field = next(levels[-1], None)
        if field is None:
            levels.pop()
            continue
        kind = _number(header, _field(header, field, 2), 1)
        if kind in _VIEWS:
            raise ValueError("a table with a column of views: cast it to texts, bytes or lists")
        room -= _FIELD_BYTES + _text(header, field, 0) + _pairs(header, field, 6)
        if kind == _TIMESTAMP:
            room -= _text(header, _table(header, field, 3), 1)
        levels.append(_entries(header, field, 5))
    if room < 0:
        raise ValueError("a table whose schema says the same many times")


def _check_buffers(header: memoryview, batch: int, body: int) -> None:
    place = _field(header, batch, 2)
    if not place:
        return
    vector = _follow(header, place)
    count = _number(header, vector, 4)
    numbers = header[vector + 4 : vector + 4 + 16 * count].tobytes()
    words = memoryview(numbers).cast("q").tolist()
    end = 0
    for start, size in sorted(zip(words[::2], words[1::2], strict=True)):
        if size == 0:
            continue
        if size < 0 or start < end:
            raise ValueError("a table that uses bytes for more than one column")
        end = start + size
    if end > body:
        raise ValueError("a table with fewer bytes than it says")


def _pairs(data: memoryview, table: int, index: int) -> int:
    """Bytes of the pairs of texts in that field, each counted as often as it is named."""
    return sum(
        8 + _text(data, pair, 0) + _text(data, pair, 1) for pair in _entries(data, table, index)
    )


def _text(data: memoryview, table: int, index: int) -> int:
    """Bytes of the text in that field."""
    place = _field(data, table, index)
    return _number(data, _follow(data, place), 4) if place else 0


def _table(data: memoryview, table: int, index: int) -> int:
    """Where the table in that field is.

    Raises:
        ValueError: there is none.
    """
    place = _field(data, table, index)
    if not place:
        raise ValueError("a message without what it is about")
    return _follow(data, place)


def _entries(data: memoryview, table: int, index: int) -> Iterator[int]:
    """Where the tables of the vector in that field are."""
    place = _field(data, table, index)
    if not place:
        return
    vector = _follow(data, place)
    for entry in range(vector + 4, vector + 4 + 4 * _number(data, vector, 4), 4):
        yield _follow(data, entry)


def _number(data: memoryview, place: int, size: int) -> int:
    """The unsigned number at *place*; 0, as FlatBuffers has it, for a field that is not there."""
    return int.from_bytes(data[place : place + size], "little") if place else 0


def _follow(data: memoryview, place: int) -> int:
    """Where the offset at *place* leads."""
    return place + int.from_bytes(data[place : place + 4], "little")


def _field(data: memoryview, table: int, index: int) -> int:
    """Where the field of a table is; 0 if it has none."""
    layout = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    entry = 4 + 2 * index
    if layout < 0 or entry >= int.from_bytes(data[layout : layout + 2], "little"):
        return 0
    offset = int.from_bytes(data[layout + entry : layout + entry + 2], "little")
    return table + offset if offset else 0

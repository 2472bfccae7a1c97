"""What the headers of an Arrow IPC stream say, before pyarrow sees it.

A table that a guest wrote must take memory and time by the bytes that came, and pyarrow makes what
a header says: in FlatBuffers many offsets may lead to one text or one field, in a batch many columns
may name the same bytes, and a column of no rows takes 16 bytes but some hundred when it is made. So
all of it is walked here first, with each offset held to the header that it is in, and what pyarrow
would make of it is counted.

The numbers are those of Message.fbs and Schema.fbs of Arrow (format version 5).

Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BYTES_MADE", "BYTES_MADE_AT_LEAST", "MAX_LOOKED_AT", "check_stream"]

BYTES_MADE = 4
"""Bytes that pyarrow may make of the headers of a table, for each byte of the table."""
BYTES_MADE_AT_LEAST = 64 << 20
"""Bytes that it may make of any table, however small."""
MAX_LOOKED_AT = 4 << 30
"""Bytes of dictionaries that pyarrow looks at in one table: it does so for each column that names
one, again for each batch."""

_CONTINUES = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_TIMESTAMP, _UNION = 10, 14
_RUN_END_ENCODED = 22
"""The last type of Schema.fbs that is no view."""
_VIEWS = range(23, 27)
"""BinaryView, Utf8View, ListView and LargeListView: many items may show the same bytes, and to look
whether a text is UTF-8 is to read it as often as it is shown."""

_EXTENSION = b"ARROW:extension:name"
_EXTENSION_DATA = b"ARROW:extension:metadata"
_EXTENSIONS = frozenset(
    b"arrow.bool8 arrow.json arrow.uuid pandas.interval pandas.period".split()  # as pyarrow knows them
)
"""Another name brings the parser of a library of the host's to what the guest wrote there, and some of
those unpickle."""
_EXTENSION_DATA_BYTES = 100

# What pyarrow makes of each, in bytes: measured for columns of each type, and rounded up.
_MESSAGE_BYTES = 600
_FIELD_BYTES = 600
_UNION_BYTES = 700
_NODE_BYTES = 450
_BUFFER_BYTES = 160
_PAIR_BYTES = 200
_TEXT_COPIES = 4

_BROKEN = "no table: an offset leads out of its message"
_OFTEN = "a table whose schema says the same many times"


def check_stream(data: memoryview) -> set[bytes]:
    """Refuse a stream of which pyarrow would make much more than the bytes that came.

    Returns:
        The time zones of its columns.

    Raises:
        ValueError: it is such a one, or none; the message says why.
    """
    messages = Messages(len(data))
    place = 0
    while place < len(data):
        mark = _read(data, place, 4)
        if mark == 0:
            break
        if mark != _CONTINUES:
            raise ValueError("no table, or one as Arrow wrote them before 0.15")
        size = _read(data, place + 4, 4)
        if size == 0:
            break
        place += 8
        if place + size > len(data):
            raise ValueError("a table that ends too early")
        place += size
        body = messages.check(data[place - size : place])
        if place + body > len(data):
            raise ValueError("a table that ends too early")
        place += body
    return messages.zones


class Messages:
    """The messages of one stream, one after the other."""

    __slots__ = ("_looked_at", "_named", "_room", "_sizes", "_uses", "zones")

    def __init__(self, size: int) -> None:
        """Begin.

        Args:
            size: how many bytes the stream has.
        """
        self.zones: set[bytes] = set()
        self._room = BYTES_MADE * size + BYTES_MADE_AT_LEAST
        self._uses: dict[int, int] | None = None  # how many columns name each dictionary
        self._sizes: dict[int, int] = {}  # bytes of each, as it is now
        self._named = 0  # bytes of all, counted for each column that names them
        self._looked_at = 0

    def check(self, header: memoryview) -> int:
        """Return how many bytes follow the message with that header.

        Raises:
            ValueError: pyarrow would make too much of it, or it is none; the message says why.
        """
        message = _follow(header, 0)
        kind = _number(header, _field(header, message, 1), 1)
        table = _table(header, message, 2)
        body = _number(header, _field(header, message, 3), 8)
        if next(_entries(header, message, 4), None) is not None:
            raise ValueError("a table with metadata beside its schema")
        self._make(_MESSAGE_BYTES)
        if kind == _SCHEMA:
            self._check_schema(header, table)
        elif kind == _DICTIONARY:
            self._check_dictionary(header, table, body)
        elif kind == _BATCH:
            self._looked_at += self._named
            if self._looked_at > MAX_LOOKED_AT:
                raise ValueError("a table with a large dictionary, and too many batches or columns")
            self._check_batch(header, table, body)
        else:
            raise ValueError("a table with a message that is no part of one")
        return body

    def _make(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ValueError(
                "a table with many columns or batches and little in them: it would take more than "
                f"{BYTES_MADE} times its bytes and {BYTES_MADE_AT_LEAST >> 20} MiB (combine_chunks "
                "makes fewer batches)"
            )

    def _check_schema(self, header: memoryview, schema: int) -> None:
        if self._uses is not None:
            raise ValueError("a table with a second schema")
        if _number(header, _field(header, schema, 0), 2):
            raise ValueError("a table whose numbers are not little-endian")
        uses = self._uses = {}
        tables = _Tables(header)
        self._pairs(tables, schema, 2)
        levels = [tables.entries(schema, 1)]
        while levels:
            field = next(levels[-1], None)
            if field is None:
                levels.pop()
                continue
            kind = _number(header, _field(header, field, 2), 1)
            if kind in _VIEWS:
                raise ValueError("a table with a column of views: cast it to texts, bytes or lists")
            if kind > _RUN_END_ENCODED:
                raise ValueError("a table with a column of an unknown type")
            self._make(_FIELD_BYTES + (_UNION_BYTES if kind == _UNION else 0))
            self._text(tables, field, 0)
            self._pairs(tables, field, 6)
            if _field(header, field, 3):
                of_kind = tables.table(field, 3)
                if kind == _TIMESTAMP:
                    self._text(tables, of_kind, 1)
                    zone = _bytes(header, of_kind, 1)
                    self.zones.update([zone] if zone else [])
            if _field(header, field, 4):
                encoding = tables.table(field, 4)
                if _field(header, encoding, 1):
                    tables.table(encoding, 1)
                number = _number(header, _field(header, encoding, 0), 8)
                uses[number] = uses.get(number, 0) + 1
            levels.append(tables.entries(field, 5))

    def _pairs(self, tables: _Tables, table: int, index: int) -> None:
        for pair in tables.entries(table, index):
            self._make(_PAIR_BYTES)
            self._text(tables, pair, 0)
            self._text(tables, pair, 1)
            key = _bytes(tables.header, pair, 0, len(_EXTENSION_DATA))
            if key == _EXTENSION:
                name = _bytes(tables.header, pair, 1, 100)
                if name not in _EXTENSIONS:
                    raise ValueError(
                        "a table with a column of the extension type "
                        f"{name.decode(errors='replace')!r}: send what it stores (its .storage)"
                    )
            size = _vector(tables.header, pair, 1, 1)[1]
            if key == _EXTENSION_DATA and size > _EXTENSION_DATA_BYTES:
                raise ValueError(
                    "a table with a column of an extension type with more than "
                    f"{_EXTENSION_DATA_BYTES} bytes of parameters"
                )

    def _text(self, tables: _Tables, table: int, index: int) -> None:
        self._make(_TEXT_COPIES * tables.text(table, index))

    def _check_dictionary(self, header: memoryview, table: int, body: int) -> None:
        if _number(header, _field(header, table, 2), 1):
            raise ValueError("a table that adds to a dictionary: each addition is a copy of it")
        number = _number(header, _field(header, table, 0), 8)
        uses = 0 if self._uses is None else self._uses.get(number, 0)
        if not uses:
            raise ValueError("a table with a dictionary that no column names")
        size = len(header) + body
        self._named += uses * (size - self._sizes.get(number, 0))
        self._sizes[number] = size
        self._check_batch(header, _table(header, table, 1), body)

    def _check_batch(self, header: memoryview, batch: int, body: int) -> None:
        if _field(header, batch, 3):
            raise ValueError("a table that is compressed: a few bytes of it could fill the memory")
        _, nodes = _vector(header, batch, 1, 16)
        first, buffers = _vector(header, batch, 2, 16)
        self._make(nodes * _NODE_BYTES + buffers * _BUFFER_BYTES)
        words = memoryview(header[first : first + 16 * buffers].tobytes()).cast("q").tolist()
        end = 0
        for start, size in sorted(zip(words[::2], words[1::2], strict=True)):
            if size == 0:
                continue
            if size < 0 or start < end:
                raise ValueError("a table that uses bytes for more than one column")
            end = start + size
        if end > body:
            raise ValueError("a table with fewer bytes than it says")


class _Tables:
    """The tables and texts of one schema: none is reached by two ways."""

    __slots__ = ("_reached", "_texts", "header")

    def __init__(self, header: memoryview) -> None:
        self.header = header
        self._reached: set[int] = set()
        self._texts = len(header)  # bytes that all texts together may have

    def _reach(self, table: int) -> int:
        if table in self._reached:
            raise ValueError(_OFTEN)
        self._reached.add(table)
        return table

    def table(self, table: int, index: int) -> int:
        """Where the table in that field is."""
        return self._reach(_table(self.header, table, index))

    def entries(self, table: int, index: int) -> Iterator[int]:
        """Where the tables of the vector in that field are."""
        return map(self._reach, _entries(self.header, table, index))

    def text(self, table: int, index: int) -> int:
        """Bytes of the text in that field."""
        _, size = _vector(self.header, table, index, 1)
        self._texts -= size
        if self._texts < 0:
            raise ValueError(_OFTEN)
        return size


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
    first, count = _vector(data, table, index, 4)
    for entry in range(first, first + 4 * count, 4):
        yield _follow(data, entry)


def _vector(data: memoryview, table: int, index: int, size: int) -> tuple[int, int]:
    """Where the first item of the vector in that field is, each of *size* bytes, and how many."""
    place = _field(data, table, index)
    if not place:
        return 0, 0
    vector = _follow(data, place)
    count = _read(data, vector, 4)
    if vector + 4 + size * count > len(data):
        raise ValueError(_BROKEN)
    return vector + 4, count


def _bytes(data: memoryview, table: int, index: int, most: int | None = None) -> bytes:
    """Return the text in that field, or its first *most* bytes."""
    first, size = _vector(data, table, index, 1)
    return data[first : first + (size if most is None else min(size, most))].tobytes()


def _follow(data: memoryview, place: int) -> int:
    """Where the offset at *place* leads."""
    return place + _read(data, place, 4)


def _field(data: memoryview, table: int, index: int) -> int:
    """Where the field of a table is; 0 if it has none."""
    back = _read(data, table, 4)
    layout = table - (back - (back >> 31 << 32))  # signed
    if layout < 0:
        raise ValueError(_BROKEN)
    entry = 4 + 2 * index
    if entry >= _read(data, layout, 2):
        return 0
    offset = _read(data, layout + entry, 2)
    return table + offset if offset else 0


def _number(data: memoryview, place: int, size: int) -> int:
    """The unsigned number at *place*; 0, as FlatBuffers has it, for a field that is not there."""
    return _read(data, place, size) if place else 0


def _read(data: memoryview, place: int, size: int) -> int:
    if place + size > len(data):
        raise ValueError(_BROKEN)
    return int.from_bytes(data[place : place + size], "little")

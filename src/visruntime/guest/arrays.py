"""Arrays and tables: values whose bytes cross beside the frames, in sealed memory.

Both sides use it; a worker loads it with its first array. What a guest sends is checked field by
field here, and nothing of it names a type, a class or code: a data type is one of a closed list,
and its size times the shape is exactly the bytes that came.

Standard library only; numpy and pyarrow are used where somebody else has imported them, or asks for it.
"""

from __future__ import annotations

import sys

from .limits import BESIDE_BYTES

TYPE_CHECKING = False  # typing costs a worker's start-up more than this module does
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any, ClassVar

    Importing = Callable[[str], AbstractContextManager[bool]]
    """Given a library's name: what is entered while it is imported and works, since it imports more
    when it meets the data. True says that only imports of this thread are watched."""

__all__ = [
    "Array",
    "Table",
    "convert_array",
    "convert_table",
    "item_size",
    "reduce_array",
    "reduce_octets",
    "reduce_stored",
]

BUFFER = 0x2C
ARRAY = 0x2D
TABLE = 0x2E
BLOB = 0x31

MAX_DIMENSIONS = 32
INLINE_BYTES = 32 * 1024
"""What is smaller crosses in the frame: a buffer of its own costs more than the copy."""

_SIZES = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8),
    "c": (8, 16),
    "M": (8,),
    "m": (8,),
}
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_MAX_TEXT = 1 << 20
"""Characters of one text or bytes item."""
_TEXT_STEP = 1 << 20
"""Bytes of text that are looked at together."""
_ORDER = b"\xff\xfe\0\0"
"""The mark of little-endian order, which no later bytes can change."""
_PLANES = bytes(range(0x11))
"""The third byte of a code point, in little-endian order, up to U+10FFFF."""


def item_size(dtype: object) -> int:
    """Return the bytes of one item of a data type in numpy's spelling, such as ``"<f8"``.

    Raises:
        ValueError: it is no type of plain, little-endian data.
    """
    if type(dtype) is not str or not 3 <= len(dtype) <= 20 or not dtype.isascii():
        raise ValueError("not a data type")
    order, kind, rest = dtype[0], dtype[1], dtype[2:]
    digits, bracket, unit = rest.partition("[")
    if not digits.isdigit() or digits != str(int(digits)):
        raise ValueError("not a data type")
    size = int(digits)
    if kind in "Mm":
        if not bracket or unit[-1:] != "]" or unit[:-1] not in _UNITS:
            raise ValueError("not a unit of time")
    elif bracket:
        raise ValueError("not a data type")
    if kind in "SU":
        if not 1 <= size <= _MAX_TEXT:
            raise ValueError("not a size of text")
        right_order = "|" if kind == "S" else "<"
        size *= 1 if kind == "S" else 4
    elif kind in _SIZES and size in _SIZES[kind]:
        right_order = "|" if size == 1 else "<"
    else:
        raise ValueError("not a data type")
    if order != right_order:
        raise ValueError("not little-endian")
    return size


def _is_text(view: memoryview) -> bool:
    """Whether *view* holds code points of 4 bytes and nothing above U+10FFFF.

    numpy makes a str of any number, and CPython relies on there being none above: writing such a
    str as XML overruns the heap.
    """
    for start in range(0, len(view), _TEXT_STEP):
        part = _ORDER + view[start : start + _TEXT_STEP]
        try:
            part.decode("utf-32")  # the quickest look; this name needs no module
        except UnicodeDecodeError:
            # Lone surrogates may be there.
            if part[3::4].strip(b"\0") or part[2::4].strip(_PLANES):
                return False
    return True


def _is_bools(view: memoryview) -> bool:
    """Whether *view* holds nothing but 0 and 1: libraries index and add up by what is there."""
    return not any(
        view[start : start + _TEXT_STEP].tobytes().translate(None, b"\0\1")
        for start in range(0, len(view), _TEXT_STEP)
    )


class Array:
    """An n-dimensional array of plain data, in C order: what numpy makes an array of at no cost.

    ``dtype`` is numpy's spelling of the type (``"<f8"``), ``shape`` a tuple of ints and ``data`` a
    memoryview of its bytes, read-only at the host. ``numpy.asarray`` takes one without a copy.
    ``importing``, where there is one, is given a library's name and entered while that works.
    """

    __slots__ = ("data", "dtype", "importing", "shape")

    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    importing: Importing | None

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes | memoryview) -> None:
        size = item_size(dtype)
        if type(shape) is not tuple or len(shape) > MAX_DIMENSIONS:
            raise ValueError("not a shape")
        extent = size
        for length in shape:
            if type(length) is not int or not 0 <= length < 1 << 47:
                raise ValueError("not a shape")
            size *= length
            extent *= length or 1  # numpy takes no shape over this, though nothing is in it
        if extent >= 1 << 63:
            raise ValueError("not a shape")
        view = memoryview(data).cast("B")
        if len(view) != size:
            raise ValueError(f"{len(view)} bytes for an array of {size}")
        if dtype[1] == "U" and not _is_text(view):
            raise ValueError("text above U+10FFFF")
        if dtype[1] == "b" and not _is_bools(view):
            raise ValueError("a bool that is neither 0 nor 1")
        self.importing = None
        self.dtype = dtype
        self.shape = shape
        self.data = view

    def __repr__(self) -> str:
        return f"<Array {self.dtype} {self.shape}>"

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self.dtype, self.shape) == (other.dtype, other.shape) and self.data == other.data

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": self.dtype, "shape": self.shape, "data": self.data}

    def numpy(self) -> Any:
        """Return it as a numpy array over the same memory; needs numpy.

        Raises:
            ImportError: there is no numpy here, or it is not imported yet and a guest may write
                where Python looks for it.
        """
        if self.importing is None:
            return self._numpy()
        with self.importing("numpy"):
            return self._numpy()

    def _numpy(self) -> Any:
        import numpy

        flat = numpy.frombuffer(self.data, self.dtype) if len(self.data) else None
        if flat is None:
            return numpy.empty(self.shape, self.dtype)
        return flat.reshape(self.shape)


class Table:
    """A table as an Arrow IPC stream: ``data`` is a memoryview of its bytes.

    The host does not look into it unasked: parsing is the work of a large library, which must
    then be trusted with what a guest wrote. ``importing`` is as in `Array`.
    """

    __slots__ = ("data", "importing")

    data: memoryview
    importing: Importing | None

    def __init__(self, data: bytes | memoryview) -> None:
        self.importing = None
        self.data = memoryview(data).cast("B")

    def __repr__(self) -> str:
        return f"<Table, {len(self.data)} bytes of Arrow IPC>"

    def to_arrow(self) -> Any:
        """Return it as a ``pyarrow.Table`` over the same memory; needs pyarrow 14.0.1 or newer.

        Older ones run code that a table brings along (CVE-2023-47248), so they get none.

        What it makes takes at most four times the bytes that came, and 64 MiB: the columns show these
        bytes, and the rest is what pyarrow keeps about columns and batches. To look at it takes time by
        the bytes too, and by 4 GiB of dictionaries. So a table is refused that has more columns and
        batches than that, is compressed, in the order of another machine, adds to a dictionary, uses
        bytes twice, has columns of views, or metadata of single batches; a worker writes none.

        Raises:
            ImportError: there is no pyarrow here, or an older one; or it is not imported yet and a
                guest may write where Python looks for it.
            ValueError: the data is no valid stream (``pyarrow.ArrowInvalid`` is one), or such a one.
            OSError, pyarrow.ArrowException: it ends too early, or has what pyarrow does not know.
        """
        if self.importing is None:
            return self._read()[0]
        with self.importing("pyarrow"):
            return self._read()[0]

    def _read(self) -> tuple[Any, set[bytes]]:
        """Return the table, and the time zones of its columns."""
        import pyarrow

        from .arrow_messages import check_stream

        if _release(pyarrow.__version__) < _SAFE_ARROW:
            raise ImportError(
                f"pyarrow {pyarrow.__version__} unpickles what a table brings along "
                "(CVE-2023-47248); install pyarrow 14.0.1 or newer"
            )
        zones = check_stream(self.data)
        with pyarrow.ipc.open_stream(pyarrow.py_buffer(self.data)) as stream:
            table = stream.read_all()
        table.validate(full=True)
        return table, zones

    def to_pandas(self) -> Any:
        """Return it as a ``pandas.DataFrame``; needs pandas, and pyarrow as :meth:`to_arrow`.

        How much memory that takes is up to whoever wrote the table: a column of nulls has any number
        of rows in no bytes. Look at ``to_arrow().num_rows`` and the types first.

        A table may say of which types of pandas it was. pandas would make some of them from files that
        the table names, so such a table is refused, and one with a time zone that is no name of one;
        ``to_arrow().to_pandas(ignore_metadata=True)`` reads it without what it says.

        Raises:
            ImportError, ValueError, OSError, pyarrow.ArrowException: as :meth:`to_arrow`.
            ValueError: it names a type or a time zone that is not of the list.
        """
        if self.importing is None:
            return self._frame(use_threads=True)
        # A time zone is looked for among modules, and where it is nested, by a thread of pyarrow.
        with self.importing("pandas") as alone:
            return self._frame(use_threads=not alone)

    def _frame(self, *, use_threads: bool) -> Any:
        from .pandas_metadata import check_types, check_zone

        if self.importing is None:
            table, zones = self._read()
        else:
            with self.importing("pyarrow"):
                table, zones = self._read()
        told = (table.schema.metadata or {}).get(b"pandas")
        if told is not None:
            check_types(told, table.column_names)
        for zone in zones:
            check_zone(zone.decode("utf-8", "replace"))
        try:
            return table.to_pandas(use_threads=use_threads)
        except (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError) as error:
            # What it says of the frame that it was is not what pyarrow and pandas write.
            raise ValueError(f"metadata for pandas that is none: {error!r:.200}") from None


_SAFE_ARROW = (14, 0, 1)
"""The first pyarrow that does not unpickle the metadata of a schema unasked."""


def _release(version: object) -> tuple[int, ...]:
    """The first three numbers of a version; what is not understood is older than everything."""
    numbers = []
    for part in str(version).split(".")[:3]:
        if not part.isascii() or not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


# ---- taking apart ----

if TYPE_CHECKING:
    Store = Callable[[memoryview], tuple[int, int] | None]
    """Keeps bytes in a buffer of their own and returns its number and size; None: in the frame."""


def reduce_array(value: Any, store: Store) -> tuple[Any, ...] | None:
    """Take apart what numpy, pyarrow or pandas made, and our own; None for anything else.

    ``(None, other)`` says that *other* is to cross instead.
    """
    if type(value) is Array:
        return (ARRAY, value.dtype, value.shape, _place(value.data, store))
    if type(value) is Table:
        return (TABLE, _place(value.data, store))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.ndarray):
            return _reduce_ndarray(numpy, value, store)
        if isinstance(value, numpy.generic):
            return _reduce_scalar(value)
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        if isinstance(value, pyarrow.RecordBatch):
            value = pyarrow.Table.from_batches([value])
        if isinstance(value, pyarrow.Table):
            return _reduce_table(pyarrow, value, store)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return _reduce_frame(value, store)
    return None


def reduce_octets(value: Any, store: Store) -> tuple[Any, ...] | None:
    """Take apart large bytes and bytearrays, and memoryviews of bytes; None for anything else."""
    kind = type(value)
    if kind is memoryview:
        if value.format not in ("B", "b", "c") or value.ndim != 1 or not value.contiguous:
            return None
        if len(value) <= BESIDE_BYTES:
            return (None, bytes(value))
    elif kind not in (bytes, bytearray):
        return None
    try:
        stored = store(memoryview(value).cast("B"))
    except ValueError:  # so many buffers are out that these go with the frame
        stored = None
    if stored is None:
        return (None, bytes(value)) if kind is memoryview else None
    return (BLOB, int(kind is bytearray), _Stored(*stored))


def _reduce_ndarray(numpy: Any, value: Any, store: Store) -> tuple[Any, ...] | None:
    if type(value) not in (numpy.ndarray, numpy.memmap):
        return None  # what it means beside its numbers, such as a mask, would be lost
    value = value.view(numpy.ndarray)
    kind = value.dtype.newbyteorder("<")
    try:
        item_size(kind.str)
    except ValueError:
        return None  # objects, records, long doubles: no plain data
    flat = numpy.ascontiguousarray(value, kind)
    flat = flat.reshape(-1).view("|u1") if flat.size else numpy.empty(0, "|u1")
    if kind.kind == "b" and not _is_bools(memoryview(flat)):
        flat = (flat != 0).view("|u1")  # as numpy reads them
    if kind.kind == "U" and not _is_text(memoryview(flat)):
        return None  # no text either
    return (ARRAY, kind.str, value.shape, _place(memoryview(flat), store))


def _reduce_scalar(value: Any) -> tuple[Any, ...] | None:
    plain = value.item()
    # Dates of nanoseconds become ints, which would be another value; long doubles stay.
    if type(plain) in (bool, int, float, complex, str, bytes) and value.dtype.kind not in "Mm":
        return (None, plain)
    return None


def _reduce_table(pyarrow: Any, table: Any, store: Store) -> tuple[Any, ...] | None:
    table = _without_views(pyarrow, table)
    if table is None:
        return None
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return (TABLE, _place(memoryview(sink.getvalue()), store))


def _without_views(pyarrow: Any, table: Any) -> Any:
    """Return *table* with plain texts and bytes for views of some; None where that cannot be."""
    fields = []
    for field in table.schema:
        name = str(field.type)
        if name in ("string_view", "binary_view"):
            plain = pyarrow.large_string if name == "string_view" else pyarrow.large_binary
            fields.append(field.with_type(plain()))
        elif "_view" in name:
            return None
        else:
            fields.append(field)
    schema = pyarrow.schema(fields, table.schema.metadata)
    if schema == table.schema:
        return table
    try:
        return table.cast(schema)
    except pyarrow.ArrowException:  # of an older version, which has no such cast
        return None


def _reduce_frame(value: Any, store: Store) -> tuple[Any, ...] | None:
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None:
        return None  # to import it is not for us to decide, in a host least of all
    try:
        table = pyarrow.Table.from_pandas(value, nthreads=1)  # the host watches this one
    except Exception:
        return None
    return _reduce_table(pyarrow, table, store)


def _place(data: memoryview, store: Store) -> Any:
    data = data.cast("B")
    stored = store(data) if len(data) > INLINE_BYTES else None
    return bytes(data) if stored is None else _Stored(*stored)


class _Stored:
    """Names a buffer in an encoded value."""

    __slots__ = ("number", "size")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size


def reduce_stored(value: Any) -> tuple[Any, ...] | None:
    """Take the name of a buffer apart; None for anything else."""
    return (BUFFER, value.number, value.size) if type(value) is _Stored else None


# ---- building ----


def convert_array(array: Array) -> Any:
    """Return numpy's own array over the same memory, where there is numpy."""
    try:
        return array.numpy()
    except ImportError:
        return array


def convert_table(table: Table) -> Any:
    """Return a pyarrow.Table over the same memory, where there is pyarrow that takes it."""
    try:
        return table.to_arrow()
    except (ImportError, ValueError):
        return table

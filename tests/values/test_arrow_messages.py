"""A table that a guest wrote takes no more memory and time of the host than its bytes."""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from visruntime.guest import arrow_messages
from visruntime.guest.arrays import Table, convert_table, reduce_array
from visruntime.guest.arrow_messages import _entries, _field, _follow, _table

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

SCHEMA, DICTIONARY, BATCH = 1, 2, 3


def stream(*batches: pyarrow.RecordBatch, **options: Any) -> bytes:
    """Return what pyarrow writes for them."""
    sink = pyarrow.BufferOutputStream()
    chosen = pyarrow.ipc.IpcWriteOptions(**options)
    with pyarrow.ipc.new_stream(sink, batches[0].schema, options=chosen) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def changed(data: bytes, kind: int, change: Callable[[bytearray, int], None]) -> bytes:
    """Return a stream in which *change* has had each header of that kind, and where it begins."""
    out, place = b"", 0
    while True:
        mark, size = struct.unpack_from("<Ii", data, place)
        if size == 0:
            return out + data[place:]
        header = bytearray(data[place + 8 : place + 8 + size])
        message = _follow(memoryview(header), 0)
        length = _field(memoryview(header), message, 3)
        body = struct.unpack_from("<q", header, length)[0] if length else 0
        place += 8 + size
        if header[_field(memoryview(header), message, 1)] == kind:
            change(header, _table(memoryview(header), message, 2))
        out += struct.pack("<Ii", mark, size) + header + data[place : place + body]
        place += body


def one_place(header: bytearray, batch: int) -> None:
    """Have all buffers of a batch begin where the first one does."""
    vector = _follow(memoryview(header), _field(memoryview(header), batch, 2))
    for entry in range(vector + 4, vector + 4 + 16 * header[vector], 16):
        struct.pack_into("<q", header, entry, 0)


def test_what_pyarrow_writes_is_taken() -> None:
    """Tables of all kinds, in several batches, with names, zones and metadata, are no violation."""
    named = pyarrow.array(["a", "b", "a"]).dictionary_encode()
    zone = pyarrow.timestamp("us", "Europe/London")
    columns: dict[str, Any] = {
        "int": pyarrow.array([1, None, 3]),
        "text": pyarrow.array(["a", "", None]),
        "large": pyarrow.array(["a", "", None], pyarrow.large_string()),
        "named": named,
        "deep": pyarrow.array([[{"x": 1, "y": "é"}], [], None]),
        "map": pyarrow.array([[("k", 1)]] * 3, pyarrow.map_(pyarrow.string(), pyarrow.int8())),
        "null": pyarrow.nulls(3),
        "time": pyarrow.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3, zone),
        "fixed": pyarrow.array([[1, 2]] * 3, pyarrow.list_(pyarrow.int16(), 2)),
        "bool": pyarrow.array([True, None, False]),
        "deep names": pyarrow.array([["a"], ["b"], []]).cast(
            pyarrow.list_(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
        ),
    }
    table = pyarrow.table(columns).replace_schema_metadata({"a": "b" * 99, "c": "d"})
    field = pyarrow.field("none", pyarrow.int8(), metadata={"m": "n"})
    for each in (
        *(table, table.slice(1, 1), table.slice(0, 0)),
        pyarrow.concat_tables([table] * 20),
        *(pyarrow.table({}), pyarrow.table([[1]], schema=pyarrow.schema([field]))),
        pyarrow.table({f"column {index}": [index] for index in range(500)}),
    ):
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, each.schema) as writer:
            writer.write_table(each)
        back = Table(memoryview(sink.getvalue())).to_arrow()
        assert back.equals(each, check_metadata=True)


def test_additions_to_a_dictionary_are_refused() -> None:
    """Pyarrow joins all that there are so far for each one: a copy that grows with the square."""
    batches = [
        pyarrow.record_batch([pyarrow.array(["a", "b", "c"][:count]).dictionary_encode()], ["n"])
        for count in (2, 3)
    ]
    data = stream(*batches, emit_dictionary_deltas=True)
    with pyarrow.ipc.open_stream(data) as reader:  # the control
        assert reader.read_all().num_rows == 5
    with pytest.raises(ValueError, match="adds to a dictionary"):
        Table(data).to_arrow()
    assert Table(stream(*batches)).to_arrow().num_rows == 5


def test_bytes_that_several_columns_name_are_refused() -> None:
    """What one column takes is there; a thousand that name it are a thousand times as much work."""
    data = stream(pyarrow.record_batch([pyarrow.array([1, 2])] * 4, ["a", "b", "c", "d"]))
    assert Table(data).to_arrow().num_rows == 2
    shared = changed(data, BATCH, one_place)
    with pyarrow.ipc.open_stream(shared) as reader:  # the control
        assert reader.read_all().to_pydict()["d"] == [1, 2]
    with pytest.raises(ValueError, match="more than one column"):
        Table(shared).to_arrow()
    values = pyarrow.StructArray.from_arrays([pyarrow.array([1]), pyarrow.array([2])], ["a", "b"])
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0], "int8"), values)
    data = stream(pyarrow.record_batch([column], ["n"]))
    assert Table(data).to_arrow().num_rows == 1
    shared = changed(
        data,
        DICTIONARY,
        lambda header, table: one_place(header, _table(memoryview(header), table, 1)),
    )
    with pytest.raises(ValueError, match="more than one column"):
        Table(shared).to_arrow()


def test_texts_that_a_schema_names_often_are_refused() -> None:
    """Four bytes name a text of any length, and pyarrow copies it each time."""
    schema = pyarrow.schema(
        [pyarrow.field("a", "int8")], {"long" * 500: "t" * 50_000} | {f"{n}": "" for n in range(99)}
    )
    data = stream(pyarrow.record_batch([pyarrow.array([1], "int8")], schema=schema))
    assert Table(data).to_arrow().num_rows == 1
    long = next(index for index, key in enumerate(schema.metadata) if len(key) > 99)

    def that_pair(header: bytearray, table: int) -> None:
        vector = _follow(memoryview(header), _field(memoryview(header), table, 2))
        pair = list(_entries(memoryview(header), table, 2))[long]
        for entry in range(vector + 4, min(pair, vector + 4 + 400), 4):
            struct.pack_into("<I", header, entry, pair - entry)

    shared = changed(data, SCHEMA, that_pair)
    with pyarrow.ipc.open_stream(shared) as reader:  # the control: 5 MB of 50 KB
        assert len(reader.schema.serialize()) > 50 * len(data)
    with pytest.raises(ValueError, match="says the same many times"):
        Table(shared).to_arrow()


@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_columns_of_views_are_refused(kind: str) -> None:
    """Many views may name one long text, and each is read to see whether it is UTF-8."""
    column = pyarrow.array([b"a long text, not in the view"], getattr(pyarrow, kind)())
    for array in (column, pyarrow.StructArray.from_arrays([column], ["a"])):
        with pytest.raises(ValueError, match="views"):
            Table(stream(pyarrow.record_batch([array], ["a"]))).to_arrow()


def test_a_large_dictionary_of_many_batches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyarrow looks at all of a dictionary once for each batch."""
    names = pyarrow.array(["x" * 10_000]).dictionary_encode()
    data = stream(*[pyarrow.record_batch([names], ["n"])] * 50)
    assert Table(data).to_arrow().num_rows == 50
    monkeypatch.setattr(arrow_messages, "MAX_LOOKED_AT", 400_000)
    with pytest.raises(ValueError, match="too many batches"):
        Table(data).to_arrow()
    assert Table(stream(*[pyarrow.record_batch([names], ["n"])] * 30)).to_arrow().num_rows == 30


def test_views_cross_as_what_they_show() -> None:
    """Both ends write texts and bytes instead; where they cannot, it is no data."""
    items = ["a", None, "a text that is too long for a view"]
    for kind in ("string", "binary"):
        view = pyarrow.array(items, "large_string").cast(getattr(pyarrow, f"{kind}_view")())
        table = pyarrow.table({"a": view, "b": [1, 2, 3]})
        parts = reduce_array(table, lambda _: None)
        assert parts is not None
        back = Table(parts[1]).to_arrow()
        assert [str(each) for each in back.schema.types] == [f"large_{kind}", "int64"]
        assert back.to_pydict() == table.to_pydict()
    for deep in (pyarrow.list_(pyarrow.string_view()), pyarrow.list_view(pyarrow.int8())):
        assert reduce_array(pyarrow.table([pyarrow.nulls(1, deep)], ["a"]), lambda _: None) is None


def test_what_pyarrow_does_not_take_stays_a_table() -> None:
    """A worker that gets it goes on; it is an error for whoever reads it."""
    table = Table(b"no table" * 9)
    assert convert_table(table) is table
    with pytest.raises(ValueError, match=r".+"):
        table.to_arrow()

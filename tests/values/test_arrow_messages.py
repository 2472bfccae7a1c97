"""A table that a guest wrote takes no more memory and time of the host than its bytes."""

from __future__ import annotations

import datetime as dt
import struct
from typing import TYPE_CHECKING, Any, ClassVar

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
    with pytest.raises(ValueError, match="too many batches or columns"):
        Table(data).to_arrow()
    assert Table(stream(*[pyarrow.record_batch([names], ["n"])] * 30)).to_arrow().num_rows == 30


def same_dictionary(header: bytearray, schema: int) -> None:
    """Have all columns name the dictionary 0."""
    data = memoryview(header)
    for field in _entries(data, schema, 1):
        number = _field(data, _table(data, field, 4), 0)
        if number:
            struct.pack_into("<q", header, number, 0)


def test_a_large_dictionary_of_many_columns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyarrow looks at a dictionary once for each column that names it, and not once for all."""
    long = pyarrow.array(["x" * 10_000]).dictionary_encode()
    short = pyarrow.array(["x"]).dictionary_encode()

    def shared(columns: int) -> bytes:
        batch = pyarrow.record_batch([long] + [short] * (columns - 1), list("abcdefghij"[:columns]))
        data = changed(stream(batch), SCHEMA, same_dictionary)
        return without(data, DICTIONARY, first=1)

    with pyarrow.ipc.open_stream(shared(10)) as reader:  # the control
        assert len(reader.read_all().to_pydict()["j"][0]) == 10_000
    monkeypatch.setattr(arrow_messages, "MAX_LOOKED_AT", 50_000)
    assert Table(shared(4)).to_arrow().num_columns == 4
    with pytest.raises(ValueError, match="too many batches or columns"):
        Table(shared(10)).to_arrow()


def without(data: bytes, kind: int, *, first: int) -> bytes:
    """Return a stream without its messages of that kind, but the *first* ones."""
    out, place, seen = b"", 0, 0
    while (size := struct.unpack_from("<i", data, place + 4)[0]) != 0:
        header = memoryview(data)[place + 8 : place + 8 + size]
        message = _follow(header, 0)
        length = _field(header, message, 3)
        end = place + 8 + size + (struct.unpack_from("<q", header, length)[0] if length else 0)
        is_one = header[_field(header, message, 1)] == kind
        if not is_one or seen < first:
            out += data[place:end]
        seen += is_one
        place = end
    return out + data[place:]


def test_dictionaries_that_no_column_names_are_refused() -> None:
    """Pyarrow keeps any number of them, and nobody would count how often they are looked at."""
    data = stream(pyarrow.record_batch([pyarrow.array(["a"]).dictionary_encode()], ["n"]))

    def other(header: bytearray, table: int) -> None:
        # Its number is 0, and so left out: the place of another field is read instead.
        header[table - struct.unpack_from("<i", header, table)[0] + 4] = 4

    with pytest.raises(ValueError, match="no column names"):
        Table(changed(data, DICTIONARY, other)).to_arrow()
    assert Table(data).to_arrow().num_rows == 1


def test_many_columns_and_batches_of_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyarrow keeps about each column of each batch is far more than the bytes that say it."""
    schema = pyarrow.schema([(str(index), "null") for index in range(100)])
    batch = pyarrow.record_batch([pyarrow.nulls(1)] * 100, schema=schema)
    data = stream(*[batch] * 50)
    assert Table(data).to_arrow().num_rows == 50
    monkeypatch.setattr(arrow_messages, "BYTES_MADE_AT_LEAST", 1 << 20)
    with pytest.raises(ValueError, match="combine_chunks"):
        Table(data).to_arrow()
    assert Table(stream(*[batch] * 20)).to_arrow().num_rows == 20
    wide = pyarrow.record_batch([pyarrow.nulls(1)] * 2000, [str(index) for index in range(2000)])
    with pytest.raises(ValueError, match="combine_chunks"):
        Table(stream(wide)).to_arrow()


def test_a_table_as_it_is_sent_in_small_batches_is_taken() -> None:
    """The bound is no hindrance: hundreds of batches of a hundred columns, or 20,000 columns."""
    batch = pyarrow.record_batch([pyarrow.array([1] * 9)] * 100, [str(n) for n in range(100)])
    wide = pyarrow.record_batch([pyarrow.array([1])] * 20_000, [str(n) for n in range(20_000)])
    for sent, rows in ([batch] * 300, 2700), ([wide], 1):
        data = stream(*sent)
        arrow_messages.check_stream(memoryview(data))
        assert pyarrow.ipc.open_stream(data).read_all().num_rows == rows


def test_metadata_of_batches_is_refused_before_pyarrow_sees_it() -> None:
    """Pyarrow copies it when it opens a message: any number of offsets may lead to one text."""
    batch = pyarrow.record_batch([pyarrow.array([1])], ["a"])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"key": "value"})
    data = sink.getvalue().to_pybytes()
    with pyarrow.ipc.open_stream(data) as reader:  # the control
        assert reader.read_next_batch_with_custom_metadata().custom_metadata == {b"key": b"value"}
    with pytest.raises(ValueError, match="metadata beside its schema"):
        Table(data).to_arrow()


def test_fields_that_a_schema_names_often_are_refused() -> None:
    """Four bytes name a field, of which pyarrow makes hundreds."""
    data = stream(pyarrow.record_batch([pyarrow.nulls(1)] * 3, ["a", "b", "c"]))

    def all_one(header: bytearray, schema: int) -> None:
        last = next(_entries(memoryview(header), schema, 1))
        vector = _follow(memoryview(header), _field(memoryview(header), schema, 1))
        for entry in range(vector + 4, vector + 16, 4):
            struct.pack_into("<I", header, entry, last - entry)

    shared = changed(data, SCHEMA, all_one)
    with pyarrow.ipc.open_stream(shared) as reader:  # the control
        assert len(set(reader.schema.names)) == 1
    with pytest.raises(ValueError, match="says the same many times"):
        Table(shared).to_arrow()


def test_no_offset_leads_out_of_a_message() -> None:
    """A number that was changed is an error with a name, or another table: never anything else."""
    names = pyarrow.array(["a"]).dictionary_encode()
    zone = pyarrow.array([1], pyarrow.timestamp("us", "Europe/London"))
    deep = pyarrow.array([{"x": [1]}])
    schema = pyarrow.schema([("n", names.type), ("t", zone.type), ("d", deep.type)], {"k": "v"})
    data = stream(pyarrow.record_batch([names, zone, deep], schema=schema))
    outcomes = set()
    for place in range(0, len(data) - 4, 4):
        for number in (0xFFFFFFF0, 0x7FFFFFFF, len(data) - place - 2, 0):
            other = bytearray(data)
            struct.pack_into("<I", other, place, number)
            try:
                arrow_messages.check_stream(memoryview(other))
            except ValueError as error:
                outcomes.add(str(error))
    assert {each for each in outcomes if "out of its message" in each}
    assert len(outcomes) > 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-8] + data, "a second schema"),
        (lambda data: data[:-40], "ends too early"),
        (lambda data: data[4:], "before 0.15"),
        (lambda data: data[:2], "out of its message"),
    ],
)
def test_streams_that_are_none_are_refused(change: Callable[[bytes], bytes], words: str) -> None:
    """What is cut, joined or of another format is no table."""
    data = stream(pyarrow.record_batch([pyarrow.array([1] * 8)], ["a"]))
    with pytest.raises(ValueError, match=words):
        Table(change(data)).to_arrow()


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


class Bringing(pyarrow.ExtensionType):  # type: ignore[misc]
    """A type of a library of the host's, which runs what its metadata says."""

    seen: ClassVar[list[bytes]] = []

    def __init__(self) -> None:
        super().__init__(pyarrow.int32(), "test.bringing")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"of the guest"

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: object, serialized: bytes) -> Bringing:
        cls.seen.append(serialized)
        return cls()


def test_no_library_of_the_host_is_asked_about_a_column() -> None:
    """What a guest says of a column must reach no parser of an extension type of the host's."""
    plain = pyarrow.record_batch([pyarrow.array([1], pyarrow.int32())], ["a"])
    column = pyarrow.ExtensionArray.from_storage(Bringing(), plain.column(0))
    data = stream(pyarrow.record_batch([column], ["a"]))
    pyarrow.register_extension_type(Bringing())
    try:
        pyarrow.ipc.open_stream(data).read_all()
        assert Bringing.seen.pop() == b"of the guest"  # the control
        Bringing.seen.clear()
        with pytest.raises(ValueError, match=r"'test\.bringing'.*storage"):
            Table(data).to_arrow()
        assert Bringing.seen == []
    finally:
        pyarrow.unregister_extension_type("test.bringing")


@pytest.mark.parametrize("name", ["arrow.fixed_shape_tensor", "arrow.opaque", "pandas.period", ""])
def test_an_extension_type_with_something_to_parse_is_refused(name: str) -> None:
    """A million brackets would end the host in pyarrow's parser of JSON, spaces keep pandas busy."""
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": "[" * 1_000_000}
    field = pyarrow.field("a", pyarrow.int32(), metadata=metadata)
    batch = pyarrow.RecordBatch.from_arrays(
        [pyarrow.array([1], pyarrow.int32())], schema=pyarrow.schema([field])
    )
    with pytest.raises(ValueError, match="extension type"):
        Table(stream(batch)).to_arrow()


@pytest.mark.parametrize("size", [0, 2, 100, 101])
def test_an_extension_type_of_pyarrows_own_is_taken_with_little(size: int) -> None:
    """Identifiers, texts of JSON and bytes of truth pass as they are written."""
    metadata = "{}".ljust(size)[:size]
    named = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": metadata}
    field = pyarrow.field("a", pyarrow.string(), metadata=named)
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(["{}"])], schema=pyarrow.schema([field]))
    if size <= 100:
        assert Table(stream(batch)).to_arrow().num_rows == 1
    else:
        with pytest.raises(ValueError, match="more than 100 bytes"):
            Table(stream(batch)).to_arrow()

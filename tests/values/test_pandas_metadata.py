"""A table of a guest makes pandas open no file and make no type but those of a list."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Any

import pandas  # type: ignore[import-untyped]
import pyarrow
import pytest

from visruntime.guest.arrays import Table, reduce_array
from visruntime.guest.pandas_metadata import check_types, check_zone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid


def told(**column: Any) -> bytes:
    """Return metadata for pandas about one column."""
    names = {"name": "a", "field_name": "a", "pandas_type": "datetimetz", "metadata": None}
    return json.dumps(
        {"index_columns": [], "column_indexes": [], "columns": [names | column]}
    ).encode()


def stream(table: pyarrow.Table) -> bytes:
    """Return what pyarrow writes for it."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


OPENED: list[str] = []
"""What this process opens, while `opened` is in use."""


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what is opened; a hook cannot be taken away again."""
    if event == "open" and WATCHING and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


WATCHING: list[bool] = []


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Return the list of the files that are opened from now on."""
    OPENED.clear()
    sys.addaudithook(note)
    WATCHING.append(True)
    yield OPENED
    WATCHING.clear()


def test_no_time_zone_names_a_file(tmp_path: Path, opened: list[str]) -> None:
    """The type of a column in the metadata names a file of the host, which dateutil would read."""
    file = tmp_path / "zone"
    file.write_bytes(b"TZif" + bytes(200))
    column = pyarrow.array([0], pyarrow.timestamp("ns", "UTC"))
    table = pyarrow.table({"a": column}).replace_schema_metadata(
        {"pandas": told(numpy_type=f"datetime64[ns, dateutil/{file}]")}
    )
    data = stream(table)
    opened.clear()
    with pytest.raises(ValueError, match="ignore_metadata=True"):
        Table(data).to_pandas()
    assert str(file) not in opened
    assert Table(data).to_arrow().to_pandas(ignore_metadata=True)["a"][0].year == 1970
    with contextlib.suppress(
        Exception
    ):  # the control: pandas alone opens it, whatever comes of that
        pyarrow.ipc.open_stream(data).read_all().to_pandas()
    assert str(file) in opened


def test_time_zones_of_columns_are_names(opened: list[str]) -> None:
    """Nor does the type of a column itself, however deep."""
    for zone in ("dateutil//etc/zone", "../zone", "/etc/zone", "a/../../b", "tzlocal()"):
        kind = pyarrow.timestamp("ns", zone)
        for deep in (kind, pyarrow.list_(kind), pyarrow.struct([("x", kind)])):
            data = stream(pyarrow.table({"a": pyarrow.nulls(1, deep)}))
            with pytest.raises(ValueError, match="no name of one"):
                Table(data).to_pandas()
    assert not {name for name in opened if "zone" in name and "zoneinfo" not in name}


def test_frames_of_pandas_come_back_as_they_were() -> None:
    """What pandas and pyarrow themselves write is taken: types, zones, indexes."""
    moments = pandas.date_range("2020-01-01", periods=2, tz="Europe/London")
    frames = [
        pandas.DataFrame({"n": [1, 2], "s": ["a", None], "b": [True, False], "f": [0.5, None]}),
        pandas.DataFrame({"t": moments, "u": moments.tz_convert("UTC"), "d": [dt.date.min] * 2}),
        pandas.DataFrame({"t": moments.tz_convert("+05:30"), "n": moments.tz_localize(None)}),
        pandas.DataFrame({"c": pandas.Categorical(["x", "y"]), "i": pandas.array([1, None])}),
        pandas.DataFrame({"s": pandas.array(["a", None], "string"), "l": [[1], [2]]}),
        pandas.DataFrame({"p": pandas.period_range("2020", periods=2, freq="M")}),
        pandas.DataFrame({"i": pandas.interval_range(0, 2)}),
        pandas.DataFrame({"a": pandas.array([1, 2], "int64[pyarrow]")}),
        pandas.DataFrame({"x": [1, 2]}, index=pandas.Index(["a", "b"], name="key")),
        pandas.DataFrame([[1, 2]], columns=pandas.MultiIndex.from_tuples([("a", 1), ("b", 2)])),
        pandas.DataFrame([[1, 2]], columns=moments),
        pandas.DataFrame([[1, 2]], columns=[0, 1]),
    ]
    for frame in frames:
        parts = reduce_array(frame, lambda _: None)
        assert parts is not None
        expected = pyarrow.Table.from_pandas(frame).to_pandas()
        pandas.testing.assert_frame_equal(Table(parts[1]).to_pandas(), expected)


@pytest.mark.parametrize(
    "name",
    [
        *("S2000000000", "i4,(1000000000)i4", "datetime64[ns, dateutil/x]", "<U9999999", 5, []),
        *("datetime64[ns, /x]", "datetime64[ns, ../x]", "object ", "Sparse[int]", "period[x/y]"),
    ],
)
def test_types_that_are_not_of_the_list_are_refused(name: object) -> None:
    """Neither a column nor the names of columns are made of another."""
    with pytest.raises(ValueError, match=r"names the type|no name of one"):
        check_types(told(numpy_type=name))
    for key in ("numpy_type", "pandas_type"):
        names = {"index_columns": [], "columns": [], "column_indexes": [{key: name}]}
        with pytest.raises(ValueError, match=r"names the type|no name of one"):
            check_types(json.dumps(names).encode())


def test_metadata_that_is_none_is_refused() -> None:
    """What is nested without end, of another form, or huge is an error with a name."""
    for data in (b"[" * 200_000, b"[]", b'{"columns": 1}', b'{"columns": [1]}', b"{", b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            check_types(data)
    with pytest.raises(ValueError, match="more than 16 MiB"):
        check_types(b" " * (16 << 20) + b"{}")
    with pytest.raises(ValueError, match="no name of one"):
        check_types(told(metadata={"timezone": "dateutil//etc/zone"}))


def test_names_of_zones() -> None:
    """Names of the zone database and distances pass."""
    for zone in ("UTC", "Europe/London", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "-03:30"):
        check_zone(zone)
        assert pandas.Timestamp(0, tz=zone).tzinfo is not None


def leveled(names: list[str]) -> bytes:
    """Return a table that says of its columns that their names have two levels."""
    frame = pandas.DataFrame([[1] * len(names)], columns=names)
    table = pyarrow.Table.from_pandas(frame)
    told_of = json.loads(table.schema.metadata[b"pandas"])
    told_of["column_indexes"] *= 2
    return stream(table.replace_schema_metadata({"pandas": json.dumps(told_of)}))


def test_names_of_levels_are_short() -> None:
    """Pyarrow reads each such name as an expression: a large one fills the memory or never ends."""
    names = ["('a', 'b')", "('a', 'c')"]
    assert Table(leveled(names)).to_pandas().columns.nlevels == 2
    for many in (["(" + "1," * 500 + ")" + " " * 30], [f"({n}, {n:>500})" for n in range(200)]):
        with pytest.raises(ValueError, match="levels of columns"):
            Table(leveled(many)).to_pandas()


@pytest.mark.parametrize("where", ["name", "field_name", "index"])
@pytest.mark.parametrize("level", ["unicode", "datetime", "int64"])
def test_names_in_the_metadata_are_short_as_well(where: str, level: str) -> None:
    """What is read is the name that the metadata has, which need not be that of the column."""
    index = {"name": None, "field_name": None, "pandas_type": level, "numpy_type": "object"}
    column = {"name": "a", "field_name": "a", "pandas_type": "int64", "numpy_type": "int64"}
    told_of: dict[str, Any] = {"columns": [column], "column_indexes": [index], "index_columns": []}
    if level == "unicode":
        told_of["column_indexes"] *= 2
    for name, refused in ("1" * 1024, False), ("1." * 600, True), (["a"], True):
        if where == "index":
            told_of["index_columns"] = [name]
        else:
            column[where] = name  # type: ignore[assignment]
        if refused:
            with pytest.raises(ValueError, match=r"levels of columns|no text"):
                check_types(json.dumps(told_of).encode(), ["a"])
        else:
            check_types(json.dumps(told_of).encode(), ["a"])
    told_of["index_columns"] = 5
    with pytest.raises(ValueError, match="that is none"):
        check_types(json.dumps(told_of).encode(), ["a"])


def test_metadata_that_pandas_cannot_read_is_a_named_error() -> None:
    """A host that catches what is documented must not end by what a guest has written there."""
    table = pyarrow.table({"a": [1]}).replace_schema_metadata({"pandas": '{"columns": []}'})
    with pytest.raises(ValueError, match="metadata for pandas that is none"):
        Table(stream(table)).to_pandas()

"""Arrays and tables: they cross beside the frames, and a guest can only lend what it sealed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_helpers import runtime

from visruntime import _native
from visruntime._worker import lending
from visruntime._worker import values as _worker_values
from visruntime.errors import GuestError, ProtocolViolation
from visruntime.guest import arrays, arrow_messages
from visruntime.guest.arrays import Array, Table, item_size
from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime

if TYPE_CHECKING:
    from pathlib import Path

    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]

LARGE = 1_000_000

ASK = """
import fcntl, gc, mmap, sys
frames = sys.modules["_visguest.frames"]
session = next(x for x in gc.get_objects() if type(x).__name__ == "Session")
def borrow(size, copied=False):
    wish = {"size": size, "copied": copied}
    number, (descriptor,) = session.ask_host(frames.BUFFER, wish)
    return number, descriptor
import _visguest.arrays as arrays
import _visguest.buffers as buffers
class Named:
    def __init__(self, number, size): self.stored = arrays._Stored(number, size)
def named(number, size): return Named(number, size)
octets = arrays.reduce_octets
def reduce_octets(value, store):
    return (0x31, 0, value.stored) if type(value) is Named else octets(value, store)
buffers.reduce_octets = reduce_octets
"""
"""A guest that goes to the protocol itself."""


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


TYPES = ("?", "i1", "u2", "<i8", ">i4", "f2", "f8", "c16", "M8[ns]", "m8[D]", "U7", "S3")


def test_arrays_cross_both_ways(runtime: AnyRuntime) -> None:
    """Each type and shape, inside a frame and beside it, arrives as it was, and comes back."""
    runtime.exec("import numpy")
    for dtype in TYPES:
        for shape in ((), (0,), (3,), (50, 60, 7)):
            count = int(numpy.prod(shape))
            array = (numpy.arange(count) % 100).astype("i8").astype(dtype).reshape(shape)
            runtime.set("x", {"deep": [array]})
            back = runtime.eval("x")["deep"][0]
            assert back.dtype == array.dtype.newbyteorder("<")
            assert back.shape == shape
            assert (back == array).all()
    assert runtime.eval("type(x['deep'][0]).__name__") == "ndarray"


def test_an_array_that_is_not_in_order_arrives_in_order(runtime: AnyRuntime) -> None:
    """Slices, transposed and Fortran arrays are copied in C order."""
    runtime.exec("import numpy\nx = numpy.arange(3_000_000).reshape(1000, 3000)")
    for code in (
        "x[::3, ::-2]",
        "x.T",
        "numpy.asfortranarray(x)",
        "numpy.broadcast_to(x[0], (9, 3000))",
    ):
        value = runtime.eval(code)
        assert (
            value == eval(code, {"x": numpy.arange(3_000_000).reshape(1000, 3000), "numpy": numpy})
        ).all()


def test_the_host_reads_and_the_guest_may_write(runtime: AnyRuntime) -> None:
    """What came to the host cannot be changed there; the guest changes a copy of its own."""
    ours = numpy.zeros(LARGE)
    runtime.set("x", ours)
    runtime.exec("x += 1")
    value = runtime.eval("x")
    assert value.sum() == LARGE
    assert ours.sum() == 0
    assert not value.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 5


def test_functions_of_the_host_take_and_return_arrays(runtime: AnyRuntime) -> None:
    """Arguments and results of callbacks go the same way."""
    runtime.expose("double", lambda x: x * 2)
    runtime.exec("import numpy")
    assert runtime.eval("float(double(numpy.ones(1_000_000)).sum())") == 2 * LARGE
    assert runtime.call("sum", numpy.arange(100_000)) == sum(range(100_000))


def test_scalars_of_numpy_become_plain(runtime: AnyRuntime) -> None:
    """A number of numpy's is a number; as a key, too."""
    runtime.exec("import numpy as np")
    value = runtime.eval(
        "[np.int64(3), np.float32(0.5), np.bool_(True), np.str_('a'), {np.int8(1): 2}]"
    )
    assert value == [3, 0.5, True, "a", {1: 2}]
    assert [type(each) for each in value[:4]] == [int, float, bool, str]


def test_tables_cross_both_ways(runtime: AnyRuntime) -> None:
    """A pyarrow table or a frame of pandas arrives as a Table, which is parsed on request only."""
    table = pyarrow.table({"a": list(range(100_000)), "b": ["x"] * 100_000})
    runtime.set("t", table)
    assert runtime.eval("type(t).__module__.split('.')[0]") == "pyarrow"
    back = runtime.eval("t")
    assert type(back) is Table
    assert back.to_arrow().equals(table)
    runtime.exec("import pandas")
    frame = runtime.eval("pandas.DataFrame({'n': [1, 2], 's': ['a', None]})")
    assert type(frame) is Table
    assert frame.to_pandas()["n"].tolist() == [1, 2]


def test_a_table_that_is_none_is_refused_when_it_is_read(runtime: AnyRuntime) -> None:
    """Bytes that a guest calls a table raise where the host looks into them, and only there."""
    runtime.exec(ASK)
    value = runtime.eval("arrays.Table(b'no table' * 9)")
    assert type(value) is Table
    with pytest.raises(ValueError, match=r".+"):
        value.to_arrow()


COMPRESSED = """
import io, pyarrow
def table(**options):
    sink = io.BytesIO()
    zeros = pyarrow.array([0] * 100_000).dictionary_encode() if options.pop("named", 0) else None
    batch = pyarrow.record_batch([zeros or pyarrow.array(bytes(1 << 20), "u1")], names=["a"])
    with pyarrow.ipc.new_stream(
        sink, batch.schema, options=pyarrow.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
import _visguest.arrays as arrays
"""


def test_a_table_takes_no_more_memory_than_its_bytes(runtime: AnyRuntime) -> None:
    """A compressed table must not be read: it grows a thousandfold in the host."""
    runtime.exec(COMPRESSED)
    for options in ("compression='zstd'", "compression='lz4'", "compression='zstd', named=1"):
        value = runtime.eval(f"arrays.Table(table({options}))")
        assert len(value.data) < 20_000
        before = pyarrow.total_allocated_bytes()
        for read in (value.to_arrow, value.to_pandas):
            with pytest.raises(ValueError, match="compressed"):
                read()
        assert pyarrow.total_allocated_bytes() == before
    # The controls: the same ones as a worker writes them.
    plain = runtime.eval("arrays.Table(table())").to_arrow()
    assert plain.num_rows == 1 << 20
    assert runtime.eval("arrays.Table(table(named=1))").to_arrow().num_rows == 100_000
    other = {"compression": "zstd", "emit_dictionary_deltas": True}
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(
        sink, plain.schema, options=pyarrow.ipc.IpcWriteOptions(**other)
    ) as writer:
        writer.write_table(plain)
    with pytest.raises(ValueError, match="compressed"):
        Table(memoryview(sink.getvalue())).to_arrow()


def test_a_table_of_another_order_is_refused() -> None:
    """Numbers that pyarrow would turn around are copies, of each column that names the bytes."""
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"a": [1, 2, 3]})
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    assert Table(data).to_arrow() == table
    header = memoryview(data)[8 : 8 + int.from_bytes(data[4:8], "little")]
    schema = arrow_messages._table(header, arrow_messages._follow(header, 0), 2)
    # The field is left out where it is 0: any other number will do.
    layout = schema - int.from_bytes(header[schema : schema + 4], "little", signed=True)
    changed = bytearray(data)
    changed[8 + layout + 4] = 4
    with pyarrow.ipc.open_stream(bytes(changed)) as stream:  # the control: pyarrow turns them
        assert stream.read_all().to_pydict() == {"a": [1 << 56, 2 << 56, 3 << 56]}
    with pytest.raises(ValueError, match="little-endian"):
        Table(bytes(changed)).to_arrow()


def test_what_is_no_plain_data_stays_with_the_guest(runtime: AnyRuntime) -> None:
    """Arrays of objects, of records and of long doubles are handles."""
    runtime.exec("import numpy")
    plain = ("numpy.array([object()])", "numpy.zeros(2, 'i4,f8')", "numpy.zeros(2, 'g')")
    for code in (*plain, "numpy.ma.array([1, 2], mask=[0, 1])", "numpy.matrix([[1]])"):
        value = runtime.eval(code)
        assert type(value).__name__ == "Handle", value
        assert runtime.call("type", value).type_name == "type"


def test_text_of_no_code_points_is_no_text(runtime: AnyRuntime) -> None:
    """A number above U+10FFFF must not become a str: CPython overruns its heap on such ones."""
    make = "import numpy; (lambda n, c: numpy.frombuffer(c.to_bytes(4, 'little') * n, f'<U{n}'))"
    for code in (0x110000, 0x7FFFFFFF, 0xFFFE0000, 0xFF000041):
        result = runtime.run(f"{make}(9, {code})")
        assert not isinstance(result.value, numpy.ndarray)
        # Nor does who says it without numpy get by, in the frame or beside it.
        for size in (9, 20_000):
            text = (
                "import _visguest.arrays as arrays\n"
                "made = object.__new__(arrays.Array)\n"
                f"made.dtype, made.shape = '<U{size}', ()\n"
                f"made.data = memoryview(({code}).to_bytes(4, 'little') * {size})\nmade"
            )
            with pytest.raises(ProtocolViolation):
                runtime.run(text)
            with pytest.raises(ValueError, match="above U"):
                Array(f"<U{size}", (), code.to_bytes(4, "little") * size)
    # The controls: the last of all, a lone surrogate, and marks of an order are text.
    for code in (0x10FFFF, 0xD800, 0xDFFF, 0xFEFF, 0xFFFE, 0):
        runtime.exec("import numpy")
        value = runtime.eval(f"numpy.frombuffer(({code}).to_bytes(4, 'little') * 9000, '<U9000')")
        assert value.tolist() == [chr(code) * 9000 if code else ""]


def test_bools_are_0_or_1(runtime: AnyRuntime) -> None:
    """Libraries add bools up by what is there: another byte arrives as 1, or not at all."""
    runtime.exec("import numpy; x = numpy.full(70_000, 0x80, 'u1'); x[0] = 0")
    value = runtime.eval("x.view('?')")
    assert value.dtype == bool
    assert value.view("u1").tolist() == [0] + [1] * 69_999
    assert bytes(Array("|b1", (2,), b"\0\1").data) == b"\0\1"
    for wrong in (b"\2", b"\x80", b"\0" * 3_000_000 + b"\xff"):
        with pytest.raises(ValueError, match="neither 0 nor 1"):
            Array("|b1", (len(wrong),), wrong)


def test_an_array_that_means_more_than_its_numbers_is_refused(runtime: AnyRuntime) -> None:
    """A mask would be lost, and what it hides would become data."""
    with pytest.raises(TypeError, match="MaskedArray"):
        runtime.set("x", numpy.ma.array([1, 2], mask=[False, True]))


def test_results_hold_no_descriptor(runtime: AnyRuntime) -> None:
    """A host that keeps a thousand arrays must not run out of descriptors."""
    runtime.exec("import numpy\nx = numpy.ones(10_000)")
    runtime.eval("x")
    before = descriptors()
    kept = [runtime.eval("x") for _ in range(50)]
    assert descriptors() <= before
    assert all(value.sum() == 10_000 for value in kept)
    kept.clear()
    runtime.set("y", [numpy.ones(10_000) for _ in range(60)])
    assert descriptors() <= before


def test_without_numpy_the_host_gets_an_array_of_its_own() -> None:
    """A host that has not imported numpy does not import it because of what a guest sent."""
    code = (
        "import sys, visruntime as vr\n"
        "with vr.TrustedRuntime() as rt:\n"
        "    value = rt.run('import numpy\\nnumpy.arange(100000.0)').value\n"
        "    assert 'numpy' not in sys.modules\n"
        "    print(repr(value), value.shape, value.dtype, len(value.data), value.data.readonly)\n"
        "    assert value.numpy()[7] == 7.0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "<Array <f8 (100000,)> (100000,) <f8 800000 True\n", done.stderr


# ---- hostile guests ----


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lend memory from the first byte on, as is done where much has been copied already."""
    monkeypatch.setattr(lending, "_RESERVED", lending.MAX_COPIED)
    monkeypatch.setattr(lending, "SMALL_BYTES", 0)


@pytest.mark.usefixtures("shared")
def test_what_is_not_copied_lies_in_memory_of_the_guest(runtime: AnyRuntime) -> None:
    """Beyond what the host copies arrays arrive all the same, and nobody can change them."""
    runtime.exec("import numpy\nx = numpy.arange(500_000)")
    value = runtime.eval("[x, x + 1, b'x' * 2_000_000]")
    assert value[0][-1] == 499_999
    assert value[1][-1] == 500_000
    assert not value[0].flags.writeable
    assert value[2] == b"x" * 2_000_000
    assert type(value[2]) is bytes


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("n, d = borrow(99999); named(n, 99999)", "not sealed"),
        ("n, d = borrow(99999); fcntl.fcntl(d, 1033, 8); named(n, 99998)", "another size"),
        ("n, d = borrow(99999); fcntl.fcntl(d, 1033, 8); [named(n, 99999)] * 2", "used twice"),
        ("named(77, 99999)", "never lent"),
        ("named(-1, 99999)", "no number"),
    ],
)
def test_memory_that_was_not_sealed_is_a_violation(
    runtime: AnyRuntime, code: str, why: str
) -> None:
    """What the guest could still change or shrink is never looked at; the worker ends."""
    runtime.exec(ASK)
    before = descriptors()
    with pytest.raises(ProtocolViolation, match="malformed value"):
        runtime.run(code)
    assert runtime.eval("1 + 1") == 2, why
    assert descriptors() <= before + 1


@pytest.mark.usefixtures("shared")
def test_memory_that_nobody_has_paid_for_is_refused(runtime: AnyRuntime) -> None:
    """A buffer with holes would be filled, at the host's expense, where the host reads it."""
    runtime.exec(ASK)
    runtime.exec("n, d = borrow(1 << 20); fcntl.fcntl(d, 1033, 8)")
    with pytest.raises(ProtocolViolation, match="malformed value"):
        runtime.run("n, d = borrow(1 << 20); fcntl.fcntl(d, 1033, 8); named(n, 1 << 20)")


def test_an_array_is_no_key(runtime: AnyRuntime) -> None:
    """To hash one reads all of it; both ends refuse, whatever is called an array."""
    runtime.exec(ASK)
    assert type(runtime.eval("{'a': {named(1, 9): 1}}")).__name__ == "Handle"
    for tag in range(0x2C, 0x32):
        key = (
            bytes((tag,))
            + {
                0x2C: b"\x04\x01\x04\x09",
                0x2D: b"\x0a\x03\0\0\0|i1\x11\1\0\0\0\x04\x01\x0b\1\0\0\0x",
                0x2E: b"\x0b\0\0\0\0",
                0x2F: b"\x0a\0\0\0\0\x0a\0\0\0\0",
                0x30: b"\x04\x02\x10\0\0\0\0\x01",
                0x31: b"\x04\0\x2c\x04\x01\x04\x09",
            }[tag]
        )
        with pytest.raises(ValueError, match="no key in a key"):
            _native.decode(b"\x01\x14\1\0\0\0" + key + b"\x01")


def test_a_buffer_alone_is_no_value(runtime: AnyRuntime) -> None:
    """Memory beside the frames is data of an array, a table or bytes, and of nothing else."""
    runtime.exec(ASK + "import os")
    for code in ("stored", "[stored]", "{'a': (stored,)}", "arrays.Table(b'x'), stored"):
        with pytest.raises(ProtocolViolation, match="nobody's data"):
            runtime.run(
                "n, d = borrow(40000)\nos.write(d, bytes(40000))\n"
                "stored = arrays._Stored(n, 40000)\n" + code
            )
        runtime.exec(ASK + "import os")
    assert runtime.eval("1 + 1") == 2


def test_what_crosses_in_memory_counts(runtime: AnyRuntime) -> None:
    """A budget of bytes holds for large arrays too, and the result says how many there were."""
    runtime.expose("size", lambda x: x.nbytes)
    runtime.exec("import numpy")
    result = runtime.run("size(numpy.ones(100_000))")
    assert result.value == 800_000
    assert result.host_calls.bytes > 800_000
    runtime.limit_callbacks(bytes=1_000_000)
    result = runtime.run("[size(numpy.ones(100_000)) for _ in range(3)]")
    assert result.error is not None
    assert "LimitExceeded" in result.error.message


def test_a_run_gets_no_more_than_it_may(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of bytes is one of the run, not of each answer."""
    monkeypatch.setattr(_worker_values, "MAX_BYTES", 3_000_000)  # in the host's direction
    runtime.expose("give", lambda: numpy.ones(100_000))
    runtime.exec("import numpy")
    assert runtime.eval("len([give() for _ in range(3)])") == 3
    result = runtime.run("[give() for _ in range(4)]")
    assert result.error is not None
    assert "in one run" in result.error.message


@pytest.mark.usefixtures("shared")
def test_a_writable_mapping_keeps_memory_from_being_sealed(runtime: AnyRuntime) -> None:
    """The kernel refuses the seal while somebody could write: EBUSY."""
    runtime.exec(ASK)
    result = runtime.run(
        "n, d = borrow(99999)\nheld = mmap.mmap(d, 99999)\nfcntl.fcntl(d, 1033, 8)"
    )
    assert result.error is not None
    assert result.error.errno == 16


@pytest.mark.parametrize("size", ["0", "-5", "1 << 62", "True", "'1'", "None"])
def test_a_wish_for_memory_of_no_size_is_a_violation(runtime: AnyRuntime, size: str) -> None:
    """A number that is no size breaks the protocol."""
    runtime.exec(ASK)
    with pytest.raises(ProtocolViolation, match="asked for memory"):
        runtime.run(f"borrow({size})")


def test_memory_of_one_run_is_bounded(runtime: AnyRuntime) -> None:
    """More buffers, or more bytes of them, than one run may have are an error of the guest."""
    runtime.exec(ASK)
    before = descriptors()
    for code in (f"borrow({lending.MAX_BYTES} + 1)", "[borrow(40960) for _ in range(9)]"):
        result = runtime.run(code)
        assert result.error is not None
        assert "large values" in result.error.message
    assert runtime.eval("borrow(40960)[0]") > 0
    assert descriptors() <= before


@pytest.mark.usefixtures("shared")
def test_memory_is_lent_only_during_a_run(runtime: AnyRuntime) -> None:
    """A number from an earlier run names nothing."""
    runtime.exec(ASK)
    runtime.exec("kept, d = borrow(99999); fcntl.fcntl(d, 1033, 8)")
    with pytest.raises(ProtocolViolation, match="malformed value"):
        runtime.eval("named(kept, 99999)")


def test_more_large_arrays_than_go_along_with_a_frame_are_refused(runtime: AnyRuntime) -> None:
    """The host gets an error before anything is sent, and the session lives on."""
    runtime.set("here", 1)
    with pytest.raises(ValueError, match="large values"):
        runtime.set("x", [numpy.ones(10_000)] * 65)
    assert runtime.eval("here") == 1


def test_an_array_beyond_the_limit_is_the_guests_error() -> None:
    """Where the memory for an array is not there, the guest hears it, and its session lives on."""
    limits = Limits(memory=512 << 20, memory_by="process")
    with Runtime(JailPolicy(limits=limits)) as runtime:
        runtime.exec("import numpy")
        assert runtime.eval("numpy.ones(10_000)").sum() == 10_000
        with pytest.raises(GuestError, match="Unable to allocate"):
            runtime.eval("numpy.ones(100_000_000)")
        assert runtime.eval("numpy.ones(10_000)").sum() == 10_000


# ---- the parts ----


@given(st.text(max_size=12) | st.from_regex(r"[<|>=][bifucMmSUOVg]\d{0,3}(\[[a-z]{0,3}\])?"))
def test_data_types_are_those_of_plain_data(text: str) -> None:
    """Whatever is accepted is a type of numpy of just that size, with nothing but data in it."""
    try:
        size = item_size(text)
    except ValueError:
        return
    dtype = numpy.dtype(text)
    assert dtype.itemsize == size
    assert not dtype.hasobject
    assert dtype.fields is None
    assert dtype.str == text


@given(
    st.tuples() | st.lists(st.integers(-2, 1 << 50), max_size=40).map(tuple),
    st.integers(0, 100),
)
def test_a_shape_is_exactly_its_bytes(shape: Any, size: int) -> None:
    """An array exists only where its shape times its item is what is there."""
    try:
        array = Array("<i4", shape, bytes(size))
    except ValueError:
        return
    assert array.numpy().nbytes == size
    assert array.numpy().shape == shape
    assert numpy.asarray(array).shape == shape


@pytest.mark.parametrize("shape", [[1], (1.0,), (True,), (-1, -1), (1 << 60, 0), ("1",), None])
def test_odd_shapes_are_refused(shape: Any) -> None:
    """A shape is a tuple of small ints and nothing else."""
    with pytest.raises(ValueError, match=r"shape|bytes"):
        Array("<i4", shape, b"1234")


@pytest.mark.parametrize("version", ["13.0.0", "14.0.0", "9.0.0", "14.0", "0.17.1", "14.0.1rc0"])
def test_a_pyarrow_that_unpickles_gets_no_table(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """CVE-2023-47248: before 14.0.1 to parse a guest's table was to run its code."""
    table = _as_table({"a": [1]})
    assert table.to_arrow().to_pydict() == {"a": [1]}  # the control
    monkeypatch.setattr(pyarrow, "__version__", version)
    for parse in (table.to_arrow, table.to_pandas):
        with pytest.raises(ImportError, match=r"CVE-2023-47248.*14\.0\.1 or newer"):
            parse()
    assert arrays.convert_table(table) is table
    for safe in ("14.0.1", "14.0.2", "15.0.0", "100.0.0.dev1"):
        monkeypatch.setattr(pyarrow, "__version__", safe)
        assert table.to_arrow().num_rows == 1


def _as_table(columns: dict[str, list[Any]]) -> Table:
    sink = pyarrow.BufferOutputStream()
    made = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return Table(sink.getvalue().to_pybytes())


def test_numpy_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries the values stay as they came."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    array, table = Array("<i4", (1,), bytes(4)), Table(b"x")
    assert arrays.convert_array(array) is array
    assert arrays.convert_table(table) is table


LATE = """
import sys
import visruntime as vr

folder, name = sys.argv[1:]
if name:
    __import__(name)
with vr.Runtime(vr.JailPolicy(write=[folder])) as runtime:
    made = runtime.run(
        "import _visguest.arrays as arrays\\n"
        "[arrays.Array('<i4', (2,), bytes(8)), arrays.Table(b'')]"
    ).value
    runtime.run(
        f"for name in ('numpy', 'pyarrow', 'pandas'): open({folder!r} + f'/{name}.py', 'w')"
        ".write('raise SystemExit(7)')"
    )
    first = made[0].numpy if hasattr(made[0], "numpy") else made[0].tolist
    for read in (first, made[1].to_arrow, made[1].to_pandas):
        try:
            read()
        except Exception as problem:
            print(type(problem).__name__, getattr(problem, "name", None), end=" ")
        else:
            print("read", end=" ")
"""


@pytest.mark.parametrize(
    ("granted", "name", "said"),
    [
        (True, "", "ImportError numpy ImportError pyarrow ImportError pandas"),
        # The controls: a library that is there already is used, and so is one that is safe to import.
        (True, "numpy", "read ImportError pyarrow ImportError pandas"),
        (False, "", "read ArrowInvalid None ArrowInvalid None"),
    ],
)
def test_no_library_is_imported_from_where_a_guest_may_write(
    tmp_path: Path, *, granted: bool, name: str, said: str
) -> None:
    """The host must not run a module that a guest has put beside the host's script."""
    script, other = tmp_path / "app" / "host.py", tmp_path / "other"
    script.parent.mkdir()
    other.mkdir()
    script.write_text(LATE)
    done = subprocess.run(
        [sys.executable, script, script.parent if granted else other, name],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONSAFEPATH": ""},
    )
    assert done.stdout.split() == said.split()

"""What an ELF file says of itself, when somebody made it up."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from visruntime.elf import Program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

INTERPRETER, DYNAMIC = 3, 2


def program(table: int, kind: int, start: int) -> bytes:
    """Return a program with one segment: its table, what it is, and where it starts."""
    magic = b"\x7fELF\x02\x01\x01" + bytes(9)
    with open("/proc/self/exe", "rb") as file:
        machine = struct.unpack_from("<H", file.read(20), 18)[0]
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", magic, 3, machine, 1, 0, table, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", kind, 0, start, 0, 0, 160, 160, 1)
    return header + segment + bytes(4096)


@pytest.mark.parametrize(
    ("table", "kind", "start"),
    [
        (1 << 63, INTERPRETER, 0),
        ((1 << 63) - 1, INTERPRETER, 0),
        (64, INTERPRETER, (1 << 64) - 8),
        (64, DYNAMIC, 1 << 63),
    ],
)
def test_an_offset_that_no_file_has_is_refused(
    tmp_path: Path, table: int, kind: int, start: int
) -> None:
    """A planted program must be called what it is: no program."""
    path = tmp_path / "program"
    path.write_bytes(program(table, kind, start))
    with pytest.raises(ValueError, match="cut short"):
        Program(str(path))


def test_such_a_program_is_read_where_its_offsets_are_in_the_file(tmp_path: Path) -> None:
    """The control: the same file with offsets that it has."""
    path = tmp_path / "program"
    path.write_bytes(program(64, INTERPRETER, 0))
    assert Program(str(path)).needed == []

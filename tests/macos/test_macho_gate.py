"""Files for macOS are judged as a Mac's loader would read them; each rule has a file that breaks it."""

from __future__ import annotations

import struct

import build_macos
import pytest
from gates.macho import MachoFile, NotMacho, problems
from macho_maker import GOOD, SIGNATURE, SYSTEM, X86_64, macho, text, version

pytestmark = pytest.mark.one_uid


@pytest.mark.parametrize(
    ("word", "data"),
    [
        ("another machine", macho(*GOOD, machine=X86_64)),
        ("neither", macho(*GOOD, kind=1)),
        ("another system", macho(text(0xC, SYSTEM), version(platform=2), SIGNATURE)),
        ("which macOS", macho(text(0xC, SYSTEM), SIGNATURE)),
        ("needs macOS 15.0", macho(text(0xC, SYSTEM), version(15 << 16), SIGNATURE)),
        ("needs macOS 12.1", macho(text(0xC, SYSTEM), version(12 << 16 | 1 << 8), SIGNATURE)),
        ("needs /usr/lib/libsandbox", macho(*GOOD, text(0xC, "/usr/lib/libsandbox.1.dylib"))),
        ("needs @rpath/x", macho(*GOOD, text(0x80000018, "@rpath/x.dylib"))),
        ("searches /opt", macho(*GOOD, text(0x8000001C, "/opt/lib", 1))),
        ("fixed address", macho(*GOOD, flags=0x85)),
        ("not signed", macho(*GOOD[:2])),
        ("64 bits", b"\x7fELF" + b"\0" * 60),
        ("cut", b""),
        ("cut", macho(*GOOD)[:-20]),
        ("more load commands", macho(*GOOD).replace(b"\x03\0\0\0", b"\xff\xff\0\0", 1)),
        ("does not end", macho(*GOOD, struct.pack("<IIIIII", 0xC, 24, 24, 0, 0, 0))),
        ("symbols that is cut", macho(*GOOD, struct.pack("<IIIIII", 2, 24, 0, 9999, 0, 0))),
    ],
)  # fmt: skip
def test_each_rule_has_a_file_that_breaks_it(word: str, data: bytes) -> None:
    """A file that would not load, or not everywhere, must be refused in words."""
    assert problems(macho(*GOOD)) == []
    assert word in "; ".join(problems(data))


def test_a_plain_x86_64_library_passes() -> None:
    """Only arm64 needs a signature, and only programs a flag for random addresses."""
    library = macho(*GOOD[:2], machine=X86_64, kind=6, flags=0x85)
    assert problems(library, machine="x86_64") == []


def test_symbols_are_read() -> None:
    """Exports and imports are told apart; names for debuggers and private ones are neither."""
    strings = b"\0_made\0_used\0_debug\0_private\0"
    form = struct.Struct("<IBBHQ")
    symbols = (
        form.pack(1, 0x0F, 1, 0, 0),
        form.pack(7, 0x01, 0, 0, 0),
        form.pack(13, 0x24, 0, 0, 0),
        form.pack(20, 0x1F, 1, 0, 0),
    )
    before = len(macho(*GOOD)) + 24
    table = struct.pack("<IIIIII", 2, 24, before, 4, before + 4 * form.size, len(strings))
    file = MachoFile(macho(*GOOD, table) + b"".join(symbols) + strings)
    assert (file.exports, file.imports) == (["_made"], ["_used"])
    with pytest.raises(NotMacho):
        MachoFile(macho(*GOOD, table) + b"".join(symbols) + strings[:-1])


def test_what_the_headers_declare() -> None:
    """The list that exports are compared with must not be empty, nor have what only Linux has."""
    found = build_macos.declared()
    assert {"vj_macos_start", "vj_macos_profile_build", "vj_policy_decide"} <= found
    assert not any(name.startswith("vj_jail_") for name in found)

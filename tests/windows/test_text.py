"""Text for Windows, against models in Python of what Windows makes of it."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from windows_library import WindowsLibrary

pytestmark = pytest.mark.one_uid

FEW = settings(max_examples=50, deadline=None)
NASTY = st.text(alphabet='ab"\\ \t\n=é😀', max_size=8)
ARGUMENT = st.one_of(NASTY, st.text(st.characters(exclude_characters="\0", codec="utf-8")))
PROGRAM = ARGUMENT.filter(lambda text: bool(text) and '"' not in text)


def windows_arguments(line: str) -> list[str]:
    """Split a command line as CommandLineToArgvW does, by its documentation."""
    if line.startswith('"'):
        end = line.index('"', 1)
        found, rest = [line[1:end]], line[end + 1 :]
    else:
        first, _, rest = line.partition(" ")
        found = [first]
    at, end = 0, len(rest)
    while True:
        while at < end and rest[at] in " \t":
            at += 1
        if at == end:
            return found
        argument, quoted = [], False
        while at < end and (quoted or rest[at] not in " \t"):
            backslashes = 0
            while at < end and rest[at] == "\\":
                backslashes += 1
                at += 1
            if at == end or rest[at] != '"':
                argument.append("\\" * backslashes)
                if at < end and (quoted or rest[at] not in " \t"):
                    argument.append(rest[at])
                    at += 1
                continue
            argument.append("\\" * (backslashes // 2))
            if backslashes % 2:
                argument.append('"')
            else:
                quoted = not quoted
            at += 1
        found.append("".join(argument))


def crt_arguments(line: str) -> list[str]:
    """Split a command line as the Universal C runtime does, whose programs see ``""`` another way."""
    found = []
    at, end = 0, len(line)
    program, quoted = [], False
    while at < end and (quoted or line[at] not in " \t"):
        if line[at] == '"':
            quoted = not quoted
        else:
            program.append(line[at])
        at += 1
    found.append("".join(program))
    while True:
        while at < end and line[at] in " \t":
            at += 1
        if at == end:
            return found
        argument, quoted = [], False
        while at < end:
            backslashes = 0
            while at < end and line[at] == "\\":
                backslashes += 1
                at += 1
            taken = True
            if at < end and line[at] == '"':
                if backslashes % 2 == 0:
                    if quoted and line[at + 1 : at + 2] == '"':
                        at += 1
                    else:
                        taken = False
                        quoted = not quoted
                backslashes //= 2
            argument.append("\\" * backslashes)
            if at == end or (not quoted and line[at] in " \t"):
                break
            if taken:
                argument.append(line[at])
            at += 1
        found.append("".join(argument))


@pytest.mark.parametrize("read", [windows_arguments, crt_arguments])
def test_the_models_read_what_the_documentation_shows(read: Callable[[str], list[str]]) -> None:
    """W7: the models must read Microsoft's own examples as Microsoft does."""
    for line, arguments in (
        (r'p "abc" d e', ["abc", "d", "e"]),
        (r"p a\\b d\"e f\"g h", [r"a\\b", 'd"e', 'f"g', "h"]),
        (r'p a\\\b d"e f"g h', [r"a\\\b", "de fg", "h"]),
        (r"p a\\\"b c d", [r"a\"b", "c", "d"]),
        (r'p a\\\\"b c" d e', [r"a\\b c", "d", "e"]),
    ):
        assert read(line)[1:] == arguments, line


@FEW
@given(program=PROGRAM, arguments=st.lists(ARGUMENT, max_size=5))
def test_a_command_line_is_read_as_it_was_meant(
    windows: WindowsLibrary, program: str, arguments: list[str]
) -> None:
    """W7: no argument may reach a program changed, cut in two, or joined with another."""
    given_arguments = [program, *arguments]
    line, fault = windows.command_line([text.encode() for text in given_arguments])
    assert fault == ""
    assert windows_arguments(line) == given_arguments
    assert crt_arguments(line) == given_arguments


def test_a_command_line_refuses_what_it_cannot_carry(windows: WindowsLibrary) -> None:
    """W7: an unpaired surrogate, or a quotation mark in a program's name, must not be repaired."""
    lone = "\ud83d".encode("utf-8", "surrogatepass")
    assert "surrogate" in windows.command_line([b"p", lone])[1]
    assert "quotation mark" in windows.command_line([b'p"', b"x"])[1]
    assert "empty" in windows.command_line([b""])[1]
    assert "too long" in windows.command_line([b"p", b"x" * 40000])[1]


def simple_upper(text: str) -> str:
    """Return *text* in upper case, unit by unit of UTF-16, where that is one unit again."""
    units = text.encode("utf-16-le", "surrogatepass")
    pairs = [int.from_bytes(units[i : i + 2], "little") for i in range(0, len(units), 2)]
    return "".join(chr(SIMPLE.get(unit, unit)) for unit in pairs)


# Taken from the properties of each character, not from the generator of the table.
SIMPLE = {
    unit: ord(upper)
    for unit in range(0x10000)
    for upper in [chr(unit).upper() if len(chr(unit).upper()) == 1 else chr(unit).title()]
    if len(upper) == 1 and ord(upper) <= 0xFFFF
}


def test_the_table_of_cases_is_that_of_unicode(windows: WindowsLibrary) -> None:
    """W18: no character of 16 bits may be folded in another way than Unicode's simple upper case."""
    different = [unit for unit in range(0x10000) if windows.fold(unit) != SIMPLE.get(unit, unit)]
    assert different == []
    assert windows.fold(ord("ä")) == ord("Ä")
    assert sum(windows.fold(unit) != unit for unit in range(0x10000)) > 1000
    # What Unicode pairs by its simple mapping alone, where the full one has two characters.
    assert unicodedata.name(chr(windows.fold(0x1F80))).endswith("PROSGEGRAMMENI")


NAME = st.text(alphabet="abAB_é😀", min_size=1, max_size=4)
NEEDED = {
    "SystemRoot": "C:\\Windows",
    "LOCALAPPDATA": "C:\\w\\temp",
    "TEMP": "C:\\w\\temp",
    "TMP": "C:\\w\\temp",
}


@FEW
@given(variables=st.dictionaries(NAME, ARGUMENT, max_size=8))
def test_an_environment_is_complete_sorted_and_unambiguous(
    windows: WindowsLibrary, variables: dict[str, str]
) -> None:
    """W5: no variable may be lost, doubled by case, or out of Windows' order."""
    whole = {**variables, **NEEDED}
    entries = [f"{name}={value}".encode() for name, value in whole.items()]
    block, fault = windows.environment(entries, b"C:\\w")
    names = [simple_upper(name) for name in whole]
    if len(set(names)) < len(names):
        assert "the same" in fault
        assert block == ""
        return
    assert fault == ""
    assert block.endswith("\0\0")
    read = [entry.partition("=") for entry in block[:-2].split("\0")]
    assert {name: value for name, _, value in read} == whole
    assert len(read) == len(whole)
    order = [simple_upper(name) for name, _, _ in read]
    assert order == sorted(order)


def test_an_environment_leads_nowhere_else(windows: WindowsLibrary) -> None:
    """W5: no folder variable may lead out of the workspace, and SystemRoot may not be missing."""
    needed = [f"{name}={value}".encode() for name, value in NEEDED.items()]
    for name in ("AppData", "USERPROFILE", "home"):
        assert windows.environment([*needed, f"{name}=C:\\w\\x".encode()], b"C:\\w")[1] == ""
        for value in ("C:\\Users\\me", "C:\\w\\..\\x", "C:\\wx", "x", ""):
            fault = windows.environment([*needed, f"{name}={value}".encode()], b"C:\\w")[1]
            assert "own folders" in fault, (name, value)
    for missing in range(len(NEEDED)):
        less = needed[:missing] + needed[missing + 1 :]
        assert "must be given" in windows.environment(less, b"C:\\w")[1]
    assert "empty" in windows.environment([*needed, b"=C:=C:\\"], b"C:\\w")[1]
    assert "NAME=VALUE" in windows.environment([*needed, b"A"], b"C:\\w")[1]


@FEW
@given(text=st.text(st.characters(exclude_characters="\0")), data=st.binary(max_size=12))
def test_conversions_keep_characters_and_refuse_all_else(
    windows: WindowsLibrary, text: str, data: bytes
) -> None:
    """W9: nothing that is no text may be taken, and no text may change on the way."""
    encoded = text.encode("utf-8", "surrogatepass")
    units, fault = windows.utf16(encoded)
    if any("\ud800" <= character <= "\udfff" for character in text):
        assert (units, "surrogate" in fault) == ("", True)
    else:
        assert (units, fault) == (text, "")
    wide = text.encode("utf-16-le", "surrogatepass")
    numbers = [int.from_bytes(wide[i : i + 2], "little") for i in range(0, len(wide), 2)]
    try:
        paired = wide.decode("utf-16-le").encode()
    except UnicodeDecodeError:
        assert windows.utf8(numbers)[0] == b""
        assert "surrogate" in windows.utf8(numbers)[1]
    else:
        assert windows.utf8(numbers) == (paired, "")
    try:
        known = data.decode()
    except UnicodeDecodeError:
        assert windows.utf16(data)[1] != ""
    else:
        assert windows.utf16(data)[1] == ("it has a NUL inside" if "\0" in known else "")


@FEW
@given(data=st.binary(max_size=300), name=st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True))
def test_identifiers_are_those_of_the_hash(windows: WindowsLibrary, data: bytes, name: str) -> None:
    """W25, W26: no identifier may differ from what Windows derives from the name."""
    assert windows.sha256(data) == hashlib.sha256(data).digest()
    for kind, prefix, text, count in (
        ("package", "S-1-15-2", name.lower(), 7),
        ("capability", "S-1-15-3-1024", name.upper(), 8),
    ):
        digest = hashlib.sha256(text.encode("utf-16-le")).digest()
        numbers = [int.from_bytes(digest[4 * i : 4 * i + 4], "little") for i in range(count)]
        assert windows.sid(kind, name) == "-".join([prefix, *map(str, numbers)])


PIECE = st.text(alphabet="aAbäÄ-. ~1:é", max_size=3)
DEVICE = r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³]) *(\..*)?"


@FEW
@given(name=st.one_of(PIECE, st.from_regex(DEVICE, fullmatch=True), st.text(max_size=6)))
def test_names_that_windows_would_change_are_refused(windows: WindowsLibrary, name: str) -> None:
    """W18: no name may be taken that is not the name of the file that would be made."""
    if "\0" in name:
        return
    refused = windows.name_fault(name.encode("utf-8", "surrogatepass")) != ""
    short = re.fullmatch(r"(?=[^.]{3,8}(\.|$))[^.]+~[0-9]+(\.[^.]{0,3}(\..*)?)?", name, re.DOTALL)
    wanted = (
        name in ("", ".", "..")
        or name[-1] in ". "
        or bool(set(name) & set('<>:"/\\|?*'))
        or any(unicodedata.category(character) in ("Cc", "Cs") for character in name)
        or bool(re.fullmatch(DEVICE, name, re.IGNORECASE | re.DOTALL | re.ASCII))
    )
    if wanted or not short:
        assert refused == wanted, (name, windows.name_fault(name.encode()))


@FEW
@given(paths=st.lists(st.lists(st.sampled_from("aAbBäÄ"), min_size=1, max_size=3), max_size=6))
def test_paths_that_windows_takes_for_one_are_found(
    windows: WindowsLibrary, paths: list[list[str]]
) -> None:
    """W18: no two paths may be taken whose names differ in case only, at any depth."""
    spellings: dict[str, set[str]] = {}
    for path in paths:
        for depth in range(1, len(path) + 1):
            text = "/".join(path[:depth])
            spellings.setdefault(simple_upper(text), set()).add(text)
    whole = ["/".join(path) for path in paths]
    wanted = len(set(whole)) < len(whole) or any(len(texts) > 1 for texts in spellings.values())
    assert windows.clashes([path.encode() for path in whole]) == wanted

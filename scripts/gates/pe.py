#!/usr/bin/env python3
"""Refuse Windows files that would not load, or not as hardened as ours, or that export another list.

    scripts/gates/pe.py SUBJECT... [--machine x86_64] [--exports native/visjail/windows_jail.h]
        [--ignore NAME]...

SUBJECT is a folder, a wheel or a tar file. Rules for each PE file: the machine; no library but
those of every Windows and its C run time; nothing bound at load time that Windows before 10 1809
or wine lacks, because such a file does not start there at all instead of naming what is missing;
nothing bound late by the loader; at random addresses, of all 64 bits; no data that is executed; no
section that can be both written and executed. A library exports what the header declares, in any
order, and nothing else; a program exports nothing. A subject without any PE file is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the folder of this package
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gates.contents import judged
from gates.pe_file import PeFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gates.contents import Entry

__all__ = ["LATE", "LIBRARIES", "declared", "problems"]

LIBRARIES = frozenset(
    (
        *("kernel32.dll", "advapi32.dll", "userenv.dll", "user32.dll"),
        *("bcrypt.dll", "ntdll.dll", "ws2_32.dll"),
    )
)
"""What the native code may ask of Windows."""
_RUN_TIME = re.compile(r"msvcrt\.dll|api-ms-win-crt-[a-z]+-l1-1-0\.dll|vcruntime140\.dll")
LATE = frozenset(
    (
        *("CreateAppContainerProfile", "DeleteAppContainerProfile", "GetAppContainerFolderPath"),
        *("DeriveAppContainerSidFromAppContainerName", "DeriveCapabilitySidsFromName"),
        *("CreatePseudoConsole", "ResizePseudoConsole", "ClosePseudoConsole"),
        *("ReleasePseudoConsole", "CreateDesktopW", "CreateDesktopExW", "OpenDesktopW"),
        *("CloseDesktop", "GetThreadDesktop", "GetProcessWindowStation", "OpenWindowStationW"),
    )
)
"""Entry points that are looked up when a jail is made, so that their absence has a name."""
_HIGH_ENTROPY, _DYNAMIC_BASE, _NO_EXECUTE = 0x20, 0x40, 0x100
_CONSOLE, _WINDOWS = 3, 2
_FUNCTION = re.compile(r"\b(vj_\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def declared(header: str) -> list[str]:
    """Return the functions that the text of a header declares, sorted.

    A type of a function (``typedef ... (*name)(...)``) is none.
    """
    text = _COMMENT.sub("", header)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    # A body ends what it belongs to; those within others go first.
    while (shorter := re.sub(r"\{[^{}]*\}", ";", text)) != text:
        text = shorter
    names = set()
    for statement in text.split(";"):
        if "typedef" not in statement and "static" not in statement:
            names.update(_FUNCTION.findall(statement)[:1])
    return sorted(names)


def problems(
    subject: Path,
    *,
    machine: str = "x86_64",
    exports: Sequence[str] | None = None,
    ignored: Sequence[str] = (),
    also_needs: Sequence[str] = (),
) -> list[str]:
    """Return each broken rule as ``file: rule``; nothing for a subject that may be shipped.

    *exports* is what each library has to export; without it none is compared. Names in *ignored*
    are the test's own programs, which may use what they like. *also_needs* are libraries that the
    files may ask for beside Windows' own, in lower case.
    """

    def rules(found: list[Entry]) -> list[str]:
        broken: list[str] = []
        seen = 0
        for entry in found:
            if entry.data[:2] != b"MZ" or entry.name in ignored:
                continue
            seen += 1
            try:
                pe = PeFile(entry.data)
            except ValueError as error:
                broken.append(f"{entry.name}: {error}")
                continue
            of_it = [
                *_place(pe, machine),
                *_imports(pe, also_needs),
                *_memory(pe),
                *_exports(pe, exports),
            ]
            broken += [f"{entry.name}: {rule}" for rule in of_it]
        if not seen:
            broken.append(f"{subject}: no PE file in it")
        return broken

    return judged(subject, rules)


def _place(pe: PeFile, machine: str) -> Iterator[str]:
    if pe.machine != machine:
        yield f"is for {pe.machine}, not for {machine}"
    if pe.subsystem not in {_CONSOLE, _WINDOWS}:
        yield f"is for the subsystem {pe.subsystem}"


def _imports(pe: PeFile, also_needs: Sequence[str]) -> Iterator[str]:
    for library, names in sorted(pe.imports.items()):
        known = library in LIBRARIES or library in also_needs
        if not known and _RUN_TIME.fullmatch(library) is None:
            yield f"needs {library}, which is not among the libraries of the native code"
        for name in sorted(LATE.intersection(names)):
            yield f"binds {name} at load time, and some systems have none"
        if any(name.startswith("#") for name in names):
            yield f"asks {library} for a function by its number"
    for library in pe.delayed:
        yield f"lets the loader find {library} late"


def _memory(pe: PeFile) -> Iterator[str]:
    if not pe.characteristics & _DYNAMIC_BASE:
        yield "lies at fixed addresses"
    if not pe.characteristics & _HIGH_ENTROPY:
        yield "lies in the lower 4 GiB"
    if not pe.characteristics & _NO_EXECUTE:
        yield "may execute its data"
    for section in pe.writable_code:
        yield f"has code that can be written ({section})"


def _exports(pe: PeFile, exports: Sequence[str] | None) -> Iterator[str]:
    for name in pe.forwarded:
        yield f"exports {name} of another library"
    if not pe.library:
        if pe.exports:
            yield f"is a program and exports {', '.join(pe.exports)}"
        return
    if exports is None:
        return
    for name in sorted(set(exports) - set(pe.exports)):
        yield f"does not export {name}"
    for name in sorted(set(pe.exports) - set(exports)):
        yield f"exports {name}, which no header declares"


def main() -> int:
    """Print each broken rule; 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="+", type=Path, metavar="SUBJECT")
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"))
    parser.add_argument("--exports", type=Path, metavar="HEADER")
    parser.add_argument("--ignore", action="append", default=[], metavar="NAME")
    options = parser.parse_args()
    exports = declared(options.exports.read_text()) if options.exports else None
    broken = []
    for subject in options.subjects:
        broken += problems(
            subject, machine=options.machine, exports=exports, ignored=options.ignore
        )
    print("\n".join(broken) if broken else "PE gate: ok")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

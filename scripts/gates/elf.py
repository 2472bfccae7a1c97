#!/usr/bin/env python3
"""Refuse files that would not load, or not as hardened as ours, on the systems that we name.

    scripts/gates/elf.py SUBJECT... [--machine x86_64] [--glibc 2.35] [--hardened 'bin/vis*']...

SUBJECT is a folder, a wheel or a tar file. Rules for each ELF file: no symbol version above
the baseline, and none that is glibc's own business; no library but those of every glibc system
and those that it finds beside itself, whatever LD_LIBRARY_PATH names; no path to search but from
its own place; the loader of its machine; no set-uid or set-gid bit; no executable stack; no
relocations in code. Of those that ``--hardened`` names also: at random addresses, and all of its
tables of addresses read-only before it runs. A subject without any ELF file is an error.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import stat
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the folder of this package
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gates.contents import judged
from gates.elf_file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gates.contents import Entry

__all__ = ["GLIBC", "problems"]

GLIBC = "2.35"
"""The baseline: the oldest glibc that what is released has to do with."""
LIBRARIES = frozenset(
    (
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
        *("libutil.so.1", "libresolv.so.2", "libgcc_s.so.1"),
        *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
    )
)
"""What each system with glibc has: its libraries, and the compiler's run time."""
LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}
_ORIGIN = re.compile(r"\$(ORIGIN|\{ORIGIN\})(/.*)?")
_NUMBERED = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")


def problems(
    subject: Path,
    *,
    machine: str = "x86_64",
    glibc: str = GLIBC,
    hardened: Sequence[str] = (),
) -> list[str]:
    """Return each broken rule as ``file: rule``; nothing for a subject that may be shipped."""

    def rules(found: list[Entry]) -> list[str]:
        names = {entry.name: entry for entry in found}
        broken: list[str] = []
        seen = 0
        for entry in found:
            if entry.mode & (stat.S_ISUID | stat.S_ISGID):
                broken.append(f"{entry.name}: a set-uid or set-gid bit")
            if not entry.data.startswith(b"\x7fELF"):
                continue
            seen += 1
            try:
                elf = ElfFile(entry.data)
            except ValueError as error:
                broken.append(f"{entry.name}: {error}")
                continue
            ours = any(fnmatch(entry.name, pattern) for pattern in hardened)
            of_it = [*_place(elf, entry.name, names, machine), *_versions(elf, glibc)]
            of_it += [*_memory(elf), *(_hardening(elf) if ours else ())]
            broken += [f"{entry.name}: {rule}" for rule in of_it]
        if not seen:
            broken.append(f"{subject}: no ELF file in it")
        broken += [
            f"{subject}: no ELF file is named {pattern}"
            for pattern in hardened
            if not any(
                fnmatch(name, pattern) and names[name].data[:4] == b"\x7fELF" for name in names
            )
        ]
        return broken

    return judged(subject, rules)


def _versions(elf: ElfFile, glibc: str) -> Iterator[str]:
    most = _number(glibc)
    for library, version in elf.versions:
        numbered = _NUMBERED.fullmatch(version)
        if numbered is not None:
            if _number(numbered[1]) > most:
                yield f"needs {version} of {library}, above {glibc}"
        elif version.startswith("GLIBC_"):
            yield f"needs {version} of {library}, which is no numbered interface"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _place(elf: ElfFile, name: str, names: dict[str, Entry], machine: str) -> Iterator[str]:
    if elf.machine != machine:
        yield f"is for {elf.machine}, not for {machine}"
    if elf.interpreter is not None and elf.interpreter != LOADERS.get(elf.machine):
        yield f"has the loader {elf.interpreter}"
    beside = []
    for path in elf.search:
        match = _ORIGIN.fullmatch(path)
        place = posixpath.join(posixpath.dirname(name), "." + (match[2] or "") if match else "..")
        place = posixpath.normpath(place)
        if match is None or place == ".." or place.startswith("../"):
            yield f"searches libraries in {path or 'the current folder'}"
        else:
            beside.append(place)
    for library in elf.needed:
        here = any(posixpath.normpath(f"{place}/{library}") in names for place in beside)
        if library not in LIBRARIES and not here:
            yield f"needs {library}, which is neither beside it nor on every system"
        elif library not in LIBRARIES and elf.overruled:
            yield f"needs {library}, and looks in LD_LIBRARY_PATH before its own place (RUNPATH)"


def _memory(elf: ElfFile) -> Iterator[str]:
    if elf.executable_stack:
        yield "has an executable stack"
    if elf.text_relocations:
        yield "has relocations in its code"


def _hardening(elf: ElfFile) -> Iterator[str]:
    if elf.kind != 3:
        yield "lies at fixed addresses (no PIE)"
    if not elf.relro:
        yield "has no part that becomes read-only (no RELRO)"
    if not elf.bind_now:
        yield "binds its symbols late (no BIND_NOW)"


def main() -> int:
    """Print each broken rule; 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="+", type=Path, metavar="SUBJECT")
    parser.add_argument("--machine", default="x86_64", choices=sorted(LOADERS))
    parser.add_argument("--glibc", default=GLIBC, help="the oldest that has to do")
    parser.add_argument("--hardened", action="append", default=[], metavar="PATTERN")
    options = parser.parse_args()
    broken = []
    for subject in options.subjects:
        broken += problems(
            subject, machine=options.machine, glibc=options.glibc, hardened=options.hardened
        )
    print("\n".join(broken) if broken else "ELF gate: ok")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Generate ``native/visjail/seccomp_programs.h``, the system call filters of every jail.

The rules (`seccomp_rules`) are compiled by libseccomp into one BPF program per architecture and
purpose: the filter of each network mode, the small ones that hand calls to a jail's broker, and
the list of what the broker itself may call. The result is committed, so that building visruntime
needs no libseccomp; ``--check`` fails when the committed file is not what these rules generate.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import difflib
import errno
import os
import re
import struct
import sys
from pathlib import Path

import pyseccomp
from seccomp_lists import (
    AND,
    JUMP,
    JUMP_EQUAL,
    JUMP_GREATER,
    JUMP_GREATER_EQUAL,
    JUMP_SET,
    LOAD_WORD,
    LOW_32,
    OFFSET_ARCHITECTURE,
    OFFSET_NUMBER,
    RETURN,
    Instruction,
    ioctl_program,
    personality_program,
)
from seccomp_rules import ALLOWED, HELPERS, NOTIFY, PROGRAMS, VARIANTS, rules_of

OUTPUT = Path(__file__).resolve().parent.parent / "native" / "visjail" / "seccomp_programs.h"

LAST_SYSCALL = 450
"""The highest number that this table was reviewed for (Linux 5.17); above it: ENOSYS."""
LAST_SYSCALL_NAME = "set_mempolicy_home_node"

ARCHITECTURES = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
ABSENT = {
    "x86_64": frozenset(),
    "aarch64": frozenset(
        (
            "chmod chown creat futimesat inotify_init ioperm iopl lchown link mkdir mknod open"
            " rename symlink uselib utime utimes"
        ).split()
    ),
}
"""System calls of the table that an architecture never had; anything else missing is an error."""

X32_BIT = 0x40000000
MAX_INSTRUCTIONS = 4096


def answer(
    program: list[Instruction], arch: int, number: int, arguments: tuple[int, ...] = ()
) -> int:
    """Run *program* as the kernel would and return its answer (``SECCOMP_RET_*`` and data)."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    masked = [value & 0xFFFFFFFFFFFFFFFF for value in padded]
    data = struct.pack("<IIQ6Q", number & LOW_32, arch, 0, *masked)
    accumulator = position = 0
    while True:
        code, jump_true, jump_false, k = program[position]
        position += 1
        if code == LOAD_WORD:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == AND:
            accumulator &= k
        elif code == RETURN:
            return k
        elif code == JUMP:
            position += k
        else:
            taken = {
                JUMP_EQUAL: accumulator == k,
                JUMP_GREATER: accumulator > k,
                JUMP_GREATER_EQUAL: accumulator >= k,
                JUMP_SET: bool(accumulator & k),
            }[code]
            position += jump_true if taken else jump_false


def prologue(arch: str) -> list[Instruction]:
    """Return what comes before libseccomp's part.

    A foreign calling convention ends the process: its numbers mean other calls. A call newer
    than the table does not exist in the jail, so that programs take their fallbacks.
    """
    kill = Instruction(RETURN, 0, 0, pyseccomp.KILL_PROCESS)
    code = [
        Instruction(LOAD_WORD, 0, 0, OFFSET_ARCHITECTURE),
        Instruction(JUMP_EQUAL, 1, 0, ARCHITECTURES[arch]),
        kill,
        Instruction(LOAD_WORD, 0, 0, OFFSET_NUMBER),
    ]
    if arch == "x86_64":
        code += [Instruction(JUMP_GREATER_EQUAL, 0, 1, X32_BIT), kill]
    code += [
        Instruction(JUMP_GREATER, 0, 1, LAST_SYSCALL),
        Instruction(RETURN, 0, 0, pyseccomp.ERRNO(errno.ENOSYS)),
    ]
    return code


def library_version() -> str:
    """Return the version of the libseccomp in use, such as ``2.5.4``."""

    class Version(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint) for name in ("major", "minor", "micro")]

    library = ctypes.CDLL(ctypes.util.find_library("seccomp"))
    library.seccomp_version.restype = ctypes.POINTER(Version)
    version = library.seccomp_version().contents
    return f"{version.major}.{version.minor}.{version.micro}"


def number_of(arch: str, name: str) -> int | None:
    """Return the number of a system call, or None where *arch* has no such call.

    Raises:
        SystemExit: the library does not know the name at all, or *arch* should have it.
    """
    if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) == -1:
        raise SystemExit(f"libseccomp {library_version()} does not know {name}; use >= 2.5.4")
    number = pyseccomp.resolve_syscall(ARCHITECTURES[arch], name)
    if (number < 0) != (name in ABSENT[arch]):
        raise SystemExit(f"{name} on {arch}: number {number}, which ABSENT does not expect")
    return None if number < 0 else number


def compile_rules(arch: str, variant: str) -> list[Instruction]:
    """Return the complete program for one architecture and network mode."""
    if number_of(arch, LAST_SYSCALL_NAME) != LAST_SYSCALL:
        raise SystemExit(f"{LAST_SYSCALL_NAME} is not number {LAST_SYSCALL} on {arch}")
    otherwise = pyseccomp.ERRNO(errno.EPERM) if variant in HELPERS else pyseccomp.ALLOW
    program = pyseccomp.SyscallFilter(otherwise)
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)
    native = pyseccomp.system_arch()
    if ARCHITECTURES[arch] != native:
        program.add_arch(ARCHITECTURES[arch])
        program.remove_arch(native)
    for rule in rules_of(variant):
        if number_of(arch, rule.syscall) is None:
            continue
        special = {NOTIFY: pyseccomp.NOTIFY, ALLOWED: pyseccomp.ALLOW}
        program.add_rule(
            special.get(rule.error) or pyseccomp.ERRNO(rule.error),
            rule.syscall,
            *(
                pyseccomp.Arg(test.argument, pyseccomp.GT, test.value)
                if test.mask is None
                else pyseccomp.Arg(test.argument, pyseccomp.MASKED_EQ, test.mask, test.value)
                for test in rule.tests
            ),
        )
    descriptor = os.memfd_create("program")
    with os.fdopen(descriptor, "r+b") as file:
        program.export_bpf(file)
        file.seek(0)
        exported = file.read()
    fields = struct.iter_unpack("<HBBI", exported)
    code = prologue(arch)
    if variant in VARIANTS:
        code += ioctl_program(pyseccomp.resolve_syscall(ARCHITECTURES[arch], "ioctl"), variant)
        number = pyseccomp.resolve_syscall(ARCHITECTURES[arch], "personality")
        code += personality_program(number)
    code += [Instruction(*each) for each in fields]
    if len(code) > MAX_INSTRUCTIONS:
        raise SystemExit(f"{arch} {variant}: {len(code)} instructions, the kernel takes 4096")
    return code


def render(programs: dict[tuple[str, str], list[Instruction]]) -> str:
    """Return the text of the header."""
    tool = f"scripts/generate_seccomp.py with libseccomp {library_version()}"
    lines = [
        "// System call filters of the jail, for each architecture and network mode.",
        "//",
        f"// Generated by {tool}: do not edit.",
        "// Regenerate with `uv run python scripts/generate_seccomp.py`; the rules and the reasons",
        "// for them are in scripts/seccomp_rules.py.",
        "//",
        "// clang-format off",
        "#ifndef VISJAIL_SECCOMP_PROGRAMS_H",
        "#define VISJAIL_SECCOMP_PROGRAMS_H",
        "",
        "#include <linux/filter.h>",
        "",
        f"#define SECCOMP_LAST_SYSCALL {LAST_SYSCALL} // {LAST_SYSCALL_NAME}",
    ]
    for position, arch in enumerate(ARCHITECTURES):
        lines += ["", f"#{'el' if position else ''}if defined(__{arch}__)"]
        for variant in PROGRAMS:
            code = programs[arch, variant]
            lines += ["", f"// {len(code)} instructions"]
            lines.append(f"static const struct sock_filter seccomp_{variant}[] = {{")
            lines += [f"    {{0x{i.code:02x}, {i.jt}, {i.jf}, 0x{i.k:08x}}}," for i in code]
            lines.append("};")
    lines += [
        "",
        "#else",
        '#error "no system call filter for this architecture: see scripts/generate_seccomp.py"',
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def parse(text: str) -> dict[tuple[str, str], list[Instruction]]:
    """Read the programs back from the text of a header."""
    programs: dict[tuple[str, str], list[Instruction]] = {}
    arch = ""
    current: list[Instruction] = []
    for line in text.splitlines():
        if match := re.match(r"#(?:el)?if defined\(__(\w+)__\)", line):
            arch = match[1]
        elif match := re.match(r"static const struct sock_filter seccomp_(\w+)\[\]", line):
            current = programs[arch, match[1]] = []
        elif match := re.match(r"    \{(\w+), (\d+), (\d+), (\w+)\},", line):
            current.append(Instruction(*(int(field, 0) for field in match.groups())))
    return programs


def main() -> int:
    """Write the header, or compare it with what would be written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="exit 1 and print the difference")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    committed = options.output.read_text() if options.output.exists() else ""
    made_with = re.search(r"with libseccomp ([\d.]+)", committed)
    if options.check and made_with and made_with[1] != library_version():
        sys.exit(
            f"cannot compare: {options.output.name} was made with libseccomp {made_with[1]} and "
            f"this machine has {library_version()}; check where the versions are the same"
        )
    text = render({(a, v): compile_rules(a, v) for a in ARCHITECTURES for v in PROGRAMS})
    if not options.check:
        options.output.write_text(text)
        return 0
    difference = "".join(
        difflib.unified_diff(
            committed.splitlines(keepends=True),
            text.splitlines(keepends=True),
            str(options.output.name),
            "generated now",
        )
    )
    sys.stdout.write(difference)
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())

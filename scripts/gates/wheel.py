#!/usr/bin/env python3
"""Refuse a wheel or source distribution that is not what users are promised.

    scripts/gates/wheel.py WHEEL|SDIST...

Of a wheel: its tag is exactly ours, it is small, its programs may be executed and nothing
else may, it holds one package and its metadata, no file of a build or of a person, and nothing
that runs when it is installed. Of a source distribution: the same about its contents.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the folder of this package
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gates.contents import Entry, command, judged

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COMPILED", "MOST_BYTES", "PROGRAMS", "digest", "problems"]

PROGRAMS = ("visruntime/bin/visjail-init", "visruntime/vispython")
"""What the wheel has of programs; everything else is loaded or read."""
COMPILED = ("visruntime/_viscore.abi3.so", "visruntime/_visjail.abi3.so")
MOST_BYTES = 3 * 1000 * 1000
_TAG = re.compile(r"visruntime-([\w.]+)-cp311-abi3-manylinux_2_35_(x86_64|aarch64)\.whl")
_JUNK = re.compile(
    r"(^|/)(__pycache__|build|dist|\.venv[^/]*|\.git|\.[a-z]+_cache|\.hypothesis|\.ci|"
    r"\.env|.*\.(pyc|o|egg-info|pem|key|log|orig|rej|swp))(/|$)"
)
_SDIST_TOP = frozenset(
    (
        *("src", "native", "tests", "scripts", "doc", "examples", "pyproject.toml", "uv.lock"),
        *("CMakeLists.txt", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"),
        *("SECURITY.md", "RELEASING.md", "LICENSE", "PKG-INFO", ".clang-format", ".clang-tidy"),
        *(".editorconfig", ".gitignore", ".pre-commit-config.yaml"),
    )
)


def problems(path: Path) -> list[str]:
    """Return each broken promise; nothing for a file that may be published."""

    def rules(found: list[Entry]) -> Iterator[str]:
        yield from _wheel(path, found) if path.suffix == ".whl" else _sdist(found)
        yield from (f"{entry.name}: does not belong there" for entry in found if _is_junk(entry))

    return judged(path, rules)


def digest(data: bytes) -> str:
    """Return the digest of *data* as RECORD has it."""
    encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={encoded.decode()}"


def _is_junk(entry: Entry) -> bool:
    return _JUNK.search(entry.name) is not None


def _wheel(path: Path, found: list[Entry]) -> Iterator[str]:
    match = _TAG.fullmatch(path.name)
    if match is None:
        yield f"{path.name}: is not for cp311-abi3-manylinux_2_35"
        return
    if path.stat().st_size > MOST_BYTES:
        yield f"{path.name}: {path.stat().st_size} bytes, more than {MOST_BYTES}"
    names = {entry.name: entry for entry in found}
    metadata = f"visruntime-{match[1]}.dist-info"
    for name in (*PROGRAMS, *COMPILED, "visruntime/py.typed", "visruntime/guest/worker.py"):
        if name not in names:
            yield f"{name}: is missing"
    for entry in found:
        if entry.executable != (entry.name in PROGRAMS):
            yield f"{entry.name}: {'may' if entry.executable else 'may not'} be executed"
        if entry.link is not None:
            yield f"{entry.name}: is a link"
        if not entry.name.startswith(("visruntime/", metadata + "/")):
            yield f"{entry.name}: lies outside of the package"
        if entry.name.endswith((".pth", ".start")):
            yield f"{entry.name}: would run at each start of Python"
    tags = names.get(f"{metadata}/WHEEL", Entry("", 0, b"")).data.decode()
    tag = f"Tag: cp311-abi3-manylinux_2_35_{match[2]}"
    if [line for line in tags.splitlines() if line.startswith("Tag: ")] != [tag]:
        yield f"{metadata}/WHEEL: its tags are not the one of the file's name"
    yield from _record(names, f"{metadata}/RECORD")


def _record(names: dict[str, Entry], record: str) -> Iterator[str]:
    if record not in names:
        yield f"{record}: is missing"
        return
    rows = [row for row in csv.reader(io.StringIO(names[record].data.decode())) if row]
    listed = {row[0]: row[1:] for row in rows}
    if len(listed) != len(rows):
        yield f"{record}: names a file twice"
    for name in sorted(listed.keys() - names.keys()):
        yield f"{name}: is in RECORD and not in the wheel"
    for name, entry in names.items():
        said = ["", ""] if name == record else [digest(entry.data), str(len(entry.data))]
        if listed.get(name) != said:
            yield f"{name}: is not what RECORD says"


def _sdist(found: list[Entry]) -> Iterator[str]:
    for entry in found:
        root, _, inner = entry.name.partition("/")
        if not root.startswith("visruntime-") or inner.partition("/")[0] not in _SDIST_TOP:
            yield f"{entry.name}: does not belong there"
        if entry.link is not None:
            yield f"{entry.name}: is a link"


def main() -> int:
    """Print each broken promise; 1 if there is one."""
    return command("wheel gate", __doc__, problems)


if __name__ == "__main__":
    sys.exit(main())

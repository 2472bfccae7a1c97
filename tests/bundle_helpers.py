"""Small platform archives that tests make themselves, whole or with one thing wrong."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from typing import TYPE_CHECKING

from archive.container import write_bill, write_manifest
from archive.licences import Component

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Any

VERSION = "1.0"
DIGEST = "0" * 64


def stage(
    folder: Path,
    *,
    version: str = VERSION,
    platform: str = "",
    glibc: str = "2.17",
    extensions: Iterable[str] = (),
) -> Path:
    """Make the tree of an archive below *folder*, with a manifest that fits; return it.

    *extensions* are the extension modules that its Python has.
    """
    platform = platform or f"linux-{os.uname().machine}"
    tree = folder / f"visruntime-{version}-{platform}"
    machine = platform.partition("-")[2]
    modules = "python/lib/python3.13/lib-dynload"
    files = {
        "bin/uv": 0o755,
        "bin/visjail-init": 0o755,
        "bin/vispython": 0o755,
        "lib/libvisjail.so": 0o644,
        "lib/_viscore.abi3.so": 0o644,
        "lib/pkgconfig/visjail.pc": 0o644,
        "include/visjail/visjail.h": 0o644,
        "lib/worker/start.py": 0o644,
        "lib/worker/bootstrap": 0o644,
        "python/bin/python3.13": 0o755,
        "python/lib/libpython3.13.so.1.0": 0o644,
        "LICENSES/uv/MIT": 0o644,
        "LICENSES/cpython/LICENSE.txt": 0o644,
        "LICENSES/visruntime/LICENSE": 0o644,
        **{f"{modules}/{m}.cpython-313-{machine}-linux-gnu.so": 0o644 for m in extensions},
    }
    for name, mode in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A program that is executed leaves a trace.
        path.write_text(f"#!/bin/sh\ntouch {folder}/was-executed\n" if mode == 0o755 else name)
        path.chmod(mode)
    (tree / "python/bin/python3").symlink_to("python3.13")
    components = [
        Component(name, v, "MIT", "https://example.org", DIGEST)
        for name, v in (("visruntime", version), ("uv", "0.1"), ("cpython", "3.13.0"))
    ]
    write_bill(tree, version, components)
    fields = {
        "version": version,
        "platform": platform,
        "glibc": glibc,
        "python": {
            "version": "3.13.0",
            "abi": "cp313",
            "program": "python/bin/python3.13",
            "library": "python/lib/libpython3.13.so.1.0",
        },
    }
    write_manifest(tree, fields, components)
    return tree


def change_manifest(tree: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Let *change* alter the manifest of *tree*."""
    path = tree / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def packed(
    tree: Path,
    *,
    more: tuple[tuple[tarfile.TarInfo, bytes], ...] = (),
    without: tuple[str, ...] = (),
    form: int = tarfile.USTAR_FORMAT,
) -> Path:
    """Pack *tree* beside itself, with *more* members and *without* some; return the file."""
    out = tree.parent / f"{tree.name}.tar.gz"
    files = sorted(p for p in tree.rglob("*") if p.is_file() or p.is_symlink())
    files.sort(key=lambda path: path.name != "manifest.json")
    with (
        gzip.open(out, "wb", 1) as packed_file,
        tarfile.open(fileobj=packed_file, mode="w", format=form) as archive,
    ):
        for path in files:
            name = path.relative_to(tree).as_posix()
            if name in without:
                continue
            info = archive.gettarinfo(path, f"{tree.name}/{name}")
            info.uname = info.gname = ""
            content = path.read_bytes() if info.isreg() else b""
            archive.addfile(info, io.BytesIO(content))
        for info, content in more:
            archive.addfile(info, io.BytesIO(content))
    return out


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return one more member of a tar file."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content

"""Manifest, bill of materials and tar file of a staged archive; the same tree gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from archive.licences import Component

__all__ = ["write_bill", "write_manifest", "write_tar"]


def write_bill(tree: Path, version: str, components: list[Component]) -> None:
    """Write the CycloneDX bill of materials of *tree*."""
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{tree.name}/{[*map(tuple, components)]}")
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "visruntime", "version": version}
        },
        "components": [
            {
                "type": "library",
                "name": each.name,
                "version": each.version,
                "licenses": [{"license": {"id": each.license}}]
                if " " not in each.license
                else [{"expression": each.license}],
                "hashes": [{"alg": "SHA-256", "content": each.sha256}],
                "externalReferences": [{"type": "distribution", "url": each.source}],
            }
            for each in components
        ],
    }
    (tree / "sbom.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def write_manifest(tree: Path, fields: dict[str, Any], components: list[Component]) -> None:
    """Write the manifest with the digest of every file of *tree*; modes become 0644 or 0755."""
    files: list[dict[str, Any]] = []
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if path.is_symlink():
            files.append({"path": name, "link": os.readlink(path)})
        elif path.is_file():
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            mode = path.stat().st_mode & 0o777
            files.append({"path": name, "mode": mode, "size": len(data), "sha256": digest})
    whole = {
        "schema": 1,
        "name": tree.name,
        **fields,
        "files": files,
        "components": [each._asdict() for each in components],
    }
    (tree / "manifest.json").write_text(json.dumps(whole, indent=1) + "\n")
    (tree / "manifest.json").chmod(0o644)


def write_tar(tree: Path, out: Path, epoch: int) -> Path:
    """Write *tree* as ``out/NAME.tar.gz``: plain ustar, the manifest first, all of one time."""
    path = out / f"{tree.name}.tar.gz"
    names = [f for f in sorted(tree.rglob("*")) if f.is_symlink() or f.is_file()]
    names.sort(key=lambda file: file.name != "manifest.json" or file.parent != tree)
    with open(path, "wb") as file:
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for each in names:
                info = archive.gettarinfo(each, f"{tree.name}/{each.relative_to(tree).as_posix()}")
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = epoch
                info.mode = info.mode & 0o777 if not info.issym() else 0o777
                if info.issym():
                    archive.addfile(info)
                    continue
                with open(each, "rb") as content:
                    archive.addfile(info, content)
    return path

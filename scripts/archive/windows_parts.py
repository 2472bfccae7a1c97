"""The parts of an archive for Windows, laid out as they will lie in it (`archive.parts` packs them)."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from gates.archive_windows import version_digits

from archive.parts import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["gather"]

HEADER = Path(__file__).resolve().parents[2] / "native" / "visjail" / "windows_jail.h"
LEFT_OUT = ("site-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "__pycache__")
TAKEN = ("*.exe", "*.dll", "*.pyd", "*.zip", "*._pth")
"""Of the folder of ``python.exe``."""
RUN_TIME = "vcruntime140.dll"
"""Of the compiler of Windows; what is loaded from ``bin`` finds it only there."""


def gather(
    parts: Path, native: Mapping[str, Path], python: Path, licence: Path, version: str, uv: Path
) -> None:
    """Put the parts into *parts*, which is not there yet.

    Args:
        parts: a folder.
        native: place in the archive -> file, of what is compiled by us.
        python: folder of ``python.exe`` of an installed CPython, whose text of a licence is *licence*.
        licence: a file.
        version: of that CPython.
        uv: folder into which its wheel was installed.
    """
    for place, file in native.items():
        _copy(file, parts / place)
    _copy(HEADER, parts / "include" / "visjail" / HEADER.name)
    for pattern in TAKEN:
        for path in python.glob(pattern):
            _copy(path, parts / "python" / path.name)
    for folder in ("DLLs", "Lib"):
        if (python / folder).is_dir():
            left_out = shutil.ignore_patterns(*LEFT_OUT)
            shutil.copytree(python / folder, parts / "python" / folder, ignore=left_out)
    run_time = next(python.glob(RUN_TIME), None)
    if run_time is not None:
        _copy(run_time, parts / "bin" / RUN_TIME)
    _copy(licence, parts / "LICENSES" / "cpython" / licence.name)
    (program,) = uv.rglob("uv.exe")
    _copy(program, parts / "bin" / "uv.exe")
    (metadata,) = uv.glob("uv-*.dist-info")
    shutil.copytree(metadata / "licenses", parts / "LICENSES" / "uv")
    library = python / f"python{version_digits(version)}.dll"
    uv_version = metadata.name.removeprefix("uv-").removesuffix(".dist-info")
    components = [
        _component("uv", uv_version, "Apache-2.0 OR MIT", f"uv=={uv_version} by uv.lock", program),
        _component("cpython", version, "PSF-2.0", "an installed CPython", library),
    ]
    (parts / COMPONENTS).write_text(json.dumps(components))


def _copy(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


def _component(name: str, version: str, licence: str, source: str, file: Path) -> dict[str, str]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "name": name,
        "version": version,
        "license": licence,
        "source": source,
        "sha256": digest,
    }

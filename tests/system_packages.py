"""Packages of another release of this system, unpacked into a folder and not installed."""

from __future__ import annotations

import platform
import subprocess
from typing import TYPE_CHECKING

from archive.apt import PrivateApt, own_mirror
from required import missing

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["unpacked"]

SECONDS = 100
"""That dpkg may take."""


def unpacked(folder: Path, suites: dict[str, str], *packages: str) -> dict[str, str]:
    """Unpack *packages* into *folder*/root, by apt and its keys; return the version of each.

    Where that cannot be done: `missing`, which names why.

    Args:
        folder: one without any file.
        suites: by the code name of a release, the one whose packages are taken there.
        packages: by name; what they depend on is left out.
    """
    try:
        suite = suites[platform.freedesktop_os_release().get("VERSION_CODENAME", "")]
        sources = [f"deb {own_mirror()} {suite} main"]
        apt = PrivateApt(folder, sources, "Dir::State::Status=/dev/null")
        apt.run("apt-get", "-qq", "update")
        apt.run("apt-get", "-qq", "download", *packages)
    except (OSError, KeyError, subprocess.TimeoutExpired) as error:
        missing(f"{', '.join(packages)} of another release than this system's: {error}")
    versions = {}
    for file in apt.got.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", file, folder / "root"], check=True, timeout=SECONDS)
        versions[file.name.partition("_")[0]] = subprocess.run(
            ["dpkg-deb", "-f", file, "Version"],
            check=True, timeout=SECONDS, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
    return versions

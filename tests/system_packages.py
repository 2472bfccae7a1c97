"""Packages of another release of this system, unpacked into a folder and not installed."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

from required import missing

__all__ = ["mirror_in", "unpacked"]

SECONDS = 100
"""That apt or dpkg may take."""


def unpacked(folder: Path, suites: dict[str, str], *packages: str) -> dict[str, str]:
    """Unpack *packages* into *folder*/root, by apt and its keys; return the version of each.

    Where that cannot be done: `missing`, which names why.

    Args:
        folder: one without any file.
        suites: by the code name of a release, the one whose packages are taken there.
        packages: by name; what they depend on is left out.
    """
    try:
        system = platform.freedesktop_os_release()
    except OSError as error:
        missing(f"nobody says what system this is: {error}")
    own = system.get("VERSION_CODENAME", "")
    suite = suites.get(own)
    texts = [
        path.read_text()
        for place in ("/etc/apt", "/etc/apt/sources.list.d")
        for path in sorted(Path(place).glob("*"))
        if path.suffix in {".list", ".sources"}
    ]
    mirror = mirror_in(texts, own)
    if suite is None or mirror is None or shutil.which("apt-get") is None:
        name = system.get("PRETTY_NAME")
        missing(f"{', '.join(packages)} of another release than {name}: apt has no mirror of one")
    for each in ("state/lists/partial", "cache/archives/partial", "root", "packages"):
        (folder / each).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb {mirror} {suite} main\n")
    options = {
        "Dir::Etc::SourceList": f"{folder}/sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": f"{folder}/state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": f"{folder}/cache",
        "APT::Sandbox::User": "root",  # as who runs this
    }
    apt = ["apt-get", "-qq", *(word for pair in options.items() for word in ("-o", "=".join(pair)))]
    for command in ([*apt, "update"], [*apt, "download", *packages]):
        done = subprocess.run(
            command, check=False, cwd=folder / "packages", timeout=SECONDS, capture_output=True
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            missing(f"{', '.join(packages)} of {suite} cannot be had from {mirror}: {said}")
    versions = {}
    for file in (folder / "packages").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", file, folder / "root"], check=True, timeout=SECONDS)
        versions[file.name.partition("_")[0]] = subprocess.run(
            ["dpkg-deb", "-f", file, "Version"],
            check=True, timeout=SECONDS, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
    return versions


def mirror_in(texts: list[str], suite: str) -> str | None:
    """Return from where the *texts*, files of apt's sources, have the packages of *suite*."""
    line = re.compile(rf"^deb +(?:\[[^]]*\] +)?(\S+) +{re.escape(suite)} +main\b", re.MULTILINE)
    for text in texts:
        if found := line.search(text):
            return found[1]
        for paragraph in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(\w+): *(.*)$", paragraph, re.MULTILINE))
            if suite in fields.get("Suites", "").split() and fields.get("URIs", "").split():
                return str(fields["URIs"].split()[0])
    return None

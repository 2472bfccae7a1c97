"""Packages of Debian or its kin, downloaded beside those of this system, which stays as it is."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["PrivateApt", "debian_mirror", "mirror_in", "own_mirror"]

_SECONDS = 600
"""That one command of apt may take."""


class PrivateApt:
    """apt with lists, settings and a cache of its own in a new folder; ``got`` is where it works."""

    def __init__(self, folder: Path, sources: list[str], *options: str) -> None:
        for name in ("lists/partial", "cache/archives/partial", "got"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text("".join(f"{line}\n" for line in sources))
        self.got = folder / "got"
        self.archives = folder / "cache" / "archives"
        chosen = [
            f"Dir::Etc::SourceList={folder}/sources.list",
            "Dir::Etc::SourceParts=/dev/null",
            f"Dir::State::Lists={folder}/lists",
            f"Dir::Cache={folder}/cache",
            "APT::Sandbox::User=root",
            *options,
        ]
        self._options = [word for option in chosen for word in ("-o", option)]

    def run(self, *command: str) -> str:
        """Return what a command of apt says.

        Raises:
            OSError: it failed.
            subprocess.TimeoutExpired: it did not end.
        """
        done = subprocess.run(
            [command[0], *self._options, *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.got,
            timeout=_SECONDS,
        )
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


def own_mirror() -> str:
    """Return the mirror that this system has its own packages from, and not one beside it.

    Raises:
        OSError: it has none, or no apt.
    """
    if shutil.which("apt-get") is None:
        raise OSError("this system has no apt")
    system = platform.freedesktop_os_release()
    texts = [
        path.read_text()
        for folder in ("/etc/apt", "/etc/apt/sources.list.d")
        for path in sorted(Path(folder).glob("*"))
        if path.suffix in {".list", ".sources"} and os.access(path, os.R_OK)
    ]
    mirror = mirror_in(texts, system.get("VERSION_CODENAME", ""))
    if mirror is None:
        raise OSError(f"apt has no mirror of {system.get('PRETTY_NAME')}")
    return mirror


def debian_mirror() -> str:
    """Return the mirror of a Debian.

    Raises:
        OSError: this is no Debian, or it has none.
    """
    if platform.freedesktop_os_release().get("ID") != "debian":
        raise OSError("this is no Debian")
    return own_mirror()


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

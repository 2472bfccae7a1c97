"""Packages of Debian, looked at and downloaded beside those of this system, which stays as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["PrivateApt", "debian_mirror"]

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


def debian_mirror() -> str:
    """Return the mirror that this system has its packages from.

    Raises:
        OSError: it is no Debian, or has none.
    """
    if shutil.which("apt-get") is None:
        raise OSError("this is no Debian")
    texts = [
        path.read_text()
        for folder in ("/etc/apt", "/etc/apt/sources.list.d")
        for path in sorted(Path(folder).glob("*"))
        if path.suffix in {".list", ".sources"} and os.access(path, os.R_OK)
    ]
    line = re.compile(r"^(?:URIs:|deb) +(https?://\S+/debian/?)(?= |$)", re.MULTILINE)
    found = line.search("\n".join(texts))
    if found is None:
        raise OSError("apt of this system has no mirror of Debian")
    return found[1]

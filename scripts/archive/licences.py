"""The licence texts that an archive has to carry, and what is known of each component."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ["Component", "of_folder", "of_system_libraries"]


class Component(NamedTuple):
    """One part that others made, or we: where it is from, under which terms, and its digest."""

    name: str
    version: str
    license: str
    source: str
    sha256: str


_LICENSES = {
    "libbz2-1.0": "bzip2-1.0.6",
    "libffi7": "MIT",
    "libffi8": "MIT",
    "liblzma5": "0BSD",
    "libsqlite3-0": "blessing",
    "libssl1.1": "OpenSSL",
    "libssl3": "Apache-2.0",
    "libuuid1": "BSD-3-Clause",
    "zlib1g": "Zlib",
}
"""By the package of the system that a library is taken from; another package is refused.
libffi7 and libssl1.1 are Debian 11's: for scripts/test_old_glibc.sh, and in no release."""


def of_folder(texts: list[Path], name: str, target: Path) -> None:
    """Copy licence *texts* of component *name* to *target*.

    Raises:
        ValueError: there is none.
    """
    if not texts:
        raise ValueError(f"no licence text of {name}")
    (target / name).mkdir(parents=True)
    for text in texts:
        shutil.copyfile(text, target / name / text.name)
        (target / name / text.name).chmod(0o644)


def of_system_libraries(libraries: dict[str, Path], target: Path) -> list[Component]:
    """Copy the licences of *libraries* of the system to *target*; return what they are.

    Raises:
        ValueError: one is of a package whose licence was not looked at.
    """
    components: dict[str, Component] = {}
    for path in libraries.values():
        owner = _query("dpkg-query", "-S", _owned(path)).partition(":")[0]
        version = _query("dpkg-query", "-W", "-f=${Version}", owner)
        if owner not in _LICENSES:
            raise ValueError(f"{path.name} is of {owner}, whose licence is not in the list")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        known = components.get(owner)
        if known is None:
            of_folder([Path(f"/usr/share/doc/{owner}/copyright")], owner, target)
        digest = (
            digest
            if known is None
            else hashlib.sha256((known.sha256 + digest).encode()).hexdigest()
        )
        components[owner] = Component(owner, version, _LICENSES[owner], f"deb:{owner}", digest)
    return list(components.values())


def _owned(path: Path) -> str:
    """Return the name by which the package has the file: /lib may be a link to /usr/lib."""
    for candidate in (str(path), str(path).removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "-S", candidate], capture_output=True, check=False)
        if done.returncode == 0:
            return candidate
    raise ValueError(f"{path} belongs to no package of this system")


def _query(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

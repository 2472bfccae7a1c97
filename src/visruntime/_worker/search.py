"""Interpreters that are installed here, for a message that refuses another one."""

from __future__ import annotations

import os
import sys

from visruntime._jail.version_managers import version_managers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["nearest"]

_NAME = "python3."
_OLDEST_MINOR = 11


def nearest(usable: Callable[[str], bool]) -> str | None:
    """Return an interpreter that seems *usable*: the host's own, else the newest; it is not run."""
    own = sys.executable
    if own and usable(own):
        return own
    return next(
        (path for path in sorted(_installed(), key=_minor, reverse=True) if usable(path)), None
    )


def _installed() -> Iterator[str]:
    folders = ["/usr/bin", "/usr/local/bin"]
    for manager in version_managers():
        folders += [os.path.join(manager, version, "bin") for version in _listed(manager)]
    for folder in folders:
        yield from (
            os.path.join(folder, name)
            for name in _listed(folder)
            if name.startswith(_NAME) and _minor(name) >= _OLDEST_MINOR
        )


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _minor(path: str) -> int:
    text = path.rpartition(".")[2]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1

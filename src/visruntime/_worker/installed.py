"""Tell what a Python installation is from what it was: its standard library decides what it does."""

from __future__ import annotations

import os

from visruntime._host.files import open_followed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_ENTRIES", "installation_facts"]

MOST_ENTRIES = 200_000
"""Most files and folders of a standard library that are looked at."""
_DECIDING = ("pyvenv.cfg", "pybuilddir.txt", "Modules", "lib", "lib64")
"""What beside a program, or beside its folder, lets it find another standard library."""
_MAX_SETTINGS = 65536
"""Bytes of a ``pyvenv.cfg`` that are read."""
_SHALLOW = ("site-packages", "test")
"""Folders of which the names count only: packages of others, and what nothing imports."""


def installation_facts(program: str) -> str:
    """Return a digest of all that tells the files by which *program* runs from any others.

    Of each its name, its inode, its size and when it was changed (ctime), which nobody can set.

    Raises:
        OSError: they cannot be looked at.
        ValueError: there are too many.
    """
    import hashlib

    digest = hashlib.sha256()
    homes = [os.path.dirname(program)]
    places = [homes[0], os.path.dirname(homes[0])]
    homes += filter(None, (_home(os.path.join(place, "pyvenv.cfg")) for place in places))
    folders: list[tuple[str, Callable[[str], bool]]] = []
    for place in dict.fromkeys(place for home in homes for place in (home, os.path.dirname(home))):
        for name in _DECIDING:
            path = os.path.join(place, name)
            if not os.path.lexists(path):
                continue
            digest.update(_line(path, os.lstat(path)))
            if os.path.isdir(path):
                folders.append((path, _starts_like_python))
    count = 0
    while folders:
        folder, enters = folders.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                count += 1
                if count > MOST_ENTRIES:
                    raise ValueError(f"its library has more than {MOST_ENTRIES} files")
                digest.update(_line(entry.path, entry.stat(follow_symlinks=False)))
                if entry.is_symlink() and os.path.exists(entry.path):
                    digest.update(_line(entry.path, entry.stat()))
                if entry.is_dir(follow_symlinks=False) and enters(entry.name):
                    inside = _nothing if entry.name in _SHALLOW else _everything
                    folders.append((entry.path, inside))
    return digest.hexdigest()


def _home(settings: str) -> str | None:
    """Return the folder that a ``pyvenv.cfg`` names as that of the interpreter, if there is one."""
    try:
        with open(open_followed(settings), encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(_MAX_SETTINGS).splitlines()
    except OSError:
        return None
    pairs = (line.partition("=") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip().lower() == "home"), None)


def _starts_like_python(name: str) -> bool:
    return name.startswith("python3.")


def _everything(_: str) -> bool:
    return True


def _nothing(_: str) -> bool:
    return False


def _line(path: str, status: os.stat_result) -> bytes:
    facts = (path, status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns)
    return repr(facts).encode("utf-8", "surrogateescape")

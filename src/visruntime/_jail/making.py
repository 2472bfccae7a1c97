"""Making files in folders that are held open: whatever becomes of their names meanwhile.

A guest with a write grant above could put a link in the place of a folder that was made a moment
ago. So nothing here is found by a path: each name stands in the folder of a descriptor.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["folder_below", "make_file", "make_folder", "open_below", "write_file"]

_PRIVATE = 0o700
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(name: str, parent: int, mode: int = _PRIVATE) -> int:
    """Make a folder in that of the descriptor *parent*; return a descriptor to be closed."""
    os.mkdir(name, mode, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def make_file(name: str, parent: int, content: bytes, mode: int = 0o600) -> None:
    """Make a file that is not there yet, in the folder of the descriptor *parent*."""
    write_file(name, parent, (content,), mode)


def write_file(name: str, parent: int, pieces: Iterable[bytes], mode: int) -> None:
    """Make a file that is not there yet of *pieces*, in the folder of the descriptor *parent*."""
    with open(os.open(name, _NEW, 0o600, dir_fd=parent), "wb") as file:
        file.writelines(pieces)
        os.fchmod(file.fileno(), mode)


def open_below(path: str, top: int, *, make: int = 0) -> int:
    """Open the folder at the relative *path* below that of the descriptor *top*, through no link.

    Args:
        path: the names of folders; without any it is *top* again.
        top: where it begins.
        make: with which mode those that are missing are made; 0 for not at all.

    Raises:
        OSError: as `os.open`; ENOTDIR for a link.
    """
    folder = os.dup(top)
    try:
        for part in filter(None, path.split("/")):
            try:
                inner = os.open(part, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                inner = make_folder(part, folder, make)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder


@contextmanager
def folder_below(path: str, top: int, *, make: int = 0) -> Iterator[int]:
    """Open a folder as `open_below`, and close it at the end.

    Raises:
        OSError: as there.
    """
    folder = open_below(path, top, make=make)
    try:
        yield folder
    finally:
        os.close(folder)

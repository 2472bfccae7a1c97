"""What each system has its own ways for: the path of a descriptor, and folders that are only passed."""

from __future__ import annotations

import errno
import os
import stat
import sys

__all__ = ["FOLDER", "path_of", "step"]

if sys.platform == "darwin":
    # O_SEARCH of fcntl.h (macOS 11), which Python has no name for: no right to list is needed.
    FOLDER = 0x40000000 | os.O_DIRECTORY
elif sys.platform == "linux":
    FOLDER = os.O_PATH | os.O_DIRECTORY
else:
    FOLDER = 0
"""Flags that open a folder to look names up in it, and for nothing else."""


def path_of(descriptor: int) -> str:
    """Return the path of what *descriptor* opens, as the system knows it now.

    Raises:
        OSError: it has none.
    """
    if sys.platform == "darwin":
        import fcntl

        found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return os.fsdecode(found.partition(b"\0")[0])
    return os.readlink(f"/proc/self/fd/{descriptor}")


def step(part: str, folder: int) -> tuple[int | None, str | None]:
    """Go on to *part* in *folder*: return a descriptor of it, or if it is a link, its target.

    Neither: it is a link that this process may not read.

    Raises:
        OSError: nothing is there, or it cannot be looked at.
    """
    if sys.platform == "darwin":
        return _step_by_name(part, folder)
    descriptor = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
        return descriptor, None
    try:
        # Of the very link that was opened, whatever has that name by now.
        return None, os.readlink("", dir_fd=descriptor)
    except OSError:
        return None, None
    finally:
        os.close(descriptor)


def _step_by_name(part: str, folder: int) -> tuple[int | None, str | None]:
    """As `step`, where a link cannot be read by its descriptor.

    What is read is the link only if the same one was there before and after.
    """
    before = os.stat(part, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(before.st_mode):
        # Fails where a link has come between, and where it is no folder: nothing lies in it.
        flags = FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(part, flags, dir_fd=folder), None
    target = os.readlink(part, dir_fd=folder)
    after = os.stat(part, dir_fd=folder, follow_symlinks=False)
    if (before.st_dev, before.st_ino, before.st_ctime_ns) != (
        after.st_dev, after.st_ino, after.st_ctime_ns
    ):  # fmt: skip
        raise OSError(errno.ENOENT, "was another link a moment before", part)
    return None, target

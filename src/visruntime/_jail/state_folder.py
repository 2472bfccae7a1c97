"""The folder in which this package keeps things for one user, between one process and the next.

No guest has a write grant in it (`_jail/protect.py`), and each part of it is this user's alone. But
a guest of another host may: one that keeps its own things elsewhere. So every folder here is
opened level by level, and nothing follows a link that was not there when the path was resolved.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from contextlib import contextmanager, suppress

from visruntime._host.descriptors import path_of
from visruntime._host.files import open_folder
from visruntime._policy.links import Resolver, untrusted_link
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BUILDING",
    "BUNDLES",
    "CACHES",
    "ENVIRONMENTS",
    "MOST_PENDING_BYTES",
    "check_own",
    "default_caches",
    "folder_at",
    "make_state_folder",
    "open_closed",
    "private_folder",
    "remove_tree",
    "state_folder",
    "state_folders",
    "try_lock",
]

BUILDING = "building"
"""In the state folder: the folders of builds, the only ones in which a guest may have a write grant."""
ENVIRONMENTS = "environments"
"""In the state folder: what other guests run."""
BUNDLES = "bundles"
"""In the state folder: what hosts themselves may run."""
CACHES = "caches"
"""In the state folder: what only the guests of one policy may see (`_jail/caches.py`)."""
MOST_PENDING_BYTES = 16 * 1024**2
"""Most memory for the paths of folders that are yet to be counted in what a guest left."""

_PRIVATE = 0o700
_ALLOWED_TO_OTHERS = 0o022


def state_folder() -> str:
    """Return the path below which this package keeps things: ``$XDG_CACHE_HOME/visruntime``."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(cache):  # as the XDG specification has it
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "visruntime")


def default_caches() -> list[str]:
    """Return the folders for caches of this account, whatever other variables say here.

    Another process of this user, with other variables, keeps and trusts things in them.
    """
    import pwd

    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return list(
        dict.fromkeys(os.path.join(home, ".cache") for home in homes if os.path.isabs(home))
    )


def state_folders() -> list[str]:
    """Return the path of `state_folder` if it is absolute, and those that it has by default."""
    every = (state_folder(), *(os.path.join(cache, "visruntime") for cache in default_caches()))
    return list(dict.fromkeys(filter(os.path.isabs, every)))


def private_folder(path: str, field: str) -> str:
    """Return the real path of a folder that only this user can change; make it if it is missing.

    Args:
        path: absolute.
        field: what of the caller's needs it, for messages.

    Raises:
        PolicyError: it is not this user's alone, or reached through a link of somebody else's.
    """
    if not os.path.isabs(path):
        raise PolicyError(
            f"{field}: nothing is kept in {path}, which is no absolute path; set XDG_CACHE_HOME or "
            "HOME to one",
            field=field,
        )
    with Resolver() as resolver:
        real = resolver(path)
    link = untrusted_link(resolver.links[path])
    if link is not None:
        raise PolicyError(
            f"{field}: {link} is a link that a guest could have made, so nothing is kept in "
            f"{path}; set XDG_CACHE_HOME to the path that you mean",
            field=field,
        )
    with folder_at(real, make=True) as folder:
        check_own(real, os.fstat(folder), field)
    return real


@contextmanager
def folder_at(real: str, *, make: bool = False) -> Iterator[int]:
    """Open the folder at the real path *real*, as `open_folder`, and close it at the end.

    Raises:
        OSError: as there.
    """
    folder = open_folder(real, make=make)
    try:
        yield folder
    finally:
        os.close(folder)


def make_state_folder(real: str) -> None:
    """Make the state folder at the real path *real*, and what is to be hidden in it, if it can be.

    A jail in whose write grant it lies pins and covers only what is there: what its host or
    another process made later would be the guest's to read and to write.
    """
    with suppress(OSError), folder_at(real, make=True) as folder:
        for name in (CACHES, ENVIRONMENTS):
            with suppress(FileExistsError):
                os.mkdir(name, _PRIVATE, dir_fd=folder)


def check_own(path: str, status: os.stat_result, field: str) -> None:
    """Refuse what is no folder of this user's alone.

    Raises:
        PolicyError: naming *field*.
    """
    own = status.st_uid == os.geteuid() and not status.st_mode & _ALLOWED_TO_OTHERS
    if not stat.S_ISDIR(status.st_mode) or not own:
        raise PolicyError(
            f"{field}: {path} is no folder that only you can write to, so what it holds is "
            "not used; remove it, or set XDG_CACHE_HOME to another place",
            field=field,
        )


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone, or tell that others have it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_tree(name: str, parent: int) -> None:
    """Remove *name* of *parent*, which a guest filled: as deep, broad and closed as it liked.

    Folders inside are moved up and emptied there, so that depth costs nothing and no link is
    followed. No list of names is kept, so that their number costs no memory.
    """
    top = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        number = 0
        for each in _unlink_files(top):
            inner = open_closed(each, top)
            try:
                for below in _unlink_files(inner):
                    number = _move_up(below, inner, top, number)
            finally:
                os.close(inner)
            os.rmdir(each, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _unlink_files(folder: int) -> Iterator[str]:
    """Remove the files of *folder*, and yield each folder in it, which is gone when asked again."""
    found = True
    while found:  # a folder that is changed while it is read may not show all that it holds
        found = False
        with os.scandir(folder) as entries:
            for entry in entries:
                found = True
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name
                else:
                    _unlink(entry.name, folder)


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except PermissionError:
        if sys.platform != "darwin":
            raise
        _clear_flags(name, folder)
        os.unlink(name, dir_fd=folder)


def _clear_flags(name: str, folder: int) -> None:
    """Take away what keeps a file of macOS from being changed (chflags(2)), which any owner can."""
    if sys.platform == "darwin":
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if getattr(status, "st_flags", 0):  # a file system may have none
            # By its path, which is short: folders are emptied right below the top.
            os.lchflags(os.path.join(path_of(folder), name), 0)


def _move_up(name: str, inner: int, top: int, number: int) -> int:
    """Move the folder *name* from *inner* to *top*, under a number that is free there."""
    os.close(open_closed(name, inner))  # a folder that is moved must be writable itself
    while True:
        number += 1
        try:
            os.rename(name, f"{number:08x}", src_dir_fd=inner, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        else:
            return number


def open_closed(name: str, parent: int) -> int:
    """Open a folder whose mode may forbid that."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    if sys.platform == "darwin":
        _clear_flags(name, parent)
        os.chmod(name, _PRIVATE, dir_fd=parent, follow_symlinks=False)
        return os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    found = os.open(name, os.O_PATH | flags, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{found}", _PRIVATE)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)

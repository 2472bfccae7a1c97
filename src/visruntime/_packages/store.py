"""Where built environments are kept: one folder for each key, complete or not there.

The folder is this user's alone, and read-only in every write grant (`_jail/protect.py`). Builds
alone write in it: each in a folder of its own in ``building``, which is gone afterwards.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager, suppress

from visruntime._jail.protect import ENVIRONMENTS, state_folder
from visruntime._policy.links import Resolver, untrusted_link
from visruntime.errors import EnvironmentNotBuilt, PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Store", "private_folder", "remove_tree"]

_LOOK_SECONDS = 0.05
_PRIVATE = 0o700
_ALLOWED_TO_OTHERS = 0o022


def private_folder(name: str) -> str:
    """Return the real path of the folder *name* of this user's alone; make it if it is missing.

    Raises:
        PolicyError: it is not this user's alone.
    """
    return _private(os.path.join(_private(state_folder()), name))


class Store:
    """The kept environments of this user.

    Raises:
        PolicyError: the folder is not this user's alone.
    """

    __slots__ = ("_building", "_locks", "environments", "interpreters")

    def __init__(self) -> None:
        root = _private(state_folder())
        self.environments = _private(os.path.join(root, ENVIRONMENTS))
        self._building = _private(os.path.join(root, "building"))
        self.interpreters = _private(os.path.join(root, "interpreters"))
        self._locks = _private(os.path.join(root, "locks"))

    def find(self, key: str) -> str | None:
        """Return the folder of the environment *key* if it has been built."""
        path = os.path.join(self.environments, key)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        _check_own(path, status)
        return path

    @contextmanager
    def locked(self, key: str, seconds: float) -> Iterator[None]:
        """Be the only builder of *key*; wait up to *seconds* for another one.

        Raises:
            EnvironmentNotBuilt: the other one took longer.
        """
        deadline = time.monotonic() + seconds
        with self._lock_file(key) as descriptor:
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise EnvironmentNotBuilt(
                        f"another process has been building this environment for {seconds:.0f} s"
                    )
                time.sleep(_LOOK_SECONDS)
            yield

    @contextmanager
    def staging(self, key: str) -> Iterator[str]:
        """Return a new folder to build *key* in, which its builder has locked; it is gone after.

        What builders that were killed have left goes away first.
        """
        self._sweep()
        path = os.path.join(self._building, key)
        with suppress(FileNotFoundError):
            remove_tree(path)
        os.mkdir(path, _PRIVATE)
        try:
            yield path
        finally:
            remove_tree(path)

    def keep(self, tree: str, key: str) -> str:
        """Make the complete *tree* the environment *key*; return its path."""
        path = os.path.join(self.environments, key)
        os.rename(tree, path)
        return path

    @contextmanager
    def _lock_file(self, key: str) -> Iterator[int]:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self._locks, key), flags, 0o600)
        try:
            yield descriptor
        finally:
            # Closing is not enough where a forked child of this process has a copy.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _sweep(self) -> None:
        for key in os.listdir(self._building):
            with self._lock_file(key) as descriptor:
                if _try_lock(descriptor):
                    with suppress(OSError):
                        remove_tree(os.path.join(self._building, key))


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _private(path: str) -> str:
    """Return the real path of a folder that only this user can change; make it if it is missing."""
    with Resolver() as resolver:
        real = resolver(path)
    link = untrusted_link(resolver.links[path])
    if link is not None:
        raise PolicyError(
            f"environment: {link} is a link that a guest could have made, so nothing is kept in "
            f"{path}; set XDG_CACHE_HOME to the path that you mean",
            field="environment",
        )
    os.makedirs(os.path.dirname(real), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(real, _PRIVATE)
    _check_own(real, os.lstat(real))
    return real


def _check_own(path: str, status: os.stat_result) -> None:
    own = status.st_uid == os.geteuid() and not status.st_mode & _ALLOWED_TO_OTHERS
    if not stat.S_ISDIR(status.st_mode) or not own:
        raise PolicyError(
            f"environment: {path} is no folder that only you can write to, so what it holds is "
            "not used; remove it, or set XDG_CACHE_HOME to another place",
            field="environment",
        )


def remove_tree(path: str) -> None:
    """Remove a folder that a guest filled: it may be as deep, and as closed, as it liked.

    Folders inside are moved up and emptied there, so that depth costs nothing and no link is
    followed.
    """
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        number = 0
        while folders := _unlink_files(top):
            for name in folders:
                inner = _open_closed(name, top)
                try:
                    for below in _unlink_files(inner):
                        number = _move_up(below, inner, top, number)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _unlink_files(folder: int) -> list[str]:
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _move_up(name: str, inner: int, top: int, number: int) -> int:
    """Move the folder *name* from *inner* to *top*, under a number that is free there."""
    os.close(_open_closed(name, inner))  # a folder that is moved must be writable itself
    while True:
        number += 1
        try:
            os.rename(name, f"{number:08x}", src_dir_fd=inner, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        else:
            return number


def _open_closed(name: str, parent: int) -> int:
    """Open a folder whose mode may forbid that."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    found = os.open(name, os.O_PATH | flags, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{found}", _PRIVATE)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)

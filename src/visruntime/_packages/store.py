"""Where built environments are kept: one folder for each key, complete or not there.

The folder is this user's alone, and read-only in every write grant (`_jail/protect.py`). Builds
alone write in it: each in a folder of its own in ``building``, which is gone afterwards.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress

from visruntime._jail.state_folder import (
    BUILDING,
    ENVIRONMENTS,
    check_own,
    folder_at,
    private_folder,
    remove_tree,
    state_folder,
    try_lock,
)
from visruntime.errors import EnvironmentNotBuilt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Store"]

_LOOK_SECONDS = 0.05
_PRIVATE = 0o700
_FIELD = "environment"


class Store:
    """The kept environments of this user.

    Raises:
        PolicyError: the folder is not this user's alone.
    """

    __slots__ = ("_building", "_locks", "environments", "interpreters")

    def __init__(self) -> None:
        root = private_folder(state_folder(), _FIELD)
        self.environments = private_folder(os.path.join(root, ENVIRONMENTS), _FIELD)
        self._building = private_folder(os.path.join(root, BUILDING), _FIELD)
        self.interpreters = private_folder(os.path.join(root, "interpreters"), _FIELD)
        self._locks = private_folder(os.path.join(root, "locks"), _FIELD)

    def find(self, key: str) -> str | None:
        """Return the folder of the environment *key* if it has been built."""
        path = os.path.join(self.environments, key)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        check_own(path, status, _FIELD)
        return path

    @contextmanager
    def locked(self, key: str, seconds: float) -> Iterator[None]:
        """Be the only builder of *key*; wait up to *seconds* for another one.

        Raises:
            EnvironmentNotBuilt: the other one took longer.
        """
        deadline = time.monotonic() + seconds
        while (descriptor := self._lock(key)) is None:
            if time.monotonic() > deadline:
                raise EnvironmentNotBuilt(
                    f"another process has been building this environment for {seconds:.0f} s"
                )
            time.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            self._unlock(key, descriptor)

    @contextmanager
    def staging(self, key: str) -> Iterator[str]:
        """Return a new folder to build *key* in, which its builder has locked; it is gone after.

        What builders that were killed have left goes away first.
        """
        self._sweep()
        path = os.path.join(self._building, key)
        with folder_at(self._building) as building:
            with suppress(FileNotFoundError):
                remove_tree(key, building)
            os.mkdir(key, _PRIVATE, dir_fd=building)
            try:
                yield path
            finally:
                remove_tree(key, building)

    @contextmanager
    def trial(self, key: str) -> Iterator[str]:
        """Return a new folder that no build uses, under the random name *key*; it is gone after."""
        # Another process may sweep the file away before it is locked.
        with self.locked(key, 1), self.staging(key) as path:
            yield path

    def keep(self, tree: str, key: str) -> str:
        """Make the complete *tree* the environment *key*; return its path."""
        around, name = os.path.split(tree)
        with folder_at(around) as built, folder_at(self.environments) as kept:
            os.rename(name, key, src_dir_fd=built, dst_dir_fd=kept)
        return os.path.join(self.environments, key)

    def _lock(self, key: str) -> int | None:
        """Return a descriptor that holds *key*; None while another one does, or has just removed it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with folder_at(self._locks) as locks:
            descriptor = os.open(key, flags, 0o600, dir_fd=locks)
            try:
                if try_lock(descriptor) and _is_at(key, locks, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
        os.close(descriptor)
        return None

    def _unlock(self, key: str, descriptor: int) -> None:
        """Remove the file of a lock, and let go of it: only who holds it may, in this order."""
        try:
            with folder_at(self._locks) as locks, suppress(FileNotFoundError):
                os.unlink(key, dir_fd=locks)
        finally:
            # Closing is not enough where a forked child of this process has a copy.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what was left by who holds no lock any more."""
        with folder_at(self._building) as building, folder_at(self._locks) as locks:
            for key in {*os.listdir(building), *os.listdir(locks)}:
                descriptor = self._lock(key)
                if descriptor is None:
                    continue
                try:
                    with suppress(OSError):
                        remove_tree(key, building)
                finally:
                    self._unlock(key, descriptor)


def _is_at(name: str, folder: int, descriptor: int) -> bool:
    """Tell whether the open file is the one that has the *name* in *folder*."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))

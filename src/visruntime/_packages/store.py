"""Where built environments are kept: one folder for each key, complete or not there.

The folder is this user's alone, and read-only in every write grant (`_jail/protect.py`). Builds
alone write in it: each in a folder of its own in ``building``, which is gone afterwards.
"""

from __future__ import annotations

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
        with self._lock_file(key) as descriptor:
            while not try_lock(descriptor):
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
        try:
            with self.locked(key, 0), self.staging(key) as path:
                yield path
        finally:
            with folder_at(self._locks) as locks, suppress(FileNotFoundError):
                os.unlink(key, dir_fd=locks)

    def keep(self, tree: str, key: str) -> str:
        """Make the complete *tree* the environment *key*; return its path."""
        around, name = os.path.split(tree)
        with folder_at(around) as built, folder_at(self.environments) as kept:
            os.rename(name, key, src_dir_fd=built, dst_dir_fd=kept)
        return os.path.join(self.environments, key)

    @contextmanager
    def _lock_file(self, key: str) -> Iterator[int]:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with folder_at(self._locks) as locks:
            descriptor = os.open(key, flags, 0o600, dir_fd=locks)
        try:
            yield descriptor
        finally:
            # Closing is not enough where a forked child of this process has a copy.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _sweep(self) -> None:
        with folder_at(self._building) as building:
            for key in os.listdir(building):
                with self._lock_file(key) as descriptor:
                    if try_lock(descriptor):
                        with suppress(OSError):
                            remove_tree(key, building)

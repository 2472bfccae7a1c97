"""A folder for files that are tried in jails of this process, out of the reach of other guests.

Where temporary files are, a guest of another jail may have a write grant, and could put a link
or a library in the place of what the host has just made. In the state folder no guest writes
but the one of the jail to which a folder in it is given.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from visruntime._jail.state_folder import folder_at, remove_tree, state_folder
from visruntime._packages.store import Store
from visruntime._policy.paths import visible
from visruntime.errors import JailUnavailable, PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["trial_folder"]

_PRIVATE = 0o700


@contextmanager
def trial_folder(folder: str | None = None) -> Iterator[str]:
    """Return the real path of a new folder of mode 0700, which is gone with all in it afterwards.

    Args:
        folder: an existing one in which it is made; the state folder by default.

    Raises:
        JailUnavailable: the state folder cannot be made, or is not this user's alone.
    """
    name = f"t{os.urandom(4).hex()}"  # short: sockets are made in it
    if folder is not None:
        above, name = os.path.realpath(folder), f"visruntime-{name}"
        with folder_at(above) as parent:
            os.mkdir(name, _PRIVATE, dir_fd=parent)
            try:
                yield os.path.join(above, name)
            finally:
                remove_tree(name, parent)
        return
    try:
        store = Store()
    except (OSError, PolicyError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise JailUnavailable(
            f"nothing can be tried on files: {visible(state_folder())}, where no other guest "
            f"changes them, cannot be used: {why}",
            stage="state folder",
            fix="set XDG_CACHE_HOME to a folder that you can write to, and no guest",
        ) from None
    with store.trial(name) as path:
        yield os.path.realpath(path)

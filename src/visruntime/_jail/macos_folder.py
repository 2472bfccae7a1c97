"""The folder of one jail on macOS: HOME of its guests, and beside it what they must not reach.

It lies in the user's own folder for temporary files. macOS gives a jail no file system that goes away
with it, so it is removed when the jail is closed, and what a killed host left by the next jail.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
import tempfile
from contextlib import suppress

from visruntime._jail.state_folder import remove_tree

__all__ = ["MacosFolder", "temporary_parent"]

PREFIX = "vjhome-"
"""Short, since the paths of sockets have 103 bytes."""
CONFSTR_TEMPORARY = 65537
"""_CS_DARWIN_USER_TEMP_DIR of unistd.h, which Python has no name for."""
CLOSED = b"no guest reads this\n"


def temporary_parent() -> str:
    """Return the user's own folder for temporary files, which no variable of the host names."""
    if sys.platform == "darwin":
        path = os.confstr(CONFSTR_TEMPORARY)
        if path:
            return os.path.realpath(path)
    return os.path.realpath(tempfile.gettempdir())


class MacosFolder:
    """``top`` is closed to guests, but for ``home`` in it. ``canary`` is a file that no guest reads.

    ``listeners`` are sockets that no guest connects to: by a path, and by a port of the loopback.
    They are open while the jail tries its canaries.
    """

    __slots__ = ("_lock", "_owner", "canary", "home", "listeners", "top")

    def __init__(self, parent: str) -> None:
        self._owner = os.getpid()
        self.listeners: list[socket.socket] = []
        self._lock = -1
        # One at a time: a folder that has no lock yet would be taken for one that was left.
        others = _locked(os.path.join(parent, f"{PREFIX}{os.getuid()}.lock"), wait=True)
        try:
            _remove_stale(parent)
            self.top = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
            self._lock = _locked(os.path.join(self.top, "lock"))
        finally:
            os.close(others)
        try:
            self.home = os.path.join(self.top, "home")
            os.mkdir(self.home, 0o700)
            self.canary = os.path.join(self.top, "closed")
            for path in (self.canary, os.path.join(self.home, ".canary")):
                with open(path, "xb") as file:
                    file.write(CLOSED)
        except BaseException:
            self.remove()
            raise

    def listen(self) -> tuple[str, int]:
        """Open the listeners; return the path of one and the port of the other."""
        path = os.path.join(self.top, "s")
        by_path, by_port = socket.socket(socket.AF_UNIX), socket.socket()
        self.listeners += [by_path, by_port]
        by_path.bind(path)
        by_port.bind(("127.0.0.1", 0))
        for listener in self.listeners:
            listener.listen()
        return path, by_port.getsockname()[1]

    def close_listeners(self) -> None:
        """Close them; the file that is left of a guest's canary goes, too."""
        while self.listeners:
            self.listeners.pop().close()
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.home, ".canary"))

    def remove(self) -> None:
        """Remove everything, when no guest lives any more. In a forked child it does nothing."""
        if os.getpid() != self._owner or self._lock == -2:
            return
        while self.listeners:
            self.listeners.pop().close()
        with suppress(OSError):  # what stays is tried again by the next jail
            _remove(self.top)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -2


def _locked(path: str, *, wait: bool = False) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_stale(parent: str) -> None:
    """Remove folders of hosts that were killed: nobody holds their lock."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(PREFIX):
            continue
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            continue
        with suppress(OSError):  # it is in use, or went away
            descriptor = os.open(
                os.path.join(entry.path, "lock"), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(entry.path)
            finally:
                os.close(descriptor)


def _remove(path: str) -> None:
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_tree(os.path.basename(path), parent)
    finally:
        os.close(parent)

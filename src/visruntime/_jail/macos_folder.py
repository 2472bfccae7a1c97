"""The folder of one jail on macOS: HOME of its guests, and beside it what they must not reach.

It lies with those of other jails in one folder, in the user's own folder for temporary files; no
guest reads or locks that one, and each jail holds the lock of its own. macOS gives a jail no file
system that goes away with it, so it is removed when the jail is closed, and what a killed host left
by the next jail.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import tempfile
import time
from contextlib import suppress

from visruntime._host.files import open_folder
from visruntime._jail.state_folder import check_own, remove_tree, try_lock
from visruntime.errors import JailUnavailable

__all__ = ["MacosFolder", "temporary_parent"]

PREFIX = "vj-"
"""Short, since the paths of sockets have 103 bytes."""
WAIT_SECONDS = 30
"""How long a jail waits while another process makes or removes folders."""
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
    """``around`` has the folders of all jails, ``top`` is this one's, and ``home`` is in it.

    Guests get ``home`` alone. ``canary`` is a file that none of them reads.
    ``listeners`` are sockets that no guest connects to: by a path, and by a port of the loopback.
    They are open while the jail tries its canaries.
    """

    __slots__ = ("_lock", "_owner", "around", "canary", "home", "listeners", "top")

    def __init__(self, parent: str) -> None:
        self._owner = os.getpid()
        self.listeners: list[socket.socket] = []
        self._lock = -1
        self.around = os.path.join(parent, f"{PREFIX}{os.getuid()}")
        others = open_folder(self.around, make=True)
        try:
            check_own(self.around, os.fstat(others), "jail")
            # One at a time: a folder that nobody has locked yet would be taken for one that was left.
            _wait_for(others, self.around)
            _remove_stale(self.around)
            self.top = tempfile.mkdtemp(prefix="", dir=self.around)
            self._lock = open_folder(self.top)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def _wait_for(descriptor: int, path: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise JailUnavailable(
                f"another process has held {path} for {WAIT_SECONDS} s",
                stage="host",
                fix="wait for it, or end it",
            )
        time.sleep(0.05)


def _remove_stale(around: str) -> None:
    """Remove folders of hosts that were killed: nobody holds their lock."""
    for name in os.listdir(around):
        path = os.path.join(around, name)
        with suppress(OSError):  # it went away
            descriptor = open_folder(path)
            try:
                if try_lock(descriptor):
                    _remove(path)
            finally:
                os.close(descriptor)


def _remove(path: str) -> None:
    parent = open_folder(os.path.dirname(path))
    try:
        remove_tree(os.path.basename(path), parent)
    finally:
        os.close(parent)

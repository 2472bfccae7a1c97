"""What of `MINIMAL_READ` this host has: looked at once for each jail, and each object once."""

from __future__ import annotations

import os
import stat

from visruntime._policy.paths import MINIMAL_READ, ancestors

__all__ = ["SystemRoots"]


class SystemRoots:
    """The entries of `MINIMAL_READ` that exist.

    ``pairs`` has (path, real path) of each, ``links`` what those that are links say, and
    ``status`` what stands at the real paths. ``names`` are all in /etc, and ``looks`` what
    stood at each path that was tried; ``is_plain`` is false where more than that was
    looked at to follow a link. ``left_out`` has (path, what of it) of links to what not everybody
    may read: who could write in /etc once, such as a guest of root's, would choose what of root's
    is shown. For a root caller it has what else of /etc is not for everybody, too.
    """

    __slots__ = ("is_plain", "left_out", "links", "looks", "names", "pairs", "status")

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.links: dict[str, str] = {}
        self.status: dict[str, os.stat_result] = {}
        self.looks: dict[str, os.stat_result | None] = {}
        self.is_plain = True
        self.left_out: list[tuple[str, str]] = []
        try:
            names = os.listdir("/etc")
        except OSError:
            names = []
            self.is_plain = False
        self.names = names
        known = set(names)
        for entry in MINIMAL_READ:
            if entry.endswith("*"):
                start = entry[len("/etc/") : -1]
                for name in sorted(name for name in names if name.startswith(start)):
                    self._add(f"/etc/{name}")
            elif not entry.startswith("/etc/") or entry[len("/etc/") :] in known:
                self._add(entry)

    def _add(self, path: str) -> None:
        try:
            self.looks[path] = found = os.lstat(path)
        except OSError:
            self.looks[path] = None
            return
        if not stat.S_ISLNK(found.st_mode):
            # A guest that stays root would read it; no other one of root's could.
            if (
                path.startswith(("/etc/", "/var/"))
                and not found.st_mode & stat.S_IROTH
                and not os.geteuid()
            ):
                self.left_out.append((path, "it"))
                return
            self.pairs.append((path, path))
            self.status[path] = found
            return
        try:
            self.links[path] = os.readlink(path)
            target = self._target(path)
            if target not in self.status:
                self.status[target] = os.lstat(target)
            if not target.startswith("/usr/") and not _is_public(target, self.status[target]):
                del self.links[path]
                self.left_out.append((path, "what the link leads to"))
                self.is_plain = False
                return
        except OSError:
            target = os.path.realpath(path)  # it leads nowhere, and the rule with it
            self.is_plain = False
        self.pairs.append((path, target))

    def _target(self, path: str) -> str:
        """Return where a link leads; most are /bin and its like, with one step into /usr."""
        text = self.links[path]
        near = f"/{text}" if not text.startswith("/") else text
        folder, _, name = near.rpartition("/")
        usr = self.status.get("/usr")
        if path.count("/") == 1 and folder == "/usr" and usr and name not in ("", ".", ".."):
            found = os.lstat(near)
            if not stat.S_ISLNK(found.st_mode):
                self.status[near] = found
                return near
        target = os.path.realpath(path)
        # Else by way of another link.
        written = os.path.normpath(os.path.join(os.path.dirname(path), text))
        self.is_plain = self.is_plain and target == written
        return target


def _is_public(path: str, found: os.stat_result) -> bool:
    """Tell whether everybody may read what stands at real *path*, by all modes on the way."""
    above = (os.stat(folder).st_mode for folder in ancestors(os.path.dirname(path)))
    return bool(found.st_mode & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in above)

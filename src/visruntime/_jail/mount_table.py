"""The mounts of this process, as the kernel lists them, and which of them a path is on.

Guests choose names of folders that lead to mount points, and of folders that are mounted
elsewhere. The kernel escapes space, tab, line feed and backslash in them, and no other byte
that Python takes for a space or for the end of a line: a line ends at a line feed only.
"""

from __future__ import annotations

import os

from visruntime._policy.paths import ancestors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Mount", "MountTree", "host_mounts", "mount_table"]

UNBINDABLE = b"unbindable"
"""The mark of a mount that is left out where the tree around it is bound."""

ESCAPE = rb"\\([0-7]{3})"
LAYER = rb"(?s)(?:[^:\\]|\\.)+"
BACKSLASH = rb"(?s)\\(.)"


class Mount:
    """One line of proc_pid_mountinfo(5): where it is mounted, and what."""

    __slots__ = ("device", "id", "options", "parent", "point", "root", "type", "unbindable")

    def __init__(self, line: bytes) -> None:
        where, _, what = line.partition(b" - ")
        fields = where.split(b" ")
        self.id, self.parent, self.device = fields[:3]
        self.root = _unescape(fields[3])
        self.point = _unescape(fields[4])
        self.unbindable = UNBINDABLE in fields[6:]
        kind, _, self.options = what.split(b" ", 2)
        self.type = kind.decode("ascii", "replace")

    def layers(self) -> list[str]:
        """Return the folders that an overlay shows, as the options of its mount name them."""
        import re

        found: list[str] = []
        # In a value the kernel escapes commas too.
        for option in self.options.split(b","):
            name, _, value = option.partition(b"=")
            value = _unescape_bytes(value)
            if name in (b"lowerdir", b"upperdir"):
                parts = re.findall(LAYER, value) if name == b"lowerdir" else [value]
                found += [os.fsdecode(re.sub(BACKSLASH, rb"\1", part)) for part in parts]
            elif name in (b"lowerdir+", b"datadir+"):
                found.append(os.fsdecode(value))
        return found


def _unescape_bytes(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    import re

    return re.sub(ESCAPE, lambda found: bytes([int(found[1], 8)]), text)


def _unescape(text: bytes) -> str:
    return os.fsdecode(_unescape_bytes(text))


def mount_table() -> bytes:
    """Return the mounts of this process, in the order in which they were made, as text."""
    with open("/proc/self/mountinfo", "rb") as table:
        return table.read()


def host_mounts(table: bytes, types: Collection[str] | None = None) -> list[Mount]:
    """Return the mounts of a `mount_table`.

    With *types* only those of such file systems, and those that no grant would bring along.
    """
    lines = [line for line in table.split(b"\n") if line]
    if types is not None:
        lines = [line for line in lines if _type_of(line) in types or UNBINDABLE in line]
    return [Mount(line) for line in lines]


def _type_of(line: bytes) -> str:
    start = line.index(b" - ") + 3
    return line[start : line.index(b" ", start)].decode("ascii", "replace")


class MountTree:
    """Which mount a path is on, found as the kernel finds it: from the root on, mount by mount.

    By their paths alone it could not be told: a mount over a folder leaves all that is mounted
    below that folder in the table, where nobody reaches it any more.

    Args:
        table: a `mount_table`; it is read when the first question comes.
    """

    __slots__ = ("_children", "_mounts", "_root", "_start", "table")

    def __init__(self, table: bytes) -> None:
        self.table = table
        self._mounts: list[Mount] | None = None
        self._children: dict[tuple[bytes, str], Mount] = {}
        self._root: Mount | None = None
        self._start = b""

    @property
    def mounts(self) -> list[Mount]:
        """All of them, also those that others cover."""
        if self._mounts is None:
            self._mounts = host_mounts(self.table)
            self._children = {(mount.parent, mount.point): mount for mount in self._mounts}
            known = {mount.id for mount in self._mounts}
            for mount in self._mounts:
                if mount.parent in known and mount.parent != mount.id:
                    continue
                # What its parent is mounted on is out of reach from the root of this process.
                self._start = self._start or mount.parent
                if mount.point == "/":
                    self._root, self._start = mount, mount.id
                    break
        return self._mounts

    def mount_of(self, path: str) -> Mount | None:
        """Return the mount that *path* is on; ``None`` where chroot(2) left it out of the table."""
        if not self.mounts:
            return None
        found, place = self._root, self._start
        for step in ancestors(path):
            # No look-up from the root crosses to what is mounted on the root.
            while step != "/" and (place, step) in self._children:
                found = self._children[place, step]
                place = found.id
        return found

"""Other names for what a policy takes away: another spelling, and the snapshots of a server.

A mask covers what one entry of a folder leads to. Where a file system finds the same file
under ``SECRET`` as well, the kernel may keep that as another entry, over which nothing is
mounted. And servers show earlier versions of a folder in one that no listing names.
"""

from __future__ import annotations

import fcntl
import os
import struct

from visruntime._policy.looks import is_missing, status_at
from visruntime._policy.paths import Trees, ancestors, is_within, visible
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from visruntime._jail.mount_table import MountTree

__all__ = ["Spellings"]

FS_IOC_GETFLAGS = 0x80086601
FS_CASEFOLD_FL = 0x40000000
"""Of a folder of ext4, f2fs or tmpfs in which case does not matter (ioctl_iflags(2))."""

FOLDING = frozenset(
    "9p apfs cifs drvfs exfat fuse fuseblk grpcfuse hfs hfsplus lxfs msdos ntfs ntfs3 prl_fs smb3 "
    "smbfs vboxsf vfat virtiofs vmhgfs".split()
)
"""Case does not matter, or that is the affair of the other side or of an option of the mount."""

EXACT = frozenset(
    "bcachefs btrfs erofs ext2 ext3 ext4 f2fs overlay ramfs squashfs tmpfs xfs".split()
)
"""Names are compared byte by byte, but for folders with the flag above; no hidden folders.

An overlay takes layers in which case does not matter only from Linux 6.17 on, and then its
folders have the flag. A format of xfs without case (mkfs.xfs -n version=ci) has no flag: there
the kernel keeps one entry for all spellings, so that masks hold, and names are looked at.
"""

SNAPSHOTS = (".snapshot", ".snapshots", ".snap", ".snaps", ".zfs", "~snapshot")
"""Folders of earlier versions that are there without being listed (NetApp, ZFS, Ceph, GPFS)."""


class Spellings:
    """Answers about names for one jail that opens; each folder is asked once.

    Args:
        tree: the mounts of this process.
    """

    __slots__ = ("_flagged", "_kinds", "_listed", "_tree")

    def __init__(self, tree: MountTree) -> None:
        self._tree = tree
        self._kinds: dict[str, str] = {}
        self._flagged: dict[str, bool] = {}
        self._listed: dict[str, frozenset[str]] = {}

    def refuse(self, covered: Iterable[tuple[str, str]], grants: Sequence[str]) -> None:
        """Refuse to cover a path, given as (field, real path), that has another spelling.

        What is above it in the grant counts as well: ``KEYS/id`` is another name of ``keys/id``.

        Raises:
            PolicyUnsupported: naming both.
        """
        trees = Trees(grants)
        for field, path in covered:
            for step in _inside(path, trees):
                other = self._other_spelling(step)
                if other:
                    raise PolicyUnsupported(
                        f"{field}: {visible(step)} is {visible(other)} as well: its file system "
                        f"({self._kind(os.path.dirname(step))}) takes several spellings for one "
                        "name, and a mask covers one; move it out of the grant, or grant the "
                        "folders beside it",
                        field=field,
                        value=path,
                    )

    def may_fold(self, folder: str) -> bool:
        """Tell whether two spellings of a name that is still to come may be one in *folder*."""
        kind = self._kind(folder)
        if kind in FOLDING or kind.startswith("fuse.") or self._flag(folder):
            return True
        return (kind not in EXACT or kind == "xfs") and not self._tells_apart(folder)

    def snapshots(self, covered: Iterable[str], grants: Sequence[str]) -> list[str]:
        """Return the folders of earlier versions that no search sees: of the grants and below.

        Besides each grant those folders are asked that lead to what is covered: elsewhere the
        earlier versions hold nothing that is covered either.
        """
        asked: dict[str, None] = dict.fromkeys(grants)
        trees = Trees(grants)
        for path in covered:
            asked |= dict.fromkeys(map(os.path.dirname, _inside(path, trees)))
        found = []
        for folder in asked:
            if self._kind(folder) in EXACT:
                continue
            names = [name for name in SNAPSHOTS if not is_missing(os.path.join(folder, name))]
            found += [
                os.path.join(folder, name) for name in names if name not in self._names(folder)
            ]
        return found

    def _kind(self, folder: str) -> str:
        if folder not in self._kinds:
            mount = self._tree.mount_of(folder)
            self._kinds[folder] = mount.type if mount else ""
        return self._kinds[folder]

    def _names(self, folder: str) -> frozenset[str]:
        if folder not in self._listed:
            try:
                self._listed[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._listed[folder] = frozenset()
        return self._listed[folder]

    def _flag(self, folder: str) -> bool:
        if folder not in self._flagged:
            self._flagged[folder] = _has_flag(folder)
        return self._flagged[folder]

    def _other_spelling(self, step: str) -> str:
        """Return another name of what is at *step*, which no listing has, or ""."""
        folder, name = os.path.split(step)
        exact = self._kind(folder) in EXACT and not self._flag(folder)
        if exact or is_missing(step):  # a name to come is held or refused elsewhere
            return ""
        for other in _spellings(name):
            path = os.path.join(folder, other)
            if status_at(path) is not None and other not in self._names(folder):
                return path
        return ""

    def _tells_apart(self, folder: str) -> bool:
        """Tell whether a name with a letter shows that *folder* keeps spellings apart."""
        for step in reversed(list(ancestors(folder))):
            if self._kind(step) != self._kind(folder):
                return False
            for name in sorted(self._names(step)):
                other = name.swapcase()
                if other != name and other not in self._names(step):
                    return is_missing(os.path.join(step, other))
        return False


def _has_flag(folder: str) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return True  # unknown: the careful answer
    try:
        flags = fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, bytes(8))
    except OSError:
        return False  # a file system without such flags
    finally:
        os.close(descriptor)
    return bool(struct.unpack_from("=I", flags)[0] & FS_CASEFOLD_FL)


def _inside(path: str, grants: Trees) -> Iterator[str]:
    """Yield *path* and what is above it, as far as that lies in a grant."""
    top = grants.top_of(path)
    if top is not None:
        yield from (step for step in ancestors(path) if step != top and is_within(step, top))


def _spellings(name: str) -> Iterator[str]:
    """Yield what some file system takes for *name*, once each."""
    import unicodedata

    # Windows drops a dot at the end, and names a file's own bytes as a stream of it.
    others = (name.swapcase(), name.lower(), name.upper(), f"{name}.", f"{name}::$DATA")
    composed = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    for other in dict.fromkeys((*others, *composed)):
        if other != name and len(os.fsencode(other)) <= 255:
            yield other

"""The sockets that programs of this machine have bound below what a jail shows unasked.

To search all of /usr costs more than a jail. So the kernel is asked what is bound: sock_diag(7) has
of each socket of this network namespace the name by which it was bound, and the file itself, by
device and inode. Only where one lies in a file system that is shown, and its name does not lead
to it (it is relative, or was meant in another root), is everything shown searched.
"""

from __future__ import annotations

import os
import stat
import struct
import time

from visruntime import _native
from visruntime._jail.diagnose import OUT_OF_FILES
from visruntime._policy.links import Resolver
from visruntime._policy.paths import ancestors, is_within, visible
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from visruntime._jail.mount_table import MountTree

__all__ = ["bound_elsewhere", "names_of"]

MOST_ENTRIES = 5_000_000
"""Names that are looked at in a search."""
MOST_SECONDS = 0.1
"""Processor time for looks at names that others have chosen; then everything is searched."""
MOST_REMEMBERED = 4096
"""Sockets of which a policy remembers that no search has found them."""
MOST_FOUND = 1024
"""Sockets that one folder may hold: each costs mounts."""

AF_UNIX, AF_NETLINK, SOCK_RAW, SOCK_CLOEXEC, NETLINK_SOCK_DIAG = 1, 16, 3, 0o2000000, 4
SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLM_F_DUMP = 20, 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
UDIAG_SHOW_NAME, UDIAG_SHOW_VFS = 0x1, 0x2
ALL_STATES = 0xFFFFFFFF
UNIX_DIAG_NAME, UNIX_DIAG_VFS = 0, 1

HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
REQUEST = struct.Struct("=BBHIIIII")  # struct unix_diag_req
MESSAGE = struct.Struct("=BBBBI8s")  # struct unix_diag_msg
ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
FILE = struct.Struct("=II")  # struct unix_diag_vfs: inode, device
ANSWER_BYTES = 65536
DEADLINE_SECONDS = 5.0

Bound = tuple[str, "tuple[str, int] | None", bytes]
"""The name by which a socket was bound, its device and the lower half of its inode (``None`` where
the kernel does not tell), and its cookie, which no other socket ever has."""


def bound_elsewhere(
    plain: Sequence[tuple[str, str]],
    tree: MountTree,
    looked_through: Collection[str] = (),
    *,
    searched: dict[tuple[object, ...], frozenset[bytes]],
) -> list[str]:
    """Return the sockets in what is shown and was not looked through.

    Args:
        plain: the rules about files of the host, as (kind, path).
        tree: the host's mounts.
        looked_through: grants in which every socket is known.
        searched: which sockets an earlier search did not find, by where that was.

    Raises:
        PolicyUnsupported: they cannot be told.
    """
    tops = {path for kind, path in plain if kind in ("read", "write")}
    if not tops:
        return []
    bound = _bound()
    if not bound:
        return []
    found = _by_name([name for name, _, _ in bound], tops)
    folders = _to_search(tops, looked_through)
    shown = _Devices(folders, tree)
    known = {_inode(path) for path in found}
    unknown = {cookie for name, file, cookie in bound if shown.may_hold(name, file, known)}
    place = (tree.table, *folders)
    if not unknown <= searched.get(place, frozenset()):
        here = [path for folder in folders for path in _search(folder)]
        found += here
        if not here and b"" not in unknown and len(unknown) <= MOST_REMEMBERED:
            searched.clear()
            searched[place] = frozenset(unknown)
    return sorted(set(found))


def _to_search(tops: Iterable[str], looked_through: Collection[str]) -> list[str]:
    # Of the host's whole root all the rest was looked through, or is replaced by the jail's own.
    left = {"/usr" if top == "/" else top for top in tops}
    known = frozenset(looked_through)
    left = {top for top in left if not any(up in known for up in ancestors(top))}
    return sorted(top for top in left if not any(up in left for up in ancestors(top) if up != top))


class _Devices:
    """The file systems of folders, and those that are mounted below them, as "major:minor"."""

    __slots__ = ("_around", "_below", "_until")

    def __init__(self, folders: Sequence[str], tree: MountTree) -> None:
        self._until = time.thread_time() + MOST_SECONDS
        around = (tree.mount_of(folder) for folder in folders)
        self._around = {"" if mount is None else os.fsdecode(mount.device) for mount in around}
        self._below = {
            os.fsdecode(mount.device)
            for mount in tree.mounts
            if any(is_within(mount.point, up) and mount.point != up for up in folders)
        }

    def may_hold(self, name: str, file: tuple[str, int] | None, known: Collection[int]) -> bool:
        """Tell whether the socket may lie in the folders, by another name than its own."""
        inode = None if file is None else file[1]
        if file is not None:
            if file[0] in self._below:
                return inode not in known  # this file system may have another name elsewhere
            if file[0] not in self._around:
                return False
        if not name.startswith("/"):
            return bool(name) and inode not in known
        there = _inode(name) if time.thread_time() < self._until else -1
        return there < 0 or inode not in (None, there)


def _inode(path: str) -> int:
    """Return the lower half of the inode of the socket at *path*; -1 for anything else."""
    try:
        found = os.lstat(path)
    except OSError:
        return -1
    return found.st_ino & 0xFFFFFFFF if stat.S_ISSOCK(found.st_mode) else -1


def _search(folder: str) -> list[str]:
    try:
        found = _native.search(
            folder,
            most_entries=MOST_ENTRIES,
            most_findings=MOST_FOUND,
            most_secrets=0,
            most_key_bytes=0,
        )
    except _native.NativeError as error:
        if error.errno in OUT_OF_FILES:
            raise
        raise PolicyUnsupported(
            f"sockets: a program of this machine has bound one by a name that does not lead to it, "
            f"and {visible(folder)} cannot be searched for it: {error}",
            field="sockets",
            value=folder,
        ) from None
    return [path for kind, path in found if kind == "s"]


# ---- what the kernel says ----------------------------------------------------------------


def _bound() -> list[Bound]:
    """Return all sockets of this network namespace that have a file."""
    try:
        return [one for message in _messages() if (one := _read(message)) is not None]
    except OSError:
        return _listed()  # a kernel without sock_diag for these, or a filter against it


def _messages() -> Iterator[bytes]:
    from _socket import socket  # what `socket` adds costs more than all of this

    request = REQUEST.pack(
        AF_UNIX, 0, 0, ALL_STATES, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_VFS, 0xFFFFFFFF, 0xFFFFFFFF
    )
    size = HEADER.size + len(request)
    header = HEADER.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    link = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
    try:
        link.settimeout(DEADLINE_SECONDS)
        link.send(header + request)
        while answer := link.recv(ANSWER_BYTES):
            at = 0
            while at < len(answer):
                length, kind, _, _, _ = HEADER.unpack_from(answer, at)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise OSError
                yield answer[at + HEADER.size : at + length]
                at += (length + 3) & ~3
    finally:
        link.close()


def _read(message: bytes) -> Bound | None:
    """Return what a message says of a socket, if that has a file."""
    at = MESSAGE.size
    name = b""
    file = None
    cookie: bytes = MESSAGE.unpack_from(message)[-1]
    while at < len(message):
        length, kind = ATTRIBUTE.unpack_from(message, at)
        value = message[at + ATTRIBUTE.size : at + length]
        if kind == UNIX_DIAG_NAME:
            name = value.rstrip(b"\0")
        elif kind == UNIX_DIAG_VFS:
            inode, device = FILE.unpack(value)
            file = f"{device >> 20}:{device & 0xFFFFF}", inode
        at += (length + 3) & ~3
    return (os.fsdecode(name), file, cookie) if file is not None else None


def _listed() -> list[Bound]:
    """Return the same of proc(5), which has names only."""
    try:
        with open("/proc/net/unix", "rb") as table:
            names = names_of(table.read())
    except OSError as error:
        raise PolicyUnsupported(
            f"sockets: neither sock_diag nor /proc/net/unix tells which the host has ({error})",
            field="sockets",
        ) from None
    return [(name, None, b"") for name in names if not name.startswith("@")]


def names_of(table: bytes) -> list[str]:
    """Return the names in a table of sockets, in which the kernel escapes nothing."""
    names: list[bytes] = []
    for line in table.split(b"\n")[1:-1]:
        fields = line.split(b" ", 6)
        if len(fields) == 7 and fields[0].endswith(b":") and fields[0][:-1].isalnum():
            # The inode's number is filled up with spaces on its left.
            names.append(fields[6].lstrip(b" ").partition(b" ")[2])
        elif names:
            names[-1] += b"\n" + line  # of a name that has a line feed in it
    return [os.fsdecode(name) for name in names if name]


# ---- names -------------------------------------------------------------------------------


def _by_name(names: Iterable[str], tops: Collection[str]) -> list[str]:
    """Return the sockets to which absolute names lead, in *tops*."""
    folders: dict[str, list[str]] = {}
    for path in names:
        if path.startswith("/"):
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder or "/", []).append(name)
    found = []
    # One for all: whoever bound the sockets chose the words, and how many names they lead through.
    with Resolver(within=tops) as resolver:
        for folder, beside in folders.items():
            inside = any(top in tops for top in ancestors(os.path.normpath(folder)))
            meant = beside if inside else [name for name in beside if f"{folder}/{name}" in tops]
            real = _reached(resolver, folder) if meant else ""
            paths = [os.path.join(real, name) for name in meant] if real else ()
            found += [path for path in paths if _inode(path) >= 0]
    return found


def _reached(resolver: Resolver, folder: str) -> str:
    """Return where *folder* leads; "" if out of the grants, in circles or too deep.

    Raises:
        PolicyUnsupported: the paths of the sockets so far led through too many names.
    """
    try:
        return resolver(folder)
    except PolicyError:
        if resolver.is_spent:
            raise PolicyUnsupported(
                f"sockets: {visible(folder)} and other paths that programs of this machine have "
                "bound sockets to lead by links through more names than are followed; see "
                "/proc/net/unix, and end those programs",
                field="sockets",
                value=folder,
            ) from None
        return ""

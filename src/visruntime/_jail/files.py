"""File operations of the host on what a guest can reach.

Each runs in a confined child inside the jail, under the jail's own rights: the host never
opens a path that a guest could have prepared. A link in the last place is not followed.
`copy_in` and `copy_out` also open a file of the host; of that path no link at all is followed.
"""

from __future__ import annotations

import errno
import os
import struct
from abc import ABC, abstractmethod

from visruntime import _native
from visruntime._arguments import check_data, check_path, check_whole
from visruntime.errors import (
    CommandTimeout,
    JailClosed,
    LimitExceeded,
    OutputLimitExceeded,
    PathDenied,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._jail.process import CommandResult

__all__ = ["FileStatus", "JailFiles"]

DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EXDEV)
STATUS = struct.Struct("=QqII")
DEFAULT_MAX_BYTES = 64 << 20
NAME_BYTES = 64
"""What a string takes besides its text, and its place in a list: more than most names."""
FILE_TIMEOUT_SECONDS = 60.0
"""How long one operation may take: a guest's file system may be one that never answers."""


class FileStatus:
    """What `Jail.stat` tells: ``size`` in bytes, ``modified`` in seconds, ``mode``, ``links``."""

    __slots__ = ("links", "mode", "modified", "size")

    def __init__(self, size: int, modified_ns: int, mode: int, links: int) -> None:
        self.size: int = size
        self.modified: float = modified_ns / 1e9
        self.mode: int = mode
        self.links: int = links


class JailFiles(ABC):
    """The file verbs of a jail; `Jail` inherits them.

    Besides what each names, all of them raise `JailClosed` when the jail has ended,
    `CommandTimeout` (a `TimeoutError`) after `FILE_TIMEOUT_SECONDS`, and `OSError`, with EIO
    where the operation was ended before it was done.
    """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the jail has ended."""

    @abstractmethod
    def _file_operation(
        self, operation: str, path: str, *, data: bytes = b"", limit: int = 0
    ) -> CommandResult:
        """Carry out one operation inside."""

    @abstractmethod
    def _name_for_guest(self, descriptor: int, path: str) -> str | None:
        """Return the name by which a guest may write what *descriptor* opened at the host's *path*."""

    def _do(
        self,
        operation: str,
        path: str | os.PathLike[str],
        *,
        data: bytes = b"",
        limit: int = 0,
        argument: str = "path",
    ) -> bytes:
        name = _absolute(path, argument)
        result = self._file_operation(operation, name, data=data, limit=limit)
        if result.exit_code == 0 and not result.truncated:
            return result.stdout
        if result.exit_code == 0:
            raise OutputLimitExceeded(
                f"{name}: the answer is longer than {limit} bytes", kind="max_bytes", limit=limit
            )
        if result.stopped_by == "timeout":
            raise CommandTimeout(
                f"{name}: the operation was ended after {FILE_TIMEOUT_SECONDS:g} s", result=result
            )
        if result.stopped_by == "closed" or (result.exit_code is None and self.closed):
            raise JailClosed("the jail has ended")
        if result.exit_code is None:
            text = f"the operation was ended by signal {result.signal}"
            raise OSError(errno.EIO, text, name)
        number = result.exit_code
        if number in DENIED:
            reason = "is a link" if number == errno.ELOOP else os.strerror(number)
            raise PathDenied(f"{name}: {reason} (in the jail)", path=name, errno=number)
        raise OSError(number, os.strerror(number), name)

    def read_bytes(
        self, path: str | os.PathLike[str], *, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> bytes:
        """Return the content of a regular file.

        Raises:
            OutputLimitExceeded: it is longer than *max_bytes*.
            PathDenied: the jail may not read it, or it is a link.
            OSError: as `open` would; EINVAL for a pipe, a socket or a device.
        """
        return self._read(path, max_bytes, "path")

    def _read(self, path: str | os.PathLike[str], max_bytes: int, argument: str) -> bytes:
        check_whole(max_bytes, "max_bytes", 0)
        data = self._do("READ", path, limit=max_bytes + 1, argument=argument)
        if len(data) > max_bytes:
            raise OutputLimitExceeded(
                f"{os.fspath(path)} is longer than {max_bytes} bytes; raise max_bytes=",
                kind="max_bytes",
                limit=max_bytes,
            )
        return data

    def write_bytes(self, path: str | os.PathLike[str], data: bytes) -> None:
        """Make *data* the content of a regular file, which is made if it is not there.

        Raises:
            PathDenied: the jail may not write it, or it is a link.
            OSError: as `open` and `write` would; EFBIG above the limit ``file_size``, and the
                file then holds what is below it.
        """
        self._do("WRITE", path, data=check_data(data, "data"))

    def stat(self, path: str | os.PathLike[str]) -> FileStatus:
        """Return size, time and mode; of a link itself, not of what it leads to."""
        return FileStatus(*STATUS.unpack(self._do("STAT", path, limit=STATUS.size)))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Tell whether the jail sees something at *path*."""
        try:
            self._do("STAT", path, limit=STATUS.size)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list_dir(
        self, path: str | os.PathLike[str], *, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> list[str]:
        """Return the names in a folder, sorted.

        Args:
            path: the folder, in the jail.
            max_bytes: of memory for the names; each counts with 64 bytes more than it has.

        Raises:
            OutputLimitExceeded: the names take more than *max_bytes* together.
        """
        check_whole(max_bytes, "max_bytes", 2)
        names = self._do("LIST", path, limit=max_bytes)
        if len(names) + NAME_BYTES * names.count(0) > max_bytes:
            raise OutputLimitExceeded(
                f"{os.fspath(path)} has so many names that they take more than {max_bytes} bytes "
                "of memory; raise max_bytes=",
                kind="max_bytes",
                limit=max_bytes,
            )
        return sorted(os.fsdecode(name) for name in names.split(b"\0") if name)

    def make_dir(self, path: str | os.PathLike[str]) -> None:
        """Make a folder."""
        self._do("MAKE_DIRECTORY", path)

    def remove(self, path: str | os.PathLike[str]) -> None:
        """Remove a file, a link or an empty folder."""
        self._do("REMOVE", path)

    def realpath(self, path: str | os.PathLike[str]) -> str:
        """Return where *path* leads in the jail, all links followed."""
        return os.fsdecode(self._do("REALPATH", path, limit=_native.PATH_MAX))

    def copy_in(
        self,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """Copy a regular file of the host, read by the host, to *target* in the jail.

        No link on the way to *source* is followed: a guest may have planted it there. What
        lies in a write grant of this jail is read under the jail's own rights where the caller
        is root: a guest can rename a file that it may not read, and root would read it.

        Raises:
            LimitExceeded: it is longer than *max_bytes*.
            PathDenied: it lies in a write grant, and the jail may not read it.
            OSError: as `open` would; ELOOP for a link, EINVAL for a pipe or a device, EPERM where
                others than root and the file's owner could have put it there (a root caller).
        """
        # Not where this module is imported: Windows has the names of `aio`, and no such files.
        from visruntime._host.files import open_without_links, refuse_planted

        check_whole(max_bytes, "max_bytes", 0)
        _absolute(target, "target")
        with open(open_without_links(check_path(source, "source"), os.O_RDONLY), "rb") as file:
            name = os.path.abspath(source)
            inside = self._name_for_guest(file.fileno(), name) if os.geteuid() == 0 else None
            if inside is not None:
                data = self.read_bytes(inside, max_bytes=max_bytes)
            else:
                refuse_planted(file.fileno(), name)
                data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise LimitExceeded(
                f"{os.fspath(source)} is longer than {max_bytes} bytes; raise max_bytes=",
                kind="max_bytes",
                limit=max_bytes,
            )
        self._do("WRITE", target, data=data, argument="target")

    def copy_out(
        self,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """Copy a regular file of the jail to *target*, a new file on the host.

        No link on the way to *target* is followed: a guest may have planted it there.

        Raises:
            FileExistsError: there is something at *target*; nothing is replaced.
            OutputLimitExceeded: the file is longer than *max_bytes*.
            OSError: as `open` would; ELOOP for a link.
        """
        from visruntime._host.files import open_without_links

        place = check_path(target, "target")
        data = self._read(source, max_bytes, "source")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(open_without_links(place, flags), "wb") as file:
            file.write(data)


def _absolute(path: object, argument: str) -> str:
    """Return the path of a jail that *argument* is; it has no folder that others start at."""
    name = check_path(path, argument)
    if not name.startswith("/"):
        raise ValueError(f"{argument}: {name!r} is not an absolute path")
    return name

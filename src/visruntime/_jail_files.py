"""File operations of the host on what a guest can reach.

Each runs in a confined child inside the jail, under the jail's own rights: the host never
opens a path that a guest could have prepared. A link in the last place is not followed.
`copy_in` and `copy_out` also open a file of the host; of that path no link at all is followed.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from visruntime import _native
from visruntime.errors import (
    CommandTimeout,
    JailClosed,
    LimitExceeded,
    OutputLimitExceeded,
    PathDenied,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._jail_process import CommandResult

__all__ = ["FileStatus", "JailFiles"]

DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EXDEV)
STATUS = struct.Struct("=QqII")
DEFAULT_MAX_BYTES = 64 << 20
FILE_TIMEOUT_SECONDS = 60.0
"""How long one operation may take: a guest's file system may be one that never answers."""


class FileStatus:
    """What `Jail.stat` tells: ``size`` in bytes, ``modified`` in seconds, ``mode``, ``links``."""

    __slots__ = ("links", "mode", "modified", "size")

    def __init__(self, size: int, modified_ns: int, mode: int, links: int) -> None:
        self.size = size
        self.modified = modified_ns / 1e9
        self.mode = mode
        self.links = links


class JailFiles:
    """The file verbs of a jail; `Jail` inherits them.

    Besides what each names, all of them raise `JailClosed` when the jail has ended,
    `CommandTimeout` (a `TimeoutError`) after `FILE_TIMEOUT_SECONDS`, and `OSError`, with EIO
    where the operation was ended before it was done.
    """

    @property
    def closed(self) -> bool:
        """Whether the jail has ended."""
        raise NotImplementedError

    def _file_operation(
        self, operation: str, path: str, *, data: bytes = b"", limit: int = 0
    ) -> CommandResult:
        raise NotImplementedError

    def _do(
        self, operation: str, path: str | os.PathLike[str], *, data: bytes = b"", limit: int = 0
    ) -> bytes:
        name = os.fspath(path)
        if not isinstance(name, str) or not name.startswith("/") or "\0" in name:
            raise ValueError(f"path: {name!r} is not an absolute path")
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
        if max_bytes < 0:
            raise ValueError(f"max_bytes: {max_bytes}")
        data = self._do("READ", path, limit=max_bytes + 1)
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
        self._do("WRITE", path, data=bytes(data))

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

        Raises:
            OutputLimitExceeded: the names are longer than *max_bytes* together.
        """
        if max_bytes < 2:
            raise ValueError(f"max_bytes: {max_bytes}")
        names = self._do("LIST", path, limit=max_bytes)
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

        No link on the way to *source* is followed: a guest may have planted it there.

        Raises:
            LimitExceeded: it is longer than *max_bytes*.
            OSError: as `open` would; ELOOP for a link, EINVAL for a pipe or a device.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes: {max_bytes}")
        with open(_open_on_host(source, os.O_RDONLY), "rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise LimitExceeded(
                f"{os.fspath(source)} is longer than {max_bytes} bytes; raise max_bytes=",
                kind="max_bytes",
                limit=max_bytes,
            )
        self.write_bytes(target, data)

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
        data = self.read_bytes(source, max_bytes=max_bytes)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(_open_on_host(target, flags), "wb") as file:
            file.write(data)


def _open_on_host(path: str | os.PathLike[str], flags: int) -> int:
    """Open a regular file of the host without following any link; return the descriptor."""
    name = os.fspath(path)
    # Without links, the text alone says what `..` means; a guest cannot move it.
    *folders, last = os.path.abspath(name).strip("/").split("/")
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            following = _step(part, os.O_PATH | os.O_DIRECTORY, folder, name)
            os.close(folder)
            folder = following
        descriptor = _step(last or ".", flags | os.O_NONBLOCK | os.O_NOCTTY, folder, name)
    finally:
        os.close(folder)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "is no regular file", name)
    return descriptor


def _step(part: str, flags: int, folder: int, name: str) -> int:
    try:
        return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(part, folder):
            text = f"{part!r} is a link, and none is followed; give the path that it leads to"
            raise OSError(errno.ELOOP, text, name) from None
        raise OSError(error.errno, os.strerror(error.errno or 0), name) from None


def _is_link(part: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False

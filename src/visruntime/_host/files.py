"""Opening files of the host whose names a guest may have had its hands on.

A name is a question that a guest can answer: what it planted in its write grant yesterday
stands on the way today. So no link is followed but those that only the system can have
made, and nothing but a regular file is opened: a FIFO would be waited for without end.
"""

from __future__ import annotations

import errno
import os
import stat

from visruntime._host.descriptors import FOLDER
from visruntime._policy.links import Resolver, untrusted_link
from visruntime._policy.paths import visible
from visruntime._policy.planted import READ, is_planted

__all__ = [
    "has_name",
    "is_folder",
    "open_folder",
    "open_followed",
    "open_passed",
    "open_regular",
    "open_without_links",
    "refuse_planted",
]

UNWAITING = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
PASSED = ("/dev/fd/", "/proc/self/fd/")
"""Where the descriptors of this process have names."""


def open_passed(path: str) -> int | None:
    """Return a copy of the descriptor that *path* names, such as /dev/stdin, if it names one.

    Whoever started this process passed it, so no guest chose what it is.

    Raises:
        OSError: there is no such descriptor.
    """
    number = "0" if path == "/dev/stdin" else path
    for folder in PASSED:
        number = number.removeprefix(folder)
    return os.dup(int(number)) if number.isascii() and number.isdigit() else None


def open_regular(path: str, flags: int, mode: int = 0o644) -> int:
    """Open the regular file at absolute *path*; return the descriptor.

    It never waits, also where a FIFO was put in the file's place.

    Raises:
        OSError: as `open` would; ELOOP for a link that a guest could have made, EISDIR and
            EINVAL for what is no regular file.
    """
    with Resolver() as resolver:
        real = resolver(path)
    link = untrusted_link(resolver.links[path])
    if link is not None:
        text = (
            f"{visible(link)} is a link that a guest could have made; "
            f"write {visible(real)} if you mean that"
        )
        raise OSError(errno.ELOOP, text, path)
    # A link that appears from here on is followed no more.
    return open_without_links(real, flags, mode)


def open_followed(path: str) -> int:
    """Open the regular file at *path* for reading, through links; return the descriptor.

    For a caller that has judged the links itself. It never waits, as `open_regular`.

    Raises:
        OSError: as `open` would; EISDIR and EINVAL for what is no regular file.
    """
    return _regular(os.open(path, os.O_RDONLY | UNWAITING), path)


def refuse_planted(descriptor: int, path: str) -> None:
    """Refuse an open file that root would read though somebody else could have put it there.

    Whoever may rename in a folder gives a file of root's another name, without being able to
    read it. For other callers a guest has no files but those that they can read themselves.

    Raises:
        PermissionError: of a root caller, for a file in a folder of others.
    """
    found = os.fstat(descriptor)
    if os.geteuid() == 0 and is_planted(
        os.path.abspath(path), found.st_uid, found.st_mode, asked=READ
    ):
        text = (
            "others than root and its owner could have put it there, and root would read it for "
            "them; copy it to a folder of root's as a file of root's"
        )
        raise PermissionError(errno.EPERM, text, path)


def open_without_links(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Open a regular file without following any link at all; return the descriptor.

    Raises:
        OSError: as `open_regular`; ELOOP for every link.
    """
    name = os.fspath(path)
    return _regular(_walk(name, flags | UNWAITING, mode), name)


def _regular(descriptor: int, name: str) -> int:
    """Return *descriptor* if it is that of a regular file, else close it and say what is wrong."""
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(number, "is no regular file", name)
    return descriptor


def is_folder(path: str) -> bool:
    """Whether absolute *path* is a folder, looked up without following any link.

    Raises:
        OSError: ELOOP, where it is a link or one is on the way.
    """
    try:
        os.close(_walk(path, FOLDER))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
        return False
    return True


def has_name(folder: str, name: str) -> bool:
    """Tell whether something of that *name* is in the folder at absolute path *folder*.

    No link is followed, and a folder with many names costs no more than one with few.
    """
    try:
        descriptor = open_folder(folder)
    except OSError:
        return False
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def open_folder(path: str, *, make: bool = False) -> int:
    """Open the folder at absolute *path* for reading, through no link; return the descriptor.

    With *make* a folder that is missing is made, with mode 0700, and those above it.

    Raises:
        OSError: as `os.open`; ELOOP for every link.
    """
    return _walk(path, os.O_RDONLY | os.O_DIRECTORY, make=make)


def _walk(path: str, flags: int, mode: int = 0o644, *, make: bool = False) -> int:
    """Open *path* by one folder after the other, so that no link is followed anywhere."""
    # Without links, the text alone says what `..` means; a guest cannot move it.
    *folders, last = os.path.abspath(path).strip("/").split("/")
    folder = os.open("/", FOLDER | os.O_CLOEXEC)
    try:
        for part in folders:
            if make:
                _make(part, 0o777, folder, path)
            following = _step(part, FOLDER, folder, path)
            os.close(folder)
            folder = following
        if make:
            _make(last, 0o700, folder, path)
        return _step(last or ".", flags, folder, path, mode)
    finally:
        os.close(folder)


def _step(part: str, flags: int, folder: int, name: str, mode: int = 0o644) -> int:
    try:
        return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(part, folder):
            text = f"{part!r} is a link, and none is followed; give the path that it leads to"
            raise OSError(errno.ELOOP, text, name) from None
        raise OSError(error.errno, os.strerror(error.errno or 0), name) from None


def _make(part: str, mode: int, folder: int, name: str) -> None:
    try:
        os.mkdir(part, mode, dir_fd=folder)
    except FileExistsError:
        pass
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), name) from None


def _is_link(part: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False

"""Whether a name on the host says what its owner meant, or what somebody else put there.

Whoever may write in a folder can put a file of root's there by renaming it, without being able
to read it; so can a guest of an earlier jail, in a folder that it was granted. In a folder of
root's the guests of a root caller write as root, and reach there what other users keep from them.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from visruntime._policy.paths import ancestors

__all__ = ["ALL", "READ", "WRITE", "is_planted", "keeps_from_others"]


READ, WRITE, ALL = 0o444, 0o222, 0o777
"""What is asked for; see `is_planted`."""

NAMED = (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)


def is_planted(path: str, owner: int, mode: int = 0, *, asked: int = ALL) -> bool:
    """Tell whether others than root and uid *owner* could have put what is at real *path* there.

    Looks at the folders above: who may rename in one of them chooses what is at *path*. What
    cannot be looked at is taken for planted.

    A file of a user in a folder of root's can be the work of a guest that wrote there as root,
    where its *mode* (st_mode) gives its owner or group more of what is *asked* than everybody.
    A folder of a user in one of root's, such as that of /home, is not told from such a work.
    """
    steps = list(ancestors(path))
    try:
        status = [os.lstat(step) for step in steps]
    except OSError:
        return True
    above = status[-2] if len(status) > 1 else status[-1]
    if above.st_uid != owner and stat.S_IFMT(mode) in NAMED and keeps_from_others(mode & asked):
        return True
    return any(
        (_others_write(folder, owner) or _list_lets_write(steps[index], folder))
        and not _stays(folder, status[index + 1], owner)
        for index, folder in enumerate(status[:-1])
    )


def keeps_from_others(mode: int) -> bool:
    """Tell whether *mode* gives a file's owner or group more than everybody."""
    return bool((mode >> 6 | mode >> 3) & ~mode & 0o7)


def _others_write(folder: os.stat_result, owner: int) -> bool:
    if folder.st_uid not in (0, owner) or folder.st_mode & stat.S_IWOTH:
        return True
    # The group of an owner's own folder is mostly one that has only the owner in it.
    return bool(folder.st_mode & stat.S_IWGRP) and not _is_private_group(folder.st_gid, owner)


def _list_lets_write(path: str, folder: os.stat_result) -> bool:
    """Tell whether an access control list (acl(5)) may let others write in the folder at *path*.

    With one the bits of the group are what all whom it names may have at most.
    """
    if not folder.st_mode & stat.S_IWGRP:
        return False
    if sys.platform == "darwin":  # whose lists Python does not read
        return True
    try:
        os.getxattr(path, "system.posix_acl_access", follow_symlinks=False)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True


def _is_private_group(group: int, owner: int) -> bool:
    """Tell whether *group* is root's or the one of *owner*, and nobody else is in it.

    A group has members, and those whose own group it is: on some systems that is one for all users.
    """
    import grp
    import pwd

    try:
        account = pwd.getpwuid(owner)
        name, primary = account.pw_name, account.pw_gid
    except KeyError:  # of a container or a share, whose accounts are unknown here
        name, primary = "", owner
    if group not in (0, primary):
        return False
    try:
        entry = grp.getgrgid(group)
    except KeyError:
        members = []
    else:
        # A directory may list no accounts, and a group of another name may be one for all of them.
        if group and entry.gr_name != name:
            return False
        members = entry.gr_mem
    own = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    for member in members:
        try:
            own.add(pwd.getpwnam(member).pw_uid)
        except KeyError:
            continue  # no such user
    return own <= {0, owner}


def _stays(folder: os.stat_result, entry: os.stat_result, owner: int) -> bool:
    """Tell whether a sticky *folder*, such as /tmp, keeps others from having put *entry* there.

    They cannot rename what is in it and not theirs, and moving a folder to another place takes
    the right to write in it. A file they can move there from a folder of their own.
    """
    sticky = folder.st_mode & stat.S_ISVTX and folder.st_uid in (0, owner)
    return bool(
        sticky
        and stat.S_ISDIR(entry.st_mode)
        and entry.st_uid in (0, owner)
        and not entry.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
    )

"""What stands at a path: something, certainly nothing, or nobody can say.

`os.path.exists` and its like answer no for what they may not look at. But a guest can close a
folder of its own for a moment (chmod), and what is in it is there all the same: a rule on that
would be left out, and hold nothing once the folder is open again.
"""

from __future__ import annotations

import errno
import os
import stat

from visruntime._policy.paths import visible
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["MISSING", "is_missing", "may_be_folder", "refuse_closed", "status_at"]

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
"""The answers that say that nothing is there."""


def is_missing(path: str) -> bool:
    """Tell whether certainly nothing is at *path*; what cannot be looked at is not missing."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in MISSING
    return False


def may_be_folder(path: str) -> bool:
    """Tell whether a folder is at *path*, or what cannot be looked at."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError as error:
        return error.errno not in MISSING


def status_at(path: str) -> os.stat_result | None:
    """Return what stands at *path*, ``None`` where certainly nothing does.

    Raises:
        PolicyUnsupported: it cannot be looked at.
    """
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in MISSING:
            return None
        refuse_closed(path, str(error.strerror))


def refuse_closed(path: str, why: str = "Permission denied", field: str = "") -> NoReturn:
    """Refuse a rule, of *field*, about what may be at *path*.

    Raises:
        PolicyUnsupported: always.
    """
    raise PolicyUnsupported(
        f"{field}{': ' if field else ''}{visible(path)}: it cannot be looked at ({why}), so nothing "
        "can be said of it; open the folders above it to yourself",
        field=field or None,
        value=path,
    )

"""Which failures say that a back end opens no jail on this machine, whatever is tried again.

"auto" goes on to a weaker back end for these alone. A guest can fill what its user may have of
processes, memory or descriptors at a moment of its choice, and no guest may choose by what the
host's next jail is held. So this is a list of what is refused for good, by stage and errno, and
whatever is not on it is the error itself.
"""

from __future__ import annotations

import errno

from visruntime._jail.diagnose import apparmor_restricts, switched_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime.errors import JailUnavailable

__all__ = ["is_impossible"]

REFUSED = frozenset({errno.EPERM, errno.EINVAL, errno.ENOSYS})
"""What the kernel, or a filter around this process, answers where a call does not exist for it."""

IMPOSSIBLE = {
    "user namespace": REFUSED | {errno.EACCES},
    "id map": {errno.EPERM},
    "namespaces": REFUSED,
    "network": REFUSED,
    "mount propagation": REFUSED | {errno.EACCES},
    "mount": {errno.EPERM, errno.ENOSYS},
    "proc mount": {errno.EPERM},
    "devices": {errno.EPERM},
    "pivot_root": REFUSED,
    "landlock": {errno.ENOSYS, errno.EOPNOTSUPP},
    "bubblewrap": REFUSED | {errno.EACCES, None},
}
"""By stage. EACCES is a security module's answer where no path is looked up; elsewhere it can be
the modes of folders, which change. Without a number bubblewrap was not even started."""


def is_impossible(error: JailUnavailable) -> bool:
    """Tell whether *error* says that its back end opens no jail here."""
    if error.stage is None:
        return False
    if error.errno == errno.ENOSPC:
        return bool(switched_off(error.stage))
    if (error.stage, error.errno) == ("id map", errno.EACCES):
        return apparmor_restricts()
    return error.errno in IMPOSSIBLE.get(error.stage, ())

"""Why a jail could not be opened on this machine, and the one thing that would help.

One errno has several causes, so harmless calls tell them apart: they change nothing and
have arguments that no kernel accepts, so only a filter or a module in between can answer
EPERM. Versions and names of distributions are never asked.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from visruntime import _native
from visruntime._jail_ports import port_error
from visruntime._paths import ancestors
from visruntime.errors import JailClosed, JailUnavailable, PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._wall import Wall

__all__ = ["apparmor_profile", "as_public_error", "init_path", "no_wall"]

MOVED = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
NAMESPACE_STAGES = frozenset({"user namespace", "id map", "namespaces", "mount propagation"})
PATH_STAGES = frozenset(
    {"mount source", "mount source changed", "mount point", "mount verification"}
)


def init_path() -> str:
    """Return the path of the installed visjail-init.

    Raises:
        JailUnavailable: the installation is incomplete.
    """
    path = os.path.join(_native.BINARY_DIRECTORY, "bin", "visjail-init")
    if not os.access(path, os.X_OK):
        raise JailUnavailable(
            f"{path} is missing or not executable", stage="host", fix="reinstall visruntime"
        )
    return path


def apparmor_profile() -> str:
    """Return an AppArmor profile that lets the installed visjail-init make user namespaces."""
    return (
        "abi <abi/4.0>,\n"
        "include <tunables/global>\n"
        f'profile visjail-init "{init_path()}" flags=(unconfined) {{\n'
        "  userns,\n"
        "}\n"
    )


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _refused(call: str, *arguments: object) -> bool:
    """Tell whether a harmless call is answered with EPERM."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(getattr(libc, call)(*arguments) and ctypes.get_errno() == errno.EPERM)


def _why_no_namespaces(number: int) -> tuple[str, str]:
    """Return the cause and the fix, in this order of likelihood."""
    if _read("/proc/sys/user/max_user_namespaces") == "0":
        return (
            "user namespaces are switched off (user.max_user_namespaces is 0)",
            "as root: sysctl -w user.max_user_namespaces=15000",
        )
    if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return (
            "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
            "as root: sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            (
                "AppArmor keeps programs without a profile from user namespaces "
                "(kernel.apparmor_restrict_unprivileged_userns is 1)"
            ),
            "load the profile that `visruntime doctor` prints, as root",
        )
    if number == errno.ENOSPC:
        return (
            "no more namespaces may be made (a user.max_*_namespaces limit, or nested too deep)",
            "raise the limits in /proc/sys/user, or leave the outer sandbox",
        )
    if number == errno.ENOSYS:
        return ("the kernel is too old for this jail", "Linux 5.12 or newer is needed")
    if _refused("unshare", 0):
        return (
            "a seccomp filter around this process refuses namespaces (a container's default)",
            "run the container with a seccomp profile that allows unshare, mount and clone",
        )
    if _refused("mount", b"", b"", b"", 0, None):
        return (
            "a filter or Landlock around this process refuses mounts",
            "start the host outside of that sandbox",
        )
    return (
        "the kernel refuses namespaces to this process (a chroot, or a security module)",
        "start the host outside of the chroot, or see `visruntime doctor`",
    )


def no_wall(error: _native.NativeError, wall: Wall) -> PolicyUnsupported | None:
    """Return the error for names that this kernel cannot hold, if that is what failed."""
    if not wall.names:
        return None
    origin, path = wall.names[0]
    if error.stage == "broker":
        return PolicyUnsupported(
            f"{origin}: {path} does not exist, and the broker that makes other names beside it "
            f"does not start ({os.strerror(error.errno)}; it needs Linux 5.14); create it first, "
            'or use absent_deny="wall"',
            field=origin,
            value=path,
        )
    if error.stage != "landlock" or error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP):
        return None
    return PolicyUnsupported(
        f"{origin}: {path} does not exist, and only Landlock (Linux 5.13), which this kernel does "
        "not have or does not use, keeps a guest from making it; create it first, or boot with "
        "landlock in the lsm= list",
        field=origin,
        value=path,
    )


def _why_no_broker(number: int) -> str:
    """Return why no process of the jail can judge its system calls."""
    fix = "grant no folders in the jail that gets sockets"
    if number == errno.EBUSY:
        return (
            "sockets: a supervisor around this process already judges its system calls, and the "
            f"kernel takes one only; start the host outside of it, or {fix}"
        )
    if number in (errno.EINVAL, errno.ENOSYS):
        return f"sockets: this kernel has no seccomp notifications (Linux 5.0); {fix}"
    return f"sockets: the broker of the jail did not start: {os.strerror(number)}; {fix}"


def _closed_above(path: str) -> str:
    """Say which folder keeps a guest from *path*, if that can be seen."""
    # From below: what is above the grant that holds the path is not in the way.
    for folder in reversed(list(ancestors(os.path.dirname(path)))):
        try:
            found = os.lstat(folder)
        except OSError:
            return ""
        if not found.st_mode & stat.S_IXOTH:
            mode = stat.S_IMODE(found.st_mode)
            return (
                f", since {folder} (of user {found.st_uid}, mode {mode:04o}) is closed to the "
                "guest; open it to others, or leave what is in it out of the policy"
            )
    return ""


def as_public_error(error: _native.NativeError, plan: bytes) -> Exception:
    """Turn the failure of an opening into the error that the caller gets."""
    if error.status == "closed":
        return JailClosed("the jail ended while it was opening; see `visruntime doctor`")
    if error.stage in PATH_STAGES and error.index >= 0:
        path = _native.plan_path(plan, error.index)
        why = os.strerror(error.errno)
        if error.stage in ("mount source changed", "mount verification"):
            why = "it was moved or replaced while the jail was opening"
        elif error.errno == errno.EACCES:
            why += _closed_above(path)
        return PolicyError(f"{path}: {why}; nothing was started", field=None, value=path)
    if error.stage == "ports" and error.index >= 0:
        return port_error(_native.plan_path(plan, error.index), error.errno)
    if error.stage == "broker":
        return PolicyUnsupported(_why_no_broker(error.errno), field="sockets")
    if error.stage == "mount source changed":
        return PolicyError(
            "a folder that leads to a rule was moved or replaced while the jail was opening, by "
            "another program that may write there; nothing was started; try again when it is "
            "still",
            field=None,
        )
    if error.stage == "mount" and error.index >= 0 and error.errno in MOVED:
        path = _native.plan_path(plan, error.index)
        return PolicyError(
            f"{path}: {os.strerror(error.errno)} when it was mounted, as happens when another "
            "program moves it while the jail opens; nothing was started; try again when it is "
            "still",
            field=None,
            value=path,
        )
    if error.stage in NAMESPACE_STAGES:
        cause, fix = _why_no_namespaces(error.errno)
    elif error.stage == "proc mount" and error.errno == errno.EPERM:
        cause = "the kernel refuses a private /proc because the visible one is partly covered"
        fix = "run the container with an unmasked /proc, or outside of it"
    elif error.errno == errno.EMFILE:
        cause = "the policy needs more open files at once than this process may have"
        fix = "raise `ulimit -n`, or write fewer rules"
    else:
        cause = f"the step '{error.stage}' failed: {os.strerror(error.errno)}"
        fix = "see `visruntime doctor`"
    return JailUnavailable(
        f"cannot open a jail: {cause}", stage=error.stage, errno=error.errno, fix=fix
    )

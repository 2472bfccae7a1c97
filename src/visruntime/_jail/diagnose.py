"""Why a jail could not be opened on this machine, and the one thing that would help.

One errno has several causes, so harmless calls tell them apart: they change nothing and
have arguments that no kernel accepts, so only a filter or a module in between can answer
EPERM. Versions and names of distributions are never asked.
"""

from __future__ import annotations

import errno
import os
import stat

from visruntime import _native
from visruntime._jail.mount_table import host_mounts, mount_table
from visruntime._jail.ports import port_error
from visruntime._policy.paths import ancestors
from visruntime.errors import JailClosed, JailUnavailable, PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._policy.wall import Wall

__all__ = [
    "OUT_OF_FILES",
    "apparmor_profile",
    "apparmor_restricts",
    "as_public_error",
    "init_path",
    "no_wall",
    "not_looked_at",
    "switched_off",
]

OPENING_FILES = 64
"""Open files with which a jail without grants can open: 42 were needed on Debian, each place of the
system being held until it is mounted."""

MOVED = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
NAMESPACE_STAGES = frozenset({"user namespace", "id map", "namespaces", "mount propagation"})
KINDS_OF_NAMESPACE = {
    "user namespace": ("user",),
    "namespaces": ("mnt", "pid", "uts", "cgroup", "ipc"),
    "network": ("net",),
    "bubblewrap": ("user", "mnt", "pid", "uts", "cgroup", "ipc", "net"),
}
"""What is made at each stage, as the settings in /proc/sys/user name it."""
ACCIDENTS = {
    errno.EAGAIN: (
        "this user, or the cgroup around this process, has as many processes as it may",
        (
            "end some of them or raise the limit (`ulimit -u`, pids.max), then open it again; with a "
            "smaller limits.processes guests cannot use it up"
        ),
    ),
    errno.ENOMEM: ("the kernel has no memory for it", "free some, then open it again"),
    errno.ENFILE: (
        "this machine has as many open files as it may",
        "close some or raise fs.file-max, then open it again",
    ),
    errno.EFBIG: (
        "this process may write no file as large as the jail's plan",
        "raise its limit on the size of files (`ulimit -f`), then open it again",
    ),
    errno.EUSERS: (
        "this user has as many namespaces as it may",
        "close other jails, then open it again",
    ),
    errno.ETOOMANYREFS: (
        "too many descriptors of this user are under way in sockets",
        "end the programs that leave them there, then open it again",
    ),
    errno.ETIMEDOUT: (
        "this machine was too busy to make it in time",
        "open it again when there is less to do",
    ),
    errno.EINTR: ("a signal came in between", "open it again"),
}
"""What is no trait of the machine or the policy, and may come from guests of other jails."""
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""Says of whatever was looked at only that it could not be opened now."""
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
        there = os.path.exists(path)
        raise JailUnavailable(
            f"{path} {'may not be executed: its run bit is gone' if there else 'is missing'}",
            stage="host",
            fix="reinstall visruntime with pip or uv"
            + (f", which keep that bit, or: chmod +x {path}" if there else ""),
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


CAP_SETFCAP = 31
CLONE_NEWUSER = 0x10000000
NO_FLAG = 1


def _answer(call: str, *arguments: object) -> int:
    """Return the errno of a harmless call, 0 if it succeeded."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if getattr(libc, call)(*arguments) else 0


def _filter_refuses_namespaces() -> bool:
    """Tell whether a filter answers unshare(2), for all flags or for a user namespace.

    With a bit that is no flag the kernel says EINVAL before it looks at the others.
    """
    return _answer("unshare", CLONE_NEWUSER | NO_FLAG) == errno.EPERM


def _filter_refuses_mounts() -> bool:
    """Tell whether a filter answers mount(2): the kernel itself looks at the text first.

    Where the text cannot be read it says EFAULT, with every right and with none; security
    modules are asked later.
    """
    import ctypes

    bad = ctypes.c_void_p(8)
    return _answer("mount", bad, bad, bad, ctypes.c_ulong(0), None) == errno.EPERM


FILTERED = (
    "a seccomp filter around this process refuses {what} (a container's default)",
    "run the container with a seccomp profile that allows unshare, mount and clone",
)


APPARMOR = (
    (
        "AppArmor keeps programs without a profile from user namespaces "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)"
    ),
    "load the profile that `visruntime doctor` prints, as root",
)


def apparmor_restricts() -> bool:
    """Tell whether AppArmor takes the rights in a user namespace from programs without a profile."""
    return _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"


def switched_off(stage: str) -> str:
    """Return the setting by which a namespace of *stage* may never be made; "" if there is none."""
    for kind in KINDS_OF_NAMESPACE.get(stage, ()):
        if _read(f"/proc/sys/user/max_{kind}_namespaces") == "0":
            return f"user.max_{kind}_namespaces"
    return ""


def _why_no_namespaces(stage: str, number: int) -> tuple[str, str]:
    """Return the cause and the fix of the errno *number* at *stage*."""
    if number == errno.ENOSYS:
        return ("the kernel is too old for this jail", "Linux 5.12 or newer is needed")
    if number not in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSPC):
        return _step_failed(stage, number)
    if stage == "mount propagation":
        if _filter_refuses_mounts():
            return FILTERED[0].format(what="mounts"), FILTERED[1]
        if apparmor_restricts():
            return APPARMOR
        return (
            "Landlock or another security module around this process refuses mounts (as in a jail)",
            "start the host outside of that sandbox",
        )
    if number == errno.ENOSPC:
        setting = switched_off(stage)
        if setting:
            return (
                f"namespaces are switched off ({setting} is 0)",
                f"as root: sysctl -w {setting}=15000",
            )
        return (
            "no more namespaces may be made (a user.max_*_namespaces limit, or nested too deep)",
            (
                "close other jails, raise the limits in /proc/sys/user, or leave the outer sandbox; "
                "where that cannot be, name another back end"
            ),
        )
    if _filter_refuses_namespaces():
        return FILTERED[0].format(what="namespaces"), FILTERED[1]
    return _why_the_kernel_refuses(stage, number)


def _step_failed(stage: str, number: int) -> tuple[str, str]:
    return f"the step '{stage}' failed: {os.strerror(number)}", "see `visruntime doctor`"


def _lacks_capability(number: int) -> bool:
    """Tell whether this process has no capability *number*."""
    for line in _read("/proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return not int(value, 16) >> number & 1
    return False


def _why_the_kernel_refuses(stage: str, number: int) -> tuple[str, str]:
    if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return (
            "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
            "as root: sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if apparmor_restricts():
        return APPARMOR
    if stage == "id map" and number == errno.EACCES:
        return (
            "the files in /proc that map ids could not be opened (Permission denied)",
            (
                "let everyone enter / and /proc (chmod a+x), or see what security module is around "
                "this process; then open it again"
            ),
        )
    if stage == "id map" and os.geteuid() == 0 and _lacks_capability(CAP_SETFCAP):
        return (
            "uid 0 without the capability SETFCAP may map no ids (as in a jail or a container)",
            "start the host as another uid, or outside of that sandbox",
        )
    if stage == "id map":
        return (
            f"the kernel let this process map no ids ({os.strerror(number)})",
            "start the host outside of the sandbox around it, or see `visruntime doctor`",
        )
    if _is_in_chroot():
        return (
            "the kernel refuses namespaces in a chroot",
            "start the host outside of the chroot",
        )
    return (
        "the kernel refuses namespaces to this process (a chroot, or a security module)",
        "start the host outside of it, or see `visruntime doctor`",
    )


def _is_in_chroot() -> bool:
    """Tell whether the root of this process is no mount point, which it is but for chroot(2)."""
    mounts = host_mounts(mount_table())
    return bool(mounts) and all(mount.point != "/" for mount in mounts)


def no_wall(error: _native.NativeError, wall: Wall) -> PolicyUnsupported | None:
    """Return the error for names that this kernel cannot hold, if that is what failed."""
    if not wall.names or error.errno in ACCIDENTS:
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
    if error.stage == "mount verification" and error.errno == errno.EPROTO:
        where = f" at {_native.plan_path(plan, error.index)}" if error.index >= 0 else ""
        return JailUnavailable(
            f"bubblewrap made a jail that is not the one it was asked for{where}; nothing ran in it",
            stage=error.stage,
            errno=error.errno,
            fix="use the back end namespaces, or another bubblewrap",
        )
    if error.errno == errno.EMFILE:
        return _too_few_files(error.stage)
    if error.errno in ACCIDENTS and error.stage not in PATH_STAGES:
        return _accident(error.errno, error.stage)
    if error.stage == "canary left" and error.index >= 0:
        path = _native.plan_path(plan, error.index)
        return JailUnavailable(
            f"the jail did not hold: {path} could be made or written in, and what was made to try "
            f"that could not be taken away again ({os.strerror(error.errno or 0)})",
            stage="canaries",
            errno=error.errno,
            fix=f"look at {path}, and remove what nobody else can have made there",
        )
    if error.stage in PATH_STAGES and error.index >= 0:
        path = _native.plan_path(plan, error.index)
        why = os.strerror(error.errno)
        if error.stage == "mount verification" and error.errno == errno.EACCES:
            why += _closed_above(f"{path}/")
        elif error.stage in ("mount source changed", "mount verification"):
            why = "it was moved or replaced while the jail was opening"
        elif error.errno == errno.EACCES:
            why += _closed_above(path)
        return PolicyError(f"{path}: {why}; nothing was started", field=None, value=path)
    if error.stage == "ports" and error.index >= 0:
        return port_error(_native.plan_path(plan, error.index), error.errno)
    if error.stage == "broker":
        return PolicyUnsupported(_why_no_broker(error.errno), field="sockets")
    if error.stage == "bubblewrap":
        return _bubblewrap_error(error, plan)
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
    if error.stage in NAMESPACE_STAGES or (error.stage, error.errno) == ("network", errno.ENOSPC):
        cause, fix = _why_no_namespaces(error.stage, error.errno)
    elif error.stage == "landlock" and error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
        cause = "this kernel's Landlock is missing or too old for the back end"
        fix = "bubblewrap needs ABI 3 (Linux 6.2), landlock ABI 6 (Linux 6.12)"
    elif error.stage == "proc mount" and error.errno == errno.EPERM:
        cause = "the kernel refuses a private /proc because the visible one is partly covered"
        fix = "run the container with an unmasked /proc, or outside of it"
    else:
        cause, fix = _step_failed(error.stage, error.errno)
    return JailUnavailable(
        f"cannot open a jail: {cause}", stage=error.stage, errno=error.errno, fix=fix
    )


def not_looked_at(error: OSError | _native.NativeError) -> JailUnavailable | None:
    """Return the error for a plan that could not be made, if the host could not be looked at."""
    stage = "host"
    if error.errno == errno.EMFILE:
        return _too_few_files(stage)
    if error.errno == errno.ENFILE:
        return _accident(error.errno, stage)
    path = str(error.filename) if isinstance(error, OSError) else ""
    if path.startswith("/proc/"):
        return JailUnavailable(
            f"cannot open a jail: {path} of this host cannot be read ({os.strerror(error.errno or 0)})",
            stage=stage,
            errno=error.errno,
            fix="mount a proc file system on /proc (as root: mount -t proc proc /proc)",
        )
    return None


def _too_few_files(stage: str) -> JailUnavailable:
    return JailUnavailable(
        "cannot open a jail: the policy needs more open files at once than this process may have",
        stage=stage,
        errno=errno.EMFILE,
        fix=f"allow this process {OPENING_FILES} open files, soft and hard (`ulimit -n`), and one "
        "more for each grant, or grant fewer paths",
    )


def _accident(number: int, stage: str) -> JailUnavailable:
    """Return the error for what can be gone the next moment."""
    cause, fix = ACCIDENTS[number]
    return JailUnavailable(
        f"cannot open a jail now: {cause} (step '{stage}': {os.strerror(number)})",
        stage=stage,
        errno=number,
        fix=fix,
    )


def _bubblewrap_error(error: _native.NativeError, plan: bytes) -> Exception:
    if error.status == "refused":
        path = _native.plan_path(plan, error.index) if error.index >= 0 else None
        where = f"{path}: " if path else ""
        return PolicyUnsupported(
            f"{where}{error} (back end bubblewrap); use the back end namespaces, or a bubblewrap "
            "that follows no links there",
            field="backend",
            value=path,
        )
    from visruntime._jail.bubblewrap import failure

    return failure(str(error).encode("ascii", "replace").decode())

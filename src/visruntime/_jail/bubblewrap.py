"""The system's bubblewrap: found, and tried before it is trusted.

Distributions carry fixes back, so a version says nothing: what matters is tried.
"""

from __future__ import annotations

import errno
import os
import stat

from visruntime.errors import JailUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["failure", "find_bubblewrap", "follows_links"]

PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
"""Never by PATH or in the working directory, where a guest may have put one."""

ALLOWED_TO_OTHERS = 0o022
PROBE_TIMEOUT_SECONDS = 20
SCENE = "/dev"
"""Where the probe mounts a file system, inside of bwrap only: a folder that every system has."""
REFUSED = 1
"""The exit code of a bwrap that could not make what it was asked for."""
REFUSALS = ("Too many levels of symbolic links", "Not a directory")
"""How the messages end of a bwrap that does not go through a link (ELOOP, ENOTDIR)."""

REFUSED_HERE = (
    ("No permissions to creat", errno.EPERM),
    ("likely because the kernel does not support user namespaces", errno.EINVAL),
    ("namespaces exceeded (ENOSPC)", errno.ENOSPC),
    ("setting up uid map: Permission denied", errno.EACCES),
    ("Failed to make / slave: Permission denied", errno.EACCES),
    (": Operation not permitted", errno.EPERM),
    (": Function not implemented", errno.ENOSYS),
)
"""Words of a bwrap to which this machine gives no jail, and what the kernel answered."""
ACCIDENT_FIX = (
    "if that can pass (no memory, too many processes or open files), open it again; else see "
    "`visruntime doctor`"
)


def failure(said: str) -> JailUnavailable:
    """Return the error for what bwrap *said*; its ``errno`` is 0 if that can be an accident."""
    number = next((number for words, number in REFUSED_HERE if words in said), 0)
    shown = "".join(each if each.isprintable() else "?" for each in said)
    return JailUnavailable(
        f"bubblewrap makes no jail here: {shown}",
        stage="bubblewrap",
        errno=number,
        fix="see `visruntime doctor`" if number else ACCIDENT_FIX,
    )


def find_bubblewrap(places: Sequence[str] = PLACES) -> str:
    """Return the path of the system's bwrap, which only root can have put there.

    Raises:
        JailUnavailable: there is none, or somebody else could change it.
    """
    for place in places:
        if os.path.lexists(place):
            real = os.path.realpath(place)
            why = _why_not(real)
            if why:
                raise JailUnavailable(
                    f"{real} is not used: {why}",
                    stage="bubblewrap",
                    fix="install the distribution's bubblewrap",
                )
            return real
    raise JailUnavailable(
        "bubblewrap is not installed",
        stage="bubblewrap",
        fix="install the distribution's package bubblewrap",
    )


def _why_not(path: str) -> str:
    step = path
    while True:
        found = os.stat(step)
        # In a user namespace the host's root is nobody; uid 0 there is the caller.
        if found.st_uid != 0 and (found.st_uid != _overflow_uid() or os.geteuid() == 0):
            return f"{step} belongs to uid {found.st_uid}, not to root"
        if found.st_mode & ALLOWED_TO_OTHERS:
            return f"{step} can be written by others than root"
        if step == "/":
            break
        step = os.path.dirname(step)
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        return "it is no program"
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "it is set-uid, and works in another way then"
    return ""


def _overflow_uid() -> int:
    with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
        return int(file.read())


def follows_links(path: str) -> bool:
    """Tell whether the bwrap at *path* follows a link on the way to a mount point.

    One that does can be made to create names outside of a grant by a link that a guest left
    in it (the class of CVE-2026-87766). It is tried in a file system that bwrap makes for it,
    in which nobody else can change anything meanwhile.

    Raises:
        JailUnavailable: it mounts nothing at all, or fails in another way than by a refusal of
            the link.
    """
    code, said = _mount(path, "real")
    if code != 0:
        raise failure(said)
    code, said = _mount(path, "link")
    if code == 0:
        return True
    if code != REFUSED or not said.endswith(REFUSALS):
        raise failure(said)
    return False


def _mount(path: str, name: str) -> tuple[int, str]:
    """Let bwrap mount something below ``real`` or ``link`` in a place of its own."""
    import subprocess

    arguments = ["--unshare-user", "--ro-bind", "/", "/", "--tmpfs", SCENE]
    for folder in ("real", "aside"):
        arguments += ["--dir", f"{SCENE}/{folder}"]
    arguments += ["--symlink", "aside", f"{SCENE}/link", "--tmpfs", f"{SCENE}/{name}/made"]
    try:
        done = subprocess.run(
            [path, *arguments, "--", path, "--version"],
            capture_output=True,
            check=False,
            env={},  # and so its messages are in English
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise failure(f"it could not be tried ({error})") from None
    return done.returncode, done.stderr.decode("ascii", "replace").strip()[-200:]

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

SENTENCES = (
    ("No permissions to creat", errno.EPERM),
    ("Creating new namespace failed, likely because the kernel does not", errno.EINVAL),
    ("Creating new namespace failed: nesting depth or", errno.ENOSPC),
)
"""How bwrap begins to say that this machine gives it no jail, and what the kernel answered."""
STEPS = frozenset(
    {
        *("Creating new namespace failed", "setting up uid map", "setting up gid map"),
        *("Failed to make / slave", "Failed to mount tmpfs", "pivot_root"),
        *("loopback: Failed RTM_NEWADDR", "loopback: Failed RTM_NEWLINK"),
        *("Can't mount proc on /newroot/proc", "Can't mount devpts on /newroot/dev/pts"),
    }
)
"""What it does where a refusal is the machine's: none of it names a path of the policy, whose words
a guest may have chosen."""
ANSWERS = {os.strerror(number): number for number in (errno.EPERM, errno.EACCES, errno.ENOSYS)}
ACCIDENT_FIX = (
    "if that can pass (no memory, too many processes or open files), open it again; else see "
    "`visruntime doctor`"
)


def failure(said: str) -> JailUnavailable:
    """Return the error for what bwrap *said*; its ``errno`` is 0 if that can be an accident."""
    number = _answer(said.removeprefix("bwrap: "))
    shown = "".join(each if each.isprintable() else "?" for each in said)
    return JailUnavailable(
        f"bubblewrap makes no jail here: {shown}",
        stage="bubblewrap",
        errno=number,
        fix="see `visruntime doctor`" if number else ACCIDENT_FIX,
    )


def _answer(text: str) -> int:
    """Return the errno of what is refused for good; 0 for anything else."""
    step, _, words = text.rpartition(": ")
    if step in STEPS:
        return ANSWERS.get(words, 0)
    return next((number for start, number in SENTENCES if text.startswith(start)), 0)


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

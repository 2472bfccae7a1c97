"""The folders behind ``caches=``: kept between jails, and shown to the guests of one policy only.

Each policy has a folder below the state folder, named by what the policy says, its secrets and
the values of inherited variables included, under a key that never leaves this machine. A guest
sees the folder of a cache and nothing above it, so it chooses neither what stands there nor who
else sees it. What it leaves inside is never followed, opened or believed by the host: it is
counted, and removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from contextlib import suppress

from visruntime._host.descriptors import FOLDER
from visruntime._jail.state_folder import (
    CACHES,
    MOST_PENDING_BYTES,
    check_own,
    folder_at,
    open_closed,
    private_folder,
    remove_tree,
    state_folder,
    try_lock,
)
from visruntime._policy.links import real_path
from visruntime._policy.paths import visible
from visruntime._policy.values import Secret
from visruntime.errors import JailUnavailable, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hmac

    from visruntime.policy import JailPolicy

__all__ = ["CacheFolders", "caches_folder", "hold_caches"]

MOST_BYTES = 8 * 1024**3
"""What the caches of one policy may hold when a jail opens; with more they are emptied first."""
MOST_NAMES = 500_000
"""The same of files and folders."""
MOST_POLICIES = 64
"""Policies whose caches are kept; those that were used least recently go first."""
UNUSED_SECONDS = 90 * 86400
"""How long caches are kept that no jail opens."""
LOOK_SECONDS = 600
"""How often the caches of a policy are counted, and those of others looked at: half a second for
100,000 names."""
WAIT_SECONDS = 60
"""How long a jail waits for another process that is emptying the same caches."""

NAME = re.compile("[0-9a-f]{32}")
"""What the folder of a policy is called."""

_FIELD = "caches"
_KEY = "key"
_KEY_BYTES = 32
_LOCK = ".lock"
_PRIVATE = 0o700


class CacheFolders:
    """The caches of one policy, held for one jail: nobody empties them meanwhile.

    ``places`` has the folder of each path of ``policy.caches``, ``root`` the folder of all caches of
    this user, and ``notes`` what the owner should know.
    """

    __slots__ = ("_descriptor", "_name", "_process_id", "notes", "places", "root")

    def __init__(self, root: str, folder: int, name: str) -> None:
        self.root = root
        self.notes: list[str] = []
        self.places: dict[str, str] = {}
        self._name = name
        self._process_id = os.getpid()
        self._descriptor = _hold(root, folder, name, self.notes)

    def make(self, paths: tuple[str, ...]) -> None:
        """Make the folder of each of *paths* that has none."""
        import hashlib

        own = os.path.join(self.root, self._name)
        with folder_at(own, make=True) as top:
            check_own(own, os.fstat(top), _FIELD)
            for path in paths:
                name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
                with suppress(FileExistsError):
                    os.mkdir(name, _PRIVATE, dir_fd=top)
                # The guest may have changed the mode of this folder, though of none above it.
                folder = open_closed(name, top)
                place = os.path.join(own, name)
                try:
                    check_own(place, os.fstat(folder), _FIELD)
                finally:
                    os.close(folder)
                self.places[path] = place

    def release(self) -> None:
        """Let go of the caches; remove them if nothing is in them. Idempotent.

        In a forked child only its copy of the descriptor goes: the lock is the parent's.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            if os.getpid() == self._process_id:
                if try_lock(descriptor):
                    self._remove_if_empty()
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _remove_if_empty(self) -> None:
        with suppress(OSError), folder_at(self.root) as folder:
            with suppress(FileNotFoundError):
                with folder_at(os.path.join(self.root, self._name)) as top:
                    for place in self.places.values():
                        with suppress(FileNotFoundError):
                            os.rmdir(os.path.basename(place), dir_fd=top)
                os.rmdir(self._name, dir_fd=folder)
            os.unlink(self._name + _LOCK, dir_fd=folder)


def caches_folder(path: str, looks: dict[str, os.stat_result | None]) -> str | None:
    """Return where the folder of all caches of this user, at *path*, really is, if there is one.

    *looks* gets what the answer rests on.
    """
    try:
        looks[path] = os.lstat(path)
    except OSError:
        looks[path] = None
        return None
    return real_path(path)


def hold_caches(policy: JailPolicy) -> CacheFolders:
    """Return the folders of ``policy.caches``, made where they are missing.

    Raises:
        PolicyError: the folder for them is not this user's alone.
        PolicyUnsupported: they cannot be made.
        JailUnavailable: another process has been emptying them for a minute.
    """
    try:
        top = private_folder(state_folder(), _FIELD)
        root = private_folder(os.path.join(top, CACHES), _FIELD)
        with folder_at(root) as folder:
            held = CacheFolders(root, folder, _name_of(policy, _key_in(root, folder)))
        try:
            held.make(policy.caches)
        except BaseException:
            held.release()
            raise
    except OSError as error:
        raise PolicyUnsupported(
            f"caches: {visible(str(error.filename or state_folder()))}: {error.strerror}, so nothing "
            "can be kept there; make room, or set XDG_CACHE_HOME to a folder that you can write",
            field="caches",
        ) from None
    return held


def _name_of(policy: JailPolicy, key: bytes) -> str:
    """Return the name of the folder of *policy*.

    The digest leaves the values of secrets and of inherited variables out, and policies that differ
    in nothing else are not the same: they may be those of two users of one service.
    """
    import hmac

    said = hmac.new(key, policy.digest.encode("ascii"), "sha256")
    for name, value in sorted(policy.env.items()):
        if isinstance(value, Secret):
            _say(said, b"", name, value.reveal())
    for name in sorted(policy.inherit_env):
        if name in os.environ:
            _say(said, b"inherited", name, os.environ[name])
    return said.hexdigest()[:32]


def _say(said: hmac.HMAC, kind: bytes, name: str, value: str) -> None:
    """Add a variable in a form that no other ones have."""
    text = value.encode("utf-8", "surrogatepass")
    said.update(b"%b\0%d\0%b\0%d\0%b" % (kind, len(name), name.encode(), len(text), text))


def _key_in(root: str, folder: int) -> bytes:
    """Return this user's key; make one at first. Without it a name says nothing of secrets."""
    try:
        descriptor = _open_key(folder)
    except FileNotFoundError:
        _make_key(folder)
        descriptor = _open_key(folder)
    try:
        key = os.read(descriptor, _KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != _KEY_BYTES:
        raise PolicyUnsupported(
            f"caches: {os.path.join(root, _KEY)} is not as it was made; remove {root}, and the "
            "caches with it",
            field="caches",
        )
    return key


def _open_key(folder: int) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(_KEY, flags, dir_fd=folder)


def _make_key(folder: int) -> None:
    new = f"{_KEY}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, os.urandom(_KEY_BYTES))
    finally:
        os.close(descriptor)
    try:
        with suppress(FileExistsError):
            os.link(new, _KEY, src_dir_fd=folder, dst_dir_fd=folder)  # whole, or not there
    finally:
        os.unlink(new, dir_fd=folder)


# ---- who uses them -------------------------------------------------------------------


def _hold(root: str, folder: int, name: str, notes: list[str]) -> int:
    """Share the lock of *name*, and return it. Whoever finds it unused looks after it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        descriptor = _open_lock(folder, name, os.O_CREAT)
        try:
            if try_lock(descriptor) and _is_lock_of(descriptor, folder, name):
                _look_after(descriptor, folder, name, notes)
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_lock_of(descriptor, folder, name):
                    os.utime(descriptor)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise JailUnavailable(
                f"caches: another process has been emptying them for {WAIT_SECONDS} s",
                stage="caches",
                fix=f"wait for it, or remove {os.path.join(root, name)} yourself",
            )
        time.sleep(0.05)


def _open_lock(folder: int, name: str, flags: int = 0) -> int:
    flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name + _LOCK, flags, 0o600, dir_fd=folder)


def _is_lock_of(descriptor: int, folder: int, name: str) -> bool:
    """Tell whether it still is: who removes a folder removes its lock, too."""
    try:
        now = os.stat(name + _LOCK, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), now)


def _look_after(descriptor: int, folder: int, name: str, notes: list[str]) -> None:
    """Empty caches that nobody uses if they hold too much, and remove those of old policies."""
    now = int(time.time())
    looked = os.pread(descriptor, 32, 0)
    if looked.isdigit() and 0 <= now - int(looked) < LOOK_SECONDS:
        return
    if _holds_too_much(folder, name):
        remove_tree(name, folder)
        notes.append(
            f"caches: they were emptied, since they held more than {MOST_BYTES >> 30} GiB or "
            f"{MOST_NAMES:,} names, or a folder that could not be counted"
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d" % now, 0)
    _remove_old(folder, name, now)


def _holds_too_much(folder: int, name: str) -> bool:
    """Count what guests have left, without following a link.

    A folder that its guest has closed, or that lies deeper than a path can say, counts as too
    much: it could hold anything. So do more folders beside each other than memory is set aside for.
    """
    try:
        top = os.open(name, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return False
    try:
        return _is_too_much(f"/proc/self/fd/{top}")
    finally:
        os.close(top)


def _is_too_much(start: str) -> bool:
    size = names = waiting = 0
    pending = [start]
    while pending:
        try:
            top = pending.pop()
            waiting -= sys.getsizeof(top)
            with os.scandir(top) as entries:
                for entry in entries:
                    names += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        waiting += sys.getsizeof(entry.path)
                    if names > MOST_NAMES or size > MOST_BYTES or waiting > MOST_PENDING_BYTES:
                        return True
        except OSError:
            return True
    return False


def _remove_old(folder: int, own: str, now: int) -> None:
    """Remove the caches of policies that were not used for long, or are too many."""
    used = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.removesuffix(_LOCK)
            if name not in (entry.name, own) and NAME.fullmatch(name):
                with suppress(FileNotFoundError):
                    used[name] = entry.stat(follow_symlinks=False).st_mtime
    newest = sorted(used, key=lambda name: used[name], reverse=True)
    for number, name in enumerate(newest, start=2):
        if number > MOST_POLICIES or now - used[name] > UNUSED_SECONDS:
            with suppress(OSError):
                _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    descriptor = _open_lock(folder, name)
    try:
        if try_lock(descriptor) and _is_lock_of(descriptor, folder, name):
            with suppress(FileNotFoundError):
                remove_tree(name, folder)
            os.unlink(name + _LOCK, dir_fd=folder)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)

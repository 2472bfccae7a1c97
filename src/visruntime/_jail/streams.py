"""The descriptors of one program: which of the host's it gets, and the host's ends."""

from __future__ import annotations

import errno
import os
import stat

from visruntime import _native
from visruntime._arguments import check_mapping, check_whole
from visruntime._host.descriptors import path_of
from visruntime._jail.aliases import names_of
from visruntime._jail.limits import IDENTITY_ROOT
from visruntime._jail.process import DEVNULL, PIPE, STDOUT
from visruntime._jail.report import IDENTITY_MAPPED
from visruntime._policy.paths import is_within
from visruntime.errors import CommandError, JailClosed, PathDenied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from visruntime.jail import Jail

__all__ = ["Streams"]

MOST_TERMINALS = 64
"""As the jail's devpts is mounted (native/visjail/linux_namespaces.c)."""


class Streams:
    """The descriptors of one start: those of the program, and the host's ends."""

    def __init__(self, jail: Jail, stdin: Any, stdout: Any, stderr: Any, *, pty: bool) -> None:
        self.child: dict[int, int] = {}
        self.parent: dict[str, int] = {}
        self._made: list[int] = []
        self.master = -1
        if pty:
            if not stdin is stdout is stderr is None:
                raise ValueError("pty=True is all three streams; give none of them")
            self._terminal(jail)
            return
        try:
            for number, name, value in (
                (0, "stdin", stdin),
                (1, "stdout", stdout),
                (2, "stderr", stderr),
            ):
                self._stream(jail, number, name, value)
        except BaseException:
            self.close_all()
            raise

    def _terminal(self, jail: Jail) -> None:
        if jail._closed:
            raise JailClosed("the jail is closed")
        try:
            self.master, slave = jail._handle.terminal()
        except _native.NativeError as error:
            if error.status == "closed":
                raise JailClosed("the jail has ended") from None
            most = f"; a jail has at most {MOST_TERMINALS} at a time"
            raise CommandError(
                f"no terminal: {error}{most if error.errno == errno.ENOSPC else ''}"
            ) from None
        self._made.append(slave)
        self.parent["master"] = self.master
        self.child = {0: slave, 1: slave, 2: slave}

    def _stream(self, jail: Jail, number: int, name: str, value: Any) -> None:
        if value is None or value == DEVNULL:
            return  # left out: the jail gives its own /dev/null
        if value == PIPE:
            reader, writer = self._pipe(jail)
            mine, theirs = (writer, reader) if number == 0 else (reader, writer)
            self.child[number] = theirs
            self._made.append(theirs)
            self.parent[name] = mine
        elif value == STDOUT and number == 2:
            if 1 in self.child:
                self.child[number] = self.child[1]
        elif isinstance(value, int) and value >= 0:
            self._pass(jail, name, number, value)
        elif hasattr(value, "fileno"):
            self._pass(jail, name, number, value.fileno())
        else:
            raise ValueError(f"{name}: PIPE, DEVNULL, a descriptor or a file, not {value!r}")

    def _pipe(self, jail: Jail) -> tuple[int, int]:
        reader, writer = os.pipe()  # neither is inherited (PEP 446)
        if jail._handle.info["identity"] == IDENTITY_MAPPED:
            # Else the guest, another uid, could not open /dev/stdin or /dev/stderr.
            guest = jail._handle.info["guest_id"]
            os.fchown(reader, guest, guest)
        return reader, writer

    def add(self, jail: Jail, pass_fds: Mapping[int, int]) -> None:
        """Take the caller's other descriptors: number in the program -> descriptor here."""
        for number, descriptor in check_mapping(pass_fds, "pass_fds").items():
            check_whole(number, "pass_fds", 3, 15)
            check_whole(descriptor, f"pass_fds[{number}]", 0)
            self._pass(jail, f"pass_fds[{number}]", number, descriptor)

    def _pass(self, jail: Jail, name: str, number: int, descriptor: int) -> None:
        """Take a descriptor of the host, unless it opens what the policy closes.

        It belongs to a mount of the host, not to one of the jail: a guest can open the file
        anew by /proc/self/fd, with more rights, and anything below a folder.
        """
        try:
            found = os.fstat(descriptor)
        except OSError as error:
            text = f"{name}: {error.strerror} ({descriptor} is not open here)"
            raise OSError(error.errno, text) from None
        if stat.S_ISDIR(found.st_mode):
            raise ValueError(f"{name}: a folder's descriptor shows the host's own view; grant it")
        if stat.S_ISREG(found.st_mode):
            if _is_guests_own(jail, descriptor, found):
                path = path_of(descriptor)
                raise PathDenied(
                    f"{name}: {path} is open for reading only, but the guest is uid 0 of the host "
                    "here and could change its mode, times and attributes; pass its bytes by "
                    "input= or a pipe",
                    path=path,
                )
            for path in names_of(descriptor):
                closed = _closed(jail._host_rules, path)
                if closed:
                    raise PathDenied(
                        f"{name}: the policy does not let the guest {closed} {path}, but through "
                        "this descriptor it could; pass its bytes by input= or a pipe",
                        path=path,
                    )
        self.child[number] = descriptor

    def close_child(self) -> None:
        """Close the program's ends here."""
        for descriptor in self._made:
            os.close(descriptor)
        self._made.clear()

    def close_all(self) -> None:
        """Close everything that was made, after a failure."""
        self.close_child()
        for descriptor in self.parent.values():
            os.close(descriptor)
        self.parent.clear()


def _closed(rules: Sequence[tuple[str, str]], path: str) -> str:
    """Return the right that a grant around *path* would give, and that *path* does not have, or ""."""
    for right, kinds in (("write", ("write",)), ("read", ("read", "write"))):
        inside = any(kind in kinds and is_within(path, top) for kind, top in rules)
        if inside and not _native.decide(rules, right, path)[0]:
            return right
    return ""


def _is_guests_own(jail: Jail, descriptor: int, found: os.stat_result) -> bool:
    """Tell whether the guest of a root caller owns a file that is only to be read.

    The mapped uid of most of them owns nothing of the host's. The filter of the back end
    landlock refuses what an owner may do; and a file without a name is nobody else's.
    """
    import fcntl

    return (
        jail._handle.info["identity"] == IDENTITY_ROOT
        and jail.report.backend != "landlock"
        and found.st_uid == 0
        and found.st_nlink > 0
        and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    )

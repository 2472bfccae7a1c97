"""Paths of a policy: how they are checked, written and compared.

Pure, and works on text, so that a policy means the same on every machine that reads it; but
for ``..``, for which `resolve_beside` looks at the host.
"""

from __future__ import annotations

import os

from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "FORBIDDEN_GRANTS",
    "HOME",
    "MADE_READ",
    "MADE_READ_OPEN",
    "MAX_PATH_BYTES",
    "MINIMAL_DENY",
    "MINIMAL_READ",
    "NOT_LOOKED_THROUGH",
    "PRIVATE_READ",
    "PRIVATE_WRITE",
    "ancestors",
    "escape",
    "has_glob",
    "is_within",
    "normalise",
    "resolve_beside",
    "visible",
]

MAX_PATH_BYTES = 4096
"""Longest path of a policy, in bytes of the file system's encoding (Linux's PATH_MAX)."""

MINIMAL_READ = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/R",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/chromium.d",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/inputrc",
    "/etc/java-*",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/perl",
    "/etc/pki",
    "/etc/profile",
    "/etc/protocols",
    "/etc/python3*",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl",
    "/etc/terminfo",
    "/etc/texmf",
    "/etc/timezone",
    "/etc/xdg",
    "/var/lib/texmf",
)
"""What ``system="minimal"`` lets a guest read; a last ``*`` stands for the rest of one name.

Programs, the loader, certificates and the few files of /etc that ordinary programs open; of /var
what Debian makes of TeX when it is installed, without which none of its programs starts.
Nothing here names a user, a host or a secret: /etc/passwd, /etc/hosts and
/etc/resolv.conf are made by the jail, not taken from the host.
"""

MINIMAL_DENY = (
    "/etc/pki/CA/private",
    "/etc/pki/consumer",
    "/etc/pki/entitlement",
    "/etc/pki/tls/private",
    "/etc/ssl/private",
)
"""Folders of private keys below `MINIMAL_READ` that ``system="minimal"`` keeps closed.

File modes alone would not: the caller may be in the group that can read them.
"""

HOME = "/home/user"
"""HOME of the guest, where that is a place of the jail's own."""

PRIVATE_WRITE = ("/tmp", "/var/tmp", "/dev/shm", HOME)  # noqa: S108 - names, not uses
"""Places that each jail has for itself, empty at first, writable, and gone with it."""

PRIVATE_READ = ("/proc", "/dev")
"""Places that each jail has for itself and that a guest can read but not change."""

MADE_READ = ("/etc/group", "/etc/hosts", "/etc/passwd")
"""Files that a jail with ``system="minimal"`` makes for itself, without a name of the host."""

MADE_READ_OPEN = "/etc/resolv.conf"
"""Made in addition with `Egress.OPEN`, of what the host's own file says of name servers, if it does."""

FORBIDDEN_GRANTS = ("/proc", "/dev", "/sys")
"""Trees of which nothing can be granted: they hold the kernel's objects, not files."""

NOT_LOOKED_THROUGH = ("usr", "proc", "sys", "dev", "tmp")
"""Folders of the host's root that are the jail's own, or hold nothing but installed files."""


def normalise(value: object, field: str) -> str:
    """Return *value* as an absolute path without ``//``, ``.`` and a trailing ``/``.

    Purely lexical: links stay as they are, and ``..`` is refused because its meaning
    depends on links.

    Raises:
        PolicyError: naming *field*, for anything but an absolute path in text.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        kind = type(value).__name__
        raise PolicyError(
            f"{field}: a path is text or os.PathLike of text, not {kind}: {_short(value)}",
            field=field,
            value=value,
        )
    if not text:
        raise PolicyError(f"{field}: the path is empty", field=field, value=value)
    if "\0" in text:
        raise PolicyError(f"{field}: NUL in the path {_short(text)}", field=field, value=value)
    if not text.startswith("/"):
        raise PolicyError(
            f"{field}: {_short(text)} is not absolute; write the whole path, from /",
            field=field,
            value=value,
        )
    try:
        length = len(os.fsencode(text))
    except UnicodeEncodeError:
        raise PolicyError(
            f"{field}: {_short(text)} cannot be written as a file name", field=field, value=value
        ) from None
    if length > MAX_PATH_BYTES:
        raise PolicyError(
            f"{field}: {length} bytes, and a path has at most {MAX_PATH_BYTES}: {_short(text)}",
            field=field,
            value=value,
        )
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PolicyError(
            f"{field}: '..' in {_short(text)}; write the path that you mean without it",
            field=field,
            value=value,
        )
    return "/" + "/".join(parts)


def resolve_beside(value: object, folder: str, field: str, *, pattern: bool = False) -> str:
    """Return *value* as an absolute path, a relative one taken from *folder*.

    Here ``..`` is allowed, where nothing before it is a link: then the text alone says what
    it means. Behind a link it would lead where the link's maker chose, who may be a guest. With
    *pattern* the value may be one, and characters of the folder are written as no part of it.

    Raises:
        PolicyError: naming *field*; also for a leading ``~``, which only a shell expands.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, str) and text and "\0" not in text:
        if text.startswith("~"):
            raise PolicyError(
                f"{field}: {_short(text)}: '~' is not expanded here; write the whole path",
                field=field,
                value=value,
            )
        parts = text.split("/")
        # What comes behind the last .. can hold a pattern, and what leads there cannot.
        steps = len(parts) - parts[::-1].index("..") if ".." in parts else 0
        if pattern and any(has_glob(part) for part in parts[:steps]):
            raise PolicyError(
                f"{field}: {_short(text)}: '..' behind a pattern; write the path without it",
                field=field,
                value=value,
            )
        start = os.path.join(folder, "/".join(parts[:steps])) if steps else folder
        start = _without_parents(start, field) if steps else start
        rest = "/".join(parts[steps:])
        if steps or not text.startswith("/"):
            text = os.path.join(escape(start) if pattern else start, rest)
    return normalise(text, field)


def _without_parents(text: str, field: str) -> str:
    """Return absolute *text* without ``..``, of which none may stand behind a link."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    walked: list[str] = []
    for part in parts:
        if part != "..":
            walked.append(part)
            continue
        before = "/" + "/".join(walked)
        for step in ancestors(before):
            if os.path.islink(step):
                from visruntime._policy.links import real_path

                raise PolicyError(
                    f"{field}: '..' in {_short(text)} stands behind {visible(step)}, which is a "
                    f"link; write {visible(real_path(text))} if you mean that",
                    field=field,
                    value=text,
                )
        if walked:
            walked.pop()
    return "/" + "/".join(walked)


def is_within(path: str, top: str) -> bool:
    """Tell whether normalised *path* is *top* or below it."""
    return top in ("/", path) or path.startswith(top + "/")


def ancestors(path: str) -> Iterator[str]:
    """Yield ``/`` and then each longer leading part of normalised *path*, itself last."""
    yield "/"
    if path != "/":
        end = path.find("/", 1)
        while end != -1:
            yield path[:end]
            end = path.find("/", end + 1)
        yield path


class Trees:
    """The trees at many paths; a question costs the depth of its path, and not their number."""

    __slots__ = ("_above", "_tops")

    def __init__(self, tops: Iterable[str] = ()) -> None:
        """Take the normalised paths *tops*; further ones come by `add`."""
        self._tops: set[str] = set()
        self._above: set[str] = set()
        for top in tops:
            self.add(top)

    def add(self, top: str) -> None:
        """Take one more path."""
        self._tops.add(top)
        self._above.update(ancestors(top))

    def top_of(self, path: str) -> str | None:
        """Return the top of the outermost tree that *path* lies in, or is; ``None`` without."""
        return next((step for step in ancestors(path) if step in self._tops), None)

    def touch(self, path: str) -> bool:
        """Tell whether *path* lies in a tree, or a tree in it."""
        return path in self._above or self.top_of(path) is not None


def escape(path: str) -> str:
    """Return *path* written so that no character in it is part of a pattern."""
    if not has_glob(path):
        return path
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def has_glob(path: str) -> bool:
    """Tell whether *path* holds a character that a shell would expand."""
    return any(character in path for character in "*?[")


def visible(path: str) -> str:
    """Return *path* for a message: as it is, or escaped if any of it steers a terminal."""
    return path if path.isprintable() else ascii(path)


def _short(value: object) -> str:
    """Return *value* quoted for a message, without control characters and not too long."""
    text = ascii(value)
    return text if len(text) <= 120 else text[:100] + "...'"

"""Where the paths of a policy lead: found once, component by component, and kept.

Asking twice would let a guest of another jail put a link where a folder was, between the
two questions. So the walk that follows the links is also the one that records them and
what stands at the end; everything later is compared with that.
"""

from __future__ import annotations

import errno
import os
import stat

from visruntime._arguments import check_path
from visruntime._host.descriptors import FOLDER, step
from visruntime._policy.looks import MISSING, refuse_closed, status_at
from visruntime._policy.paths import ancestors, is_within, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

__all__ = [
    "LeadsOut",
    "LinkLoop",
    "Resolver",
    "check_links",
    "followed",
    "named_path",
    "real_path",
    "untrusted_link",
]

MOST_LINKS = 40
"""As the kernel (path_resolution(7))."""
MOST_FOLDERS = 256
"""Nested folders that are walked through: each is an open descriptor meanwhile."""
MOST_STEPS = 200_000
"""Names behind links of guests that one resolver looks up: 40 links can have 80,000."""

SYSTEM_LINKS = ("/", "/home", "/var", "/run")
SYSTEM_LINK_TREES = ("/etc", "/nix", "/opt", "/snap", "/usr")
"""Folders whose links an installation made: no grant of an ordinary user's guest reaches them."""

ROOT_LINKS = ("/var/run", "/var/lock", "/run/current-system")
ROOT_LINK_TREES = ("/usr", "/etc/alternatives")
STORE = "/nix/store"
"""What is left of them for root, whose guests write as root where root granted it: single
links of the installation, trees that packages fill, and the store of Nix, whose folders
nobody may write (links stand below them; the store itself has no accepted link)."""

LOCAL = "/usr/local"
"""Filled by administrators and by what they run, so not one of those trees."""

ALLOWED_TO_OTHERS = 0o022
ALLOWED_TO_ANYBODY = 0o222


class LinkLoop(PolicyError):
    """A path goes through more links than the kernel follows: nobody gets anywhere by it."""


class LeadsOut(PolicyError):
    """A link leads out of the places that a resolver may look at."""


def real_path(path: str) -> str:
    """Return where *path* leads, as `os.path.realpath`, but in bounded time.

    What cannot be followed is returned as it is written.
    """
    whole = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    try:
        with Resolver() as resolver:
            return resolver(whole)
    except PolicyError:
        return os.path.normpath(whole)


def named_path(field: str, path: str | os.PathLike[str]) -> str:
    """Return where *path*, which a caller gave as *field*, leads, in bounded time.

    Raises:
        PolicyError: through a link that a guest could have made, or one that cannot be followed.
    """
    whole = os.path.abspath(check_path(path, field))
    with Resolver() as resolver:
        real = resolver(whole)
    check_links(field, whole, real, resolver.links[whole], ())
    return real


def followed(real: Callable[[str], str], path: str, field: str) -> str:
    """Return where *real* says that *path* leads; its refusal names the *field* of the policy."""
    try:
        return real(path)
    except PolicyError as error:
        raise type(error)(f"{field}: {error}", field=field, value=path) from None


class Resolver:
    """Follows paths, and remembers for each what it met. Close it when the plan is made.

    ``found`` has the status of what stands at a real path (``None``: certainly nothing), and
    ``closed`` the paths of which nobody can say, as far as they could be followed; ``links``
    has for each path asked the links on the way, as (path of the link, made by the system), and
    ``reals`` where it leads. The folders on the way to the last path stay open: the next
    one that begins alike goes on from there.

    Args:
        within: the folders out of which no link is followed, nor a name looked up; by default
            everything. Links that guests have made are only followed like this: a lookup on
            another file system can be a message to whoever serves it, and can take forever.
    """

    def __init__(self, within: Iterable[str] | None = None) -> None:
        self._within = None if within is None else frozenset(within)
        self._above = {step for top in self._within or () for step in ancestors(top)}
        self._steps_left = MOST_STEPS
        self.found: dict[str, os.stat_result | None] = {}
        self.closed: set[str] = set()
        self.links: dict[str, list[tuple[str, bool]]] = {}
        self.reals: dict[str, str] = {}
        self._walked = [("", os.open("/", FOLDER | os.O_CLOEXEC))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._back_to(0)

    def __call__(self, path: str) -> str:
        """Return where absolute *path* leads; what is missing stays as written.

        Raises:
            LinkLoop: after more links than the kernel follows.
            LeadsOut: it leads out of *within*.
            PolicyError: it cannot be followed: too deep, too long, or a broken file system.
        """
        links: list[tuple[str, bool]] = []
        self.links[path] = links
        parts = [part for part in path.split("/") if part not in ("", ".")]
        walked = self._walked
        shared = 1
        most = min(len(walked), len(parts))
        while shared < most and walked[shared][0] == parts[shared - 1]:
            shared += 1
        self._back_to(shared)
        try:
            real, status = self._walk(path, parts[shared - 1 :][::-1], links)
        except BaseException:
            self._back_to(1)
            raise
        if links:
            self._back_to(1)  # the names that were walked are not those of the path
        if real not in self.closed:
            self.found[real] = status
        self.reals[path] = real
        return real

    def at(self, path: str) -> os.stat_result | None:
        """Return what stands at real *path*, ``None`` for certainly nothing: looked up once.

        Raises:
            PolicyUnsupported: it cannot be looked at, or could not once.
        """
        if path in self.closed:
            refuse_closed(path)
        if path not in self.found:
            self.found[path] = status_at(path)
        return self.found[path]

    def is_missing(self, path: str) -> bool:
        """Tell whether certainly nothing is at real *path*: asked once, as `at`."""
        return path not in self.closed and self.at(path) is None

    @property
    def is_spent(self) -> bool:
        """Whether the names behind links of guests were more than it looks up."""
        return self._steps_left < 0

    def _back_to(self, depth: int) -> None:
        while len(self._walked) > depth:
            os.close(self._walked.pop()[1])

    def _walk(
        self, path: str, todo: list[str], links: list[tuple[str, bool]]
    ) -> tuple[str, os.stat_result | None]:
        walked = self._walked
        while todo:
            part = todo.pop()
            if part == "..":
                self._back_to(max(len(walked) - 1, 1))
                continue
            parent = walked[-1][1]
            self._check_step(path, part, behind=bool(links))
            try:
                if not todo:
                    status = os.stat(part, dir_fd=parent, follow_symlinks=False)
                    if not stat.S_ISLNK(status.st_mode):
                        return f"{_join(walked).rstrip('/')}/{part}", status
                descriptor, target = step(part, parent)
            except OSError as error:
                if error.errno not in (*MISSING, errno.EACCES):
                    raise PolicyError(
                        f"{visible(path)}: it cannot be followed ({error.strerror})", value=path
                    ) from None
                rest = "/".join([part, *reversed(todo)])
                real = os.path.normpath(f"{_join(walked).rstrip('/')}/{rest}")
                if error.errno == errno.EACCES:
                    self.closed.add(real)
                return real, None
            if descriptor is not None:
                walked.append((part, descriptor))
                continue
            if target is None:  # such as /proc/1/root, which is closed to others
                return f"{_join(walked).rstrip('/')}/{part}", None
            here = _join(walked)
            link = f"{here.rstrip('/')}/{part}"
            links.append((link, _is_system(link, here, parent)))
            if len(links) > MOST_LINKS:
                raise LinkLoop(
                    f"{visible(path)}: too many links on the way; name what it is to lead to",
                    value=path,
                )
            if target.startswith("/"):
                self._back_to(1)
            todo += [name for name in reversed(target.split("/")) if name not in ("", ".")]
        return _join(walked), os.fstat(walked[-1][1])

    def _check_step(self, path: str, part: str, *, behind: bool) -> None:
        """Refuse to look up *part* in the folder that was reached, *behind* a link or not."""
        if len(self._walked) > MOST_FOLDERS:
            raise PolicyError(f"{visible(path)}: nested too deep to be followed", value=path)
        if self._within is None:
            return
        if behind:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise PolicyError(
                    f"{visible(path)}: it leads through too many names to be followed", value=path
                )
        step = f"{_join(self._walked).rstrip('/')}/{part}"
        if step not in self._above and self._within.isdisjoint(ancestors(step)):
            raise LeadsOut(f"{visible(path)}: a link on the way leads out", value=path)


def _join(walked: list[tuple[str, int]]) -> str:
    return "/".join(name for name, _ in walked) or "/"


def _is_system(link: str, folder: str, descriptor: int) -> bool:
    """Tell whether *link*, in *folder*, can only have been made by the system."""
    status = os.fstat(descriptor)
    if status.st_uid != 0 or status.st_mode & ALLOWED_TO_OTHERS:
        return False
    if os.geteuid() != 0:
        return folder in SYSTEM_LINKS or any(is_within(folder, tree) for tree in SYSTEM_LINK_TREES)
    if folder == "/" or link in ROOT_LINKS:
        return True
    if is_within(folder, STORE):
        return not status.st_mode & ALLOWED_TO_ANYBODY
    return any(is_within(folder, tree) for tree in ROOT_LINK_TREES) and not is_within(folder, LOCAL)


def untrusted_link(links: list[tuple[str, bool]], write_grants: Iterable[str] = ()) -> str | None:
    """Return the first of *links* that a guest could have made or change, if there is one."""
    grants = tuple(write_grants)
    for link, by_system in links:
        folder = os.path.dirname(link)
        if not by_system or any(is_within(folder, grant) for grant in grants):
            return link
    return None


def check_links(
    field: str, path: str, real: str, links: list[tuple[str, bool]], write_grants: Iterable[str]
) -> None:
    """Refuse a rule whose *path* goes through a link that a guest could have made or change.

    Raises:
        PolicyError: naming the link and the path to write instead.
    """
    is_grant = field.startswith(("read", "write", "sockets", "sensitive_sockets"))
    if is_grant and links and links[-1][0] == path and not is_within(real, os.path.dirname(path)):
        raise PolicyError(
            f"{field}: {path} is a link out of its folder, to {real}; grant that path itself "
            "if you mean it",
            field=field,
            value=path,
        )
    for link, by_system in links:
        folder = os.path.dirname(link)
        if any(is_within(folder, grant) for grant in write_grants):
            where = "is a link inside a writable grant, where a guest can change it"
        elif not by_system:
            where = (
                "is a link in a folder that is not the system's, where a guest could have made it"
            )
        else:
            continue
        raise PolicyError(
            f"{field}: {link} {where}; name what it leads to ({real}) if you mean that",
            field=field,
            value=path,
        )

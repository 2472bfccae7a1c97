"""Where the paths of a policy lead: found once, component by component, and kept.

Asking twice would let a guest of another jail put a link where a folder was, between the
two questions. So the walk that follows the links is also the one that records them and
what stands at the end; everything later is compared with that.
"""

from __future__ import annotations

import os
import stat

from visruntime._paths import is_within
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Resolver", "check_links"]

MOST_LINKS = 40
"""As the kernel (path_resolution(7))."""

SYSTEM_LINKS = ("/", "/var", "/run")
SYSTEM_LINK_TREES = ("/etc", "/nix", "/opt", "/snap", "/usr")
"""Folders whose links an installation made: no guest's grant reaches them."""

ALLOWED_TO_OTHERS = 0o022


class Resolver:
    """Follows paths, and remembers for each what it met.

    ``found`` has the status of what stands at a real path (``None``: nothing), ``links``
    for each path asked the links on the way, as (path of the link, made by the system), and
    ``reals`` where it leads.
    """

    def __init__(self) -> None:
        self.found: dict[str, os.stat_result | None] = {}
        self.links: dict[str, list[tuple[str, bool]]] = {}
        self.reals: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """Return where absolute, normalised *path* leads; what is missing stays as written."""
        links: list[tuple[str, bool]] = []
        self.links[path] = links
        todo = [part for part in reversed(path.split("/")) if part]
        walked: list[tuple[str, int]] = [("", os.open("/", os.O_PATH | os.O_CLOEXEC))]
        try:
            real, status = self._walk(path, todo, walked, links)
        finally:
            for _, descriptor in walked:
                os.close(descriptor)
        self.found[real] = status
        self.reals[path] = real
        return real

    def _walk(
        self,
        path: str,
        todo: list[str],
        walked: list[tuple[str, int]],
        links: list[tuple[str, bool]],
    ) -> tuple[str, os.stat_result | None]:
        while todo:
            part = todo.pop()
            here = _join(walked)
            if part == "..":
                if len(walked) > 1:
                    os.close(walked.pop()[1])
                continue
            parent = walked[-1][1]
            try:
                descriptor = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                missing = "/".join([part, *reversed(todo)])
                return os.path.normpath(f"{here.rstrip('/')}/{missing}"), None
            if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
                walked.append((part, descriptor))
                continue
            try:
                # Of the very link that was opened, whatever has that name by now.
                target = os.readlink("", dir_fd=descriptor)
            finally:
                os.close(descriptor)
            links.append((f"{here.rstrip('/')}/{part}", _is_system(here, parent)))
            if len(links) > MOST_LINKS:
                raise PolicyError(f"{path}: too many links on the way", value=path)
            if target.startswith("/"):
                while len(walked) > 1:
                    os.close(walked.pop()[1])
            todo += [name for name in reversed(target.split("/")) if name not in ("", ".")]
        return _join(walked), os.fstat(walked[-1][1])


def _join(walked: list[tuple[str, int]]) -> str:
    return "/".join(name for name, _ in walked) or "/"


def _is_system(folder: str, descriptor: int) -> bool:
    status = os.fstat(descriptor)
    if status.st_uid != 0 or status.st_mode & ALLOWED_TO_OTHERS:
        return False
    return folder in SYSTEM_LINKS or any(is_within(folder, tree) for tree in SYSTEM_LINK_TREES)


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

"""What links in protected folders lead to: who writes there changes what they stand for."""

from __future__ import annotations

import os
import stat

from visruntime._policy.links import LeadsOut, LinkLoop, Resolver
from visruntime._policy.paths import is_within, visible
from visruntime._policy.protected_names import PROTECTED_NAMES
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["linked_names"]

MOST_ENTRIES = 100_000
"""Names in protected folders that are looked at."""

OBJECTS = ("objects", "lfs")
"""Folders of a repository in .git/modules that are large and hold nothing that runs."""


def linked_names(folder: str, names: Iterable[str], beside: Sequence[str] = ()) -> list[str]:
    """Return what links at and below the protected *names* of workspace *folder* lead to in it.

    Programs of the host that run or trust a protected name follow its links (a hook that is a
    script of the repository), so what they lead to must stay as well.

    Args:
        folder: the workspace.
        names: what is protected, below it.
        beside: folders outside of it whose links count, too.

    Raises:
        PolicyError: a link leads on by one that a guest could change, or there is too much.
    """
    held = [*(os.path.join(folder, name) for name in names), *beside]
    waiting = list(held)
    found: dict[str, None] = {}
    left = MOST_ENTRIES
    modules = f"{folder}/.git/modules"
    with Resolver(within=[folder, *beside]) as resolver:
        for name in waiting:
            for link in _links_in(name, modules):
                left -= 1
                if left < 0:
                    _refuse(f"more than {MOST_ENTRIES} names lie in its protected folders", folder)
                if link is None:
                    continue
                target = _target(link, folder, held, resolver)
                if target is not None and target not in found:
                    found[target] = None
                    held.append(target)
                    waiting.append(target)
    return [os.path.relpath(path, folder) for path in found]


def _target(link: str, folder: str, held: Iterable[str], resolver: Resolver) -> str | None:
    """Return what has to stay because of *link*: nothing that does anyway, nor a folder around it."""
    try:
        target = resolver(link)
    except (LeadsOut, LinkLoop):
        return None  # nobody writes by it there
    if target in resolver.closed:
        _refuse(f"{visible(target)}, to which {visible(link)} leads, cannot be looked at", folder)
    above = [target, *(inner for inner, _ in resolver.links[link] if inner != link)]
    if not is_within(target, folder) or _is_around(target, folder):
        return None
    loose = [path for path in above if not any(is_within(path, top) for top in held)]
    for inner in loose:
        if inner != target:
            _refuse(
                f"{visible(link)} leads on by {visible(inner)}, a link that a guest could change; "
                f"let it lead to {visible(target)} itself",
                folder,
            )
    return target if loose else None


def _is_around(target: str, folder: str) -> bool:
    """Tell whether a protected name lies in *target*, which then is no place for such files only."""
    return any(is_within(os.path.join(folder, name), target) for name in PROTECTED_NAMES)


def _links_in(top: str, modules: str) -> Iterator[str | None]:
    """Yield each link at and below *top*, and ``None`` for any other name.

    In *modules*, which has whole repositories, the folders of their objects are left out.
    """
    folders = [top]
    for folder in folders:
        try:
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                continue  # on a link a rule is refused
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and not (
                        entry.name in OBJECTS and is_within(folder, modules)
                    ):
                        folders.append(entry.path)
                    yield entry.path if entry.is_symlink() else None
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            _refuse(f"{visible(folder)} cannot be looked through ({error.strerror})", folder)


def _refuse(what: str, folder: str) -> None:
    raise PolicyError(f"workspace: {what}", field="workspace", value=folder)

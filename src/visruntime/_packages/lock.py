"""What a lock of uv names beside the packages of an index: folders, files, repositories.

A lock lies where guests may write. It decides no place that the host looks at: the folders in
it count as far as they lie in its project, without a link on the way, and every other local place
is refused by what the lock says, whether or not anything is there.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from visruntime._host.files import is_folder
from visruntime._policy.paths import is_within, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["VARIABLE", "is_local", "source_folders"]

VARIABLE = re.compile(r"\$\s*\{")
"""Begins the name of a variable, whose value uv puts into a requirement.

What reads an address drops tabs and ends of lines in it, and uv looks for variables afterwards.
"""

_FOLDERS = ("editable", "virtual", "directory")
_SCHEMES = ("http", "https")


def source_folders(
    lock: dict[str, Any], name: str, project: str | None, *, wanted: bool
) -> tuple[str, ...]:
    """Return the folders whose code the *lock* installs from where it stands.

    Args:
        name: the file, for messages.
        project: the real path of the folder that they must lie in; ``None`` for the lock of a
            script, to which none belongs.
        wanted: whether they are to be found; otherwise none is looked at.

    Raises:
        PolicyError: it names a variable of the environment, a folder outside of the project or
            behind a link, a file or a repository.
    """
    if any(VARIABLE.search(text) for text in _texts(lock)):
        raise _error(
            f"{name} names a variable of the environment (${{...}}), which uv would put in: lock anew"
        )
    found: list[str] = []
    packages = lock.get("package")
    for package in packages if isinstance(packages, list) else ():
        source = package.get("source") if isinstance(package, dict) else None
        if not isinstance(source, dict):
            continue
        package_name = visible(str(package.get("name"))[:100])
        _refuse_unheld(source, package_name)
        local = next((source[key] for key in _FOLDERS if key in source), None)
        if not isinstance(local, str):
            continue
        if project is None:
            raise _error(
                f"{name} locks {package_name} to the folder {local!a:.100}, and to a script belongs "
                "no folder; put a wheel of it into a wheelhouse and lock that version"
            )
        if wanted:
            found.append(_place(package_name, local, project))
    return tuple(dict.fromkeys(found))


def _texts(lock: dict[str, Any]) -> Iterator[str]:
    """Yield all names and texts in *lock*, however deep its author nested them."""
    waiting: list[object] = [lock]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _refuse_unheld(source: dict[str, Any], package: str) -> None:
    what = None
    if "git" in source:
        what = "a repository"
    elif "path" in source or ("url" in source and is_local(source["url"])):
        what = "a file"
    if what is not None:
        raise _error(
            f"{package} is locked to {what}, which has no hash to hold it to; put its wheel into "
            "a wheelhouse and lock that version"
        )


def is_local(url: object) -> bool:
    """Whether *url* is no address of a server."""
    try:
        return not isinstance(url, str) or urlsplit(url).scheme.lower() not in _SCHEMES
    except ValueError:
        return True


def _place(package: str, local: str, project: str) -> str:
    """Return the folder of *package* in *project*, or the ``src`` in it where there is one."""
    root = os.path.normpath(os.path.join(project, local))
    if not is_within(root, project):
        raise _error(
            f"{package} is locked to the folder {local!a:.100}, which is not in the project "
            f"{project}, so it is not looked at; move it there, put a wheel of it into a wheelhouse "
            "and lock that version, or leave out all code of projects (editable=False)"
        )
    if "\n" in root or not root.isprintable():
        raise _error(f"{package}: its folder {local!a:.100} cannot stand in a file of paths")
    within = os.path.join(root, "src")
    try:
        return within if is_folder(within) else root
    except OSError as problem:
        raise _error(
            f"{package} is locked to the folder {local!a:.100}: {problem.strerror}"
        ) from None


def _error(message: str) -> PolicyError:
    return PolicyError(f"environment: {message}", field="environment")

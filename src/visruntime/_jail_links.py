"""Files with several names (hard links): a rule on one of them says nothing about the others."""

from __future__ import annotations

import os

from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from visruntime._decider import Decider

__all__ = ["judge_links", "names_by_file"]

INSTALLED = ("site-packages", "dist-packages", "node_modules")
"""Folders of installed code, which installers fill with hard links into other environments."""


class File:
    """One file, the names of it that were found, and whether it has others."""

    __slots__ = ("count", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.count = 0


def names_by_file(paths: Iterable[str]) -> dict[tuple[int, int], File]:
    """Return the files that *paths* name, by device and inode."""
    files: dict[tuple[int, int], File] = {}
    for path in paths:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        file = files.setdefault((found.st_dev, found.st_ino), File())
        file.names.append(path)
        file.count = found.st_nlink
    return files


def judge_links(files: Iterable[File], decide: Decider) -> tuple[list[str], list[str]]:
    """Return the folders that must stay read-only, and what is to be reported.

    uv, pip and pnpm link the files of one environment into others and into their caches:
    what a guest writes to its own would run elsewhere. So installed code is kept as it is.

    Args:
        files: those below the grants that have several names.
        decide: over the rules of the host's files, what is protected unasked included.

    Raises:
        PolicyUnsupported: what one name denies, another one of the same file gives.
    """
    folders = set()
    others = copies = 0
    for file in files:
        readable = [path for path in file.names if decide.of_many("read", path)[0]]
        writable = [path for path in readable if decide.of_many("write", path)[0]]
        hidden = [path for path in file.names if path not in readable]
        kept = [path for path in readable if path not in writable]
        if hidden and readable:
            # What is installed came from a cache, and is no secret of the folder it lies in.
            private = [path for path in hidden if _installed_above(path) is None]
            copies += not private
            if private:
                _refuse(private[0], readable[0], "denied", "read")
        if not writable or (not kept and len(file.names) >= file.count):
            continue
        for path in writable:
            installed = _installed_above(path)
            if installed is not None:
                folders.add(installed)
            elif kept:
                _refuse(kept[0], path, "read-only", "changed")
            else:
                others += 1
    notes = []
    if copies:
        notes.append(
            f"linked_inside: {copies} files of installed code are denied under one name and can "
            "be read under another one (an installer's cache)"
        )
    if others:
        notes.append(
            f"linked_outside: {others} writable files have a name outside of the grants, through "
            "which a change shows there as well"
        )
    return sorted(f for f in folders if decide("write", f)[0]), notes


def _refuse(path: str, other: str, what: str, act: str) -> None:
    raise PolicyUnsupported(
        f"{path} is {what}, but {other} is a second name of the same file (a hard link), by which "
        f"it could be {act}; give {other} a file of its own (cp it over itself by way of another "
        "name), or deny that path too",
        value=path,
    )


def _installed_above(path: str) -> str | None:
    parts: Sequence[str] = path.split("/")
    for index, part in enumerate(parts):
        if part in INSTALLED:
            return "/".join(parts[: index + 1])
    return None

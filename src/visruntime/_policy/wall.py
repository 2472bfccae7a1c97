"""Names that do not exist yet: where new names may be made, so that those are not.

A mount covers what is there. For a name that is not, Landlock takes the right to make
names (MAKE_*) from the folder that would hold it. Landlock adds up the rights of all
folders on the way up, so every folder above loses it too, and their other folders get it
one by one. Looks at the host's files and writes none.
"""

from __future__ import annotations

import os
import stat

from visruntime._policy.decider import Decider
from visruntime._policy.looks import MISSING
from visruntime._policy.paths import ancestors, is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["MOST_FREE", "Wall", "find_wall", "kind_of", "object_at"]

MOST_FREE = 4096
"""Folders that are exempt from the wall one by one; further ones stay behind it."""


class Wall:
    """What keeps names from being made.

    ``names`` has (origin, path) of the names; ``walled`` the folders directly in which
    nothing can be made: those that would hold a name, and all above them that are
    writable; ``free`` the folders in them in which everything can; ``left_out`` how many
    more there are; ``granted`` the grants and places below a walled folder that have the
    right of their own; ``replaced`` the files in the place of a folder above a name;
    ``kept`` the names that exist and are not to be made anew once the host has removed them.
    """

    __slots__ = ("free", "granted", "kept", "left_out", "names", "replaced", "walled")

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.kept: list[str] = []
        self.walled: list[str] = []
        self.free: list[str] = []
        self.granted: list[str] = []
        self.left_out = 0
        self.replaced: list[str] = []

    def first_missing(self, path: str) -> str:
        """Return the leading part of *path* that is missing in its walled folder."""
        top = max((w for w in self.walled if is_within(path, w)), key=len)
        return "/".join(path.split("/")[: len(top.rstrip("/").split("/")) + 1])

    def covers(self, path: str) -> bool:
        """Tell whether *path*, which does not exist, cannot be made because of the wall."""
        return any(is_within(path, top) for top in self.walled) and not any(
            is_within(path, top) and path != top for top in (*self.free, *self.granted)
        )


def object_at(path: str) -> str:
    """Return "absent", "directory" or "file" (anything else); no link is followed."""
    try:
        return kind_of(os.lstat(path))
    except OSError as error:
        # What is closed to the caller is there.
        return "absent" if error.errno in MISSING else "file"


def kind_of(found: os.stat_result | None) -> str:
    """Return what `object_at` says of what was *found*."""
    if found is None:
        return "absent"
    return "directory" if stat.S_ISDIR(found.st_mode) else "file"


def find_wall(
    rules: Sequence[tuple[str, str, bool]],
    denied: Iterable[tuple[str, str]],
    look: Callable[[str], str] = object_at,
    kept: Iterable[str] = (),
) -> Wall:
    """Return the wall that the policy needs.

    Args:
        rules: all rules, as (kind, real path, is private).
        denied: (origin, real path) of the rules that deny writing.
        look: what is at a path, as `object_at`.
        kept: real paths that exist and are covered. Where there is a wall for other names, it
            stands around these too.
    """
    wall = Wall()
    denied = [(origin, path) for origin, path in denied if look(path) == "absent"]
    if not denied:
        return wall
    plain = [(kind, path) for kind, path, _ in rules]
    decide = Decider(plain)
    known: dict[str, str] = {}

    def there(path: str) -> str:
        if path not in known:
            known[path] = look(path)
        return known[path]

    above: set[str] = set()
    for origin, path in denied:
        steps = list(ancestors(path))
        deepest = next(step for step in reversed(steps) if there(step) != "absent")
        readable, index = decide("read", path)
        if not readable or rules[index][2]:
            continue  # out of sight, or the jail's own place, in which it makes the name
        if not decide("write", deepest)[0]:
            continue
        if there(deepest) == "file":
            if deepest not in wall.replaced:
                wall.replaced.append(deepest)
            continue
        wall.names.append((origin, path))
        above.update(ancestors(deepest))
    if not above:
        return wall
    for path in kept:
        folder = os.path.dirname(path)
        writable, index = decide("write", folder)
        if writable and not rules[index][2] and not decide("write", path)[0]:
            wall.kept.append(path)
            above.update(ancestors(folder))
    wall.walled = sorted(step for step in above if decide("write", step)[0])
    named = {path for _, path, _ in rules}
    wall.granted = [path for kind, path in plain if kind == "write" and path not in above]
    for folder in wall.walled:
        _, index = decide("read", folder)
        if not rules[index][2]:
            wall.free += _free(folder, above, named, decide)
    wall.left_out = max(0, len(wall.free) - MOST_FREE)
    del wall.free[MOST_FREE:]
    return wall


def _free(folder: str, above: set[str], named: set[str], decide: Decider) -> list[str]:
    """Return the folders in *folder* that are not on the way to a name, and writable."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(e.path for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []  # closed to the caller; all of it stays behind the wall
    return [
        path
        for path in found
        if path not in above and (path not in named or decide("write", path)[0])
    ]

"""Where the host's code comes from: what it would run of what somebody else has changed there.

The folders of ``sys.path`` are not all of it. Finders of editable installs lead elsewhere, the
loader of the system has folders of its own, and what is mapped runs without any import.
"""

from __future__ import annotations

import os
import sys

from visruntime._host.editable_builds import build_folders
from visruntime._host.loader_variables import library_folders, named_by_variables
from visruntime._policy.paths import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["import_places", "mapped_programs", "unknown_finders"]

TABLES = ("MAPPING", "NAMESPACES", "known_source_files", "submodule_search_locations")
"""Of finders of editable installs: where packages are (setuptools, scikit-build-core)."""

EDITABLE = "where a finder of an editable install looks for modules"

_MAPPED = rb"(?m)^\S+ ..x. \S+ \S+ \S+ +(/.*)$"
"""A file that is mapped to be executed, in /proc/self/maps (proc_pid_maps(5))."""


def import_places(grants: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (path, what it is) of all from which this process imports.

    What lies in a folder of ``sys.path`` is not named apart, unless it is in one of *grants* (real
    paths) that lies there too.
    """
    for entry in sys.path:
        yield entry, "on the host's sys.path"
    for folder in library_folders():
        yield folder, "on the host's LD_LIBRARY_PATH"
    for path, variable in named_by_variables():
        yield path, f"what the host's {variable} names, out of which code is run"
    for folder in build_folders():
        yield folder, "where the host builds an editable install when it is imported"
    site = sys.modules.get("site")  # not there under -S, when it has no say either
    own = getattr(site, "USER_SITE", None)
    if getattr(site, "ENABLE_USER_SITE", False) and isinstance(own, str) and own not in sys.path:
        yield own, "where the host's interpreter looks for packages when it starts"
    # Of the loaded modules nearly all lie in folders that were named already.
    known = tuple(os.path.join(folder, "") for folder in _known_folders())
    entries = {folder.rstrip("/") for folder in known}
    inner = tuple(
        f"{grant}/" for grant in grants if grant not in entries and grant.startswith(known)
    )
    found = dict.fromkeys(_editable(known), EDITABLE)
    found |= _loaded(known, inner)
    folders: list[str] = []
    for path in sorted(found):
        if not any(is_within(path, folder) for folder in folders):
            folders.append(path)
            yield path, found[path]


def _known_folders() -> Iterator[str]:
    yield os.path.dirname(os.__file__)
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = "/nonexistent"
    for entry in sys.path:
        yield os.path.join(here, entry)


def _loaded(known: tuple[str, ...], inner: tuple[str, ...]) -> dict[str, str]:
    """Return what loaded modules were made from, but in *known* folders, except *inner* ones.

    There are thousands of modules.
    """

    def is_apart(path: str) -> bool:
        return not path.startswith(known) or f"{path}/".startswith(inner)

    found = {}
    for module in list(sys.modules.values()):
        # Not by their attributes: a module may answer by importing something.
        about = getattr(module, "__dict__", None)
        if type(about) is not dict:
            continue
        file = about.get("__file__")
        if type(file) is str and is_apart(file) and os.path.isabs(file):
            found[file] = "a module that the host has imported"
        if "__path__" in about:
            for folder in _texts(about["__path__"]):
                if is_apart(folder):
                    found[folder] = "a package that the host has imported"
    own = getattr(sys.modules.get("__main__"), "__file__", None)
    # Python takes the folder behind a link to it for sys.path, and not that of the link.
    if own in found or (type(own) is str and os.path.islink(own)):
        found[own] = "the host's own script"
    return found


def _editable(known: tuple[str, ...]) -> Iterator[str]:
    """Yield where finders of editable installs look, but for *known* folders."""
    for finder in list(sys.meta_path):
        for table in _tables(finder):
            for place in table.values():
                for path in _texts(place):
                    folder, _, name = path.rpartition("/")
                    if path.startswith(known):
                        continue
                    if name.startswith("__init__."):
                        yield folder
                    elif "." not in name and os.path.isfile(f"{path}.py"):
                        yield f"{path}.py"
                    else:
                        yield path


def _tables(finder: object) -> list[dict[object, object]]:
    kind = finder if isinstance(finder, type) else type(finder)
    home = sys.modules.get(kind.__module__)
    found = []
    for name in TABLES:
        for owner in (finder, home):
            table = getattr(owner, "__dict__", {}).get(name)
            if isinstance(table, dict):
                found.append(table)
    return found


def unknown_finders() -> list[str]:
    """Return the names of finders of editable installs that do not tell where they look."""
    found = []
    for finder in list(sys.meta_path):
        kind = finder if isinstance(finder, type) else type(finder)
        if "editable" in f"{kind.__module__}.{kind.__qualname__}".lower() and not _tables(finder):
            found.append(f"{kind.__module__}.{kind.__qualname__}")
    return found


def _texts(value: object) -> list[str]:
    """Return the absolute paths that *value* is or holds."""
    # That of a namespace computes its parts anew whenever it is looked at; these are the last.
    value = getattr(value, "_path", value)
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, (list, tuple, set, frozenset)):
        return []
    return [text for text in given if isinstance(text, str) and os.path.isabs(text)]


def mapped_programs(grants: Sequence[str]) -> list[str]:
    """Return the files in *grants* (real paths) whose code this process has mapped to run it."""
    if sys.platform == "darwin":
        from visruntime._native.macos import loaded_images

        real = {os.path.realpath(path) for path in loaded_images()}
        return sorted(path for path in real if any(is_within(path, grant) for grant in grants))
    try:
        with open("/proc/self/maps", "rb") as file:
            text = file.read()
    except OSError:
        return []
    if not any(os.fsencode(grant).replace(b"\n", b"\\012") in text for grant in grants):
        return []  # as nearly always, and looked at in a moment
    import re

    paths = {os.fsdecode(path) for path in re.findall(_MAPPED, text)}
    # The kernel marks what has no name any more, and writes a line's end as \012, but a backslash
    # as it is: which of the two it was shows by what is there.
    paths = {path for path in paths if not path.endswith(" (deleted)")}
    ended = {path for path in paths if "\\012" in path}
    both = {way for path in ended for way in (path, path.replace("\\012", "\n"))}
    paths = (paths - ended) | {path for path in both if os.path.lexists(path)}
    return sorted(path for path in paths if any(is_within(path, grant) for grant in grants))

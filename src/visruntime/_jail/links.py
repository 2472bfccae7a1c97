"""Files with several names (hard links): a rule on one of them says nothing about the others."""

from __future__ import annotations

from visruntime._native import file_id
from visruntime._policy.looks import status_at
from visruntime._policy.paths import is_within
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from visruntime._native import JudgedNames
    from visruntime._policy.decider import Decider

__all__ = ["names_by_file", "notes_on_names", "read_only_paths", "refuse_conflict"]


def names_by_file(paths: Iterable[str]) -> dict[tuple[int, int], list[str]]:
    """Return the names of the files that *paths* name, by device and inode."""
    files: dict[tuple[int, int], list[str]] = {}
    for path in paths:
        found = status_at(path)
        if found is not None:
            files.setdefault(file_id(found), []).append(path)
    return files


def read_only_paths(folders: Iterable[str], grants: Iterable[str], decide: Decider) -> list[str]:
    """Return what must be read-only, so that the installed code in *folders* stays as it is.

    uv, pip and pnpm link the files of one environment into others and into their caches:
    what a guest writes to its own would run elsewhere. A grant inside of such a folder, a
    single file too, would lift what holds for the folder.

    Args:
        folders: of installed code.
        grants: what the guest may write.
        decide: over the rules of the host's files, what is protected unasked included.
    """
    found: set[str] = set()
    for folder in folders:
        inside = [grant for grant in grants if is_within(grant, folder)]
        found.update(path for path in (folder, *inside) if decide("write", path)[0])
    return sorted(found)


def notes_on_names(judged: JudgedNames) -> list[str]:
    """Return what is to be reported of names that change nothing."""
    notes = []
    if judged.copies:
        notes.append(
            f"linked_inside: {judged.copies} files of installed code are denied under one name "
            "and can be read under another one (an installer's cache)"
        )
    if judged.others:
        notes.append(
            f"linked_outside: {judged.others} writable files have a name outside of the grants, "
            "through which a change shows there as well"
        )
    return notes


def refuse_conflict(names: Sequence[str], decide: Decider) -> None:
    """Refuse a file of which one name gives what another one denies.

    Raises:
        PolicyUnsupported: always; it names both.
    """
    readable = [path for path in names if decide("read", path)[0]]
    writable = [path for path in readable if decide("write", path)[0]]
    # Installed code is no secret, and installers link it all over a machine.
    hidden = [path for path in names if path not in readable and not _is_installed(path)]
    kept = [path for path in names if path not in writable]
    writable = [path for path in writable if not _is_installed(path)]
    if hidden and readable:
        path, other, what, act = hidden[0], readable[0], "denied", "read"
    elif kept and writable:
        path, other, what, act = kept[0], writable[0], "read-only", "changed"
    else:
        raise PolicyUnsupported(
            "a file with several names in the grants was changed while the jail opened; try again"
        )
    raise PolicyUnsupported(
        f"{path} is {what}, but {other} is a second name of the same file (a hard link), by which "
        f"it could be {act}; give {other} a file of its own (cp it over itself by way of another "
        "name), or deny that path too",
        value=path,
    )


def _is_installed(path: str) -> bool:
    return not {"site-packages", "dist-packages", "node_modules"}.isdisjoint(path.split("/")[:-1])

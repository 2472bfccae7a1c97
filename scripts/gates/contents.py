"""What is in a folder, a wheel or a tar file: one list of entries for all gates."""

from __future__ import annotations

import os
import stat
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Entry", "command", "entries", "judged"]


class Entry(NamedTuple):
    """One file: its name below the root, its mode (``st_mode``), its bytes or where it leads."""

    name: str
    mode: int
    data: bytes
    link: str | None = None

    @property
    def executable(self) -> bool:
        """Whether its owner may execute it."""
        return bool(self.mode & stat.S_IXUSR)


def entries(subject: Path) -> list[Entry]:
    """Return the files of *subject* by name; folders are left out.

    Raises:
        ValueError: it is neither a folder nor a wheel nor a tar file, or holds no file.
    """
    if subject.is_dir():
        found = list(_of_folder(subject))
    elif zipfile.is_zipfile(subject):
        found = list(_of_wheel(subject))
    elif subject.is_file() and tarfile.is_tarfile(subject):
        found = list(_of_tar(subject))
    else:
        raise ValueError(f"{subject} is neither a folder nor a wheel nor a tar file")
    if not found:
        raise ValueError(f"{subject} holds no file")
    return sorted(found)


def judged(path: Path, rules: Callable[[list[Entry]], Iterable[str]]) -> list[str]:
    """Return what *rules* say of the files of *path*, after what every gate says."""
    try:
        found = entries(path)
    except ValueError as error:
        return [str(error)]
    # Which of the two an installer takes is its own choice, and a gate would see one of them.
    times = Counter(entry.name for entry in found)
    twice = [f"{name}: is there {many} times" for name, many in times.items() if many > 1]
    return [*twice, *rules(found)]


def command(gate: str, usage: str | None, problems: Callable[[Path], list[str]]) -> int:
    """Judge the files that the command line names, print each problem; 1 if there is one."""
    paths = [Path(word) for word in sys.argv[1:]]
    if not paths:
        print(usage)
        return 2
    broken = [problem for path in paths for problem in problems(path)]
    print("\n".join(broken) if broken else f"{gate}: ok")
    return 1 if broken else 0


def _of_folder(folder: Path) -> Iterator[Entry]:
    for where, below, names in os.walk(folder):
        links = [name for name in below if os.path.islink(os.path.join(where, name))]
        for name in names + links:
            path = Path(where, name)
            mode = path.lstat().st_mode
            inner = path.relative_to(folder).as_posix()
            if stat.S_ISLNK(mode):
                yield Entry(inner, mode, b"", os.readlink(path))
            else:
                yield Entry(inner, mode, path.read_bytes() if stat.S_ISREG(mode) else b"")


def _of_wheel(wheel: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.infolist():
            if not each.is_dir():
                yield Entry(each.filename, each.external_attr >> 16, archive.read(each))


def _of_tar(path: Path) -> Iterator[Entry]:
    with tarfile.open(path) as archive:
        for each in archive:
            if each.isdir():
                continue
            if each.issym() or each.islnk():
                yield Entry(each.name, stat.S_IFLNK | each.mode, b"", each.linkname)
            elif each.isreg():
                file = archive.extractfile(each)
                yield Entry(each.name, stat.S_IFREG | each.mode, file.read() if file else b"")
            else:
                yield Entry(each.name, each.mode, b"")

"""Make an environment of what a build has left, without believing any of it.

A build is a guest. Folders and regular files are taken over; what decides which program runs,
the link to the interpreter and ``pyvenv.cfg``, is written here, in folders that are held open.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import ExitStack, contextmanager

from visruntime._jail.making import make_file, make_folder, open_below
from visruntime._jail.state_folder import MOST_PENDING_BYTES, folder_at
from visruntime.errors import EnvironmentNotBuilt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["LOCKED", "assemble", "make_empty", "packages_of"]

LOCKED = "visruntime-requirements.txt"
"""In an environment: what was installed, each package with its version and hashes."""
PATHS = "_visruntime_sources.pth"
"""In site-packages: the folders of source that belong to the environment."""
MAX_ENTRIES = 2_000_000
"""Most files and folders of one environment."""
_NOT_TAKEN = ("activate", "deactivate", "pydoc", "python")
"""Beginnings of what uv puts into ``bin`` for a shell, with the place of the build in it."""


def make_empty(folder: str, version: tuple[int, int, int]) -> None:
    """Make what a build of no packages would leave in *folder*."""
    with folder_at(folder) as top:
        for path in (packages_of(version), "bin"):
            os.close(open_below(f"venv/{path}", top, make=0o755))


def assemble(
    venv: str,
    tree: str,
    program: str,
    version: tuple[int, int, int],
    *,
    locked: bytes,
    paths: Sequence[str],
) -> None:
    """Move what was installed in *venv* to the new folder *tree*, and complete it.

    Nothing of the build runs any more.

    Args:
        program: the interpreter, *version* its version.
        locked: what was installed.
        paths: folders of source to be found in it.

    Raises:
        EnvironmentNotBuilt: the build has left what no installation has.
    """
    with _named_for_the_owner(), ExitStack() as held:

        def keep(folder: int) -> int:
            held.callback(os.close, folder)
            return folder

        around, last = os.path.split(tree)
        old = held.enter_context(folder_at(venv))
        old_programs = keep(open_below("bin", old))
        _check(venv)
        new = keep(make_folder(last, held.enter_context(folder_at(around)), 0o755))
        new_programs = keep(make_folder("bin", new, 0o755))
        with os.scandir(old) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and entry.name != "bin":
                    os.rename(entry.name, entry.name, src_dir_fd=old, dst_dir_fd=new)
        packages = keep(open_below(packages_of(version), new))
        with os.scandir(old_programs) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and not entry.name.startswith(_NOT_TAKEN):
                    name = entry.name
                    os.rename(name, name, src_dir_fd=old_programs, dst_dir_fd=new_programs)
        for name, target in (
            ("python", program),
            ("python3", "python"),
            (_name(version), "python"),
        ):
            os.symlink(target, name, dir_fd=new_programs)
        if "\n" in program:
            raise EnvironmentNotBuilt(f"{program!a} cannot stand in pyvenv.cfg")
        settings = {
            "home": os.path.dirname(program),
            "implementation": "CPython",
            "version_info": ".".join(map(str, version)),
            "include-system-site-packages": "false",
        }
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        # Made anew: what has the name already is a guest's.
        make_file("pyvenv.cfg", new, os.fsencode(text), 0o644)
        make_file(LOCKED, new, locked, 0o644)
        if paths:
            lines = "".join(f"{path}\n" for path in paths)
            make_file(PATHS, packages, os.fsencode(lines), 0o644)


@contextmanager
def _named_for_the_owner() -> Iterator[None]:
    """Say of what cannot be read or moved that the build has left it so."""
    try:
        yield
    except OSError as error:
        raise EnvironmentNotBuilt(
            f"what the build left is no environment: {error.strerror} ({error.filename!a})"
        ) from None


def packages_of(version: tuple[int, int, int]) -> str:
    """Return where the packages are in an environment of that version."""
    return os.path.join("lib", _name(version), "site-packages")


def _name(version: tuple[int, int, int]) -> str:
    """Return the name of the interpreter and of its folder of libraries."""
    return f"python{version[0]}.{version[1]}"


def _check(top: str) -> None:
    """Refuse what an installation has no use for: other kinds of files, files with other names.

    A FIFO would let the guests of different jails talk, a file with two names be changed later.
    """
    folders = [top]
    count = waiting = 0
    while folders:
        folder = folders.pop()
        waiting -= sys.getsizeof(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
                    waiting += sys.getsizeof(entry.path)
                elif stat.S_ISREG(status.st_mode):
                    if status.st_nlink != 1:
                        raise _strange(entry.path, top, "has more than one name")
                elif not stat.S_ISLNK(status.st_mode):
                    raise _strange(entry.path, top, "is neither a file nor a folder")
                if count > MAX_ENTRIES or waiting > MOST_PENDING_BYTES:
                    raise EnvironmentNotBuilt(
                        f"the build left more than {MAX_ENTRIES} files, or folders whose paths "
                        f"take more than {MOST_PENDING_BYTES >> 20} MiB"
                    )


def _strange(path: str, top: str, what: str) -> EnvironmentNotBuilt:
    return EnvironmentNotBuilt(f"the build left {os.path.relpath(path, top)!a}, which {what}")

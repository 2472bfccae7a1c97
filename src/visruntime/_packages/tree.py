"""Make an environment of what a build has left, without believing any of it.

A build is a guest. Folders and regular files are taken over; what decides which program runs,
the link to the interpreter and ``pyvenv.cfg``, is written here.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager

from visruntime._jail.state_folder import MOST_PENDING_BYTES
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
    os.makedirs(os.path.join(folder, "venv", packages_of(version)))
    os.mkdir(os.path.join(folder, "venv", "bin"))


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
    with _named_for_the_owner():
        name = _name(version)
        packages = os.path.join(tree, packages_of(version))
        for part in (venv, os.path.join(venv, "bin")):
            _require_folder(part)
        _check(venv)
        os.mkdir(tree, 0o755)
        os.mkdir(os.path.join(tree, "bin"), 0o755)
        with os.scandir(venv) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and entry.name != "bin":
                    os.rename(entry.path, os.path.join(tree, entry.name))
        for part in ("lib", f"lib/{name}", f"lib/{name}/site-packages"):
            _require_folder(os.path.join(tree, part))
        with os.scandir(os.path.join(venv, "bin")) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and not entry.name.startswith(_NOT_TAKEN):
                    os.rename(entry.path, os.path.join(tree, "bin", entry.name))
        _link(program, tree, "bin", "python")
        _link("python", tree, "bin", "python3")
        _link("python", tree, "bin", name)
        if "\n" in program:
            raise EnvironmentNotBuilt(f"{program!a} cannot stand in pyvenv.cfg")
        settings = {
            "home": os.path.dirname(program),
            "implementation": "CPython",
            "version_info": ".".join(map(str, version)),
            "include-system-site-packages": "false",
        }
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        _write(os.fsencode(text), tree, "pyvenv.cfg")
        _write(locked, tree, LOCKED)
        if paths:
            _write(os.fsencode("".join(f"{path}\n" for path in paths)), packages, PATHS)


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


def _require_folder(path: str) -> None:
    """Refuse what is missing, and a link: it would lead what the host writes astray."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "no folder", path)


def _link(target: str, *parts: str) -> None:
    os.symlink(target, os.path.join(*parts))


def _write(content: bytes, *parts: str) -> None:
    # Made anew: what has the name already is a guest's, and "x" follows no link.
    with open(os.path.join(*parts), "xb") as file:
        file.write(content)

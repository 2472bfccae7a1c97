"""Compile every module below a folder; runs in the jail in which an environment is completed.

The packages are strangers here: the interpreter runs isolated and without site, and reads their
modules as text. Nothing of theirs is imported, no ``.pth`` file is read, and a codec that a
module asks for is one of the standard library's.
"""

from __future__ import annotations

import os
import py_compile
import sys

__all__ = ["main"]

FILES_OF_ONE = 64
"""Modules below which a second process costs more than it saves."""


def main(folder: str, processes: int) -> int:
    """Compile what is below *folder*, in up to *processes* processes; return the exit code.

    A module that cannot be compiled stays as it is, as installers have it: many packages bring some
    for another version of Python. Which bytecode results depends on the source and the interpreter
    only: not on when it was unpacked, and not on the folder of the build.
    """
    found = modules(folder)
    shares = max(1, min(processes, len(found) // FILES_OF_ONE))
    children = []
    for share in range(1, shares):
        child = os.fork()
        if child == 0:
            compile_all(folder, found[share::shares])
            os._exit(0)
        children.append(child)
    compile_all(folder, found[::shares])
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(ends):
        sys.stderr.write(f"a process that compiles modules ended with {min(ends)}\n")
        return 1
    return 0


def modules(folder: str) -> list[str]:
    """Return the paths of the modules below *folder*, relative to it and the largest first."""
    found = []
    folders = [""]
    while folders:
        prefix = folders.pop()
        with os.scandir(os.path.join(folder, prefix)) as entries:
            for entry in entries:
                name = os.path.join(prefix, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif name.endswith(".py") and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_size, name))
    return [name for _, name in sorted(found, reverse=True)]


def compile_all(folder: str, names: list[str]) -> None:
    """Compile the modules *names* of *folder*."""
    # An environment never changes, so that no import has to compare times or hashes.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for name in names:
        try:
            py_compile.compile(
                os.path.join(folder, name), dfile=name, doraise=True, invalidation_mode=mode
            )
        except Exception:  # noqa: S112 (whatever the text makes the compiler say is that module's affair)
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

"""Modules that are imported before a guest can be where they are looked for.

This package imports most of what it needs when it needs it. Where a folder of ``sys.path``
lies in a write grant, that would be too late: a guest could have written a module by that
name, and it would run in the host.
"""

from __future__ import annotations

import os
import sys

from visruntime._policy.decider import Decider
from visruntime._policy.links import real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["import_ahead", "imports_from"]

NEEDED = """
    _decimal _strptime ast asyncio bisect calendar codecs concurrent.futures.thread contextvars
    copy datetime decimal difflib encodings.ascii encodings.idna encodings.latin_1
    encodings.unicode_escape encodings.utf_16 encodings.utf_8 fcntl fractions hashlib hmac inspect
    io json linecache locale numbers pathlib platform queue random re resource secrets select
    selectors shlex shutil signal socket stat string struct subprocess tempfile termios textwrap
    threading tokenize tomllib traceback tty uuid warnings weakref zoneinfo
""".split()
"""Of the standard library: what this package imports, and what that imports later on."""


def imports_from(rules: Sequence[tuple[str, str]]) -> list[str]:
    """Return the folders of ``sys.path``, existing or not, in which a guest may make a module.

    Args:
        rules: (kind, path) of all rules about the host's files.
    """
    if not any(kind == "write" for kind, _ in rules):
        return []
    decide = Decider(rules)
    found = []
    for entry in sys.path:
        try:
            real = real_path(entry or os.getcwd())
        except FileNotFoundError:
            continue  # the current folder is gone, and with it all that could be in it
        if decide("write", real)[0]:
            found.append(real)
    return found


def import_ahead() -> None:
    """Import all that the host may need after a guest has run."""
    from importlib import import_module

    for name in NEEDED:
        import_module(name)

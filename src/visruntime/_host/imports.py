"""Modules that are imported before a guest can be where they are looked for.

This package imports most of what it needs when it needs it. Where a folder of ``sys.path``
lies in a write grant, that would be too late: a guest could have written a module by that
name, and it would run in the host.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from visruntime._policy.decider import Decider
from visruntime._policy.links import real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["import_ahead", "may_import_from", "refuse_late_import"]

NEEDED = """
    _decimal _strptime argparse ast asyncio bisect calendar codecs concurrent.futures.thread
    contextvars copy datetime decimal difflib encodings.ascii encodings.idna encodings.latin_1
    encodings.unicode_escape encodings.utf_16 encodings.utf_8 faulthandler fcntl fractions
    hashlib hmac importlib.metadata inspect io json linecache locale numbers pathlib platform
    queue random re resource secrets select selectors shlex shutil signal socket sqlite3 stat
    string struct subprocess tempfile termios textwrap threading tokenize tomllib traceback tty
    uuid warnings weakref zoneinfo
""".split()
"""Of the standard library: what this package imports, and what that imports later on."""
EXTRAS = ("cloudpickle", "anyio", "anyio._backends._asyncio")
"""What its extras bring, where they are installed."""


def may_import_from(rules: Sequence[tuple[str, str]]) -> bool:
    """Whether a guest may make a module in a folder of ``sys.path``, now or later.

    A relative entry (``""`` of ``python -c`` and of prompts) is wherever this process goes.

    Args:
        rules: (kind, path) of all rules about the host's files.
    """
    if not any(kind == "write" for kind, _ in rules):
        return False
    decide = Decider(rules)
    return any(
        not os.path.isabs(entry) or decide("write", real_path(entry))[0] for entry in sys.path
    )


def import_ahead() -> None:
    """Import all that the host may need after a guest has run."""
    from importlib import import_module

    for name in NEEDED:
        with suppress(ImportError):  # some builds of Python lack sqlite3
            import_module(name)
    # The one backend more that anyio loads for who uses it.
    for name in (*EXTRAS, *(("anyio._backends._trio",) if "trio" in sys.modules else ())):
        with suppress(ImportError):
            import_module(name)


def refuse_late_import(rules: Sequence[tuple[str, str]], name: str) -> None:
    """Refuse to import the library *name* where a guest may have made it, or what it imports.

    To import large libraries ahead, as those above, would cost who never uses them a second and
    their threads.

    Args:
        rules: (kind, path) of all rules about the host's files.
        name: of a library that is there already, or is to be imported now.

    Raises:
        ImportError: it is not there yet, and a folder of ``sys.path`` is the guest's to write.
    """
    if name not in sys.modules and may_import_from(rules):
        raise ImportError(
            f"{name} is not imported now: a folder of sys.path lies in a write grant, so a guest may "
            f"have put a module of its own there; import {name} before the jail opens",
            name=name,
        )

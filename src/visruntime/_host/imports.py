"""What the host imports after a guest may have been where modules are looked for.

This package imports most of what it needs when it needs it. Where a folder of ``sys.path``
lies in a write grant, that would be too late: a guest could have written a module by that
name, and it would run in the host. So all of it is imported before the guest starts, and
never from a place where a guest of this process could have written.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from importlib import import_module

from visruntime._host.own_version import own_version
from visruntime._host.trusted_finder import GUESTS
from visruntime._policy.decider import Decider
from visruntime._policy.paths import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

__all__ = ["import_ahead", "import_trusted", "late_import", "may_import_from", "prepare"]

NEEDED = """
    _decimal _sha2 _strptime argparse ast asyncio bisect calendar codecs concurrent.futures.thread
    contextvars copy csv ctypes datetime decimal difflib encodings.ascii encodings.idna
    encodings.latin_1 encodings.unicode_escape encodings.utf_16 encodings.utf_8 faulthandler fcntl
    fnmatch fractions gc grp gzip hashlib hmac html importlib.metadata inspect io json linecache
    locale numbers pathlib platform pwd queue random re resource secrets select selectors shlex
    shutil signal socket sqlite3 stat string struct subprocess tempfile termios textwrap threading
    tokenize tomllib traceback tracemalloc tty unicodedata urllib.parse uuid warnings weakref zlib
    zoneinfo
""".split()
"""Of the standard library: what this package imports, and what that imports later on."""
EXTRAS = ("cloudpickle", "anyio", "anyio.from_thread", "anyio._backends._asyncio")
"""What its extras bring, where they are installed."""
BYTECODE = "__pycache__"
"""Of all modules in a folder; Python runs it instead of them if it names their time and size."""
TOPS = frozenset(name.partition(".")[0] for name in (*NEEDED, *EXTRAS))


def may_import_from(rules: Sequence[tuple[str, str]], places: Sequence[str]) -> bool:
    """Whether a guest may make a module or library where the host looks for some, now or later.

    A relative entry (``""`` of ``python -c`` and of prompts) is wherever this process goes.

    Args:
        rules: (kind, real path) of all rules about the host's files.
        places: real paths of where the host looks.
    """
    grants = [path for kind, path in rules if kind == "write"]
    if not grants:
        return False
    from visruntime._host.loader_variables import library_folders

    if not all(map(os.path.isabs, (*sys.path, *library_folders()))):
        return True
    decide = Decider(rules)
    return any(
        decide("write", real)[0] or any(_holds_a_name(grant, real) for grant in grants)
        for real in places
    )


def _holds_a_name(grant: str, folder: str) -> bool:
    """Tell whether *grant* is, or lies in, what would be a package of ours in *folder*."""
    if grant == folder or not is_within(grant, folder):
        return False
    top = grant[len(folder.rstrip("/")) + 1 :].partition("/")[0]
    return top == BYTECODE or top.partition(".")[0] in TOPS


def prepare(rules: Sequence[tuple[str, str]], places: Sequence[str]) -> None:
    """Get ready for a guest under *rules*: import what it could stand in for, if it could.

    Args:
        rules: (kind, real path) of all rules about the host's files.
        places: real paths of where the host looks for modules and libraries.
    """
    if may_import_from(rules, places):
        # First of all: what an earlier process's guest left there is not imported either.
        GUESTS.remember(rules)
        import_ahead()


def import_ahead() -> None:
    """Import all that the host may need after a guest has run."""
    # The one backend more that anyio loads for who uses it.
    more = ("anyio._backends._trio",) if "trio" in sys.modules else ()
    for name in (*NEEDED, *EXTRAS, *more):
        if name not in sys.modules:
            with suppress(ImportError):  # some builds of Python lack sqlite3
                import_trusted(name)
    with suppress(ImportError):
        own_version()  # it is remembered: a guest may write where it stands


def import_trusted(name: str) -> ModuleType:
    """Import *name*, and what that imports, from no place where a guest may have written.

    Raises:
        ModuleNotFoundError: it is in no other place.
        ImportError: importing it failed.
    """
    if name in sys.modules or not GUESTS.known:
        return import_module(name)
    with GUESTS.left_out():
        return import_module(name)


@contextmanager
def late_import(name: str) -> Iterator[bool]:
    """Let this thread import and use the library *name*, unless a guest may have made that.

    It imports more when it is used, such as time zones that the data names: none of that comes
    from a place where a guest may have written. Yields whether there are such places.

    To import large libraries ahead, as those above, would cost who never uses them a second and
    their threads.

    Args:
        name: of a library that is there already, or is to be imported now.

    Raises:
        ImportError: it is not there yet, and a place where modules are looked for is, or was, a
            guest's to write.
    """
    if name not in sys.modules and GUESTS.known:
        raise ImportError(
            f"{name} is not imported now: a folder of sys.path lies in a write grant, so a guest may "
            f"have put a module of its own there; import {name} before the jail opens",
            name=name,
        )
    if not GUESTS.known:
        yield False
        return
    with GUESTS.left_out():
        yield True

"""Ask an interpreter that is not the host's what it is, and have it compile the guest modules.

Both in one process, which for a jailed worker runs in a jail that lets it read itself. What it
says is a claim, used to refuse and to compare; what it compiled is bytes to the host, which
workers of that very interpreter run and nobody else. To compile them anew would cost each
start of a worker more than all the rest of it.

The answers of interpreters that no guest can write to are kept, by all that tells one file from
another, in the folder of environments (`_packages/store.py`) where there is one. What another one
says rests on its whole standard library, which a guest could change for the time of the asking.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Sequence

from visruntime._host.files import open_followed
from visruntime._worker.start import sources
from visruntime.errors import EnvironmentNotBuilt, PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Answer", "Grant", "Probe", "ask", "file_facts"]

Grant = tuple[str, str]
"""A path that a worker has to read, and the reason, in words for the report."""
Probe = Callable[[list[str], Sequence[Grant], bytes], tuple[int, bytes]]
"""Runs a program that may be hostile, seeing only these grants and these bytes on stdin; returns
exit code and stdout."""
OLDEST = (3, 11)
PROBE_CODE = (
    "import sys,marshal;v=sys.version_info;o=sys.stdout.buffer\n"
    "t='t' in getattr(sys,'abiflags','')\n"
    "o.write(repr((sys.implementation.name,v[:2],sys.version,not t)).encode()+b'\\n')\n"
    "if v>=(3,11):\n"
    " for n,s in marshal.loads(sys.stdin.buffer.read()):\n"
    "  d=marshal.dumps(compile(s,n+'.py','exec',dont_inherit=True))\n"
    "  o.write(b'%s %d\\n'%(n.encode(),len(d))+d)"
)
MAX_ANSWER = 4096
"""Longest answer about itself of an interpreter, in bytes."""
MAX_COMPILED = 4 * 1024**2
"""Largest compiled form of all guest modules that is taken, in bytes."""

_KEPT = 2
"""Of what is kept; another number is another key. A guest may have chosen answers under 1."""
_MAX_HEAD = 100
"""Longest line before a compiled module, in bytes."""


class Answer:
    """What an interpreter said: its ``sys.version``, and the guest modules as it compiled them."""

    __slots__ = ("compiled", "version")

    def __init__(self, code: int, output: bytes) -> None:
        """Read the answer.

        Raises:
            ValueError: it cannot be a worker, or says nonsense.
        """
        about, _, compiled = output.partition(b"\n")
        if code != 0 or len(about) > MAX_ANSWER or len(compiled) > MAX_COMPILED:
            raise ValueError(f"it ended with {code}")
        implementation, numbers, version, gil = _read_about(about)
        if implementation != "cpython":
            raise ValueError(f"it is {implementation:.40}, and only CPython can be a worker")
        if numbers < OLDEST:
            raise ValueError(
                f"it is CPython {numbers[0]}.{numbers[1]}, which is older than "
                f"{OLDEST[0]}.{OLDEST[1]}"
            )
        if not gil:
            raise ValueError(
                "it is a free-threaded build, and the worker's core is for the stable ABI of those "
                "with the GIL"
            )
        self.version = version
        self.compiled = _split(compiled)


def _read_about(about: bytes) -> tuple[str, tuple[int, int], str, bool]:
    """Return what it says of itself, of the agreed shape.

    Raises:
        ValueError: it is something else.
    """
    from ast import literal_eval

    try:
        claim = literal_eval(about.decode())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("what it says of itself is no Python literal") from None
    shape = (str, tuple, str, bool)
    if type(claim) is not tuple or tuple(map(type, claim)) != shape:
        raise ValueError("what it says of itself has not the agreed shape")
    implementation, numbers, version, gil = claim
    if len(numbers) != 2 or any(type(n) is not int or not 0 <= n < 1000 for n in numbers):
        raise ValueError("its version is no pair of small numbers")
    return implementation, numbers, version, gil


def _split(text: bytes) -> dict[str, bytes] | None:
    """Return the compiled form of each guest module; ``None`` if there is none.

    Raises:
        ValueError: it is cut short or of other modules.
    """
    if not text:
        return None
    found = {}
    place = 0
    for name, _ in sources():
        # As it was given them, so that no work is done for what is something else.
        end = text.find(b"\n", place, place + _MAX_HEAD)
        head = text[place:end] if end >= 0 else b""
        start = name.encode() + b" "
        if not head.startswith(start):
            raise ValueError("it compiled something else than it was given")
        digits = head[len(start) :]
        size = int(digits) if digits.isdigit() else 0
        place = end + 1 + size
        if size == 0 or place > len(text):
            raise ValueError("what it compiled is cut short")
        found[name] = text[place - size : place]
    if place != len(text):
        raise ValueError("it compiled something else than it was given")
    return found


def ask(
    program: str, library: str | None, grants: Sequence[Grant], probe: Probe, *, remember: bool
) -> Answer:
    """Return what *program* says of itself, or what it said when it was asked before.

    Args:
        remember: keep the answer for later; only of a probe that ran in a jail.

    Raises:
        ValueError: as `Answer`.
    """
    given = marshal.dumps(sources(), 2)  # a format that every Python reads
    place = _place(program, library, given) if remember else None
    if place is not None:
        kept = _read(place)
        if kept is not None:
            return kept
    code, output = probe([program, "-I", "-S", "-c", PROBE_CODE], grants, given)
    answer = Answer(code, output)
    if place is not None:
        _keep(place, output)
    return answer


def file_facts(*paths: str | None) -> list[Any]:
    """Return all that tells the files at *paths* from others that stood there, or will."""
    facts: list[Any] = []
    for path in paths:
        if path is not None:
            status = os.stat(path)
            facts += [path, status.st_dev, status.st_ino, status.st_size]
            facts += [status.st_mtime_ns, status.st_ctime_ns]
    return facts


def _place(program: str, library: str | None, given: bytes) -> str | None:
    """Return the file for the answer of this very program; ``None`` where none can be kept."""
    import hashlib

    from visruntime._jail.state_folder import state_folder
    from visruntime._packages.store import Store

    if not os.path.isdir(state_folder()):
        return None  # made for environments only: no trace of a jail stays unasked
    facts = [_KEPT, PROBE_CODE, hashlib.sha256(given).hexdigest(), *file_facts(program, library)]
    key = hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:40]
    try:
        return os.path.join(Store().interpreters, key)
    except (OSError, PolicyError, EnvironmentNotBuilt):
        return None  # it is only for speed; the next one is asked again


def _read(place: str) -> Answer | None:
    try:
        with open(open_followed(place), "rb") as file:
            return Answer(0, file.read(MAX_ANSWER + MAX_COMPILED + 1))
    except (OSError, ValueError):
        return None


def _keep(place: str, output: bytes) -> None:
    """Write the answer whole or not at all; several may do so at a time."""
    from contextlib import suppress

    from visruntime._jail.state_folder import folder_at

    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    around, name = os.path.split(place)
    with suppress(OSError), folder_at(around) as folder:
        temporary = f"{name}.{os.urandom(8).hex()}"
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(output)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise

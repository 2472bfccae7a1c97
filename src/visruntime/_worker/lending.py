"""What a worker is lent for one large value: a pipe to write it into, or memory to fill.

No descriptor ever comes from a guest: what is lent is the host's, and the host looks at its own end.
What comes through a pipe is a copy that the host has made. Memory is looked at once the kernel says
that nobody can change it any more. So nothing that the host reads can change or shrink under it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from visruntime import _native

if TYPE_CHECKING:
    from visruntime._native import Intake

__all__ = ["ALL_SEALS", "Lending", "make_memory"]

MAX_LENT = 64
"""What a worker may have at one time."""
MAX_BYTES = 2 << 30
"""Bytes of all large values of one run, in each direction."""
MAX_COPIED = 256 << 20
"""Bytes of those of one run that the host copies into memory of its own. Whatever is more lies in
pages that the guest has paid for: it is slower, and a guest cannot fill the host's memory with it."""
_PIPE_SIZE = 1 << 20
"""What the kernel lets everybody have by default."""
_SMALL_PIPE = 64 << 10
"""What a pipe holds anyway."""
_NOEXEC_SEAL = 8
"""MFD_NOEXEC_SEAL of Linux 6.3."""
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
ALL_SEALS = _SIZE_SEALS | fcntl.F_SEAL_WRITE
"""With these nobody can change the bytes of a memfd, or how many there are."""


def make_memory(size: int) -> int:
    """Make memory of *size* bytes, for good, that nothing can be executed from."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create("visruntime", flags | _NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        descriptor = os.memfd_create("visruntime", flags)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SIZE_SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class _Lent:
    """One of them: our end, and where it is a pipe, what has come through it."""

    __slots__ = ("descriptor", "intake")

    def __init__(self, descriptor: int, intake: Intake | None) -> None:
        self.descriptor = descriptor  # -1 once all of a pipe has been read
        self.intake = intake


class Lending:
    """What one worker has been lent in one run, by number."""

    __slots__ = ("_bytes", "_copied", "_last", "_lent", "_pipes", "_poll")

    def __init__(self, poll: select.poll) -> None:
        """Begin; *poll* is that of whoever calls `read` for what is ready."""
        self._poll = poll
        self._lent: dict[int, _Lent] = {}
        self._pipes: dict[int, _Lent] = {}
        self._last = 0
        self._bytes = 0
        self._copied = 0

    def lend(self, size: int) -> tuple[int, int]:
        """Return the number of a new one, and the descriptor that the worker is to have.

        Raises:
            ValueError: the worker has as much as it may.
            OSError, MemoryError: there is no more.
        """
        if len(self._lent) >= MAX_LENT or self._bytes + size > MAX_BYTES:
            raise ValueError(
                f"more than {MAX_LENT} large values, or {MAX_BYTES} bytes of them, in one run"
            )
        if self._copied + size <= MAX_COPIED:
            lent, theirs = self._make_pipe(size)
            self._copied += size
        else:
            lent, theirs = _make_shared(size)
        self._bytes += size
        self._last += 1
        self._lent[self._last] = lent
        return self._last, theirs

    def _make_pipe(self, size: int) -> tuple[_Lent, int]:
        intake = _native.make_intake(size)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        if size > _SMALL_PIPE:
            with suppress(OSError):  # only for speed; the user may have many already
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        lent = self._pipes[reader] = _Lent(reader, intake)
        self._poll.register(reader, select.POLLIN)
        return lent, writer

    def read(self, descriptor: int) -> bool:
        """Read once from a pipe that is ready; False if it is none of these."""
        lent = self._pipes.get(descriptor)
        if lent is None or lent.intake is None:
            return False
        try:
            missing = lent.intake.read(descriptor)
        except (BlockingIOError, InterruptedError):
            return True
        except EOFError:
            self._close(lent)  # and what is missing stays so
        else:
            if missing == 0:
                self._close(lent)
        return True

    def take(self, number: int, size: int) -> memoryview:
        """Return the bytes of one, once the guest can change them no more.

        Raises:
            KeyError: there is no such number, or no longer.
            ValueError: it is of another size, not filled, or not sealed.
        """
        lent = self._lent.pop(number)
        try:
            if lent.intake is None:
                return _take_shared(lent.descriptor, size)
            data = memoryview(self._take_rest(lent, lent.intake))
        finally:
            self._close(lent)
        if len(data) != size:
            raise ValueError("of another size")
        return data

    def _take_rest(self, lent: _Lent, intake: Intake) -> bytes:
        """Read what is in the pipe: whoever names its number has written all of it before."""
        try:
            while lent.descriptor >= 0 and intake.read(lent.descriptor):
                pass
        except (BlockingIOError, EOFError):
            raise ValueError("not filled") from None
        return intake.take()

    def end_run(self) -> None:
        """Take back what was lent and not used."""
        self._bytes = self._copied = 0
        while self._lent:
            self._close(self._lent.popitem()[1])

    def _close(self, lent: _Lent) -> None:
        if lent.descriptor < 0:
            return
        if self._pipes.pop(lent.descriptor, None) is not None:
            self._poll.unregister(lent.descriptor)
        os.close(lent.descriptor)
        lent.descriptor = -1


def _make_shared(size: int) -> tuple[_Lent, int]:
    descriptor = make_memory(size)
    try:
        return _Lent(descriptor, None), os.dup(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _take_shared(descriptor: int, size: int) -> memoryview:
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    status = os.fstat(descriptor)
    if seals & ALL_SEALS != ALL_SEALS or status.st_size != size:
        raise ValueError("not sealed, or of another size")
    # A page that is not there yet would be made, and paid for, where it is read first.
    if status.st_blocks * 512 < size:
        raise ValueError("not filled")
    return memoryview(_native.map_memory(descriptor, size, "r"))

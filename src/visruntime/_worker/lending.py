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
from contextlib import nullcontext, suppress

from visruntime import _native
from visruntime.guest.arrays import INLINE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from visruntime._native import Intake

__all__ = ["ALL_SEALS", "Lending", "make_memory"]

MAX_LENT = 64
"""What a worker may have at one time."""
MAX_OPEN = 8
"""Of those, what is not written yet, and so holds a descriptor of the host's. A worker of ours has
as many as it has threads that write one."""
MAX_BYTES = 2 << 30
"""Bytes of all large values of one run, in each direction."""
MAX_COPIED = 256 << 20
"""Bytes of those of one run that the host copies into memory of its own. Whatever is more lies in
pages that the guest has paid for: it is slower, and a guest cannot fill the host's memory with it."""
_RESERVED = MAX_COPIED // 4
"""Of those, what is kept for values that can only be copied."""
SMALL_BYTES = 1 << 20
"""Up to this size a value is only copied: to map each would use up the mappings that the kernel
lets the host have (vm.max_map_count, 65,530), for a page of the guest's."""
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
    """One of them: our end, and what has come through it."""

    __slots__ = ("data", "descriptor", "intake", "number", "size")

    def __init__(self, number: int, size: int, descriptor: int, intake: Intake | None) -> None:
        self.number = number
        self.size = size
        self.descriptor = descriptor  # -1 once it is of no more use
        self.intake = intake  # of a pipe
        self.data: memoryview | None = None  # of memory that the guest has filled and sealed


class Lending:
    """What one worker has been lent in one run, by number."""

    __slots__ = ("_bytes", "_copied", "_last", "_lent", "_open", "_poll", "noted")

    def __init__(self, poll: select.poll) -> None:
        """Begin; *poll* is that of whoever calls `read` for what is ready."""
        self._poll = poll
        # The kernel's locks of what is lent are the guest's as well.
        self.noted: Callable[[], AbstractContextManager[object]] = nullcontext
        self._lent: dict[int, _Lent] = {}
        self._open: dict[int, _Lent] = {}  # by our descriptor
        self._last = 0
        self._bytes = 0
        self._copied = 0

    def lend(self, size: int, *, copied: bool) -> tuple[int, int]:
        """Return the number of a new one, and the descriptor that the worker is to have.

        Args:
            size: bytes of the value.
            copied: the host is to copy it, as it must for what becomes `bytes`.

        Raises:
            ValueError: the worker has as much as it may, or the value belongs into the frame.
            OSError, MemoryError: there is no more.
        """
        if size <= INLINE_BYTES:
            raise ValueError(f"a value of {INLINE_BYTES} bytes or fewer goes with the frame")
        self._settle()
        if len(self._open) >= MAX_OPEN:
            raise ValueError(f"more than {MAX_OPEN} large values that are not written yet")
        if len(self._lent) >= MAX_LENT or self._bytes + size > MAX_BYTES:
            raise ValueError(
                f"more than {MAX_LENT} large values, or {MAX_BYTES} bytes of them, in one run"
            )
        copied = copied or size <= SMALL_BYTES
        number = self._last + 1
        if self._copied + size <= MAX_COPIED - (0 if copied else _RESERVED):
            lent, theirs = self._make_pipe(number, size)
            self._copied += size
        elif copied:
            raise ValueError(
                f"more than {MAX_COPIED} bytes of large values that the host copies, in one run"
            )
        else:
            lent, theirs = _make_shared(number, size)
        self._bytes += size
        self._last = number
        self._lent[number] = self._open[lent.descriptor] = lent
        return number, theirs

    def _make_pipe(self, number: int, size: int) -> tuple[_Lent, int]:
        intake = _native.make_intake(size)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        if size > _SMALL_PIPE:
            with suppress(OSError):  # only for speed; the user may have many already
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self._poll.register(reader, select.POLLIN)
        return _Lent(number, size, reader, intake), writer

    def _settle(self) -> None:
        """Take in what has been written, so that it needs no descriptor any longer."""
        for lent in list(self._open.values()):
            if lent.intake is not None:
                with suppress(ValueError):
                    self._read_rest(lent, lent.intake)
            else:
                with suppress(ValueError):
                    lent.data = self._take_shared(lent)
                    self._close(lent)

    def read(self, descriptor: int) -> bool:
        """Read once from a pipe that is ready; False if it is none of these."""
        lent = self._open.get(descriptor)
        if lent is None or lent.intake is None:
            return False
        try:
            self._read_once(lent, lent.intake)
        except (BlockingIOError, InterruptedError, EOFError):
            pass
        return True

    def _read_once(self, lent: _Lent, intake: Intake) -> int:
        """Read, and return how much is missing.

        Raises:
            EOFError: the worker has given it up; it costs no more.
        """
        try:
            with self.noted():
                missing = intake.read(lent.descriptor)
        except EOFError:
            self._close(lent)
            if self._lent.pop(lent.number, None) is not None:
                self._bytes -= lent.size
                self._copied -= lent.size
            raise
        if missing == 0:
            self._close(lent)
        return missing

    def _read_rest(self, lent: _Lent, intake: Intake) -> None:
        """Read what is in the pipe: whoever names its number has written all of it before.

        Raises:
            ValueError: it is less.
        """
        try:
            while lent.descriptor >= 0 and self._read_once(lent, intake):
                pass
        except (BlockingIOError, EOFError):
            raise ValueError("not filled") from None

    def take(self, number: int, size: int) -> memoryview:
        """Return the bytes of one, once the guest can change them no more.

        What was copied is a view of `bytes`; anything else is memory of the guest's.

        Raises:
            KeyError: there is no such number, or no longer.
            ValueError: it is of another size, not filled, or not sealed.
        """
        lent = self._lent.pop(number)
        try:
            if size != lent.size:
                raise ValueError("of another size")
            if lent.intake is not None:
                self._read_rest(lent, lent.intake)
                return memoryview(lent.intake.take())
            return lent.data or self._take_shared(lent)
        finally:
            self._close(lent)

    def end_run(self) -> None:
        """Take back what was lent and not used."""
        self._bytes = self._copied = 0
        while self._lent:
            self._close(self._lent.popitem()[1])

    def _close(self, lent: _Lent) -> None:
        if lent.descriptor < 0:
            return
        del self._open[lent.descriptor]
        if lent.intake is not None:
            self._poll.unregister(lent.descriptor)
        with self.noted():
            os.close(lent.descriptor)
        lent.descriptor = -1

    def _take_shared(self, lent: _Lent) -> memoryview:
        seals = fcntl.fcntl(lent.descriptor, fcntl.F_GET_SEALS)
        status = os.fstat(lent.descriptor)
        if seals & ALL_SEALS != ALL_SEALS or status.st_size != lent.size:
            raise ValueError("not sealed, or of another size")
        # A page that is not there yet would be made, and paid for, where it is read first.
        if status.st_blocks * 512 < lent.size:
            raise ValueError("not filled")
        with self.noted():
            return memoryview(_native.map_memory(lent.descriptor, lent.size, "r"))


def _make_shared(number: int, size: int) -> tuple[_Lent, int]:
    descriptor = make_memory(size)
    try:
        return _Lent(number, size, descriptor, None), os.dup(descriptor)
    except BaseException:
        os.close(descriptor)
        raise

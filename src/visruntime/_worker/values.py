"""Values of one worker, and the memory in which large ones lie beside the frames.

No descriptor ever comes from a guest. What the host has for a worker goes along with the frame, in
sealed memory; for what a worker has, the host makes the memory, lends it to the worker, and looks at
its seals afterwards, at its own descriptor. So nothing that a guest made is closed, mapped or read
by the host, and nothing that it reads can change or shrink under it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import TYPE_CHECKING, Any

from visruntime import _native
from visruntime._worker.claims import read_dict
from visruntime.errors import ProtocolViolation
from visruntime.guest.arrays import Array, convert_array, reduce_array, reduce_stored
from visruntime.guest.values import BUILDERS, reduce_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["WorkerValues"]

MAX_LENT = 64
"""Buffers that a worker may have lent at one time."""
MAX_BYTES = 2 << 30
"""Bytes of all buffers of one run, in each direction."""
MAX_SENT = 64
"""Buffers that go along with one frame."""
_NOEXEC_SEAL = 8
"""MFD_NOEXEC_SEAL of Linux 6.3."""
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_ALL_SEALS = _SIZE_SEALS | fcntl.F_SEAL_WRITE


def _make_memory(size: int) -> int:
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


class WorkerValues:
    """Encodes for one worker and decodes what it says, one run at a time."""

    __slots__ = ("_builders", "_last", "_lent", "_lent_bytes", "_moved", "_outgoing", "_sent_bytes")

    def __init__(self) -> None:
        self._lent: dict[int, int] = {}
        self._lent_bytes = 0
        self._last = 0
        self._outgoing: list[int] = []
        self._sent_bytes = 0
        self._moved = 0
        self._builders: tuple[Callable[..., Any], ...] = (
            *BUILDERS[:12],
            self._take,
            _build_array,
            BUILDERS[14],
        )

    # Host to guest.

    def encode(self, value: Any) -> bytes:
        """Encode; the memory of large arrays waits in `outgoing` for the frame.

        Raises:
            TypeError, ValueError: it does not cross.
        """
        self.drop_outgoing()
        try:
            return _native.encode(value, reduce=self._reduce)
        except BaseException:
            self.drop_outgoing()
            raise

    @property
    def outgoing(self) -> Sequence[int]:
        """Descriptors that belong to what was encoded last."""
        return self._outgoing

    def drop_outgoing(self) -> None:
        """They were sent, or never will be."""
        while self._outgoing:
            os.close(self._outgoing.pop())

    def take_moved(self) -> int:
        """Bytes of large values that have crossed, in either direction, since this was asked."""
        moved, self._moved = self._moved, 0
        return moved

    def _reduce(self, value: Any) -> tuple[Any, ...] | None:
        parts = reduce_stored(value)
        if parts is None:
            parts = reduce_array(value, self._store)
        return reduce_value(value) if parts is None else parts

    def _store(self, data: memoryview) -> tuple[int, int]:
        size = len(data)
        if len(self._outgoing) >= MAX_SENT or self._sent_bytes + size > MAX_BYTES:
            raise ValueError(
                f"cannot encode: more than {MAX_SENT} large arrays at once, or {MAX_BYTES} bytes "
                "of them in one run"
            )
        self._sent_bytes += size
        self._moved += size
        descriptor = _make_memory(size)
        self._outgoing.append(descriptor)
        memoryview(_native.map_memory(descriptor, size, "w"))[:] = data  # and unmapped again
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
        return len(self._outgoing) - 1, size

    # Guest to host.

    def lend(self, payload: bytes) -> bytes:
        """Answer a BUFFER frame; the memory waits in `outgoing` for the frame of the answer.

        Raises:
            ProtocolViolation: it has not the agreed shape.
        """
        number, size = _read_wish(payload)
        self.drop_outgoing()
        if len(self._lent) >= MAX_LENT or self._lent_bytes + size > MAX_BYTES:
            message = f"more than {MAX_LENT} large arrays, or {MAX_BYTES} bytes of them, in one run"
            return _answer(number, None, ("ValueError", message, {}))
        try:
            descriptor = _make_memory(size)
            try:
                self._outgoing.append(os.dup(descriptor))
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as problem:
            return _answer(number, None, ("OSError", problem.strerror or "", {}))
        self._last += 1
        self._lent[self._last] = descriptor
        self._lent_bytes += size
        return _answer(number, self._last, None)

    def _take(self, number: Any, size: Any) -> memoryview:
        """Return the bytes of a buffer that was lent, once the guest can change them no more."""
        if type(number) is not int or type(size) is not int:
            raise ValueError("not a buffer")
        descriptor = self._lent.pop(number)
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            status = os.fstat(descriptor)
            if seals & _ALL_SEALS != _ALL_SEALS or status.st_size != size:
                raise ValueError("not sealed, or of another size")
            # A page that is not there yet would be made, and paid for, where it is read first.
            if status.st_blocks * 512 < size:
                raise ValueError("not filled")
            self._moved += size
            return memoryview(_native.map_memory(descriptor, size, "r"))
        finally:
            os.close(descriptor)

    def decode(self, payload: bytes) -> Any:
        """Decode what the worker says.

        Raises:
            ValueError: it is malformed.
        """
        return _native.decode(payload, builders=self._builders)

    def end_run(self) -> None:
        """Give back what was lent and not used."""
        self.drop_outgoing()
        self._lent_bytes = self._sent_bytes = self._moved = 0
        while self._lent:
            os.close(self._lent.popitem()[1])


def _build_array(dtype: Any, shape: Any, data: Any) -> Any:
    array = Array(dtype, shape, data)
    # A guest's word is no reason to import a library.
    return convert_array(array) if "numpy" in sys.modules else array


def _answer(number: int, value: int | None, error: tuple[str, str, dict[str, Any]] | None) -> bytes:
    return _native.encode({"id": number, "value": value, "error": error, "interrupted": False})


def _read_wish(payload: bytes) -> tuple[int, int]:
    try:
        wish = read_dict(payload, max_nodes=20)
        number, size = wish["id"], wish["size"]
    except (ValueError, TypeError, KeyError) as problem:
        raise ProtocolViolation(f"the worker asked for memory wrongly: {problem}") from None
    right = type(number) is int and type(size) is int
    if not right or not 0 <= number < 1 << 63 or not 0 < size < 1 << 62:
        raise ProtocolViolation("the worker asked for memory of no size")
    return number, size

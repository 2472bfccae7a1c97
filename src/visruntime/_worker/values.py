"""Values of one worker, and what of them crosses beside the frames.

What the host has for a worker goes along with the frame, in sealed memory. What a worker has comes
through what it is lent; see `visruntime._worker.lending`.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import nullcontext

from visruntime import _native
from visruntime._worker.claims import read_dict
from visruntime._worker.framed_values import FramedValues
from visruntime._worker.lending import ALL_SEALS, MAX_BYTES, Lending, make_memory
from visruntime.errors import ProtocolViolation
from visruntime.guest.values import build_blob

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Sequence
    from typing import Any

    from visruntime._worker.framed_values import Choice
    from visruntime._worker.place import Reader

__all__ = ["WorkerValues"]

BESIDE_BYTES = 8 << 20
"""Plain bytes up to this size go with the frame: to make shared memory for them takes longer."""
MAX_SENT = 64
"""Buffers that go along with one frame."""


class WorkerValues(FramedValues):
    """Encodes for one worker on Linux and decodes what it says, one run at a time."""

    __slots__ = ("_kept", "_lending", "_moved", "_outgoing", "_sent_bytes", "_used")

    def __init__(self, poll: select.poll) -> None:
        """Begin; *poll* is that of whoever calls `read` for what is ready."""
        super().__init__()
        self._lending = Lending(poll)
        self._outgoing: list[int] = []
        self._sent_bytes = 0
        self._moved = 0
        self._used: dict[int, memoryview] = {}
        self._kept: dict[int, memoryview] = {}
        self._use(self._take, _build_blob)

    def note_calls(self, reader: Reader | None) -> None:
        """Have *reader* note each call on what is lent to its process; None lets go of it."""
        self._lending.noted = nullcontext if reader is None else reader.noted

    # Host to guest.

    def encode(self, value: Any) -> bytes:
        """Encode; the memory of large arrays waits in `outgoing` for the frame.

        Raises:
            TypeError, ValueError: it does not cross.
        """
        self.drop_outgoing()
        try:
            return _native.encode(value, reduce=self._reduce, beside=BESIDE_BYTES)
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

    def _store(self, data: memoryview) -> tuple[int, int]:
        size = len(data)
        if len(self._outgoing) >= MAX_SENT or self._sent_bytes + size > MAX_BYTES:
            raise ValueError(
                f"cannot encode: more than {MAX_SENT} large values at once, or {MAX_BYTES} bytes "
                "of them in one run"
            )
        self._sent_bytes += size
        self._moved += size
        descriptor = make_memory(size)
        self._outgoing.append(descriptor)
        memoryview(_native.map_memory(descriptor, size, "w"))[:] = data  # and unmapped again
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, ALL_SEALS)
        return len(self._outgoing) - 1, size

    # Guest to host.

    def lend(self, payload: bytes) -> bytes:
        """Answer a BUFFER frame; the memory waits in `outgoing` for the frame of the answer.

        Raises:
            ProtocolViolation: it has not the agreed shape.
        """
        number, size, copied = _read_wish(payload)
        self.drop_outgoing()
        try:
            lent, descriptor = self._lending.lend(size, copied=copied)
        except (ValueError, MemoryError) as problem:
            return _answer(number, None, (type(problem).__name__, str(problem), {}))
        except OSError as problem:
            return _answer(number, None, ("OSError", problem.strerror or "", {}))
        self._outgoing.append(descriptor)
        return _answer(number, lent, None)

    def read(self, descriptor: int) -> bool:
        """Read what is ready of a value that is under way; False if it is something else."""
        return self._lending.read(descriptor)

    def _take(self, number: Any, size: Any) -> memoryview:
        if type(number) is not int or type(size) is not int:
            raise ValueError("not a buffer")
        data = self._kept.pop(number, None)
        if data is None:
            data = self._lending.take(number, size)
            self._moved += size
        if self.types is not None:
            self._used[number] = data
        return data

    def _decode(self, payload: bytes, chosen: Choice) -> Any:
        try:
            return super()._decode(payload, chosen)
        finally:
            self._kept.clear()
            self._used.clear()

    def _decode_plain(self, payload: bytes, chosen: Choice) -> Any:
        self._kept, self._used = self._used, {}  # what was lent is given once
        return super()._decode_plain(payload, chosen)

    def end_run(self) -> None:
        """Give back what was lent and not used."""
        self.drop_outgoing()
        self._sent_bytes = self._moved = 0
        self._lending.end_run()


def _build_blob(kind: Any, data: Any) -> Any:
    # What is no view of bytes is memory of the guest's, and to copy it has no bound.
    if type(data) is not memoryview or type(data.obj) is not bytes:
        raise ValueError("bytes that were not to be copied")
    return build_blob(kind, data)


def _answer(number: int, value: int | None, error: tuple[str, str, dict[str, Any]] | None) -> bytes:
    return _native.encode({"id": number, "value": value, "error": error, "interrupted": False})


def _read_wish(payload: bytes) -> tuple[int, int, bool]:
    try:
        wish = read_dict(payload, max_nodes=20)
        number, size, copied = wish["id"], wish["size"], wish["copied"]
    except (ValueError, TypeError, KeyError) as problem:
        raise ProtocolViolation(f"the worker asked for memory wrongly: {problem}") from None
    right = type(number) is int and type(size) is int and type(copied) is bool
    if not right or not 0 <= number < 1 << 63 or not 0 < size < 1 << 62:
        raise ProtocolViolation("the worker asked for memory of no size")
    return number, size, copied

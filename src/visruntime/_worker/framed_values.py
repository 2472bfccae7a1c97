"""Values of one worker that cross with the frames, all of them, in either direction.

So it is where no descriptor crosses, on Windows. On Linux `visruntime._worker.values` has large ones
cross beside the frames.
"""

from __future__ import annotations

import sys

from visruntime import _native
from visruntime._host.imports import late_import
from visruntime._host.trusted_finder import GUESTS
from visruntime._runtime.known_types import Mismatch
from visruntime.errors import ProtocolViolation
from visruntime.guest.arrays import (
    Array,
    convert_array,
    reduce_array,
    reduce_octets,
    reduce_stored,
)
from visruntime.guest.values import BUILDERS, Handle, Repr, check_data, reduce_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from visruntime._runtime.known_types import KnownTypes

    Builders = tuple[Callable[..., Any], ...]
    Choice = Callable[[Builders], Builders]

__all__ = ["FramedValues"]


class FramedValues:
    """Encodes for one worker and decodes what it says, one run at a time.

    ``types`` are the classes that records become, and ``mismatch`` says what was wrong with one of
    those that was decoded last. ``data_only`` says that the reply to come may hold no handle, and
    no word on an object of the guest's.
    """

    __slots__ = ("_builders", "_plain_builders", "data_only", "mismatch", "types")

    def __init__(self) -> None:
        self.types: KnownTypes | None = None
        self.mismatch: str | None = None
        self.data_only = False
        self._use(BUILDERS[12], BUILDERS[17])

    def _use(self, take: Callable[..., Any], build_blob: Callable[..., Any]) -> None:
        """Choose what becomes of buffers beside the frames, and of octets that are no plain bytes."""
        self._plain_builders: Builders = (
            *BUILDERS[:12],
            take,
            self._build_array,
            self._build_table,
            *BUILDERS[15:17],
            build_blob,
        )
        self._builders = (
            *self._plain_builders[:10],
            self._build_record,
            *self._plain_builders[11:],
        )

    # Host to guest.

    def encode(self, value: Any) -> bytes:
        """Encode.

        Raises:
            TypeError, ValueError: it does not cross.
        """
        return _native.encode(value, reduce=self._reduce)

    @property
    def outgoing(self) -> Sequence[int]:
        """Descriptors that belong to what was encoded last."""
        return ()

    def take_moved(self) -> int:
        """Bytes of values that have crossed beside the frames since this was asked."""
        return 0

    def _reduce(self, value: Any) -> tuple[Any, ...] | None:
        parts = reduce_stored(value)
        if parts is None:
            parts = reduce_octets(value, self._store)
        if parts is None and GUESTS.known:
            # pyarrow and pandas import more when they meet a time zone.
            with GUESTS.left_out():
                parts = reduce_array(value, self._store)
        elif parts is None:
            parts = reduce_array(value, self._store)
        return reduce_value(value) if parts is None else parts

    def _store(self, _data: memoryview) -> tuple[int, int] | None:
        """Put large data beside the frame, if there is anything to put it in."""
        return None

    # Guest to host.

    def lend(self, payload: bytes) -> bytes:  # noqa: ARG002 (that of Linux reads it)
        """Answer a BUFFER frame.

        Raises:
            ProtocolViolation: it is malformed, or there is nothing to lend.
        """
        raise ProtocolViolation("the worker asked for memory, and none can be lent to it")

    def _build_record(self, kind: Any, type_name: Any, fields: Any) -> Any:
        record = BUILDERS[10](kind, type_name, fields)
        if self.types is None:
            return record
        try:
            return self.types.build(record)
        except Mismatch as problem:
            self.mismatch = self.mismatch or str(problem)
            return record

    def _build_array(self, dtype: Any, shape: Any, data: Any) -> Any:
        array = self._guard(Array(dtype, shape, check_data(data)))
        # A guest's word is no reason to import a library.
        return convert_array(array) if "numpy" in sys.modules else array

    def _build_table(self, data: Any) -> Any:
        return self._guard(BUILDERS[14](data))

    def _guard(self, value: Any) -> Any:
        value.importing = late_import
        return value

    def decode_reply(self, payload: bytes) -> Any:
        """Decode a reply as :meth:`decode`, with nothing but data where only that may come."""
        return self._decode(payload, _data_only if self.data_only else tuple)

    def decode(self, payload: bytes) -> Any:
        """Decode what the worker says; records of known types become those.

        Raises:
            ValueError: it is malformed.
        """
        return self._decode(payload, tuple)

    def _decode(self, payload: bytes, chosen: Choice) -> Any:
        self.mismatch = None
        try:
            return _native.decode(payload, builders=chosen(self._builders))
        except ValueError as problem:
            if self.types is None:
                raise
            # Two records may be one key once they are objects: that is no fault of the encoding.
            reason = self.mismatch or str(problem)
            value = self._decode_plain(payload, chosen)
            self.mismatch = reason
            return value

    def _decode_plain(self, payload: bytes, chosen: Choice) -> Any:
        """Decode again, records as they are."""
        return _native.decode(payload, builders=chosen(self._plain_builders))

    def end_run(self) -> None:
        """Give back what the run has not used."""


def _data_only(builders: Builders) -> Builders:
    """*builders* for a value in which nothing stands for an object of the guest's."""
    return tuple(_refuse_object if builder in (Handle, Repr) else builder for builder in builders)


def _refuse_object(*_: object) -> Any:
    raise ValueError("a word on an object, where only data may be")

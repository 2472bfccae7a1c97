"""The framing of the worker protocol, without any input or output.

Both sides use it: the host through `visruntime.protocol`, the worker directly. A frame is a
16-byte header and a payload that is one encoded value; doc/reference/protocol.md specifies
both. Standard library only, and nothing that costs start-up time.
"""

from __future__ import annotations

from _operator import itemgetter
from _struct import Struct

TYPE_CHECKING = False  # typing costs a worker's start-up more than this module does
if TYPE_CHECKING:
    from typing import Final

__all__ = [
    "CHUNK",
    "GUEST_TYPES",
    "HEADER_SIZE",
    "HOST_TYPES",
    "MAX_CONTROL_PAYLOAD",
    "MAX_VALUE_PAYLOAD",
    "NAMES",
    "VALUE_TYPES",
    "VERSION",
    "Frame",
    "FrameDecoder",
    "FrameEncoder",
    "FrameError",
    "encode_frame",
]

VERSION: Final = 1
"""First byte of every frame."""

HELLO: Final = 1
RUN: Final = 2
CALL: Final = 3
CALLBACK: Final = 4
CALLBACK_REPLY: Final = 5
STREAM: Final = 6
RESULT: Final = 7
DENIED: Final = 8
INTERRUPT: Final = 9
RESET: Final = 10
FORK: Final = 11
DUMP: Final = 12
LOG: Final = 13
BYE: Final = 14
DISPLAY: Final = 15
INPUT: Final = 16
BUFFER: Final = 17

NAMES: Final = (
    *("", "HELLO", "RUN", "CALL", "CALLBACK", "CALLBACK_REPLY", "STREAM", "RESULT"),
    *("DENIED", "INTERRUPT", "RESET", "FORK", "DUMP", "LOG", "BYE", "DISPLAY", "INPUT", "BUFFER"),
)
"""Name of each frame type; the number is the index, 0 is no type."""

HOST_TYPES: Final = frozenset({HELLO, RUN, CALL, CALLBACK_REPLY, INTERRUPT, RESET, FORK, DUMP, BYE})
"""What the host may send."""
GUEST_TYPES: Final = frozenset(
    {HELLO, CALLBACK, STREAM, RESULT, DENIED, FORK, DUMP, LOG, BYE, DISPLAY, INPUT, BUFFER}
)
"""What a worker may send."""
VALUE_TYPES: Final = frozenset({RUN, CALL, CALLBACK, CALLBACK_REPLY, STREAM, RESULT, DISPLAY})
"""Types whose payload may be as large as a value; all others are control frames."""

MAX_CONTROL_PAYLOAD: Final = 1024 * 1024
"""Bytes of payload of a frame that is not in `VALUE_TYPES`."""
MAX_VALUE_PAYLOAD: Final = 64 * 1024 * 1024
"""Bytes of payload of a frame in `VALUE_TYPES`, unless the host sets another limit."""
CHUNK: Final = 64 * 1024
"""Bytes that a reader asks the socket for at once."""

_HEADER = Struct("<BBHIQ")
HEADER_SIZE: Final = 16
"""Bytes before the payload."""


class FrameError(ValueError):
    """The other side sent bytes that are not the frame that had to come next."""


class Frame(tuple):  # type: ignore[type-arg]
    """One frame: ``type`` (a number of the table), ``sequence`` and ``payload`` (bytes)."""

    __slots__ = ()

    type: int = property(itemgetter(0))  # type: ignore[assignment]
    sequence: int = property(itemgetter(1))  # type: ignore[assignment]
    payload: bytes = property(itemgetter(2))  # type: ignore[assignment]


def _type_name(number: int) -> str:
    return NAMES[number] if 0 < number < len(NAMES) else f"type {number}"


def encode_frame(kind: int, sequence: int, payload: bytes, descriptors: int = 0) -> bytes:
    """Return the bytes of one frame, with which *descriptors* descriptors are sent."""
    return _HEADER.pack(VERSION, kind, descriptors, len(payload), sequence) + payload


class FrameEncoder:
    """Numbers the frames of one direction, from 1.

    ``allowed`` is `HOST_TYPES` or `GUEST_TYPES`; ``max_payload`` bounds value frames, in bytes.
    """

    __slots__ = ("_allowed", "_max_payload", "_next")

    def __init__(self, allowed: frozenset[int], *, max_payload: int = MAX_VALUE_PAYLOAD) -> None:
        self._allowed = allowed
        self._max_payload = max_payload
        self._next = 1

    def frame(self, kind: int, payload: bytes, descriptors: int = 0) -> bytes:
        """Return the bytes of the next frame; so many *descriptors* are sent with its first byte.

        Raises:
            ValueError: this direction has no such type, or the payload is too large; nothing
                was numbered, so the connection is still good.
        """
        if kind not in self._allowed:
            raise ValueError(f"this side does not send {_type_name(kind)} frames")
        limit = self._max_payload if kind in VALUE_TYPES else MAX_CONTROL_PAYLOAD
        if len(payload) > limit:
            raise ValueError(f"a {_type_name(kind)} payload is larger than {limit} bytes")
        data = encode_frame(kind, self._next, payload, descriptors)
        self._next += 1
        return data


class FrameDecoder:
    """Cuts the bytes of one direction into frames and checks every header.

    ``allowed`` is what the *other* side may send. A payload is collected as it arrives: a
    length alone allocates nothing. After a `FrameError` the decoder refuses everything.
    """

    __slots__ = ("_allowed", "_body", "_failed", "_head", "_max_payload", "_missing", "_next")

    def __init__(self, allowed: frozenset[int], *, max_payload: int = MAX_VALUE_PAYLOAD) -> None:
        self._allowed = allowed
        self._max_payload = max_payload
        self._next = 1
        self._head = b""  # an unfinished header, or the header of an unfinished payload
        self._body = bytearray()  # one buffer: many tiny pieces cost no more than their bytes
        self._missing = 0  # bytes that the unfinished payload still lacks
        self._failed = False

    @property
    def pending(self) -> bool:
        """Whether the bytes so far end inside a frame."""
        return bool(self._head)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take the next bytes, cut anywhere, and return the frames that they complete.

        Raises:
            FrameError: with the reason; the connection must be given up.
        """
        if self._failed:
            raise FrameError("the connection failed before")
        try:
            return self._feed(memoryview(data))
        except FrameError:
            self._failed = True
            self._body = bytearray()
            raise

    def _feed(self, data: memoryview) -> list[Frame]:
        frames: list[Frame] = []
        size = len(data)
        at = 0
        if self._head:
            at = self._resume(data, frames)
        while size - at >= HEADER_SIZE:
            kind, length = self._check(data, at)
            start = at + HEADER_SIZE
            at = start + length
            if at > size:
                self._head = bytes(data[start - HEADER_SIZE : start])
                self._body += data[start:]
                self._missing = at - size
                return frames
            frames.append(Frame((kind, self._next, bytes(data[start:at]))))
            self._next += 1
        if at < size:
            self._head = bytes(data[at:])
        return frames

    def _resume(self, data: memoryview, frames: list[Frame]) -> int:
        """Go on with the unfinished frame; return how much of *data* it took."""
        used = 0
        if len(self._head) < HEADER_SIZE:
            used = min(HEADER_SIZE - len(self._head), len(data))
            self._head += bytes(data[:used])
            if len(self._head) < HEADER_SIZE:
                return used
            self._missing = self._check(self._head, 0)[1]
        take = min(self._missing, len(data) - used)
        self._body += data[used : used + take]
        self._missing -= take
        if self._missing == 0:
            frames.append(Frame((self._head[1], self._next, bytes(self._body))))
            self._next += 1
            self._head = b""
            self._body = bytearray()
        return used + take

    def _check(self, data: bytes | memoryview, at: int) -> tuple[int, int]:
        """The type and payload length of the header at *at*, if it is the one due now."""
        version, kind, flags, length, sequence = _HEADER.unpack_from(data, at)
        if version != VERSION:
            raise FrameError(f"frame version {version}, expected {VERSION}")
        if kind not in self._allowed:
            raise FrameError(f"a {_type_name(kind)} frame is not allowed in this direction")
        if flags != 0:
            raise FrameError(f"unknown frame flags {flags:#06x}")
        if sequence != self._next:
            raise FrameError(f"frame number {sequence}, expected {self._next}")
        if length > (self._max_payload if kind in VALUE_TYPES else MAX_CONTROL_PAYLOAD):
            raise FrameError(f"a {_type_name(kind)} frame of {length} bytes is too large")
        return kind, length

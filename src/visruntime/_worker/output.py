"""What is kept of a worker's stdout and stderr, however it is read."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHUNK", "Capture", "Late", "Output"]

CHUNK = 65536
"""Bytes that are read at once."""


class Capture:
    """Keeps the head and the tail of one output stream, and counts the rest."""

    __slots__ = ("_half", "_head", "_tail", "dropped")

    def __init__(self, limit: int | None) -> None:
        self._half = None if limit is None else max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Take more output."""
        if self._half is None:
            self._head += data
            return
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trimmed rarely, so that each byte is moved a bounded number of times.
        if len(self._tail) > 2 * self._half + CHUNK:
            self._trim(self._half)

    def _trim(self, half: int) -> None:
        excess = len(self._tail) - half
        if excess > 0:
            del self._tail[:excess]
            self.dropped += excess

    def take(self) -> bytes:
        """What was kept."""
        if self._half is not None:
            self._trim(self._half)
        return bytes(self._head + self._tail)

    @property
    def seam(self) -> int | None:
        """Where something was left out of what `take` returned, ``None`` for nowhere."""
        return len(self._head) if self.dropped else None


class Late:
    """What was written to one stream between two runs, and how many bytes of it are gone."""

    __slots__ = ("data", "dropped")

    def __init__(self) -> None:
        self.data = b""
        self.dropped = 0

    def add(self, capture: Capture, limit: int | None = None) -> None:
        """Take over what *capture* kept; with *limit*, only so many bytes at the end stay."""
        self.data += capture.take()
        self.dropped += capture.dropped
        excess = 0 if limit is None else len(self.data) - limit
        if excess > 0:
            self.data = self.data[excess:]
            self.dropped += excess


class Output(ABC):
    """One of the two streams, at the host's end."""

    __slots__ = ("_end", "_sink", "capture", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.capture = Capture(0)
        self._sink: Callable[[str, bytes], None] | None = None
        self._end = False

    def begin(self, limit: int | None, sink: Callable[[str, bytes], None] | None) -> None:
        """Collect anew; *sink* gets each chunk as it comes."""
        self.capture = Capture(limit)
        self._sink = sink

    def _keep(self, data: bytes) -> int:
        """Take what was read, nothing at the end of the stream; return its size."""
        if not data:
            self._end = True
            return 0
        self.capture.add(data)
        if self._sink is not None:
            self._sink(self.name, data)
        return len(data)

    @abstractmethod
    def drain(self) -> None:
        """Read what is in the pipe at this moment and no more."""

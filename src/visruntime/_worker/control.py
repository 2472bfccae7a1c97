"""The host's end of a worker's control socket: orders to the thread that needs no lock."""

from __future__ import annotations

import _socket as socket
import select
import struct
import time
from _thread import allocate_lock
from contextlib import suppress

from visruntime._runtime.traceback import printable
from visruntime._worker.limit import STACKS_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

__all__ = ["MAX_STACKS", "STACKS_SECONDS", "Control"]

MAX_STACKS = 1024 * 1024
"""Bytes of stack text that are kept."""
_PACKET = struct.Struct("<cQ")
_CHUNK = 65536
_QUIETLY = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_HUNG_UP = select.POLLHUP | select.POLLRDHUP


class Control:
    """Gives orders and reads the answers; any thread may, also while another is in a run.

    What comes back was written by the worker's process, so it is a claim like all else.
    """

    __slots__ = ("_beats", "_lock", "_socket")

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = allocate_lock()
        self._beats = 0

    def close(self) -> None:
        """Give the socket back; the worker's control thread ends the worker then."""
        self._socket.close()

    def interrupt(self, run: int) -> None:
        """Break that run, and again until it is over; nothing if it is over already."""
        self._order(b"I", run)

    def _order(self, letter: bytes, number: int) -> None:
        # It may have ended, or have orders enough that it does not obey.
        with suppress(OSError):
            self._socket.send(_PACKET.pack(letter, number), _QUIETLY)

    def hand_over(self, descriptors: Sequence[int]) -> None:
        """Give the worker what a copy of it is to have; its control thread ends then.

        Raises:
            OSError: it takes no orders, or too many descriptors are in flight.
        """
        numbers = struct.pack(f"{len(descriptors)}i", *descriptors)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)
        self._socket.sendmsg([_PACKET.pack(b"F", 0)], [rights], _QUIETLY)

    def stacks(self, seconds: float = STACKS_SECONDS) -> str:
        """Every Python thread's stack as text, printable; answered even while C code runs.

        Raises:
            TimeoutError: the worker did not answer, or never stops.
        """
        text = bytearray()
        with self._exclusive(seconds) as packets:
            self._order(b"D", 0)
            for data in packets:
                text += data
                if text.endswith(b"\0"):
                    return printable(text[:-1].decode("utf-8", "replace"))
                if len(text) > MAX_STACKS:
                    break
        raise TimeoutError("the worker did not write its stacks")

    def ping(self, seconds: float) -> float:
        """Return how many seconds the control thread took to answer.

        Raises:
            TimeoutError: it did not within *seconds*.
        """
        with self._exclusive(seconds) as packets:
            self._beats += 1
            # Late answers to earlier questions carry other numbers.
            question = _PACKET.pack(b"H", self._beats)
            started = time.monotonic()
            self._order(b"H", self._beats)
            for data in packets:
                if data == question:
                    return time.monotonic() - started
        raise TimeoutError(f"the worker did not answer for {seconds:g} s")

    def _exclusive(self, seconds: float) -> _Packets:
        return _Packets(self, self._lock, time.monotonic() + seconds)

    def _read(self, timeout: float) -> bytes | None:
        """Read one packet; ``None`` after *timeout* seconds or when the worker has ended.

        A packet may be empty, which a read alone does not tell from the end.
        """
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN | select.POLLRDHUP)
            events = poll.poll(timeout * 1000)
            if not events:
                return None
            data = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
        except (OSError, ValueError):  # closed meanwhile, by the thread that is in a call
            return None
        return None if not data and events[0][1] & _HUNG_UP else data


class _Packets:
    """What comes until a deadline, for one thread at a time."""

    __slots__ = ("_control", "_deadline", "_lock")

    def __init__(self, control: Control, lock: object, deadline: float) -> None:
        self._control = control
        self._lock: Any = lock
        self._deadline = deadline

    def __enter__(self) -> Iterator[bytes]:
        if not self._lock.acquire(timeout=self._left()):
            raise TimeoutError("another thread is asking the worker, which does not answer")
        try:
            while (
                self._control._read(0) is not None
            ):  # what the guest may have written there before
                if self._left() == 0:
                    raise TimeoutError("the worker writes without end where its answer would come")
        except BaseException:
            self._lock.release()
            raise
        return self._come()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0)

    def _come(self) -> Iterator[bytes]:
        while (left := self._left()) > 0 and (data := self._control._read(left)) is not None:
            if data:
                yield data

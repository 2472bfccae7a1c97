"""The host's side of the worker protocol: frames with encoded values over a private socket.

The framing itself is in `visruntime.guest.frames`, which the worker uses too. What comes in
is hostile: anything that is not exactly the frame that may come next is a
`ProtocolViolation`, after which the worker must be ended.
"""

from __future__ import annotations

import _socket as socket
import contextlib
import select
import threading
import time

from visruntime import _native
from visruntime.errors import ProtocolViolation
from visruntime.guest.frames import (
    BUFFER,
    BYE,
    CALL,
    CALLBACK,
    CALLBACK_REPLY,
    CHUNK,
    DENIED,
    DISPLAY,
    DUMP,
    FORK,
    GUEST_TYPES,
    HEADER_SIZE,
    HELLO,
    HOST_TYPES,
    INPUT,
    INTERRUPT,
    LOG,
    MAX_CONTROL_PAYLOAD,
    MAX_VALUE_PAYLOAD,
    NAMES,
    RESET,
    RESULT,
    RUN,
    STREAM,
    VALUE_TYPES,
    VERSION,
    Frame,
    FrameDecoder,
    FrameEncoder,
    FrameError,
    encode_frame,
)
from visruntime.guest.values import Handle, Record, Repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

__all__ = [
    "BUFFER",
    "BYE",
    "CALL",
    "CALLBACK",
    "CALLBACK_REPLY",
    "CHUNK",
    "DENIED",
    "DISPLAY",
    "DUMP",
    "FORK",
    "GUEST_TYPES",
    "HEADER_SIZE",
    "HELLO",
    "HOST_TYPES",
    "INPUT",
    "INTERRUPT",
    "LOG",
    "MAX_CONTROL_PAYLOAD",
    "MAX_VALUE_NODES",
    "MAX_VALUE_PAYLOAD",
    "NAMES",
    "RESET",
    "RESULT",
    "RUN",
    "STREAM",
    "VALUE_TYPES",
    "VERSION",
    "Channel",
    "Frame",
    "FrameDecoder",
    "FrameEncoder",
    "FrameError",
    "Handle",
    "Record",
    "Repr",
    "encode_frame",
]

MAX_VALUE_NODES = 1_000_000
"""Parts of one value: every item, key, field and container counts one."""


class Channel:
    """One worker's connection: whole frames in, whole frames out.

    ``sock`` is a connected AF_UNIX stream socket in blocking mode; the channel owns it.
    ``max_value_bytes`` and ``max_value_nodes`` bound one value in either direction. Any thread
    may send; one thread at a time receives.
    """

    __slots__ = (
        *("_broken", "_buffer", "_decoder", "_encoder", "_frames", "_lock"),
        *("_max_bytes", "_max_nodes", "_readable", "_sock", "_view"),
    )

    def __init__(
        self,
        sock: socket.socket,
        *,
        max_value_bytes: int = MAX_VALUE_PAYLOAD,
        max_value_nodes: int = MAX_VALUE_NODES,
    ) -> None:
        self._sock = sock
        # Out of band data (Linux 5.15) would wake the reader, and then not be there to read.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        self._max_bytes = max_value_bytes
        self._max_nodes = max_value_nodes
        self._encoder = FrameEncoder(HOST_TYPES, max_payload=max_value_bytes)
        self._decoder = FrameDecoder(GUEST_TYPES, max_payload=max_value_bytes)
        self._lock = threading.Lock()
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._frames: list[Frame] = []  # received and not yet handed out, last one first
        self._broken = False
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    def fileno(self) -> int:
        """Return the socket's descriptor, for a caller that waits on several things."""
        return self._sock.fileno()

    def close(self) -> None:
        """End the connection: the worker, and a thread that waits in `receive`, see its end.

        That holds even where a forked child of the host still has a copy of the socket.
        """
        with contextlib.suppress(OSError):  # closed before, or the worker is gone already
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- sending ----

    def send(self, kind: int, value: object, *, timeout: float | None = None) -> None:
        """Send one frame.

        Args:
            kind: a frame type that the host may send.
            value: what the worker gets.
            timeout: seconds until a worker that does not read is given up.

        Raises:
            TypeError, ValueError: the value does not cross; nothing was sent.
            TimeoutError: the frame was not taken in time; the connection is unusable.
            EOFError: the worker has closed its end.
        """
        payload = _native.encode(value, max_bytes=self._max_bytes, max_nodes=self._max_nodes)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            if self._broken:
                raise EOFError("the connection to the worker broke before")
            data = self._encoder.frame(kind, payload)
            # Only a frame that went out whole leaves the stream usable, whatever interrupts.
            self._broken = True
            self._write(data, deadline)
            self._broken = False

    def _write(self, data: bytes, deadline: float | None) -> None:
        flags = socket.MSG_NOSIGNAL | (0 if deadline is None else socket.MSG_DONTWAIT)
        rest = memoryview(data)
        while True:
            try:
                rest = rest[self._sock.send(rest, flags) :]
            except BlockingIOError:
                writable = select.poll()
                writable.register(self._sock, select.POLLOUT)
                self._wait(writable, deadline, "the worker does not read its frames")
            except (BrokenPipeError, ConnectionResetError):
                raise EOFError("the worker closed its connection") from None
            if not rest:
                return

    # ---- receiving ----

    def receive(self, *, timeout: float | None = None) -> tuple[int, Any]:
        """Wait for the next frame and return its type and value.

        Args:
            timeout: seconds to wait; None waits for ever. A frame that has partly arrived
                is kept, so the call can be repeated.

        Raises:
            TimeoutError: no whole frame arrived in time.
            EOFError: the worker closed its end, or died.
            ProtocolViolation: the worker sent what its protocol does not allow.
        """
        if not self._frames:
            self._read(None if timeout is None else time.monotonic() + timeout)
        kind, _, payload = self._frames.pop()
        try:
            value = _native.decode(payload, max_bytes=self._max_bytes, max_nodes=self._max_nodes)
        except ValueError as error:
            raise ProtocolViolation(f"{NAMES[kind]} frame: {error}") from None
        return kind, value

    def _read(self, deadline: float | None) -> None:
        """Read until at least one whole frame is there."""
        while not self._frames:
            if deadline is not None and self._sock.fileno() >= 0:
                self._wait(self._readable, deadline, "the worker sent no frame in time")
            try:
                # No room for descriptors: the kernel closes any that come, and says so.
                size, _, flags, _ = self._sock.recvmsg_into((self._view,))
            except ConnectionResetError:
                size, flags = 0, 0
            if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                raise ProtocolViolation("the worker sent a descriptor where none is expected")
            if size == 0:
                where = " inside a frame" if self._decoder.pending else ""
                raise EOFError(f"the worker closed its connection{where}")
            try:
                self._frames = self._decoder.feed(self._view[:size])
            except FrameError as error:
                raise ProtocolViolation(str(error)) from None
            self._frames.reverse()

    def _wait(self, poll: select.poll, deadline: float | None, message: str) -> None:
        """Wait for the event of *poll* or raise TimeoutError(*message*) at *deadline*."""
        left = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
        if not poll.poll(left):
            raise TimeoutError(message)

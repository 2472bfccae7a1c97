"""The worker protocol: only the frame that had to come next is taken, however it is cut."""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visruntime import protocol
from visruntime._native import decode, encode
from visruntime.errors import ProtocolViolation
from visruntime.protocol import (
    BYE,
    CALL,
    CALLBACK,
    CHUNK,
    GUEST_TYPES,
    HEADER_SIZE,
    HELLO,
    HOST_TYPES,
    LOG,
    MAX_CONTROL_PAYLOAD,
    RESULT,
    RUN,
    STREAM,
    Channel,
    FrameDecoder,
    FrameEncoder,
    FrameError,
    encode_frame,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid


def header(
    *, version: int = 1, kind: int = RESULT, flags: int = 0, length: int = 0, sequence: int = 1
) -> bytes:
    """Return a frame header with any fields at all."""
    return struct.pack("<BBHIQ", version, kind, flags, length, sequence)


def stream(*payloads: bytes) -> bytes:
    """Return well-formed guest frames with these payloads."""
    encoder = FrameEncoder(GUEST_TYPES)
    return b"".join(encoder.frame(RESULT, payload) for payload in payloads)


# ---- without input and output ----


def test_header_layout() -> None:
    """The bytes of a frame are the ones that the reference documents."""
    assert HEADER_SIZE == 16
    assert encode_frame(RUN, 0x0102, b"xyz") == (
        b"\x01\x02\x00\x00\x03\x00\x00\x00\x02\x01\x00\x00\x00\x00\x00\x00xyz"
    )


def test_type_numbers() -> None:
    """No frame type changes its number."""
    names = (
        "HELLO RUN CALL CALLBACK CALLBACK_REPLY STREAM RESULT DENIED INTERRUPT RESET FORK DUMP LOG "
        "BYE DISPLAY INPUT BUFFER"
    ).split()
    assert [getattr(protocol, name) for name in names] == list(range(1, 18))
    assert list(protocol.NAMES[1:]) == names
    assert set(range(1, 18)) == HOST_TYPES | GUEST_TYPES


def test_cut_at_every_byte() -> None:
    """No cut, in a header or a payload, changes what comes out."""
    data = stream(b"first", b"", b"third" * 9)
    for cut in range(len(data) + 1):
        decoder = FrameDecoder(GUEST_TYPES)
        frames = decoder.feed(data[:cut])
        assert decoder.pending == (cut not in (0, 21, 37, len(data)))
        frames += decoder.feed(data[cut:])
        assert [(frame.type, frame.sequence, frame.payload) for frame in frames] == [
            (RESULT, 1, b"first"),
            (RESULT, 2, b""),
            (RESULT, 3, b"third" * 9),
        ]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_any_cuts(payloads: list[bytes], sizes: list[int]) -> None:
    """No sequence of cuts changes what comes out, nor does the kind of buffer."""
    data = stream(*payloads)
    decoder = FrameDecoder(GUEST_TYPES)
    frames = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        piece = data[at : at + size]
        frames += decoder.feed((bytes, bytearray, memoryview)[turn % 3](piece))
        at += size
        turn += 1
    assert [frame.payload for frame in frames] == payloads
    assert not decoder.pending


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (header(version=0), "frame version 0"),
        (header(version=2), "frame version 2"),
        (header(kind=0), "type 0 frame is not allowed"),
        (header(kind=18), "type 18 frame is not allowed"),
        (header(kind=RUN), "RUN frame is not allowed"),
        (header(flags=1), "unknown frame flags 0x0001"),
        (header(flags=0x8000), "unknown frame flags 0x8000"),
        (header(sequence=0), "frame number 0, expected 1"),
        (header(sequence=2), "frame number 2, expected 1"),
        (header(sequence=(1 << 64) - 1), "expected 1"),
        (header(length=64 * 1024 * 1024 + 1), "RESULT frame of 67108865 bytes is too large"),
        (header(length=0xFFFFFFFF), "too large"),
        (header(kind=LOG, length=MAX_CONTROL_PAYLOAD + 1), "LOG frame of 1048577 bytes is too"),
    ],
)
def test_wrong_headers(head: bytes, reason: str) -> None:
    """No header but the one that is due is taken, whole or in pieces, and nothing after it."""
    for pieces in ([head], [head[:7], head[7:]], [bytes((byte,)) for byte in head]):
        decoder = FrameDecoder(GUEST_TYPES)
        for piece in pieces[:-1]:
            assert decoder.feed(piece) == []
        with pytest.raises(FrameError, match=reason):
            decoder.feed(pieces[-1])
        with pytest.raises(FrameError, match="failed before"):
            decoder.feed(stream(b""))


def test_replay_and_reordering() -> None:
    """A frame that was valid once is not valid again, nor before its turn."""
    first, second = stream(b"a"), stream(b"a", b"b")[len(stream(b"a")) :]
    for data in (first + first, second, first + second + first, first + second + second):
        with pytest.raises(FrameError, match="frame number"):
            FrameDecoder(GUEST_TYPES).feed(data)
    assert len(FrameDecoder(GUEST_TYPES).feed(first + second)) == 2


def test_length_allocates_nothing() -> None:
    """Neither a lying length nor a payload in tiny pieces takes more memory than it sent."""
    decoder = FrameDecoder(GUEST_TYPES)
    piece = bytes(2)
    tracemalloc.start()
    try:
        decoder.feed(header(length=64 * 1024 * 1024))
        claimed = tracemalloc.get_traced_memory()[1]
        for _ in range(100_000):
            decoder.feed(piece)
        fed = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert claimed < 10_000
    assert fed < 600_000


def test_encoder_refuses_what_the_decoder_would() -> None:
    """No frame is numbered that the other side would refuse."""
    encoder = FrameEncoder(HOST_TYPES, max_payload=10)
    for kind, payload, reason in (
        (RESULT, b"", "does not send RESULT"),
        (99, b"", "does not send type 99"),
        (RUN, bytes(11), "larger than 10 bytes"),
        (HELLO, bytes(MAX_CONTROL_PAYLOAD + 1), "larger than 1048576 bytes"),
    ):
        with pytest.raises(ValueError, match=reason):
            encoder.frame(kind, payload)
    assert encoder.frame(RUN, b"x") == encode_frame(RUN, 1, b"x")
    assert encoder.frame(RUN, b"x") == encode_frame(RUN, 2, b"x")


def test_framing_needs_nothing_of_the_package() -> None:
    """The guest's framing and values import nothing that a bare interpreter has not loaded."""
    path = Path(protocol.__file__).parent / "guest"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import frames, values\n"
        "print(*set(sys.modules) - before)"
    )
    output = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, path], capture_output=True, text=True, check=True
    ).stdout
    assert set(output.split()) <= {
        "frames",
        "values",
        "_operator",
        "_struct",
        "types",
        "__future__",
    }


# ---- over a socket ----


def open_descriptors() -> set[str]:
    """Return the descriptors of this process."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


class Pair:
    """A channel and the bare socket of its guest."""

    def __init__(self, **limits: Any) -> None:
        left, self.guest = socket.socketpair()
        self.channel = Channel(left, **limits)
        self.encoder = FrameEncoder(GUEST_TYPES)

    def say(self, kind: int, value: object) -> None:
        """Send a well-formed frame from the guest."""
        self.guest.sendall(self.encoder.frame(kind, encode(value)))

    def close(self) -> None:
        """Close both ends."""
        self.channel.close()
        self.guest.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield a channel whose other end the test holds."""
    ends = Pair()
    yield ends
    ends.close()


def test_both_directions(pair: Pair) -> None:
    """Values cross unchanged in both directions, several frames in one read included."""
    pair.channel.send(RUN, {"code": "1+1"})
    pair.channel.send(CALL, (1, "x"), timeout=5)
    got = FrameDecoder(HOST_TYPES).feed(pair.guest.recv(CHUNK))
    assert [(frame.type, decode(frame.payload)) for frame in got] == [
        (RUN, {"code": "1+1"}),
        (CALL, (1, "x")),
    ]
    pair.say(STREAM, b"out")
    pair.say(RESULT, 2)
    assert pair.channel.receive() == (STREAM, b"out")
    assert pair.channel.receive(timeout=0) == (RESULT, 2)


def test_timeout_keeps_what_arrived(pair: Pair) -> None:
    """A timeout inside a frame loses no byte of it."""
    data = pair.encoder.frame(RESULT, encode("late"))
    pair.guest.sendall(data[:20])
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="no frame in time"):
        pair.channel.receive(timeout=0.05)
    assert 0.04 < time.monotonic() - began < 5
    pair.guest.sendall(data[20:])
    assert pair.channel.receive(timeout=5) == (RESULT, "late")


def test_large_values_both_ways(pair: Pair) -> None:
    """A value far larger than the socket's buffer crosses in either direction."""
    value = os.urandom(5_000_000)
    received: list[Any] = []

    def guest() -> None:
        decoder = FrameDecoder(HOST_TYPES)
        while not received:
            received.extend(decoder.feed(pair.guest.recv(CHUNK)))
        pair.guest.sendall(pair.encoder.frame(RESULT, received[0].payload))

    thread = threading.Thread(target=guest)
    thread.start()
    pair.channel.send(RUN, value, timeout=20)
    kind, got = pair.channel.receive(timeout=20)
    thread.join()
    assert kind == RESULT
    assert got == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"print('hello from the guest')\n" * 9, "frame version 112"),
        (header(kind=HELLO, sequence=5), "frame number 5"),
        (header(kind=RUN), "RUN frame is not allowed"),
        (encode_frame(RESULT, 1, b""), "RESULT frame: cannot decode: .* at byte 0"),
        (encode_frame(RESULT, 1, b"\x01\xff"), "RESULT frame: cannot decode: an unknown tag"),
        (encode_frame(CALLBACK, 1, b"\x01\x01\x01"), "CALLBACK frame: .* bytes after the value"),
    ],
)
def test_garbage_is_a_violation(pair: Pair, data: bytes, reason: str) -> None:
    """Bytes that are not the frame that is due never become a value."""
    pair.guest.sendall(data)
    with pytest.raises(ProtocolViolation, match=reason):
        pair.channel.receive(timeout=5)


def test_out_of_band_data_is_data(pair: Pair) -> None:
    """A byte out of band makes a socket readable and is not there: it must not hold up the host."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x", socket.MSG_OOB)
        with pytest.raises(BlockingIOError):  # on a plain socket there is nothing to read
            ours.recv(1, socket.MSG_DONTWAIT)
    pair.guest.send(b"x", socket.MSG_OOB)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        pair.channel.receive(timeout=0.2)
    assert time.monotonic() - started < 2
    pair.guest.sendall(bytes(15))
    with pytest.raises(ProtocolViolation, match="version"):
        pair.channel.receive(timeout=5)


def test_descriptors_are_a_violation(pair: Pair) -> None:
    """A descriptor that the guest sends never enters the host, and ends the worker."""
    before = open_descriptors()
    data = pair.encoder.frame(RESULT, encode(1))
    fds = array.array("i", [pair.guest.fileno()] * 4)
    pair.guest.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    with pytest.raises(ProtocolViolation, match="descriptor where none is expected"):
        pair.channel.receive(timeout=5)
    assert open_descriptors() == before


def test_descriptors_do_cross_a_plain_socket(pair: Pair) -> None:
    """The same message hands a descriptor to a receiver that makes room for it: the control."""
    fds = array.array("i", [pair.guest.fileno()])
    pair.guest.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    with socket.socket(fileno=os.dup(pair.channel.fileno())) as receiver:
        got = socket.recv_fds(receiver, 1, 4)[1]
    assert len(got) == 1
    assert os.path.sameopenfile(got[0], pair.guest.fileno())
    os.close(got[0])


def test_limits_of_the_channel() -> None:
    """A value over the channel's own limits goes neither out nor in."""
    ends = Pair(max_value_bytes=1000, max_value_nodes=10)
    try:
        for value in (bytes(1000), list(range(10))):
            with pytest.raises(ValueError, match="cannot encode"):
                ends.channel.send(RUN, value)
        ends.channel.send(RUN, list(range(9)))
        ends.say(RESULT, list(range(10)))
        with pytest.raises(ProtocolViolation, match="more parts than allowed"):
            ends.channel.receive(timeout=5)
        ends.say(RESULT, bytes(1000))
        with pytest.raises(ProtocolViolation, match="too large"):
            ends.channel.receive(timeout=5)
    finally:
        ends.close()


def test_refused_values_leave_the_channel_usable(pair: Pair) -> None:
    """A value that does not cross is an error of that send, and takes no frame number."""
    with pytest.raises(TypeError, match=r"value\['o'\]"):
        pair.channel.send(RUN, {"o": object()})
    with pytest.raises(ValueError, match="does not send RESULT"):
        pair.channel.send(RESULT, 1)
    pair.channel.send(RUN, 1)
    assert FrameDecoder(HOST_TYPES).feed(pair.guest.recv(CHUNK))[0].sequence == 1


def test_guest_that_does_not_read(pair: Pair) -> None:
    """A guest that does not read cannot hold the host beyond its timeout, nor be spoken to again."""
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="does not read"):
        pair.channel.send(RUN, bytes(5_000_000), timeout=0.1)
    assert time.monotonic() - began < 10
    with pytest.raises(EOFError, match="broke before"):
        pair.channel.send(BYE, None)


def test_end_of_the_connection(pair: Pair) -> None:
    """The end of a guest is told from a violation, also in the middle of a frame."""
    pair.say(RESULT, 1)
    pair.guest.sendall(pair.encoder.frame(RESULT, encode("cut"))[:-1])
    pair.guest.close()
    assert pair.channel.receive() == (RESULT, 1)
    with pytest.raises(EOFError, match="inside a frame"):
        pair.channel.receive()
    with pytest.raises(EOFError, match="closed its connection"):
        pair.channel.send(RUN, 1)


def test_concurrent_sends(pair: Pair) -> None:
    """Frames of several threads never mix, and their numbers have no gap."""
    count = 200

    def send_all(mark: int) -> None:
        for i in range(count):
            pair.channel.send(CALL, (mark, i))

    senders = [threading.Thread(target=send_all, args=(mark,)) for mark in range(4)]
    for sender in senders:
        sender.start()
    decoder = FrameDecoder(HOST_TYPES)
    got: list[tuple[int, int]] = []
    while len(got) < 4 * count:
        got += [decode(frame.payload) for frame in decoder.feed(pair.guest.recv(CHUNK))]
    for sender in senders:
        sender.join()
    for mark in range(4):
        assert [number for sender_mark, number in got if sender_mark == mark] == list(range(count))


def test_closed_channel(pair: Pair) -> None:
    """A closed channel neither sends nor receives: the descriptor is gone."""
    with pair.channel:
        pass
    with pytest.raises(OSError, match=rf"\[Errno {errno.EBADF}\]"):
        pair.channel.send(RUN, 1)
    with pytest.raises(OSError, match=rf"\[Errno {errno.EBADF}\]"):
        pair.channel.receive(timeout=30)


@pytest.mark.parametrize("timeout", [None, 30])
def test_close_wakes_the_receiver(pair: Pair, timeout: float | None) -> None:
    """No thread stays in receive() after close(), even while a copy of the socket is open."""
    copy = os.dup(pair.channel.fileno())
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises((EOFError, OSError)):
            pair.channel.receive(timeout=timeout)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    assert not ended.is_set()
    pair.channel.close()
    assert ended.wait(5)
    thread.join()
    assert pair.guest.recv(1) == b""
    os.close(copy)

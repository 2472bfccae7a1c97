"""The worker protocol as its host speaks it, without a descriptor: bytes in, events out.

An :class:`Exchange` knows which frame may come next and refuses every other one. It waits for
nothing, sends nothing and calls nobody, so that a test or a fuzzer drives it with bytes alone, and
any loop (poll, asyncio, Trio) can move those bytes. `worker.py` is the loop that the runtimes use.
"""

from __future__ import annotations

from visruntime import _native
from visruntime._worker.claims import as_dict, read_dict
from visruntime.errors import ProtocolViolation
from visruntime.protocol import (
    BUFFER,
    BYE,
    CALLBACK,
    CALLBACK_REPLY,
    DENIED,
    DISPLAY,
    FORK,
    GUEST_TYPES,
    HELLO,
    HOST_TYPES,
    INPUT,
    NAMES,
    RESULT,
    RUN,
    FrameDecoder,
    FrameEncoder,
    FrameError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from visruntime.protocol import Frame

    Event = tuple[str, Any]
    """One of the words below, and what comes with it."""

__all__ = [
    "ASK",
    "CALL",
    "FORKED",
    "GREETING",
    "LEND",
    "READY",
    "REPLY",
    "SHOW",
    "TELL",
    "Exchange",
]

GREETING = "greeting"
"""The worker said hello; with what it says of itself (a dict)."""
READY = "ready"
"""The environment's start-up files have run; with the worker's word on it (a dict)."""
CALL = "call"
"""A function of the host is asked for; with the payload, to be checked by who answers it."""
SHOW = "show"
"""A display; with the payload, to be checked by who keeps it."""
TELL = "tell"
"""Something that the audit hook refused; with the payload, to be checked by who keeps it."""
ASK = "ask"
"""A line of standard input is asked for; with the payload. It is answered as a call is."""
LEND = "lend"
"""Memory for a large value is asked for; with the payload. It is answered as a call is."""
REPLY = "reply"
"""The request is over; with the reply (a dict that has the right ``id``)."""

FORKED = "forked"
"""The worker has answered the order to copy itself; with why it did not (text), or None."""

_STARTING, _BOOTING, _IDLE, _RUNNING = "starting", "booting", "idle", "running"
_FORKING, _COPIED, _BROKEN = "forking", "copied", "broken"


class Exchange:
    """One worker's side of the protocol is hostile: what may come next, and what has come.

    Methods that start with ``make_`` return bytes that must be sent, whole and in this order.
    ``run_number`` is that of the last request that was made.
    """

    __slots__ = ("_decode", "_decoder", "_encoder", "_state", "run_number")

    def __init__(self, decode: Callable[[bytes], Any] = _native.decode) -> None:
        """Begin; *decode* reads replies, and raises ValueError for malformed ones."""
        self._decode = decode
        self._encoder = FrameEncoder(HOST_TYPES)
        self._decoder = FrameDecoder(GUEST_TYPES)
        self._state = _STARTING
        self.run_number = 0

    def of_copy(self, decode: Callable[[bytes], Any] = _native.decode) -> Exchange:
        """That of a copy of this worker, which has had its bootstrap and says only hello."""
        other = Exchange(decode)
        other._state = _COPIED
        other.run_number = self.run_number
        return other

    @property
    def running(self) -> bool:
        """Whether a request is under way."""
        return self._state is _RUNNING

    # What the host says.

    def make_bootstrap(self, payload: bytes) -> bytes:
        """The first frame: what the worker is to run."""
        return self._encoder.frame(HELLO, payload)

    def make_settings(self, settings: Mapping[str, Any]) -> bytes:
        """The second frame: what the worker is told before any code of the guest runs."""
        return self._encoder.frame(HELLO, _native.encode(dict(settings)))

    def make_request(
        self,
        request: dict[str, Any],
        encode: Callable[[Any], bytes] = _native.encode,
        descriptors: Sequence[int] = (),
    ) -> bytes:
        """A request; it gets the next ``id``, which its reply must have.

        *encode* may fill *descriptors*, which are to be sent with the first byte.

        Raises:
            TypeError, ValueError: it cannot be encoded; then nothing has changed.
            ProtocolViolation: the worker has begun to speak while nothing was asked of it.
        """
        self.check_silent()
        assert self._state is _IDLE, self._state
        request["id"] = self.run_number + 1
        payload = encode(request)
        frame = self._encoder.frame(RUN, payload, len(descriptors))
        self.run_number += 1
        self._state = _RUNNING
        return frame

    def make_answer(self, payload: bytes, descriptors: int = 0) -> bytes:
        """The encoded answer to a call or a question; so many descriptors go with its first byte."""
        return self._encoder.frame(CALLBACK_REPLY, payload, descriptors)

    def make_fork(self, *, has_keeper: bool) -> bytes:
        """The order to copy the worker, for which the control thread has the descriptors.

        Raises:
            ProtocolViolation: the worker has begun to speak while nothing was asked of it.
        """
        self.check_silent()
        assert self._state is _IDLE, self._state
        self._state = _FORKING
        order = {"id": self.run_number, "keeper": has_keeper}
        return self._encoder.frame(FORK, _native.encode(order))

    def make_farewell(self) -> bytes:
        """The last frame."""
        return self._encoder.frame(BYE, b"")

    # What the worker says.

    def check_silent(self) -> None:
        """Make sure that nothing of the worker is unfinished.

        Raises:
            ProtocolViolation: it has begun a frame for which nobody asked.
        """
        if self._decoder.pending:
            raise ProtocolViolation("the worker sent a frame that nobody had asked for")

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take bytes, cut anywhere, and return what they say.

        All of *data* is checked before any of it is returned, so that nothing is done for a worker
        which breaks the protocol in the same breath.

        Raises:
            ProtocolViolation: they break the protocol; the worker must be ended.
        """
        if self._state is _BROKEN:
            raise ProtocolViolation("the worker broke the protocol before")
        try:
            return [self._take(frame) for frame in self._decoder.feed(data)]
        except FrameError as problem:
            self._state = _BROKEN
            raise ProtocolViolation(str(problem)) from None
        except ProtocolViolation:
            self._state = _BROKEN
            raise

    def _take(self, frame: Frame) -> Event:
        kind, _, payload = frame
        if self._state is _RUNNING:
            if kind == RESULT:
                return REPLY, self._read_reply(payload)
            word = _DURING_A_RUN.get(kind)
            if word is not None:
                return word, payload
        elif self._state is _STARTING and kind == HELLO:
            self._state = _BOOTING
            return GREETING, _read(payload)
        elif self._state is _BOOTING and kind == RESULT:
            self._state = _IDLE
            return READY, _read(payload)
        elif self._state is _COPIED and kind == HELLO:
            self._state = _IDLE
            return GREETING, _read(payload)
        elif self._state is _FORKING and kind == FORK:
            return FORKED, self._read_refusal(payload)
        raise ProtocolViolation(_WRONG[self._state].format(NAMES[kind]))

    def _read_refusal(self, payload: bytes) -> str | None:
        reply = _read(payload)
        number, reason = reply.get("id"), reply.get("refused", 0)
        if type(number) is not int or number != self.run_number:
            raise ProtocolViolation("the worker answered another order to copy itself")
        if reason is not None and type(reason) is not str:
            raise ProtocolViolation("the worker's answer to FORK has not the agreed shape")
        self._state = _IDLE
        return reason

    def _read_reply(self, payload: bytes) -> dict[str, Any]:
        reply = _read(payload, self._decode)
        number = reply.get("id")
        if type(number) is not int or number != self.run_number:
            raise ProtocolViolation("the worker replied to another run than the one under way")
        self._state = _IDLE
        return reply


_DURING_A_RUN = {CALLBACK: CALL, DISPLAY: SHOW, DENIED: TELL, INPUT: ASK, BUFFER: LEND}
_WRONG = {
    _STARTING: "the worker did not say hello first, but sent a {} frame",
    _BOOTING: "the worker sent a {} frame before it was ready",
    _IDLE: "the worker sent a {} frame that nobody had asked for",
    _RUNNING: "the worker sent an unexpected {} frame",
    _FORKING: "the worker sent a {} frame instead of an answer to FORK",
    _COPIED: "the copy of the worker did not say hello first, but sent a {} frame",
}


def _read(payload: bytes, decode: Callable[[bytes], dict[str, Any]] = read_dict) -> dict[str, Any]:
    """Decode what a frame says; by default one that carries no value of the guest's."""
    try:
        return as_dict(decode(payload))
    except ValueError as problem:
        raise ProtocolViolation(f"the worker sent a malformed value: {problem}") from None
    except TypeError:
        raise ProtocolViolation("the worker sent something else than a reply") from None

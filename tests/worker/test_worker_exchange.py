"""The worker protocol without any process: what may come when, and that nothing else gets through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visruntime import _native
from visruntime._worker.exchange import (
    ASK,
    CALL,
    GREETING,
    LEND,
    READY,
    REPLY,
    SHOW,
    TELL,
    Exchange,
)
from visruntime.errors import ProtocolViolation
from visruntime.protocol import (
    CALLBACK,
    DISPLAY,
    GUEST_TYPES,
    HELLO,
    HOST_TYPES,
    INPUT,
    RESULT,
    FrameDecoder,
    FrameEncoder,
)

pytestmark = pytest.mark.one_uid

GREETS: dict[str, Any] = {"hook_before_init": True}
STARTED: dict[str, Any] = {"id": 0, "error": None}


class Guest:
    """A worker that says what it is told to say."""

    def __init__(self) -> None:
        self.host = Exchange()
        self.encoder = FrameEncoder(GUEST_TYPES)
        self.decoder = FrameDecoder(HOST_TYPES)

    def say(self, kind: int, value: Any) -> bytes:
        """Return a frame of the worker."""
        return self.encoder.frame(kind, _native.encode(value))

    def started(self) -> Guest:
        """Come to the point at which requests can be made."""
        self.decoder.feed(self.host.make_bootstrap(b"code"))
        self.host.receive(self.say(HELLO, GREETS) + self.say(RESULT, STARTED))
        return self

    def asked(self) -> Guest:
        """Have a request under way."""
        self.decoder.feed(self.host.make_request({"op": "run"}))
        return self


def test_an_exchange_in_order() -> None:
    """Nothing is lost or made up between the first frame and the last, however they are cut."""
    guest = Guest()
    host = guest.host
    said = guest.say(HELLO, GREETS) + guest.say(RESULT, STARTED)
    events = [event for byte in said for event in host.receive(bytes([byte]))]
    assert events == [(GREETING, GREETS), (READY, STARTED)]
    assert not host.running

    (frame,) = guest.decoder.feed(host.make_request({"op": "eval"}))
    assert _native.decode(frame.payload) == {"op": "eval", "id": 1}
    assert host.running
    call = _native.encode({"id": 1})
    assert host.receive(guest.encoder.frame(CALLBACK, call)) == [(CALL, call)]
    both = guest.encoder.frame(DISPLAY, b"d") + guest.encoder.frame(INPUT, b"i")
    assert host.receive(both) == [(SHOW, b"d"), (ASK, b"i")]
    (answer,) = guest.decoder.feed(host.make_answer(b"payload"))
    assert answer.payload == b"payload"
    assert host.receive(guest.say(RESULT, {"id": 1})) == [(REPLY, {"id": 1})]
    assert not host.running
    assert len(guest.decoder.feed(host.make_request({}) + host.make_farewell())) == 2
    assert host.run_number == 2


@pytest.mark.parametrize(
    ("state", "kind", "value"),
    [
        ("new", RESULT, STARTED),
        ("new", CALLBACK, {}),
        ("new", HELLO, [1]),
        ("started", HELLO, GREETS),
        ("started", RESULT, {"id": 1}),
        ("started", CALLBACK, {}),
        ("started", DISPLAY, {}),
        ("started", INPUT, {}),
        ("asked", HELLO, GREETS),
        ("asked", RESULT, {"id": 2}),
        ("asked", RESULT, {"id": 0}),
        ("asked", RESULT, {"id": True}),
        ("asked", RESULT, {"id": 1.0}),
        ("asked", RESULT, {}),
        ("asked", RESULT, 7),
    ],
)
def test_what_may_not_come_now_is_a_violation(state: str, kind: int, value: Any) -> None:
    """A well-formed frame at the wrong moment, or of another request, must not be taken."""
    guest = Guest()
    if state != "new":
        guest.started()
    if state == "asked":
        guest.asked()
    with pytest.raises(ProtocolViolation):
        guest.host.receive(guest.say(kind, value))


def test_nothing_is_done_for_a_worker_that_breaks_the_protocol_in_the_same_breath() -> None:
    """A call that comes together with a forged frame must not reach a function of the host."""
    guest = Guest().started().asked()
    with pytest.raises(ProtocolViolation):
        guest.host.receive(guest.say(CALLBACK, {}) + b"\0" * 16)


def test_bytes_that_nobody_asked_for_stop_the_next_request() -> None:
    """Half a frame after a reply must not wait there to be completed during the next run."""
    guest = Guest().started().asked()
    guest.host.receive(guest.say(RESULT, {"id": 1}) + b"\1")
    with pytest.raises(ProtocolViolation):
        guest.host.make_request({"op": "run"})


def test_a_request_that_cannot_be_encoded_changes_nothing() -> None:
    """The numbers of frames and runs must not have a gap after a TypeError."""
    guest = Guest().started()
    with pytest.raises(TypeError):
        guest.host.make_request({"op": object()})
    assert guest.host.run_number == 0
    (frame,) = guest.decoder.feed(guest.host.make_request({"op": "run"}))
    assert _native.decode(frame.payload)["id"] == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "args", "kwargs", "error"]), inner)
    ),
    max_leaves=6,
)
SAID = st.one_of(
    st.tuples(st.sampled_from(sorted(GUEST_TYPES)), VALUES),
    st.tuples(st.sampled_from(sorted(GUEST_TYPES)), st.binary(max_size=8)),
    st.binary(min_size=1, max_size=40),
)


@settings(max_examples=300, deadline=None)
@given(said=st.lists(SAID, max_size=6), cuts=st.lists(st.integers(1, 30), max_size=20))
def test_whatever_a_worker_says_is_an_event_or_a_violation(
    said: list[Any], cuts: list[int]
) -> None:
    """No bytes raise anything else, and after a violation nothing more is taken."""
    guest = Guest().started().asked()
    stream = b""
    for part in said:
        if type(part) is bytes:
            stream += part
        elif type(part[1]) is bytes:
            stream += guest.encoder.frame(*part)
        else:
            stream += guest.say(*part)
    broken = False
    while stream:
        size = cuts.pop() if cuts else len(stream)
        data, stream = stream[:size], stream[size:]
        try:
            events = guest.host.receive(data)
        except ProtocolViolation:
            broken = True
        else:
            assert not broken
            assert all(kind in {ASK, CALL, LEND, REPLY, SHOW, TELL} for kind, _ in events)
            if any(kind == REPLY for kind, _ in events):
                assert not guest.host.running

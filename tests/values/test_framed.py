"""Large values of a worker on Windows: they go with their frame, and come out as what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from visruntime import _native
from visruntime.guest import framed
from visruntime.guest.arrays import Array
from visruntime.guest.limits import BESIDE_BYTES
from visruntime.guest.values import reduce_value

if TYPE_CHECKING:
    from visruntime.guest.session import Session

pytestmark = pytest.mark.one_uid

SESSION: Any = None  # nothing is asked of it


def reduce(value: object) -> tuple[Any, ...] | None:
    """Take a value apart as the session of a worker on Windows does."""
    session: Session = SESSION
    parts = reduce_value(value)
    return framed.reduce(value, session) if parts is None else parts


def crossed(value: object) -> Any:
    """Return what a host makes of *value*."""
    return _native.decode(_native.encode(value, reduce=reduce))


def test_octets_beyond_those_of_a_frame_elsewhere_stay_whole() -> None:
    """No buffer is asked for: bytes, bytearrays and views of any size are in the frame itself."""
    data = bytes(range(256)) * (BESIDE_BYTES // 128)
    assert len(data) > BESIDE_BYTES
    assert crossed(data) == data
    assert crossed(memoryview(data)[3:]) == data[3:]
    given = bytearray(data)
    assert (type(crossed(given)), crossed(given)) == (bytearray, given)
    assert crossed({"a": [data]}) == {"a": [data]}


def test_an_array_stays_one() -> None:
    """Its type and shape come with it; one that is too large for a frame is refused by name."""
    array = Array("<i4", (2, 300_000), bytes(range(240)) * 10_000)
    found = crossed(array)
    assert (found.dtype, tuple(found.shape), bytes(memoryview(found.data).cast("B"))) == (
        "<i4",
        (2, 300_000),
        bytes(array.data),
    )
    with pytest.raises(ValueError, match="bytes"):
        crossed(bytes(65 << 20))

"""What a worker says, of the one shape that all small frames have: a dict with few parts."""

from __future__ import annotations

from visruntime import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MAX_PARTS", "as_dict", "read_dict"]

MAX_PARTS = 100
"""Parts of the value in a frame that carries none of the guest's, such as HELLO.

A part costs one byte in the frame and hundreds in memory.
"""


def read_dict(payload: bytes, *, max_nodes: int = MAX_PARTS) -> dict[str, Any]:
    """Decode the payload of a frame.

    Raises:
        ValueError: it is malformed, or has more parts.
        TypeError: it is no dict.
    """
    return as_dict(_native.decode(payload, max_nodes=max_nodes))


def as_dict(value: Any) -> dict[str, Any]:
    """Return *value*, whose keys may be looked up now: an array would raise what nobody expects.

    Raises:
        TypeError: it is no dict.
    """
    if type(value) is not dict:
        raise TypeError("it is no dict")
    return value

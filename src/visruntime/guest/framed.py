"""Large values of a worker on Windows, where no descriptor crosses: they go with their frame.

A frame holds 64 MiB; what is larger is refused where it is encoded, as any value would be.
"""

from __future__ import annotations

from .arrays import reduce_array, reduce_octets

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any

    from .session import Session


def reduce(value: object, _session: Session) -> tuple[Any, ...] | None:
    """Take apart an array, a table or octets that are no plain bytes."""
    parts = reduce_octets(value, _nowhere)
    return reduce_array(value, _nowhere) if parts is None else parts


def _nowhere(_data: memoryview) -> None:
    """Store nothing beside the frame."""

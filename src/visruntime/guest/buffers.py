"""Large values of a worker: into memory that the host lends, and out of what the host sent."""

from __future__ import annotations

import posix

import _viscore as core  # type: ignore[import-not-found]

from .arrays import reduce_array, reduce_stored
from .frames import BUFFER
from .values import CONVERTING_BUILDERS

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any

    from .session import Session

_F_ADD_SEALS = 1033
_SEAL_WRITE = 0x8


def reduce(value: object, session: Session) -> tuple[Any, ...] | None:
    """Take apart an array or table; its bytes go into memory of the host."""

    def store(data: memoryview) -> tuple[int, int]:
        number, (descriptor,) = session.ask_host(BUFFER, {"size": len(data)})
        try:
            memoryview(core.map_memory(descriptor, len(data), "w"))[:] = data  # and unmapped again
            import fcntl

            fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEAL_WRITE)
        finally:
            posix.close(descriptor)
        return number, len(data)

    parts = reduce_stored(value)
    return reduce_array(value, store) if parts is None else parts


def decode(payload: bytes, descriptors: tuple[int, ...]) -> Any:
    """Decode what the host says, with the memory that came along.

    It is mapped privately, so that a guest may change its arrays; nobody else sees that.
    """
    memories: list[Any] = []
    try:
        for descriptor in descriptors:
            size = posix.fstat(descriptor).st_size
            memories.append(core.map_memory(descriptor, size, "p"))
    finally:
        for descriptor in descriptors:
            posix.close(descriptor)

    def take(number: int, _size: int) -> memoryview:
        return memoryview(memories[number])

    builders = (*CONVERTING_BUILDERS[:12], take, *CONVERTING_BUILDERS[13:])
    return core.decode(payload, builders=builders)

"""Large values of a worker: into a pipe or memory of the host, and out of what the host sent."""

from __future__ import annotations

import posix

import _viscore as core  # type: ignore[import-not-found]

from .arrays import reduce_array, reduce_octets, reduce_stored
from .frames import BUFFER
from .limits import BESIDE_BYTES
from .values import CONVERTING_BUILDERS

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any

    from .session import Session

_F_ADD_SEALS = 1033
_SEAL_WRITE = 0x8
_TYPE_BITS = 0o170000
_PIPE = 0o010000


def reduce(value: object, session: Session) -> tuple[Any, ...] | None:
    """Take apart an array, a table or large bytes; the bytes go to the host beside the frames."""

    def store(data: memoryview, *, copied: bool = False) -> tuple[int, int]:
        number, (descriptor,) = session.ask_host(BUFFER, {"size": len(data), "copied": copied})
        try:
            if posix.fstat(descriptor).st_mode & _TYPE_BITS == _PIPE:
                core.pour(descriptor, data)
            else:
                _fill(descriptor, data)
        finally:
            posix.close(descriptor)
        return number, len(data)

    def store_array(data: memoryview) -> tuple[int, int] | None:
        try:
            return store(data)
        except ValueError:
            if len(data) > BESIDE_BYTES:
                raise
            return None  # so many are out that this one goes with the frame

    parts = reduce_stored(value)
    if parts is None:
        parts = reduce_octets(value, lambda data: store(data, copied=True))
    return reduce_array(value, store_array) if parts is None else parts


def _fill(descriptor: int, data: memoryview) -> None:
    memoryview(core.map_memory(descriptor, len(data), "w"))[:] = data  # and unmapped again
    import fcntl

    fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEAL_WRITE)


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

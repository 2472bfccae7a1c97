"""What C gave us and has to be given back once, whatever order cycles are collected in.

`cffi.FFI.gc` frees in its finalizer, and in a cycle that may come before the ``__del__`` of an
object that still uses the pointer. Here the pointer goes with it, and a later use is an error.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Owned"]


class Owned:
    """Base of who owns a pointer: ``pointer`` is it, until ``free`` has been called with it.

    Args:
        pointer: not null.
        free: takes it back; called once, at the end of this object.
        gone: makes the error of a use after that.
    """

    __slots__ = ("_free", "_gone", "_pointer")

    def __init__(
        self, pointer: Any, free: Callable[[Any], None], gone: Callable[[], Exception]
    ) -> None:
        self._pointer = pointer
        self._free = free
        self._gone = gone

    @property
    def is_held(self) -> bool:
        """Whether it has not been given back yet."""
        return self._pointer is not None

    @property
    def pointer(self) -> Any:
        """The pointer.

        Raises:
            Exception: what ``gone`` makes; it has been given back.
        """
        if self._pointer is None:
            raise self._gone()
        return self._pointer

    def __del__(self) -> None:
        pointer = getattr(self, "_pointer", None)  # None also where __init__ has failed
        if pointer is not None:
            self._pointer = None
            self._free(pointer)

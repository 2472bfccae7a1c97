"""How long a worker has stood still."""

from __future__ import annotations

import time
from _thread import allocate_lock

__all__ = ["Pauses"]


class Pauses:
    """Adds up the times between `begin` and `end`; any thread may ask or tell."""

    __slots__ = ("_began", "_lock", "_sum")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._began: float | None = None
        self._sum = 0.0

    def begin(self) -> None:
        """It stands still from now on."""
        with self._lock:
            if self._began is None:
                self._began = time.monotonic()

    def end(self) -> None:
        """It goes on."""
        with self._lock:
            if self._began is not None:
                self._sum += time.monotonic() - self._began
                self._began = None

    @property
    def under_way(self) -> bool:
        """Whether it stands still now."""
        return self._began is not None

    def seconds(self) -> float:
        """All of it so far, a pause under way included."""
        if self._began is None and not self._sum:
            return 0.0
        with self._lock:
            now = 0.0 if self._began is None else time.monotonic() - self._began
            return self._sum + now

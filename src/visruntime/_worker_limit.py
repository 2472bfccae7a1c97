"""How long a worker may go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Limit", "Timeout"]

GRACE_SECONDS = 0.5
"""How long a worker that was interrupted may take to reply."""
_LOOK_MILLISECONDS = 250.0


class Timeout(Exception):
    """The run did not end in time. ``reply`` is what it still said, None if it was killed."""

    def __init__(self, reply: dict[str, Any] | None) -> None:
        super().__init__()
        self.reply = reply


class Limit:
    """How long a worker may go on. It holds while we wait, and while we send.

    ``tell`` is called when the time is over; then there is a moment more, and after that, or at
    once where there is nobody to tell, the next question raises :class:`Timeout`.
    """

    __slots__ = ("_end", "_tell", "told")

    def __init__(self, seconds: float | None, tell: Callable[[], object] | None = None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._tell = tell
        self.told = False

    def milliseconds(self) -> float:
        """How long to wait for something to happen."""
        if self._end is None:
            return _LOOK_MILLISECONDS
        left = self._end - time.monotonic()
        if left <= 0:
            if self._tell is None or self.told:
                raise Timeout(None)
            self.told = True
            self._tell()
            left = GRACE_SECONDS
            self._end = time.monotonic() + left
        return min(left * 1000, _LOOK_MILLISECONDS)

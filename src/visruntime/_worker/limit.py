"""How long a worker may go on."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOOK_MILLISECONDS", "STACKS_SECONDS", "Limit", "Timeout"]

LOOK_MILLISECONDS = 250.0
"""How long a wait for a worker lasts at most before it looks around."""
STACKS_SECONDS = 2.0
"""How long a worker may take to write its stacks."""


class Timeout(Exception):
    """The run did not end in time. ``reply`` is what it still said, None if it was killed."""

    def __init__(self, reply: dict[str, Any] | None) -> None:
        super().__init__()
        self.reply = reply


class Limit:
    """How long a worker may go on where there is nothing to interrupt.

    It holds while we wait, and while we send; when it is over, asking raises :class:`Timeout`.
    """

    __slots__ = ("_end",)

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def milliseconds(self) -> float:
        """How long to wait for something to happen."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise Timeout(None)
        return min(left * 1000, LOOK_MILLISECONDS)

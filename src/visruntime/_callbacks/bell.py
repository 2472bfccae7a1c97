"""What wakes whoever waits for a call of the guest."""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # typing costs more than all that a run needs of this package's protocols

__all__ = ["Bell", "DescriptorBell", "EventBell", "make_bell"]


class Bell(Protocol):
    """Rung from any thread; it stays rung until it is heard."""

    def ring(self) -> None:
        """Wake who waits."""

    def hear(self, seconds: float) -> None:
        """Wait for a ring, so long at most, and take it."""

    def fileno(self) -> int:
        """A descriptor that is readable while it is rung; -1 where there is none."""

    def close(self) -> None:
        """Give it back; nobody rings any more."""


class DescriptorBell:
    """One of Linux, which poll(2) waits for beside other descriptors."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        """Wake who waits."""
        os.eventfd_write(self._descriptor, 1)

    def hear(self, seconds: float) -> None:
        """Wait for a ring, so long at most, and take it."""
        import select

        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if poll.poll(seconds * 1000):
            os.eventfd_read(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Give it back."""
        os.close(self._descriptor)


class EventBell:
    """One of every system, for who waits for nothing beside it."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """Wake who waits."""
        self._event.set()

    def hear(self, seconds: float) -> None:
        """Wait for a ring, so long at most, and take it."""
        if self._event.wait(seconds):
            self._event.clear()

    def fileno(self) -> int:
        """No descriptor."""
        return -1

    def close(self) -> None:
        """Nothing is to be given back."""


def make_bell() -> Bell:
    """Return the kind that this system has."""
    return DescriptorBell() if hasattr(os, "eventfd") else EventBell()

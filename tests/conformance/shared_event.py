"""An event that a host and its jailed workers share: a file in a folder that they read."""

from __future__ import annotations

import os
import time
import uuid


class Event:
    """As much of `threading.Event` as CPython's tests of executors use."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, f"event-{uuid.uuid4().hex}")

    def set(self) -> None:
        """Let go who waits; only the host can."""
        with open(self._path, "w"):
            pass

    def wait(self) -> bool:
        """Wait until it is set."""
        while not os.path.exists(self._path):
            time.sleep(0.01)
        return True

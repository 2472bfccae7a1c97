"""What the host sees happening in a folder: inotify(7), for tests that must see nothing."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from typing import Self

__all__ = ["Watch"]

EVENTS = 0x00000100 | 0x00000200 | 0x00000040 | 0x00000080  # create, delete, moved from and to
HEADER = struct.Struct("iIII")


class Watch:
    """Watches the names of some folders, from when it is made until it is closed."""

    def __init__(self, *folders: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: set[str] = set()
        for folder in folders:
            watch = libc.inotify_add_watch(self._descriptor, os.fsencode(folder), EVENTS)
            assert watch >= 0, os.strerror(ctypes.get_errno())

    def names(self) -> set[str]:
        """Return every name that came or went so far."""
        while self._descriptor >= 0 and select.select([self._descriptor], [], [], 0.05)[0]:
            data = os.read(self._descriptor, 65536)
            while data:
                size = HEADER.unpack_from(data)[3]
                name = data[HEADER.size : HEADER.size + size].rstrip(b"\0")
                self._names.add(os.fsdecode(name))
                data = data[HEADER.size + size :]
        return set(self._names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.names()
        os.close(self._descriptor)
        self._descriptor = -1

"""Text of a guest, for people."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """*text* of a guest without control characters, for messages and terminals."""
    # A guest chooses the length, so no step here is taken for each character in Python.
    unsafe = [c for c in set(text) if c not in "\n\t" and not c.isprintable()]
    return text.translate(dict.fromkeys(map(ord, unsafe), "\ufffd")) if unsafe else text

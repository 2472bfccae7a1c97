"""What makes a small policy file expensive to parse, found before it is parsed.

A policy file that is found may be a guest's. Python's TOML parser takes time and memory
that grow with the square of the parts of a dotted key (measured on 3.11: 3 GB for 60 KB),
and half a kilobyte for each part of a table's name.
"""

from __future__ import annotations

import re

__all__ = ["MAX_KEY_PARTS", "MAX_TABLES", "too_expensive"]

MAX_KEY_PARTS = 16
"""Most parts of one dotted key; a policy needs four."""

MAX_TABLES = 5000
"""Most lines that begin with a bracket, as the header of a table does."""

QUOTED = 128
"""Longest part in double quotes that is looked at, in characters: with escapes in them, each
quote could be the first or the last."""

BARE = r"[A-Za-z0-9_-]++"
# Starting only where a bare part begins, and never going back, keeps this linear.
PART = rf"""(?:(?<![A-Za-z0-9_-]){BARE}|"(?:[^"\\\n]|\\.){{0,{QUOTED}}}+"|'[^'\n]*+')"""
LONG_KEY = re.compile(rf"{PART}(?:[ \t]*+\.[ \t]*+{PART}){{{MAX_KEY_PARTS},}}")
TABLE = re.compile(r"^[ \t]*+\[", re.MULTILINE)


def too_expensive(text: str) -> tuple[int, str] | None:
    """Return (line, sentence) for what *text* has too much of, if it has.

    Text in quotes that looks like such a key counts as one: no file needs either.
    """
    found = LONG_KEY.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        return line, f"a key of more than {MAX_KEY_PARTS} parts"
    for count, table in enumerate(TABLE.finditer(text), 1):
        if count > MAX_TABLES:
            line = text.count("\n", 0, table.start()) + 1
            return line, f"more than {MAX_TABLES} lines that begin with a bracket"
    return None

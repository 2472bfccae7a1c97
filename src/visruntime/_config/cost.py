"""What makes a small file expensive to parse as TOML, found before it is parsed.

A policy file that is found may be a guest's, and so may a lock or the metadata of a script. For
Python's parser (`tomllib`, 3.11 to 3.13) the parts of a dotted key cost the square of their
number (measured: 3 GB for 60 KB), each a kilobyte where it has one letter, and each digit of a number
128 bytes. So the text is cut into the same tokens as there, and each is counted with the most
that it costs.

Where the text stops being TOML, the parser stops: what comes behind a quote that nothing closes
is not looked at.
"""

from __future__ import annotations

import re
import sys

__all__ = ["MAX_KEY_PARTS", "MAX_WORD", "MOST_MEMORY", "estimate", "too_expensive"]

MAX_KEY_PARTS = 16
"""Most parts of one dotted key; a policy needs four."""

MAX_WORD = 1000
"""Most characters of a number, or of a part of a key without quotes."""

MOST_MEMORY = 64 * 1024**2
"""Most bytes that parsing a policy may take; one of five thousand rules takes two million."""

# In bytes, each above what tracemalloc measures: see tests/policy/test_config_costs.py.
AT_LEAST = 8192
"""Whatever the text is: the parser's own objects, and an error."""
PER_BYTE = 6
"""Of the text: copies of it, of which some stay as parts of the result."""
PER_TOKEN = 100
"""A value or a comma: an object, and room for it in a list that grows."""
PER_KEY = 250
"""A key of one part: its text, and room for it in a dictionary that grows."""
PER_KEY_PART = 1300
"""One of several: dictionaries of the data, and of what the parser knows of it."""
PER_BEGINNING = 250
"""The parser keeps all beginnings of a dotted key until the next table, each with the name of its
table before it."""
PER_WORD = 8
PER_OPENING = 1700
"""Of a bracket or brace: a table or list, and what the parser knows of it."""

# In double quotes a backslash takes the next character along; never going back keeps it linear.
BASIC = r'"(?:[^"\\\n]++|\\[^\n])*+"'
LITERAL = r"'[^'\n]*+'"
PART = rf"(?:[A-Za-z0-9_-]++|{BASIC}|{LITERAL})"
DOT = r"[ \t]*+\.[ \t]*+"
TOKEN = re.compile(
    r"(?:(?P<skip>\#[^\n]*+"
    r'|"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']++|'{1,2}(?!'))*+'{3,5})"
    # A quote that nothing closes: an error for the parser too, and the end for both.
    r"|(?P<end>\"\"\"|''')"
    rf"|(?P<key>{PART}(?:{DOT}{PART})*+)(?P<named>[ \t]*+[=\]])?"
    r"|(?P<opening>[\[{])"
    r"|(?P<quote>[\"'])"
    r"|(?P<comma>,))",
    re.DOTALL,
)
PARTS = re.compile(PART, re.DOTALL)


def too_expensive(text: str, *, most: int = MOST_MEMORY) -> tuple[int, str] | None:
    """Return (line, sentence) for what *text* has too much of, if it has.

    Args:
        most: bytes of memory that parsing it may take.
    """
    where, what = _look(text, most)[1:]
    return (text.count("\n", 0, where) + 1, what) if what else None


def estimate(text: str) -> int:
    """Return how many bytes of memory parsing *text* takes at most."""
    return _look(text, sys.maxsize)[0]


def _look(text: str, most: int) -> tuple[int, int, str]:
    """Return the bytes that *text* costs, and where and what is too much in it, "" for nothing."""
    cost = AT_LEAST + PER_BYTE * sys.getsizeof(text)
    for token in TOKEN.finditer(text):
        kind = token.lastgroup
        if kind in ("end", "quote"):
            break
        if token["key"] is not None:
            found = PARTS.findall(token["key"])
            if any(len(part) > MAX_WORD and part[0] not in "\"'" for part in found):
                what = f"a word or number of more than {MAX_WORD} characters"
                return cost, token.start(), what
            parts = len(found)
            if parts > MAX_KEY_PARTS and most < sys.maxsize:
                return cost, token.start(), f"a key of more than {MAX_KEY_PARTS} parts"
            if token["named"] is None:
                cost += PER_TOKEN * parts
            elif parts == 1:
                cost += PER_KEY
            else:
                # The name of its table has no more parts than a key may have.
                beginning = PER_BEGINNING + PER_WORD * (MAX_KEY_PARTS + parts)
                cost += PER_KEY_PART * parts + beginning * (parts - 1)
        else:
            cost += PER_OPENING if kind == "opening" else PER_TOKEN
        if cost > most:
            return (
                cost,
                token.start(),
                f"more than can be read with {most // 1024**2} MiB of memory",
            )
    return cost, 0, ""

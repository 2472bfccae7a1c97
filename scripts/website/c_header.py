"""Read our C headers: what each declares, and the comment above it.

This is no parser of C. It reads what clang-format leaves: one declaration ends a line, and ``//``
comments stand above what they are about, or behind a member.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Header", "Item", "read"]

_NAMES = (
    ("macro", re.compile(r"#define (\w+)")),
    ("enumerators", re.compile(r"enum \{")),
    ("type", re.compile(r"typedef [^{;(]*\{.*\} (\w+);$", re.DOTALL)),
    ("type", re.compile(r"typedef (?:struct )?\w+ (\w+);$")),
    ("function", re.compile(r"(?:static inline )?[^({;#]*?\**(\w+)\(", re.DOTALL)),
)
_GUARD = re.compile(r"#(ifndef|endif|include)|#define \w+_H$")


class Item(NamedTuple):
    """One declaration: its kind, its name, and its text."""

    kind: str
    name: str
    text: str


class Header(NamedTuple):
    """One header: its name, what it says about itself, and groups of a comment and declarations."""

    name: str
    about: str
    groups: tuple[tuple[str, tuple[Item, ...]], ...]


def read(name: str, text: str) -> Header:
    """Return what the header *text* says and declares.

    Raises:
        ValueError: a declaration is of a kind that is not known here.
    """
    groups: list[tuple[str, tuple[Item, ...]]] = []
    about = ""
    for block in _blocks(text):
        comment: list[str] = []
        items: list[Item] = []
        for lines in _statements(block):
            if lines[0].startswith("//"):
                if items:
                    groups.append((_prose(comment), tuple(items)))
                    comment, items = [], []
                comment += lines
            elif not _GUARD.match(lines[0]):
                items.append(_item("\n".join(lines)))
        if items or (comment and about):
            groups.append((_prose(comment), tuple(items)))
        elif comment:
            about = _prose(comment)
    return Header(name, about, tuple(groups))


def _blocks(text: str) -> list[list[str]]:
    """Split at empty lines outside of braces; what a header says first is a block of its own."""
    blocks: list[list[str]] = [[]]
    depth = 0
    for line in text.splitlines():
        first = len(blocks) == 1 and not line.startswith("//")
        if (not line and not depth) or (first and blocks[0]):
            blocks.append([])
        if line:
            blocks[-1].append(line)
        depth += line.count("{") - line.count("}")
    return [block for block in blocks if block]


def _statements(block: list[str]) -> list[list[str]]:
    """Split a block into comments and declarations."""
    found: list[list[str]] = []
    depth = 0
    whole = True
    for line in block:
        comment = line.startswith("//")
        if whole and not (comment and found and found[-1][0].startswith("//")):
            found.append([])
        found[-1].append(line)
        if comment and len(found[-1]) and found[-1][0].startswith("//"):
            continue
        code = line.partition("//")[0].rstrip()
        depth += code.count("{") - code.count("}")
        if found[-1][0].startswith("#"):
            whole = not code.endswith("\\")
        else:
            whole = depth == 0 and code.endswith((";", "}"))
    return found


def _item(text: str) -> Item:
    for kind, pattern in _NAMES:
        match = pattern.match(text)
        if match and kind == "enumerators":
            return Item(kind, _common(text), text)
        if match:
            return Item(kind, match[1], text)
    raise ValueError(f"neither a macro, a type nor a function: {text[:60]!r}")


def _common(text: str) -> str:
    """Return how the names of an enumeration begin, as a header's comments write it."""
    names: list[str] = re.findall(r"^    (\w+)", text, re.MULTILINE)
    first, last = min(names), max(names)
    prefix = first
    while not last.startswith(prefix):
        prefix = prefix[:-1]
    return names[0] if len(names) == 1 else prefix[: prefix.rindex("_") + 1] + "*"


def _prose(comment: list[str]) -> str:
    """Return the text of a comment; what it indents or rules off is kept as it is."""
    return "\n".join(line[2:].removeprefix(" ") for line in comment)

"""What the site's index says: its sections, from which menus and ``llms.txt`` are made.

The index is plain Markdown, a list of links under each heading, which a forge shows as it is. So
nothing has to list the pages a second time.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

__all__ = ["Entry", "Section", "llms", "sections", "with_menus"]

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^\* \[([^\]]+)\]\(([^)#]+\.md)\)(.*(?:\n  .+)*)", re.MULTILINE)


class Entry(NamedTuple):
    """One page: its title, its path from the repository's root, and a sentence about it."""

    title: str
    path: str
    about: str


class Section(NamedTuple):
    """One heading of the index and the pages below it."""

    title: str
    entries: tuple[Entry, ...]


def sections(index: str, path: str) -> list[Section]:
    """Return the sections of *index*, which lies at *path*, that list pages."""
    parts = _HEADING.split(index)
    found = []
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        entries = tuple(
            Entry(
                name,
                posixpath.normpath(posixpath.join(posixpath.dirname(path), target)),
                " ".join(about.split()).lstrip(": "),
            )
            for name, target, about in _ENTRY.findall(body)
        )
        if entries:
            found.append(Section(title, entries))
    return found


def with_menus(index: str, path: str) -> str:
    """Return *index* with a hidden table of contents for each of its sections."""
    text = index
    for section in sections(index, path):
        names = "\n".join(
            f"{entry.title} </{entry.path.removesuffix('.md')}>" for entry in section.entries
        )
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {section.title}\n\n{names}\n```\n"
    return text


def llms(index: str, path: str, source_of: str) -> str:
    """Return ``llms.txt``: what this is, and where the Markdown of each page is.

    Args:
        index: the text of the index.
        path: where it lies.
        source_of: a template for the address of a page's Markdown, with ``{path}``.
    """
    title, _, rest = index.partition("\n")
    summary = " ".join(rest.strip().split("\n\n", 1)[0].split())
    lines = [title, "", f"> {summary}"]
    for section in sections(index, path):
        lines += ["", f"## {section.title}", ""]
        lines += [
            f"- [{entry.title}]({source_of.format(path=entry.path)}): {entry.about}"
            for entry in section.entries
        ]
    return "\n".join(lines) + "\n"

"""The C API as a page: plain Markdown for whoever reads the sources, and the same for the site.

Both come from the headers of libvisjail. The site's has the names in Sphinx's C domain, so that
they can be searched for and linked to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from website import c_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["HEADERS", "for_site", "markdown"]

FOLDER = Path(__file__).resolve().parent.parent.parent / "native" / "visjail"
HEADERS = ("visjail.h", "error.h", "policy.h", "plan.h", "run.h", "links.h", "refusals.h")
"""What a host that is not Python includes, the first one with all the others."""

_HEAD = """\
# The C API

Made from the comments of the headers in `native/visjail` by `scripts/generate_documents.py`; a check
fails when it is out of date. The Python package is one host of this library. It asks `policy.h` for
a plan, and opens a jail from it with `visjail.h`. There is no promise of a stable interface yet.
"""
_SHAPED = re.compile(r"^(?:   |\s+\w+ {3,})", re.MULTILINE)


def _headers() -> list[c_header.Header]:
    return [c_header.read(name, (FOLDER / name).read_text()) for name in HEADERS]


def _title(items: tuple[c_header.Item, ...]) -> str:
    names = dict.fromkeys(item.name for item in items)
    if len(names) > 3:
        first, *_, last = names
        return f"`{first}` to `{last}`"
    return ", ".join(f"`{name}`" for name in names)


def markdown() -> str:
    """Return the page as a forge shows it."""
    return "\n".join(_page(_as_markdown))


def for_site() -> str:
    """Return the page as Sphinx reads it, with a directive of the C domain for each name."""
    return "\n".join(_page(_as_directives))


def _page(
    render: Callable[[str, tuple[c_header.Item, ...]], Iterator[str]],
) -> Iterator[str]:
    yield _HEAD
    for header in _headers():
        yield f"## {header.name}\n"
        yield _text(header.about) + "\n"
        for comment, items in header.groups:
            if not items:
                yield _text(comment) + "\n"
                continue
            yield f"### {_title(items)}\n"
            yield from render(comment, items)


def _as_markdown(comment: str, items: tuple[c_header.Item, ...]) -> Iterator[str]:
    code = "\n".join(item.text for item in items)
    yield f"```c\n{code}\n```\n"
    if comment:
        yield _text(comment) + "\n"


def _as_directives(comment: str, items: tuple[c_header.Item, ...]) -> Iterator[str]:
    """Name each in the C domain, and then show the very text of the header."""
    yield "````{eval-rst}"
    for item in items:
        if item.kind == "enumerators":
            continue
        if item.kind == "function":
            plain = re.sub(r"\s+", " ", re.split(r"\{|//", item.text)[0]).removeprefix(
                "static inline "
            )
            signature = plain.rstrip("; ")
        else:
            signature = item.name
        yield f".. c:{item.kind}:: {signature}\n"
    yield "````\n"
    if any(item.kind != "function" or "//" in item.text for item in items):
        code = "\n".join(item.text for item in items)
        yield f"```c\n{code}\n```\n"
    if comment:
        yield _text(comment) + "\n"


def _text(comment: str) -> str:
    """Return a comment as Markdown; what is laid out by hand, such as a table, as a block."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", comment):
        if _SHAPED.search(paragraph):
            parts.append(f"```text\n{paragraph}\n```")
        else:
            parts.append(re.sub(r"(?<![`\w])(\w+_\*|\w+\(\d\))(?!`)", r"`\1`", paragraph))
    return "\n\n".join(parts)

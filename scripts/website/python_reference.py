"""The public names as a page of the site.

A forge shows doc/reference/api.md, which has the docstrings as they are. The site has the same names in
the same order under the same headings, read by autodoc from the same docstrings, so that they can be
linked to, from other projects too.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import generate_api_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["for_site", "shortcuts"]


def _page() -> Iterator[str]:
    yield generate_api_reference.HEAD
    for heading, full, value in generate_api_reference.described():
        yield f"## {heading}\n\n```{{eval-rst}}"
        if inspect.isclass(value):
            yield f".. autoclass:: {full}"
            names = ", ".join(name for name, _ in generate_api_reference.members(value))
            if names:
                yield f"   :members: {names}"
            if issubclass(value, Exception):
                yield "   :show-inheritance:"
        else:
            yield f".. autofunction:: {full}"
        yield "```\n"


def for_site() -> str:
    """Return the page as Sphinx reads it."""
    return "\n".join(_page())


def shortcuts() -> dict[str, str]:
    """Return the full name behind each name that a type hint or docstring uses alone."""
    found = {}
    for _, full, value in generate_api_reference.described():
        found[full.rpartition(".")[2]] = full
        found[f"{value.__module__}.{value.__qualname__}"] = full
        for name, _ in generate_api_reference.members(value) if inspect.isclass(value) else ():
            found.setdefault(f"{full.rpartition('.')[2]}.{name}", f"{full}.{name}")
    return found

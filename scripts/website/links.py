"""Look at the pages of a built site: every link leads somewhere, and nothing is loaded from afar."""

from __future__ import annotations

import html.parser
import posixpath
import re
import urllib.parse
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["problems"]

_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
"""What a browser fetches without being asked."""


_MARKDOWN = re.compile(r"\]\(([^)]+)\)")


class _Link(NamedTuple):
    target: str
    loads: bool


class _Page(html.parser.HTMLParser):
    """The names that a page has, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[_Link] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the names and links of one element."""
        found = dict(attrs)
        for key in ("id", "name"):
            if value := found.get(key):
                self.names.add(value)
        for key in ("href", "src"):
            if value := found.get(key):
                self.links.append(_Link(value, (tag, key) in _LOADS))


def problems(site: Path) -> list[str]:
    """Return what is wrong with the links below *site*, page by page."""
    pages = {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    found = [] if pages else ["there is no page"]
    for path in sorted(site.glob("*.txt")):
        page = _Page("")
        page.links += [_Link(target, loads=False) for target in _MARKDOWN.findall(path.read_text())]
        pages[path.name] = page
    for name, page in pages.items():
        for link in page.links:
            problem = _problem(site, pages, name, link)
            if problem:
                found.append(f"{name}: {link.target}: {problem}")
    return found


def _problem(site: Path, pages: dict[str, _Page], name: str, link: _Link) -> str | None:
    parts = urllib.parse.urlsplit(link.target)
    if parts.scheme or parts.netloc:
        if link.loads and parts.scheme != "data":
            return "is loaded from another server"
        return None if parts.scheme in {"https", "data", "mailto"} else "is not fetched safely"
    path = urllib.parse.unquote(parts.path)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if target.startswith(("../", "/")):
        return "leads out of the site"
    if not (site / target).is_file():
        return "leads nowhere"
    fragment = urllib.parse.unquote(parts.fragment)
    if fragment and target in pages and fragment not in pages[target].names:
        return "has no such place"
    return None

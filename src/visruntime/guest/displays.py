"""Show objects on the host: every format that they offer, as text and bytes.

Formats are asked for by the conventions that notebooks made common (``_repr_mimebundle_``,
``_repr_html_`` and their kin); figures of matplotlib, which have none, are drawn as PNG.
"""

from __future__ import annotations

import sys

from .describe import cut, type_name
from .frames import DISPLAY
from .limits import MAX_DISPLAY_FORMATS, MAX_DISPLAY_ID, MAX_DISPLAYS_SIZE, MAX_MEDIA_TYPE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session

_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/json", "_repr_json_"),
)
MAX_PLAIN = 100_000
"""Longest plain text of one display, in characters."""


class DisplayHandle:
    """Stands for a display that can be replaced."""

    __slots__ = ("_session", "display_id")

    def __init__(self, session: Session, display_id: str) -> None:
        self._session = session
        self.display_id: str = display_id

    def update(self, value: object) -> None:
        """Show *value* in its place."""
        show(self._session, value, self.display_id, update=True)

    def __repr__(self) -> str:
        return f"<DisplayHandle {self.display_id}>"


def display(
    session: Session, values: tuple[object, ...], display_id: object
) -> DisplayHandle | None:
    """Show each of *values*; with a *display_id* (True for a new one) they can be replaced."""
    if display_id is True:
        session.last_display += 1
        display_id = f"display-{session.last_display}"
    if display_id is not None:
        display_id = check_id(display_id)
    for value in values:
        show(session, value, display_id)
    return None if display_id is None else DisplayHandle(session, display_id)


def check_id(display_id: object) -> str:
    """Refuse what cannot be the name of a display."""
    if not isinstance(display_id, str):
        raise TypeError(f"display_id: expected text, not {type(display_id).__name__}")
    if len(display_id) > MAX_DISPLAY_ID:
        raise ValueError(f"display_id: longer than {MAX_DISPLAY_ID} characters")
    return str(display_id)


def show(
    session: Session, value: object, display_id: str | None = None, *, update: bool = False
) -> None:
    """Send one display to the host, after all that was printed before it."""
    claim = {"data": bundle(value), "display_id": display_id, "update": update}
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # the guest closed or replaced it
    session.send(DISPLAY, claim)


def bundle(value: object) -> dict[str, str | bytes]:
    """Describe *value* in every format that it offers, plain text first.

    A method that fails is left out, and so is a format that is too large: a picture that cannot be
    drawn must not end the run, and the plain text is always there.
    """
    formats: dict[str, Any] = {"text/plain": _plain(value)}
    if not isinstance(value, type):
        for media_type, content in _offered(value):
            _add(formats, media_type, content)
    return formats


def _offered(value: object) -> list[tuple[object, object]]:
    offered: list[tuple[object, object]] = []
    whole = _ask(value, "_repr_mimebundle_")
    if isinstance(whole, tuple) and whole:
        whole = whole[0]  # the rest is metadata for one kind of front end
    if isinstance(whole, dict):
        offered += whole.items()
    for media_type, method in _METHODS:
        # One raster picture is enough: Pillow would encode each image twice.
        if media_type == "image/jpeg" and any(kind == "image/png" for kind, _ in offered):
            continue
        content = _ask(value, method)
        if isinstance(content, tuple) and content:
            content = content[0]
        if content is not None:
            offered.append((media_type, content))
    if type_name(type(value)) == "matplotlib.figure.Figure":
        offered.append(("image/png", _drawn(value)))
    return offered


def _ask(value: object, method: str) -> object:
    function = getattr(type(value), method, None)
    if function is None:
        return None
    try:
        return function(value)
    except Exception:
        return None


def _drawn(figure: Any) -> bytes | None:
    import io

    picture = io.BytesIO()
    try:
        figure.savefig(picture, format="png", bbox_inches="tight")
    except Exception:
        return None
    return picture.getvalue()


def _add(formats: dict[str, Any], media_type: object, content: object) -> None:
    if not isinstance(media_type, str) or len(media_type) > MAX_MEDIA_TYPE:
        return
    if not media_type.isprintable() or len(formats) >= MAX_DISPLAY_FORMATS:
        return
    taken = _content(str(media_type), content)
    if taken is None or (media_type in formats and media_type != "text/plain"):
        return
    if sum(map(len, formats.values())) + len(taken) <= MAX_DISPLAYS_SIZE // 4:
        formats[str(media_type)] = taken


def _content(media_type: str, content: object) -> str | bytes | None:
    if media_type == "application/json" or media_type.endswith("+json"):
        if not isinstance(content, str):
            import json

            try:
                return json.dumps(content)
            except (TypeError, ValueError, RecursionError):
                return None
        return str(content)
    if isinstance(content, str):
        return str(content)
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    return None


def _plain(value: object) -> str:
    try:
        return cut(repr(value), MAX_PLAIN)
    except Exception as exception:
        return f"<{type_name(type(value))}: repr raised {type_name(type(exception))}>"

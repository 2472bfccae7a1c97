"""What a guest displays: text and pictures by media type, as data and never as anything else."""

from __future__ import annotations

from visruntime._worker.claims import read_dict
from visruntime.errors import ProtocolViolation
from visruntime.guest.limits import (
    MAX_DISPLAY_FORMATS,
    MAX_DISPLAY_ID,
    MAX_DISPLAYS,
    MAX_DISPLAYS_SIZE,
    MAX_MEDIA_TYPE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

__all__ = ["Display", "Displays"]

MAX_JSON_BYTES = 128 << 20
"""What the parts of a display's JSON may take in memory."""
_PART_BYTES = {"{": 240, "[": 64, ",": 40, ":": 60}
"""What becomes of each mark in JSON, at most: a dict, a list, an item, a value with its key."""
_NODES = 4 * MAX_DISPLAY_FORMATS + 20


class Display:
    """One object that the guest displayed, in every format that it offered; all of it a claim.

    ``display[media_type]`` is text, or bytes where a format is binary. ``display_id`` is the name
    under which the guest may replace it later, ``None`` if it cannot. Nothing is checked but types
    and sizes: HTML and SVG of a guest may hold scripts, so show them only where those cannot act.
    """

    __slots__ = ("_contents", "display_id")

    def __init__(self, contents: dict[str, str | bytes], display_id: str | None = None) -> None:
        self._contents = contents
        self.display_id: str | None = display_id

    def __getitem__(self, media_type: str) -> str | bytes:
        return self._contents[media_type]

    def __contains__(self, media_type: object) -> bool:
        return media_type in self._contents

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Display):
            return NotImplemented
        return (self._contents, self.display_id) == (other._contents, other.display_id)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Display({', '.join(self._contents)!a})"

    def formats(self) -> tuple[str, ...]:
        """The media types, in the guest's order."""
        return tuple(self._contents)

    def _text(self, media_type: str) -> str | None:
        content = self._contents.get(media_type)
        return content.decode("utf-8", "replace") if isinstance(content, bytes) else content

    @property
    def text(self) -> str | None:
        """As plain text; the guest chose every character of it."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """As HTML."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """As Markdown."""
        return self._text("text/markdown")

    @property
    def svg(self) -> str | None:
        """As an SVG picture."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        """As a PNG picture; whether it is one only a decoder can tell."""
        content = self._contents.get("image/png")
        return content if isinstance(content, bytes) else None

    @property
    def json(self) -> Any:
        """As the data that its JSON stands for, ``None`` without any.

        Raises:
            ValueError: it is no JSON, nested too deeply, or of more parts than fit in 128 MiB.
        """
        text = self._text("application/json")
        if text is None:
            return None
        if sum(text.count(mark) * size for mark, size in _PART_BYTES.items()) > MAX_JSON_BYTES:
            raise ValueError("the JSON of this display has too many parts")
        import json

        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("the JSON of this display is nested too deeply") from None


class Displays:
    """The displays of one run, bounded; those beyond the bounds are counted and dropped."""

    __slots__ = ("_items", "_places", "_room", "_sizes", "dropped")

    def __init__(self) -> None:
        self._items: list[Display] = []
        self._sizes: list[int] = []
        self._places: dict[str | None, int] = {}  # of the latest display of each name
        self._room = MAX_DISPLAYS_SIZE
        self.dropped: int = 0

    def add(self, payload: bytes) -> tuple[Display, bool] | None:
        """Take one DISPLAY frame; return it and whether it replaces one, ``None`` if dropped.

        Raises:
            ProtocolViolation: the frame has not the agreed shape.
        """
        size = len(payload)
        if size > MAX_DISPLAYS_SIZE:  # it fits nowhere, and decoded it may be larger still
            self.dropped += 1
            return None
        display, update = _read(payload)
        place = self._places.get(display.display_id) if update else None
        freed = 0 if place is None else self._sizes[place]
        full = place is None and len(self._items) >= MAX_DISPLAYS
        if full or size > self._room + freed:
            self.dropped += 1
            return None
        self._room += freed - size
        if place is None:
            self._places[display.display_id] = len(self._items)
            self._items.append(display)
            self._sizes.append(size)
        else:
            self._items[place] = display
            self._sizes[place] = size
        return display, place is not None

    def take(self) -> tuple[Display, ...]:
        """All of them, as they stand now."""
        return tuple(self._items)


def _read(payload: bytes) -> tuple[Display, bool]:
    try:
        claim = read_dict(payload, max_nodes=_NODES)
        contents, display_id, update = claim["data"], claim["display_id"], claim["update"]
        if type(contents) is not dict or len(contents) > MAX_DISPLAY_FORMATS:
            raise TypeError("its formats are no dict, or too many")
        for media_type, content in contents.items():
            if type(media_type) is not str or len(media_type) > MAX_MEDIA_TYPE:
                raise TypeError("a media type is not text, or too long")
            if not media_type.isprintable():
                raise TypeError("a media type has a control character")
            if type(content) not in (str, bytes):
                raise TypeError("a format is neither text nor bytes")
        if display_id is not None and (
            type(display_id) is not str or len(display_id) > MAX_DISPLAY_ID
        ):
            raise TypeError("its name is not text, or too long")
        if type(update) is not bool or (update and display_id is None):
            raise TypeError("it does not say what it updates")
    except (ValueError, TypeError, KeyError) as problem:
        raise ProtocolViolation(f"the worker displayed something wrongly: {problem}") from None
    return Display(contents, display_id), update

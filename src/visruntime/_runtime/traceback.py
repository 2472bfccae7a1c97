"""A guest's error as the text that CPython would print, plain or with colours."""

from __future__ import annotations

from visruntime._policy.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime.results import GuestFailure, GuestFrame

__all__ = ["MAX_TRACEBACK", "printable", "render_failure", "render_frame"]

MAX_TRACEBACK = 1_000_000
"""Longest traceback that is built, in characters; the indentation of groups is in it."""
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"
_PLACE, _TYPE, _MESSAGE, _MARK = "35", "1;35", "35", "1;31"
"""Parameters of the terminal's SGR sequence, the colours of CPython 3.13."""


def _plain(text: str, _style: str) -> str:
    return text


def _coloured(text: str, style: str) -> str:
    """Colour each line on its own, since the indentation of groups goes between them."""
    return "\n".join(f"\033[{style}m{line}\033[0m" if line else line for line in text.split("\n"))


def render_frame(frame: GuestFrame, *, colour: bool = False) -> str:
    """Two or three lines as CPython prints them, without control characters of the guest."""
    paint = _coloured if colour else _plain
    file = paint(f'"{printable(frame.file)}"', _PLACE)
    place = f", in {paint(printable(frame.function), _PLACE)}" if frame.function else ""
    text = f"  File {file}, line {paint(str(frame.line), _PLACE)}{place}\n"
    source = printable(frame.source.strip())
    if not source:
        return text
    indent = len(frame.source) - len(frame.source.lstrip())
    marked = frame.column is not None and frame.end_column is not None
    if not marked or frame.end_line != frame.line:
        return f"{text}    {source}\n"
    assert frame.column is not None
    assert frame.end_column is not None
    start, end = frame.column - indent, min(frame.end_column - indent, len(source))
    if not 0 <= start < end or end - start >= len(source):
        return f"{text}    {source}\n"
    if colour:
        before, middle, after = source[:start], source[start:end], source[end:]
        source = f"{before}{paint(middle, _MARK)}{after}"
    return f"{text}    {source}\n    {' ' * start}{paint('^' * (end - start), _MARK)}\n"


def render_failure(failure: GuestFailure, *, colour: bool = False) -> str:
    """The traceback of *failure* and of all that is linked with it."""
    sheet = _Sheet()
    _write(failure, sheet, "", colour=colour)
    return sheet.text()


def _write(failure: GuestFailure, sheet: _Sheet, indent: str, *, colour: bool) -> None:
    paint = _coloured if colour else _plain
    if failure.cause is not None:
        _write(failure.cause, sheet, indent, colour=colour)
        sheet.write(_CAUSED, indent)
    elif failure.context is not None:
        _write(failure.context, sheet, indent, colour=colour)
        sheet.write(_MEANWHILE, indent)
    if failure.frames:
        sheet.write("Traceback (most recent call last):\n", indent)
    for frame in failure.frames:
        sheet.write(render_frame(frame, colour=colour), indent)
    line = paint(printable(failure.type_name), _TYPE)
    if failure.message:
        line += f": {paint(printable(failure.message), _MESSAGE)}"
    sheet.write(f"{line}\n", indent)
    for note in failure.notes:
        sheet.write(f"{printable(note)}\n", indent)
    if failure.explanation is not None:
        sheet.write(f"({printable(failure.explanation)})\n", indent)
    for number, member in enumerate(failure.exceptions, 1):
        sheet.write(f"  +---------------- {number} ----------------\n", indent)
        _write(member, sheet, f"{indent}  | ", colour=colour)


class _Sheet:
    """The lines of a traceback, up to a total length."""

    __slots__ = ("_parts", "_room")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._room = MAX_TRACEBACK

    def write(self, lines: str, indent: str) -> None:
        """Add whole *lines*, each after *indent*."""
        if self._room <= 0:
            return
        breaks = lines.count("\n")
        if len(lines) + breaks * len(indent) > self._room:
            # Cut such that what is left fits even if it is all line breaks. A cut could go through
            # a colour, so there is none from here on.
            lines = printable(lines)[: self._room // (len(indent) + 1)]
            lines = f"{lines}\n... (the rest is too long)\n"
            self._room = 0
        if indent:
            lines = indent + lines[:-1].replace("\n", f"\n{indent}") + "\n"
        self._room -= len(lines)
        self._parts.append(lines)

    def text(self) -> str:
        """All lines."""
        return "".join(self._parts)

"""Turn values and exceptions of the guest into plain data for the host.

Everything here may run code of the guest (``__repr__``, ``__str__``, properties), so the
session calls it only where an interrupt can break it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import nt as posix
else:
    import posix

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from types import CodeType, TracebackType

_RUNTIME_PACKAGE = __name__.rpartition(".")[0]
_ENTRIES = ("finish", "_execute_awaiting")
"""Functions of the session by which an event loop comes to the guest's code; its own frames, before
them, say nothing either."""
MAX_TEXT = 16_384
"""Longest message that is sent, in characters."""
MAX_LINE = 500
"""Longest note, source line, file or function name that is sent, in characters."""
MAX_NOTES = 100
"""Notes of one exception that are sent."""
MAX_REPR = 1_000
"""Longest ``repr`` that stands for a value which cannot cross, in characters."""
MAX_PATH = 4_096
"""Longest path that is sent, in characters."""
MAX_FRAMES = 100
"""Frames sent for one exception: the outermost and the innermost half of this."""
MAX_LINKED = 16
"""Causes, contexts and group members described beside the exception itself."""
MAX_TOTAL = 400_000
"""Characters of all texts of one exception together; the host takes little more than twice that."""


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """Shorten *text* to *limit* characters and say so."""
    if len(text) <= limit:
        return str(text)
    return f"{text[:limit]}... ({len(text) - limit} more characters)"


def type_name(kind: type) -> str:
    """Name *kind* as a traceback does: qualified, without the module of builtins."""
    module = kind.__module__
    name = kind.__qualname__
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


def bounded_repr(value: object) -> str:
    """``repr(value)``, shortened, and never an exception of the guest's ``__repr__``."""
    try:
        return cut(repr(value), MAX_REPR)
    except Exception as exception:
        return f"<{type_name(type(value))}: repr raised {type_name(type(exception))}>"


class ErrorDescriber:
    """Describes one exception with everything that is linked to it."""

    __slots__ = ("_linked", "_room", "_seen", "_sources")

    def __init__(self, sources: dict[str, list[str]]) -> None:
        self._sources = sources
        self._seen: set[int] = set()
        self._linked = 0
        self._room = MAX_TOTAL

    def describe(self, exception: BaseException) -> dict[str, object]:
        """Return type, message, notes, frames and linked exceptions as plain data."""
        self._seen.add(id(exception))
        try:
            message = str(exception)
        except Exception as failure:
            message = f"<str() raised {type_name(type(failure))}>"
        notes = getattr(exception, "__notes__", None)
        errno, path = _file_of(exception)
        syntax = exception if isinstance(exception, SyntaxError) and exception.filename else None
        if syntax is not None:
            message = str(syntax.msg)
        name, message = self._cut(type_name(type(exception)), MAX_LINE), self._cut(message)
        frames = self._frames(exception.__traceback__)
        if syntax is not None:
            frames.append(self._syntax_frame(syntax))
        return {
            "type": name,
            "message": message,
            "notes": [self._cut(str(note), MAX_LINE) for note in notes[:MAX_NOTES]]
            if isinstance(notes, list)
            else [],
            "frames": frames,
            "errno": errno,
            "path": path,
            "cause": self._link(exception.__cause__),
            "context": None
            if exception.__suppress_context__
            else self._link(exception.__context__),
            "exceptions": [
                described
                for member in getattr(exception, "exceptions", ())
                if isinstance(exception, BaseExceptionGroup)
                and (described := self._link(member, again=True)) is not None
            ],
        }

    def _cut(self, text: str, limit: int = MAX_TEXT) -> str:
        text = cut(text, min(limit, self._room))
        self._room = max(self._room - len(text), 0)
        return text

    def _link(
        self, exception: BaseException | None, *, again: bool = False
    ) -> dict[str, object] | None:
        # A member of a group is shown again, as CPython does, or the group would lack it.
        if exception is None or self._linked >= MAX_LINKED:
            return None
        if id(exception) in self._seen and not again:
            return None
        self._linked += 1
        return self.describe(exception)

    def _frames(self, traceback: TracebackType | None) -> list[tuple[object, ...]]:
        entries: list[tuple[CodeType, int, int]] = []
        while traceback is not None:
            code = traceback.tb_frame.f_code
            # The runtime's own frames say nothing to the reader of a traceback.
            if traceback.tb_frame.f_globals.get("__package__") == _RUNTIME_PACKAGE:
                if code.co_name in _ENTRIES:
                    entries.clear()
            else:
                entries.append((code, traceback.tb_lasti, traceback.tb_lineno))
            traceback = traceback.tb_next
        if len(entries) > MAX_FRAMES:
            half = MAX_FRAMES // 2
            entries[half:-half] = []
        return [self._frame(*entry) for entry in entries]

    def _frame(self, code: CodeType, instruction: int, line: int) -> tuple[object, ...]:
        source = self._source_line(code.co_filename, line)
        end_line = column = end_column = None
        for index, position in enumerate(code.co_positions()):
            if index == instruction // 2:
                _, end_line, column, end_column = position
                break
        column = _character(source, column)
        if end_line == line:
            end_column = _character(source, end_column)
        names = [self._cut(text, MAX_LINE) for text in (code.co_filename, code.co_qualname, source)]
        return (names[0], line, *names[1:], column, end_line, end_column)

    def _syntax_frame(self, error: SyntaxError) -> tuple[object, ...]:
        line, end_line = _number(error.lineno) or 0, _number(error.end_lineno)
        column, end_column = _number(error.offset), _number(error.end_offset)
        text = str(error.text or "").rstrip("\n")
        names = [self._cut(text, MAX_LINE) for text in (str(error.filename), text)]
        # The parser counts columns from 1, and 0 says that it knows none.
        start = column - 1 if column else None
        return (
            names[0],
            line,
            "",
            names[1],
            start,
            end_line,
            end_column - 1 if end_column else None,
        )

    def _source_line(self, filename: str, line: int) -> str:
        known = self._sources.get(filename)
        if known is not None:
            return known[line - 1].rstrip("\n") if 0 < line <= len(known) else ""
        import linecache

        return linecache.getline(filename, line).rstrip("\n")


def _number(value: object) -> int | None:
    """A line or column that the guest's code may have set itself."""
    return value if type(value) is int and 0 <= value < 2**31 else None


def _file_of(exception: BaseException) -> tuple[int | None, str | None]:
    """The errno of an OSError and the absolute path that it is about."""
    if not isinstance(exception, OSError) or _number(exception.errno) is None:
        return None, None
    path = exception.filename
    if type(path) is bytes:
        path = path.decode("utf-8", "surrogateescape")
    if type(path) is not str or not path:
        return exception.errno, None
    if sys.platform == "win32":
        path = posix._getfullpathname(path)
    elif not path.startswith("/"):
        path = f"{posix.getcwd()}/{path}"
    return exception.errno, cut(path, MAX_PATH)


def _character(source: str, offset: int | None) -> int | None:
    """Convert an offset in UTF-8 bytes to one in characters."""
    if offset is None or source.isascii():
        return offset
    return len(source.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "replace"))


def exit_code(exception: SystemExit) -> int:
    """The exit code that CPython would use; a message goes to stderr, as there."""
    code = exception.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) if -(2**31) <= code < 2**31 else -1
    print(code, file=sys.stderr)
    return 1

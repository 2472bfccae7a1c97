"""Let tracebacks and ``inspect`` find the source text of the session's runs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def fill_linecache(linecache: Any, sources: dict[str, list[str]]) -> None:
    """Register every source; no file is asked whether it has changed."""
    for filename, lines in sources.items():
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)


def teach_inspect(inspect: Any, sources: dict[str, list[str]]) -> None:
    """Let ``inspect.getsource`` work for classes of the session.

    A function knows the file of its code. A class has only its module's, and a session's module has
    a source for each run.
    """
    original = inspect.getfile

    def getfile(object: Any) -> Any:
        if isinstance(object, type) and object.__module__ == "__main__":
            found = _file_of_class(object, sources)
            if found is not None:
                return found
        return original(object)

    inspect.getfile = getfile


def _file_of_class(kind: type, sources: dict[str, list[str]]) -> str | None:
    for member in vars(kind).values():
        code = getattr(member, "__code__", None)
        filename = getattr(code, "co_filename", None)
        if filename in sources and getattr(member, "__qualname__", "").startswith(
            f"{kind.__qualname__}."
        ):
            return str(filename)
    head = f"class {kind.__name__}"
    for filename in reversed(sources):
        for line in sources[filename]:
            text = line.lstrip()
            if text.startswith(head) and not text[len(head) : len(head) + 1].isidentifier():
                return filename
    return None

"""On which line of a policy file a field is given.

Python's TOML parser names the line of text that is no TOML, and forgets the lines of what it
understood. They are found again only when an error is about to be shown: the text is cut
into its statements, each the fewest lines that are TOML by themselves.
"""

from __future__ import annotations

import tomllib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["line_of", "line_of_fault"]

MAX_PARSED_CHARACTERS = 4 * 1024**2
"""Most text that is parsed to find one line; a statement of many lines is parsed many times."""

Path = tuple[str, ...]


def line_of(text: str, field: str, table: Path = ()) -> int | None:
    """Return the line, from 1, on which the statement about *field* begins.

    Args:
        text: the whole file, which is TOML.
        field: as a `PolicyError` names it: ``limits.memory``, ``read[0]``, ``env['A']``.
        table: where the policy is in the file, such as ``("tool", "visruntime")``.

    A field that the file does not give, or that is not found soon, has no line.
    """
    wanted = (*table, *_parts(field))
    best, depth = None, len(table)
    for line, path in _statements(text):
        common = min(len(wanted), len(path))
        # A statement about a whole table holds the field; one about the field is nearer.
        if common > depth and wanted[:common] == path[:common]:
            best, depth = line, common
    return best


def line_of_fault(text: str, error: Exception) -> int | None:
    """Return the line of *text* that Python's TOML parser names in *error*."""
    message = str(error)
    if message.endswith("(at end of document)"):
        return text.rstrip().count("\n") + 1
    number = message.rpartition("(at line ")[2].partition(",")[0]
    return int(number) if number.isascii() and number.isdigit() else None


def _parts(field: str) -> Path:
    """Return the names in *field*, without the numbers of list entries."""
    parts = []
    for part in field.replace("]", "").replace("[", ".").split("."):
        name = part.strip("'\"")
        if name and not (name.isdigit() and not field.startswith("inbound")):
            parts.append(name)
    return tuple(parts)


def _statements(text: str) -> Iterator[tuple[int, Path]]:
    """Yield the first line of each statement, and the full names that it gives values to."""
    budget = MAX_PARSED_CHARACTERS
    header: Path = ()
    waiting: list[str] = []
    first = 1
    for number, line in enumerate(text.split("\n"), 1):
        if not waiting:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            first = number
        waiting.append(line)
        statement = "\n".join(waiting)
        budget -= len(statement)
        if budget < 0:
            return
        try:
            data = tomllib.loads(statement)
        except (ValueError, RecursionError, MemoryError):
            continue
        waiting.clear()
        if statement.lstrip().startswith("["):
            header = next(_leaves(data, ()), ())
            yield first, header
        else:
            for path in _leaves(data, ()):
                yield first, (*header, *path)


def _leaves(data: dict[str, Any], above: Path) -> Iterator[Path]:
    """Yield the names of all values in *data*; an empty table is a value."""
    # Tables can stand in each other as deep as the parser goes, which is deeper than calls could.
    waiting = [(above, iter(data.items()))]
    while waiting:
        over, items = waiting[-1]
        for name, value in items:
            path = (*over, name)
            is_array = isinstance(value, list) and value and isinstance(value[0], dict)
            table = value[0] if is_array else value  # an array of tables: no policy has one
            if isinstance(table, dict) and table:
                waiting.append((path, iter(table.items())))
                break
            yield path
        else:
            waiting.pop()

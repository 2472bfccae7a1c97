"""What may be the path of a program in a command line of a shell, told without running it."""

from __future__ import annotations

import os
import re
import shlex
from itertools import combinations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from visruntime._policy.settings_budget import Budget

__all__ = ["command_paths"]

MOST_FOLDERS = 4
"""To which such a command goes."""
DEEPEST = 4
"""Commands within quotes of commands (``sh -c 'sh -c "..."'``)."""

_EXPANSION = re.compile(r"\$\w+|\$\{[^{}]*\}|\$\([^()]*\)|`[^`]*`")
_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_VARIABLE = re.compile(r"\$\w+")
_RUN = re.compile(r"""[^\s"'`;&|()<>${}\\]+""")
"""What a shell reads as one word wherever it stands, without quotes."""
_GONE_TO = re.compile(r"""\b(?:cd|pushd)\s+(?:--\s+)?["']*([^\s"'`;&|()<>]+)""")
"""A folder in which the rest of the command may run."""


def command_paths(command: str, budget: Budget) -> Iterator[str]:
    """Return all in *command* that may be a path: far more than the programs that it runs.

    What follows the value of a variable or of another command is given without that, as if it
    was the folder where the command starts; it nearly always is. Not told are paths that a shell
    puts together in other ways: a name in a variable, a pattern.

    Raises:
        PolicyError: it is more than is left of *budget*.
    """
    found = {""}
    text = command.removeprefix("!")
    for spelling in dict.fromkeys((text, _NAMED.sub(_value, text))):
        budget.spend("characters", len(spelling))
        starts = _starts(_EXPANSION.sub("", spelling))
        for path in _paths(spelling, DEEPEST, set()):
            # "/.." is "/": what is beside .git as $GIT_DIR/../name is found as well.
            for whole in (path, *(os.path.normpath(start + path).lstrip("/") for start in starts)):
                if whole not in found:
                    budget.spend("paths")
                    found.add(whole)
                    yield whole


def _value(found: re.Match[str]) -> str:
    return os.environ.get(found[1] or found[2], found[0])


def _starts(text: str) -> list[str]:
    """Return the folders in which a path of the command *text* may start, as if it ran in "/"."""
    gone = list(dict.fromkeys(_GONE_TO.findall(text)[:MOST_FOLDERS]))
    ways = (way for count in range(len(gone) + 1) for way in combinations(gone, count))
    return ["".join(f"/{folder}" for folder in way) + "/" for way in ways]


def _paths(text: str, deeper: int, seen: set[str]) -> Iterator[str]:
    """Yield what may be a path in *text* or in its words, but for those that were *seen*."""
    if text in seen:
        return
    seen.add(text)
    for run in _RUN.findall(_VARIABLE.sub(" ", text)):
        yield run
        yield from re.split("[=:,]", run)
    for word in dict.fromkeys((*_words(text, ""), *_words(text, ";&|()<>"))):
        yield word
        yield _EXPANSION.sub("", word)
        if deeper and word != text:
            yield from _paths(word, deeper - 1, seen)


def _words(text: str, signs: str) -> list[str]:
    """Return the words of *text*, which *signs* separate too."""
    reader = shlex.shlex(text, posix=True, punctuation_chars=signs)
    reader.whitespace_split = True
    reader.commenters = ""
    try:
        return list(reader)
    except ValueError:
        return text.split()  # a quote is open

"""What may be the path of a program in a command line of a shell, told without running it."""

from __future__ import annotations

import os
import re
import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["command_paths"]

MOST_CHARACTERS = 4096
"""Of a command, in which programs are looked for."""
MOST_FOLDERS = 4
"""To which such a command goes."""
DEEPEST = 4
"""Commands within quotes of commands (``sh -c 'sh -c "..."'``)."""

_EXPANSION = re.compile(r"\$\w+|\$\{[^}]*\}|\$\([^()]*\)|`[^`]*`")
_VARIABLE = re.compile(r"\$\w+")
_RUN = re.compile(r"""[^\s"'`;&|()<>${}\\]+""")
"""What a shell reads as one word wherever it stands, without quotes."""
_GONE_TO = re.compile(r"""\b(?:cd|pushd)\s+(?:--\s+)?["']*([^\s"'`;&|()<>]+)""")
"""A folder in which the rest of the command may run."""


def command_paths(command: str) -> list[str]:
    """Return all in *command* that may be a path: far more than the programs that it runs.

    What follows the value of a variable or of another command is given without that, as if it
    was the folder where the command starts; it nearly always is. Not told are paths that a shell
    puts together in other ways: a name in a variable, a pattern.
    """
    text = command[:MOST_CHARACTERS].removeprefix("!")
    found: dict[str, None] = {}
    for spelling in dict.fromkeys((text, os.path.expandvars(text))):
        for path in _paths(spelling, DEEPEST):
            found[path] = None
            # "/.." is "/": what is beside .git as $GIT_DIR/../name is found as well.
            found[os.path.normpath(f"/{path}").lstrip("/")] = None
        for folder in dict.fromkeys(_GONE_TO.findall(_EXPANSION.sub("", spelling))[:MOST_FOLDERS]):
            for path in list(found):
                found[os.path.normpath(f"/{folder}/{path}").lstrip("/")] = None
    found.pop("", None)
    return list(found)


def _paths(text: str, deeper: int) -> Iterator[str]:
    for run in _RUN.findall(_VARIABLE.sub(" ", text)):
        yield run
        yield from re.split("[=:,]", run)
    for word in dict.fromkeys((*_words(text, ""), *_words(text, ";&|()<>"))):
        yield word
        yield _EXPANSION.sub("", word)
        if deeper and word != text:
            yield from _paths(word, deeper - 1)


def _words(text: str, signs: str) -> list[str]:
    """Return the words of *text*, which *signs* separate too."""
    reader = shlex.shlex(text, posix=True, punctuation_chars=signs)
    reader.whitespace_split = True
    reader.commenters = ""
    try:
        return list(reader)
    except ValueError:
        return text.split()  # a quote is open

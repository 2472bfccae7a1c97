"""The options of a sub-command: read here, and shown by argparse.

Nothing but the help needs argparse, and to import it and to describe all options to it takes as
long as to open a jail.
"""

from __future__ import annotations

import os
import sys

from visruntime.cli.messages import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any, NoReturn

__all__ = ["BaseParser", "Options"]

HELP = ("-h", "--help")


class Options:
    """What a command line said: an attribute for each option, named as argparse names them."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Say that there is no such option."""
        raise AttributeError(f"no option {name!r}")


class BaseParser:
    """A parser whose errors are refusals, and whose own words end where the guest's begin."""

    def __init__(self, name: str, operands: str, description: str, examples: str) -> None:
        self.prog: str = f"visruntime {name}"
        self.usage: str = f"visruntime {name} [OPTIONS] {operands}"
        self._description = description
        self._examples = examples
        self._flags: dict[str, dict[str, Any]] = {}

    def flag(self, name: str, **how: Any) -> None:
        """Add an option; *how* is what argparse takes, as far as `_take` knows of it."""
        self._flags[name] = how

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise Refusal(f"{message} (see {self.prog} --help)")

    def print_help(self) -> None:
        """Write what the sub-command and its options are for."""
        # argparse's own printing keeps quiet about what could not be written.
        sys.stdout.write(self.described().format_help())

    def described(self) -> argparse.ArgumentParser:
        """Return the same as a parser of argparse."""
        import argparse

        width = _columns() - 2
        parser = argparse.ArgumentParser(
            prog=self.prog,
            usage=self.usage,
            description=self._description,
            epilog=f"examples:\n{self._examples}",
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
            allow_abbrev=False,
        )
        parser.color = False  # type: ignore[attr-defined] # Python 3.14 would
        for name, how in self._flags.items():
            parser.add_argument(name, **how)
        return parser

    def split(self, words: Sequence[str]) -> tuple[Options, list[str]]:
        """Parse the options at the start of *words*; return them and the guest's words.

        The guest's words begin after ``--``, or at the first word that is no option of ours
        beginning with ``--``. So nothing in a command can be taken for a policy flag.

        Raises:
            Refusal: an option that there is not, or one without its value, or whose value is empty:
                a variable of the caller's that is not set ends so.
            SystemExit: help was asked for, and is written.
        """
        values = {_attribute(name, how): _default(how) for name, how in self._flags.items()}
        position = 0
        while position < len(words):
            word = words[position]
            if word == "--":
                return Options(values), list(words[position + 1 :])
            if word in HELP:
                self.print_help()
                raise SystemExit(0)
            if not word.startswith("--"):
                break
            position += self._take(words, position, values)
        return Options(values), list(words[position:])

    def _take(self, words: Sequence[str], position: int, values: dict[str, Any]) -> int:
        """Take an option into *values*; return how many words it has."""
        name, equals, value = words[position].partition("=")
        how = self._flags.get(name)
        if how is None:
            self.error(f"unrecognized arguments: {words[position]}")
        attribute = _attribute(name, how)
        action = how.get("action", "store")
        if action in ("store_true", "store_false"):
            if equals:
                self.error(f"argument {name}: ignored explicit argument {value!r}")
            values[attribute] = action == "store_true"
            return 1
        if not equals:
            value = words[position + 1] if position + 1 < len(words) else "--"
            if _is_option(value):
                self.error(f"argument {name}: expected one argument")
        if value == "":
            raise Refusal(f"{name}: its value is empty; write one, or leave the option out")
        if action == "append":
            values[attribute].append(value)
        else:
            values[attribute] = value
        return 1 if equals else 2


def _attribute(name: str, how: dict[str, Any]) -> str:
    return str(how.get("dest") or name.lstrip("-").replace("-", "_"))


def _default(how: dict[str, Any]) -> Any:
    if how.get("action") == "append":
        return []
    return how.get("default", False if how.get("action") == "store_true" else None)


def _is_option(word: str) -> bool:
    """Tell whether *word*, where a value belongs, is an option of somebody who forgot the value."""
    if not word.startswith("-") or word == "-" or " " in word:
        return False
    whole, _, fraction = word[1:].partition(".")
    return not f"{whole}{fraction}".isdecimal()  # a negative number is a value, and a wrong one


def _columns() -> int:
    """Return how many columns the terminal has; 80 where there is none."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and 0 < len(said) < 6 and int(said):
        return int(said)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80

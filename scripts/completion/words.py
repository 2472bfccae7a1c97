"""The words of the command line, as the parsers have them, without what is said about each."""

from __future__ import annotations

import re
from typing import NamedTuple

from website.cli_reference import parser_of

from visruntime.cli.main import COMMANDS

__all__ = ["Command", "Option", "commands", "first_sentence"]

FILES = ("P", "FILE", "PATH")
FOLDERS = ("DIR",)


class Option(NamedTuple):
    """One option: how it is written, what it is for, and what may follow it.

    ``value`` is what argparse calls metavar, empty for an option that stands alone; ``completes`` is
    "file", "folder" or "nothing", and ``words`` are those that are always possible.
    """

    names: tuple[str, ...]
    help: str
    value: str
    completes: str
    words: tuple[str, ...]


class Command(NamedTuple):
    """One sub-command: its options, the words that it begins with, and what comes then."""

    name: str
    about: str
    options: tuple[Option, ...]
    verbs: tuple[str, ...]
    operands: str
    """"command", "file" or "nothing"."""


OPERANDS = {"exec": "command", "run": "file", "why": "file", "bundle": "file"}
"""Of the others none is a file; a host has no list of its names."""


def commands() -> list[Command]:
    """Return all sub-commands."""
    return [_command(name) for name in COMMANDS]


def first_sentence(text: str) -> str:
    """Return the first sentence of a description in one line, without its full stop."""
    return re.split(r"(?<=\.) ", " ".join(text.split()))[0].removesuffix(".")


def _command(name: str) -> Command:
    parser = parser_of(name)
    operands = (parser.usage or "").partition("[OPTIONS]")[2]
    verbs = re.findall(r"(?<![-\w])[a-z]+(?!\w)", operands)
    options = tuple(
        _option(
            tuple(action.option_strings),
            " ".join(((action.help or "") % {"default": action.default}).split()),
            str(action.metavar or "") if action.nargs != 0 else "",
        )
        for action in parser._actions
    )
    return Command(
        name,
        first_sentence(parser.description or ""),
        options,
        tuple(verbs),
        OPERANDS.get(name, "nothing"),
    )


def _option(names: tuple[str, ...], text: str, value: str) -> Option:
    parts = value.split("|")
    words = tuple(part for part in parts if re.fullmatch(r"[a-z-]+", part))
    kinds = [*("file" for each in parts if each in FILES)]
    kinds += ["folder" for each in parts if each in FOLDERS]
    return Option(names, text, value, (kinds or ["nothing"])[0], words)

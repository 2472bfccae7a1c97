"""The command line as a page: what each sub-command says of itself, laid out as Markdown.

The parsers are those that answer ``--help``, so the page has no words of its own about an option.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn
from unittest import mock

from visruntime.cli.flags import Parser
from visruntime.cli.main import COMMANDS, HELP, main

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["markdown", "parser_of"]

_HEAD = """\
# The command line

Made from what the commands say of themselves (`--help`) by `scripts/generate_documents.py`; a check
fails when it is out of date. [Recipes](../how-to.md) show the options at work.
"""


_CODE = re.compile(r"((?<![\w`-])--[a-z][a-z-]*|[\w/.]*\*[\w/.*]*)")


class _Asked(Exception):
    """A sub-command was asked for help: no error, it carries the parser out of the command."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of *command*, at the moment when it would print its help.

    Raises:
        ValueError: it prints none.
    """

    def hand_over(parser: Parser) -> NoReturn:
        raise _Asked(parser.described())

    try:
        with mock.patch.object(Parser, "print_help", hand_over):
            main([command, "--help"])
    except _Asked as asked:
        return asked.parser
    raise ValueError(f"visruntime {command} --help says nothing")


def _option(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.metavar and action.nargs != 0:
        names = names.removesuffix("`") + f" {action.metavar}`"
    return f"* {names}: {_text((action.help or '') % {'default': action.default})}"


def _text(words: str) -> str:
    """Return words of a parser as Markdown: options and patterns as code."""
    return _CODE.sub(r"`\1`", words)


def _section(command: str) -> Iterator[str]:
    parser = parser_of(command)
    yield f"\n## visruntime {command}\n"
    yield f"```text\n{(parser.usage or '').strip()}\n```\n"
    yield f"{_text(parser.description or '')}\n"
    options = [action for action in parser._actions if action.dest != "help"]
    yield from map(_option, options)
    if parser.epilog:
        head, _, examples = parser.epilog.partition("\n")
        lines = "\n".join(line.removeprefix("  ") for line in examples.splitlines())
        yield f"\n{head.capitalize()}\n\n```text\n{lines.strip()}\n```"


def markdown() -> str:
    """Return the page."""
    lines = [_HEAD]
    for name in COMMANDS:
        words = " ".join((parser_of(name).description or "").split())
        first = re.split(r"(?<=\.) ", words)[0]
        lines.append(f"* [{name}](#visruntime-{name}): {_text(first)}")
    lines.append("\n" + HELP.rstrip().rpartition("\n\n")[2])
    for name in COMMANDS:
        lines += _section(name)
    return "\n".join(lines) + "\n"

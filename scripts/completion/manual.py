"""The manual page, in the macros of man(7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from website.cli_reference import parser_of

from completion.words import commands, first_sentence
from visruntime.cli.main import HELP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["page"]


def page() -> str:
    """Return the page; it names no version and no date, so that it changes with its words only."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '.\\" Made from what the commands say of themselves by scripts/generate_documents.py.'
    yield '.TH VISRUNTIME 1 "" visruntime "User Commands"'
    yield ".SH NAME"
    _, about, _, guest, flags, _, codes = HELP.strip().split("\n\n")
    yield _text(f"visruntime - {first_sentence(about)[:1].lower()}{first_sentence(about)[1:]}")
    yield ".SH SYNOPSIS"
    for command in commands():
        yield ".PP\n" + _text((parser_of(command.name).usage or "").strip())
    yield ".SH DESCRIPTION"
    yield _text(about)
    yield ".PP\n" + _text(" ".join(guest.split()))
    yield from _verbatim(flags)
    for command in commands():
        parser = parser_of(command.name)
        yield f".SH VISRUNTIME {command.name.upper()}"
        yield _text(" ".join((parser.description or "").split()))
        for option in command.options:
            value = f" \\fI{_escaped(option.value)}\\fR" if option.value else ""
            names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
            yield f".TP\n{names}{value}\n{_text(option.help)}"
        yield from _examples(parser)
    yield ".SH EXIT STATUS"
    yield _text(" ".join(codes.removeprefix("Exit codes: ").split()))
    yield ".SH FILES"
    yield ".TP\n.I visruntime.toml\nA policy file; doc/reference/policy.md says which one counts."
    yield ".TP\n.I ~/.cache/visruntime\nEnvironments and archives, kept for the next run."


def _examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    _, _, examples = (parser.epilog or "").partition("\n")
    if examples.strip():
        yield ".PP\nExamples:"
        yield from _verbatim(examples)


def _verbatim(text: str) -> Iterator[str]:
    yield ".nf"
    yield from (_text(line) if line.strip() else "" for line in text.strip("\n").splitlines())
    yield ".fi"


def _text(text: str) -> str:
    """Return *text* as a line that begins no request of troff's."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")

"""The completion for fish."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from completion.words import Command, Option

__all__ = ["script"]

_SCRIPT = r"""# Completion of visruntime for fish. Made by scripts/generate_documents.py.
#
#   visruntime completion fish > ~/.config/fish/completions/visruntime.fish

# Print the sub-command, and the number of words behind our options: those end at "--", and at
# the first word that is none.
function __visruntime_place
    set -l words (commandline -opc)
    set -l command $words[2]
    set -l valued
    switch "$command"
@valued@
    end
    set -e words[1..2]
    while set -q words[1]
        if test "$words[1]" = --
            set -e words[1]
            echo "$command" (math (count $words) + 1)
            return
        else if not string match -q -- '--*' "$words[1]"; and test "$words[1]" != -h
            break
        else if contains -- "$words[1]" $valued
            set -e words[1]
        end
        set -e words[1]
    end
    echo "$command" (count $words)
end

# Whether the word in question may be an option of the sub-command $argv[1].
function __visruntime_option
    test (__visruntime_place) = "$argv[1] 0"
end

# Whether it is the operand of the sub-command $argv[1] before which $argv[2] others stand, at least.
function __visruntime_operand
    set -l place (string split ' ' (__visruntime_place))
    test "$place[1]" = "$argv[1]"
    and test $place[2] -ge $argv[2]
end

complete -c visruntime -f
@complete@
"""
_HERE = "complete -c visruntime"


def script(commands: Iterable[Command]) -> str:
    """Return the script."""
    commands = list(commands)
    valued = []
    for command in commands:
        names = [name for option in command.options if option.value for name in option.names]
        if names:
            valued += [f"        case {command.name}", f"            set valued {' '.join(names)}"]
    lines = [
        f"{_HERE} -n 'test (count (commandline -opc)) -eq 1' "
        f"-a {command.name} -d {_quoted(command.about)}"
        for command in commands
    ]
    lines += [line for command in commands for line in _of(command)]
    return _SCRIPT.replace("@valued@", "\n".join(valued)).replace("@complete@", "\n".join(lines))


def _of(command: Command) -> Iterator[str]:
    yield f"\n# {command.name}"
    here = f"{_HERE} -n '__visruntime_option {command.name}'"
    for option in command.options:
        yield f"{here} {_option(option)} -d {_quoted(option.help)}"
    first = f"{_HERE} -n '__visruntime_operand {command.name} 0'"
    later = f"{_HERE} -n '__visruntime_operand {command.name} 1'"
    if command.verbs:
        only = f"{_HERE} -n '__visruntime_option {command.name}'"
        yield f"{only} -a '{' '.join(command.verbs)}'"
        if command.operands == "file":
            yield f"{later} -F"
    elif command.operands == "file":
        yield f"{first} -F"
    elif command.operands == "command":
        yield f"{first} -a '(__fish_complete_command)'"
        yield f"{later} -F"


def _option(option: Option) -> str:
    words = [
        f"-l {name.removeprefix('--')}" if name.startswith("--") else f"-s {name[1:]}"
        for name in option.names
    ]
    if option.value:
        words.append({"file": "-rF", "folder": "-x"}.get(option.completes, "-x"))
    answers = [
        *option.words,
        *(["(__fish_complete_directories)"] if option.completes == "folder" else []),
    ]
    return " ".join([*words, *([f"-a '{' '.join(answers)}'"] if answers else [])])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""The completion for zsh."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from completion.words import Command, Option

__all__ = ["script"]

_SCRIPT = r"""#compdef visruntime
# Completion of visruntime for zsh. Made by scripts/generate_documents.py.
#
#   visruntime completion zsh > FOLDER/_visruntime      where FOLDER is in $fpath

_visruntime() {
    local -a commands
    commands=(
@commands@
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    # -S and -A: options of ours end at "--", and at the first word that is none.
    case $command in
@cases@
    esac
}

if [[ $funcstack[1] == _visruntime ]]; then
    _visruntime "$@"
else
    compdef _visruntime visruntime
fi
"""
_OPERANDS = {
    "command": "'(-)*::command:_normal'",
    "file": "'*:file:_files'",
}


def script(commands: Iterable[Command]) -> str:
    """Return the script."""
    commands = list(commands)
    names = [f"        '{each.name}:{_escaped(each.about, ':')}'" for each in commands]
    cases = [line for command in commands for line in _case(command)]
    return _SCRIPT.replace("@commands@", "\n".join(names)).replace("@cases@", "\n".join(cases))


def _case(command: Command) -> list[str]:
    arguments = [_argument(name, option) for option in command.options for name in option.names]
    if command.verbs:
        arguments.append(f"'1:what:({' '.join(command.verbs)})'")
    if command.operands in _OPERANDS:
        arguments.append(_OPERANDS[command.operands])
    joined = " \\\n            ".join(arguments)
    return [
        f"    {command.name})",
        f"        _arguments -S -A '-*' \\\n            {joined}",
        "        ;;",
    ]


def _argument(name: str, option: Option) -> str:
    text = _escaped(option.help, "[]")
    if not option.value:
        return f"'{name}[{text}]'"
    actions = [f"({' '.join(option.words)})"] if option.words else []
    actions += {"file": ["_files"], "folder": ["_files -/"]}.get(option.completes, [])
    action = actions[0] if actions else " "
    if len(actions) > 1:
        action = f'_alternative "words:word:{actions[0]}" "files:file:{actions[1]}"'
        action = "{" + action + "}"
    # Any number of times: most may be given again.
    return f"'*{name}=[{text}]:{_escaped(option.value, ':[]')}:{action}'"


def _escaped(text: str, marks: str) -> str:
    """Return *text* for single quotes, with *marks* behind backslashes."""
    text = text.replace("\\", "\\\\")
    for mark in marks:
        text = text.replace(mark, f"\\{mark}")
    return text.replace("'", "'\\''")

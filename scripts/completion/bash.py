"""The completion for bash, which needs nothing of the package bash-completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from completion.words import Command

__all__ = ["script"]

_SCRIPT = r"""# Completion of visruntime for bash. Made by scripts/generate_documents.py.
#
#   source <(visruntime completion bash)

# Offer what compgen finds, as it is: a name may hold blanks and patterns.
_visruntime_offer() {
    local found
    mapfile -t found < <(compgen "$@")
    COMPREPLY+=("${found[@]}")
}

# Offer the files that begin like $1; with $2 -d, folders only.
_visruntime_files() {
    compopt -o filenames 2>/dev/null
    _visruntime_offer "${2:--f}" -- "$1"
}

_visruntime() {
    local current=$2 command=${COMP_WORDS[1]-} options="" valued="" verbs="" operands="nothing"
    local option="" place=2 word
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _visruntime_offer -W "@commands@" -- "$current"
        return
    fi
    case $command in
@cases@
    *) return ;;
    esac
    # Options of ours end at "--", and at the first word that is none.
    while ((place < COMP_CWORD)); do
        word=${COMP_WORDS[place]}
        if [[ $word == -- ]]; then
            ((place++))
            options=""
            break
        elif [[ $word != --* && $word != -h ]]; then
            options=""
            break
        elif [[ ${COMP_WORDS[place + 1]-} == = ]]; then # bash takes --option=value apart
            option=$word
            ((place += 3))
        elif [[ " $valued " == *" $word "* ]]; then
            option=$word
            ((place += 2))
        else
            option=""
            ((place++))
        fi
    done
    if ((place > COMP_CWORD)); then # the value of an option
        [[ $current == = ]] && current=""
        case $command/$option in
@values@
        esac
        return
    fi
    if [[ $options && $current == -* ]]; then
        _visruntime_offer -W "$options" -- "$current"
        return
    fi
    if [[ $verbs ]] && ((place == COMP_CWORD)); then
        _visruntime_offer -W "$verbs" -- "$current"
        return
    fi
    case $operands in
    command)
        if ((place == COMP_CWORD)) && [[ $current != */* ]]; then
            _visruntime_offer -c -- "$current"
        elif declare -F _command_offset >/dev/null && ((place < COMP_CWORD)); then
            _command_offset "$place"
        else
            _visruntime_files "$current"
        fi
        ;;
    file) _visruntime_files "$current" ;;
    esac
}

complete -F _visruntime visruntime
"""


def script(commands: Iterable[Command]) -> str:
    """Return the script."""
    commands = list(commands)
    cases = [line for command in commands for line in _case(command)]
    # The same for several commands at most of the time: once for each answer.
    answers: dict[str, list[str]] = {}
    for command in commands:
        for option in command.options:
            steps = []
            if option.words:
                steps.append(f'_visruntime_offer -W "{" ".join(option.words)}" -- "$current"')
            if option.completes != "nothing":
                kind = " -d" if option.completes == "folder" else ""
                steps.append(f'_visruntime_files "$current"{kind}')
            if steps:
                names = [f"{command.name}/{name}" for name in option.names]
                answers.setdefault("; ".join(steps), []).extend(names)
    values = [_values(names, answer) for answer, names in answers.items()]
    return (
        _SCRIPT.replace("@commands@", " ".join(command.name for command in commands))
        .replace("@cases@", "\n".join(cases))
        .replace("@values@", "\n".join(values))
    )


def _case(command: Command) -> list[str]:
    every = [name for option in command.options for name in option.names]
    valued = [name for option in command.options if option.value for name in option.names]
    lines = [f"    {command.name})", f'        options="{" ".join(every)}"']
    lines += [f'        valued="{" ".join(valued)}"'] if valued else []
    lines += [f'        verbs="{" ".join(command.verbs)}"'] if command.verbs else []
    lines += [f'        operands="{command.operands}"'] if command.operands != "nothing" else []
    return [*lines, "        ;;"]


def _values(names: list[str], answer: str) -> str:
    by_option: dict[str, list[str]] = {}
    for name in names:
        command, _, option = name.partition("/")
        by_option.setdefault(option, []).append(command)
    patterns = " | ".join(f"*/{option}" for option in by_option)
    return f"        {patterns}) {answer} ;;"

"""Shells complete our command line as it is read: no option of ours is offered to a guest's program."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from required import missing

from visruntime.cli import main
from visruntime.cli.completion import SHELLS
from visruntime.cli.main import COMMANDS
from visruntime.cli.texts import text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

# zsh takes a second for each line, and neither it nor fish is on every machine.
TRIED = SHELLS if os.environ.get("VIS_FULL") == "1" else ("bash",)
BASH = r"""
source /dev/stdin <<<"$SCRIPT"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_visruntime visruntime "${COMP_WORDS[COMP_CWORD]}"
printf '%s\n' "${COMPREPLY[@]}"
"""
FISH = 'echo "$SCRIPT" | source; complete -C (string join " " -- $argv)'
# zsh completes at a terminal only; what it would insert is taken from compadd.
ZSH = r"""
zmodload zsh/zpty
zpty line zsh -f -i
setup=(
    'PROMPT= PROMPT2=' 'autoload -U compinit; compinit -u -D' 'eval "$SCRIPT"'
    'compadd() {
        local -a given
        builtin compadd -O given "$@"
        local one
        for one in $given; do print -r -- "<$one>"; done
        builtin compadd "$@"
    }'
    'complete_it() { _main_complete; print -r -- "<end>" }'
    'zle -C offer list-choices complete_it' 'bindkey "^X" offer' 'print -r -- "<rea""dy>"'
)
zpty -w line "${(F)setup}"
zpty -r -m line said '*<ready>*'
zpty -w -n line "${*}"$'\x18'
zpty -r -m line said '*<end>*'
print -r -- "$said"
zpty -d line
"""


def offered(name: str, words: list[str], folder: Path) -> set[str]:
    """Return what the shell *name* offers for the last one of *words*."""
    programs = {
        "bash": ["bash", "--norc", "-c", BASH, "bash", *words],
        "fish": ["fish", "--no-config", "-c", FISH, *words],
        "zsh": ["zsh", "-f", "-c", ZSH, "zsh", *words],
    }
    command = programs[name]
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed")
    done = subprocess.run(
        [path, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "SCRIPT": text(f"visruntime.{name}"),
            "TERM": "dumb",
        },
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    if name == "zsh":
        return {part.partition(">")[0] for part in done.stdout.split("<")[1:]} - {"end"}
    return {line.partition("\t")[0] for line in done.stdout.splitlines()} - {""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file, a folder, and a name that is a pattern."""
    (tmp_path / "source").mkdir()
    (tmp_path / "some.txt").touch()
    (tmp_path / "s*").touch()
    return tmp_path


@pytest.mark.parametrize("name", TRIED)
def test_every_command_is_offered(name: str, folder: Path) -> None:
    """No sub-command is missing, and nothing else is offered in its place."""
    assert offered(name, ["visruntime", ""], folder) == set(COMMANDS)


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exec", "--deny-"], {"--deny-read", "--deny-write", "--deny-exec", "--deny-host"}),
        (["exec", "--net", "o"], {"off", "open"}),
        (["run", "--read", "x", "--net", "p"], {"proxy"}),
        (["bundle", ""], {"install", "list", "verify"}),
        (["schema", "re"], {"report"}),
        (["why", "--write", ".", "c"], {"connect"}),
        (["completion", "z"], {"zsh"}),
        (["exec", "--read", "source", "ls", "--deny-"], set()),
        (["exec", "--read", "source", "--", "--deny-"], set()),
        (["run", "script.py", "--deny-"], set()),
        (["nothing", "--deny-"], set()),
    ],
)
def test_what_is_offered(name: str, words: list[str], expected: set[str], folder: Path) -> None:
    """Options and their values are offered before the guest's words, and none of ours behind them."""
    assert offered(name, ["visruntime", *words], folder) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "so"], {"some.txt", "source"}),
        (["run", "s"], {"some.txt", "source", "s*"}),
        (["exec", "--read", "so"], {"some.txt", "source"}),
        (["exec", "--read", "=", "so"], {"some.txt", "source"}),
        (["exec", "--read", "="], {"some.txt", "source", "s*"}),
        (["exec", "--cwd", "so"], {"source"}),
        (["exec", "cat", "so"], {"some.txt", "source"}),
        (["run", "--ca", "s"], {"system", "some.txt", "source", "s*"}),
        (["bundle", "verify", "so"], {"some.txt", "source"}),
    ],
)
def test_files_in_bash(words: list[str], expected: set[str], folder: Path) -> None:
    """A name that is a pattern stays what it is, and folders are offered where only they can be."""
    assert offered("bash", ["visruntime", *words], folder) == expected


def test_programs_in_bash(folder: Path) -> None:
    """A program to execute is looked for in PATH."""
    assert "setpriv" in offered("bash", ["visruntime", "exec", "setpri"], folder)


@pytest.mark.parametrize("name", SHELLS)
def test_the_command_prints_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is what was tried, and an unknown shell is refused."""
    assert main(["completion", name]) == 0
    assert capsys.readouterr().out == text(f"visruntime.{name}")
    assert main(["completion", "csh"]) == 125
    assert "bash|zsh|fish" in capsys.readouterr().err


def test_the_manual_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Formatters have nothing to complain of, and no option is missing from what it shows."""
    assert main(["manual"]) == 0
    page = capsys.readouterr().out
    assert main(["manual", "now"]) == 125
    assert page.startswith('.\\" ')
    for command in COMMANDS:
        assert f"\n.SH VISRUNTIME {command.upper()}\n" in page
    for option in ("\\-\\-deny\\-read", "\\-\\-absent\\-deny", "\\-\\-apparmor"):
        assert f"\\fB{option}\\fR" in page
    groff = shutil.which("groff")
    if groff is None:
        return
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "visruntime exec [OPTIONS] -- COMMAND ARGS..." in done.stdout

"""Choose the sub-command, and turn what went wrong into one line and an exit code."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from contextlib import suppress

from visruntime._host.import_path import leave_current_folder_out
from visruntime.cli.messages import EXIT_REFUSED, Refusal, code_of, complain
from visruntime.errors import VisRuntimeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["command", "main"]

COLLECT_AFTER = 100_000
"""New objects after which cycles are looked for. What a short command makes it keeps to its end."""

COMMANDS = (
    *("exec", "run", "shell", "why", "doctor", "tls", "schema", "worker", "bundle", "version"),
    *("completion", "manual"),
)

HELP = """\
usage: visruntime exec|run|shell|why|doctor|tls|schema|worker|bundle|version|completion|manual ...

Run programs and Python that you do not trust, jailed by the kernel of this machine.

  exec    run a program            visruntime exec --write out -- make -C src
  run     run Python               visruntime run --read data script.py ARGS
  shell   a jailed shell           visruntime shell --write .
  why     what a policy allows     visruntime why --write . write .git/hooks/pre-commit
  doctor  what this machine can enforce, tried for real
  tls     why Python refuses a certificate   visruntime tls explain example.org
  bundle  a CPython of the release for workers   visruntime bundle install FILE
  version what this is, on which system          visruntime version --json
  schema  the JSON Schema of policy files, --report and doctor --json
  worker  how a host in another language starts a Python worker, as JSON
  completion bash|zsh|fish               source <(visruntime completion bash)
  manual  all of this as a manual page   visruntime manual | man -l -

A guest sees the system's programs and libraries, empty private /tmp and HOME, no network,
and what you grant:

  --read P      P can be read               --write P     P can be read and changed
  --deny P      P stays closed inside a grant (the most specific path wins)
  --net open    the host's network          --env NAME    this variable of yours
  --timeout S   everything is killed after S seconds

Each sub-command tells all of its options: visruntime exec --help

Exit codes: the program's own; 128+n after signal n; 124 timed out; 125 visruntime refused,
and says why; 126 not executable; 127 not found.
"""


def command() -> NoReturn:
    """Run this process's command line, and end the process.

    Nothing of ours is left to be given back then, and Python would take every module apart first,
    which costs more than to open a jail.
    """
    gc.set_threshold(COLLECT_AFTER)
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (default: this process's) and return its exit code."""
    if argv is None:
        leave_current_folder_out(first=False)
        _prepare_standard_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError as error:
        _write_no_more()
        return code_of(error)
    except OSError as error:
        _write_no_more()
        complain(f"the output cannot be written: {_of_system(error)}")
        return code_of(error)
    return code


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        stream = sys.stdout if words else sys.stderr
        stream.write(HELP)
        return 0 if words else EXIT_REFUSED
    if words[0] == "--version":
        from visruntime._host.own_version import own_version

        sys.stdout.write(f"visruntime {own_version()}\n")
        return 0
    if words[0] not in COMMANDS:
        complain(f"no sub-command {words[0]!a}; there are {', '.join(COMMANDS)}")
        return EXIT_REFUSED
    try:
        os.getcwd()
    except OSError as error:
        complain(f"the current folder is gone ({error.strerror}); cd to one that is there")
        return EXIT_REFUSED
    from importlib import import_module

    windows = sys.platform == "win32"
    command = import_module(f"visruntime.cli.{'windows' if windows else words[0]}")
    try:
        code: int = command.main(words if windows else words[1:])
    except SystemExit:
        return 0  # help was asked for, and is written
    except Refusal as refusal:
        complain(str(refusal))
        return EXIT_REFUSED
    except VisRuntimeError as error:
        complain(str(error))
        return code_of(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(_of_system(error))
        return code_of(error)
    except KeyboardInterrupt as interrupt:
        return code_of(interrupt)
    return code


def _write_no_more() -> None:
    """Let what is still to be written go nowhere: Python would try again as it ends."""
    if sys.stdout is sys.__stdout__:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _of_system(error: OSError) -> str:
    """Return what an error of the system says, without its number."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename!a}: {error.strerror}" if error.filename else error.strerror


def _prepare_standard_streams() -> None:
    """Fill descriptors 0 to 2 where our caller closed them: no other file may get there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number: this one. Programs that we start need it as well.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a path can be any bytes
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (stays open)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (stays open)

"""``visruntime exec``: run one program in a jail, with our streams."""

from __future__ import annotations

import os

from visruntime._policy.paths import resolve_beside
from visruntime.cli.flags import Parser, check_backend, make_policy, seconds
from visruntime.cli.messages import EXIT_REFUSED, EXIT_TIMEOUT, Refusal, complain, say_ports
from visruntime.cli.report import ReportFile
from visruntime.cli.streams import Tail
from visruntime.errors import CommandTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from visruntime.cli.parser import Options
    from visruntime.jail import JailProcess
    from visruntime.policy import JailPolicy

__all__ = ["main", "run_program"]

EXAMPLES = """\
  visruntime exec -- python3 -c 'print("hello")'
  visruntime exec --read data --write out -- python3 make.py
  visruntime exec --write . --deny .env --timeout 60 -- npm test
  visruntime exec --net open --write . -- git fetch
"""


def main(words: Sequence[str]) -> int:
    """Run ``exec`` with the command line *words*."""
    parser = Parser(
        "exec",
        "-- COMMAND ARGS...",
        "Run a program in a jail; its streams and exit code are passed on.\nOn a terminal it gets "
        "one of its own (--tty); otherwise pipes.",
        EXAMPLES,
    )
    parser.add_policy_flags()
    parser.add_start_flags()
    parser.flag(
        "--tty",
        action="store_true",
        default=None,
        help="give it a terminal of its own; its output then reaches yours as it is, "
        "control sequences included (they can change your clipboard or title)",
    )
    parser.flag(
        "--no-tty",
        action="store_false",
        dest="tty",
        help="give it pipes; on a terminal, control characters in its output are shown as text",
    )
    parser.flag(
        "--pass-fd",
        metavar="N",
        action="append",
        default=[],
        help="give it your descriptor N (3 to 15) under the same number; what it leads to is the "
        "guest's then, whatever the policy says",
    )
    options, command = parser.split(words)
    descriptors = _passed(options.pass_fd)
    if not command:
        raise Refusal("no command; write it after --, as in: visruntime exec -- ls")
    terminal = os.isatty(0) and os.isatty(1)
    if options.tty and not terminal:
        raise Refusal("--tty: stdin and stdout are not a terminal; leave --tty out")
    tty = terminal if options.tty is None else options.tty
    return run_program(options, lambda _: command, tty=tty, descriptors=descriptors)


def _passed(texts: Sequence[str]) -> list[int]:
    """Return the descriptors of ``--pass-fd``: ours, which the guest gets under their numbers."""
    numbers = []
    for text in texts:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 0
        if not 3 <= number <= 15:
            raise Refusal(f"--pass-fd: a number from 3 to 15, not {text!a}")
        try:
            os.fstat(number)
        except OSError:
            raise Refusal(f"--pass-fd {number}: there is no such descriptor here") from None
        numbers.append(number)
    return numbers


def run_program(
    options: Options,
    command: Callable[[JailPolicy], Sequence[str]],
    *,
    tty: bool,
    descriptors: Sequence[int] = (),
) -> int:
    """Run *command* under the policy of *options* and return the exit code for ours.

    It gets our *descriptors*, which are closed here.
    """
    with ReportFile(options.report).covering() as report:
        policy = make_policy(options)
        report.open(policy)
        report.refuse_unsupported(policy)
        backend = check_backend(options)
        timeout = seconds(options.timeout, "--timeout") if options.timeout else None
        cwd = resolve_beside(options.cwd, os.getcwd(), "--cwd") if options.cwd else None
        from visruntime.jail import PIPE, Jail

        with Jail(policy, backend=backend) as jail:
            say_ports(policy.inbound, jail.ports)
            streams: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
            if tty:
                from visruntime.cli.streams import terminal_size

                rows, columns = terminal_size()
                streams = {"pty": True, "rows": rows, "cols": columns}
            words = list(command(policy))
            streams["pass_fds"] = {number: number for number in descriptors}
            process = jail.spawn(words, cwd=cwd, timeout=timeout, **streams)
            for number in descriptors:
                os.close(number)  # the other end is to see when the guest has let go of it
            tail = Tail() if report.wanted else None
            code = _relay(process, tty=tty, tail=tail)
            report.record(jail.report, process)
            if tail is not None and process.returncode:
                report.add(*jail.guesses(bytes(tail.data)))
        report.data["status"] = code
        return code


def _relay(process: JailProcess, *, tty: bool, tail: Tail | None) -> int:
    """Carry the streams until *process* has ended; return the exit code for ours.

    The end of its stderr is left in *tail*.
    """
    from visruntime.cli.streams import (
        Stopped,
        ending_signals,
        forwarded_signals,
        relay_pipes,
        relay_terminal,
    )

    lost = None
    try:
        with ending_signals() if tty else forwarded_signals(process):
            if tty:
                relay_terminal(process)
            else:
                lost = relay_pipes(process, tail)
            code: int = process.wait()
    except Stopped as stop:
        process.close()
        return 128 + stop.number
    except CommandTimeout:
        return EXIT_TIMEOUT
    if process.stopped_by in ("timeout", "wall"):
        complain("timed out; the program and all that it started were ended")
        return EXIT_TIMEOUT
    for violation in process.violations:
        # Of what was refused a program that succeeds all the same can do without.
        if code or violation.limit is not None:
            complain(f"{violation.kind}: {violation.detail}")
    # Where only nobody reads any more the program has learnt it, and ended as it wanted.
    if lost is not None and not isinstance(lost, BrokenPipeError):
        complain(f"what the program wrote to stdout is lost: {lost.strerror}")
        code = code or EXIT_REFUSED
    return code if code >= 0 else 128 - code

"""``visruntime run``: run Python in a jailed worker, as ``python`` would."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

from visruntime._host.files import open_regular, refuse_planted
from visruntime._policy.links import named_path
from visruntime._policy.paths import escape, resolve_beside
from visruntime.cli.flags import Parser, check_backend, make_policy_and_files, seconds
from visruntime.cli.messages import EXIT_TIMEOUT, Cleaner, Refusal, complain, say_ports
from visruntime.cli.packages import add_flags, environment_of, say_missing
from visruntime.cli.report import ReportFile
from visruntime.cli.streams import piped_stdin, write_all, write_whole
from visruntime.config import python_settings
from visruntime.errors import CommandTimeout, WorkerDied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from typing import Any, BinaryIO

    from visruntime.cli.parser import Options
    from visruntime.config import ConfigFile
    from visruntime.events import Violation

__all__ = ["main"]

ELF = b"\x7fELF"
"""How each program of Linux begins that is no script."""
MAX_SCRIPT_BYTES = 16 * 1024**2
"""Largest script that is handed to a worker, in bytes."""


EXAMPLES = """\
  visruntime run script.py ARGS                  the script needs no --read for itself
  visruntime run --read data --write out script.py
  visruntime run -c 'print(2 ** 100)'
  visruntime run --read . -m package.module
  visruntime run --project . --read . script.py     with the packages of ./uv.lock
  visruntime run --with requests --index default script.py
  visruntime run script.py <input.txt
  visruntime run --no-processes untrusted.py         one process, and no other is started
  some-generator | visruntime run -
"""

DRIVER = (
    """__import__("_visguest.program", fromlist=["run"]).run(kind, source, path, argv, folder)"""
)
"""What the worker runs (`guest/program.py`). All that it returns is the guest's claim."""


class Program:
    """What to run: a script's bytes, code, or the name of a module."""

    __slots__ = ("argv", "folder", "kind", "path", "source")

    def __init__(self, words: Sequence[str]) -> None:
        first, rest = words[0], list(words[1:])
        if first in ("-c", "-m") and not rest:
            raise Refusal(f"{first} needs {'code' if first == '-c' else 'the name of a module'}")
        self.kind: str
        self.path: str
        self.argv: list[str]
        self.source: bytes | str
        self.folder: str = ""
        if first == "-c":
            self.kind, self.path, self.source = "code", "<string>", rest[0].encode()
            self.argv = ["-c", *rest[1:]]
        elif first == "-m":
            self.kind, self.path, self.source = "module", "", rest[0]
            self.argv = rest
            self.folder = os.getcwd()
        elif first == "-":
            self.kind, self.path = "code", "<stdin>"
            self.source = _bounded(sys.stdin.buffer, "stdin")
            self.argv = ["-", *rest]
        elif first.startswith("-"):
            raise Refusal(f"no option {first!a} (see visruntime run --help)")
        else:
            self.kind, self.argv = "file", [first, *rest]
            self.path = resolve_beside(first, os.getcwd(), "SCRIPT")
            self.source = _script(self.path, first)
            # The guest is told of it, so no link that one may have made is followed.
            self.folder = os.path.dirname(named_path("SCRIPT", self.path))

    def inputs(self) -> dict[str, Any]:
        """Return what the driver in the worker needs."""
        return {name: getattr(self, name) for name in self.__slots__}

    def missing_read(self, top: str) -> str | None:
        """Return the path to grant if the module *top* stands beside the script, else ``None``.

        The name is the guest's claim: it is compared with a listing, never used as a path.
        """
        if not self.folder or not top.isidentifier():
            return None
        try:
            beside = os.listdir(self.folder)
        except OSError:
            return None
        return self.folder if top in beside or f"{top}.py" in beside else None


def main(words: Sequence[str]) -> int:
    """Run ``run`` with the command line *words*."""
    parser = Parser(
        "run",
        "SCRIPT|-c CODE|-m MODULE|- [ARGS...]",
        "Run Python in a jailed worker; it prints and exits as python would.\n"
        "Its stdin is yours if that is a file or a pipe, and empty if yours is a terminal.",
        EXAMPLES,
    )
    parser.add_policy_flags()
    parser.add_start_flags()
    parser.flag("--python", metavar="PATH", help="the interpreter, instead of this one")
    add_flags(parser)
    parser.flag(
        "--tls-lenient",
        action="store_true",
        help="accept authorities that break RFC 5280, as Python did before 3.13; see doc/tls.md",
    )
    parser.flag(
        "--ca",
        metavar="FILE|system",
        help="the certificate authorities (PEM) that Python and other programs are to trust",
    )
    parser.flag(
        "--no-processes",
        action="store_true",
        help="let it start no other process; a system call filter holds that, threads are let",
    )
    parser.flag(
        "--no-ctypes",
        action="store_true",
        help="refuse it ctypes; the audit hook does, which shows mistakes and is no wall",
    )
    parser.flag(
        "--native-modules",
        metavar="read-only|anywhere",
        default="read-only",
        help="from where it loads machine code: only what it cannot write (the default), or also "
        "what it has just built; by the audit hook, as above",
    )
    options, rest = parser.split(words)
    if options.native_modules not in ("read-only", "anywhere"):
        raise Refusal(f"--native-modules: read-only or anywhere, not {options.native_modules!a}")
    if not rest:
        raise Refusal("nothing to run; name a script, or -c CODE, or -m MODULE, or - for stdin")
    return _run(options, rest)


def _run(options: Options, words: Sequence[str]) -> int:
    with ReportFile(options.report).covering() as report:
        policy, named, found = make_policy_and_files(options)
        program = Program(words)
        report.open(policy)
        report.refuse_unsupported(policy)
        tls_strict = _tls_strict(options, named, found)
        backend = check_backend(options)
        timeout = seconds(options.timeout, "--timeout") if options.timeout else None
        cwd = resolve_beside(options.cwd, os.getcwd(), "--cwd") if options.cwd else None
        ca = options.ca
        if ca and ca != "system":
            ca = resolve_beside(ca, os.getcwd(), "--ca")
        environment = environment_of(options, program)
        from visruntime.runtime import Runtime

        with (
            _stdin(program) as stdin,
            Runtime(
                policy,
                python=options.python if environment is None else None,
                environment=environment,
                tls_strict=tls_strict,
                ca=ca,
                cwd=cwd,
                stdin=stdin,
                backend=backend,
                processes=not options.no_processes,
                ctypes=not options.no_ctypes,
                native_modules=options.native_modules,
            ) as runtime,
        ):
            say_ports(policy.inbound, runtime.ports)
            code, result, death = _drive(runtime, program.inputs(), timeout)
            hint = _hint(runtime, result)
            _say_missing(runtime, result, program)
        report.record(getattr(result, "report", None), result)
        report.data["exit"] = _exit(code, result, death)
        report.data["status"] = code
        if hint is not None:
            # The worker's own audit hook may have told of the same act.
            if hint not in getattr(result, "violations", ()):
                report.add([hint])
            fix = f"; to allow it: {hint.grant.cli}" if hint.grant is not None else ""
            complain(f"hint: {hint.detail}{fix}")
        return code


def _tls_strict(options: Options, named: ConfigFile | None, found: list[ConfigFile]) -> bool | None:
    """Return the setting from the flag and the files; found ones can only make stricter."""
    asked = False if options.tls_lenient else None
    merged = python_settings(named, found, tls_strict=asked).tls_strict
    if merged and python_settings(named, tls_strict=asked).tls_strict is False:
        for file in found:
            if file.python.tls_strict:
                complain(f"python.tls_strict = true in {file.name!a} counts: TLS stays strict")
    return merged


def _exit(code: int, result: Any, death: WorkerDied | None) -> dict[str, Any]:
    """Return how the program ended: no code after a signal or a timeout.

    A signal is what the kernel reported of the worker, never a code above 128 that it chose.
    """
    stopped = getattr(result, "stopped_by", None)
    signal = None if death is None else death.signal
    return {
        "code": None if signal is not None or stopped in ("timeout", "wall") else code,
        "signal": signal,
        "stopped_by": stopped,
    }


def _hint(runtime: Any, result: Any) -> Violation | None:
    """Return what the policy says of the error that the driver claims to have ended with."""
    value = getattr(result, "value", None)
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        return None
    number, path = value[2:]
    if type(number) is not int or not isinstance(path, str | None):
        return None
    found: Violation | None = runtime._explain(number, path)
    return found


def _stdin(program: Program) -> AbstractContextManager[int | None]:
    """Give what becomes the worker's stdin: never our own descriptor, and no terminal."""
    if program.path == "<stdin>" or os.isatty(0):
        return nullcontext()
    return piped_stdin()


def _drive(
    runtime: Any, inputs: dict[str, Any], timeout: float | None
) -> tuple[int, Any, WorkerDied | None]:
    """Run the driver; return our exit code, the result, and how the worker ended if it did."""
    cleaners = {
        name: Cleaner() if os.isatty(target) else None
        for name, target in (("stdout", 1), ("stderr", 2))
    }

    def show(stream: str, piece: bytes, *, last: bool = False) -> None:
        cleaner = cleaners[stream]
        shown = cleaner.feed(piece, last=last) if cleaner else piece
        if stream == "stderr":
            write_all(2, shown)
        else:
            write_whole(1, shown)  # where nobody reads, the program ends, as it would by itself

    try:
        result = runtime.run(
            DRIVER, inputs=inputs, timeout=timeout, filename="<visruntime>", on_output=show
        )
    except CommandTimeout as late:
        complain(f"timed out after {timeout:g} s")
        ended = late.__cause__
        return EXIT_TIMEOUT, late.result, ended if isinstance(ended, WorkerDied) else None
    except WorkerDied as death:
        if death.stopped_by in ("timeout", "wall"):
            complain("the worker's time was over")
            return EXIT_TIMEOUT, death.result, death
        for violation in death.result.violations if death.result is not None else ():
            complain(f"{violation.kind}: {violation.detail}")
        if death.signal is not None:
            complain(f"the worker was ended by signal {death.signal}")
            return 128 + death.signal, death.result, death
        if death.exit_code is None:
            raise
        return death.exit_code, death.result, death
    finally:
        for stream in cleaners:
            show(stream, b"", last=True)
    if result.error is not None:
        write_all(2, Cleaner().feed(result.error.traceback.encode("utf-8", "replace"), last=True))
        return 1, result, None
    if result.exit_code is not None:
        return result.exit_code & 0xFF, result, None
    return _status(result.value), result, None


def _status(value: object) -> int:
    """Return the exit code in what the driver claims to have returned."""
    if isinstance(value, (list, tuple)) and len(value) == 4 and isinstance(value[0], int):
        return value[0] & 0xFF
    return 1


def _say_missing(runtime: Any, result: Any, program: Program) -> None:
    """Tell what an import that failed needs: a grant of the script's neighbour, or a package."""
    value = getattr(result, "value", None)
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        return
    if tuple(value[2:]) == (None, "<stdin>") and (program.path == "<stdin>" or os.isatty(0)):
        complain("the guest's stdin is empty: a terminal is not handed over; give input by a pipe")
    if not isinstance(value[1], str):
        return
    # No more of the guest's words than what was found in the folder or in a list of names.
    module = value[1].partition(".")[0]
    folder = program.missing_read(module)
    shown = _quoted(escape(folder)) if folder is not None else ""
    if folder is not None and program.kind == "module":
        complain(f"{module} is in this folder, which the guest may not read; add --read {shown}")
    elif folder is not None:
        complain(
            f"{module} is beside the script, and only the script itself was handed over; "
            f"add --read {shown}"
        )
    else:
        say_missing(runtime, value[1])


def _script(path: str, shown: str) -> bytes:
    """Return the bytes of a script: a regular file, not too large, and not behind a link.

    Who planted the link could choose any file of the caller's to be shown to the guest.
    """
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except IsADirectoryError:
        raise Refusal(f"{shown!a} is a folder; name the script in it") from None
    except OSError as error:
        raise Refusal(f"cannot open {shown!a}: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        try:
            refuse_planted(descriptor, path)
        except PermissionError as error:
            raise Refusal(f"cannot open {shown!a}: {error.strerror}") from None
        content = _bounded(file, shown)
    if content.startswith(ELF):
        raise Refusal(
            f"{shown!a} is a program and no Python script; run it by visruntime exec -- "
            + _quoted(shown)
        )
    return content


def _quoted(word: str) -> str:
    """Return *word* as a shell takes it."""
    from shlex import quote

    return quote(word)


def _bounded(file: BinaryIO, shown: str) -> bytes:
    content = file.read(MAX_SCRIPT_BYTES + 1)
    if len(content) > MAX_SCRIPT_BYTES:
        raise Refusal(f"{shown!a} is larger than {MAX_SCRIPT_BYTES} bytes")
    return content

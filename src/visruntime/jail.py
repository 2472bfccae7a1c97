"""Jails: opened once from a policy, then any number of programs are run in them.

The kernel enforces the policy; `Jail.report` says by what. A clause that this machine
cannot enforce is refused before anything starts, never weakened.
"""

from __future__ import annotations

import os
import threading
import time

from visruntime import _native
from visruntime._arguments import (
    check_data,
    check_list,
    check_path,
    check_seconds,
    check_switch,
    check_text,
    check_texts,
    check_word,
)
from visruntime._jail import files as _jail_files
from visruntime._jail.aliases import names_of
from visruntime._jail.backends import BACKEND_WORDS
from visruntime._jail.files import JailFiles
from visruntime._jail.open import open_jail
from visruntime._jail.ports import ports_of
from visruntime._jail.process import (
    DEVNULL,
    PIPE,
    STDOUT,
    STOP_NAMES,
    CommandResult,
    JailProcess,
    set_terminal_size,
)
from visruntime._jail.redacted import without_secrets
from visruntime._jail.streams import Streams
from visruntime._jail.usage import Meter
from visruntime._jail.violations import (
    Explainer,
    bounded,
    guessed,
    of_output,
)
from visruntime._policy.environment_names import check_env
from visruntime._policy.paths import is_within
from visruntime._policy.patterns import plain_paths
from visruntime._policy.redact import secrets_of
from visruntime._policy.values import Secret
from visruntime.errors import (
    CommandError,
    CommandFailed,
    CommandNotExecutable,
    CommandNotFound,
    CommandTimeout,
    JailClosed,
    PathDenied,
)
from visruntime.policy import JailPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Self

    from visruntime._jail.processes import ProcessInfo
    from visruntime._jail.terminal import TerminalSession
    from visruntime.events import EnforcementReport, Violation

__all__ = ["DEVNULL", "PIPE", "STDOUT", "CommandResult", "Jail", "JailProcess"]

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
NOT_FOUND = (2, 20)  # ENOENT, ENOTDIR
PROCESS_LIST_MAX = 8 << 20
SPAWN_STRINGS_MAX = 2 << 20
"""Bytes of argv, environment and working directory together."""


class Jail(JailFiles):
    """One jail: a root, a process tree and a network of its own, under one policy.

    Use it as a context manager. All methods may be called from any thread. In a forked
    child of the opener the object only lets go of the jail, which goes on.

    Args:
        policy: what the guests may do.
        backend: "namespaces", "bubblewrap" (the system's bwrap makes the mounts) or "landlock"
            (no namespaces; refuses most clauses); "seatbelt" is macOS's. "auto" takes the first
            that opens here and holds every clause; `report` names it.
        config_files: policy and configuration files in use, kept from the guests.

    Raises:
        PolicyUnsupported: a clause that cannot be enforced here; nothing was started.
        PolicyError: a path of the policy that does not exist or leads astray.
        JailUnavailable: this machine opens no jail; the message says what would help.
    """

    def __init__(
        self,
        policy: JailPolicy,
        *,
        backend: str = "auto",
        config_files: Iterable[str] = (),
        implicit_read: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._closed = True
        self._ending = threading.RLock()
        self._process_id = os.getpid()
        if not isinstance(policy, JailPolicy):
            raise TypeError(f"policy: a JailPolicy is needed, not {type(policy).__name__}")
        check_word(backend, "backend", BACKEND_WORDS)
        config_files = check_texts(config_files, "config_files")
        implicit_read = _reasons(implicit_read)
        self.policy = policy
        opened = open_jail(policy, backend, config_files=config_files, implicit_read=implicit_read)
        self._handle = opened.handle
        self._held = opened.held
        self._caches = opened.caches
        self._closed = False
        self._report = opened.report
        self._rules = opened.plan.rules
        self._explainer = Explainer(
            policy, opened.plan.rules, opened.plan.secrets, opened.plan.written
        )
        self._host_rules = opened.plan.host_rules
        self._home = opened.plan.home
        self._base_env = _environment(
            policy, opened.plan.home, opened.held.environment, own_tmp=opened.plan.own_tmp
        )
        self._environment_bytes = _in_bytes(self._base_env)
        self._meter = Meter(opened.held)

    # ---- running ----------------------------------------------------------------

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        input: bytes = b"",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | Secret] | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Run *command*, wait until nothing of it is left, and return what it did.

        The run ends when the program itself ends: descendants that are left then are killed.

        Args:
            command: the program and its arguments; never passed to a shell.
            input: what the program reads from stdin; nothing (end of file) by default.
            cwd: absolute; by default the host's, if the policy grants it, else HOME, or ``/``
                where a guest has closed HOME.
            env: variables on top of those of the policy.
            timeout: seconds until the whole process tree is killed.
            check: raise when the exit code is not 0.

        Raises:
            CommandNotFound: there is no such program in the jail.
            CommandNotExecutable: it may not be executed there.
            CommandTimeout: time ran out; ``.result`` holds the output so far.
            CommandFailed: with *check*.
            JailClosed: the jail has ended.
        """
        input = check_data(input, "input")
        check_switch(check, "check")
        process = self._spawn(
            command,
            stdin=PIPE if input else None,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=env,
            timeout=timeout,
            quiet=True,
        )
        try:
            stdout, stderr = process.communicate(input)
        except BaseException:
            process.close()
            raise
        result = self._result(process, stdout, stderr)
        if process.stopped_by == "timeout":
            raise CommandTimeout(f"{process.args[0]} was ended after {timeout} s", result=result)
        if check and result.exit_code != 0:
            raise CommandFailed(f"{process.args[0]}: {_end_of(result)}", result=result)
        return result

    def shell(self, script: str, **options: Any) -> CommandResult:
        """Run *script* with the jail's shell: ``bash -c``, or ``sh -c`` where there is no bash.

        Takes the options of `run`.
        """
        check_text(script, "script")
        shell = "/bin/bash" if self.exists("/bin/bash") else "/bin/sh"
        return self.run([shell, "-c", script], **options)

    def spawn(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        pty: bool = False,
        rows: int = 24,
        cols: int = 80,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | Secret] | None = None,
        timeout: float | None = None,
        pass_fds: Mapping[int, int] | None = None,
    ) -> JailProcess:
        """Start *command* and return at once.

        Args:
            stdin, stdout, stderr: ``None`` for nothing (/dev/null), `PIPE`, `DEVNULL`, a
                descriptor or a file; `STDOUT` for stderr. A file is the host's own: a guest with
                the uid of its owner can change its mode and times, though not its content,
                if it was opened for reading.
            pty: give the program a terminal of its own for all three; see ``.pty``.
            rows, cols: of that terminal.
            pass_fds: number in the program (3 to 15) -> descriptor of the host.

        The other arguments and the errors are those of `run`; a timeout ends the program and
        is seen in ``.stopped_by``.
        """
        check_switch(pty, "pty")
        return self._spawn(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pty=pty,
            rows=rows,
            cols=cols,
            cwd=cwd,
            env=env,
            timeout=timeout,
            pass_fds=pass_fds,
        )

    def _spawn(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str | Secret] | None,
        timeout: float | None,
        pty: bool = False,
        rows: int = 24,
        cols: int = 80,
        pass_fds: Mapping[int, int] | None = None,
        quiet: bool = False,
    ) -> JailProcess:
        """Start *command*; with *quiet* for `run`: its failure to start comes with its end."""
        arguments = _arguments(command)
        environment = self._environment(env, pty=pty)
        wall = self.policy.limits.wall_seconds
        deadline, reason = check_seconds(timeout, "timeout"), "timeout"
        if wall is not None and (timeout is None or wall < timeout):
            deadline, reason = wall, "wall"
        directory, fallback = self._directory(cwd)
        streams = Streams(self, stdin, stdout, stderr, pty=pty)
        try:
            if pty:
                set_terminal_size(streams.master, rows, cols)
            streams.add(self, pass_fds or {})
            started = time.monotonic()
            request = {
                "directory": directory,
                "arguments": arguments,
                "environment": environment,
                "descriptors": streams.child,
                "timeout_ns": _nanoseconds(deadline),
                "search": b"/" not in arguments[0],
                "terminal": pty,
                "directory_fallback": fallback,
                "quiet": quiet,
            }
            account = self._meter.begin()
            account.ends_within(deadline)
            try:
                run = self._start(**request)
            except BaseException:
                account.close()
                raise
        except BaseException:
            streams.close_all()
            raise
        streams.close_child()
        limits = self.policy.limits
        return JailProcess(
            run,
            args=tuple(map(os.fsdecode, arguments)),
            report=self._report,
            output_limit=limits.output if limits.output is not None else 1 << 40,
            account=account,
            started=started,
            stop_reason=reason,
            cpu_limit=None if limits.cpu_seconds is None else int(limits.cpu_seconds),
            limits=limits,
            explain=lambda error: self._start_error(error, request),
            judge=self._explainer.of_refusal,
            captured=quiet,
            secrets=secrets_of(env or {}),
            **streams.parent,
        )

    def terminal(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        rows: int = 24,
        cols: int = 80,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | Secret] | None = None,
        timeout: float | None = None,
        max_bytes: int = 1 << 20,
        max_lines: int = 10_000,
    ) -> TerminalSession:
        """Return a session in which *command* can be run on a terminal; nothing starts yet.

        Args:
            max_bytes, max_lines: of the output that are kept, the last ones.

        The other arguments are those of `spawn`.
        """
        from visruntime._jail.terminal import TerminalSession

        return TerminalSession(
            self,
            tuple(map(os.fsdecode, _arguments(command))),
            rows=rows,
            cols=cols,
            cwd=cwd,
            env=env,
            timeout=timeout,
            max_bytes=max_bytes,
            max_lines=max_lines,
        )

    # ---- state ------------------------------------------------------------------

    def processes(self) -> tuple[ProcessInfo, ...]:
        """Return the guests' processes, in the order of their pids.

        Raises:
            OutputLimitExceeded: their list is longer than 8 MiB.
            PathDenied: by the back end ``landlock``, whose guests see no processes: the list is
                read under the jail's rights.
            JailClosed: the jail has ended.
        """
        from visruntime._jail.processes import parse_processes

        return parse_processes(self._do("PROCESSES", "/proc", limit=PROCESS_LIST_MAX))

    @property
    def report(self) -> EnforcementReport:
        """What enforces each clause, and the canaries that proved it."""
        return self._report

    @property
    def ports(self) -> dict[int, int]:
        """Ports of ``inbound=``: of the jail -> where on the host's loopback they are reached."""
        return ports_of(self.policy, self._handle.ports)

    @property
    def closed(self) -> bool:
        """Whether the jail has ended."""
        return self._closed or not self._handle.alive()

    def close(self) -> None:
        """End every program in the jail and the jail itself, and wait for that. Idempotent."""
        self._closed = True
        if not hasattr(self, "_held"):
            return  # it could not be opened
        if os.getpid() != self._process_id:
            self._end()  # a thread that is not in this child may hold the lock
            return
        with self._ending:
            self._end()

    def _end(self) -> None:
        self._held.loosen()
        self._handle.close()
        self._held.release()
        if self._caches is not None:
            self._caches.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # At the end of the interpreter a handle that is closed may be gone before this is.
        if not self._closed:
            self.close()

    def __repr__(self) -> str:
        return f"<Jail {'closed' if self._closed else 'open'} {self.policy.digest[:12]}>"

    # ---- inside -----------------------------------------------------------------

    def _start(self, **request: Any) -> _native.RunHandle:
        if self._closed:
            raise JailClosed("the jail is closed")
        try:
            return self._handle.start(**request)
        except _native.NativeError as error:
            raise self._start_error(error, request) from None

    def _start_error(self, error: _native.NativeError, request: Mapping[str, Any]) -> Exception:
        name = os.fsdecode(request["arguments"][0])
        folder = os.fsdecode(request["directory"])
        if error.stage == "execute":
            from visruntime._jail.start_hints import StartHints

            hints = StartHints(self._host_rules)
            refusal: CommandNotFound | CommandNotExecutable
            if error.errno in NOT_FOUND:
                hint = hints.of_missing(name, folder, _search_path(request["environment"]))
                refusal = CommandNotFound(f"{name}: not found in the jail{hint}")
            else:
                hint = hints.of_refused(name, folder)
                text = f"{name}: {os.strerror(error.errno)} in the jail{hint}"
                refusal = CommandNotExecutable(text)
            refusal.errno = error.errno
            return refusal
        if error.stage == "working directory":
            from visruntime._jail.start_hints import StartHints

            fix = StartHints(self._host_rules).of_directory(folder)
            return PathDenied(
                f"cwd: {folder}: {os.strerror(error.errno)} in the jail; {fix}", path=folder
            )
        if error.status == "closed":
            self.close()
            return JailClosed("the jail has ended")
        return CommandError(f"{name}: cannot be started: {error} ({error.stage})")

    def _environment(self, extra: Mapping[str, str | Secret] | None, *, pty: bool) -> list[bytes]:
        if not pty and not extra:
            return self._environment_bytes
        variables = dict(self._base_env)
        if pty:
            variables.setdefault("TERM", os.environ.get("TERM") or "xterm-256color")
        if extra:
            variables.update({k: _plain(v) for k, v in check_env(extra).items()})
        return _in_bytes(variables)

    def _directory(self, cwd: str | os.PathLike[str] | None) -> tuple[bytes, bool]:
        if cwd is not None:
            path = check_path(cwd, "cwd")
            if not path.startswith("/"):
                raise ValueError(f"cwd: {path!r} is not an absolute path")
            return os.fsencode(path), False
        try:
            here = os.getcwd()
        except FileNotFoundError:
            return os.fsencode(self._home), True
        grants = plain_paths(self.policy, ("read", "write"))
        granted = any(is_within(here, grant) for grant in grants)
        return os.fsencode(here if granted else self._home), True

    def _name_for_guest(self, descriptor: int, path: str) -> str | None:
        for name in (path, *names_of(descriptor)):
            if _native.decide(self._host_rules, "write", name)[0]:
                return name
        return None

    def _file_operation(
        self, operation: str, path: str, *, data: bytes = b"", limit: int = 0
    ) -> CommandResult:
        run, output = self._start_file_operation(operation, [path], limit or 1, data=data)
        end = None
        while end is None:
            end = run.communicate(output, None, None, feed=True)
        code = os.waitstatus_to_exitcode(end["status"])
        return CommandResult(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stdout=output.value(),
            stdout_total=output.total(),
            stderr=b"",
            stderr_total=0,
            stopped_by=STOP_NAMES[end["stop"]],
            usage=None,
            violations=(),
            violations_dropped=0,
            report=None,
        )

    def _start_file_operation(
        self, operation: str, arguments: list[str], limit: int, *, data: bytes = b""
    ) -> tuple[_native.RunHandle, _native.Capture]:
        streams = Streams(self, PIPE if data else None, PIPE, None, pty=False)
        try:
            run = self._start(
                directory=b"/",
                arguments=[os.fsencode(argument) for argument in arguments],
                environment=[],
                descriptors=streams.child,
                file=operation,
                limit=limit,
                timeout_ns=_nanoseconds(_jail_files.FILE_TIMEOUT_SECONDS),
            )
        except BaseException:
            streams.close_all()
            raise
        streams.close_child()
        if data:
            run.feed(data, streams.parent["stdin"])
        return run, _native.Capture(streams.parent["stdout"], max(limit, 2))

    def _result(
        self,
        process: JailProcess,
        stdout: bytes,
        stderr: bytes,
        totals: tuple[int, int] | None = None,
    ) -> CommandResult:
        code = process.returncode
        assert code is not None
        totals = totals or process.totals()
        violations, dropped = self._violations(process, stdout, stderr, totals)
        return CommandResult(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stdout=stdout,
            stdout_total=totals[0],
            stderr=stderr,
            stderr_total=totals[1],
            stopped_by=process.stopped_by,
            usage=process.usage,
            violations=violations,
            violations_dropped=dropped,
            report=self._report,
        )

    def _violations(
        self, process: JailProcess, stdout: bytes, stderr: bytes, totals: tuple[int, int]
    ) -> tuple[tuple[Violation, ...], int]:
        """Return what the policy stopped in a run, as far as it is known, and what is left out."""
        found = list(process.violations)
        if process.returncode or totals != (len(stdout), len(stderr)):
            streams = (("stdout", totals[0], len(stdout)), ("stderr", totals[1], len(stderr)))
            ended_by = -(process.returncode or 0)
            found += of_output(self.policy.limits, streams, ended_by=ended_by)
        if process.returncode:
            guesses = guessed(stderr, self._guess)
            found += [without_secrets(guess, process._secrets) for guess in guesses]
        kept, dropped = bounded(found)
        return kept, dropped + process.violations_dropped

    def guesses(self, text: bytes) -> tuple[tuple[Violation, ...], int]:
        """Return what in a guest's stderr looks like a refusal, and how many more there are."""
        return bounded(guessed(check_data(text, "text"), self._guess))

    def _guess(self, number: int, path: str | None) -> Violation | None:
        return self._explainer.explain(number, path, confidence="guess")


def _environment(
    policy: JailPolicy, home: str, added: Mapping[str, str], *, own_tmp: bool
) -> dict[str, str]:
    """Return the guest's variables: built from nothing, the host's only by name."""
    variables = {
        "PATH": SEARCH_PATH,
        "HOME": home,
        "TMPDIR": "/tmp",  # noqa: S108 - inside the jail
        "LANG": "C.UTF-8",
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/sh",
        **added,
    }
    if not own_tmp:
        del variables["TMPDIR"]
    variables.update({n: os.environ[n] for n in policy.inherit_env if n in os.environ})
    variables.update({name: _plain(value) for name, value in policy.env.items()})
    return variables


def _search_path(environment: Sequence[bytes]) -> str:
    return next((os.fsdecode(each[5:]) for each in environment if each.startswith(b"PATH=")), "")


def _in_bytes(variables: Mapping[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in variables.items()]


def _plain(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _arguments(command: Sequence[str | os.PathLike[str]]) -> list[bytes]:
    if isinstance(command, (str, bytes)):
        raise TypeError('command is a list: ["sh", "-c", "..."] if you want a shell')
    arguments = []
    for index, argument in enumerate(check_list(command, "command", '["ls", "-l"]')):
        arguments.append(os.fsencode(check_path(argument, f"command[{index}]", "text or a path")))
    if not arguments or not arguments[0]:
        raise ValueError("command: the program is missing")
    if sum(map(len, arguments)) > SPAWN_STRINGS_MAX:
        raise ValueError(f"command: more than {SPAWN_STRINGS_MAX} bytes of arguments")
    return arguments


def _nanoseconds(seconds: float | None) -> int:
    """The time of a request; 0, which means none, for ``None`` and for infinity."""
    if seconds is None or seconds > _native.MOST_SECONDS:
        return 0
    return max(1, int(seconds * 1e9))


def _reasons(implicit_read: object) -> list[tuple[str, str]]:
    pairs = check_list(implicit_read, "implicit_read", '[("/path", "reason")]')
    for pair in pairs:
        if not isinstance(pair, tuple) or [type(part) for part in pair] != [str, str]:
            raise TypeError("implicit_read: expected pairs of a path and a reason, both text")
    return pairs


def _end_of(result: CommandResult) -> str:
    if result.signal is not None:
        return f"ended by signal {result.signal}"
    return f"exit code {result.exit_code}"

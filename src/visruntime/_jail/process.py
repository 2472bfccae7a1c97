"""One program in a jail: its streams, its end, and what was measured of it."""

from __future__ import annotations

import errno
import io
import os
import time
from contextlib import suppress

from visruntime import _native
from visruntime._arguments import check_data, check_seconds, check_whole
from visruntime._jail.redacted import without_secrets
from visruntime._jail.violations import limit_violations
from visruntime._policy.values import Frozen
from visruntime.errors import CommandError, CommandTimeout, JailClosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import IO, Any, Self

    from visruntime._jail.usage import Account, Span
    from visruntime._policy.values import Limits
    from visruntime.events import EnforcementReport, Usage, Violation
else:
    import _signal as signal

__all__ = ["DEVNULL", "PIPE", "STDOUT", "CommandResult", "JailProcess", "Terminal"]

PIPE = -1
"""As `subprocess.PIPE`: make a pipe and give its end as an attribute."""
STDOUT = -2
"""As `subprocess.STDOUT`: for ``stderr``, the same as ``stdout``."""
DEVNULL = -3
"""As `subprocess.DEVNULL`."""

STOP_NAMES = (None, "timeout", "killed", "closed", "memory")

MOST_CELLS = 0x7FFF
"""Rows and columns of the largest terminal: the kernel has 16 bits for each, some programs 15."""

CPU_SIGNALS = {int(signal.SIGXCPU): 0, int(signal.SIGKILL): 1}
"""How many seconds past the limit of processor time the kernel sends which signal."""


class CommandResult(Frozen):
    """How a program ended, and what it wrote.

    ``exit_code`` is ``None`` after a signal, ``signal`` ``None`` after an exit. ``stdout`` and
    ``stderr`` hold the first and the last bytes up to the limit ``output``; ``stdout_total``
    and ``stderr_total`` count all of them. ``stopped_by`` is ``None`` when the program ended
    by itself, else one of "timeout", "wall", "cpu", "memory", "processes", "output",
    "closed", "killed". A time limit has stopped it only if the program was still there when
    the limit was looked at; ``usage.wall_seconds`` counts until its end was seen, on a busy
    machine later than it ended. ``violations`` hold the limit that ended it, output that was cut
    and what the jail's brokers refused, exactly, and, as guesses, lines of stderr that look like
    a refusal of the policy; ``violations_dropped`` counts those beyond a bound.
    """

    __slots__ = (
        "exit_code",
        "report",
        "signal",
        "stderr",
        "stderr_total",
        "stdout",
        "stdout_total",
        "stopped_by",
        "usage",
        "violations",
        "violations_dropped",
    )
    exit_code: int | None
    report: EnforcementReport
    signal: int | None
    stderr: bytes
    stderr_total: int
    stdout: bytes
    stdout_total: int
    stopped_by: str | None
    usage: Usage
    violations: tuple[Violation, ...]
    violations_dropped: int

    def __init__(self, **values: Any) -> None:
        self._set(**values)

    @property
    def stdout_text(self) -> str:
        """``stdout`` as UTF-8; bytes that are none become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """``stderr`` as UTF-8; bytes that are none become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        """Whether bytes in the middle of a stream were dropped."""
        return self.stdout_total > len(self.stdout) or self.stderr_total > len(self.stderr)

    def __repr__(self) -> str:
        end = f"exit_code={self.exit_code}" if self.signal is None else f"signal={self.signal}"
        stop = f", stopped_by={self.stopped_by!r}" if self.stopped_by else ""
        return (
            f"CommandResult({end}{stop}, {self.stdout_total} bytes of stdout, "
            f"{self.stderr_total} of stderr)"
        )


class Terminal(io.RawIOBase):
    """The host's end of a pseudo-terminal. Reads ``b""`` once every program has let go of it."""

    def __init__(self, descriptor: int, run: _native.RunHandle) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._run = run

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there into *buffer*; 0 at the end."""
        try:
            return os.readv(self._descriptor, [buffer])
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EIO:  # Linux: the last slave was closed
                return 0
            raise

    def write(self, data: Any) -> int:
        """Type *data*."""
        return os.write(self._descriptor, data)

    def close(self) -> None:
        """Close the descriptor."""
        if not self.closed:
            super().close()
            self._run.let_go(self._descriptor)


class JailProcess:
    """A program that runs in a jail, with the names of `subprocess.Popen`.

    ``stdin``, ``stdout`` and ``stderr`` are unbuffered binary files where a pipe was asked
    for; ``pty`` is the terminal. ``pid`` counts inside the jail. Letting go of the object
    ends the run: nothing runs on without an owner.

    One thread at a time may call `communicate`; `poll`, `wait`, signals, `suspend` and `kill`
    may come from others meanwhile. In a forked child of the host they raise `JailClosed`.
    """

    def __init__(
        self,
        run: _native.RunHandle,
        *,
        args: tuple[str, ...],
        report: EnforcementReport,
        output_limit: int,
        account: Account,
        started: float,
        stop_reason: str,
        cpu_limit: int | None,
        limits: Limits,
        explain: Callable[[_native.NativeError], Exception],
        judge: Callable[[_native.Refusal], Violation],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        master: int | None = None,
        captured: bool = False,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._run = run
        self._owner = os.getpid()
        self.args = args
        self.report = report
        self.pid: int = run.pid
        self.returncode: int | None = None
        self.usage: Usage | None = None
        self.stopped_by: str | None = None
        self.violations: tuple[Violation, ...] = ()
        self.violations_dropped: int = 0
        self._limit = output_limit
        self._account = account
        self._started = started
        self._stop_reason = stop_reason
        self._cpu_limit = cpu_limit
        self._limits = limits
        self._explain = explain
        self._judge = judge
        self._secrets = secrets
        self._captures: tuple[_native.Capture | None, _native.Capture | None] | None = None
        self._fed = False
        self.stdin: IO[bytes] | None = None if stdin is None else _Pipe(stdin, "wb", run)
        if captured:  # nobody but `communicate` reads them: files would only cost
            self._captures = (self._take_in(stdout), self._take_in(stderr))
            stdout = stderr = None
        self.stdout: IO[bytes] | None = None if stdout is None else _Pipe(stdout, "rb", run)
        self.stderr: IO[bytes] | None = None if stderr is None else _Pipe(stderr, "rb", run)
        self.pty: Terminal | None = None if master is None else Terminal(master, run)

    def poll(self) -> int | None:
        """Return the exit code, or -N after signal N; ``None`` while the program runs."""
        if self.returncode is None:
            self._check_owner()
            self._look(None, None, 0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the run, every descendant included, and return the exit code.

        Raises:
            CommandTimeout: after *timeout* seconds; the program runs on.
        """
        self._wait(None, None, timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(
        self,
        input: bytes | None = None,
        timeout: float | None = None,
    ) -> tuple[bytes, bytes]:
        """Write *input*, read both streams to their end and wait.

        Of each stream the first and last bytes are kept, up to the limit ``output``.

        Raises:
            CommandTimeout: after *timeout* seconds; the program runs on and the call may be
                repeated without losing output.
        """
        data = b"" if input is None else check_data(input, "input")
        if self._captures is None:
            self._captures = (
                self._capture(self.stdout if self.pty is None else self.pty),
                self._capture(self.stderr),
            )
        if not self._fed and self.stdin is not None:
            self._run.feed(data, os.dup(self.stdin.fileno()))
            self.stdin.close()
        self._fed = True
        output, errors = self._captures
        if self.returncode is None:
            self._wait(output, errors, timeout, feed=True)
        else:  # its end was seen before; what it wrote is still in the pipes
            self._run.communicate(output, errors, 0.0, feed=True)
        return (output.value() if output else b"", errors.value() if errors else b"")

    def send_signal(self, number: int) -> None:
        """Send a signal to the program (not to its descendants); nothing if it has ended."""
        check_whole(number, "number", 0, signal.NSIG - 1)
        if self.poll() is None:
            self._run.signal(int(number))

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole run: the program and every descendant, with SIGKILL."""
        if self.poll() is None:
            self._run.kill()
            self._account.ends_within(0)

    def stop(self, grace: float = 5.0) -> int:
        """Ask the program to end (SIGTERM), and after *grace* seconds end the whole run.

        Returns the exit code, as `wait`.
        """
        check_seconds(grace, "grace", past=True)
        self.terminate()
        try:
            return self.wait(grace)
        except CommandTimeout:
            self.kill()
            return self.wait()

    def suspend(self) -> None:
        """Stop every process of the run (SIGSTOP); all stand still when this returns.

        It waits 0.3 seconds at most for one that the kernel does not stop at once: a process
        that waits for a vfork child or for a device stands still without being stopped.

        A program can have itself continued, by a timer that sends SIGCONT. It is stopped again
        within half a second, and a run that goes on all the same is ended as by `kill`.
        Time limits go on. Nothing for a run that has ended.

        Raises:
            CommandError: the supervisor of the run did not answer for 10 seconds.
        """
        self._suspend(suspended=True)

    def resume(self) -> None:
        """Continue what `suspend` stopped, but not what job control had stopped before.

        Raises:
            CommandError: as `suspend`.
        """
        self._suspend(suspended=False)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal; the programs on it get SIGWINCH."""
        if self.pty is None:
            raise ValueError("resize: the program was not started with pty=True")
        self._run.resize(self.pty.fileno(), *checked_size(rows, columns))

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the run has ended."""
        return self._run.descriptor()

    def span(self) -> Span | None:
        """Begin to measure a part of this run; ``None`` where the jail has no cgroup."""
        return self._account.span()

    def refused(self, span: Span) -> list[Violation]:
        """Name the limit on processes, if it was reached in *span*."""
        return self._account.refused(span)

    def refusals(self) -> tuple[list[Violation], int]:
        """Return what the brokers of the jail refused since this was asked, exactly.

        And how many more they refused. Once the run has ended ``violations`` hold the rest.
        """
        found, dropped = self._run.refusals()
        judged = (self._judge(refusal) for refusal in found)
        return [without_secrets(violation, self._secrets) for violation in judged], dropped

    def totals(self) -> tuple[int, int]:
        """Return how many bytes `communicate` has read of stdout and of stderr."""
        output, errors = self._captures or (None, None)
        return (output.total() if output else 0, errors.total() if errors else 0)

    def close(self) -> None:
        """End the run if it has not ended, and close the files.

        In a forked child of the host it only closes the files: the run is its parent's.
        """
        if self.returncode is None and self._owner == os.getpid():
            self.kill()
            try:
                self.wait()
            except JailClosed:
                self.returncode = -signal.SIGKILL
                self._account.close()
        self._run.end_feed()
        for file in (self.stdin, self.stdout, self.stderr, self.pty):
            if file is not None:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.returncode is None else f"returncode={self.returncode}"
        return f"<JailProcess {self.args[0]!r} {state}>"

    def _suspend(self, *, suspended: bool) -> None:
        if self.poll() is not None:
            return
        try:
            self._run.suspend(suspended=suspended)
        except _native.NativeError as error:
            if error.status == "closed":
                if self.poll() is not None:
                    return  # just now, and with it its keeper's channel: the jail lives on
                raise self._explain(error) from None
            act = "suspended" if suspended else "resumed"
            raise CommandError(f"{self.args[0]}: not {act}: {error}; kill() ends it") from None

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise JailClosed(f"{self.args[0]} was started by another process, which owns it")

    def _capture(self, file: Any) -> _native.Capture | None:
        if file is None:
            return None
        descriptor = os.dup(file.fileno())
        if file is not self.pty:
            file.close()
        return self._take_in(descriptor)

    def _take_in(self, descriptor: int | None) -> _native.Capture | None:
        return None if descriptor is None else _native.Capture(descriptor, self._limit)

    def _wait(
        self,
        output: _native.Capture | None,
        errors: _native.Capture | None,
        timeout: float | None,
        *,
        feed: bool = False,
    ) -> None:
        self._check_owner()
        check_seconds(timeout, "timeout", past=True)
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else deadline - time.monotonic()
            try:
                self._look(output, errors, left, feed=feed)
            except _native.NativeError as error:
                self.returncode = -signal.SIGKILL  # nothing of it is left, or ever was
                if error.status == "closed":
                    self._account.close_with_jail()
                self._account.close()
                raise self._explain(error) from None
            if self.returncode is None and left is not None and left <= 0:
                raise CommandTimeout(f"{self.args[0]} still runs after {timeout} s")

    def _look(
        self,
        output: _native.Capture | None,
        errors: _native.Capture | None,
        seconds: float | None,
        *,
        feed: bool = False,
    ) -> None:
        """Wait a while, so long at most, and help a keeper that is late then."""
        patience = self._account.patience()
        if patience is not None:
            seconds = patience if seconds is None else min(patience, seconds)
        self._take(self._run.communicate(output, errors, seconds, feed=feed))
        if self.returncode is None and self._account.patience() == 0:
            self._account.lift()

    def _take(self, end: dict[str, int] | None) -> None:
        if end is None:
            return
        self.returncode = os.waitstatus_to_exitcode(end["status"])
        if STOP_NAMES[end["stop"]] == "closed":
            self._account.close_with_jail()
        self._account.close()
        self.stopped_by = self._account.stop_reason(STOP_NAMES[end["stop"]])
        if self.stopped_by == "timeout":
            self.stopped_by = self._stop_reason
        elif self.stopped_by is None and self._over_cpu_limit(end["program_us"] / 1e6):
            self.stopped_by = "cpu"
        refused, self.violations_dropped = self.refusals()
        self.violations = (
            *limit_violations(
                self.stopped_by, self._limits, reached=self._account.reached(end, self.stopped_by)
            ),
            *self._account.refusals(),
            *refused,
        )
        self.usage = self._account.usage(end, time.monotonic() - self._started)

    def _over_cpu_limit(self, used: float) -> bool:
        if self._cpu_limit is None or self.returncode is None:
            return False
        # Anybody can send these signals. But the time is of the clock that the kernel compares
        # with the limit, so a program that it ended has used as much, and one that has used less
        # was ended by another.
        past = CPU_SIGNALS.get(-self.returncode)
        return past is not None and used >= self._cpu_limit + past


def set_terminal_size(descriptor: int, rows: int, columns: int) -> None:
    """Set the window size of a terminal that no guest has yet, in characters."""
    import fcntl
    import struct
    import termios

    size = struct.pack("HHHH", *checked_size(rows, columns), 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)


def checked_size(rows: int, columns: int) -> tuple[int, int]:
    """Return the size of a terminal, in characters, once it is one."""
    check_whole(rows, "rows", 1, MOST_CELLS)
    check_whole(columns, "cols", 1, MOST_CELLS)
    return rows, columns


class _Pipe(io.FileIO):
    """The host's end of a pipe to a program, which cannot hold up whoever closes it.

    A program that does not read must not end a host by SIGPIPE.
    """

    def __init__(self, descriptor: int, mode: str, run: _native.RunHandle) -> None:
        self._run = run
        self._mine = [descriptor]
        super().__init__(descriptor, mode, closefd=False)

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        """Write what the pipe takes; None if it would have to wait and must not."""
        with memoryview(data).cast("B") as view:
            try:
                return self._run.write(self.fileno(), view)
            except BlockingIOError:
                return None

    def close(self) -> None:
        """Close the descriptor."""
        super().close()
        with suppress(IndexError):  # one of two threads that close at once has it
            self._run.let_go(self._mine.pop())

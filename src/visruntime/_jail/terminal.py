"""A terminal session: one command on a pseudo-terminal of a jail, started as often as wanted."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections import deque

from visruntime import _native
from visruntime._arguments import check_data, check_seconds, check_whole
from visruntime._jail.process import MOST_CELLS
from visruntime._policy.values import Frozen
from visruntime.errors import CommandError, CommandTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Self

    from visruntime._jail.process import CommandResult, JailProcess
    from visruntime.jail import Jail
    from visruntime.policy import Secret

__all__ = ["TerminalPreview", "TerminalSession"]

INPUT_MAX = 65536
"""Bytes of one `TerminalSession.input`."""
QUIET_SECONDS = 0.05
"""After the end of the command: how long nothing may come before the output is complete, where
something else in the jail still holds the terminal open."""
REST_BYTES = 1 << 20
"""After the end of the command: what is read at most from somebody who goes on writing."""

CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
"""ECMA-48 control sequences (CSI, strings, two-byte escapes) and single control characters."""


class TerminalPreview(Frozen):
    """What `TerminalSession.run` would start. Names of variables, never their values.

    ``state`` is "ready", or "unavailable" with the ``reason`` "pty_unavailable".
    """

    __slots__ = ("cols", "command", "cwd", "environment", "reason", "rows", "state", "timeout")
    cols: int
    command: tuple[str, ...]
    cwd: str
    environment: tuple[str, ...]
    reason: str | None
    rows: int
    state: str
    timeout: float | None

    def __init__(self, **values: Any) -> None:
        self._set(**values)


class TerminalSession:
    """One command on a terminal: preview, run, input, resize, kill, restart.

    Made by `Jail.terminal`; nothing starts before `run`. A thread of this object reads the
    terminal all the time, so that the command never waits for the host. The last *max_bytes*
    bytes and *max_lines* lines are kept. All methods may be called from any thread.
    """

    def __init__(
        self,
        jail: Jail,
        command: tuple[str, ...],
        *,
        rows: int,
        cols: int,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str | Secret] | None,
        timeout: float | None,
        max_bytes: int,
        max_lines: int,
    ) -> None:
        check_whole(max_bytes, "max_bytes", 1)
        check_whole(max_lines, "max_lines", 1)
        check_whole(rows, "rows", 1, MOST_CELLS)
        check_whole(cols, "cols", 1, MOST_CELLS)
        check_seconds(timeout, "timeout")
        self._jail = jail
        self._command = command
        self._environment = jail._environment(env, pty=True)
        self._directory = os.fsdecode(jail._directory(cwd)[0])
        self._options: dict[str, Any] = {"cwd": cwd, "env": env, "timeout": timeout}
        self._size = (rows, cols)
        self._most = (max_bytes, max_lines)
        self._verbs = threading.RLock()  # one of run, kill, restart and close at a time
        self._news = threading.Condition()  # over everything below
        self._key: str | None = None
        self._process: JailProcess | None = None
        self._pump: threading.Thread | None = None
        self._result: CommandResult | None = None
        self._error: BaseException | None = None
        self._watcher: Callable[[], object] | None = None
        self._forget()

    def _forget(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self._total = 0
        self._read = 0

    # ---- the verbs ----------------------------------------------------------------

    def preview(self) -> TerminalPreview:
        """Say what `run` would start, after trying that the jail has a terminal to give."""
        reason = None if self._running() or self._has_terminal() else "pty_unavailable"
        return TerminalPreview(
            command=self._command,
            cwd=self._directory,
            environment=tuple(sorted(os.fsdecode(e).partition("=")[0] for e in self._environment)),
            rows=self._size[0],
            cols=self._size[1],
            timeout=self._options["timeout"],
            state="unavailable" if reason else "ready",
            reason=reason,
        )

    def run(self, *, key: str | None = None) -> None:
        """Start the command; what an earlier one wrote is forgotten.

        Args:
            key: a name of this start. A second call with the same key starts nothing.

        Raises:
            CommandError: it runs already, or no terminal is left.
            CommandNotFound, CommandNotExecutable, JailClosed: as `Jail.run`.
        """
        with self._verbs:
            if key is not None and key == self._key:
                return
            if self._running():
                raise CommandError(f"{self._command[0]} runs already; use restart()")
            rows, cols = self._size
            process = self._jail.spawn(
                self._command, pty=True, rows=rows, cols=cols, **self._options
            )
            self._join()
            with self._news:
                self._forget()
                self._result = self._error = None
                self._process = process
                self._key = key
            self._pump = threading.Thread(
                target=self._pump_output, args=(process,), name="visruntime-terminal", daemon=True
            )
            self._pump.start()

    def input(self, data: str | bytes, *, timeout: float | None = 5.0) -> None:
        r"""Type *data*; Enter is ``"\r"``. Without *timeout* it waits for ever to be read.

        Raises:
            ValueError: NUL, or more than 64 KiB.
            CommandError: the command does not run.
            CommandTimeout: it does not read what is typed; how much arrived is said.
        """
        check_seconds(timeout, "timeout")
        content = self._checked(data)
        end = None if timeout is None else time.monotonic() + timeout
        offset = 0
        while offset < len(content):
            typed, descriptor = self._type_some(content[offset:])
            offset += typed
            if typed:
                continue
            left = QUIET_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                raise CommandTimeout(f"typed {offset} of {len(content)} bytes in {timeout} s")
            # Not select(2), which takes no descriptor above 1023.
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll(min(left, QUIET_SECONDS) * 1000)

    def resize(self, rows: int, cols: int) -> None:
        """Set the size, of the running command too; it gets SIGWINCH."""
        check_whole(rows, "rows", 1, MOST_CELLS)
        check_whole(cols, "cols", 1, MOST_CELLS)
        with self._news:
            if self._process is not None and self._result is None:
                self._process.resize(rows, cols)
            self._size = (rows, cols)

    def kill(self) -> CommandResult | None:
        """End the command and everything it started; return its result, ``None`` if it never ran."""
        with self._verbs:
            process = self._process
            if process is not None and self._result is None:
                process.kill()
            self._join()
            return self._result

    def restart(self, *, key: str | None = None) -> None:
        """End the command, if it runs, and start it anew."""
        with self._verbs:
            if key is not None and key == self._key:
                return
            self.kill()
            self.run(key=key)

    def wait(self, timeout: float | None = None) -> CommandResult:
        """Wait for the end of the command and of its output.

        Raises:
            CommandTimeout: after *timeout* seconds; it runs on.
            CommandError: it was never started.
        """
        check_seconds(timeout, "timeout", past=True)
        with self._news:
            if self._process is None:
                raise CommandError("nothing was started; call run() first")
            if not self._news.wait_for(self._ended, timeout):
                raise CommandTimeout(f"{self._command[0]} still runs after {timeout} s")
            if self._error is not None:
                raise self._error
            assert self._result is not None
            return self._result

    def close(self) -> None:
        """End the command and let go of the terminal. What was kept can still be read."""
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TerminalSession {self._command[0]!r} {self.state}>"

    # ---- what it shows --------------------------------------------------------------

    @property
    def state(self) -> str:
        """Return "ready" before the first `run`, "running", or "ended"."""
        with self._news:
            if self._process is None:
                return "ready"
            return "ended" if self._ended() else "running"

    @property
    def result(self) -> CommandResult | None:
        """How the last command ended; ``stdout`` is what is kept of its output."""
        return self._result

    @property
    def process(self) -> JailProcess | None:
        """The command that was started last, for `JailProcess.suspend` and signals."""
        return self._process

    @property
    def total(self) -> int:
        """How many bytes the command has written."""
        return self._total

    @property
    def output(self) -> bytes:
        """The last bytes of the output, control sequences and all."""
        with self._news:
            return self._since(0)

    @property
    def text(self) -> str:
        """The last lines of the output as text in which nothing controls a terminal."""
        return CONTROL.sub("", self.output.decode("utf-8", "replace").replace("\r\n", "\n"))

    def read(self, timeout: float | None = None) -> bytes:
        """Return what was written since the last `read`; ``b""`` only at the end.

        What `output` no longer holds is skipped.

        Raises:
            CommandTimeout: nothing came for *timeout* seconds.
        """
        check_seconds(timeout, "timeout", past=True)
        with self._news:
            if not self._news.wait_for(lambda: self._total > self._read or self._ended(), timeout):
                raise CommandTimeout(f"{self._command[0]} wrote nothing for {timeout} s")
            data = self._since(self._read)
            self._read = self._total
            return data

    # ---- inside -----------------------------------------------------------------------

    def _watch(self, watcher: Callable[[], object]) -> None:
        """Have *watcher* called whenever there is output or an end, in the thread that reads.

        It must neither wait nor use the session.
        """
        with self._news:
            self._watcher = watcher

    def _tell(self) -> None:
        """Wake whoever waits; with the lock held."""
        self._news.notify_all()
        if self._watcher is not None:
            self._watcher()

    @staticmethod
    def _checked(data: str | bytes) -> bytes:
        content = data.encode() if isinstance(data, str) else check_data(data, "data")
        if len(content) > INPUT_MAX:
            raise ValueError(f"input: {len(content)} bytes; at most {INPUT_MAX} at once")
        if b"\0" in content:
            raise ValueError("input: NUL cannot be typed")
        return content

    def _type_some(self, content: bytes) -> tuple[int, int]:
        """Type what is taken at once; return how many bytes, and the terminal's descriptor."""
        with self._news:
            process = self._process
            if process is None or process.pty is None or self._result is not None:
                raise CommandError(f"{self._command[0]} does not run")
            descriptor = process.pty.fileno()
            try:
                return os.write(descriptor, content[:4096]), descriptor
            except BlockingIOError:
                return 0, descriptor
            except OSError as error:
                raise CommandError(f"{self._command[0]} does not run") from error

    def _running(self) -> bool:
        with self._news:
            return self._process is not None and not self._ended()

    def _ended(self) -> bool:
        return self._process is None or self._result is not None or self._error is not None

    def _has_terminal(self) -> bool:
        try:
            descriptors = self._jail._handle.terminal()
        except _native.NativeError:
            return False
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _join(self) -> None:
        if self._pump is not None:
            self._pump.join()
            self._pump = None

    def _since(self, position: int) -> bytes:
        """Return the kept bytes from *position* of the stream on; with the lock held."""
        data = b"".join(self._chunks)[-self._most[0] :]
        data = data[max(0, position - (self._total - len(data))) :]
        lines = data.splitlines(keepends=True)
        return b"".join(lines[-self._most[1] :]) if len(lines) > self._most[1] else data

    def _keep(self, data: bytes) -> None:
        with self._news:
            self._chunks.append(data)
            self._kept += len(data)
            self._total += len(data)
            while self._kept - len(self._chunks[0]) >= self._most[0]:
                self._kept -= len(self._chunks.popleft())
            self._tell()

    def _pump_output(self, process: JailProcess) -> None:
        assert process.pty is not None
        try:
            reader = _native.TerminalReader(process.pty.fileno())
            rest = REST_BYTES
            while rest > 0:
                running = process.poll() is None
                data = reader.read(*((process.fileno(), None) if running else (-1, QUIET_SECONDS)))
                if data:
                    self._keep(data)
                    rest -= 0 if running else len(data)
                elif data is None or not running:
                    break
            process.wait()
            self._finish(process, None)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self._finish(process, error)

    def _finish(self, process: JailProcess, error: BaseException | None) -> None:
        with self._news:
            try:
                process.close()
                if error is None:
                    output = self._since(0)
                    self._result = self._jail._result(process, output, b"", totals=(self._total, 0))
            finally:
                self._error = error
                self._tell()

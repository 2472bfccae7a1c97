"""`AsyncJail`: a jail whose verbs are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

import visruntime
from visruntime._arguments import check_texts, check_word
from visruntime._jail.backends import BACKEND_WORDS
from visruntime._jail.files import DEFAULT_MAX_BYTES
from visruntime.aio._process import AsyncProcess
from visruntime.aio._stopping import Stopping
from visruntime.aio._terminal import AsyncTerminal
from visruntime.aio._threads import in_thread, shielded
from visruntime.policy import JailPolicy

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from visruntime._jail.files import FileStatus
    from visruntime._jail.processes import ProcessInfo
    from visruntime._native import RunHandle
    from visruntime.events import EnforcementReport
    from visruntime.jail import CommandResult, Jail
    from visruntime.policy import Secret

    Path = str | os.PathLike[str]

__all__ = ["AsyncJail"]

T = TypeVar("T")


class StoppableJail(visruntime.Jail):
    """A jail that tells the call which program it has started."""

    def _start(self, **request: Any) -> RunHandle:
        program = super()._start(**request)
        call = Stopping.current()
        if call is not None:
            call.program(program)
        return program


class AsyncJail:
    """A `Jail` for asyncio and Trio; ``async with`` opens and closes it.

    The arguments are those of `Jail`, and so are the errors, which opening raises. Any number of
    tasks may use it at a time. A call that is cancelled ends what it has started, with every
    descendant, before the cancellation goes on.
    """

    def __init__(
        self, policy: JailPolicy, *, backend: str = "auto", config_files: Iterable[str] = ()
    ) -> None:
        if not isinstance(policy, JailPolicy):
            raise TypeError(f"policy: a JailPolicy is needed, not {type(policy).__name__}")
        check_word(backend, "backend", BACKEND_WORDS)
        self.policy = policy
        files = check_texts(config_files, "config_files")
        self._options: dict[str, Any] = {"backend": backend, "config_files": files}
        self._jail: Jail | None = None

    async def __aenter__(self) -> Self:
        if self._jail is not None:
            raise RuntimeError("this AsyncJail has been opened before; make another one")
        self._jail = await in_thread(
            lambda: StoppableJail(self.policy, **self._options),
            stop=lambda: None,  # it takes milliseconds, and leaves nothing half done
            discard=lambda jail: jail.close(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End every program in the jail and the jail itself, and wait for that. Idempotent."""
        if self._jail is not None:
            await shielded(self._jail.close)

    def __repr__(self) -> str:
        return f"<AsyncJail {'closed' if self.closed else 'open'} {self.policy.digest[:12]}>"

    # Running.

    async def run(
        self,
        command: Sequence[Path],
        *,
        input: bytes = b"",
        cwd: Path | None = None,
        env: Mapping[str, str | Secret] | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Run *command*, wait until nothing of it is left, and return what it did: `Jail.run`."""
        return await self._do(
            lambda jail: jail.run(
                command, input=input, cwd=cwd, env=env, timeout=timeout, check=check
            )
        )

    async def shell(self, script: str, **options: Any) -> CommandResult:
        """Run *script* with the jail's shell, with the options of `run`: `Jail.shell`."""
        return await self._do(lambda jail: jail.shell(script, **options))

    async def spawn(
        self,
        command: Sequence[Path],
        *,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        pty: bool = False,
        rows: int = 24,
        cols: int = 80,
        cwd: Path | None = None,
        env: Mapping[str, str | Secret] | None = None,
        timeout: float | None = None,
        pass_fds: Mapping[int, int] | None = None,
    ) -> AsyncProcess:
        """Start *command* and return at once; the arguments are those of `Jail.spawn`.

        Use what it returns as a context manager: ``async with await jail.spawn(...) as process``.
        """
        process = await self._do(
            lambda jail: jail.spawn(
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
            ),
            discard=lambda process: process.close(),
        )
        return AsyncProcess(process)

    def terminal(self, command: Sequence[Path], **options: Any) -> AsyncTerminal:
        """Return a session in which *command* can be run on a terminal: `Jail.terminal`.

        Nothing starts yet; the options are those of `Jail.terminal`.
        """
        return AsyncTerminal(self.opened().terminal(command, **options))

    # Files, under the jail's own rights.

    async def read_bytes(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
        """Return the content of a regular file: `Jail.read_bytes`."""
        return await self._do(lambda jail: jail.read_bytes(path, max_bytes=max_bytes))

    async def write_bytes(self, path: Path, data: bytes) -> None:
        """Make *data* the content of a regular file: `Jail.write_bytes`."""
        await self._do(lambda jail: jail.write_bytes(path, data))

    async def stat(self, path: Path) -> FileStatus:
        """Return size, time and mode; of a link itself, not of what it leads to."""
        return await self._do(lambda jail: jail.stat(path))

    async def exists(self, path: Path) -> bool:
        """Tell whether the jail sees something at *path*."""
        return await self._do(lambda jail: jail.exists(path))

    async def list_dir(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> list[str]:
        """Return the names in a folder, sorted: `Jail.list_dir`."""
        return await self._do(lambda jail: jail.list_dir(path, max_bytes=max_bytes))

    async def make_dir(self, path: Path) -> None:
        """Make a folder."""
        await self._do(lambda jail: jail.make_dir(path))

    async def remove(self, path: Path) -> None:
        """Remove a file, a link or an empty folder."""
        await self._do(lambda jail: jail.remove(path))

    async def realpath(self, path: Path) -> str:
        """Return where *path* leads in the jail, all links followed."""
        return await self._do(lambda jail: jail.realpath(path))

    async def copy_in(
        self, source: Path, target: Path, *, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        """Copy a regular file of the host to *target* in the jail: `Jail.copy_in`."""
        await self._do(lambda jail: jail.copy_in(source, target, max_bytes=max_bytes))

    async def copy_out(
        self, source: Path, target: Path, *, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        """Copy a regular file of the jail to *target*, a new file on the host: `Jail.copy_out`."""
        await self._do(lambda jail: jail.copy_out(source, target, max_bytes=max_bytes))

    # State.

    async def processes(self) -> tuple[ProcessInfo, ...]:
        """Return the guests' processes, in the order of their pids: `Jail.processes`."""
        return await self._do(lambda jail: jail.processes())

    @property
    def report(self) -> EnforcementReport:
        """What enforces each clause, and the canaries that proved it."""
        return self.opened().report

    @property
    def ports(self) -> dict[int, int]:
        """Ports of ``inbound=``: of the jail -> where on the host's loopback they are reached."""
        return self.opened().ports

    @property
    def closed(self) -> bool:
        """Whether it is not open (any longer)."""
        return self._jail is None or self._jail.closed

    def opened(self) -> Jail:
        """Return the jail below, which has the synchronous verbs.

        Raises:
            RuntimeError: it was not opened yet.
        """
        if self._jail is None:
            raise RuntimeError("open it first: async with AsyncJail(policy) as jail")
        return self._jail

    async def _do(
        self, verb: Callable[[Jail], T], discard: Callable[[T], object] | None = None
    ) -> T:
        jail = self.opened()
        call = Stopping()
        return await in_thread(call.around(lambda: verb(jail)), stop=call.stop, discard=discard)

"""`AsyncRuntime` and `AsyncTrustedRuntime`: Python workers whose verbs are awaited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

import visruntime
from visruntime._arguments import check_function
from visruntime.aio._jail import AsyncJail
from visruntime.aio._portal import in_loop, serve
from visruntime.aio._run import AsyncRun
from visruntime.aio._stopping import StoppableRuntime, StoppableTrustedRuntime, Stopping
from visruntime.aio._threads import in_thread, shielded
from visruntime.errors import JailClosed
from visruntime.policy import JailPolicy

if TYPE_CHECKING:
    import os
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )

    from visruntime._runtime.reload import Reloaded
    from visruntime._runtime.session import RuntimeSession
    from visruntime._runtime.timeouts import Timeouts
    from visruntime.events import EnforcementReport
    from visruntime.jail import Jail
    from visruntime.results import RunResult
    from visruntime.runtime import RunEvent, RunHandle
    from visruntime.windows import WindowsJail

    Ask = Callable[[str, bool], str | Awaitable[str | None] | None]
    Path = str | os.PathLike[str]

__all__ = ["AsyncRuntime", "AsyncTrustedRuntime"]

T = TypeVar("T")


class _AsyncSession(ABC):
    """What jailed and trusted asynchronous runtimes share: the verbs."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, runtime: RuntimeSession | None) -> None:
        """Be as new, above *runtime* if that is there already."""
        self._runtime = runtime
        self._forked = runtime is not None
        self._turn = anyio.Lock()
        self._current: Stopping | None = None
        self._closed = False

    @abstractmethod
    def _make(self) -> RuntimeSession:
        """Open the runtime below; this may take a while."""

    async def __aenter__(self) -> Self:
        if self._forked:
            self._forked = False
            return self
        if self._runtime is not None:
            raise RuntimeError(f"this {type(self).__name__} has been opened before; make another")
        self._runtime = await in_thread(
            self._make, stop=lambda: None, discard=lambda runtime: runtime.close()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the worker, and the jail if the runtime opened it. Idempotent.

        A call of another task that is under way is ended, and raises `JailClosed`.
        """
        runtime = self._runtime
        if runtime is None:
            return
        runtime.refuse_in_callback()
        self._closed = True
        if self._current is not None:
            self._current.stop()
        await shielded(runtime.close)

    # Running code.

    async def run(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
        check: bool = False,
        filename: str | None = None,
        argv: list[str] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | Ask | None = None,
        isolation: str = "session",
        tasks: str = "keep",
        unknown: str | None = None,
        on_output: Callable[[str, bytes], object] | None = None,
        on_event: Callable[[RunEvent], object] | None = None,
    ) -> RunResult:
        """Run *code* and return what it did: `Runtime.run`, with its arguments and errors.

        Args:
            stdin: as there; a function may be async.
            on_output: gets a stream's name and each chunk as it comes, in the event loop of the
                caller; it may be async. The worker is not read from meanwhile.
            on_event: gets each `RunEvent`, in the same way.
        """
        options: dict[str, Any] = {
            "inputs": inputs,
            "timeout": timeout,
            "check": check,
            "filename": filename,
            "argv": argv,
            "cwd": cwd,
            "env": env,
            "stdin": stdin,
            "isolation": isolation,
            "tasks": tasks,
            "unknown": unknown,
        }
        async with self._calling() as (runtime, portal, call):
            for name, sink in (("on_output", on_output), ("on_event", on_event)):
                if sink is not None:
                    options[name] = in_loop(portal, check_function(sink, name))
            return await self._wait(call, lambda: runtime.run(code, **options))

    @asynccontextmanager
    async def start(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
        filename: str | None = None,
        argv: list[str] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | Ask | None = None,
        isolation: str = "session",
        tasks: str = "keep",
        unknown: str | None = None,
    ) -> AsyncIterator[AsyncRun]:
        """Run *code* while the block of this context manager does something else.

        ``async with runtime.start(code) as run``; then ``async for event in run``, or
        ``await run.result()``. A run that is not over when the block is left is cancelled. The
        arguments are those of `Runtime.start`.
        """
        options: dict[str, Any] = {
            "inputs": inputs,
            "timeout": timeout,
            "filename": filename,
            "argv": argv,
            "cwd": cwd,
            "env": env,
            "stdin": stdin,
            "isolation": isolation,
            "tasks": tasks,
            "unknown": unknown,
        }
        async with self._calling() as (runtime, _, call):
            run = AsyncRun()
            try:
                handle = await self._wait(
                    call, lambda: runtime.start(code, **options), discard=_end
                )
                call.run(handle.feed)
                run._follow(handle)
                try:
                    yield run
                finally:
                    if not run.done:
                        call.stop()
                    with anyio.CancelScope(shield=True):
                        await run.wait()
            finally:
                run._close()

    async def exec(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
    ) -> None:
        """Run *code* for its effects: `Runtime.exec`."""
        await self._call(lambda runtime: runtime.exec(code, inputs=inputs, timeout=timeout))

    async def eval(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
    ) -> Any:
        """Evaluate one expression and return its value, a claim of the guest: `Runtime.eval`."""
        return await self._call(lambda runtime: runtime.eval(code, inputs=inputs, timeout=timeout))

    async def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call the guest's function of that (dotted) name with data: `Runtime.call`."""
        return await self._call(lambda runtime: runtime.call(name, *args, **kwargs))

    async def get(self, name: str) -> Any:
        """Return what the (dotted) name is bound to in the session: `Runtime.get`."""
        return await self._call(lambda runtime: runtime.get(name))

    async def set(self, name: str, value: Any) -> None:
        """Bind a name in the session."""
        await self._call(lambda runtime: runtime.set(name, value))

    def set_timeouts(self, timeouts: float | Timeouts | None) -> None:
        """Choose the limits of each later call that brings no ``timeout=`` of its own."""
        self.opened().set_timeouts(timeouts)

    # Functions of the host.

    async def expose(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        check: bool = True,
        error_data: Iterable[str] = (),
    ) -> None:
        """Let the guest call *function* by *name*: `Runtime.expose`.

        An async function runs in the event loop of the task whose call the guest is in, as a child
        of it; another one runs in a thread.
        """
        await self._call(
            lambda runtime: runtime.expose(name, function, check=check, error_data=error_data)
        )

    async def expose_module(
        self,
        name: str,
        functions: Mapping[str, Callable[..., Any]],
        *,
        check: bool = True,
        error_data: Iterable[str] = (),
    ) -> None:
        """Let the guest import a module *name* that holds *functions*: `Runtime.expose_module`."""
        await self._call(
            lambda runtime: runtime.expose_module(
                name, functions, check=check, error_data=error_data
            )
        )

    def stubs(self, module: str | None = None) -> str:
        """Return the text of a stub file (``.pyi``) for the exposed functions."""
        return self.opened().stubs(module)

    def limit_callbacks(
        self,
        *,
        calls: int | None = None,
        bytes: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Limit what the guest's calls may take in each later run: `Runtime.limit_callbacks`."""
        self.opened().limit_callbacks(calls=calls, bytes=bytes, seconds=seconds)

    # Control, from any task, while another is in a call.

    async def interrupt(self) -> None:
        """Break the run under way; the session lives on: `Runtime.interrupt`."""
        await shielded(self.opened().interrupt)

    async def kill(self) -> None:
        """End the worker at once; the next call starts a fresh one: `Runtime.kill`."""
        await shielded(self.opened().kill)

    async def pause(self) -> None:
        """Stop the worker and all that it started, until `resume`: `Runtime.pause`."""
        await shielded(self.opened().pause)

    async def resume(self) -> None:
        """Let a paused worker go on."""
        await shielded(self.opened().resume)

    async def ping(self, timeout: float = 2.0) -> float:
        """Return in how many seconds the worker answered: `Runtime.ping`."""
        runtime = self.opened()
        return await shielded(lambda: runtime.ping(timeout))

    async def stacks(self) -> str:
        """Every Python thread of the worker as text: `Runtime.stacks`."""
        return await shielded(self.opened().stacks)

    async def reset(self) -> None:
        """Forget every name of the session; exposed functions stay."""
        await self._call(lambda runtime: runtime.reset())

    async def reload(self, how: str = "worker", *, paths: Sequence[Path] = ()) -> Reloaded:
        """Have the guest see code that has changed on disk: `Runtime.reload`."""
        return await self._call(lambda runtime: runtime.reload(how, paths=paths))

    async def warm_up(self) -> None:
        """Start the worker now, if there is none, so that the next call finds it ready."""
        await self._call(lambda runtime: runtime.warm_up())

    async def fork(self) -> Self:
        """Return another runtime whose session is a copy of this one's: `Runtime.fork`.

        It is open: ``async with await runtime.fork() as copy`` closes it, and so does `aclose`.
        """
        runtime = await self._call(
            lambda runtime: runtime.fork(), discard=lambda runtime: runtime.close()
        )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._begin(runtime)
        return other

    @property
    def report(self) -> EnforcementReport:
        """What enforces the policy: `Runtime.report`."""
        return self.opened().report

    @property
    def tls_strict(self) -> bool | None:
        """The setting of that name, which every worker of this runtime starts with."""
        return self.opened().tls_strict

    # How they work.

    def opened(self) -> RuntimeSession:
        """Return the runtime below, whose verbs are synchronous.

        Raises:
            RuntimeError: it was not opened yet.
        """
        if self._runtime is None:
            name = type(self).__name__
            raise RuntimeError(f"open it first: async with {name}(...) as runtime")
        return self._runtime

    async def _call(
        self, verb: Callable[[RuntimeSession], T], discard: Callable[[T], object] | None = None
    ) -> T:
        async with self._calling() as (runtime, _, call):
            return await self._wait(call, lambda: verb(runtime), discard)

    @asynccontextmanager
    async def _calling(self) -> AsyncIterator[tuple[RuntimeSession, Any, Stopping]]:
        """Have the runtime for one call, in which the guest may call functions of the host."""
        runtime = self.opened()
        # Such a call would wait for itself.
        runtime.refuse_in_callback()
        try:
            await self._turn.acquire()
        except RuntimeError:
            raise RuntimeError(
                "this task has a run under way in this runtime: leave the block of start() first"
            ) from None
        try:
            call = self._current = Stopping()
            async with serve(runtime._callbacks) as portal:
                yield runtime, portal, call
        finally:
            self._current = None
            self._turn.release()

    async def _wait(
        self, call: Stopping, work: Callable[[], T], discard: Callable[[T], object] | None = None
    ) -> T:
        if self._closed:
            raise JailClosed("this runtime is closed")
        try:
            value = await in_thread(call.around(work), stop=call.stop, discard=discard)
        except Exception as problem:
            if self._closed:
                raise JailClosed("this runtime was closed during the call") from problem
            raise
        if self._closed:
            raise JailClosed("this runtime was closed during the call")
        return value


def _end(handle: RunHandle) -> None:
    with handle:
        pass


class AsyncTrustedRuntime(_AsyncSession):
    """A `TrustedRuntime` for asyncio and Trio: a worker without a jail, for code you trust.

    The arguments are those of `TrustedRuntime`; otherwise as `AsyncRuntime`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    def _make(self) -> RuntimeSession:
        return StoppableTrustedRuntime(**self._options)


class AsyncRuntime(_AsyncSession):
    """A `Runtime` for asyncio and Trio; ``async with`` opens and closes it.

    The arguments are those of `Runtime`; the first may be an open `AsyncJail`, and on Windows is
    an open `WindowsJail`. Any number of tasks may use one: calls take turns, and those under
    *Control* need none.

    A call that is cancelled is interrupted, so that the session lives on; a guest that does not obey
    within half a second is ended with its worker and everything that it started.
    """

    def __init__(self, policy: JailPolicy | Jail | AsyncJail | WindowsJail, **options: Any) -> None:
        super().__init__()
        jails = (visruntime.Jail, visruntime.WindowsJail, AsyncJail)
        if not isinstance(policy, (JailPolicy, *jails)):
            raise TypeError(
                "policy: a JailPolicy, or an open AsyncJail, Jail or WindowsJail, is needed, not "
                f"{type(policy).__name__}"
            )
        self._policy = policy
        self._options = options

    def _make(self) -> RuntimeSession:
        policy = self._policy
        jail: Any = policy.opened() if isinstance(policy, AsyncJail) else policy
        return StoppableRuntime(jail, **self._options)

    @property
    def ports(self) -> dict[int, int]:
        """Ports of ``inbound=``, as `Runtime.ports`."""
        runtime = self.opened()
        assert isinstance(runtime, StoppableRuntime)
        return runtime.ports

"""What jailed and trusted runtimes share: the verbs, and the one worker that they keep."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, contextmanager

from visruntime._arguments import (
    check_function,
    check_switch,
    check_text,
)
from visruntime._runtime.control import WorkerControl
from visruntime._runtime.events import Feed, RunEvent
from visruntime._runtime.handle import RunHandle
from visruntime._runtime.host_functions import HostFunctions
from visruntime._runtime.known_types import known_types
from visruntime._runtime.request import check_name, check_unknown, names, run_request
from visruntime._runtime.run import Run
from visruntime._runtime.timeouts import as_timeouts
from visruntime._worker.confinement import WorkerConfinement
from visruntime._worker.limit import Timeout
from visruntime._worker.starting import Starting
from visruntime.callbacks import Callbacks
from visruntime.errors import (
    CommandFailed,
    CommandTimeout,
    ForkRefused,
    JailClosed,
    WorkerDied,
)
from visruntime.guest.limits import UNKNOWN
from visruntime.results import RunResult, RunUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn, Self

    from visruntime._policy.values import Limits
    from visruntime._runtime.known_types import KnownTypes
    from visruntime._runtime.reload import Reloaded
    from visruntime._runtime.request import Ask
    from visruntime._runtime.shared import Shared
    from visruntime._runtime.timeouts import Timeouts
    from visruntime._worker.conversation import Conversation
    from visruntime._worker.tls import TlsSettings
    from visruntime.environments import Interpreter
    from visruntime.events import EnforcementReport, Violation
    from visruntime.processes import JailedStart, TrustedStart

__all__ = ["DEFAULT_OUTPUT", "OutputSink", "RuntimeSession"]

DEFAULT_OUTPUT = 16 * 1024 * 1024
"""Bytes of stdout, and of stderr, that are kept of one run where no policy says."""

EventSink = Callable[[RunEvent], object]
"""Gets each event of a run as it comes."""
OutputSink = Callable[[str, bytes], None]
"""Gets ``"stdout"`` or ``"stderr"`` and each chunk as it comes."""


class RuntimeSession(WorkerControl, HostFunctions, ABC):
    """What jailed and trusted runtimes share: everything but the start of the process."""

    _interpreter: Interpreter
    _start: JailedStart | TrustedStart
    _harden: bool
    _output_limit: int | None
    _tls: TlsSettings
    _shared: Shared
    _confinement = WorkerConfinement(native_modules="anywhere")
    _unknown = UNKNOWN[0]
    _types: KnownTypes | None = None
    _measures_memory = True
    """Whether it is known what a live worker uses."""

    def __init__(self) -> None:
        self._callbacks = Callbacks()
        self._timeouts: Timeouts | None = None
        self._worker: Conversation | None = None
        self._starting: Starting | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._started: RunHandle | None = None
        self._process_id = os.getpid()

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        worker = getattr(self, "_worker", None)
        if worker is not None and os.getpid() == self._process_id:
            worker.kill()

    # The verbs.

    def run(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
        check: bool = False,
        filename: str | None = None,
        argv: list[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | Ask | None = None,
        isolation: str = "session",
        tasks: str = "keep",
        unknown: str | None = None,
        on_output: OutputSink | None = None,
        on_event: EventSink | None = None,
    ) -> RunResult:
        """Run *code*; the value is that of its last statement if it is an expression.

        An exception of the code is data: ``result.error``.

        Args:
            code: source text.
            inputs: names to bind before the code runs; values cross as data.
            timeout: seconds until the code is interrupted, or `Timeouts`.
            check: raise when the code raised or left with an exit code other than 0.
            filename: what tracebacks call the code; also becomes ``__file__``.
            argv: becomes ``sys.argv`` for this run.
            cwd: working directory for this run, as the guest sees paths.
            env: environment variables beside the others, for this run.
            stdin: text or bytes that the code and its children read, or a function that answers
                ``input()`` and ``getpass`` from the prompt and whether a password is asked for
                (``None`` for end of file). By default what the runtime was given: nothing.
            isolation: ``"session"`` keeps names between runs; with ``"fresh"`` this run has a
                ``__main__`` of its own, which ends with it.
            tasks: what happens to asyncio tasks that are left at the end: ``"keep"`` (they go on
                when the session awaits again) or ``"cancel"``; ``result.tasks`` names them.
            unknown: what becomes of values that are no data, in this run; as `Runtime`.
            on_output: gets output as it comes, in this thread.
            on_event: gets each `RunEvent` as it comes, in this thread; the result is the last.

        Raises:
            CommandTimeout: time ran out; ``result`` holds the output so far. Where the worker then
                ended by itself, the cause is the `WorkerDied` with what was measured.
            WorkerDied: the worker ended.
            WorkerPaused: it is paused; `resume` it first.
            ProtocolViolation: the worker broke its protocol and was ended.
            GuestError: with *check*, the code raised.
            CommandFailed: with *check*, the code left with another exit code than 0.
            TypeError: an input cannot cross.
        """
        request, ask = run_request(
            code=code,
            inputs=inputs,
            filename=filename,
            argv=argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            isolation=isolation,
            tasks=tasks,
            unknown=unknown,
        )
        check_switch(check, "check")
        for name, sink in (("on_output", on_output), ("on_event", on_event)):
            if sink is not None:
                check_function(sink, name)
        feed = self._new_feed(on_output=on_output, on_event=on_event, ask=ask)
        result = self._request(request, timeout, feed)
        feed.end(result)
        if check and result.error is not None:
            raise result.error.to_exception(result)
        if check and result.exit_code:
            raise CommandFailed(f"the code ended with exit code {result.exit_code}", result=result)
        return result

    def start(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
        filename: str | None = None,
        argv: list[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | Ask | None = None,
        isolation: str = "session",
        tasks: str = "keep",
        unknown: str | None = None,
    ) -> RunHandle:
        """Begin to run *code* and return while it runs; the arguments are those of :meth:`run`.

        The run is driven by a thread of its own, and a function of the host that its guest calls has
        another one, so that the run can end though the function does not.
        Until it is over the runtime is busy: other calls wait, and so does this one for an earlier
        run.

        Raises:
            TypeError, ValueError: an argument is wrong.
            RuntimeError: no thread could be started; the runtime is as before. Everything else
                comes from :meth:`RunHandle.result`.
        """
        request, ask = run_request(
            code=code,
            inputs=inputs,
            filename=filename,
            argv=argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            isolation=isolation,
            tasks=tasks,
            unknown=unknown,
        )
        timeouts = self._timeouts if timeout is None else as_timeouts(timeout)
        handle = RunHandle(self._callbacks, ask)
        with ExitStack() as held:
            held.enter_context(self._exclusive())
            self._started = handle
            release = held.pop_all().close
        handle.start(lambda: self._perform(request, timeouts, handle.feed), release)
        return handle

    def exec(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
    ) -> None:
        """Run *code* for its effects.

        Raises:
            GuestError: the code raised; otherwise as :meth:`run`.
        """
        request = {"op": "exec", "code": check_text(code, "code"), "inputs": names(inputs)}
        self._value(request | {"filename": None}, timeout)

    def eval(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        timeout: float | Timeouts | None = None,
    ) -> Any:
        """Evaluate one expression and return its value, a claim of the guest.

        Raises:
            GuestError: the expression raised; otherwise as :meth:`run`.
        """
        request = {"op": "eval", "code": check_text(code, "code"), "inputs": names(inputs)}
        return self._value(request | {"filename": None}, timeout)

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call the guest's function of that (dotted) name with data.

        Raises:
            GuestError: the function raised, or there is none; otherwise as :meth:`run`.
        """
        check_text(name, "name")
        request = {"op": "call", "name": name, "args": list(args), "kwargs": kwargs}
        return self._value(request, None)

    def get(self, name: str) -> Any:
        """Return what the (dotted) name is bound to in the session, as data.

        Raises:
            GuestError: the name is not bound; otherwise as :meth:`run`.
        """
        return self._value({"op": "get", "name": check_text(name, "name")}, None)

    def set(self, name: str, value: Any) -> None:
        """Bind a name in the session.

        Raises:
            ValueError: it is no name that code could use; otherwise as :meth:`run`.
        """
        self._value({"op": "set", "inputs": {check_name(name, "name"): value}}, None)

    def set_timeouts(self, timeouts: float | Timeouts | None) -> None:
        """Choose the limits of each later call that brings no ``timeout=`` of its own."""
        self._timeouts = as_timeouts(timeouts, "timeouts")

    # The worker.

    @property
    def report(self) -> EnforcementReport:
        """What enforces the policy, as each result says it; of no jail, that nothing does."""
        return self._report()

    @property
    def tls_strict(self) -> bool | None:
        """The setting of that name, which every worker of this runtime starts with."""
        return self._tls.strict

    def warm_up(self) -> None:
        """Start the worker now, if there is none, so that the next call finds it ready.

        Raises:
            WorkerDied, ProtocolViolation: it could not be started.
        """
        with self._exclusive():
            self._live_worker()

    def reset(self) -> None:
        """Forget every name of the session; exposed functions stay.

        With ``preload=`` the worker is ended, and the next call gets a fresh one. Without it
        the worker stays, and with it what the code did to modules and to the process.
        """
        with self._exclusive():
            if self._worker is None:
                return
            if self._shared.zygote is not None:
                self._discard()
                return
        self._value({"op": "clear"}, None)

    def reload(
        self, how: str = "worker", *, paths: Sequence[str | os.PathLike[str]] = ()
    ) -> Reloaded:
        """Have the guest see code that has changed on disk.

        Args:
            how: ``"worker"`` ends the worker, and the next call gets a new one, without any name of
                this session. ``"modules"`` imports anew what was imported from below *paths*; what
                was made of the old modules goes on with the old code, and the result names it.
            paths: folders of source; by default those of the `Environment`.

        Raises:
            ValueError: for modules, without any folder; *paths* with a new worker.
            FileNotFoundError: the worker sees no such folder.
            GuestError: the worker could not do it; otherwise as :meth:`run`.
        """
        from visruntime._runtime.reload import reload

        return reload(how, paths, self.eval, self._sources(), self._end_old_code)

    def _end_old_code(self) -> None:
        """End the worker, and the zygote, which has imported the old code."""
        with self._exclusive():
            self._discard()
            if self._shared.zygote is not None:
                self._shared.zygote.close()

    def fork(self) -> Self:
        """Return another runtime whose session is a copy of this one's, independent from now on.

        Its worker is a fork of this one's process, in the same jail: one trust domain. Names,
        handles and exposed functions are there. Random numbers (`random`, the global ones of
        numpy, `uuid`, `tempfile`) are seeded anew; the hash secret, the addresses of memory
        and generators that the code made itself are the same in both. Open files and
        connections are shared. Each of the two is closed on its own, and ends on its own; the
        jail ends with the last.

        Raises:
            ForkRefused: the worker has threads, pending tasks, or modules that do not survive
                a fork, or may start no process; it goes on as before.
            WorkerDied: the worker, or the copy, ended, was not ready within 5 s, or another thread
                has ended or closed this runtime.
            ProtocolViolation: the worker, or the copy, broke its protocol and was ended.
            OSError: there is no descriptor left for the copy; the worker goes on as before.
        """
        with self._exclusive():
            if not self._confinement.processes:
                raise ForkRefused(
                    "processes=False: the worker may start no process, a copy neither"
                )
            from visruntime._worker.copy import copy_worker
            from visruntime.worker import Worker

            original = self._live_worker()
            assert isinstance(original, Worker)
            with self._start_under_way() as starting:
                worker = copy_worker(original, broken=self._discard, starting=starting)
            other = object.__new__(type(self))
            other.__dict__.update(self.__dict__)
            other._become_copy(worker)
            return other

    def _become_copy(self, worker: Conversation) -> None:
        """Replace what a copied runtime must not share with its original."""
        worker.set_types(self._types)
        self._worker = worker
        self._lock = threading.Lock()
        self._callbacks = self._callbacks.copy()
        self._started = None
        if self._terminal() is not None:
            # It is the original's, which types on it and closes it.
            self._stdin = None
            self._start = self._start.without_stdin()
        self._shared.enter(self)

    def close(self) -> None:
        """End the worker; it cannot be used afterwards.

        A run that :meth:`start` began is cancelled; one that another thread is in is waited for,
        unless its worker has yet to start or to be copied: that is ended. If a function of the host
        that its guest has called does not return within 5 s, the worker is ended without it: that
        run raises `WorkerDied` once the function returns, and ``result.stop`` names it.
        The jail, if the runtime opened it, ends with the last of those forked from it.
        """
        if self._callbacks.in_callback():
            raise RuntimeError("a host function cannot close the runtime that calls it")
        if os.getpid() != self._process_id:
            self._shared.leave(self)
            return
        self._closed = True
        if self._started is not None:
            self._started.cancel()
        self._end_start()
        has_turn = self._take_last_turn()
        try:
            if has_turn:
                self._close_worker()
        finally:
            try:
                terminal = self._terminal()
                if terminal is not None:
                    terminal.close()
                self._shared.leave(self)
            finally:
                if has_turn:
                    self._lock.release()

    def _close_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def refuse_in_callback(self) -> None:
        """Raise RuntimeError in a function of the host that a guest of this runtime is calling."""
        if self._callbacks.in_callback():
            raise RuntimeError(
                "a host function cannot use the runtime that is calling it: that run is still "
                "under way. Return a value to the guest and let it go on from there"
            )

    # How they work.

    def _choose_values(self, unknown: str, types: Iterable[type] | Mapping[str, type]) -> None:
        self._unknown = check_unknown(unknown)
        self._types = known_types(types)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self.refuse_in_callback()
        if os.getpid() != self._process_id:
            raise JailClosed("this runtime belongs to the process that made it, not to its child")
        with self._lock:
            self._refuse_closed()
            yield

    def _live_worker(self, feed: Feed | None = None) -> Conversation:
        """Return the worker, after starting one if there is none; *feed* can cancel that."""
        if self._worker is not None and self._worker.ended_by_host:
            self._discard()
        if self._worker is not None:
            return self._worker
        with self._start_under_way(feed) as starting:
            self._worker = self._ready_worker(starting)
            return self._worker

    @contextmanager
    def _start_under_way(self, feed: Feed | None = None) -> Iterator[Starting]:
        """Yield what any thread ends a start by; *feed* can cancel it, too."""
        starting = self._starting = self._new_starting()
        if feed is not None:
            feed.begin(starting)
        try:
            self._refuse_closed()  # again: close() ends only a start that it can see
            starting.refuse_ended()
            yield starting
        finally:
            self._starting = None
            starting.over()
            if feed is not None:
                feed.let_go()

    def _ready_worker(self, starting: Starting) -> Conversation:
        zygote = self._shared.zygote
        worker = self._start_worker(starting) if zygote is None else zygote.worker(starting)
        try:
            starting.holds(worker)
            worker.set_types(self._types)
            self._confinement.check(worker.hello)
            if self._callbacks.names:
                self._expose(worker, self._callbacks.names)
        except BaseException:
            worker.kill()
            raise
        return worker

    def _start_worker(self, starting: Starting) -> Conversation:
        from visruntime.worker import Worker

        try:
            return Worker(
                self._interpreter,
                self._start,
                harden=self._harden,
                settings=self._settings,
                modules=self._tls.modules,
                secrets=self._secrets(),
                starting=starting,
            )
        except WorkerDied as death:
            from visruntime._worker.too_little import explain_start

            raise explain_start(death, self._limits()) from None

    def _equip(self, request: dict[str, Any]) -> None:
        """Make a request of our own of the worker, which ends where it cannot take it."""
        with self._exclusive():
            worker = self._live_worker()
            worker.refuse_paused()
            try:
                self._tell(worker, request)
            except BaseException:
                self._discard()
                raise

    def _discard(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _new_feed(self, **options: Any) -> Feed:
        """Make what takes in the events of one run; who overrides it can cancel the run."""
        return Feed(**options)

    def _new_starting(self) -> Starting:
        """Make what ends the start of a worker; who overrides it can cancel that."""
        return Starting()

    def _value(self, request: dict[str, Any], timeout: float | Timeouts | None) -> Any:
        result = self._request(request, timeout, self._new_feed())
        if result.error is not None:
            raise result.error.to_exception(result)
        return result.value

    def _request(
        self, request: dict[str, Any], timeout: float | Timeouts | None, feed: Feed
    ) -> RunResult:
        timeouts = self._timeouts if timeout is None else as_timeouts(timeout)
        with self._exclusive():
            return self._perform(request, timeouts, feed)

    def _perform(self, request: dict[str, Any], timeouts: Timeouts | None, feed: Feed) -> RunResult:
        """Make one request; the caller holds the runtime."""
        if self._unknown != UNKNOWN[0]:
            request.setdefault("unknown", self._unknown)
        try:
            worker = self._live_worker(feed)
        except (WorkerDied, JailClosed):
            if not feed.cancelled:
                raise
            return RunResult(
                usage=RunUsage(0.0, None, None),
                stopped_by="cancelled",
                session_lost=True,
                report=self._report(),
            )
        worker.refuse_paused()
        try:
            late = worker.begin_run(self._output_limit, feed.sink)
        except BaseException:
            self._discard()
            raise
        for name, written in zip(("late_stdout", "late_stderr"), late, strict=True):
            if written.data:
                feed.emit(name, written.data)
        run = Run(
            worker, late, self._report(), self._explain, self._limits(), self._explain_act, feed
        )
        if feed.cancelled:
            worker.stop = None
            return run.result(None, stopped_by="cancelled")
        result = self._finish(run, request, timeouts)
        if result.error is not None:
            from visruntime._runtime.missing import explain_missing

            explain_missing(result.error, self._how_to_add)
        return result

    def _finish(self, run: Run, request: dict[str, Any], timeouts: Timeouts | None) -> RunResult:
        try:
            try:
                reply = run.worker.request(
                    request,
                    callbacks=self._callbacks,
                    feed=run.feed,
                    timeouts=timeouts,
                    cpu_spent=run.cpu_spent,
                )
            finally:
                run.host_calls = self._callbacks.spending.total()
            return run.result(reply)
        except Timeout as late:
            if run.worker.stop is not None and run.worker.stop.reason == "cancel":
                return self._stopped(run, late.reply, "cancelled")
            self._raise_timeout(run, late.reply)
        except WorkerDied as death:
            if death.report is not None:
                death.report = run.proven(death.report)
            stop = run.worker.stop
            if stop is not None and stop.reason != "interrupt" and not run.worker.ended_by_host:
                # It was over before the worker ended: how a guest leaves is its own choice.
                if stop.reason == "cancel":
                    return self._stopped(run, None, "cancelled")
                self._raise_timeout(run, None, death)
            try:
                death.result = run.result(None, stopped_by=death.stopped_by, session_lost=True)
            finally:
                self._discard()
            raise
        except (TypeError, ValueError):
            # Encoding the request failed, so nothing was sent and the worker is as before.
            if run.sent:
                self._discard()
            else:
                run.worker.keep_late(run.late, self._output_limit)
            raise
        except BaseException:
            self._discard()
            raise

    def _stopped(self, run: Run, reply: dict[str, Any] | None, word: str) -> RunResult:
        """The result of a run that we ended; the worker goes with it where it did not obey."""
        try:
            result = run.result(reply, stopped_by=word, session_lost=reply is None)
        except BaseException:
            self._discard()  # whatever it is, a worker at its limit does not go on
            raise
        if reply is None:
            self._discard()
        return result

    def _raise_timeout(
        self, run: Run, reply: dict[str, Any] | None, death: WorkerDied | None = None
    ) -> NoReturn:
        result = self._stopped(run, reply, "timeout")
        if death is not None:
            state = f"when it was interrupted, the worker ended and its session is lost ({death})"
        elif reply is None:
            state = (
                "it did not stop when interrupted, so the worker was ended and its session is lost"
            )
        else:
            state = "it was interrupted and the session is kept"
        assert result.stop is not None
        raise CommandTimeout(f"{result.stop.sentence()}: {state}", result=result) from death

    @abstractmethod
    def _report(self) -> EnforcementReport:
        """What enforces the policy of this runtime."""

    def _explain(self, _errno: int, _path: str | None) -> Violation | None:
        """What the policy has to do with an error of the guest."""
        return None

    def _explain_act(self, _right: str, _errno: int, _path: str) -> Violation | None:
        """What the policy has to do with an act that a worker says it has refused."""
        return None

    def _settings(self) -> dict[str, Any]:
        """What a worker is told before any code of the guest runs."""
        return {"confine": self._confinement.settings(())}

    def _sources(self) -> Sequence[str]:
        """The folders of source that belong to the worker's environment."""
        return ()

    def _how_to_add(self, module: str) -> str:
        """Say how the worker would have a module that it lacks."""
        return f"the interpreter of this worker has no {module}; install its package there"

    def _secrets(self) -> tuple[str, ...]:
        """Texts that no report may show."""
        return ()

    def _limits(self) -> Limits | None:
        """The limits of the policy of this runtime."""
        return None

"""Python workers: run code in a CPython of its own, jailed or (for trusted code) not.

A :class:`Runtime` keeps one worker in a jail. Names stay bound between calls. A call that
runs out of time is interrupted first, so that they still are afterwards; a worker that does not
obey is ended, and the next call gets a fresh one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self

from visruntime import _native
from visruntime._jail_violations import bounded, of_output
from visruntime._patterns import beginnings
from visruntime.callbacks import Callbacks
from visruntime.environments import find_interpreter
from visruntime.errors import (
    CommandFailed,
    CommandTimeout,
    JailClosed,
    PolicyError,
    PolicyUnsupported,
    ProtocolViolation,
    WorkerDied,
)
from visruntime.processes import JailedStart, TrustedStart
from visruntime.results import GuestFailure, GuestFrame, RunResult, RunUsage
from visruntime.worker import START_SECONDS, Timeout, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from visruntime._policy_values import Limits
    from visruntime.environments import Grant, Interpreter
    from visruntime.events import Violation
    from visruntime.jail import Jail
    from visruntime.policy import JailPolicy
    from visruntime.results import Explain
    from visruntime.worker import Start

__all__ = ["GuestFailure", "GuestFrame", "RunResult", "RunUsage", "Runtime", "TrustedRuntime"]

DEFAULT_OUTPUT = 16 * 1024 * 1024
"""Bytes of stdout, and of stderr, that are kept of one run where no policy says."""
_TICK_SECONDS = 0.005
MAX_DISPLAYS = 1_000
"""Most displays of one run; workers keep no more."""
_MAX_TRIPS = 100
_MAX_TRIP_NAME = 100
OutputSink = Callable[[str, bytes], None]
"""Gets ``"stdout"`` or ``"stderr"`` and each chunk as it comes."""


class _Session:
    """What jailed and trusted runtimes share: everything but the start of the process."""

    _interpreter: Interpreter
    _start: Start
    _harden: bool
    _output_limit: int | None

    def __init__(self) -> None:
        self._callbacks = Callbacks()
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._process_id = os.getpid()

    def __enter__(self) -> Self:
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
        timeout: float | None = None,
        check: bool = False,
        filename: str | None = None,
        argv: list[str] | None = None,
        on_output: OutputSink | None = None,
    ) -> RunResult:
        """Run *code*; the value is that of its last statement if it is an expression.

        An exception of the code is data: ``result.error``.

        Args:
            code: source text.
            inputs: names to bind before the code runs; values cross as data.
            timeout: seconds until the code is interrupted.
            check: raise when the code raised or left with an exit code other than 0.
            filename: what tracebacks call the code; also becomes ``__file__``.
            argv: becomes ``sys.argv``.
            on_output: gets output as it comes, in this thread.

        Raises:
            CommandTimeout: time ran out; ``result`` holds the output so far.
            WorkerDied: the worker ended.
            ProtocolViolation: the worker broke its protocol and was ended.
            GuestError: with *check*, the code raised.
            CommandFailed: with *check*, the code left with another exit code than 0.
            TypeError: an input cannot cross.
        """
        request = {
            "op": "run",
            "code": _text(code, "code"),
            "inputs": _names(inputs),
            "filename": filename,
            "argv": argv,
        }
        result = self._request(request, timeout, on_output)
        if check and result.error is not None:
            raise result.error.to_exception(result)
        if check and result.exit_code:
            raise CommandFailed(f"the code ended with exit code {result.exit_code}", result=result)
        return result

    def exec(
        self, code: str, *, inputs: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> None:
        """Run *code* for its effects.

        Raises:
            GuestError: the code raised; otherwise as :meth:`run`.
        """
        request = {"op": "exec", "code": _text(code, "code"), "inputs": _names(inputs)}
        self._value(request | {"filename": None, "argv": None}, timeout)

    def eval(
        self, code: str, *, inputs: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """Evaluate one expression and return its value, a claim of the guest.

        Raises:
            GuestError: the expression raised; otherwise as :meth:`run`.
        """
        request = {"op": "eval", "code": _text(code, "code"), "inputs": _names(inputs)}
        return self._value(request | {"filename": None}, timeout)

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call the guest's function of that (dotted) name with data.

        Raises:
            GuestError: the function raised, or there is none; otherwise as :meth:`run`.
        """
        request = {"op": "call", "name": _text(name, "name"), "args": list(args), "kwargs": kwargs}
        return self._value(request, None)

    def get(self, name: str) -> Any:
        """Return what the (dotted) name is bound to in the session, as data.

        Raises:
            GuestError: the name is not bound; otherwise as :meth:`run`.
        """
        return self._value({"op": "get", "name": _text(name, "name")}, None)

    def set(self, name: str, value: Any) -> None:
        """Bind a name in the session."""
        self._value({"op": "set", "inputs": _names({name: value})}, None)

    def expose(self, name: str, function: Callable[..., Any]) -> None:
        """Let the guest call *function* by *name*, now and in every later worker.

        It runs in the thread that is in ``run``. It may be async: then it gets an event loop
        of its own. Its exceptions cross as type name and message.
        """
        self._callbacks.add(name, function)
        with self._exclusive():
            if self._worker is not None:
                self._expose(self._worker, [name])

    def interrupt(self) -> None:
        """Break the run under way, from another thread; the session lives on.

        The guest sees ``VisInterrupt``; ``run`` returns with ``error.interrupted``.
        """
        worker = self._worker
        if worker is not None:
            worker.interrupt()

    def stacks(self) -> str:
        """Every Python thread of the worker as text; works while C code runs.

        Raises:
            TimeoutError: the worker did not answer.
            WorkerDied: there is no worker.
        """
        worker = self._worker
        if worker is None:
            raise WorkerDied("there is no worker now; the next call starts one")
        return worker.stacks()

    def reset(self) -> None:
        """Forget every name of the session; exposed functions stay."""
        with self._exclusive():
            if self._worker is None:
                return
        self._value({"op": "clear"}, None)

    def close(self) -> None:
        """End the worker, and the jail if the runtime opened it; it cannot be used afterwards."""
        if self._callbacks.in_callback():
            raise RuntimeError("a host function cannot close the runtime that calls it")
        if os.getpid() != self._process_id:
            self._let_go()
            return
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
            try:
                if worker is not None:
                    worker.close()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        """Give back what the runtime has besides its worker."""

    # How they work.

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self._callbacks.in_callback():
            raise RuntimeError(
                "a host function cannot use the runtime that is calling it: that run is still "
                "under way. Return a value to the guest and let it go on from there"
            )
        if os.getpid() != self._process_id:
            raise JailClosed("this runtime belongs to the process that made it, not to its child")
        with self._lock:
            if self._closed:
                raise JailClosed("this runtime is closed")
            yield

    def _expose(self, worker: Worker, names: list[str]) -> None:
        try:
            worker.request_aside({"op": "expose", "names": names}, callbacks=self._callbacks)
        except Timeout:
            self._discard()
            raise WorkerDied("the worker did not answer between two runs and was ended") from None
        except BaseException:
            self._discard()
            raise

    def _live_worker(self) -> Worker:
        if self._worker is not None:
            return self._worker
        worker = Worker(self._interpreter, self._start, harden=self._harden)
        self._worker = worker
        if self._callbacks.names:
            self._expose(worker, self._callbacks.names)
        return worker

    def _discard(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _value(self, request: dict[str, Any], timeout: float | None) -> Any:
        result = self._request(request, timeout, None)
        if result.error is not None:
            raise result.error.to_exception(result)
        return result.value

    def _request(
        self, request: dict[str, Any], timeout: float | None, on_output: OutputSink | None
    ) -> RunResult:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout: {timeout!r} is not a positive number of seconds")
        with self._exclusive():
            try:
                worker = self._live_worker()
                late = worker.begin_run(self._output_limit, on_output)
            except BaseException:
                self._discard()
                raise
            run = _Run(worker, late, self._report(), self._explain, self._limits())
            return self._finish(run, request, timeout)

    def _finish(self, run: _Run, request: dict[str, Any], timeout: float | None) -> RunResult:
        try:
            reply = run.worker.request(request, callbacks=self._callbacks, timeout=timeout)
            return run.result(reply)
        except Timeout as late:
            self._raise_timeout(run, late.reply, timeout)
        except WorkerDied as death:
            death.result = run.result(None, stopped_by=death.stopped_by, session_lost=True)
            self._discard()
            raise
        except (TypeError, ValueError):
            # Encoding the request failed, so nothing was sent and the worker is as before.
            if run.sent:
                self._discard()
            raise
        except BaseException:
            self._discard()
            raise

    def _raise_timeout(
        self, run: _Run, reply: dict[str, Any] | None, timeout: float | None
    ) -> NoReturn:
        lost = reply is None
        try:
            result = run.result(reply, stopped_by="timeout", session_lost=lost)
        except ProtocolViolation:
            self._discard()
            raise
        if lost:
            self._discard()
        state = (
            "it did not stop when interrupted, so the worker was ended and its session is lost"
            if lost
            else "it was interrupted and the session is kept"
        )
        raise CommandTimeout(f"the code ran longer than {timeout} s: {state}", result=result)

    def _report(self) -> Any:
        """What enforces the policy of this runtime."""
        return None

    def _explain(self, _errno: int, _path: str | None) -> Violation | None:
        """What the policy has to do with an error of the guest."""
        return None

    def _limits(self) -> Limits | None:
        """The limits of the policy of this runtime."""
        return None


class _Run:
    """One request under way: what was measured before it, and what becomes of it."""

    __slots__ = (
        "_cpu",
        "_explain",
        "_late",
        "_limits",
        "_report",
        "_span",
        "_started",
        "_worker_run",
        "worker",
    )

    def __init__(
        self,
        worker: Worker,
        late: tuple[bytes, bytes],
        report: Any,
        explain: Explain,
        limits: Limits | None,
    ) -> None:
        self.worker = worker
        self._late = late
        self._report = report
        self._explain = explain
        self._limits = limits
        self._worker_run = worker.run_number
        self._span = worker.process.span()
        self._cpu = worker.process.cpu_seconds()
        self._started = time.monotonic()

    @property
    def sent(self) -> bool:
        """Whether the request has left."""
        return self.worker.run_number != self._worker_run

    def result(
        self,
        reply: dict[str, Any] | None,
        *,
        stopped_by: str | None = None,
        session_lost: bool = False,
    ) -> RunResult:
        """Build the result: measure first, then check what the guest claims."""
        process = self.worker.process
        wall = time.monotonic() - self._started
        cpu = process.cpu_seconds()
        spent = None
        if cpu is not None and self._cpu is not None:
            spent = max(cpu - self._cpu, 0.0)
            # The kernel counts a child in ticks, and none fits into so short a run.
            if wall > _TICK_SECONDS:
                children = process.children_cpu_seconds()
                spent += max(children - self.worker.children_cpu_seconds, 0.0)
                self.worker.children_cpu_seconds = children
        usage = RunUsage(wall, spent, process.peak_memory())
        if self._span is not None:
            counted = self._span.read()
            if counted.source != "wait":
                spent = counted.user_seconds + counted.system_seconds
                usage = RunUsage(wall, spent, counted.peak, counted.source)
        streams = self.worker.streams
        stdout, stderr = (stream.capture.take() for stream in streams)
        claims: dict[str, Any] = {} if reply is None else _claims(reply, self._explain)
        violations, violations_dropped = bounded(
            self._violations(claims.get("error"), (len(stdout), len(stderr)))
        )
        return RunResult(
            usage=usage,
            stdout=stdout,
            stderr=stderr,
            late_stdout=self._late[0],
            late_stderr=self._late[1],
            dropped=(streams[0].capture.dropped, streams[1].capture.dropped),
            stopped_by=stopped_by,
            session_lost=session_lost,
            violations=violations,
            violations_dropped=violations_dropped,
            report=self._report,
            **claims,
        )

    def _violations(self, error: GuestFailure | None, kept: tuple[int, int]) -> Iterator[Violation]:
        process = self.worker.process
        yield from process.violations
        if self._span is not None and not process.violations:
            yield from process.refused(self._span)
        if self._limits is not None:
            names = zip(("stdout", "stderr"), self.worker.streams, kept, strict=True)
            cut = [(name, size + stream.capture.dropped, size) for name, stream, size in names]
            yield from of_output(self._limits, cut)
        if error is not None:
            yield from error.violations()


def _claims(reply: dict[str, Any], explain: Explain) -> dict[str, Any]:
    error, code, trips = reply.get("error"), reply.get("exit_code"), reply.get("trips")
    displays: Any = reply.get("displays")
    right = (
        (code is None or (type(code) is int and -(2**31) <= code < 2**31))
        and type(displays) is list
        and len(displays) <= MAX_DISPLAYS
        and all(type(display) is dict for display in displays)
        and type(trips) is dict
        and len(trips) <= _MAX_TRIPS
        and all(type(name) is str and len(name) <= _MAX_TRIP_NAME for name in trips)
        and all(type(count) is int and 0 <= count < 2**64 for count in trips.values())
    )
    if not right:
        raise ProtocolViolation("the worker's reply has not the agreed shape")
    return {
        "value": reply.get("value"),
        "error": None if error is None else GuestFailure.from_claim(error, explain),
        "exit_code": code,
        "displays": tuple(displays),
        "trips": trips,
    }


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, not {type(value).__name__}")
    return value


def _names(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    for name in inputs or ():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"inputs: {name!r} is not a Python name")
    return dict(inputs or {})


class TrustedRuntime(_Session):
    """A worker without a jail, for code that the host trusts.

    Nothing is enforced: its results have ``report`` ``None``. What it gives is a process and an
    interpreter of its own, with time limits, interrupts and typed values.
    """

    def __init__(
        self,
        *,
        python: str | os.PathLike[str] | None = None,
        environment: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        output: int | None = DEFAULT_OUTPUT,
    ) -> None:
        """Find the interpreter; the worker itself starts with the first call.

        Args:
            python: interpreter; the host's own by default.
            environment: directory of a venv, instead of *python*.
            cwd: working directory of the worker; the host's by default.
            env: its environment variables; the host's by default.
            stdin: descriptor that becomes its standard input; nothing by default.
            output: bytes of stdout and of stderr kept of one run; ``None`` for all.

        Raises:
            PolicyError: the interpreter cannot be a worker; the message says why.
        """
        super().__init__()
        start = TrustedStart(cwd=None if cwd is None else os.fspath(cwd), env=env, stdin=stdin)
        self._start = start
        self._harden = False
        self._output_limit = output
        self._interpreter = find_interpreter(python, environment=environment, probe=start.probe)


class Runtime(_Session):
    """A worker in a jail: untrusted Python under a policy that the kernel enforces.

    The interpreter, the standard library and the worker's own files are readable without being
    asked for; ``report`` lists them as implicit grants. Everything else is as the policy says.
    """

    def __init__(
        self,
        policy: JailPolicy | Jail,
        *,
        python: str | os.PathLike[str] | None = None,
        environment: str | os.PathLike[str] | None = None,
        tls_strict: bool | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        backend: str = "auto",
    ) -> None:
        """Open the jail; the worker itself starts with the first call.

        Args:
            policy: a policy, or an open jail in which the worker is to run. A jail given is not
                closed with the runtime, and its policy must grant what the interpreter reads.
            python: interpreter; the host's own by default.
            environment: directory of a venv, instead of *python*.
            tls_strict: ``False`` is refused for now.
            cwd: working directory of the worker; as ``Jail.spawn`` by default.
            env: more environment variables.
            stdin: descriptor that becomes its standard input; nothing by default.
            backend: what builds the jail, as in ``Jail``; nothing for a jail given.

        Raises:
            PolicyError: the interpreter cannot be a worker under this policy.
            JailUnavailable: this machine cannot enforce the policy; nothing was started.
        """
        super().__init__()
        if tls_strict is False:
            raise PolicyUnsupported(
                "tls_strict: lenient certificate checks are not available yet", field="tls_strict"
            )
        from visruntime.jail import Jail

        self._own_jail = not isinstance(policy, Jail)
        self._backend = backend
        self._policy = policy.policy if isinstance(policy, Jail) else policy
        interpreter = find_interpreter(
            python,
            environment=environment,
            write=beginnings(self._policy, ("write",)),
            probe=_probe_in_jail,
        )
        if isinstance(policy, Jail):
            _require_readable(self._policy, interpreter)
        self._interpreter = interpreter
        self._jail = policy if isinstance(policy, Jail) else self._open_jail()
        self._start = JailedStart(
            self._live_jail, cwd=None if cwd is None else os.fspath(cwd), env=env, stdin=stdin
        )
        self._harden = True
        self._output_limit = self._policy.limits.output

    def _open_jail(self) -> Jail:
        from visruntime.jail import Jail

        return Jail(self._policy, implicit_read=self._interpreter.grants, backend=self._backend)

    def _live_jail(self) -> Jail:
        """The jail; one that a guest brought down is opened anew if it is ours."""
        if self._own_jail and self._jail.closed:
            self._jail.close()
            self._jail = self._open_jail()
        return self._jail

    def _let_go(self) -> None:
        if self._own_jail:
            self._jail.close()

    @property
    def ports(self) -> dict[int, int]:
        """Ports of ``inbound=``, as `Jail.ports`; after a restart of the jail they may be others."""
        return self._jail.ports

    def _report(self) -> Any:
        return self._jail.report

    def _explain(self, errno: int, path: str | None) -> Violation | None:
        # A pure decision: what a guest names is never looked up on the host.
        return self._jail._explainer.explain(errno, path)

    def _limits(self) -> Limits | None:
        return self._policy.limits


def _probe_in_jail(argv: list[str], grants: Sequence[Grant]) -> tuple[int, bytes]:
    """Ask a foreign interpreter in a jail that lets it read itself and nothing else."""
    from visruntime.jail import Jail
    from visruntime.policy import JailPolicy

    with Jail(JailPolicy(), implicit_read=grants) as jail:
        result = jail.run(argv, timeout=START_SECONDS)
    code = result.exit_code
    return (128 + (result.signal or 0) if code is None else code), result.stdout


def _require_readable(policy: JailPolicy, interpreter: Interpreter) -> None:
    # What a jail has for itself, such as its own /tmp, shows nothing of the host's files there.
    rules = [(r.kind, r.path) for r in policy.resolved_rules() if r.origin != "private"]
    for path, reason in interpreter.grants:
        if not _native.decide(rules, "read", path)[0]:
            raise PolicyError(
                f"the jail cannot read {path} ({reason}): give Runtime the policy instead of the "
                "jail, or add the path to read=",
                field="read",
                value=path,
            )

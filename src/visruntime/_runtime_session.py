"""What jailed and trusted runtimes share: the verbs, and the one worker that they keep."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self

from visruntime._runtime_missing import explain_missing
from visruntime._runtime_run import Run
from visruntime._worker_confinement import WorkerConfinement
from visruntime._worker_limit import Timeout
from visruntime.callbacks import Callbacks
from visruntime.errors import (
    CommandFailed,
    CommandTimeout,
    JailClosed,
    ProtocolViolation,
    WorkerDied,
)
from visruntime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from visruntime._policy_values import Limits
    from visruntime._worker_start import Start
    from visruntime._worker_tls import TlsSettings
    from visruntime.environments import Interpreter
    from visruntime.events import Violation
    from visruntime.results import RunResult

__all__ = ["OutputSink", "RuntimeSession"]

OutputSink = Callable[[str, bytes], None]
"""Gets ``"stdout"`` or ``"stderr"`` and each chunk as it comes."""


class RuntimeSession:
    """What jailed and trusted runtimes share: everything but the start of the process."""

    _interpreter: Interpreter
    _start: Start
    _harden: bool
    _output_limit: int | None
    _tls: TlsSettings
    _confinement = WorkerConfinement(native_modules="anywhere")

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

    @property
    def tls_strict(self) -> bool | None:
        """The setting of that name, which every worker of this runtime starts with."""
        return self._tls.strict

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
        worker = Worker(
            self._interpreter,
            self._start,
            harden=self._harden,
            settings=self._settings(),
            modules=self._tls.modules,
        )
        self._worker = worker
        self._confinement.check(worker.hello)
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
            run = Run(
                worker, late, self._report(), self._explain, self._limits(), self._explain_act
            )
            result = self._finish(run, request, timeout)
            if result.error is not None:
                explain_missing(result.error, self._how_to_add)
            return result

    def _finish(self, run: Run, request: dict[str, Any], timeout: float | None) -> RunResult:
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
        self, run: Run, reply: dict[str, Any] | None, timeout: float | None
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

    def _explain_act(self, _right: str, _errno: int, _path: str) -> Violation | None:
        """What the policy has to do with an act that a worker says it has refused."""
        return None

    def _settings(self) -> dict[str, Any]:
        """What a worker is told before any code of the guest runs."""
        return {"confine": self._confinement.settings(())}

    def _how_to_add(self, module: str) -> str:
        """Say how the worker would have a module that it lacks."""
        return f"the interpreter of this worker has no {module}; install its package there"

    def _limits(self) -> Limits | None:
        """The limits of the policy of this runtime."""
        return None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, not {type(value).__name__}")
    return value


def _names(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    for name in inputs or ():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"inputs: {name!r} is not a Python name")
    return dict(inputs or {})

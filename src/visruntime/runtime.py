"""Python workers: run code in a CPython of its own, jailed or (for trusted code) not.

A :class:`Runtime` keeps one worker in a jail. Names stay bound between calls. A call that
runs out of time is interrupted first, so that they still are afterwards; a worker that does not
obey is ended, and the next call gets a fresh one.
"""

from __future__ import annotations

import os

from visruntime import _native
from visruntime._arguments import check_path, check_whole, check_word
from visruntime._jail.backends import BACKEND_WORDS
from visruntime._policy.environment_names import check_env
from visruntime._policy.patterns import beginnings
from visruntime._policy.redact import secrets_of
from visruntime._runtime.events import RunEvent
from visruntime._runtime.handle import RunHandle
from visruntime._runtime.interpreter import how_to_add, jailed_interpreter, refuse_built
from visruntime._runtime.request import variables
from visruntime._runtime.session import DEFAULT_OUTPUT, RuntimeSession
from visruntime._runtime.shared import Shared
from visruntime._worker.confinement import WorkerConfinement, trusted_report
from visruntime._worker.standard_input import check_stdin
from visruntime._worker.terminal import WorkerTerminal
from visruntime._worker.tls import TlsSettings
from visruntime.displays import Display
from visruntime.environments import find_interpreter
from visruntime.errors import PolicyError
from visruntime.processes import JailedStart, TrustedStart
from visruntime.results import GuestFailure, GuestFrame, RunResult, RunUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Literal

    from visruntime._policy.values import Limits
    from visruntime._worker.zygote import Zygote
    from visruntime.environments import Grant
    from visruntime.events import EnforcementReport, Violation
    from visruntime.jail import Jail
    from visruntime.packages import Environment
    from visruntime.policy import JailPolicy

__all__ = [
    "Display",
    "GuestFailure",
    "GuestFrame",
    "RunEvent",
    "RunHandle",
    "RunResult",
    "RunUsage",
    "Runtime",
    "TrustedRuntime",
]


class TrustedRuntime(RuntimeSession):
    """A worker without a jail, for code that the host trusts.

    Nothing is enforced, and the report of each result says so: ``report.jailed`` is false,
    ``report.enforcement`` is ``None``. What it gives is a process and an interpreter of its own, with
    time limits, interrupts and typed values.
    """

    def __init__(
        self,
        *,
        python: str | os.PathLike[str] | None = None,
        environment: str | os.PathLike[str] | None = None,
        tls_strict: bool | None = None,
        ca: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | str | None = None,
        output: int | None = DEFAULT_OUTPUT,
        preload: Iterable[str] | None = None,
        unknown: Literal["handle", "repr", "error"] = "handle",
        types: Iterable[type] | Mapping[str, type] = (),
    ) -> None:
        """Find the interpreter; the worker itself starts with the first call.

        Args:
            python: interpreter; the host's own by default. ``"bundle"`` is that of the platform
                archive which `visruntime.bundle` has installed.
            environment: directory of a venv, instead of *python*.
            tls_strict: ``False`` accepts certificates of authorities that break RFC 5280 in
                the ways that Python refuses since 3.13 (``ssl.VERIFY_X509_STRICT``); nothing
                else is checked less. ``None`` and ``True`` leave Python as it is.
            ca: a PEM file with the certificate authorities that the worker and its programs
                are to trust, or ``"system"`` for the host's; as they come by default.
            cwd: working directory of the worker; the host's by default.
            env: its environment variables; the host's by default.
            stdin: descriptor whose file becomes its standard input, or ``"pty"`` for a terminal on
                which `type_text` types; ``"empty"`` by default. The runtime duplicates the
                descriptor, which may be closed; a worker that takes the place of another one
                reads on in the same file.
            output: bytes of stdout and of stderr kept of one run; ``None`` for all.
            preload: as for `Runtime`.
            unknown: as for `Runtime`.
            types: as for `Runtime`.

        Raises:
            PolicyError: the interpreter cannot be a worker, or *ca* cannot be used; the
                message says why.
        """
        super().__init__()
        self._choose_values(unknown, types)
        if output is not None:
            check_whole(output, "output", 1)
        env = None if env is None else variables(env)
        cwd = None if cwd is None else check_path(cwd, "cwd")
        refuse_built(environment, python)
        self._tls = TlsSettings(strict=tls_strict, ca=ca)
        added = self._tls.variables(env or {}, os.environ if env is None else {})
        if added:
            env = {**(os.environ if env is None else env), **added}
        self._stdin = check_stdin(stdin)
        preload = _check_copies(self, preload)
        start = TrustedStart(cwd=cwd, env=env, stdin=self._stdin)
        self._start = start
        self._harden = False
        self._output_limit = output
        self._interpreter = find_interpreter(python, environment=environment, probe=start.probe)
        self._shared = Shared(self, stdin=self._stdin)
        self._shared.zygote = _zygote(self, preload)
        self._no_jail = trusted_report(self._tls.clauses())

    def _report(self) -> EnforcementReport:
        return self._no_jail


class Runtime(RuntimeSession):
    """A worker in a jail: untrusted Python under a policy that the kernel enforces.

    The interpreter, the standard library, what belongs to its venv (``bin``, ``include``, ``lib``,
    ``lib64``, ``share`` and ``pyvenv.cfg``, but not, say, ``etc`` or ``src``) and the worker's own
    files are readable without being asked for; ``report`` lists them as implicit grants.
    Everything else is as the policy says.
    """

    def __init__(
        self,
        policy: JailPolicy | Jail,
        *,
        python: str | os.PathLike[str] | None = None,
        environment: str | os.PathLike[str] | Environment | None = None,
        tls_strict: bool | None = None,
        ca: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | str | None = None,
        backend: str = "auto",
        processes: bool = True,
        ctypes: bool = True,
        native_modules: Literal["read-only", "anywhere"] = "read-only",
        preload: Iterable[str] | None = None,
        unknown: Literal["handle", "repr", "error"] = "handle",
        types: Iterable[type] | Mapping[str, type] = (),
    ) -> None:
        """Open the jail; the worker itself starts with the first call.

        Args:
            policy: a policy, or an open jail in which the worker is to run. A jail given is not
                closed with the runtime, and its policy must grant what the interpreter reads.
            python: interpreter; the host's own by default. ``"bundle"`` is that of the platform
                archive which `visruntime.bundle` has installed.
            environment: directory of a venv, or an `Environment`, which is built now if it is not
                there yet; instead of *python*.
            tls_strict: ``False`` accepts certificates of authorities that break RFC 5280 in
                the ways that Python refuses since 3.13 (``ssl.VERIFY_X509_STRICT``); nothing
                else is checked less. ``None`` and ``True`` leave Python as it is.
            ca: a PEM file with the certificate authorities that the worker and its programs
                are to trust, or ``"system"`` for the host's; as they come by default.
            cwd: working directory of the worker; as ``Jail.spawn`` by default.
            env: more environment variables.
            stdin: descriptor whose file becomes its standard input, or ``"pty"`` for a terminal on
                which `type_text` types; ``"empty"`` by default. The runtime duplicates the
                descriptor, which may be closed; a worker that takes the place of another one
                reads on in the same file.
            backend: what builds the jail, as in ``Jail``; nothing for a jail given.
            processes: ``False`` for a worker that starts no other process; the kernel holds that.
            ctypes: ``False`` for one that imports no ``_ctypes``. The worker's audit hook refuses
                it, which is no wall: a guest that means to gets round it.
            native_modules: from where it loads machine code: "read-only" for places that it
                cannot write, or "anywhere". The audit hook refuses it, as above.
            preload: names of modules, or none: a worker that has imported them is kept aside,
                and each worker of this runtime is a copy of it, made in a few milliseconds:
                the first, the one after `reset`, and the one after a worker that was ended.
                Numeric libraries get one thread. All copies share the hash secret. Not with
                ``processes=False``: the filter that refuses processes refuses copies, too. Nor
                with ``stdin="pty"``, which would be one terminal for all of them.
            unknown: what becomes of values that are no data, in results and in arguments of host
                functions: a ``"handle"``, which names the object for later calls; a ``"repr"``
                (`Repr`), which is text; or an ``"error"`` of the guest, ``visruntime.ValueNotData``,
                that names the type and its place.
            types: dataclasses, enums and named tuples of yours, or a dict of them by the names that
                the guest's have. Records of those names become instances, if their fields have the
                names, and the types, of the class; else the run has the error
                ``visruntime.ValueMismatch``. The constructors of these classes get a guest's data.

        Raises:
            PolicyError: the interpreter cannot be a worker, or *ca* cannot be used, under
                this policy.
            EnvironmentNotBuilt: uv could not make the environment.
            JailUnavailable: this machine cannot enforce the policy; nothing was started.
        """
        super().__init__()
        self._choose_values(unknown, types)
        self._stdin = check_stdin(stdin)
        from visruntime.jail import Jail
        from visruntime.policy import JailPolicy

        if not isinstance(policy, (Jail, JailPolicy)):
            raise TypeError(
                f"policy: a JailPolicy or an open Jail is needed, not {type(policy).__name__}"
            )
        if env is not None:
            check_env(env)
        cwd = None if cwd is None else check_path(cwd, "cwd")
        check_word(backend, "backend", BACKEND_WORDS)

        self._confinement = WorkerConfinement(
            processes=processes, ctypes=ctypes, native_modules=native_modules
        )
        preload = _check_copies(self, preload)
        self._environment = environment
        self._backend = backend
        self._policy = policy.policy if isinstance(policy, Jail) else policy
        write = beginnings(self._policy, ("write",))
        self._tls = TlsSettings(strict=tls_strict, ca=ca, write=write)
        inherited = {n: os.environ[n] for n in self._policy.inherit_env if n in os.environ}
        chosen = {**inherited, **self._policy.env, **(env or {})}
        self._env = env or {}  # as it was given: which of them are secrets
        added = self._tls.variables(chosen, {})
        if added:
            env = {**(env or {}), **added}
        self._interpreter = jailed_interpreter(python, environment, write=write)
        if isinstance(policy, Jail):
            _require_readable(self._policy, self._grants)
        elif self._tls.grants:
            _refuse_denied(self._policy, self._tls.grants)
        if isinstance(policy, Jail):
            self._shared = Shared(self, jail=policy, stdin=self._stdin)
        else:
            self._shared = Shared(self, self._open_jail, stdin=self._stdin)
            # One that is opened anew is by the same back end, and never by a weaker one.
            self._backend = str(self._shared.jail.report.backend)
        self._start = JailedStart(
            self._shared.live_jail,
            cwd=cwd,
            env=env,
            stdin=self._stdin,
        )
        self._harden = True
        self._output_limit = self._policy.limits.output
        self._shared.zygote = _zygote(self, preload)

    @property
    def _grants(self) -> tuple[Grant, ...]:
        return (*self._interpreter.grants, *self._tls.grants)

    def _open_jail(self) -> Jail:
        from visruntime.jail import Jail

        return Jail(self._policy, implicit_read=self._grants, backend=self._backend)

    @property
    def _jail(self) -> Jail:
        return self._shared.jail

    @property
    def ports(self) -> dict[int, int]:
        """Ports of ``inbound=``, as `Jail.ports`; after a restart of the jail they may be others."""
        return self._jail.ports

    def _report(self) -> EnforcementReport:
        return self._confinement.report(self._tls.add_to(self._jail.report))

    def _settings(self) -> dict[str, Any]:
        rules = self._jail._explainer.named_rules()
        return {"confine": self._confinement.settings(rules)}

    def _explain(self, errno: int, path: str | None) -> Violation | None:
        # A pure decision: what a guest names is never looked up on the host.
        return self._jail._explainer.explain(errno, path)

    def _explain_act(self, right: str, errno: int, path: str) -> Violation | None:
        return self._jail._explainer.of_act(right, errno, path)

    def _sources(self) -> Sequence[str]:
        return getattr(self._environment, "sources", ())

    def _how_to_add(self, module: str) -> str:
        return how_to_add(self._environment, module)

    def _secrets(self) -> tuple[str, ...]:
        return (*secrets_of(self._policy.env), *secrets_of(self._env))

    def _limits(self) -> Limits | None:
        return self._policy.limits


def _check_copies(runtime: RuntimeSession, preload: Iterable[str] | None) -> list[str] | None:
    """Check ``preload=`` before anything is started."""
    if preload is None:
        return None
    if not runtime._confinement.processes:
        raise PolicyError(
            "preload: copies of a worker are processes that it starts, which processes=False "
            "forbids; give one of the two",
            field="preload",
        )
    if isinstance(runtime._stdin, WorkerTerminal):
        raise PolicyError(
            "preload: all copies would have one terminal, in which the next worker finds what was "
            'typed for the last; give either preload= or stdin="pty"',
            field="preload",
        )
    from visruntime._worker.zygote import check_preload

    return check_preload(preload)


def _zygote(runtime: RuntimeSession, preload: list[str] | None) -> Zygote | None:
    if preload is None:
        return None
    from visruntime._worker.zygote import Zygote

    return Zygote(runtime._start_worker, preload, output=runtime._output_limit)


def _require_readable(policy: JailPolicy, grants: Sequence[Grant]) -> None:
    # What a jail has for itself, such as its own /tmp, shows nothing of the host's files there.
    rules = [(r.kind, r.path) for r in policy.resolved_rules() if not r.is_own]
    for path, reason in grants:
        if not _native.decide(rules, "read", path)[0]:
            raise PolicyError(
                f"the jail cannot read {path} ({reason}): give Runtime the policy instead of the "
                "jail, or add the path to read=",
                field="read",
                value=path,
            )


def _refuse_denied(policy: JailPolicy, grants: Sequence[Grant]) -> None:
    rules = [(r.kind, r.path) for r in policy.resolved_rules() if not r.is_own]
    rules += [("read", path) for path, _ in grants]
    for path, reason in grants:
        if not _native.decide(rules, "read", path)[0]:
            raise PolicyError(
                f"the policy denies reading {path} ({reason})", field="deny", value=path
            )

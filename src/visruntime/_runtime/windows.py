"""`Runtime` on Windows: a worker in a `WindowsJail`, with the verbs of every runtime.

What it cannot hold or do is refused by name: an option in `REFUSED`, a verb where it is called.
"""

from __future__ import annotations

from visruntime._arguments import check_path, check_seconds, check_switch, check_text, check_whole
from visruntime._policy.environment_names import check_env
from visruntime._policy.redact import secrets_of
from visruntime._runtime.session import DEFAULT_OUTPUT, RuntimeSession
from visruntime._runtime.shared import Shared
from visruntime._worker.confinement import WorkerConfinement
from visruntime._worker.windows import WindowsWorker
from visruntime.errors import ForkRefused, JailSealed, PolicyError, PolicyUnsupported
from visruntime.events import Clause, EnforcementReport
from visruntime.windows import WindowsJail, WindowsLimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Any, Literal, NoReturn, Self

    from visruntime._policy.values import Secret
    from visruntime._runtime.events import Feed
    from visruntime._runtime.timeouts import Timeouts
    from visruntime._worker.starting import Starting
    from visruntime.results import RunResult

__all__ = ["REFUSED", "Runtime"]

REFUSED = {
    "python": "the worker's Python is that of the host, of which the jail has a copy",
    "environment": "no environment is built on Windows; stage what the code needs by WindowsJail.stage",
    "tls_strict": "the worker has no network",
    "ca": "the worker has no network",
    "stdin": "the worker's input is at its end; give stdin= to run",
    "backend": "there is one back end, the WindowsJail",
    "processes": "give limits=WindowsLimits(processes=1), which holds for all that the worker starts",
    "ctypes": "no hook judges imports there",
    "native_modules": "no hook judges machine code there",
    "preload": "Windows copies no process",
}
"""Options of `Runtime` elsewhere that it has not here, and why."""
UNCLAIMED = "that it holds is unclaimed, until a run on Windows is recorded"


class Runtime(RuntimeSession):
    """A worker in a `WindowsJail`: untrusted Python, apart from your files and your network.

    It is the Python of the host, of which the jail has a copy, and it starts with the first call.
    What it may do is what every program in that jail may; runtimes in one are one trust domain.

    Copies (`fork`), pauses, stacks and heartbeats of a worker are not there, nor a limit of
    processor time for one run: each is refused by its name.
    """

    _measures_memory = False

    def __init__(
        self,
        jail: WindowsJail,
        *,
        close_jail: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | Secret] | None = None,
        limits: WindowsLimits | None = None,
        output: int | None = DEFAULT_OUTPUT,
        unknown: Literal["handle", "repr", "error"] = "handle",
        types: Iterable[type] | Mapping[str, type] = (),
        **others: Any,
    ) -> None:
        """Stage the worker if that was not done; the worker itself starts with the first call.

        Args:
            jail: in which the worker is to run, as `WindowsJail.spawn` starts a program.
            close_jail: close *jail*, too, when this runtime is closed.
            cwd: working directory of the worker; ``work`` by default.
            env: all of its variables beside those that Windows sets; a value whose name looks like
                that of a secret has to be a `Secret`.
            limits: of the worker and what it starts.
            output: bytes of stdout and of stderr kept of one run; ``None`` for all.
            unknown: what becomes of values that are no data; as for `Runtime` on Linux.
            types: classes that records become; as for `Runtime` on Linux.
            others: options that are refused by name.

        Raises:
            PolicyUnsupported: an option that a worker on Windows has not; ``field`` names it.
            JailSealed: the worker was not staged, and a program has started in *jail*.
            JailUnavailable: given a policy, which nothing holds on Windows; or a part of the worker
                is missing in this build.
            PolicyError: a variable that no guest may have; otherwise, and PathDenied and JailClosed,
                as `WindowsJail.stage`.
        """
        super().__init__()
        _refuse(others)
        self._choose_values(unknown, types)
        self._windows_jail = _checked(jail)
        self._closes_jail = check_switch(close_jail, "close_jail")
        self._cwd = None if cwd is None else check_path(cwd, "cwd")
        self._env = _checked_variables({} if env is None else env)
        self._job_limits = WindowsLimits() if limits is None else limits
        if not isinstance(self._job_limits, WindowsLimits):
            raise TypeError(f"limits: WindowsLimits are needed, not {type(limits).__name__}")
        if output is not None:
            check_whole(output, "output", 1)
        self._output_limit = output
        self._confinement = WorkerConfinement(native_modules="anywhere")
        self._stdin = None
        self._shared = Shared(self)
        if jail._python is None:
            if jail.state == "sealed":
                raise JailSealed(
                    "the worker was not staged: call stage_python() before any program"
                )
            jail.stage_python()

    def close(self) -> None:
        """End the worker, and close the jail where that was asked for: as elsewhere otherwise.

        Raises:
            JailPoisoned: something of the jail could not be removed; call it again.
        """
        super().close()
        if self._closes_jail:
            self._windows_jail.close()

    @property
    def tls_strict(self) -> bool | None:
        """No setting: the worker has no network."""
        return None

    def fork(self) -> Self:
        """Refused: no process can be copied there.

        Raises:
            ForkRefused: always.
        """
        raise ForkRefused("a worker in a WindowsJail cannot be copied: Windows copies no process")

    def pause(self) -> NoReturn:
        """Refused: nothing stops a whole job there.

        Raises:
            PolicyUnsupported: always.
        """
        raise _without("pause", "Windows stops no job and lets it go on")

    def resume(self) -> NoReturn:
        """Refused, as `pause`.

        Raises:
            PolicyUnsupported: always.
        """
        raise _without("resume", "Windows stops no job and lets it go on")

    def stacks(self) -> str:
        """Refused: no thread of the worker writes them there.

        Raises:
            PolicyUnsupported: always.
        """
        raise _without(
            "stacks", "no thread of a worker on Windows writes stacks; a crash leaves them"
        )

    def ping(self, timeout: float = 2.0) -> float:
        """Refused: no thread of the worker answers there.

        Raises:
            PolicyUnsupported: always.
        """
        check_seconds(timeout, "timeout")
        raise _without("ping", "no thread of a worker on Windows answers while its code runs")

    def type_text(self, text: str, *, timeout: float = 5.0) -> None:
        """Refused: the worker has no terminal there.

        Raises:
            PolicyUnsupported: always.
        """
        check_text(text, "text")
        check_seconds(timeout, "timeout")
        raise _without("type_text", "the worker has no terminal; give stdin= to run")

    def _perform(self, request: dict[str, Any], timeouts: Timeouts | None, feed: Feed) -> RunResult:
        if timeouts is not None and timeouts.cpu is not None:
            raise _without("timeouts.cpu", "nothing there tells what a run has used; give wall=")
        return super()._perform(request, timeouts, feed)

    def _start_worker(self, starting: Starting) -> WindowsWorker:
        jail = self._windows_jail
        python = jail._python
        assert python is not None

        def settings() -> dict[str, Any]:
            confine = self._confinement.settings(()) | {"closed": []}
            return {"confine": confine, "console": python.guard}

        from visruntime._worker.start import LOAD

        return WindowsWorker(
            lambda: jail.spawn(
                python.command(LOAD),
                env=self._env,
                cwd=self._cwd,
                stdin=False,
                channel=True,
                limits=self._job_limits,
            ),
            settings=settings,
            version=python.version,
            secrets=self._secrets(),
            starting=starting,
        )

    def _report(self) -> EnforcementReport:
        limits = self._job_limits
        given = {name: getattr(limits, name) for name in WindowsLimits.__slots__}
        clauses = [
            Clause("identity", ("AppContainer",), note=f"less privileged; {UNCLAIMED}"),
            Clause("network", ("AppContainer",), note=f"it has no capability for one; {UNCLAIMED}"),
            Clause("processes", ("job",), note=f"all end with the worker; {UNCLAIMED}"),
        ]
        clauses += [
            Clause(f"limits.{name}", ("job",), bound="tree", value=value, note=UNCLAIMED)
            for name, value in given.items()
            if value is not None
        ]
        return EnforcementReport(
            backend="windows",
            clauses=tuple(clauses),
            canaries=(),
            identity=f"AppContainer {self._windows_jail.package_sid}",
            notes=(
                "what else of the machine it reaches, the machine's lists of rights (ACLs) say",
            ),
        )

    def _secrets(self) -> tuple[str, ...]:
        return secrets_of(self._env)


def _refuse(others: Mapping[str, object]) -> None:
    for name in others:
        if name not in REFUSED:
            raise TypeError(f"Runtime() got an unexpected keyword argument {name!r}")
        raise _without(name, REFUSED[name])


def _without(name: str, reason: str) -> PolicyUnsupported:
    return PolicyUnsupported(f"{name}: {reason}", field=name)


def _checked_variables(env: Mapping[str, str | Secret]) -> Mapping[str, str | Secret]:
    """Return *env* by the rules of a policy, which a name in other case must not get round."""
    given = check_env(env)
    if len(check_env({name.upper(): value for name, value in given.items()})) < len(given):
        raise PolicyError(
            "env: two names differ in case alone, which Windows does not tell apart", field="env"
        )
    return given


def _checked(jail: object) -> WindowsJail:
    from visruntime._policy.platforms import check_platform
    from visruntime.policy import JailPolicy

    if isinstance(jail, JailPolicy):
        check_platform("win32")
    if not isinstance(jail, WindowsJail):
        raise TypeError(f"jail: an open WindowsJail is needed, not {type(jail).__name__}")
    return jail

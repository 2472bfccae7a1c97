"""Run Python and programs that you do not trust, jailed by the kernel of the machine you have.

::

    import visruntime as vr

    policy = vr.JailPolicy(read=["/data/in"], write=["/data/out"])
    with vr.Jail(policy) as jail:
        result = jail.run(["sort", "/data/in/names"])

Names are imported when they are first used, so ``import visruntime`` costs next to nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime import aio as aio
    from visruntime._callbacks.budget import HostCalls
    from visruntime._jail.processes import ProcessInfo
    from visruntime._jail.terminal import TerminalPreview, TerminalSession
    from visruntime._runtime.stop import Rung, Stop
    from visruntime._runtime.timeouts import Timeouts
    from visruntime._worker.crash import CrashReport
    from visruntime.confinement.examine import check_confinement
    from visruntime.confinement.report import ConfinementReport
    from visruntime.denials import Denial
    from visruntime.doctor import DoctorReport, doctor
    from visruntime.errors import (
        BundleRefused,
        CommandError,
        CommandFailed,
        CommandNotExecutable,
        CommandNotFound,
        CommandTimeout,
        EnvironmentNotBuilt,
        ForkRefused,
        GuestError,
        JailClosed,
        JailPoisoned,
        JailSealed,
        JailUnavailable,
        LimitExceeded,
        OutputLimitExceeded,
        PathDenied,
        PolicyError,
        PolicyUnsupported,
        PoolExhausted,
        ProtocolViolation,
        VisRuntimeError,
        WindowsCallFailed,
        WorkerDied,
        WorkerPaused,
    )
    from visruntime.events import Canary, Clause, EnforcementReport, Usage, Violation
    from visruntime.executor import JailExecutor, JailExecutorBroken
    from visruntime.guest.arrays import Array, Table
    from visruntime.guest.values import Handle, Record, Repr
    from visruntime.jail import CommandResult, Jail, JailProcess
    from visruntime.packages import BuiltEnvironment, Environment
    from visruntime.policy import Decision, Egress, Grant, JailPolicy, Limits, Rule, Secret
    from visruntime.pool import RuntimePool
    from visruntime.results import RunResult
    from visruntime.runtime import Display, RunEvent, RunHandle, Runtime, TrustedRuntime
    from visruntime.windows import WindowsExit, WindowsJail, WindowsLimits, WindowsProcess

__all__ = [
    "Array",
    "BuiltEnvironment",
    "BundleRefused",
    "Canary",
    "Clause",
    "CommandError",
    "CommandFailed",
    "CommandNotExecutable",
    "CommandNotFound",
    "CommandResult",
    "CommandTimeout",
    "ConfinementReport",
    "CrashReport",
    "Decision",
    "Denial",
    "Display",
    "DoctorReport",
    "Egress",
    "EnforcementReport",
    "Environment",
    "EnvironmentNotBuilt",
    "ForkRefused",
    "Grant",
    "GuestError",
    "Handle",
    "HostCalls",
    "Jail",
    "JailClosed",
    "JailExecutor",
    "JailExecutorBroken",
    "JailPoisoned",
    "JailPolicy",
    "JailProcess",
    "JailSealed",
    "JailUnavailable",
    "LimitExceeded",
    "Limits",
    "OutputLimitExceeded",
    "PathDenied",
    "PolicyError",
    "PolicyUnsupported",
    "PoolExhausted",
    "ProcessInfo",
    "ProtocolViolation",
    "Record",
    "Repr",
    "Rule",
    "RunEvent",
    "RunHandle",
    "RunResult",
    "Rung",
    "Runtime",
    "RuntimePool",
    "Secret",
    "Stop",
    "Table",
    "TerminalPreview",
    "TerminalSession",
    "Timeouts",
    "TrustedRuntime",
    "Usage",
    "Violation",
    "VisRuntimeError",
    "WindowsCallFailed",
    "WindowsExit",
    "WindowsJail",
    "WindowsLimits",
    "WindowsProcess",
    "WorkerDied",
    "WorkerPaused",
    "check_confinement",
    "doctor",
]

_HOMES = {
    "guest.arrays": ("Array", "Table"),
    "guest.values": ("Handle", "Record", "Repr"),
    "_callbacks.budget": ("HostCalls",),
    "_runtime.events": ("RunEvent",),
    "_runtime.handle": ("RunHandle",),
    "_runtime.stop": ("Rung", "Stop"),
    "_runtime.timeouts": ("Timeouts",),
    "_worker.crash": ("CrashReport",),
    "_jail.processes": ("ProcessInfo",),
    "_jail.terminal": ("TerminalPreview", "TerminalSession"),
    "confinement.examine": ("check_confinement",),
    "confinement.report": ("ConfinementReport",),
    "denials": ("Denial",),
    "displays": ("Display",),
    "doctor": ("DoctorReport", "doctor"),
    "events": ("Canary", "Clause", "EnforcementReport", "Usage", "Violation"),
    "executor": ("JailExecutor", "JailExecutorBroken"),
    "jail": ("CommandResult", "Jail", "JailProcess"),
    "packages": ("BuiltEnvironment", "Environment"),
    "policy": ("Decision", "Egress", "Grant", "JailPolicy", "Limits", "Rule", "Secret"),
    "pool": ("RuntimePool",),
    "results": ("RunResult",),
    "runtime": ("Runtime", "TrustedRuntime"),
    "windows": ("WindowsExit", "WindowsJail", "WindowsLimits", "WindowsProcess"),
}

# What runs programs under a policy. On Windows their names stand for a refusal.
_NOT_OF_WINDOWS = (
    "_jail.terminal",
    "confinement.examine",
    "jail",
    "packages",
    "runtime",
)

# What is another class there.
_OF_WINDOWS = {"Runtime": "_runtime.windows"}

# What needs a Python worker, which is not built for macOS.
_NOT_OF_MACOS = ("confinement.examine", "executor", "packages", "pool", "runtime")


def __getattr__(name: str) -> object:
    """Import the module that *name* lives in."""
    if name == "aio":  # needs anyio, so it is none of __all__
        from importlib import import_module

        return import_module(f"{__name__}.aio")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = next((module for module, names in _HOMES.items() if name in names), "errors")
    if sys.platform == "win32":
        home = _OF_WINDOWS.get(name, home)
    missing = {"win32": _NOT_OF_WINDOWS, "darwin": _NOT_OF_MACOS}.get(sys.platform, ())
    if home in missing:
        from visruntime._windows.stand_ins import stand_in

        value: object = stand_in(name, sys.platform)
    else:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


class _Package(type(sys)):  # type: ignore[misc]
    """This package: `doctor` is always the function, also once its module was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "doctor" and isinstance(value, type(sys))):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "aio"})

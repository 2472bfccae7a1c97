"""What ``import visruntime`` gives, and what it costs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import visruntime

pytestmark = pytest.mark.one_uid

PUBLIC = """
Array BuiltEnvironment BundleRefused Canary Clause CommandError CommandFailed
CommandNotExecutable CommandNotFound CommandResult CommandTimeout ConfinementReport CrashReport
Decision Denial Display DoctorReport Egress EnforcementReport Environment EnvironmentNotBuilt
ForkRefused Grant GuestError Handle HostCalls Jail JailClosed JailExecutor JailExecutorBroken
JailPoisoned JailPolicy JailProcess JailSealed JailUnavailable LimitExceeded Limits
OutputLimitExceeded PathDenied PolicyError PolicyUnsupported PoolExhausted ProcessInfo
ProtocolViolation Record Repr Rule RunEvent RunHandle RunResult Rung Runtime RuntimePool Secret
Stop Table TerminalPreview TerminalSession Timeouts TrustedRuntime Usage Violation
VisRuntimeError WindowsCallFailed WindowsExit WindowsJail WindowsLimits WindowsProcess
WorkerDied WorkerPaused check_confinement doctor
""".split()

HEAVY = ("asyncio", "argparse", "dataclasses", "inspect", "sqlite3", "typing", "re", "hashlib")


def test_the_public_names_are_these() -> None:
    """A public name must neither vanish nor appear without this list saying so."""
    assert sorted(visruntime.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(visruntime))


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_there(name: str) -> None:
    """Every name of __all__ must lead to its object."""
    assert getattr(visruntime, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name of a later version must not be there by accident."""
    for name in ("MacJail", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(visruntime, name)


def test_doctor_is_callable_after_its_module_was_imported() -> None:
    """The module of the same name must not hide the function."""
    code = "import visruntime.doctor, visruntime as vr; assert callable(vr.doctor), vr.doctor"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_module_says_what_is_public() -> None:
    """Each name of a module's __all__ exists in it; each public module has one."""
    for info in pkgutil.walk_packages(visruntime.__path__, "visruntime."):
        last = info.name.rpartition(".")[2]
        if last == "__main__" or ".guest" in info.name or last.startswith("hook-"):
            continue
        module = importlib.import_module(info.name)
        if not hasattr(module, "__all__"):
            assert last.startswith("_"), f"{info.name} has no __all__"
            continue
        for name in module.__all__:
            assert hasattr(module, name), f"{info.name}.{name}"


def _imported(statement: str) -> set[str]:
    code = (
        f"import sys; before = set(sys.modules); {statement}\nprint(*sys.modules.keys() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_visruntime_imports_nothing_heavy() -> None:
    """The import must stay cheap; the control shows that the measurement sees imports."""
    assert "argparse" in _imported("import argparse")
    own = {name for name in _imported("import visruntime") if name != "visruntime"}
    assert not own & set(HEAVY)
    assert not [name for name in own if name.startswith("visruntime.")]


def test_a_policy_imports_nothing_heavy() -> None:
    """Making a policy must not cost what a policy does not need."""
    loaded = _imported("import visruntime; visruntime.JailPolicy(read=['/x'])")
    assert "visruntime.policy" in loaded
    assert not loaded & {"asyncio", "argparse", "dataclasses", "inspect", "sqlite3", "hashlib"}

"""Runs every attempt: in a jailed worker, and as a control in the same worker without a jail."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from visruntime._packages.trial_folder import trial_folder
from visruntime._runtime.traceback import printable
from visruntime.confinement import (
    files,
    interpreter,
    network,
    privileges,
    processes,
    starting,
)
from visruntime.confinement.guest import PRELUDE
from visruntime.confinement.layers import find_layers
from visruntime.confinement.report import ConfinementReport, Outcome
from visruntime.confinement.scene import Scene
from visruntime.errors import VisRuntimeError
from visruntime.policy import JailPolicy
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from visruntime.confinement.attempt import Attempt
    from visruntime.denials import Denial

__all__ = ["ATTEMPTS", "check_confinement"]

ATTEMPTS: tuple[Attempt, ...] = (
    *files.ATTEMPTS,
    *processes.ATTEMPTS,
    *network.ATTEMPTS,
    *privileges.ATTEMPTS,
    *starting.ATTEMPTS,
    *interpreter.ATTEMPTS,
)
"""All that is tried, in order."""
SECONDS = 20.0
"""How long one attempt may take."""
_LONGEST_REASON = 200


def check_confinement(
    policy: JailPolicy | None = None,
    *,
    python: str | os.PathLike[str] | None = None,
    backend: str = "auto",
    folder: str | os.PathLike[str] | None = None,
) -> ConfinementReport:
    """Try known ways out of a jail in a worker of this machine, and say what stopped each.

    Args:
        policy: a policy to be tried, with the clauses that the attempts are about on top; what
            it grants is of course not stopped. By default one that grants nothing else.
        python: interpreter of the worker; the host's own by default. The control of each attempt is
            made with it in a worker without a jail, so it must be one that you trust.
        backend: what builds the jail, as in `Jail`.
        folder: where the files for it are made, in a folder that is removed afterwards: one that
            the guest of no other jail may write to, since the controls act there by path, without
            a jail. By default the state folder, which no guest may write to.

    Raises:
        VisRuntimeError: no jail opens here, the interpreter cannot be a worker, or the state
            folder cannot be made.
    """
    if policy is not None and not isinstance(policy, JailPolicy):
        raise TypeError(f"policy: a JailPolicy is needed, not {type(policy).__name__}")
    with ExitStack() as end:
        made = end.enter_context(trial_folder(None if folder is None else os.fspath(folder)))
        scene = end.enter_context(Scene(made))
        jailed = Runtime(
            scene.jailed.policy(JailPolicy() if policy is None else policy),
            python=python,
            backend=backend,
            processes=False,
        )
        end.enter_context(jailed)
        # It may load machine code from anywhere, as everything without a jail may.
        free = end.enter_context(TrustedRuntime(python=python))
        trial = _Trial(scene, jailed, free)
        outcomes = tuple(trial.judge(attempt) for attempt in ATTEMPTS)
        return ConfinementReport(backend=trial.backend, python=trial.python, outcomes=outcomes)


class _Trial:
    """Two workers and what they have to know."""

    def __init__(self, scene: Scene, jailed: Runtime, free: TrustedRuntime) -> None:
        self._scene = scene
        self._jailed, self._free = jailed, free
        self._prepare(jailed)
        self._prepare(free)
        self._facts = (jailed.eval("facts()"), free.eval("facts()"))
        result = jailed.run("sys.version.split()[0]")
        self.backend = str(result.report.backend)
        self.python: str = printable(str(result.value))[:20]

    def _prepare(self, runtime: Runtime | TrustedRuntime) -> None:
        jailed = runtime is self._jailed
        names = self._scene.names(self._scene.jailed if jailed else self._scene.free, jailed=jailed)
        runtime.exec(PRELUDE + "\nS = types.SimpleNamespace(**names)", inputs={"names": names})

    def judge(self, attempt: Attempt) -> Outcome:
        """Try one attempt in both workers."""
        outside = self._try(self._free, attempt)
        inside = self._try(self._jailed, attempt)
        # What the host sees counts for more than what the worker says.
        damage = self._scene.jailed.damage()
        if isinstance(inside, str):
            return Outcome(attempt, "open", control=inside)
        mine, denials = inside
        number = mine["errno"]
        if mine["done"] or damage:
            return Outcome(attempt, "open", control="it succeeded")
        if mine["missing"]:
            return Outcome(attempt, "missing", control=_short(mine["error"]))
        if isinstance(outside, str):
            return Outcome(attempt, "unproven", number=number, control=outside)
        theirs = outside[0]
        if not theirs["done"]:
            reason = os.strerror(theirs["errno"]) if theirs["errno"] else theirs["error"]
            need = ", which needs root" if attempt.control_needs_root else ""
            control = _short(f"the control failed{need}: {reason}")
            return Outcome(attempt, "unproven", number=number, control=control)
        layers = find_layers(mine, theirs, denials, self._facts, _identity)
        return Outcome(attempt, "stopped", layers=layers, number=number, control="it succeeded")

    def _try(
        self, runtime: Runtime | TrustedRuntime, attempt: Attempt
    ) -> tuple[dict[str, Any], tuple[Denial, ...]] | str:
        """Return the evidence and what the hook refused, or a sentence where there is none."""
        try:
            result = runtime.run("os.chdir('/')\n" + attempt.code, timeout=SECONDS)
        except VisRuntimeError as error:
            self._prepare(runtime)
            return _short(f"the worker gave no evidence: {error}")
        value = result.value
        if result.error is not None or type(value) is not dict or "done" not in value:
            return _short(f"the attempt itself failed: {result.error or value}")
        return value, result.denials


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _short(text: object) -> str:
    return printable(str(text))[:_LONGEST_REASON]

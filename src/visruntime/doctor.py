"""What this machine can enforce: found by opening a real jail and trying to break it.

Nothing is concluded from a version or the name of a distribution. Each finding says what
was tried, what came back, and, where something is missing, the one thing that helps.
"""

from __future__ import annotations

import os

from visruntime._jail_diagnose import apparmor_profile
from visruntime._policy_values import Frozen
from visruntime.errors import VisRuntimeError
from visruntime.jail import Jail
from visruntime.policy import JailPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

__all__ = ["DoctorReport", "Finding", "doctor"]

MARKS = {"enforced": "ok", "degraded": "LESS", "unavailable": "NO"}
LANDLOCK_WITH_SCOPES = 6
TERMINAL_TIMEOUT_SECONDS = 10


class Finding(Frozen):
    """One capability.

    ``state`` is "enforced", "degraded" or "unavailable"; ``detail`` says by what or why;
    ``probe`` what was tried; ``fix`` the one thing that would help, or "".
    """

    __slots__ = ("detail", "fix", "name", "probe", "state")

    name: str
    state: Literal["enforced", "degraded", "unavailable"]
    detail: str
    probe: str
    fix: str

    def __init__(
        self,
        name: str,
        state: Literal["enforced", "degraded", "unavailable"],
        *,
        detail: str,
        probe: str,
        fix: str = "",
    ) -> None:
        self._set(name=name, state=state, detail=detail, probe=probe, fix=fix)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return self._named()


class DoctorReport(Frozen):
    """All findings, and under which backend they were made ("none" if no jail opened).

    ``apparmor_profile`` is a profile for the installed supervisor, ready to load, where
    AppArmor keeps this process from making user namespaces; else "".
    """

    __slots__ = ("apparmor_profile", "backend", "findings")

    apparmor_profile: str
    backend: str
    findings: tuple[Finding, ...]

    def __init__(
        self, *, backend: str, findings: tuple[Finding, ...], apparmor_profile: str = ""
    ) -> None:
        self._set(backend=backend, findings=findings, apparmor_profile=apparmor_profile)

    @property
    def ok(self) -> bool:
        """Whether a jail can be opened here and held everything that was tried."""
        return self.backend != "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "version": 1,
            "ok": self.ok,
            "backend": self.backend,
            "findings": [finding.to_dict() for finding in self.findings],
            "apparmor_profile": self.apparmor_profile,
        }

    def __str__(self) -> str:
        lines = [
            "A jail can be opened here, and held everything that was tried."
            if self.ok
            else "No jail can be opened here; nothing untrusted will be run.",
            "",
        ]
        width = max((len(finding.name) for finding in self.findings), default=0)
        for finding in self.findings:
            mark = MARKS[finding.state]
            lines.append(f"{mark:>4}  {finding.name:<{width}}  {finding.detail}")
            if finding.fix:
                lines.append(f"      {'':<{width}}  fix: {finding.fix}")
        if self.apparmor_profile:
            lines += [
                "",
                "AppArmor profile for this installation. As root, save it as",
                "/etc/apparmor.d/visjail-init and run: apparmor_parser -r /etc/apparmor.d/visjail-init",
                "",
                self.apparmor_profile,
            ]
        return "\n".join(lines)


def doctor() -> DoctorReport:
    """Open a jail, try forbidden acts, a terminal and a Python worker in it, and report."""
    try:
        jail = Jail(JailPolicy())
    except VisRuntimeError as error:
        finding = Finding(
            "jail",
            "unavailable",
            detail=str(error),
            probe="open a jail with the default policy",
            fix=getattr(error, "fix", ""),
        )
        restricted = _kernel_setting("apparmor_restrict_unprivileged_userns") == "1"
        return DoctorReport(
            backend="none",
            findings=(finding,),
            apparmor_profile=apparmor_profile() if restricted else "",
        )
    with jail:
        findings = (
            *_of_the_jail(jail),
            *_of_the_canaries(jail),
            _terminal(jail),
            _worker(),
            *_not_built(),
        )
    return DoctorReport(backend=jail.report.backend, findings=findings)


def _kernel_setting(name: str) -> str:
    try:
        with open(f"/proc/sys/kernel/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _of_the_jail(jail: Jail) -> Iterator[Finding]:
    yield Finding(
        "jail",
        "enforced",
        detail=f"{jail.report.backend}, guest runs as {jail.report.identity}",
        probe="open a jail with the default policy",
    )
    if os.geteuid() == 0 and "without capabilities" in jail.report.identity:
        yield Finding(
            "identity of a root caller's guest",
            "degraded",
            detail="host uid 0 without capabilities",
            probe="mount the grants id-mapped",
            fix="keep the grants on ext4, xfs or btrfs, or call as an ordinary user",
        )
    layers = [name for name in jail.report.mechanisms("system") if name.startswith("landlock")]
    abi = int(layers[0].rpartition("-")[2]) if layers else 0
    probe = "restrict a program by Landlock"
    if abi >= LANDLOCK_WITH_SCOPES:
        yield Finding("second layer (Landlock)", "enforced", detail=f"ABI {abi}", probe=probe)
    elif abi:
        yield Finding(
            "second layer (Landlock)",
            "degraded",
            detail=f"ABI {abi}: files only, signals between runs are not kept apart",
            probe=probe,
            fix="Linux 6.12 brings ABI 6",
        )
    else:
        yield Finding(
            "second layer (Landlock)",
            "unavailable",
            detail="this kernel has none: file clauses rest on mounts alone",
            probe=probe,
            fix="boot with landlock in the lsm= list (Linux 5.13)",
        )


def _of_the_canaries(jail: Jail) -> Iterator[Finding]:
    for canary in jail.report.canaries:
        yield Finding(
            f"cannot {canary.name}",
            "enforced",
            detail=os.strerror(canary.errno),
            probe=canary.name,
        )


def _terminal(jail: Jail) -> Finding:
    probe = "run tty on a terminal of the jail"
    try:
        with jail.spawn(["tty"], pty=True, timeout=TERMINAL_TIMEOUT_SECONDS) as process:
            shown, _ = process.communicate()
    except (VisRuntimeError, OSError) as error:
        return Finding("terminal", "unavailable", detail=f"pty_unavailable: {error}", probe=probe)
    if b"/dev/pts/" not in shown:
        return Finding("terminal", "unavailable", detail="pty_unavailable", probe=probe)
    return Finding("terminal", "enforced", detail="its own devpts", probe=probe)


def _worker() -> Finding:
    from visruntime.runtime import Runtime

    probe = "run 1+1 in a jailed Python worker"
    try:
        with Runtime(JailPolicy()) as runtime:
            value = runtime.run("1+1").value
    except (VisRuntimeError, OSError) as error:
        return Finding(
            "Python worker",
            "unavailable",
            detail=str(error),
            probe=probe,
            fix="give another interpreter by python=",
        )
    if value != 2:
        return Finding("Python worker", "unavailable", detail=f"answered {value!r}", probe=probe)
    return Finding("Python worker", "enforced", detail="this interpreter, jailed", probe=probe)


def _not_built() -> Iterator[Finding]:
    for name in ("egress through a proxy", "memory of a whole tree (cgroup)"):
        yield Finding(
            name,
            "unavailable",
            detail="not built yet: a policy that asks for it is refused",
            probe="none",
        )

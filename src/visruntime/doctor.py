"""What this machine can enforce: found by opening real jails and trying to break them.

Nothing is concluded from a version or the name of a distribution. Each finding says what
was tried, what came back, and, where something is missing, the one thing that helps.
"""

from __future__ import annotations

import errno as errno_names
import sys

from visruntime._host.own_version import own_version
from visruntime._policy.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

__all__ = ["DoctorReport", "Finding", "doctor"]

MARKS = {"enforced": "ok", "degraded": "LESS", "unavailable": "NO"}
REPORT_VERSION = 1


class Finding(Frozen):
    """One capability.

    ``key`` names it for programs and ``name`` for people; ``state`` is "enforced", "degraded"
    or "unavailable"; ``detail`` says by what or why; ``probe`` is what was tried and ``errno``
    what the kernel answered to it (``None`` where the probe was no forbidden act); ``fix`` is
    the one thing that would help, a command where there is one, or "".
    """

    __slots__ = ("detail", "errno", "fix", "key", "name", "probe", "state")

    key: str
    name: str
    state: Literal["enforced", "degraded", "unavailable"]
    detail: str
    probe: str
    errno: int | None
    fix: str

    def __init__(
        self,
        key: str,
        name: str,
        state: Literal["enforced", "degraded", "unavailable"],
        *,
        detail: str,
        probe: str,
        errno: int | None = None,
        fix: str = "",
    ) -> None:
        self._set(key=key, name=name, state=state, detail=detail, probe=probe, errno=errno, fix=fix)

    @property
    def answer(self) -> str:
        """The name of ``errno``, such as "EPERM", or ""."""
        if not self.errno:
            return ""
        return errno_names.errorcode.get(self.errno, str(self.errno))

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data; ``errno`` by its name."""
        return {
            "key": self.key,
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "probe": self.probe,
            "errno": self.answer or None,
            "fix": self.fix,
        }


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

    @property
    def headline(self) -> str:
        """The report in one sentence."""
        if self.ok:
            return "A jail can be opened here, and held everything that was tried."
        return "No jail can be opened here; nothing untrusted will be run."

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``doctor --json`` prints it."""
        import platform

        return {
            "version": REPORT_VERSION,
            "ok": self.ok,
            "backend": self.backend,
            "machine": {
                "kernel": platform.release(),
                "architecture": platform.machine(),
                "python": platform.python_version(),
                "visruntime": own_version(),
            },
            "findings": [finding.to_dict() for finding in self.findings],
            "apparmor_profile": self.apparmor_profile,
        }

    def __str__(self) -> str:
        lines = [self.headline, ""]
        width = max((len(finding.name) for finding in self.findings), default=0)
        for finding in self.findings:
            mark = MARKS[finding.state]
            answer = f" ({finding.answer})" if finding.answer else ""
            lines.append(f"{mark:>4}  {finding.name:<{width}}  {finding.detail}{answer}")
            if finding.state != "enforced":
                lines.append(f"      {'':<{width}}  tried: {finding.probe}")
            if finding.fix:
                lines.append(f"      {'':<{width}}  fix: {finding.fix}")
        if self.apparmor_profile:
            lines += [
                "",
                "AppArmor profile for this installation; to keep it over a boot, save it as",
                "/etc/apparmor.d/visjail-init:",
                "",
                self.apparmor_profile,
            ]
        return "\n".join(lines)


def doctor() -> DoctorReport:
    """Open jails, try forbidden acts, a terminal and a Python worker in them, and report.

    On Windows, where no enforcement is claimed, it says which parts of a `WindowsJail` are there; on
    macOS what one jail held there, and that this claims nothing.
    """
    if sys.platform == "win32":
        from visruntime._doctor_windows import examine as examine_windows
        from visruntime.windows import _load

        backend, findings, profile = examine_windows(lambda: _load("win32"))
    elif sys.platform == "darwin":
        from visruntime._doctor_macos import examine as examine_macos
        from visruntime.jail import Jail

        backend, findings, profile = examine_macos(Jail)
    else:
        from visruntime._doctor_probes import examine

        backend, findings, profile = examine()
    return DoctorReport(backend=backend, findings=findings, apparmor_profile=profile)

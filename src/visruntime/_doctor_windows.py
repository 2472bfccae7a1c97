"""What `doctor` says on Windows: which parts of a `WindowsJail` are there. No claim."""

from __future__ import annotations

from visruntime._policy.platforms import check_platform
from visruntime.doctor import Finding
from visruntime.errors import JailUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime._native.windows import WindowsCalls

__all__ = ["examine"]

UNCLAIMED = (
    "every part that it needs is there (build {build}); that it holds is unclaimed, until a run on "
    "Windows is recorded"
)


def examine(load: Callable[[], WindowsCalls]) -> tuple[str, tuple[Finding, ...], str]:
    """Return the back end, which is "none", the findings, and no profile.

    *load* gives the calls of this Windows, or raises `JailUnavailable`.
    """
    return "none", (_of_policies(), _of_windows_jail(load)), ""


def _of_policies() -> Finding:
    detail, fix = "", ""
    try:
        check_platform("win32")
    except JailUnavailable as error:
        fix = error.fix
        detail = str(error).removesuffix(f". {fix}")
    probe = "ask what holds a policy on this system"
    return Finding("jail", "jail", "unavailable", detail=detail, probe=probe, fix=fix)


def _of_windows_jail(load: Callable[[], WindowsCalls]) -> Finding:
    from visruntime._native.windows import WindowsError

    key, probe = "windows_jail", "look for each part that a WindowsJail needs"
    try:
        build = load().probe()
    except (JailUnavailable, WindowsError) as error:
        return Finding(key, "WindowsJail", "unavailable", detail=str(error), probe=probe)
    detail = UNCLAIMED.format(build=build)
    return Finding(key, "WindowsJail", "degraded", detail=detail, probe=probe)

"""What `doctor` says on macOS: what a jail held there, and which clauses Seatbelt cannot hold.

A jail opens if its own canaries held, which is told. That it holds in general is unclaimed, until a
run of the workflow on a Mac is recorded.
"""

from __future__ import annotations

from visruntime._policy.platforms import REFUSED, SEATBELT
from visruntime.doctor import Finding
from visruntime.errors import VisRuntimeError
from visruntime.policy import JailPolicy, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from visruntime.jail import Jail

__all__ = ["examine"]

UNCLAIMED = (
    "seatbelt; it held what is listed below, and that it holds is unclaimed until a run on a Mac is "
    "recorded"
)
PROGRAM_TIMEOUT_SECONDS = 10
SAID = b"spoken"


def examine(open_jail: Callable[[JailPolicy], Jail]) -> tuple[str, tuple[Finding, ...], str]:
    """Return the back end ("none" if no jail opens), the findings, and no profile."""
    probe = "open a jail without the limits that macOS lacks"
    refused = tuple(_refused())
    try:
        jail = open_jail(JailPolicy(limits=Limits(processes=None, scratch=None)))
    except VisRuntimeError as error:
        closed = Finding(
            "jail",
            "jail",
            "unavailable",
            detail=str(error),
            probe=probe,
            errno=getattr(error, "errno", None) or None,
            fix=getattr(error, "fix", ""),
        )
        return "none", (closed, *refused), ""
    with jail:
        opened = Finding("jail", "jail", "degraded", detail=UNCLAIMED, probe=probe)
        findings = (opened, *_canaries(jail), _program(jail), _terminal(jail), _worker())
    return "seatbelt", (*findings, *refused), ""


def _canaries(jail: Jail) -> Iterator[Finding]:
    for canary in jail.report.canaries:
        yield Finding(
            f"canary.{canary.name.lower().replace(' ', '_').replace(chr(39), '')}",
            canary.name,
            "enforced",
            detail="succeeds outside, denied in the jail",
            probe=canary.name,
            errno=canary.errno,
        )


def _program(jail: Jail) -> Finding:
    key, name, probe = "program", "program", "run echo in the jail"
    try:
        done = jail.run(["/bin/echo", SAID.decode()], timeout=PROGRAM_TIMEOUT_SECONDS)
    except (VisRuntimeError, OSError) as error:
        return Finding(key, name, "unavailable", detail=str(error), probe=probe)
    if done.stdout.strip() != SAID:
        return Finding(key, name, "unavailable", detail="it said something else", probe=probe)
    return Finding(key, name, "enforced", detail="in a sandbox of its own", probe=probe)


def _terminal(jail: Jail) -> Finding:
    key, name, probe = "terminal", "terminal", "ask for the size of a terminal of the run"
    try:
        with jail.spawn(
            ["/bin/sh", "-c", "stty size"],
            pty=True,
            rows=30,
            cols=99,
            timeout=PROGRAM_TIMEOUT_SECONDS,
        ) as process:
            shown, _ = process.communicate()
    except (VisRuntimeError, OSError) as error:
        detail = f"pty_unavailable: {error}"
        return Finding(key, name, "unavailable", detail=detail, probe=probe)
    if shown.split() != [b"30", b"99"]:
        return Finding(key, name, "unavailable", detail="pty_unavailable", probe=probe)
    return Finding(key, name, "enforced", detail="the run's own", probe=probe)


def _worker() -> Finding:
    return Finding(
        "python",
        "Python worker",
        "unavailable",
        detail="not built for macOS",
        probe="none: there is nothing to try",
        fix="run a Python program by Jail.run",
    )


def _refused() -> Iterator[Finding]:
    """Say of each clause that Seatbelt cannot hold that it is refused, and why."""
    for row, (kind, why) in SEATBELT.items():
        if kind == REFUSED:
            probe = "ask what holds the clause on this system"
            yield Finding(f"clause.{row}", row, "unavailable", detail=why, probe=probe)

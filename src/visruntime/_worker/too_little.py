"""Which limit of the policy a worker has met before it was ready, and what would be enough.

A policy may be so small that nothing runs under it. That is no fault of the worker's, so it is said
by the name of the limit, and not by what the interpreter printed as it ended.
"""

from __future__ import annotations

import signal as signals

from visruntime.guest.limits import NO_THREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._policy.values import Limits
    from visruntime.errors import WorkerDied

__all__ = ["ENOUGH_MEMORY", "ENOUGH_PROCESSES", "explain_start"]

ENOUGH_PROCESSES = 16
"""Processes and threads of any jail with a worker that starts nothing itself.

The least is 4: pid 1, the keeper, the worker and its control thread. Ports, sockets, walls and
``preload=`` take up to six more.
"""
ENOUGH_MEMORY = 64 * 1024**2
"""Bytes in which the interpreters of 3.11 to 3.15 start; they take 10 to 20 MiB."""
_WANT_OF_MEMORY = ("MemoryError", "Fatal Python error", "annot allocate memory")
"""What an interpreter says that gets none: in its traceback, in its last words once it has lost
stderr (3.14), or, while it begins, of whatever it could not make. Before it there is its loader."""
_UNSTARTED = 121
"""Exit code of the loader (native/vispython/loader.c): it could not start the interpreter."""


def explain_start(death: WorkerDied, limits: Limits | None) -> WorkerDied:
    """Return *death*, of a worker that was not ready yet, with the limit that it has met, if any."""
    report = death.report
    if report is None or report.run != 0:
        return death
    reason = _no_thread(limits) if report.exit_code == NO_THREAD else None
    if limits is not None and report.stopped_by == "wall":
        reason = (
            f"limits.wall_seconds: {limits.wall_seconds:g} s were over before the worker was ready; "
            "ask for more, 30 s are always enough"
        )
    elif limits is not None and _is_for_want_of_memory(death, limits):
        reason = (
            f"limits.memory: {limits.memory} bytes are too few for a Python worker to start; ask for "
            f"at least {ENOUGH_MEMORY} (64 MiB)"
        )
    if reason is not None:
        death.args = (reason,)
        death.report = report.replace(description=reason, stderr_tail="")
    return death


def _no_thread(limits: Limits | None) -> str:
    """Say why the kernel made no thread for the worker."""
    processes = None if limits is None else limits.processes
    if processes is not None and processes < ENOUGH_PROCESSES:
        return (
            f"limits.processes: {processes} is too few for a worker, which with its jail takes 4 "
            f"processes and threads or more; {ENOUGH_PROCESSES} are enough for any"
        )
    return (
        "the kernel makes no more processes or threads for this user (see `ulimit -u`, and pids.max "
        "of its cgroup); end some, or ask for more"
    )


def _is_for_want_of_memory(death: WorkerDied, limits: Limits) -> bool:
    if limits.memory is None or limits.memory >= ENOUGH_MEMORY:
        return False
    report = death.report
    by_process = limits.memory_by == "process" and (
        report.exit_code in (_UNSTARTED, NO_THREAD)
        or report.signal == signals.SIGSEGV
        or any(word in report.stderr_tail for word in _WANT_OF_MEMORY)
    )
    return bool(report.stopped_by == "memory" or report.out_of_memory or by_process)

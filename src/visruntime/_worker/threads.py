"""How many threads the numeric libraries of a worker start.

They ask for the processors of the machine and start as many threads, in a jail that may have a
part of one and a limit on processes: then the import of numpy fails, or all of them wait for
each other. So each worker is told what it has.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from visruntime._policy.values import Limits

__all__ = ["THREAD_VARIABLES", "thread_variables"]

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_PROCESSES_OF_EACH = 4
"""Of the limit on processes, this part may become threads of one library."""


def thread_variables(limits: Limits, given: Container[str]) -> dict[str, str]:
    """Return the variables that are not *given*, set to the processors that *limits* leave."""
    threads = len(os.sched_getaffinity(0))
    if limits.cpus is not None:
        threads = min(threads, -int(-limits.cpus // 1))  # upwards
    if limits.processes is not None:
        threads = min(threads, limits.processes // _PROCESSES_OF_EACH)
    return {name: str(max(threads, 1)) for name in THREAD_VARIABLES if name not in given}

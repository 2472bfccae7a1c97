"""Programs that another program of a jail forks, each a run of its own."""

from __future__ import annotations

import time

from visruntime._jail.process import JailProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._native import RunHandle

__all__ = ["ExpectedProcess"]


class ExpectedProcess:
    """A process that *origin*, or one that descends from it, is about to fork.

    It becomes a run of its own when `adopt` says which process it is: with an end, a status
    and a time limit (``limits.wall_seconds``) of its own, which the keeper of the run measures
    and enforces. The keeper takes only a process that it has inherited.

    Raises:
        NativeError: the run of *origin* has ended, or there are too many such processes.
    """

    def __init__(self, origin: JailProcess) -> None:
        wall = origin._limits.wall_seconds
        self._origin = origin
        self._run: RunHandle | None = origin._run.expect(0 if wall is None else int(wall * 1e9))

    def adopt(self, pidfd: int) -> JailProcess:
        """Return the process of *pidfd* as a program of the jail.

        Raises:
            NativeError: the keeper refuses: it is none of its processes, it is another
                program already, or it has ended.
        """
        assert self._run is not None
        origin = self._origin
        account = origin._account.another()
        account.ends_within(origin._limits.wall_seconds)
        try:
            self._run.adopt(pidfd)
            run, self._run = self._run, None
        except BaseException:
            account.close()
            raise
        return JailProcess(
            run,
            args=origin.args,
            report=origin.report,
            output_limit=origin._limit,
            account=account,
            started=time.monotonic(),
            stop_reason="wall",
            cpu_limit=origin._cpu_limit,
            limits=origin._limits,
            explain=origin._explain,
            judge=origin._judge,
        )

    def close(self) -> None:
        """Expect it no longer; nothing for one that was adopted."""
        self._run = None

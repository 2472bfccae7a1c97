"""How much the programs of one spawn in a `WindowsJail` may use."""

from __future__ import annotations

from visruntime._arguments import check_whole
from visruntime._policy.values import Frozen
from visruntime.errors import PolicyError

__all__ = ["WindowsLimits"]

MAX_BYTES = 2**60
MAX_PROCESSES = 2**22
PAGE = 4096
CPU_RATE_UNIT = 10_000
"""A job's rate of processor time is in hundredths of a percent of all processors."""


class WindowsLimits(Frozen):
    """Limits of a job of Windows, which hold for a program and all that it starts; ``None``: none.

    Args:
        processes: at one time.
        memory: bytes that all of them have committed together, 4096 or more; Windows rounds down
            to whole pages of 4096.
        process_memory: bytes that each has committed; rounded likewise.
        cpu_share: processor time, as a share of all processors of the machine: 0.25 is a quarter.

    Raises:
        PolicyError: naming the limit, for a number out of bounds.
    """

    __slots__ = ("cpu_share", "memory", "process_memory", "processes")
    cpu_share: float | None
    memory: int | None
    process_memory: int | None
    processes: int | None

    def __init__(
        self,
        *,
        processes: int | None = 512,
        memory: int | None = None,
        process_memory: int | None = None,
        cpu_share: float | None = None,
    ) -> None:
        for name, value, least, most in (
            ("processes", processes, 1, MAX_PROCESSES),
            ("memory", memory, PAGE, MAX_BYTES),
            ("process_memory", process_memory, PAGE, MAX_BYTES),
        ):
            if value is not None:
                check_whole(value, name, least, most)
        if cpu_share is not None:
            number = isinstance(cpu_share, (int, float)) and not isinstance(cpu_share, bool)
            if not number or not 1 / CPU_RATE_UNIT <= cpu_share <= 1:
                raise PolicyError(
                    f"cpu_share: a share of all processors, 0.0001 to 1, not {cpu_share!r}",
                    field="cpu_share",
                    value=cpu_share,
                )
        self._set(
            processes=processes, memory=memory, process_memory=process_memory, cpu_share=cpu_share
        )

    @property
    def cpu_rate(self) -> int:
        """``cpu_share`` in the unit of a job, 0 for none."""
        return 0 if self.cpu_share is None else max(1, int(self.cpu_share * CPU_RATE_UNIT))

"""Measuring a process from outside."""

from __future__ import annotations

import os
import time

__all__ = ["ProcessMeter"]

_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessMeter:
    """Measures a process from outside, cheaply enough to do it at each run.

    What it says is a lower bound: a process can hide its children and reset its peak.
    """

    __slots__ = ("_clock", "_peak", "_pid", "_stat", "_status")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # The kernel's per-process clock, see clock_getcpuclockid(3).
        self._clock = (~pid << 3) | 2
        self._peak = 0
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            os.close(self._stat)
            raise

    def cpu_seconds(self) -> float | None:
        """Processor time of the process itself."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return None

    def children_cpu_seconds(self) -> float:
        """Processor time of its children that it has waited for, in steps of a clock tick."""
        try:
            fields = os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()
        except ProcessLookupError:
            return 0.0
        return (int(fields[13]) + int(fields[14])) / _TICKS

    def peak_memory(self) -> int | None:
        """Largest resident size in bytes that was seen; /proc/self/clear_refs resets it."""
        try:
            status = os.pread(self._status, 8192, 0)
        except ProcessLookupError:
            return self._peak or None
        # At the start of a line: the first one holds a name that the process chooses, in which
        # the kernel writes line feeds as backslash and n.
        _, found, rest = status.partition(b"\nVmHWM:")
        if found:
            self._peak = max(self._peak, int(rest.split(None, 1)[0]) * 1024)
        return self._peak or None

    def is_stopped(self) -> bool:
        """Whether it stands still (in state T), or has ended."""
        try:
            return os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()[0] in b"TZX"
        except ProcessLookupError:
            return True

    def signal_descendants(self, number: int) -> int:
        """Signal all that descends from the process, but not itself; return how many there were."""
        from visruntime._worker.tree import signal_descendants

        try:
            held = os.pidfd_open(self._pid)
        except OSError:
            return 0
        try:
            # What was opened long ago can be read for as long as the number is that process's own.
            os.pread(self._stat, 1, 0)
            return signal_descendants(self._pid, held, number)
        except ProcessLookupError:
            return 0
        finally:
            os.close(held)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._stat)
        os.close(self._status)

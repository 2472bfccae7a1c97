"""The process of a worker, started directly (trusted) or in a jail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .worker import MakeArgv, Process

__all__ = ["JailedStart", "TrustedProcess", "TrustedStart"]

_TICKS = os.sysconf("SC_CLK_TCK")


class _Meter:
    """Measures a child process from outside, cheaply enough to do it at each run."""

    __slots__ = ("_clock", "_stat", "_status")

    def __init__(self, pid: int) -> None:
        # The kernel's per-process clock, see clock_getcpuclockid(3).
        self._clock = (~pid << 3) | 2
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)

    def cpu_seconds(self) -> float | None:
        """Processor time of the process itself."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return None

    def children_cpu_seconds(self) -> float:
        """Processor time of its children that have ended, in steps of a clock tick."""
        try:
            fields = os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()
        except ProcessLookupError:
            return 0.0
        return (int(fields[13]) + int(fields[14])) / _TICKS

    def peak_memory(self) -> int | None:
        """Largest resident size in bytes."""
        try:
            status = os.pread(self._status, 8192, 0)
        except ProcessLookupError:
            return None
        _, found, rest = status.partition(b"VmHWM:")
        return int(rest.split(None, 1)[0]) * 1024 if found else None

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._stat)
        os.close(self._status)


class TrustedProcess:
    """A worker without a jail: a child in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._usage: _Meter | None = _Meter(process.pid)
        self._pidfd: int | None = os.pidfd_open(process.pid)

    @property
    def stopped_by(self) -> str | None:
        """Nothing limits a trusted worker."""
        return None

    @property
    def pidfd(self) -> int | None:
        """Readable once the process has ended."""
        return self._pidfd

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds for the end."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End the process and its process group, and give back the descriptors."""
        # It leads its own session, so this reaches what did not leave the group.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._usage is not None:
            self._usage.close()
            self._usage = None
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def cpu_seconds(self) -> float | None:
        """Processor seconds of the process itself so far."""
        return None if self._usage is None else self._usage.cpu_seconds()

    def children_cpu_seconds(self) -> float:
        """Processor seconds of its children that have ended so far."""
        return 0.0 if self._usage is None else self._usage.children_cpu_seconds()

    def peak_memory(self) -> int | None:
        """Largest resident size so far, in bytes."""
        return None if self._usage is None else self._usage.peak_memory()


class TrustedStart:
    """Starts workers as plain children of this process."""

    def __init__(self, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        self._cwd = cwd
        self._env = env

    def __call__(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> Process:
        """Start one; the signature is that of `worker.Start`."""
        process = subprocess.Popen(
            make_argv(channel, control),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(channel, control),
            cwd=self._cwd,
            env=self._env,
            start_new_session=True,
        )
        return TrustedProcess(process)

    @staticmethod
    def probe(argv: list[str], _grants: Sequence[tuple[str, str]]) -> tuple[int, bytes]:
        """Run an interpreter that the host trusts, to ask for its version."""
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30
        )
        return done.returncode, done.stdout


class JailedStart:
    """Starts workers in an open jail."""

    def __init__(self, jail: Any, *, cwd: str | None, env: Mapping[str, str] | None) -> None:
        self._jail = jail
        self._cwd = cwd
        self._env = env

    def __call__(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> Process:
        """Start one; the signature is that of `worker.Start`."""
        process = self._jail.spawn(
            make_argv(3, 4),
            stdout=stdout,
            stderr=stderr,
            pass_fds={3: channel, 4: control},
            cwd=self._cwd,
            env=self._env,
        )
        return JailedProcess(process)


class JailedProcess:
    """A worker in a jail: the jail ends and measures it."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def pidfd(self) -> int | None:
        """A jailed process has no pidfd of the host; its end shows on the channel."""
        return None

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs."""
        code: int | None = self._process.poll()
        return code

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds for the end."""
        try:
            self._process.wait(timeout)
        except TimeoutError:
            return None
        return self.poll()

    def kill(self) -> None:
        """End the process and its whole tree."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def cpu_seconds(self) -> float | None:
        """Processor seconds so far, where the jail measures them while it runs."""
        usage = self._process.usage
        return None if usage is None else usage.cpu_seconds

    def children_cpu_seconds(self) -> float:
        """Nothing: what the jail measures has the whole tree in it."""
        return 0.0

    def peak_memory(self) -> int | None:
        """Largest resident size so far, in bytes."""
        usage = self._process.usage
        return None if usage is None else usage.peak_memory

    @property
    def stopped_by(self) -> str | None:
        """The limit that ended the process, where one did."""
        reason: str | None = self._process.stopped_by
        return reason

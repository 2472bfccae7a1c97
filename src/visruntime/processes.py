"""The process of a worker, started directly (trusted) or in a jail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from _thread import allocate_lock
from contextlib import suppress
from typing import TYPE_CHECKING

from visruntime import _native
from visruntime._worker_terminal import WorkerTerminal
from visruntime._worker_threads import thread_variables
from visruntime._worker_tree import signal_descendants
from visruntime.errors import CommandError, CommandTimeout, JailClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from visruntime._jail_process import JailProcess
    from visruntime._jail_usage import Span
    from visruntime._worker_start import MakeArgv, Process
    from visruntime.events import Violation
    from visruntime.jail import Jail

__all__ = ["JailedProcess", "JailedStart", "TrustedProcess", "TrustedStart"]

_STILL_TURNS = 100
_STILL_SECONDS = 0.001
"""How often, and how far apart, it is looked whether a process stands still."""
_TICKS = os.sysconf("SC_CLK_TCK")


class _Meter:
    """Measures a child process from outside, cheaply enough to do it at each run.

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
        _, found, rest = status.partition(b"VmHWM:")
        if found:
            self._peak = max(self._peak, int(rest.split(None, 1)[0]) * 1024)
        return self._peak or None

    def signal_descendants(self, number: int) -> int:
        """Signal all that descends from the process, but not itself; return how many there were."""
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


class TrustedProcess:
    """A worker without a jail: a child in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._gate = allocate_lock()  # between `end` of any thread and the end of the descriptor
        self._usage: _Meter | None = _Meter(process.pid)
        try:
            self._pidfd: int | None = os.pidfd_open(process.pid)
        except BaseException:
            self._usage.close()
            raise

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
        with self._gate:
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None

    def end(self) -> None:
        """End the process; may come from any thread, and gives nothing back."""
        with self._gate:
            if self._pidfd is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def suspend(self, *, suspended: bool) -> None:
        """Stop the process group, or let it go on."""
        if self._process.poll() is not None:
            return
        pid = self._process.pid
        with suppress(ProcessLookupError, ChildProcessError):  # it has ended just now
            os.killpg(pid, signal.SIGSTOP if suspended else signal.SIGCONT)
            # The kernel tells when the last thread stands still.
            for _ in range(_STILL_TURNS if suspended else 0):
                if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG):
                    break
                time.sleep(_STILL_SECONDS)

    def signal_descendants(self, number: int) -> int:
        """Signal all that descends from the process, but not itself; return how many there were."""
        return 0 if self._usage is None else self._usage.signal_descendants(number)

    def cpu_seconds(self) -> float | None:
        """Processor seconds of the process itself so far."""
        return None if self._usage is None else self._usage.cpu_seconds()

    def children_cpu_seconds(self) -> float:
        """Processor seconds of its children that have ended so far."""
        return 0.0 if self._usage is None else self._usage.children_cpu_seconds()

    def peak_memory(self) -> int | None:
        """Largest resident size so far, in bytes."""
        return None if self._usage is None else self._usage.peak_memory()

    def span(self) -> None:
        """Nothing: without a jail there is no cgroup to measure by."""

    def refused(self, _span: Span) -> tuple[Violation, ...]:
        """Nothing: nothing is limited."""
        return ()

    def locate(self, _pid: int) -> None:
        """Nothing: a child's number is known from the start."""

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Nothing: without a policy there is nothing to violate."""
        return ()


class TrustedStart:
    """Starts workers as plain children of this process."""

    def __init__(
        self, *, cwd: str | None, env: Mapping[str, str] | None, stdin: int | WorkerTerminal | None
    ) -> None:
        self._cwd = cwd
        self._env = env
        self._stdin = stdin

    def __call__(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> Process:
        """Start one; the signature is that of `_worker_start.Start`."""
        stdin = self._stdin
        if isinstance(stdin, WorkerTerminal):
            stdin = stdin.attach(os.openpty)
        process = subprocess.Popen(
            make_argv(channel, control),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(channel, control),
            cwd=self._cwd,
            env=self._env,
            start_new_session=True,
        )
        try:
            return TrustedProcess(process)
        except BaseException:
            process.kill()
            process.wait()
            raise

    @staticmethod
    def probe(
        argv: list[str], _grants: Sequence[tuple[str, str]], data: bytes
    ) -> tuple[int, bytes]:
        """Run an interpreter that the host trusts, to ask for its version."""
        done = subprocess.run(argv, input=data, capture_output=True, check=False, timeout=30)
        return done.returncode, done.stdout


class JailedStart:
    """Starts workers in an open jail."""

    def __init__(
        self,
        jail: Callable[[], Jail],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: int | WorkerTerminal | None,
    ) -> None:
        self._jail = jail
        self._cwd = cwd
        self._env = env
        self._stdin = stdin

    def __call__(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> Process:
        """Start one; the signature is that of `_worker_start.Start`."""
        jail = self._jail()
        threads = thread_variables(jail.policy.limits, jail._base_env)
        stdin = self._stdin
        if isinstance(stdin, WorkerTerminal):
            try:
                stdin = stdin.attach(jail._handle.terminal)
            except _native.NativeError as problem:
                raise CommandError(f"no terminal for the worker: {problem}") from None
        process = jail.spawn(
            make_argv(3, 4),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds={3: channel, 4: control},
            cwd=self._cwd,
            env={**threads, **(self._env or {})},
        )
        return JailedProcess(process)


class JailedProcess:
    """A worker in a jail: the jail starts and ends it."""

    def __init__(self, process: JailProcess) -> None:
        self._process = process
        self._usage: _Meter | None = None

    def locate(self, pid: int) -> None:
        """Learn the host's number of the process, which the kernel told with its first frame."""
        with suppress(FileNotFoundError):  # it has ended already
            self._usage = _Meter(pid)

    @property
    def pidfd(self) -> int | None:
        """Readable once the process has ended."""
        return self._process.fileno()

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs."""
        try:
            return self._process.poll()
        except (JailClosed, _native.NativeError):
            return -signal.SIGKILL  # the jail is gone, and so is everything in it

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds for the end."""
        try:
            return self._process.wait(timeout)
        except CommandTimeout:
            return None
        except JailClosed:
            return -signal.SIGKILL

    def kill(self) -> None:
        """End the process and its whole tree."""
        try:
            # An error means that the jail is gone, and so is everything in it.
            with suppress(JailClosed, _native.NativeError):
                self._process.kill()
            with suppress(JailClosed, _native.NativeError):
                self._process.close()
        finally:
            if self._usage is not None:
                self._usage.close()
                self._usage = None

    def end(self) -> None:
        """End the process and its whole tree; may come from any thread, and gives nothing back."""
        with suppress(JailClosed, _native.NativeError):
            self._process.kill()

    def suspend(self, *, suspended: bool) -> None:
        """Stop the whole tree, or let it go on."""
        with suppress(JailClosed, _native.NativeError):  # then there is nothing left to stop
            if suspended:
                self._process.suspend()
            else:
                self._process.resume()

    def signal_descendants(self, number: int) -> int:
        """Signal all that descends from the process, but not itself; return how many there were."""
        return 0 if self._usage is None else self._usage.signal_descendants(number)

    def cpu_seconds(self) -> float | None:
        """Processor seconds of the process itself so far."""
        return None if self._usage is None else self._usage.cpu_seconds()

    def children_cpu_seconds(self) -> float:
        """Processor seconds of its children that have ended so far."""
        return 0.0 if self._usage is None else self._usage.children_cpu_seconds()

    def peak_memory(self) -> int | None:
        """Largest resident size so far, in bytes."""
        if self._usage is None:
            return None if self._process.usage is None else self._process.usage.max_memory
        return self._usage.peak_memory()

    def span(self) -> Span | None:
        """Begin to measure what the jail uses; ``None`` where it has no cgroup."""
        return self._process.span()

    def refused(self, span: Span) -> tuple[Violation, ...]:
        """Name the limit on processes, if it was reached in *span*."""
        return tuple(self._process.refused(span))

    @property
    def stopped_by(self) -> str | None:
        """The limit that ended the process, where one did."""
        return self._process.stopped_by

    @property
    def violations(self) -> tuple[Violation, ...]:
        """What the jail saw the process do against the policy."""
        return self._process.violations

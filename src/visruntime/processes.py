"""The process of a worker, started directly (trusted) or in a jail."""

from __future__ import annotations

import _socket as socket
import errno
import os
import select
import time
from contextlib import suppress

from visruntime import _native
from visruntime._worker.meter import ProcessMeter
from visruntime._worker.terminal import WorkerTerminal
from visruntime._worker.threads import thread_variables
from visruntime._worker.unjailed import UnjailedProcess
from visruntime.errors import (
    CommandError,
    CommandTimeout,
    ForkRefused,
    JailClosed,
    ProtocolViolation,
    WorkerDied,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from visruntime._jail.members import ExpectedProcess
    from visruntime._jail.process import JailProcess
    from visruntime._jail.usage import Span
    from visruntime._worker.place import Expected, MakeArgv, Pairs, PipedProcess, Place
    from visruntime._worker.standard_input import WorkerInput
    from visruntime.events import Violation
    from visruntime.jail import Jail
else:
    import _signal as signal

__all__ = ["JailedProcess", "JailedStart", "TrustedProcess", "TrustedStart"]

_STILL_TURNS = 100
_STILL_SECONDS = 0.001
"""How often, and how far apart, it is looked whether a process stands still."""


class TrustedProcess(UnjailedProcess):
    """A worker without a jail: a child in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        meter = ProcessMeter(process.pid)
        try:
            pidfd = os.pidfd_open(process.pid)
        except BaseException:
            meter.close()
            raise
        super().__init__(pidfd, meter)
        self._process = process

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs."""
        return self._process.poll()

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.poll() is not None

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds for the end."""
        import subprocess

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

    def expect(self) -> Expected:
        """Get ready for a copy of this worker."""
        from visruntime._worker.orphan import ExpectedOrphan

        return ExpectedOrphan()


class TrustedStart:
    """Starts workers as plain children of this process; it is also their place."""

    def __init__(
        self,
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: WorkerInput | WorkerTerminal | None,
    ) -> None:
        self._cwd = cwd
        self._env = env
        self._stdin = stdin

    def settle(self) -> Place:
        """Return where the next worker is to be."""
        return self

    def pairs(self) -> Pairs:
        """Make the sockets of a worker."""
        channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            return _blocking((*channel, *socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)))
        except BaseException:
            for end in channel:
                end.close()
            raise

    def start(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> PipedProcess:
        """Start one; as `_worker.start.Place`."""
        import subprocess

        stdin = self._stdin
        if isinstance(stdin, WorkerTerminal):
            descriptor = stdin.attach(os.openpty)
        else:
            descriptor = subprocess.DEVNULL if stdin is None else stdin.fileno()
        process = subprocess.Popen(
            make_argv(channel, control),
            stdin=descriptor,
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

    def without_stdin(self) -> TrustedStart:
        """Return what starts the same workers with nothing to read."""
        return TrustedStart(cwd=self._cwd, env=self._env, stdin=None)

    @staticmethod
    def probe(
        argv: list[str], _grants: Sequence[tuple[str, str]], data: bytes
    ) -> tuple[int, bytes]:
        """Run an interpreter that the host trusts, to ask for its version."""
        import subprocess

        # A file, since writing into a pipe that nobody reads could end a host by SIGPIPE.
        with open(os.memfd_create("probe"), "w+b") as given:
            given.write(data)
            given.seek(0)
            done = subprocess.run(argv, stdin=given, capture_output=True, check=False, timeout=30)
        return done.returncode, done.stdout


def _blocking(ends: Pairs) -> Pairs:
    # A host may have said socket.setdefaulttimeout: the worker's ends would not wait, and ours
    # would where they are not to.
    for end in ends:
        end.settimeout(None)
    return ends


class JailedStart:
    """Starts workers in an open jail."""

    def __init__(
        self,
        jail: Callable[[], Jail],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: WorkerInput | WorkerTerminal | None,
    ) -> None:
        self._jail = jail
        self._cwd = cwd
        self._env = env
        self._stdin = stdin

    def settle(self) -> Place:
        """Return where the next worker is to be: the jail, which is open."""
        return JailedPlace(self, self._jail())

    def without_stdin(self) -> JailedStart:
        """Return what starts the same workers with nothing to read."""
        return JailedStart(self._jail, cwd=self._cwd, env=self._env, stdin=None)


class JailedPlace:
    """One open jail, in which a worker is started, and copied."""

    def __init__(self, choices: JailedStart, jail: Jail) -> None:
        self._choices = choices
        self._jail = jail

    def pairs(self) -> Pairs:
        """Have the jail make the sockets of a worker; as `_worker.start.Place`."""
        try:
            ends = self._jail._handle.pairs()
        except _native.NativeError as problem:
            if problem.status == "closed":
                raise JailClosed("the jail has ended") from None
            if problem.errno == errno.EMFILE:
                raise OSError(errno.EMFILE, "no sockets for the worker") from None
            raise CommandError(f"no sockets for the worker: {problem}") from None
        stream, packets = socket.SOCK_STREAM, socket.SOCK_SEQPACKET
        return _blocking(
            (
                socket.socket(socket.AF_UNIX, stream, fileno=ends[0]),
                socket.socket(socket.AF_UNIX, stream, fileno=ends[1]),
                socket.socket(socket.AF_UNIX, packets, fileno=ends[2]),
                socket.socket(socket.AF_UNIX, packets, fileno=ends[3]),
            )
        )

    def start(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> PipedProcess:
        """Start one; as `_worker.start.Place`."""
        jail, choices = self._jail, self._choices
        threads = thread_variables(jail.policy.limits, jail._base_env)
        stdin = choices._stdin
        descriptor: int | None
        if isinstance(stdin, WorkerTerminal):
            try:
                descriptor = stdin.attach(jail._handle.terminal)
            except _native.NativeError as problem:
                raise CommandError(f"no terminal for the worker: {problem}") from None
        else:
            descriptor = None if stdin is None else stdin.fileno()
        process = jail.spawn(
            make_argv(3, 4),
            stdin=descriptor,
            stdout=stdout,
            stderr=stderr,
            pass_fds={3: channel, 4: control},
            cwd=choices._cwd,
            env={**threads, **(choices._env or {})},
        )
        return JailedProcess(process)


class JailedProcess:
    """A worker in a jail: the jail starts and ends it."""

    def __init__(self, process: JailProcess) -> None:
        self._process = process
        self._usage: ProcessMeter | None = None

    def locate(self, pid: int) -> None:
        """Learn the host's number of the process, which the kernel told with its first frame."""
        with suppress(FileNotFoundError):  # it has ended already
            self._usage = ProcessMeter(pid)

    def forget_location(self) -> None:
        """Measure no process by its number."""
        if self._usage is not None:
            self._usage.close()
            self._usage = None

    @property
    def pidfd(self) -> int | None:
        """Readable once the process has ended."""
        return self._process.fileno()

    def read(self, descriptor: int, size: int) -> bytes:
        """As `os.read`, of a pipe that does not block; the guest cannot hold it up for long."""
        return self._process._run.read(descriptor, size)

    def pending(self, descriptor: int) -> int:
        """Return how many bytes wait in a pipe."""
        return self._process._run.pending(descriptor)

    def noted(self) -> AbstractContextManager[object]:
        """Return what is entered for a call that the guest must not hold up for long."""
        return self._process._run.noted()

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs."""
        try:
            return self._process.poll()
        except (JailClosed, _native.NativeError):
            return -signal.SIGKILL  # the jail is gone, and so is everything in it

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.poll() is not None

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
            self.forget_location()

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

    def expect(self) -> Expected:
        """Get ready for a copy of this worker."""
        from visruntime._jail.members import ExpectedProcess

        try:
            return JailedExpected(ExpectedProcess(self._process))
        except _native.NativeError as problem:
            raise _refusal(problem, "the worker ended") from None

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

    def refusals(self) -> tuple[list[Violation], int]:
        """Return what the jail's brokers refused since this was asked; see `JailProcess`."""
        refused, dropped = self._process.refusals()
        return refused, dropped + self._process.violations_dropped  # the latter at its end


class JailedExpected:
    """A copy of a jailed worker that is about to be forked."""

    has_keeper = True

    def __init__(self, expected: ExpectedProcess) -> None:
        self._expected = expected

    def adopt(self, pidfd: int, pid: int) -> JailedProcess:
        """Have the keeper of the run take the process; the descriptor is closed.

        Raises:
            WorkerDied: it has ended already, or never was a copy.
            ProtocolViolation: it is another program of the jail.
        """
        try:
            return self._adopt(pidfd, pid)
        except _native.NativeError as problem:
            raise _refusal(problem, "the copy ended before it was ready") from None
        finally:
            os.close(pidfd)

    def _adopt(self, pidfd: int, pid: int) -> JailedProcess:
        process = JailedProcess(self._expected.adopt(pidfd))
        process.locate(pid)
        # While it lives its number is no other process's.
        waiting = select.poll()
        waiting.register(pidfd, select.POLLIN)
        if waiting.poll(0):
            process.forget_location()
        return process

    def close(self) -> None:
        """Expect it no longer."""
        self._expected.close()


def _refusal(problem: _native.NativeError, otherwise: str) -> Exception:
    """What the keeper of a run says about a copy."""
    if problem.errno == errno.EUSERS:
        return ForkRefused("there are 63 copies from this worker already; close some")
    if problem.errno == errno.E2BIG:
        return ForkRefused("the worker has left too many processes behind to be copied")
    if problem.errno == errno.EEXIST:
        return ProtocolViolation("another worker spoke for the copy")
    if problem.errno in (errno.EMFILE, errno.ENFILE):
        return OSError(problem.errno, f"no copy of the worker ({problem})")
    return WorkerDied(f"{otherwise} ({problem})")

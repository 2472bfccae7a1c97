"""What a worker needs of where it is, of its process, and of who starts it.

For type checkers: nothing imports it when it runs.
"""

from __future__ import annotations

from _socket import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["Expected", "MakeArgv", "Pairs", "PipedProcess", "Place", "Process", "Reader", "Start"]


class Reader(Protocol):
    """Reads what a process writes, where it may hold up whoever does."""

    def read(self, descriptor: int, size: int) -> bytes:
        """As `os.read`, of a pipe that does not block."""

    def pending(self, descriptor: int) -> int:
        """Return how many bytes wait in a pipe."""

    def noted(self) -> AbstractContextManager[object]:
        """Return what is entered for any other call that the process could hold up."""


class Process(Protocol):
    """What a worker needs of its process; jailed and trusted ones differ only here."""

    @property
    def pidfd(self) -> int | None:
        """Readable once the process has ended; None where there is no such thing."""

    def poll(self) -> int | None:
        """Exit code, -N after signal N, None while it runs and where that is not known."""

    def has_ended(self) -> bool:
        """Whether it has ended, however that was."""

    def kill(self) -> None:
        """End the process and everything that it started; returns when that is done."""

    def end(self) -> None:
        """As :meth:`kill`, but gives nothing back and waits for nothing: for any other thread."""

    def suspend(self, *, suspended: bool) -> None:
        """Stop the process and what it started, or let them go on."""

    def signal_descendants(self, number: int) -> int:
        """Signal all that descends from the process, but not itself; return how many there were."""

    def wait(self, timeout: float) -> int | None:
        """Wait up to *timeout* seconds; the same answer as :meth:`poll`."""

    def cpu_seconds(self) -> float | None:
        """Processor seconds of the process so far, measured from outside."""

    def children_cpu_seconds(self) -> float:
        """Processor seconds of its children that have ended, where not counted above."""

    def peak_memory(self) -> int | None:
        """Largest resident size so far in bytes, measured from outside."""

    def span(self) -> Any:
        """Begin to measure by the jail's cgroup; None where there is none."""

    def refused(self, span: Any) -> tuple[Any, ...]:
        """Name the limit on processes, if it was reached in *span*."""

    def locate(self, pid: int) -> None:
        """Learn the process's number in the host's namespace."""

    def expect(self) -> Expected:
        """Get ready for a process that this one is about to fork.

        Raises:
            WorkerDied: it has ended.
            ForkRefused: there are too many.
        """

    @property
    def stopped_by(self) -> str | None:
        """The limit that ended the process, where one did."""

    @property
    def violations(self) -> tuple[Any, ...]:
        """What was seen of it against the policy."""

    def refusals(self) -> tuple[list[Any], int]:
        """What the jail's brokers refused it since this was asked, and how many more."""


class PipedProcess(Process, Reader, Protocol):
    """One whose output comes by pipes, on Linux."""


class Expected(Protocol):
    """The process of a copy that a worker is about to make of itself."""

    @property
    def has_keeper(self) -> bool:
        """Whether a keeper inherits it, and owns what it leaves behind."""

    def adopt(self, pidfd: int, pid: int) -> PipedProcess:
        """Take the process of *pidfd*, and the descriptor; *pid* is its number here.

        Raises:
            WorkerDied: it has ended, or is none that could be the copy.
            ProtocolViolation: it is another worker.
        """

    def close(self) -> None:
        """Expect it no longer; nothing for one that was adopted."""


MakeArgv = Callable[[int, int], list[str]]
"""Builds the worker's command for the numbers of its channel and control descriptors."""
Pairs = tuple[socket, socket, socket, socket]
"""The host's and the worker's end of a channel, then those of a control socket."""


class Start(Protocol):
    """Starts workers."""

    def settle(self) -> Place:
        """Return where the next worker is to be: in a jail that is open, or without one."""


class Place(Protocol):
    """Where a worker is, and all copies of it."""

    def pairs(self) -> Pairs:
        """Make the sockets of a worker or of a copy.

        A socket belongs for good to the network namespace in which it was made, so those of a
        jailed worker are made in its jail.

        Raises:
            JailClosed: the jail has ended.
            CommandError: there are no more; it says why.
            OSError: this process may not have more open files.
        """

    def start(
        self, make_argv: MakeArgv, channel: int, control: int, stdout: int, stderr: int
    ) -> PipedProcess:
        """Start a worker with these descriptors of the host, which stay open here."""

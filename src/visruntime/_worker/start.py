"""What a worker starts with: its process, as a worker sees it, and the payload that boots it."""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable
from functools import cache
from importlib.machinery import SourceFileLoader
from socket import socket
from typing import TYPE_CHECKING, Any, Protocol

from visruntime.guest import frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "LOAD",
    "Expected",
    "MakeArgv",
    "Pairs",
    "Place",
    "Process",
    "Start",
    "bootstrap",
    "bootstrap_compiled",
    "sources",
]

_GUEST_MODULES = (
    *("values", "limits", "imports", "describe", "interrupts", "confine", "session", "worker"),
)
_LATE_MODULES = (
    *(
        "arrays",
        "arrow_messages",
        "buffers",
        "console",
        "copying",
        "displays",
        "figures",
        "framed",
        "functions",
        "inputs",
        "sources",
        "surroundings",
        "tasks",
    ),
)
"""Those that most workers never need; they come along and are run when they are imported."""
_FRAME_TYPES = (
    *("HELLO", "RUN", "CALLBACK", "CALLBACK_REPLY", "RESULT", "FORK", "BYE"),
    *("DISPLAY", "INPUT", "BUFFER"),
)
LOAD = (
    "import sys,marshal,_viscore as c;m=type(sys);"
    "P='_visguest';p=sys.modules[P]=m(P);p.__path__=[]\n"
    # Each guest module imports it for nothing but its effect on the compiler.
    "F='__future__';f=sys.modules[F]=m(F);f.annotations=0\n"
    "a,p.late=marshal.loads(c.receive()[1])\n"
    "for n,s in a:\n"
    " t=sys.modules[P+'.'+n]=m(P+'.'+n);t.__package__=P\n"
    " if type(s) is bytes:s=compile(s,n+'.py','exec')\n"
    " if type(s) is tuple:s=marshal.loads(s[0])\n"
    " exec(s,t.__dict__)\n"
    "del sys.modules[F]\n"
    "t.main()"
)
"""What `python -c` gets: receive the guest modules and run the last one."""


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


class Expected(Protocol):
    """The process of a copy that a worker is about to make of itself."""

    @property
    def has_keeper(self) -> bool:
        """Whether a keeper inherits it, and owns what it leaves behind."""

    def adopt(self, pidfd: int, pid: int) -> Process:
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
    ) -> Process:
        """Start a worker with these descriptors of the host, which stay open here."""


@cache
def sources() -> tuple[tuple[str, bytes], ...]:
    """The source of each module that every worker has, in the order in which they are run."""
    # The worker's core does the framing; of that module only the numbers are needed.
    numbers = "\n".join(f"{name} = {getattr(frames, name)}" for name in _FRAME_TYPES)
    rest = ((name, _loader(name, path).get_data(path)) for name, path in _files())
    return (("frames", numbers.encode()), *rest)


@cache
def bootstrap(
    *,
    same_as_host: bool,
    extra: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """The guest modules as one payload: compiled here where the same version runs there.

    *extra* are further ones, (name, file), executed before the others.
    """
    if not same_as_host:
        return _join(sources(), extra)
    # A first compilation costs a worker more than all of its other modules.
    first = compile(sources()[0][1], "frames.py", "exec", dont_inherit=True)
    modules: list[tuple[str, Any]] = [("frames", first)]
    modules += [(n, _loader(n, path).get_code(f"_visguest.{n}")) for n, path in (*extra, *_files())]
    return marshal.dumps((modules, (_late(compiled=True), True)))


def bootstrap_compiled(compiled: Mapping[str, bytes], extra: tuple[tuple[str, str], ...]) -> bytes:
    """The same of what another version of Python compiled for its own workers.

    The host only passes it on: a tuple says that the worker is to unmarshal it.
    """
    return _join(((name, (compiled[name],)) for name, _ in sources()), extra)


def _join(modules: Iterable[tuple[str, Any]], extra: tuple[tuple[str, str], ...]) -> bytes:
    first, *rest = modules
    more = [(name, _loader(name, path).get_data(path)) for name, path in extra]
    # Format 2 is one that every CPython reads.
    return marshal.dumps(([first, *more, *rest], (_late(compiled=False), False)), 2)


@cache
def _late(*, compiled: bool) -> dict[str, bytes]:
    """The modules that a worker may need later, as source or as marshalled code."""
    found = {}
    for name, path in _files(_LATE_MODULES):
        loader = _loader(name, path)
        found[name] = (
            marshal.dumps(loader.get_code(loader.name)) if compiled else loader.get_data(path)
        )
    return found


def _files(names: tuple[str, ...] = _GUEST_MODULES) -> list[tuple[str, str]]:
    folder = os.path.dirname(frames.__file__)
    return [(name, os.path.join(folder, f"{name}.py")) for name in names]


def _loader(name: str, path: str) -> SourceFileLoader:
    return SourceFileLoader(f"_visguest.{name}", path)

"""Open jails, their runs, and the streams of those: each object owns what C gave for it."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext

from visruntime._native.library import NativeError, check, ffi, gone, lib
from visruntime._owned import Owned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

__all__ = [
    "MOST_SECONDS",
    "Capture",
    "JailHandle",
    "Refusal",
    "RunHandle",
    "TerminalReader",
    "write_quietly",
]

_make_room = ffi.new_allocator(should_clear_after_alloc=False)

MOST_SECONDS = float(1 << 32)
"""A longer wait has no end: its nanoseconds might not fit in 64 bits."""


class JailHandle(Owned):
    """One open jail.

    ``info`` holds pid, landlock_abi, guest_id, identity, and shared_memory (whether System V
    shared memory got its limit); ``answers`` what its canaries got, ``ports`` the numbers of
    the ports that listen, in the order of the plan.

    Args:
        members: the cgroup.procs files that the jail joins.
        counters: the files of the memory cgroup that are read in the jail.
        bubblewrap: path of the binary that executes a plan for it.
        follows_links: it follows links at its mount points.
        disables_userns: it has --disable-userns.
    """

    __slots__ = ("answers", "info", "ports")

    def __init__(
        self,
        init_path: str,
        plan: bytes,
        *,
        members: Sequence[int] = (),
        counters: Sequence[int] = (),
        bubblewrap: str = "",
        follows_links: bool = True,
        disables_userns: bool = False,
    ) -> None:
        name = ffi.new("char[]", os.fsencode(bubblewrap))
        options = ffi.new("vj_jail_options *")
        options.bubblewrap = name
        options.follows_links, options.disables_userns = follows_links, disables_userns
        groups = options.groups
        groups.count, groups.counter_count = len(members), len(counters)
        groups.counters[0 : len(counters)] = list(counters)
        groups.members[0 : len(members)] = list(members)
        jail, info = ffi.new("vj_jail **"), ffi.new("vj_jail_info *")
        error = ffi.new("vj_error *")
        status = lib.vj_jail_open(
            os.fsencode(init_path), options, plan, len(plan), jail, info, error
        )
        check(status, error)
        super().__init__(jail[0], lib.vj_jail_free, gone)
        self.info = {
            "pid": info.pid,
            "landlock_abi": info.landlock_abi,
            "guest_id": info.guest_id,
            "identity": info.identity,
            "shared_memory": int(bool(info.flags & lib.VJ_READY_SHARED_MEMORY)),
        }
        self.ports = list(info.ports[0 : info.port_count])
        self.answers = list(info.answers[0 : info.answer_count])

    def close(self) -> None:
        """End everything in the jail and wait for it. Idempotent."""
        if self.is_held:
            lib.vj_jail_close(self.pointer)

    def alive(self) -> bool:
        """Tell whether the jail's pid 1 lives."""
        return self.is_held and bool(lib.vj_jail_alive(self.pointer))

    def terminal(self) -> tuple[int, int]:
        """Return the descriptors of a new pseudo-terminal: master, slave."""
        master, slave, error = ffi.new("int *"), ffi.new("int *"), ffi.new("vj_error *")
        check(lib.vj_jail_terminal(self.pointer, master, slave, error), error)
        return master[0], slave[0]

    def pairs(self) -> list[int]:
        """Return the descriptors of a stream's two ends and of a packet socket's two ends.

        They belong to the network namespace of the jail.
        """
        ends, error = ffi.new("int[4]"), ffi.new("vj_error *")
        check(lib.vj_jail_pairs(self.pointer, ends, error), error)
        return list(ends)

    def start(
        self,
        *,
        directory: bytes,
        arguments: Sequence[bytes],
        environment: Sequence[bytes],
        descriptors: Mapping[int, int],
        timeout_ns: int = 0,
        search: bool = False,
        terminal: bool = False,
        directory_fallback: bool = False,
        quiet: bool = False,
        file: str | None = None,
        limit: int = 0,
    ) -> RunHandle:
        """Start a program, or with *file* a file operation on ``arguments[0]``.

        Args:
            descriptors: number in the program -> descriptor here (which stays open).
            timeout_ns: until the run is ended; 0 for none.
            search: look the program up in the PATH of *environment*.
            terminal: descriptor 0 becomes the controlling terminal.
            quiet: do not wait for the start; a failure is raised by `RunHandle.communicate`.
            directory_fallback: when *directory* cannot be entered, use HOME.
        """
        strings = b"\0".join([directory, *arguments, *environment]) + b"\0"
        text = ffi.from_buffer(strings)
        numbers = ffi.new("int32_t[]", list(descriptors.keys()) or 1)
        sources = ffi.new("int32_t[]", list(descriptors.values()) or 1)
        spawn = ffi.new("vj_spawn *")
        spawn.strings = text
        spawn.strings_size = len(strings)
        spawn.argument_count = len(arguments)
        spawn.environment_count = len(environment)
        spawn.flags = (
            (lib.VJ_SPAWN_SEARCH if search else 0)
            | (lib.VJ_SPAWN_TERMINAL if terminal else 0)
            | (lib.VJ_SPAWN_CWD_FALLBACK if directory_fallback else 0)
            | (lib.VJ_SPAWN_QUIET if quiet else 0)
            | (lib.VJ_SPAWN_FILE if file else 0)
        )
        spawn.file = getattr(lib, f"VJ_FILE_{file}") if file else 0
        spawn.timeout_ns = timeout_ns
        spawn.limit = limit
        spawn.descriptor_count = len(descriptors)
        spawn.descriptors = sources
        spawn.numbers = numbers
        run, pid = ffi.new("vj_run **"), ffi.new("int32_t *")
        error = ffi.new("vj_error *")
        check(lib.vj_run_start(self.pointer, spawn, run, pid, error), error)
        return RunHandle(run[0], pid[0])


class Capture(Owned):
    """The first and the last bytes of a stream, *limit* in all. Takes *descriptor*."""

    __slots__ = ()

    def __init__(self, descriptor: int, limit: int) -> None:
        capture = lib.vj_capture_new(descriptor, limit)
        if capture == ffi.NULL:
            raise MemoryError
        super().__init__(capture, lib.vj_capture_free, gone)

    def value(self) -> bytes:
        """Return the bytes that were kept."""
        size = lib.vj_capture_size(self.pointer)
        return bytes(ffi.buffer(lib.vj_capture_bytes(self.pointer), size)) if size else b""

    def total(self) -> int:
        """Return how many bytes came in all."""
        return int(lib.vj_capture_total(self.pointer))


class TerminalReader:
    """Reads the non-blocking master of a terminal in large pieces."""

    __slots__ = ("_buffer", "_descriptor")

    SIZE = 1 << 18

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._buffer = bytearray(self.SIZE)

    def read(self, wakeup: int, timeout: float | None) -> bytes | None:
        """Return what is there; ``b""`` when nothing came in *timeout* seconds or *wakeup* did.

        ``None`` is the end: every program has let go of the terminal.
        """
        size = ffi.new("uint64_t *")
        error = ffi.new("vj_error *")
        deadline = -1 if timeout is None else int(timeout * 1e9)
        buffer = ffi.from_buffer(self._buffer)
        status = lib.vj_terminal_read(
            self._descriptor, wakeup, deadline, buffer, self.SIZE, size, error
        )
        if status not in (lib.VJ_CLOSED, lib.VJ_TIMED_OUT, lib.VJ_INTERRUPTED):
            check(status, error)
        return None if status == lib.VJ_CLOSED else bytes(self._buffer[: size[0]])


def write_quietly(descriptor: int, data: Any) -> int:
    """Write once, as `os.write`, without SIGPIPE where nobody reads.

    A host may have left that signal at its default, which ends it. Signal handlers of the host
    run where the call is interrupted.

    Raises:
        OSError: as `os.write`; `BrokenPipeError` where nobody reads any longer.
    """
    return _repeat(lib.vj_write_quietly, descriptor, ffi.from_buffer(data), len(data))


def _repeat(call: Callable[..., int], *arguments: Any) -> int:
    """Call until nothing interrupts it, and raise OSError for a negative errno."""
    while True:
        count = call(*arguments)
        if count >= 0:
            return count
        if count != -errno.EINTR:
            raise OSError(-count, os.strerror(-count))


class _Noted:
    """A call of the host's that the keepers see while it lasts."""

    __slots__ = ("_number", "_run")

    def __init__(self, run: RunHandle) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._number = lib.vj_run_call(self._run.pointer)

    def __exit__(self, *_: object) -> None:
        lib.vj_run_called(self._run.pointer, self._number)


_NOT_NOTED = nullcontext()

_REFUSAL_KINDS = {
    lib.VJ_REFUSAL_CREATE: "create",
    lib.VJ_REFUSAL_MOVE: "move",
    lib.VJ_REFUSAL_BIND: "bind",
    lib.VJ_REFUSAL_CONNECT: "connect",
    lib.VJ_REFUSAL_SOCKETS: "sockets",
}


class Refusal:
    """Something that the broker of a jail refused. ``path`` is cut where ``cut`` says so."""

    __slots__ = ("cut", "errno", "kind", "path")

    def __init__(self, kind: str, errno: int, path: str, *, cut: bool) -> None:
        self.kind = kind
        self.errno = errno
        self.path = path
        self.cut = cut


_MEASURED = (
    *("status", "stop", "killed", "program_us", "user_us", "system_us"),
    *("resident_kib", "watched"),
)


class RunHandle(Owned):
    """One run. Freeing it ends the run if it has not ended, and closes its input."""

    __slots__ = ("_input", "_input_descriptor", "_input_offset", "_is_feeding", "pid")

    def __init__(self, run: Any, pid: int) -> None:
        super().__init__(run, lib.vj_run_free, gone)
        self._input = b""
        self._input_offset = ffi.new("uint64_t *")
        self._input_descriptor = ffi.new("int *", -1)
        self._is_feeding = False
        self.pid: Any = pid

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "_is_feeding"):
            self._close_input()

    def expect(self, timeout_ns: int) -> RunHandle:
        """Return a run for a program that this one is about to fork, for `adopt`."""
        run, error = ffi.new("vj_run **"), ffi.new("vj_error *")
        check(lib.vj_run_expect(self.pointer, timeout_ns, run, error), error)
        return RunHandle(run[0], 0)

    def adopt(self, process: int) -> None:
        """Take the process of a pidfd, which the keeper must have inherited, as the program."""
        pid, error = ffi.new("int32_t *"), ffi.new("vj_error *")
        check(lib.vj_run_adopt(self.pointer, process, pid, error), error)
        self.pid = pid[0]

    def feed(self, data: bytes, descriptor: int) -> None:
        """Have *data* written to *descriptor* (taken) by the next `communicate` calls."""
        os.set_blocking(descriptor, False)
        self._input = data
        self._input_offset[0] = 0
        self._input_descriptor[0] = descriptor

    def end_feed(self) -> None:
        """Write no more of what `feed` took, unless a thread is just at it."""
        if not self._is_feeding:
            self._close_input()

    def _close_input(self) -> None:
        descriptor, self._input_descriptor[0] = self._input_descriptor[0], -1
        if descriptor >= 0:
            os.close(descriptor)

    def communicate(
        self,
        output: Capture | None,
        errors: Capture | None,
        timeout: float | None,
        *,
        feed: bool = False,
    ) -> dict[str, int] | None:
        """Move output, and input with *feed*, until the run has ended or *timeout* has gone by.

        Returns what was measured, or ``None`` while the run goes on. Signal handlers of the
        host run in between.
        """
        if not feed:
            return self._communicate(output, errors, timeout, ffi.new("int *", -1))
        self._is_feeding = True
        try:
            return self._communicate(output, errors, timeout, self._input_descriptor)
        finally:
            self._is_feeding = False

    def _communicate(
        self, output: Capture | None, errors: Capture | None, timeout: float | None, source: Any
    ) -> dict[str, int] | None:
        result, error = ffi.new("vj_exit *"), ffi.new("vj_error *")
        for_ever = timeout is None or timeout > MOST_SECONDS
        deadline = -1 if for_ever else max(0, int((timeout or 0) * 1e9))
        while True:
            status = lib.vj_run_communicate(
                self.pointer,
                ffi.from_buffer(self._input),
                len(self._input),
                self._input_offset,
                source,
                ffi.NULL if output is None else output.pointer,
                ffi.NULL if errors is None else errors.pointer,
                deadline,
                result,
                error,
            )
            if status == lib.VJ_OK and result.failed_stage:
                name = ffi.string(lib.vj_stage_name(result.failed_stage)).decode()
                raise NativeError("system", name, result.failed_errno, -1, name)
            if status == lib.VJ_OK:
                return {name: getattr(result, name) for name in _MEASURED}
            if status == lib.VJ_TIMED_OUT:
                return None
            if status != lib.VJ_INTERRUPTED:
                check(status, error)
            if timeout is not None:
                return None  # the caller counts its own time and calls again

    # Calls on the streams of the run, which it cannot hold up for long (posix_stream.c).

    def read(self, descriptor: int, size: int) -> bytes:
        """Read once, as `os.read`."""
        memory = _make_room("char[]", size)
        count = _repeat(lib.vj_run_read, self.pointer, descriptor, memory, size)
        return bytes(ffi.buffer(memory, count))

    def write(self, descriptor: int, data: Any) -> int:
        """Write once, as `write_quietly`."""
        with ffi.from_buffer(data) as memory:  # given back though an error keeps this frame
            return _repeat(lib.vj_run_write, self.pointer, descriptor, memory, len(data))

    def pending(self, descriptor: int) -> int:
        """Return how many bytes wait in a pipe."""
        return _repeat(lib.vj_run_pending, self.pointer, descriptor)

    def noted(self) -> AbstractContextManager[object]:
        """Note a call that is none of these, for as long as the guest makes it wait in the kernel."""
        return _Noted(self) if self.is_held else _NOT_NOTED

    def let_go(self, descriptor: int) -> None:
        """Close a pipe; a garbage collector may free the run before what it wrote to."""
        if self.is_held:
            lib.vj_run_let_go(self.pointer, descriptor)
        else:
            os.close(descriptor)

    def resize(self, descriptor: int, rows: int, columns: int) -> None:
        """Set the size of a terminal, in characters."""
        _repeat(lib.vj_run_resize, self.pointer, descriptor, rows, columns)

    def signal(self, number: int) -> None:
        """Send a signal to the direct child."""
        if self.is_held:
            lib.vj_run_signal(self.pointer, number)

    def kill(self) -> None:
        """Order the end of the whole run."""
        if self.is_held:
            lib.vj_run_kill(self.pointer)

    def refusals(self) -> tuple[list[Refusal], int]:
        """Return what the broker refused since this was asked, and how many more there were."""
        if not self.is_held:
            return [], 0
        dropped = ffi.new("uint32_t *")
        if not lib.vj_run_refusals(self.pointer, ffi.NULL, 0, dropped) and not dropped[0]:
            return [], 0
        records = ffi.new("vj_refusal[]", lib.VJ_REFUSALS_MAX)
        count = lib.vj_run_refusals(self.pointer, records, lib.VJ_REFUSALS_MAX, dropped)
        found = [
            Refusal(
                _REFUSAL_KINDS[one.kind],
                one.error,
                os.fsdecode(bytes(ffi.buffer(one.text, one.length))),
                cut=bool(one.cut),
            )
            for one in records[0:count]
        ]
        return found, int(dropped[0])

    def suspend(self, *, suspended: bool) -> None:
        """Stop every process of the run, or continue them; done when it returns."""
        error = ffi.new("vj_error *")
        check(lib.vj_run_suspend(self.pointer, suspended, error), error)

    def descriptor(self) -> int:
        """Return a descriptor that becomes readable when the run has ended."""
        return int(lib.vj_run_descriptor(self.pointer))

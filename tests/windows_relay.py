"""A Windows on which a worker of this machine runs, for the host's side of a worker there.

The calls are those of `WindowsCalls`, over pipes of this machine; a program is always a Linux worker.
Between its sockets and the two pipes that a host on Windows has stands a relay, which takes orders to
interrupt out of the frames, as a worker on Windows does itself.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any, NoReturn

from visruntime._native.windows import WindowsError
from visruntime.environments import find_interpreter, worker_argv
from visruntime.processes import TrustedStart

__all__ = ["ROOT", "RelayedCalls"]

ROOT = r"C:\jails\vj-1"
HEADER = struct.Struct("<BBHIQ")
INTERRUPT = 9
PIECE = 4096


def fail(status: str) -> NoReturn:
    """Raise what a call of C says."""
    raise WindowsError(status, "test", 0, -1, status)


class Program:
    """A worker, its pipes and the threads between."""

    def __init__(self, code: str) -> None:
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pipes = {name: os.pipe() for name in ("output", "errors", "to_guest", "from_guest")}
        interpreter = find_interpreter(None, probe=TrustedStart.probe)
        argv = worker_argv(
            interpreter, channel=theirs.fileno(), control=its.fileno(), harden=False, code=code
        )
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self.pipes["output"][1],
            stderr=self.pipes["errors"][1],
            pass_fds=(theirs.fileno(), its.fileno()),
            start_new_session=True,
        )
        theirs.close()
        its.close()
        for name in ("output", "errors"):
            os.close(self.pipes[name][1])
        self.killed = False
        self.threads = [
            threading.Thread(target=self._to_worker, args=(channel, control), daemon=True),
            threading.Thread(target=self._to_host, args=(channel,), daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        """End it, and note whether that was needed."""
        self.killed = self.process.poll() is None
        self.process.kill()
        self.process.wait()

    def _to_worker(self, channel: socket.socket, control: socket.socket) -> None:
        with control, suppress(OSError), open(self.pipes["to_guest"][0], "rb") as frames:
            while header := frames.read(HEADER.size):
                _, kind, _, length, _ = HEADER.unpack(header)
                if kind == INTERRUPT:
                    control.send(b"I" + frames.read(length))
                    continue
                channel.sendall(header)
                while length:  # no more of it is taken than the worker reads
                    data = frames.read(min(length, PIECE))
                    length -= len(data)
                    channel.sendall(data)
            channel.shutdown(socket.SHUT_WR)
            self.process.wait()

    def _to_host(self, channel: socket.socket) -> None:
        with channel, suppress(OSError), open(self.pipes["from_guest"][1], "wb", 0) as frames:
            while data := channel.recv(1 << 16):
                frames.write(data)


class RelayedCalls:
    """What a `WindowsJail` asks of C; a stream's number is a descriptor."""

    def __init__(self) -> None:
        self.programs: dict[int, Program] = {}
        self.staged: list[tuple[str, str]] = []
        self.spawned: list[dict[str, Any]] = []
        self.sealed = self.closed = False
        self._numbers = itertools.count(1)
        self._open: set[int] = set()
        # By stream: a number that is closed may become another file's.
        self._using: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def create(self, _parent: str, *, remove_work: bool) -> tuple[int, dict[str, Any]]:
        """Make the one context."""
        assert not remove_work
        return 1, {"root": ROOT, "package_sid": "S-1-15-2-1"}

    def stage(self, _context: int, pairs: list[tuple[str, str]], **_most: int) -> Any:
        """Keep what was to be copied."""
        if self.sealed:
            fail("state")
        self.staged += pairs
        return len(pairs), 0, 0

    def seal(self, _context: int) -> None:
        """Allow programs."""
        self.sealed = True

    def state(self, _context: int) -> str:
        """Say what it may do."""
        return "sealed" if self.sealed else "open"

    def spawn(self, _context: int, **request: Any) -> dict[str, Any]:
        """Start a worker that runs the last argument."""
        self.spawned.append(request)
        number = next(self._numbers)
        program = self.programs[number] = Program(request["arguments"][-1])
        ends = {name: pipe[name == "to_guest"] for name, pipe in program.pipes.items()}
        self._open |= set(ends.values())
        for end in ends.values():
            os.set_blocking(end, False)
        return {"process": number, "input": 0, "pid": program.process.pid, **ends}

    def wait(self, process: int, milliseconds: int) -> dict[str, int]:
        """Wait for its end."""
        program = self.programs.get(process) or fail("stale")
        try:
            code = program.process.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            fail("timed_out")
        names = "processes user_ns kernel_ns peak_process_memory peak_job_memory".split()
        return {"exit_code": code & 0xFFFFFFFF, "killed": program.killed, **dict.fromkeys(names, 0)}

    def kill(self, process: int) -> None:
        """End it."""
        (self.programs.get(process) or fail("stale")).end()

    def release(self, process: int) -> None:
        """Forget it. Of two threads that do one is told that it is gone."""
        program = self.programs.pop(process, None) or fail("stale")
        program.end()
        for thread in program.threads:
            thread.join(10)
            assert not thread.is_alive()

    def read(self, stream: int, buffer: Any, milliseconds: int) -> int:
        """Read what comes in that time."""
        with self._using[stream]:
            if stream not in self._open:
                fail("stale")
            if not self._is_ready(stream, select.POLLIN, milliseconds):
                fail("timed_out")
            return os.readv(stream, [buffer])

    def write(self, stream: int, data: Any, milliseconds: int) -> tuple[int, bool]:
        """Write what there is room for in that time."""
        with self._using[stream]:
            if stream not in self._open:
                fail("stale")
            return self._write(stream, data, milliseconds)

    def _write(self, stream: int, data: Any, milliseconds: int) -> tuple[int, bool]:
        done, end = 0, time.monotonic() + milliseconds / 1000
        while done < len(data):
            try:
                done += os.write(stream, data[done:])
            except BlockingIOError:
                left = max(0, int((end - time.monotonic()) * 1000))
                if not self._is_ready(stream, select.POLLOUT, left):
                    break
            except BrokenPipeError:
                fail("ended")
        return done, done < len(data)

    def _is_ready(self, stream: int, event: int, milliseconds: int) -> bool:
        poll = select.poll()
        poll.register(stream, event)
        return bool(poll.poll(milliseconds))

    def close_stream(self, stream: int) -> None:
        """Close one end."""
        with self._using[stream]:
            if stream not in self._open:
                fail("stale")
            self._open.remove(stream)
            os.close(stream)

    def close(self, _context: int) -> None:
        """End everything."""
        self.closed = True
        # Another thread may be giving back what it has.
        for stream in list(self._open):
            with suppress(WindowsError):
                self.close_stream(stream)
        for process in list(self.programs):
            with suppress(WindowsError):
                self.release(process)

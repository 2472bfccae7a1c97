"""A host of Python workers that knows nothing of visruntime but its command line and documents.

Written from doc/reference/protocol.md and worker.md alone, and it imports nothing of the package:
what it can do, a host in any language can. Where it needed something that those pages did not say,
the pages were wrong.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from protocol_values import Violation, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = struct.Struct("<BBHIQ")
HELLO, RUN, CALLBACK, CALLBACK_REPLY, RESULT, DENIED = 1, 2, 4, 5, 7, 8
BYE, DISPLAY, INPUT, BUFFER = 14, 15, 16, 17
MAX_CONTROL, MAX_VALUE = 1 << 20, 64 << 20
LIMITS = dict.fromkeys((CALLBACK, RESULT, DISPLAY), MAX_VALUE)
LIMITS |= dict.fromkeys((HELLO, DENIED, INPUT, BUFFER), MAX_CONTROL)
SECONDS = 30.0


# ---- the host ----


def command_line(*words: str) -> list[str]:
    """Return a command of visruntime."""
    return [sys.executable, "-m", "visruntime", *words]


def recipe(*options: str) -> dict[str, Any]:
    """Ask how a worker is started."""
    done = subprocess.run(command_line("worker", *options), capture_output=True, check=True)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


class Client:
    """One jailed worker, driven by frames and nothing else."""

    def __init__(
        self, made: dict[str, Any], *policy: str, explain: Any = (), jailed: bool = True
    ) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control, order = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stdout, out = os.pipe()
        words = ["exec", "--no-tty", *policy]
        for grant in made["read"]:
            words += ["--read", grant["path"]]
        words += ["--pass-fd", str(made["channel"]), "--pass-fd", str(made["control"]), "--"]
        command = command_line(*words, *made["argv"]) if jailed else made["argv"]
        # Out of the way first: their numbers may be those that they are to get.
        ends = [fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 20) for end in (theirs, order)]
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        moves = [(nothing, 0), (out, 1), (ends[0], made["channel"]), (ends[1], made["control"])]
        self.pid = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, *move) for move in moves],
        )
        for number in (nothing, out, *ends):
            os.close(number)
        theirs.close()
        order.close()
        self.functions: dict[str, Callable[..., Any]] = {}
        self.ask: Callable[[str, bool], str | None] = lambda _prompt, _password: None
        self.displays: list[dict[str, Any]] = []
        self.denials: list[Any] = []
        self.kept: list[int] = []
        self.buffers: list[bytes] = []
        self.sent = self.received = self.run = 0
        self.inbox = b""
        self.channel.settimeout(SECONDS)
        self.send(HELLO, base64.b64decode(made["bootstrap"]))
        rules = {"rules": list(explain), "closed": [], "processes": True, "ctypes": True}
        self.send(HELLO, encode({"confine": rules | {"native": True}}))
        kind, payload = self.receive()
        self.hello = decode(payload)
        if kind != HELLO or self.hello["hook_before_init"] is not True:
            raise Violation("no greeting, or a hook that came too late")
        if (self.hello["python"], self.hello["mode"]) != (made["python"], made["mode"]):
            raise Violation("another interpreter")
        kind, payload = self.receive()
        self.ready = decode(payload)
        if kind != RESULT or self.ready["id"] != 0:
            raise Violation("not ready")

    def send(self, kind: int, payload: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send one frame; descriptors go with its first byte."""
        self.sent += 1
        data = HEADER.pack(1, kind, len(descriptors), len(payload), self.sent) + payload
        sent = socket.send_fds(self.channel, [data], descriptors) if descriptors else 0
        self.channel.sendall(data[sent:])

    def receive(self) -> tuple[int, bytes]:
        """Wait for one frame, and check its header before anything of the payload is read."""
        version, kind, flags, length, sequence = HEADER.unpack(self.read(HEADER.size))
        self.received += 1
        if version != 1 or kind not in LIMITS or flags or sequence != self.received:
            raise Violation(f"a wrong header: {version, kind, flags, sequence}")
        if length > LIMITS[kind]:
            raise Violation(f"{length} bytes are too many")
        return kind, self.read(length)

    def read(self, size: int) -> bytes:
        """Read so many bytes; memory grows only with what has arrived."""
        while len(self.inbox) < size:
            try:
                more = self.channel.recv(1 << 16)
            except ConnectionResetError:  # it left unread what this host had sent
                more = b""
            if not more:
                raise EOFError("the worker is gone")
            self.inbox += more
        taken, self.inbox = self.inbox[:size], self.inbox[size:]
        return taken

    def begin(self, op: str, **keys: Any) -> None:
        """Send a request."""
        self.run += 1
        self.send(RUN, encode({"id": self.run, "op": op, **keys}))

    def request(self, op: str, **keys: Any) -> dict[str, Any]:
        """Send a request, answer what the worker asks meanwhile, and return its reply."""
        self.begin(op, **keys)
        return self.reply()

    def execute(self, code: str, **inputs: Any) -> dict[str, Any]:
        """Run source text."""
        return self.request("run", code=code, inputs=inputs, filename=None)

    def reply(self) -> dict[str, Any]:
        """Serve the worker until the reply comes."""
        while True:
            kind, payload = self.receive()
            said: dict[str, Any] = decode(payload)
            if kind == RESULT:
                if said["id"] != self.run:
                    raise Violation("a reply to another request")
                self.take_buffers()
                return said
            if kind == DISPLAY:
                self.displays.append(said)
            elif kind == DENIED:
                self.denials.append(said["denial"])
            elif kind == CALLBACK:
                self.answer(said["id"], *self.call(said))
            elif kind == INPUT:
                self.answer(said["id"], self.ask(said["prompt"], said["password"]))
            elif kind == BUFFER:
                self.lend(said)
            else:
                raise Violation(f"a frame of type {kind} during a request")

    def answer(self, number: int, value: Any, error: Any = None) -> None:
        """Answer a call or a question."""
        said = {"id": number, "value": value, "error": error}
        self.send(CALLBACK_REPLY, encode(said | ({"interrupted": False} if error else {})))

    def call(self, said: dict[str, Any]) -> tuple[Any, Any]:
        """Call what was exposed; the worker's word is a name and arguments, to be checked."""
        function = self.functions.get(said["name"])
        if function is None:
            return None, ("LookupError", "nothing of that name", {})
        try:
            return function(*said["args"], **said["kwargs"]), None
        except Exception as error:
            return None, (type(error).__name__, str(error), {})

    def lend(self, said: dict[str, Any]) -> None:
        """Give the worker memory of ours for a large value."""
        memory = os.memfd_create("lent", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(memory, said["size"])
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.kept.append(memory)
        value = {"id": said["id"], "value": len(self.kept) - 1, "error": None}
        self.send(CALLBACK_REPLY, encode(value), (memory,))

    def take_buffers(self) -> None:
        """Take what the worker has filled; only sealed memory can no longer change."""
        self.buffers = []
        for memory in self.kept:
            if fcntl.fcntl(memory, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE:
                self.buffers.append(os.pread(memory, os.fstat(memory).st_size, 0))
            os.close(memory)
        self.kept = []

    def order(self, letter: str, number: int) -> None:
        """Give the control thread an order."""
        self.control.send(struct.pack("<cQ", letter.encode(), number))

    def heard(self) -> bytes:
        """Return what the control thread says next."""
        if not select.select([self.control], [], [], SECONDS)[0]:
            raise TimeoutError("the control thread says nothing")
        return self.control.recv(1 << 16)

    def printed(self, until: bytes) -> bytes:
        """Read stdout until it ends with *until*."""
        text, deadline = b"", time.monotonic() + SECONDS
        while not text.endswith(until):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.stdout], [], [], left)[0]:
                raise TimeoutError(f"only {text!r}")
            text += os.read(self.stdout, 1 << 16)
        return text

    def goodbye(self) -> int:
        """End the worker in order; return the exit code of its jail."""
        self.send(BYE, b"")
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the jail and return its exit code."""
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self) -> None:
        """End what is left."""
        self.channel.close()
        self.control.close()
        if self.pid:
            with contextlib.suppress(ChildProcessError):
                self.wait()
        os.close(self.stdout)

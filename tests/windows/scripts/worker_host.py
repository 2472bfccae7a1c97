"""A host of one Python worker on Windows: it starts vispython.exe on two pipes, and says what came.

Written from doc/reference/protocol.md, as protocol_client.py is, and run by a CPython of Windows. Each
act is a worker of its own; the lines that it writes are what the tests read.
"""

from __future__ import annotations

import _winapi
import ctypes
import msvcrt
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from protocol_values import decode, encode

assert sys.platform == "win32"

HEADER = struct.Struct("<BBHIQ")
HELLO, RUN, CALLBACK, CALLBACK_REPLY, RESULT, INTERRUPT, BYE = 1, 2, 4, 5, 7, 9, 14
PERMISSIVE = {"rules": [], "closed": [], "processes": True, "ctypes": True, "native": True}
SECONDS = 40.0
FREE = "3.13.0 experimental free-threading build"
LIBRARY = f"python{sys.version_info.major}{sys.version_info.minor}.dll"
OPTIONS = ("-I", "-S", "-B", "-X", "utf8")


class Worker:
    """One worker, its two pipes and what it writes."""

    def __init__(self, folder: str, python: str, *, load: str, bootstrap: bytes) -> None:
        theirs_in, self.output = _winapi.CreatePipe(None, 0)
        self.input, theirs_out = _winapi.CreatePipe(None, 0)
        pipes = self.pipes = [theirs_in, theirs_out]
        for handle in pipes:
            os.set_handle_inheritable(handle, True)
        self.process = subprocess.Popen(
            [
                *(rf"{folder}\vispython.exe", "--core", rf"{folder}\_viscore.pyd"),
                *("--name", rf"{python}\python.exe", "--library", rf"{python}\{LIBRARY}"),
                *("--expect", sys.version, "--", *OPTIONS, "-c", load),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            startupinfo=subprocess.STARTUPINFO(lpAttributeList={"handle_list": pipes}),
            env={**os.environ, "VISJAIL_CHANNEL": f"{theirs_in}:{theirs_out}"},
        )
        for handle in pipes:
            _winapi.CloseHandle(handle)
        self.sent = self.received = self.number = 0
        self.written: dict[str, bytes] = {}
        self.readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True)
            for name in ("stdout", "stderr")
        ]
        for reader in self.readers:
            reader.start()
        # A worker that never answers must not keep its host.
        self.watchdog = threading.Timer(SECONDS, self.process.kill)
        self.watchdog.start()
        self.send(HELLO, bootstrap)

    def greet(self, confine: dict[str, Any], console: str) -> None:
        """Send the settings, and take the greeting and the word that it is ready."""
        self.send(HELLO, encode({"confine": confine, "console": console}))
        kind, self.hello = self.receive()
        assert kind == HELLO, kind
        kind, self.ready = self.receive()
        assert (kind, self.ready["id"]) == (RESULT, 0), self.ready

    def _read(self, name: str) -> None:
        self.written[name] = getattr(self.process, name).read()

    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame that has its number."""
        self.sent += 1
        self._write(HEADER.pack(1, kind, 0, len(payload), self.sent) + payload)

    def interrupt(self, run: int) -> None:
        """Send an order, which is no part of the sequence."""
        self._write(HEADER.pack(1, INTERRUPT, 0, 8, 0) + struct.pack("<Q", run))

    def _write(self, data: bytes) -> None:
        while data:
            written, _ = _winapi.WriteFile(self.output, data)
            data = data[written:]

    def receive(self) -> tuple[int, Any]:
        """Wait for a frame."""
        version, kind, flags, length, sequence = HEADER.unpack(self._take(HEADER.size))
        self.received += 1
        assert (version, flags, sequence) == (1, 0, self.received)
        return kind, decode(self._take(length))

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            more, _ = _winapi.ReadFile(self.input, size - len(taken))
            taken += more
        return taken

    def begin(self, code: str, **around: Any) -> int:
        """Send a request to run source text, with what it has for itself; return its number."""
        self.number += 1
        asked = {"id": self.number, "op": "run", "code": code, "inputs": {}, "filename": None}
        self.send(RUN, encode(asked | ({"around": around} if around else {})))
        return self.number

    def run(self, code: str, **around: Any) -> Any:
        """Run source text and return its reply."""
        self.begin(code, **around)
        kind, reply = self.receive()
        assert (kind, reply["id"]) == (RESULT, self.number), kind
        return reply

    def close(self) -> None:
        """Close the pipe by which the host speaks."""
        _winapi.CloseHandle(self.output)

    def end(self) -> int:
        """Wait for the process and for what it wrote."""
        code = self.process.wait(SECONDS)
        self.watchdog.cancel()
        for reader in self.readers:
            reader.join(SECONDS)
        return code


def said(reply: Any) -> str:
    """What a reply comes to, in one line."""
    error = reply["error"]
    if error is None:
        return repr(reply["value"])
    if error["interrupted"]:  # again, on a slow machine, while the first one was described
        return "interrupted"
    return f"{error['type']} {error['message']}"


def conversation(worker: Worker, python: str) -> None:
    """Values, output, a function of the host, state and errors; then a farewell."""
    show("hook", worker.hello["hook_before_init"], worker.hello["mode"], worker.ready["error"])
    show("value", said(worker.run("1 + 1")))
    show("state", said(worker.run("x = 40")), said(worker.run("x + 2")))
    show("error", said(worker.run("1 / 0")))
    show("file", said(worker.run("open('missing.txt')")))
    show("printed", said(worker.run("print('häl', 'lo')")))
    show(
        "large",
        said(worker.run("len(bytes(3 << 20))")),
        len(worker.run("b'a' * (3 << 20)")["value"]),
    )
    where = "import sys; (sys.executable, sys.stdin.read(), sys.platform, sys.flags.isolated)"
    show("where", said(worker.run(where)))
    worker.number += 1
    exposed = {"id": worker.number, "op": "expose", "names": ["ask"]}
    worker.send(RUN, encode(exposed))
    show("exposed", said(worker.receive()[1]))
    worker.begin("ask(6, by=7)")
    kind, call = worker.receive()
    show("call", kind == CALLBACK, call["name"], call["args"], call["kwargs"])
    worker.send(CALLBACK_REPLY, encode({"id": call["id"], "value": 42, "error": None}))
    show("answer", said(worker.receive()[1]))
    worker.begin("display(7); input('name? ')", stdin=True)
    for _ in range(2):
        kind, asked = worker.receive()
        show("asked", kind, asked.get("prompt"), sorted(asked.get("data", {})))
    worker.send(CALLBACK_REPLY, encode({"id": asked["id"], "value": "häns", "error": None}))
    show("told", said(worker.receive()[1]))
    before = worker.run("import os; os.getcwd()")["value"]
    own = worker.run("import os, sys; (sys.stdin.read(), os.getcwd())", stdin=b"a\nb", cwd=python)
    show(
        "own", said(own), said(worker.run("(sys.stdin.read(), os.getcwd())")) == repr(("", before))
    )
    inherits = [f"os.get_handle_inheritable({number})" for number in worker.pipes]
    show("inherits", said(worker.run(", ".join(inherits))))
    show("awaited", said(worker.run("import asyncio; await asyncio.sleep(0.01, 5)")))
    show("child", said(worker.run(CHILD)))
    show("variable", said(worker.run("import os; os.environ.get('VISJAIL_CHANNEL')")))
    show("console", said(worker.run("open('CONIN$')")))
    worker.send(BYE, b"")
    worker.close()
    show("ended", worker.end())
    show("stdout", worker.written["stdout"])
    show("stderr", worker.written["stderr"])


SWALLOWS = "try:\n  time.sleep(60)\n except BaseException:"
CHILD = (
    "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, check=True).stdout"
)


def interrupts(worker: Worker, _python: str) -> None:
    """Each wait that an interrupt has to break, and that the session lives on after it."""
    for name, code in (
        ("loop", "while True: pass"),
        ("sleep", "import time; time.sleep(60)"),
        ("task", "import asyncio; await asyncio.sleep(60)"),
        ("pattern", "import re; re.match('(a*)*b', 'a' * 60)"),
        ("stubborn", f"import time; n = 0\nwhile n < 2:\n {SWALLOWS} n += 1\nn"),
    ):
        number = worker.begin(code)
        time.sleep(0.3)
        began = time.monotonic()
        worker.interrupt(number)
        answer = said(worker.receive()[1])
        show(name, answer, time.monotonic() - began < 5)
    worker.number += 1
    worker.send(RUN, encode({"id": worker.number, "op": "expose", "names": ["ask"]}))
    worker.receive()
    number = worker.begin("ask()")
    worker.receive()
    worker.interrupt(number)
    show("call", said(worker.receive()[1]))
    # One for a run that is over, and one that comes before its run.
    worker.interrupt(number)
    show("late", said(worker.run("6 * 7")))
    worker.interrupt(worker.number + 1)
    show("early", said(worker.run("while True: pass")))
    show("after", said(worker.run("6 * 7")))
    worker.send(BYE, b"")
    show("ended", worker.end())


def host_goes(worker: Worker, _python: str) -> None:
    """The end of the host ends a worker that runs code and swallows everything."""
    worker.begin(f"import time\nwhile True:\n {SWALLOWS} pass")
    time.sleep(0.3)
    worker.close()
    show("ended", worker.end())


def descriptor(worker: Worker, _python: str) -> None:
    """A frame that says that a descriptor comes with it ends the worker, and runs nothing."""
    asked = encode({"id": 1, "op": "run", "code": "print('ran')", "inputs": {}, "filename": None})
    worker._write(HEADER.pack(1, RUN, 1, len(asked), worker.sent + 1) + asked)
    show("ended", worker.end(), worker.written["stdout"])


def refused(worker: Worker, settings: dict[str, Any]) -> None:
    """Settings that a worker on Windows cannot hold: it says so, and ends before any guest."""
    worker.send(HELLO, encode(settings))
    code = worker.end()
    show("refused", code, worker.written["stderr"].decode().strip().splitlines()[-1])


def loader(folder: str, python: str, work: str) -> None:
    """What the loader itself refuses: each before any Python has begun."""
    library = rf"{python}\{LIBRARY}"
    good = {"--core": rf"{folder}\_viscore.pyd", "--name": "python", "--library": library}
    good["--expect"] = sys.version
    ours, theirs = _winapi.CreatePipe(None, 0)
    os.set_handle_inheritable(ours, True)
    os.set_handle_inheritable(theirs, True)
    # What it needs lies in the working directory and along PATH, and only there: flags of 0 find it.
    os.environ["PATH"] = work + ";" + os.environ["PATH"]
    os.chdir(work)
    show("control", ctypes.WinDLL(rf"{folder}\needing.dll", winmode=0).Py_Main(7, None))
    with open("no-pipe", "wb") as file:
        no_pipe = msvcrt.get_osfhandle(file.fileno())
        os.set_handle_inheritable(no_pipe, True)
        start_loaders(folder, good, {"pipes": f"{ours}:{theirs}", "file": f"{no_pipe}:{theirs}"})


def start_loaders(folder: str, good: dict[str, str], boot: dict[str, str]) -> None:
    """Start the loader with one thing wrong after the other."""
    for name, change, pipes in (
        ("relative", {"--library": "python311.dll"}, "pipes"),
        ("nothing", {}, ""),
        ("file", {}, "file"),
        ("version", {"--expect": "3.11"}, "pipes"),
        ("beside", {"--library": rf"{folder}\beside\needing.dll"}, "pipes"),
        ("planted", {"--library": rf"{folder}\needing.dll"}, "pipes"),
        ("free", {"--library": rf"{folder}\beside\free.dll", "--expect": FREE}, "pipes"),
    ):
        words = [word for pair in (good | change).items() for word in pair]
        done = subprocess.run(
            [rf"{folder}\vispython.exe", *words, "--", "-c", "print('ran')"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            close_fds=False,
            timeout=SECONDS,
            env={**os.environ, "VISJAIL_CHANNEL": boot.get(pipes, "")},
        )
        show(name, done.returncode, done.stdout.decode() + done.stderr.decode().strip())


def crash(worker: Worker, _python: str) -> None:
    """A crash leaves the stacks in what the worker wrote to its errors."""
    worker.begin("import os; os.abort()")
    code = worker.end()
    show("ended", code)
    for line in worker.written["stderr"].decode().splitlines():
        show("said", line)


ACTS = {act.__name__: act for act in (conversation, interrupts, host_goes, descriptor, crash)}
RESULT_FILE = "result.txt"


def show(*words: object) -> None:
    """Write one line of the result."""
    with open(RESULT_FILE, "a", encoding="utf-8") as result:
        result.write(" ".join(map(str, words)) + "\n")


def main() -> None:
    """Do what the command line names: the act, the folders of worker and Python."""
    act, folder, python, here = sys.argv[1:]
    if act == "loader":
        loader(folder, python, here)
        return
    load, bootstrap = Path(here, "load").read_text(), Path(here, "bootstrap").read_bytes()
    guard = rf"{folder}\_visconsole.pyd"
    wrong = {
        "rules": {"confine": PERMISSIVE | {"rules": [(0, b"C:", b"a")]}, "console": guard},
        "processes": {"confine": PERMISSIVE | {"processes": False}, "console": guard},
        "unguarded": {"confine": PERMISSIVE, "console": rf"{folder}\missing.pyd"},
    }
    for name in [act] if act in ACTS else wrong:
        worker = Worker(folder, python, load=load, bootstrap=bootstrap)
        try:
            if name in wrong:
                refused(worker, wrong[name])
                continue
            worker.greet(PERMISSIVE, guard)
            ACTS[name](worker, python)
        finally:
            worker.watchdog.cancel()
            worker.process.kill()
            for reader in worker.readers:
                reader.join(SECONDS)
            sys.stderr.buffer.write(worker.written.get("stderr", b""))


if __name__ == "__main__":
    main()

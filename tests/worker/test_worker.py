"""Workers that attack their protocol, and how workers end."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_helpers import children_of, runtime

from visruntime.errors import (
    CommandTimeout,
    JailClosed,
    ProtocolViolation,
    WorkerDied,
)
from visruntime.policy import JailPolicy
from visruntime.runtime import Runtime, TrustedRuntime
from visruntime.worker import Worker

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

__all__ = ["runtime"]  # the fixture is found by its name in this module


# ---- the protocol under attack ----


def test_pw_01_the_guest_owns_fds_0_to_2(runtime: AnyRuntime) -> None:
    """PW-01: prints, raw bytes, children, closed and replaced descriptors disturb nothing."""
    result = runtime.run(
        "import os, subprocess\n"
        "print('text'); os.write(1, b'\\x00\\x01partial')\n"
        "subprocess.run(['echo', 'x'])\n"
        "os.close(1); os.dup2(2, 1); os.close(0)\n"
        "for fd in range(3, 256):\n"
        "    try: os.write(fd, os.urandom(64))\n"
        "    except OSError: pass\n"
        "1+1"
    )
    assert result.value == 2
    assert result.stdout == b"text\n\x00\x01partialx\n"
    assert runtime.run("1+1").value == 2


_ALL_SOCKETS = (
    "import os, stat\n"
    "for fd in sorted(int(f) for f in os.listdir('/proc/self/fd')):\n"
    "    try:\n"
    "        if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode): {act}\n"
    "    except OSError: pass\n"
)


@pytest.mark.parametrize(
    "act",
    [
        "os.write(fd, os.urandom(4096))",
        "os.write(fd, b'\\x01\\x07\\x00\\x00\\x00\\x00\\x00\\x00' + b'\\x02' + bytes(7))",
        "os.write(fd, b'\\x01\\x07\\x00\\x00\\xff\\xff\\xff\\xff' + b'\\x03' + bytes(7) + b'x' * 9999)",
        "os.write(fd, b'\\x01')",
        "os.close(fd)",
    ],
    ids=["garbage", "replayed", "giant", "half", "closed"],
)
def test_a_guest_that_attacks_its_channel_ends_its_worker(runtime: AnyRuntime, act: str) -> None:
    """Forged, replayed, giant, partial frames and a closed channel: an error, never a hang."""
    runtime.exec("kept = 1")
    started = time.monotonic()
    for code in (_ALL_SOCKETS.format(act=act) + "1+1", "1+1"):
        try:
            assert runtime.run(code, timeout=5).value == 2
        except (ProtocolViolation, WorkerDied):
            break
    else:
        pytest.fail("the attack went unnoticed")
    assert time.monotonic() - started < 10
    # The next call has a fresh worker, without the names of the old one.
    assert runtime.run("'kept' in globals()").value is False


def test_a_forged_result_is_a_claim_and_changes_nothing_measured(runtime: AnyRuntime) -> None:
    """A guest may lie about its value through the core itself; usage stays the host's."""
    result = runtime.run(
        "import _viscore as c, time, sys, marshal\n"
        "time.sleep(.2)\n"
        "s = sys.modules['_visguest.session']\n"
        "s.Session.encode_success = lambda self, request, *_: c.encode(dict(id=request['id'], "
        "value='lie', error=None, exit_code=None, tasks=[], trips={}, usage=0, stopped_by='x'))"
    )
    assert result.value == "lie"
    assert result.usage.wall_seconds >= 0.2
    assert result.stopped_by is None


@pytest.mark.parametrize(
    "reply",
    [
        "7",
        "{}",
        "dict(id=request['id'])",
        "dict(id=request['id']+1, value=1, error=None, exit_code=None, tasks=[], trips={})",
        "dict(id=request['id'], value=1, error={'type': 1}, exit_code=None, tasks=[], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code='0', tasks=[], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code=2**40, tasks=[], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code=None, tasks=[1], trips={})",
        "dict(id=request['id'], value=1, error=None, exit_code=None, tasks=[], trips={1: 1})",
        "dict(id=request['id'], value=1, error=DEEP, exit_code=None, tasks=[], trips={})",
        "dict(id=request['id'], value=1, error=LONG, exit_code=None, tasks=[], trips={})",
    ],
)
def test_replies_of_another_shape_are_violations(runtime: AnyRuntime, reply: str) -> None:
    """A reply that is well encoded but not of the agreed shape ends the worker."""
    with pytest.raises(ProtocolViolation):
        runtime.run(
            "import _viscore as c, sys\n"
            "E = dict(type='E', message='', notes=[], frames=[], errno=None, path=None, cause=None,"
            " context=None, exceptions=[])\n"
            "LONG = E | {'message': 'x' * 10**6}\nDEEP = E\n"
            "for _ in range(40): DEEP = E | {'cause': DEEP}\n"
            "s = sys.modules['_visguest.session']\n"
            f"s.Session.encode_success = lambda self, request, *_: c.encode({reply})"
        )
    assert runtime.eval("1+1") == 2


_READS_SLOWLY = """
import _viscore as c, os, socket, time
sockets = [socket.socket(fileno=os.dup(fd)) for fd in map(int, os.listdir("/proc/self/fd"))
           if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}")
           and os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")]
channel = next(s for s in sockets if s.type == socket.SOCK_STREAM)
def ignore():
    END = time.monotonic() + 20
    while time.monotonic() < END:
        try:
            if time.sleep(.3) is None: channel.recv(65536)
        except BaseException: pass
"""


@pytest.mark.parametrize("sent", ["reply of a host function", "inputs"])
def test_the_timeout_holds_while_the_host_sends(runtime: AnyRuntime, sent: str) -> None:
    """A guest that takes in a large value byte by byte cannot hold a run beyond its timeout."""
    large = bytes(32 << 20)
    runtime.expose("large", lambda: large)
    assert runtime.run("len(large())", timeout=5).value == len(large)
    assert runtime.run("len(x)", inputs={"x": large}, timeout=5).value == len(large)
    call = "c.send(4, c.encode(dict(id=1, name='large', args=[], kwargs={})))\nignore()"
    forge = (
        "c.send(7, c.encode(dict(id=4, value=None, error=None, exit_code=None, tasks=[],"
        " trips={})))\nignore()"
    )
    inputs = None
    if sent == "inputs":
        runtime.run(_READS_SLOWLY + forge)
        inputs, call = {"x": large}, "1"
    started = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        runtime.run(_READS_SLOWLY + call, inputs=inputs, timeout=1)
    assert 1 < time.monotonic() - started < 4
    assert caught.value.result.session_lost
    assert runtime.eval("1+1") == 2


def test_the_timeout_holds_between_many_calls_at_once(runtime: AnyRuntime) -> None:
    """Calls that a guest sends all at once do not each get their time."""
    runtime.expose("slow", lambda: time.sleep(0.1))
    runtime.run("1")
    calls = (
        "import _viscore as c\n"
        "for n in range(100): c.send(4, c.encode(dict(id=n, name='slow', args=[], kwargs={})))\n"
    )
    started = time.monotonic()
    with pytest.raises((CommandTimeout, WorkerDied)):
        runtime.run(calls + "while True: pass", timeout=1)
    assert 1 < time.monotonic() - started < 4


@pytest.mark.parametrize("moment", ["in the run", "between runs"])
def test_out_of_band_data_breaks_the_protocol(runtime: AnyRuntime, moment: str) -> None:
    """It wakes who waits for the channel and is not there to read; it ends the worker as other data."""
    send = "channel.send(b'x', socket.MSG_OOB)"
    if moment == "between runs":
        runtime.run(
            f"{_READS_SLOWLY}import threading\nthreading.Timer(0.2, lambda: {send}).start()"
        )
        time.sleep(0.6)
        send = "1"
    spent = time.process_time()
    with pytest.raises(ProtocolViolation):
        runtime.run(f"{_READS_SLOWLY}{send}\ntime.sleep(0.3)", timeout=5)
    assert time.process_time() - spent < 0.25  # nobody turned round and round
    assert runtime.eval("1+1") == 2


# ---- the end of a worker ----


@pytest.mark.parametrize(
    ("code", "exit_code", "signal_number"),
    [
        ("import os; print('last', flush=True); os._exit(9)", 9, None),
        ("import os; print('last', flush=True); os.abort()", None, signal.SIGABRT),
        ("import os; print('last', flush=True); os.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("import ctypes; print('last', flush=True); ctypes.string_at(0)", None, signal.SIGSEGV),
    ],
)
def test_pw_03_a_worker_that_ends_is_told_at_once(
    runtime: AnyRuntime, code: str, exit_code: int | None, signal_number: int | None
) -> None:
    """PW-03: the end is an error with the measured status and the output so far; then a new start."""
    started = time.monotonic()
    with pytest.raises(WorkerDied) as caught:
        runtime.run(code)
    assert time.monotonic() - started < 2
    assert caught.value.exit_code == exit_code
    assert caught.value.signal == signal_number
    assert caught.value.result.stdout == b"last\n"
    assert caught.value.result.session_lost
    assert runtime.eval("1+1") == 2


def test_a_forked_child_that_falls_out_of_the_run_does_not_answer(runtime: AnyRuntime) -> None:
    """A child of os.fork that reaches the end of the code ends; only the worker replies."""
    result = runtime.run(
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n'parent' if pid else 'child'"
    )
    assert result.value == "parent"
    assert runtime.eval("1+1") == 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_inside(runtime: AnyRuntime, method: str) -> None:
    """Pools of every start method work in a session."""
    result = runtime.run(
        "import multiprocessing, operator\n"
        f"with multiprocessing.get_context('{method}').Pool(1) as pool:\n"
        "    value = pool.apply(operator.add, (20, 22))\n"
        "value",
        timeout=30,
    )
    assert result.error is None, result.error.traceback
    assert result.value == 42


def test_close_leaves_no_process_and_no_descriptor() -> None:
    """After close the worker and what it started are gone, and so are the host's descriptors."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    known = children_of(os.getpid())
    runtime = TrustedRuntime()
    runtime.run("import subprocess; p = subprocess.Popen(['sleep', '73'])")
    (worker,) = children_of(os.getpid()) - known
    (sleeper,) = children_of(worker)
    runtime.close()
    assert not Path(f"/proc/{worker}").exists()
    deadline = time.monotonic() + 1
    while Path(f"/proc/{sleeper}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{sleeper}").exists() or "Z" in Path(f"/proc/{sleeper}/stat").read_text()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(JailClosed):
        runtime.run("1")
    runtime.close()


_FORGES_A_REPLY_AND_STOPS_READING = (
    "import _viscore as c, time\n"
    "c.send(7, c.encode(dict(id=2, value=None, error=None, exit_code=None, tasks=[], trips={})))"
    "\ntime.sleep(30)"
)


def test_close_waits_for_no_worker_that_reads_nothing(runtime: AnyRuntime) -> None:
    """A channel full of unread replies makes close neither raise nor wait, and the jail ends."""
    runtime.run("1")
    runtime.run(_FORGES_A_REPLY_AND_STOPS_READING)
    worker = runtime._worker
    assert isinstance(worker, Worker)
    with suppress(BlockingIOError):
        while worker._channel.send(bytes(4096), socket.MSG_DONTWAIT):
            pass
    started = time.monotonic()
    runtime.close()
    assert time.monotonic() - started < 2
    assert isinstance(runtime, TrustedRuntime) or runtime._jail.closed


def test_the_jail_is_closed_even_when_the_worker_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong with the worker, close ends the jail that the runtime opened."""
    runtime = Runtime(JailPolicy())
    runtime.run("1")

    def fail(worker: Worker) -> None:
        worker.kill()
        raise MemoryError

    monkeypatch.setattr(Worker, "close", fail)
    with pytest.raises(MemoryError):
        runtime.close()
    assert runtime._jail.closed


def test_a_forked_child_of_the_host_leaves_the_worker_alone(runtime: AnyRuntime) -> None:
    """A child of the host can neither use nor end the runtime of its parent."""
    runtime.exec("kept = 1")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            runtime.run("1")
        except JailClosed:
            os.write(writer, b"refused")
        runtime.close()
        runtime.__del__()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"refused"
    os.close(reader)
    os.close(writer)
    assert runtime.get("kept") == 1


def test_a_runtime_that_is_dropped_ends_its_worker() -> None:
    """Without close the worker ends with the object."""
    before = children_of(os.getpid())
    runtime = TrustedRuntime()
    runtime.run("1")
    (worker,) = children_of(os.getpid()) - before
    del runtime
    assert not Path(f"/proc/{worker}").exists()


def test_a_user_with_no_room_for_large_pipes_still_gets_workers(
    runtime: AnyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses F_SETPIPE_SZ to a user with many pipes: smaller ones do as well."""
    refused = []

    def refuse(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETPIPE_SZ:
            refused.append(descriptor)
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return set_flag(descriptor, command, argument)

    set_flag = fcntl.fcntl
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert len(runtime.run("print('x' * 3_000_000)").stdout) == 3_000_001
    assert len(refused) == 2


def test_workers_inherit_no_descriptor_of_the_host(tmp_path: Path) -> None:
    """FD-01: an inheritable descriptor of the host is not open in the worker."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        with TrustedRuntime() as runtime:
            links = runtime.run(
                "import os\n[os.readlink(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd') "
                "if os.path.exists(f'/proc/self/fd/{f}')]"
            ).value
    finally:
        os.close(descriptor)
    assert str(secret) not in links


def test_a_trusted_worker_ends_with_its_host() -> None:
    """``kill -9`` of the host leaves no worker, even one that is busy in C code."""
    code = (
        "import threading, time\n"
        "from visruntime.runtime import TrustedRuntime\n"
        "rt = TrustedRuntime()\n"
        "print(rt.eval('__import__(\"os\").getpid()'), flush=True)\n"
        "rt.run('sum(range(10**12))')\n"
    )
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    worker = int(host.stdout.readline())
    time.sleep(0.3)
    assert Path(f"/proc/{worker}").exists()
    host.kill()
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + 2
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text()


def test_a_host_with_a_default_timeout_of_sockets() -> None:
    """What `socket.setdefaulttimeout` says is not for the sockets of a worker, or of its copy."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.2)
    try:
        for made in (TrustedRuntime(), Runtime(JailPolicy())):
            with made as runtime:
                runtime.exec("import time; time.sleep(0.3); x = 3")
                with runtime.fork() as copy:
                    assert copy.eval("x + 1") == 4
                    # More than the channel takes at once, to one that does not read yet.
                    copy.expose("give", lambda: "y" * (2 << 20))
                    assert copy.eval("len(give())") == 2 << 20
    finally:
        socket.setdefaulttimeout(before)

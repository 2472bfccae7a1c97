"""Hosts in odd shape: the jail must open, run and end all the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def run_host(script: str) -> str:
    """Run *script* as a host of its own; what it writes to descriptor 9 comes back."""
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" 9>&1', sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("closed", ["0,", "1,", "2,", "0, 1, 2"])
def test_a_host_without_standard_descriptors(closed: str) -> None:
    """A host that has closed 0, 1 or 2 gets a whole jail, and whole output."""
    shown = run_host(
        "import os, visruntime as vr\n"
        f"for number in ({closed}): os.close(number)\n"
        "with vr.Jail(vr.JailPolicy()) as jail:\n"
        "    r = jail.run(['sh', '-c', 'cat; echo err >&2'], input=b'in')\n"
        "os.write(9, repr((r.exit_code, r.stdout, r.stderr)).encode())\n"
    )
    assert shown == repr((0, b"in", b"err\n"))


def test_a_host_with_sigpipe_at_its_default() -> None:
    """A program that leaves its input unread does not end a host that would die of SIGPIPE."""
    shown = run_host(
        "import os, signal, visruntime as vr\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "with vr.Jail(vr.JailPolicy()) as jail:\n"
        "    r = jail.run(['true'], input=b'x' * 5_000_000)\n"
        "os.write(9, repr(r.exit_code).encode())\n"
    )
    assert shown == "0"


def test_a_run_that_is_dropped_ends_though_a_forked_host_holds_its_channel() -> None:
    """Letting go of a process object ends the run, also while a forked child has its sockets."""
    shown = run_host(
        "import gc, os, select, time, visruntime as vr\n"
        "jail = vr.Jail(vr.JailPolicy())\n"
        "reader, writer = os.pipe()\n"
        "process = jail.spawn(['sleep', '60'], stdout=writer)\n"
        "os.close(writer)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(reader)\n"
        "    time.sleep(20)\n"
        "    os._exit(0)\n"
        "del process\n"
        "gc.collect()\n"
        "ended, _, _ = select.select([reader], [], [], 10)\n"
        "os.write(9, repr((bool(ended), os.read(reader, 1) if ended else None)).encode())\n"
        "os.kill(child, 9)\n"
        "jail.close()\n"
    )
    assert shown == repr((True, b""))


def test_a_forked_host_does_not_end_the_jail_of_its_parent() -> None:
    """Closing the jail in a forked child of the host leaves the parent's jail alone."""
    shown = run_host(
        "import os, visruntime as vr\n"
        "jail = vr.Jail(vr.JailPolicy())\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    jail.close()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "os.write(9, repr(jail.run(['echo', 'alive']).stdout).encode())\n"
        "jail.close()\n"
    )
    assert shown == repr(b"alive\n")


FAILING_INIT = """\
import ctypes, os, signal, socket, struct, sys, time
CLONE_PARENT, CLONE_PIDFD = 0x8000, 0x1000
process = ctypes.c_int(-1)
clone = 56 if os.uname().machine == "x86_64" else 220
arguments = [ctypes.c_long(clone), ctypes.c_long(CLONE_PARENT | CLONE_PIDFD), ctypes.c_long(0)]
pid = ctypes.CDLL(None).syscall(*arguments, ctypes.byref(process), ctypes.c_long(0), ctypes.c_long(0))
while pid == 0:
    signal.pause()

def message(kind, stage=0, error=0, pid=0):
    # vj_message of message.h
    head = (kind, 0, stage, error, -1, pid, 0, 0, 0, 0, 0, 0, 0, 0)
    return struct.pack("=3I4i7I7Q5I16iI", *head, *[0] * 29)

control = socket.socket(fileno=3)
control.sendmsg([message(3, stage=10, error=28)])  # FAILED: mount, ENOSPC
time.sleep(0.2)
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", process.value))
control.sendmsg([message(1, pid=pid)], [rights])  # PROCESS
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("linger", [0, 25])
def test_a_start_that_fails_leaves_no_child(tmp_path: Path, linger: int) -> None:
    """A failure that overtakes the news of pid 1 must leave neither it nor its maker behind."""
    init = tmp_path / "init.py"
    init.write_text(FAILING_INIT)
    program = tmp_path / "visjail-init"
    program.write_text(f"#!/bin/sh\nexec /usr/bin/python3 -IBS {init} {linger}\n")
    program.chmod(0o755)
    shown = run_host(
        "import os, time\n"
        "from visruntime import JailPolicy, _native\n"
        "from visruntime._jail.plan import make_plan\n"
        "begin = time.monotonic()\n"
        "try:\n"
        f"    _native.JailHandle({str(program)!r}, make_plan(JailPolicy()).blob)\n"
        "except _native.NativeError as error:\n"
        "    seen = [error.stage, error.errno, time.monotonic() - begin < 10]\n"
        "try:\n"
        "    seen.append(os.waitpid(-1, os.WNOHANG))\n"
        "except ChildProcessError:\n"
        "    seen.append('no child')\n"
        "os.write(9, repr(seen).encode())\n"
    )
    assert shown == repr(["mount", 28, True, "no child"])


@pytest.mark.parametrize("kind", ["Jail", "Runtime"])
def test_a_host_whose_folder_is_gone(kind: str) -> None:
    """A host in a folder that was removed, with it on sys.path, may not fail to open a jail."""
    shown = run_host(
        "import os, sys, tempfile\n"
        "import visruntime as vr\n"
        "grant, gone = tempfile.mkdtemp(), tempfile.mkdtemp()\n"
        "sys.path[:0] = ['', 'relative', 'relative/site-packages']\n"
        "os.chdir(gone)\n"
        "os.rmdir(gone)\n"
        f"with vr.{kind}(vr.JailPolicy(write=[grant])) as opened:\n"
        "    done = opened.run(['true'] if isinstance(opened, vr.Jail) else '1 + 1')\n"
        "os.write(9, str(done.exit_code).encode())\n"
    )
    assert shown == ("0" if kind == "Jail" else "None")

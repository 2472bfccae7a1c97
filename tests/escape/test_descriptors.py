"""Boundary: descriptors. A guest has those that it was given, and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Jail,
    JailPolicy,
    Limits,
    backends,
    errno,
    inside,
    jail_by,
    outside,
    spawn,
)

from visruntime.runtime import Runtime

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
OPEN_ONES = """
answer(sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + n)))
"""


FD_01_HOST = """
import json, os, socket, sys
from jail_helpers import Jail, JailPolicy, inside, outside
os.dup2(os.open(sys.argv[1], os.O_RDONLY), 7, inheritable=True)
left, right = socket.socketpair()
os.dup2(right.fileno(), 8, inheritable=True)
listed = {listed!r}
with Jail(JailPolicy()) as jail:
    got = [inside(jail, listed)]
    result = jail.shell("cat <&7; cat <&8")
    got += [result.exit_code, result.stdout.decode()]
    try:
        jail.run(["no-such-program"])
    except FileNotFoundError as error:
        got.append(type(error).__name__)
    # The supervisors have nothing of it either: all that is not theirs is closed.
    from jail_helpers import children_of
    found = set()
    for pid, status in children_of(os.getpid()).items():
        try:
            folder = "/proc/%d/fd/" % pid
            found |= {{os.readlink(folder + n) for n in os.listdir(folder)}}
        except PermissionError:
            pass
    got.append(sys.argv[1] in found)
got.append(outside("answer(os.read(7, 3).decode())", close_fds=False))
print(json.dumps(got))
"""


def test_fd_01_nothing_of_the_host_is_inherited(outside_file: Path) -> None:
    """Inheritable files and sockets of the host must reach no guest and no supervisor."""
    result = subprocess.run(
        [sys.executable, "-c", FD_01_HOST.format(listed=OPEN_ONES), str(outside_file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    listed, code, output, missing, seen, control = json.loads(result.stdout)
    assert listed == [0, 1, 2]
    assert code != 0
    assert output == ""
    assert missing == "CommandNotFound"
    assert seen is False
    assert control == "top"


def test_a_passed_descriptor_has_its_number(workspace: Path) -> None:
    """pass_fds must give exactly the descriptors it names, under the numbers it names."""
    path = workspace / "f"
    path.write_text("passed")
    with open(path, "rb") as file, Jail(JailPolicy()) as jail:
        text = PRELUDE + "print(os.read(9, 6).decode());" + OPEN_ONES.strip()
        process = jail.spawn(
            [PYTHON, "-IBS", "-c", text], stdout=-1, stderr=-1, pass_fds={9: file.fileno()}
        )
        output, errors = process.communicate(timeout=20)
    assert output == b"passed\n[0, 1, 2, 9]\n", errors


@pytest.mark.parametrize("number", [-1, 0, 2, 16, 1000])
def test_a_number_out_of_range_is_refused(jail: Jail, number: int) -> None:
    """A number that is a stream's or too high must be refused by name."""
    with pytest.raises(ValueError, match=rf"pass_fds: .*3 to 15, not {number}"):
        spawn(jail, ["true"], pass_fds={number: 0})


def test_descriptors_swap_places(workspace: Path) -> None:
    """Targets that are each other's sources must arrive as asked for."""
    files = []
    for name in "abc":
        (workspace / name).write_text(name)
        files.append((workspace / name).open("rb"))
    numbers = [file.fileno() for file in files]
    with Jail(JailPolicy()) as jail:
        wanted = {3: numbers[2], 4: numbers[0], 5: numbers[1]}
        text = "import os; print([os.read(n, 1).decode() for n in (3, 4, 5)])"
        process = spawn(jail, [PYTHON, "-IBS", "-c", text], stdout=-1, pass_fds=wanted)
        assert process.communicate(timeout=20)[0] == b"['c', 'a', 'b']\n"
    for file in files:
        file.close()


def test_flight_does_not_stop_the_host(jail: Jail) -> None:
    """A guest that keeps all the descriptors it can in flight must not stop other jails."""
    text = """
import resource
pairs = []
held = []
try:
    while True:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        pairs.append((a, b)); held.append(os.dup(0))
        for _ in range(8):
            socket.send_fds(a, [b"x"], held[-1:] * 50)
except OSError as error:
    got = error.errno
print(got, flush=True)
time.sleep(60)
"""
    with spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + text], stdout=-1) as process:
        assert int(process.stdout.readline()) in (errno.EMFILE, errno.ETOOMANYREFS)
        with Jail(JailPolicy()) as other:
            for _ in range(5):
                assert other.run(["echo", "fine"]).stdout == b"fine\n"


LINGERING = """
import array, os, socket, struct, time
server = socket.create_server(("127.0.0.1", 0))
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
client.setblocking(False)
for _ in range(5):
    try:
        while True: client.send(b"x" * 65536)
    except BlockingIOError: time.sleep(0.05)
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
answers = []
for number in range(3, 1100):
    try:
        if not os.readlink(f"/proc/self/fd/{number}").startswith("socket"): continue
        other = socket.socket(fileno=os.dup(number))
        if other.family != socket.AF_UNIX: continue
    except OSError: continue
    rights = array.array("i", [client.fileno()])
    try:
        other.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        answers.append(0)
    except OSError as error: answers.append(error.errno)
answers  # the connection stays open: to close it would hold up the guest itself
"""


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (6, 16),
    reason="before Linux 6.16 nothing keeps descriptors out of a socket (SECURITY.md)",
)
def test_no_descriptor_comes_into_the_host() -> None:
    """A connection that lingers when it is closed must not be the host's to close."""
    begin = time.monotonic()
    with Runtime(JailPolicy()) as runtime:
        answers = runtime.run(LINGERING, timeout=20).value
        assert len(answers) >= 2
        assert set(answers) == {errno.EPERM}
    assert time.monotonic() - begin < 15


# ---- descriptors of processes -----------------------------------------------------------

PEER = """
import socket, struct
def options(one):
    return [
        attempt(one.getsockopt, socket.SOL_SOCKET, 77),  # SO_PEERPIDFD (Linux 6.5)
        attempt(one.setsockopt, socket.SOL_SOCKET, 76, 1),  # SO_PASSPIDFD
    ]
"""


@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap", "landlock"))
def test_a_socket_gives_no_descriptor_of_its_peer(backend: str) -> None:
    """By a channel that the host holds the other end of, that would be the host's own process."""
    pair = f"{PEER}answer(options(socket.socketpair()[0]))"
    # Before Linux 6.5 no socket has one either, and outside it is the same.
    known = [errno.ENOPROTOOPT] * 2 if KERNEL < (6, 5) else [0, 0]
    assert outside(pair) == known
    with jail_by(backend) as jail:
        assert inside(jail, pair) == [errno.ENOPROTOOPT] * 2
    limits = Limits(memory=None, processes=None, scratch=None)
    policy = JailPolicy(limits=limits) if backend == "landlock" else JailPolicy()
    with Runtime(policy, backend=backend) as runtime:
        found = runtime.run(EVERY_SOCKET).value
    assert found == [errno.ENOPROTOOPT] * len(found)
    assert len(found) >= 4  # the channel and the control socket


EVERY_SOCKET = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
value, size, found = ctypes.c_int(1), ctypes.c_int(4), []
def ended(result):
    return 0 if result == 0 else ctypes.get_errno()
for number in range(3, 70_000):
    # SO_TYPE tells which are sockets.
    if ended(libc.getsockopt(number, 1, 3, ctypes.byref(value), ctypes.byref(size))) == 0:
        found.append(ended(libc.getsockopt(number, 1, 77, ctypes.byref(value), ctypes.byref(size))))
        found.append(ended(libc.setsockopt(number, 1, 76, ctypes.byref(value), 4)))
found
"""

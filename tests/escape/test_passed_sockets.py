"""Boundary: sockets that one jail passes to another. They lead to no abstract socket of the host.

Two jails that are open at the same time on one folder meet at a socket file in it, if one of them
may write there: to connect to one, reading is enough. A socket
belongs to the network of the jail in which it was made, whoever has it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Egress,
    Jail,
    backends,
    errno,
    inside,
    outside,
    policy_of,
    spawn,
)

from visruntime.jail import PIPE

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
SECONDS = 20

GIVER = """
address = os.path.join({folder!r}, "meet")
made = [socket.socket(socket.AF_UNIX, kind) for kind in {kinds}]
with socket.socket(socket.AF_UNIX) as meeting:
    meeting.settimeout({seconds})
    meeting.connect(address)
    socket.send_fds(meeting, [b"x"], [one.fileno() for one in made])
    meeting.recv(1)
alone = []
for kind in {kinds}:
    with socket.socket(socket.AF_UNIX, kind) as one:
        alone.append(attempt(one.connect, "\\0%s-%d" % ({name!r}, kind)))
answer(alone)
"""

TAKER = """
import json, os, socket, sys
folder, name = sys.argv[1:]
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return 0
meeting = socket.socket(socket.AF_UNIX)
meeting.settimeout({seconds})
meeting.bind(os.path.join(folder, "meet"))
meeting.listen()
print("ready", flush=True)
peer = meeting.accept()[0]
peer.settimeout({seconds})
got = []
for number in socket.recv_fds(peer, 1, 8)[1]:
    one = socket.socket(fileno=number)
    there = "\\0%s-%d" % (name, one.type)
    if one.type == socket.SOCK_DGRAM:
        got.append(attempt(one.sendto, b"x", there))
    got.append(attempt(one.connect, there))
peer.send(b"x")
print(json.dumps(got), flush=True)
""".replace("{seconds}", str(SECONDS))


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a folder with a short path, since that of a socket is short."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="vis-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def served() -> Iterator[tuple[str, list[socket.socket]]]:
    """Return an abstract name of the host, and what takes connections or packets at it."""
    name = f"visruntime-test-{uuid.uuid4()}"
    listening = []
    for kind in KINDS:
        one = socket.socket(socket.AF_UNIX, kind)
        one.bind(f"\0{name}-{int(kind)}")
        if kind != socket.SOCK_DGRAM:
            one.listen()
        one.setblocking(False)
        listening.append(one)
    yield name, listening
    for one in listening:
        one.close()


def touched(one: socket.socket) -> bool:
    """Tell whether something has come to a socket of the host."""
    try:
        if one.type == socket.SOCK_DGRAM:
            one.recv(1)
        else:
            one.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def giver(folder: Path, name: str) -> str:
    """Return the text of a guest that passes one socket of each kind."""
    kinds = [int(kind) for kind in KINDS]
    return GIVER.format(folder=str(folder), name=name, kinds=kinds, seconds=SECONDS)


def taken(folder: Path, name: str, giver_jail: Jail | None, taker_jail: Jail | None) -> Any:
    """Return what the giver reached alone, and what the taker reached with the sockets it got."""
    command = [PYTHON, "-IBS", "-c", TAKER, str(folder), name]
    if taker_jail is None:
        taker: Any = subprocess.Popen(command, stdout=PIPE)
    else:
        taker = spawn(taker_jail, command, stdout=PIPE)
    try:
        assert taker.stdout.readline() == b"ready\n"
        text = giver(folder, name)
        alone = outside(text) if giver_jail is None else inside(giver_jail, text)
        return alone, json.loads(taker.stdout.readline())
    finally:
        taker.kill()
        taker.wait()
        taker.stdout.close()


@pytest.mark.parametrize("grant", ["read", "write"])
@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_a_socket_that_another_jail_passes_reaches_no_abstract_socket(
    backend: str, grant: str, shared: Path, served: tuple[str, list[socket.socket]]
) -> None:
    """With a socket of the host's network in its hands a jail must not reach the host's names."""
    name, listening = served
    opened = policy_of(**{grant: [shared]}, egress=Egress.OPEN)
    closed = policy_of(write=[shared])
    with Jail(opened, backend=backend) as one, Jail(closed, backend=backend) as other:
        alone, got = taken(shared, name, one, other)
        assert alone == [errno.EPERM] * 3
        # A stream; datagrams sent and connected; packets.
        assert got == [errno.EPERM] * 4
        assert "can be passed sockets of the host's network" in "\n".join(one.report.notes)
        assert "can be passed" not in "\n".join(other.report.notes)
    assert not any(touched(socket) for socket in listening)


def test_unjailed_the_same_sockets_reach_it(
    shared: Path, served: tuple[str, list[socket.socket]]
) -> None:
    """The control: without jails the same two programs reach each of the host's sockets."""
    name, listening = served
    alone, got = taken(shared, name, None, None)
    assert alone == [0, 0, 0]
    assert got == [0, 0, 0, 0]
    assert all(touched(socket) for socket in listening)


KEEPER = """
import os, socket, sys, time
meeting = socket.socket(socket.AF_UNIX)
meeting.bind(os.path.join(sys.argv[1], "meet"))
meeting.listen()
print("ready", flush=True)
kept = socket.recv_fds(meeting.accept()[0], 1, 1)[1]
print(len(kept), flush=True)
time.sleep(60)
"""
GIVES_STDOUT = """
meeting = socket.socket(socket.AF_UNIX)
meeting.connect(os.path.join({folder!r}, "meet"))
socket.send_fds(meeting, [b"x"], [1])
answer(0)
"""


@pytest.mark.parametrize("jailed", [True, False])
def test_a_pipe_in_the_hands_of_another_jail_holds_no_run(shared: Path, *, jailed: bool) -> None:
    """A guest that gives its stdout away and ends must not keep the host reading; unjailed it does."""
    keeper_command = [PYTHON, "-IBS", "-c", KEEPER, str(shared)]
    text = GIVES_STDOUT.format(folder=str(shared))
    with Jail(policy_of(write=[shared])) as one, Jail(policy_of(write=[shared])) as other:
        keeper: Any = (
            spawn(other, keeper_command, stdout=PIPE)
            if jailed
            else subprocess.Popen(keeper_command, stdout=PIPE)
        )
        try:
            assert keeper.stdout.readline() == b"ready\n"
            if jailed:
                assert inside(one, text) == 0
            else:
                command = [PYTHON, "-IBS", "-c", PRELUDE + text]
                with pytest.raises(subprocess.TimeoutExpired):
                    subprocess.run(command, stdout=PIPE, timeout=3, check=True)
            assert keeper.stdout.readline() == b"1\n"
        finally:
            keeper.kill()
            keeper.wait()
            keeper.stdout.close()


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_the_runs_of_one_jail_meet_at_abstract_names(backend: str, egress: Egress) -> None:
    """A program of the same jail must not be taken for a stranger, with the host's network too."""
    name = f"\0visruntime-test-{uuid.uuid4()}"
    text = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "print('ready', flush=True); s.settimeout(20); s.accept()[0].send(b'x')"
    )
    # An argument holds no NUL.
    text = text.replace("sys.argv[1]", "chr(0) + sys.argv[1]")
    reach = f"""
with socket.socket(socket.AF_UNIX) as one:
    one.settimeout(20)
    answer([attempt(one.connect, {name!r}), one.recv(1).decode()])
"""
    with Jail(policy_of(egress=egress), backend=backend) as jail:
        server = spawn(jail, [PYTHON, "-IBS", "-c", text, name[1:]], stdout=PIPE)
        assert server.stdout.readline() == b"ready\n"
        assert inside(jail, reach) == [0, "x"]
        server.wait(20)
        server.stdout.close()

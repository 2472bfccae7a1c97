"""Boundary: AF_UNIX. No socket of the host is reachable; those of the guest work."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Egress, Jail, JailPolicy, errno, inside, outside, policy_of

from visruntime import PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

KINDS = {
    "stream": socket.SOCK_STREAM,
    "datagram": socket.SOCK_DGRAM,
    "packet": socket.SOCK_SEQPACKET,
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> socket.SocketKind:
    """Return each kind of AF_UNIX socket."""
    return KINDS[request.param]


@pytest.fixture
def listening() -> Iterator[Any]:
    """Return a function that makes a listening socket of the host."""
    made: list[socket.socket] = []

    def listen(address: str, kind: int) -> socket.socket:
        one = socket.socket(socket.AF_UNIX, kind)
        one.bind(address)
        if kind != socket.SOCK_DGRAM:
            one.listen()
        one.settimeout(0.2)
        made.append(one)
        return one

    yield listen
    for one in made:
        one.close()


def connect(address: str, kind: int) -> str:
    """Return a guest that tries to connect, and to send without connecting."""
    return f"""
address = {address!r}
with socket.socket(socket.AF_UNIX, {int(kind)}) as one:
    got = [attempt(one.connect, address)]
if {int(kind)} == socket.SOCK_DGRAM:
    with socket.socket(socket.AF_UNIX, {int(kind)}) as one:
        got.append(attempt(one.sendto, b"x", address))
answer(got)
"""


def untouched(one: socket.socket) -> bool:
    """Tell whether nothing has come to a listening socket."""
    try:
        one.recv(10) if one.type == socket.SOCK_DGRAM else one.accept()
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("grant", ["read", "write"])
@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
def test_ux_04_a_socket_file_in_a_grant_is_masked(
    workspace: Path, listening: Any, kind: int, grant: str, egress: Egress
) -> None:
    """A socket of the host below a grant must refuse connections, in any depth."""
    folder = workspace / "deep" / "er"
    folder.mkdir(parents=True)
    path = folder / "s"
    here = os.getcwd()
    os.chdir(folder)  # sun_path is short
    try:
        one = listening("s", kind)
    finally:
        os.chdir(here)
    text = "os.chdir(" + repr(str(folder)) + ")\n" + connect("s", kind)
    with Jail(policy_of(**{grant: [workspace]}, egress=egress)) as jail:
        assert set(inside(jail, text)) == {errno.EACCES}
        renamed = f"answer(attempt(os.rename, {str(path)!r}, {str(workspace / 't')!r}))"
        assert inside(jail, renamed) in (errno.EBUSY, errno.EROFS)
        assert any(clause.clause == f"masked {path}" for clause in jail.report.clauses)
    assert untouched(one)
    assert outside(text)[0] == 0


def test_ux_04_a_socket_outside_the_grants_is_not_there(
    outside_socket: tuple[str, socket.socket], kind: int
) -> None:
    """A socket beside the grants must not exist for a guest."""
    path, one = outside_socket
    with Jail(JailPolicy()) as jail:
        text = connect(path, one.type)
        assert set(inside(jail, text)) == {errno.ENOENT}
    assert untouched(one)
    assert outside(text)[0] == 0


@pytest.fixture
def outside_socket(listening: Any, kind: int) -> Iterator[tuple[str, socket.socket]]:
    """Return the short path of a host socket in /var/tmp, which jails have for themselves."""
    path = f"/var/tmp/vis-{os.getpid()}.sock"
    yield path, listening(path, kind)
    os.unlink(path)


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
def test_ux_04_an_abstract_socket_of_the_host(listening: Any, kind: int, egress: Egress) -> None:
    """An abstract socket of the host must be out of reach, with the host's network too."""
    address = f"\0visruntime-{os.getpid()}-{int(kind)}"
    one = listening(address, kind)
    text = connect(address, kind)
    with Jail(JailPolicy(egress=egress)) as jail:
        expected = errno.ECONNREFUSED if egress.mode == "off" else errno.EPERM
        assert set(inside(jail, text)) == {expected}
    assert untouched(one)
    assert outside(text)[0] == 0


OWN = """
import threading
folder = sys.argv[1] if len(sys.argv) > 1 else "/tmp"
got = []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b"x"); got.append(b.recv(1).decode())
    for address in (folder + "/own%d" % kind, "\\0own%d" % kind):
        server = socket.socket(socket.AF_UNIX, kind); server.bind(address)
        client = socket.socket(socket.AF_UNIX, kind)
        if kind == socket.SOCK_DGRAM:
            client.sendto(b"y", address); got.append(server.recv(1).decode())
        else:
            server.listen(); client.connect(address); peer = server.accept()[0]
            client.send(b"y"); got.append(peer.recv(1).decode())
left, right = socket.socketpair()
descriptor = os.open("/tmp", os.O_RDONLY)
socket.send_fds(left, [b"z"], [descriptor])
got.append(len(socket.recv_fds(right, 1, 1)[1]))
answer(got)
"""


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
def test_ux_01_sockets_of_the_guest_work(workspace: Path, egress: Egress) -> None:
    """Socket pairs, paths, abstract names and passed descriptors must work inside."""
    with Jail(JailPolicy(write=[workspace], egress=egress)) as jail:
        assert inside(jail, OWN) == ["x", "y", "y"] * 3 + [1]


def test_a_socket_of_the_guest_is_no_door_later(workspace: Path) -> None:
    """A socket file that a guest left in a grant must not stop or surprise the next jail."""
    text = f"""
os.chdir({str(workspace)!r})
one = socket.socket(socket.AF_UNIX); one.bind("s"); answer(0)
"""
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert inside(jail, text) == 0
    assert (workspace / "s").is_socket()
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert inside(jail, f"os.chdir({str(workspace)!r})\n" + connect("s", 1)) == [errno.EACCES]


def test_the_sockets_of_the_system_are_not_there() -> None:
    """The usual doors of a desktop and a server must not be visible, with system="host" either."""
    names = ["/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/systemd/private"]
    text = f"""
got = []
for name in {names!r}:
    with socket.socket(socket.AF_UNIX) as one:
        got.append(attempt(one.connect, name))
answer(got)
"""
    for system in ("minimal", "host"):
        with Jail(JailPolicy(system=system)) as jail:
            assert set(inside(jail, text)) <= {errno.ENOENT, errno.EACCES}


@pytest.mark.parametrize(("folders", "opens"), [(1, True), (30, False)])
def test_winding_paths_of_sockets_share_what_is_followed(
    listening: Any, *, folders: int, opens: bool
) -> None:
    """Who binds sockets and winds their paths must not keep the next jail from opening for hours.

    Of one folder the way is walked once; too many ways are refused by name.
    """
    top = Path(tempfile.mkdtemp(dir="/var/tmp")).resolve()  # a short name: an address has 107 bytes
    try:
        for number in range(30):
            folder = top / f"d{number % folders}"
            folder.mkdir(exist_ok=True)
            listening(f"{folder}/{number}", socket.SOCK_STREAM)
        (top / "e").mkdir()
        for number in range(35):
            (top / f"L{number}").symlink_to(
                "./" + "e/../" * 700 + (f"L{number - 1}" if number else "e")
            )
        for number in range(folders):
            (top / f"d{number}").rename(top / f"moved{number}")
            (top / f"d{number}").symlink_to("L34")
        policy = JailPolicy(read=[top])
        if opens:
            address = f"{top}/moved0/7"
            assert outside(connect(address, socket.SOCK_STREAM)) == [0]
            with Jail(policy) as jail:
                assert inside(jail, connect(address, socket.SOCK_STREAM)) == [errno.EACCES]
        else:
            with pytest.raises(PolicyUnsupported, match="more names than are followed") as caught:
                Jail(policy)
            assert caught.value.field == "sockets"
    finally:
        shutil.rmtree(top)

"""Boundary: network. With the network off nothing leaves, with it open only TCP and UDP do."""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    Egress,
    Jail,
    JailPolicy,
    errno,
    inside,
    is_root,
    outside,
    policy_of,
    spawn,
)

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Listeners:
    """TCP and UDP sockets of the host on its loopback, v4 and where it is there v6."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.tcp: list[tuple[int, str, int]] = []
        self.udp: list[tuple[int, str, int]] = []
        for family, host in LOOPBACK.items():
            for kind, places in ((socket.SOCK_STREAM, self.tcp), (socket.SOCK_DGRAM, self.udp)):
                one = socket.socket(family, kind)
                try:
                    one.bind((host, 0))
                except OSError:  # no IPv6 on this machine
                    one.close()
                    continue
                if kind == socket.SOCK_STREAM:
                    one.listen()
                self.sockets.append(one)
                places.append((int(family), host, one.getsockname()[1]))

    def seen(self) -> int:
        """Return how many connections and packets have come, and take them off."""
        count = 0
        while ready := select.select(self.sockets, [], [], 0.05)[0]:
            for one in ready:
                count += 1
                if one.type == socket.SOCK_STREAM:
                    one.accept()[0].close()
                else:
                    one.recv(100)
        return count


@pytest.fixture
def unix_server(outside: Path) -> Iterator[str]:
    """Return the path of a listening AF_UNIX socket of the host."""
    folder = os.open(outside, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{folder}/s")  # sun_path is short
        one.listen()
        yield str(outside / "s")
    os.close(folder)


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    """Return listening sockets of the host."""
    opened = Listeners()
    yield opened
    for one in opened.sockets:
        one.close()


def knock(listeners: Listeners) -> str:
    """Return a guest that tries to reach every listener."""
    return f"""
got = []
for family, host, port in {listeners.tcp!r}:
    with socket.socket(family) as one:
        one.settimeout(5)
        got.append(attempt(one.connect, (host, port)))
for family, host, port in {listeners.udp!r}:
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        got.append(attempt(one.sendto, b"x", (host, port)))
answer(got)
"""


def test_np_04_the_loopback_of_the_host_is_another_one(listeners: Listeners) -> None:
    """With egress OFF no connection and no packet must reach a listener of the host."""
    with Jail(JailPolicy()) as jail:
        got = inside(jail, knock(listeners))
    assert set(got[: len(listeners.tcp)]) == {errno.ECONNREFUSED}
    assert listeners.seen() == 0
    assert set(outside(knock(listeners))) == {0}
    assert listeners.seen() == len(listeners.sockets)


def test_an_open_network_is_the_hosts(listeners: Listeners) -> None:
    """With egress OPEN the same guest must reach every listener: the control of the above."""
    with Jail(JailPolicy(egress=Egress.OPEN)) as jail:
        assert set(inside(jail, knock(listeners))) == {0}
        assert any("loopback" in note for note in jail.report.notes)
    assert listeners.seen() == len(listeners.sockets)


OUTSIDE_ADDRESSES = """
got = []
for address in ("192.0.2.1", "10.0.0.1", "169.254.169.254", "8.8.8.8"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as one:
            one.settimeout(1)
            got.append(attempt(one.connect, (address, 53)))
with socket.socket(socket.AF_INET6) as one:
    got.append(attempt(one.connect, ("2001:db8::1", 53)))
interfaces = socket.if_nameindex()
answer([sorted(set(got)), [name for _, name in interfaces]])
"""


def test_no_address_outside_has_a_route(jail: Jail) -> None:
    """With egress OFF every address must be refused at once, and only loopback be there."""
    assert inside(jail, OUTSIDE_ADDRESSES) == [[errno.ENETUNREACH], ["lo"]]


FAMILIES = """
def make(family, kind, protocol=0):
    def act():
        socket.socket(family, kind, protocol).close()
    return attempt(act)
answer(dict(
    raw=[make(2, 3, 1), make(2, 3, 255), make(10, 3, 58)],
    ping=[make(2, 2, 1), make(10, 2, 58)],
    packet=[make(17, 3, 0x300), make(17, 2)], vsock=make(40, 1), alg=make(38, 5),
    mptcp=[make(2, 1, 262), make(10, 1, 262)], sctp=[make(2, 1, 132), make(2, 5, 132)],
    udplite=[make(2, 2, 136), make(10, 2, 136)], dccp=make(2, 6, 33),
    netlink=[make(16, 3, n) for n in (2, 4, 5, 6, 9, 10, 12, 15, 16, 21)],
    bluetooth=make(31, 3, 1), can=make(29, 3, 1), key=make(15, 3, 2), tipc=make(30, 1),
    rds=make(21, 5), xdp=make(44, 3), qipcrtr=make(42, 2), smc=make(43, 1), pppox=make(24, 1),
    high_bits=[call_socket(2 | 1 << 32, 3, 1), call_socket(17 | 1 << 40, 3, 0)],
    pairs=[attempt(lambda: [s.close() for s in socket.socketpair(2, 1)])],
    fine=[make(1, 1), make(1, 2), make(1, 5), make(2, 1), make(2, 2), make(10, 1), make(2, 1, 6)],
))
"""
SOCKET_NUMBER = """
NUMBERS["socket"] = 41 if os.uname().machine == "x86_64" else 198
def call_socket(*arguments):
    value = result("socket", *arguments)
    return -value if value < 0 else 0
"""


@pytest.mark.parametrize("clauses", ["off", "open", "ports", "sockets"])
def test_np_04_no_family_but_ip_and_unix(
    workspace: Path, unix_server: str, listeners: Listeners, clauses: str
) -> None:
    """No raw, packet, key, vsock, crypto or multipath socket must be made under any clause."""
    variants: dict[str, dict[str, Any]] = {
        "off": {},
        "open": {"egress": Egress.OPEN},
        "ports": {"inbound": {8000: 0}, "host_ports": [listeners.tcp[0][2]]},
        "sockets": {"write": [workspace], "sockets": [unix_server]},
    }
    with Jail(policy_of(**variants[clauses])) as jail:
        got = inside(jail, SOCKET_NUMBER + FAMILIES)
    fine = got.pop("fine")
    if clauses == "sockets":  # a broker connects: see test_socket_grants.py
        assert fine.pop(1) == errno.EPROTONOSUPPORT
    assert set(fine) == {0}
    assert set(got["raw"]) == {errno.EPERM}
    assert set(got["ping"]) == {errno.EPROTONOSUPPORT}
    assert got["mptcp"] == [errno.EPROTONOSUPPORT] * 2
    assert set(got["packet"]) == {errno.EAFNOSUPPORT}
    assert set(got["sctp"]) <= {errno.EPROTONOSUPPORT, errno.EPERM}
    assert set(got["udplite"]) == {errno.EPROTONOSUPPORT}
    assert set(got["netlink"]) <= {errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT}
    assert got["high_bits"] == [errno.EPERM, errno.EAFNOSUPPORT] or set(got["high_bits"]) <= {
        errno.EPERM,
        errno.EAFNOSUPPORT,
    }
    for name in (
        "vsock",
        "alg",
        "bluetooth",
        "can",
        "key",
        "tipc",
        "rds",
        "xdp",
        "qipcrtr",
        "smc",
        "pppox",
    ):
        assert got[name] == errno.EAFNOSUPPORT, name
    assert got["dccp"] == errno.EPERM
    control = outside(SOCKET_NUMBER + FAMILIES)
    assert control["mptcp"][0] in (0, errno.EPROTONOSUPPORT, errno.ENOPROTOOPT)
    assert control["netlink"].count(0) > 0
    if is_root():
        assert control["raw"][0] == control["packet"][0] == 0


def test_with_ports_nothing_else_of_the_host_is_reached(listeners: Listeners) -> None:
    """Beside a granted port every other listener, TCP and UDP, v4 and v6, must see nothing."""
    with socket.create_server(("127.0.0.1", 0)) as granted:
        policy = JailPolicy(inbound={8000: 0}, host_ports=[granted.getsockname()[1]])
        with Jail(policy) as jail:
            got = inside(jail, knock(listeners))
    assert set(got[: len(listeners.tcp)]) == {errno.ECONNREFUSED}
    assert listeners.seen() == 0
    assert set(outside(knock(listeners))) == {0}


UNCONNECTED = """
got = []
for address in (("127.0.0.1", 9), ("127.255.255.255", 9), ("255.255.255.255", 9), ("224.0.0.1", 9)):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        got.append(attempt(one.sendto, b"x", address))
        raised = attempt(one.setsockopt, socket.SOL_SOCKET, 25, b"eth0\\0")  # SO_BINDTODEVICE
        got.append(raised)
answer(got)
"""


def test_np_04_no_broadcast_multicast_or_other_interface(jail: Jail) -> None:
    """With the network off UDP must stay on the jail's loopback, whatever it is addressed to."""
    got = inside(jail, UNCONNECTED)
    loopback, broadcast = got[0], got[4]
    assert loopback == 0
    assert broadcast == errno.ENETUNREACH
    assert got[6] == errno.ENETUNREACH
    assert set(got[1::2]) <= {errno.ENODEV, errno.EPERM}


def test_route_netlink_shows_only_the_jail(jail: Jail) -> None:
    """NETLINK_ROUTE must list the jail's own loopback, and change nothing."""
    text = """
import subprocess
one = socket.socket(16, 3, 0)
# RTM_NEWLINK, to make a dummy interface
message = struct.pack("=IHHIIBxHiII", 32, 16, 5, 1, 0, 0, 0, 0, 1, 1)
one.send(message)
reply = one.recv(4096)
kind, error = struct.unpack_from("=4xH10xi", reply)
answer([kind, -error])
"""
    kind, error = inside(jail, text)
    assert (kind, error) == (2, errno.EPERM)


def test_two_jails_share_no_loopback() -> None:
    """A server in one jail must be unreachable for another jail and for the host."""
    serve = """
import socket
s = socket.socket(); s.bind(("127.0.0.1", 47111)); s.listen(); print("ready", flush=True)
s.settimeout(8); s.accept()
"""
    reach = """
with socket.socket() as one:
    answer(attempt(one.connect, ("127.0.0.1", 47111)))
"""
    command = ["/usr/bin/python3", "-c", serve]
    with Jail(JailPolicy()) as second, Jail(JailPolicy()) as first:
        server = spawn(first, command, stdout=-1)
        with server:
            assert server.stdout.readline() == b"ready\n"
            assert inside(second, reach) == errno.ECONNREFUSED
            assert outside(reach) == errno.ECONNREFUSED
            assert inside(first, reach) == 0
            assert server.wait(timeout=5) == 0


def test_fast_open_is_no_way_around(listeners: Listeners) -> None:
    """TCP Fast Open must be refused: it connects inside a send."""
    text = f"""
family, host, port = {listeners.tcp[0]!r}
with socket.socket(family) as one:
    answer(attempt(one.sendto, b"x", 0x20000000, (host, port)))
"""
    with Jail(JailPolicy(egress=Egress.OPEN)) as jail:
        assert inside(jail, text) == errno.EOPNOTSUPP
    assert outside(text) in (0, errno.EINPROGRESS)


def test_a_proxy_is_refused_not_weakened() -> None:
    """A policy that asks for the proxy must open no jail at all."""
    with pytest.raises(PolicyUnsupported, match="egress"):
        Jail(JailPolicy(egress=Egress.proxy(allow=["host.test"])))

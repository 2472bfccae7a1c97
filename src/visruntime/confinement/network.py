"""Servers of the host, and sockets that a jail has no use for."""

from __future__ import annotations

from visruntime.confinement.attempt import Attempt

__all__ = ["ATTEMPTS"]

CONNECT = (
    "import socket\n"
    "def connect(family, address):\n"
    "    with socket.socket(family) as one:\n"
    "        one.settimeout(5)\n"
    "        one.connect(address)\n"
)
# By a descriptor of the folder, since the address of a socket has room for a short path only.
CONNECT_FILE = CONNECT + (
    "def connect_file(path):\n"
    "    folder = os.open(os.path.dirname(path), os.O_PATH)\n"
    "    try: connect(socket.AF_UNIX, f'/proc/self/fd/{folder}/{os.path.basename(path)}')\n"
    "    finally: os.close(folder)\n"
)
ECHO = (
    "import socket\n"
    "def echo():\n"
    "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:\n"
    "        one.settimeout(5)\n"
    "        one.connect(('127.0.0.1', S.udp))\n"
    "        one.send(b'x')\n"
    "        one.recv(1)\n"
)


def _socket(name: str, title: str, family: int, kind: int, protocol: int) -> Attempt:
    """Return the attempt to make a socket; of a type that does not exist it means nothing."""
    made = f"{family}, {kind}, {protocol}"
    meaningless = f"{family}, 0x7ff, {protocol}"
    return Attempt(
        f"network.{name}",
        title,
        f"by_call(lambda: os.close(raw('socket', {made})), lambda: raw('socket', {meaningless}))",
    )


ATTEMPTS = (
    Attempt("network.loopback", "connect to a server on the host's loopback",
        CONNECT + "on_network(lambda: connect(socket.AF_INET, ('127.0.0.1', S.tcp)))"),
    Attempt("network.datagram", "exchange a datagram with one",
        ECHO + "on_network(echo)"),
    Attempt("network.abstract", "connect to an abstract socket of the host",
        CONNECT + "on_network(lambda: connect(socket.AF_UNIX, '\\0' + S.abstract))"),
    Attempt("network.socket_file", "connect to a socket file that is not granted",
        CONNECT_FILE + "on_path(lambda: connect_file(S.socket), S.socket)"),
    Attempt("network.socket_in_grant", "connect to a socket file below a read grant",
        CONNECT_FILE + "on_path(lambda: connect_file(S.read + '/socket'), S.read + '/socket')"),
    _socket("diagnosis", "list the host's sockets (NETLINK_SOCK_DIAG)", 16, 3, 4),
    _socket("events", "listen to the kernel's device events (NETLINK_KOBJECT_UEVENT)", 16, 3, 15),
    _socket("audit", "talk to the kernel's audit (NETLINK_AUDIT)", 16, 3, 9),
    _socket("multipath", "make a socket of a rarer protocol (MPTCP)", 2, 1, 262),
)  # fmt: skip

"""Boundary: the sockets that a worker talks to its host by. They lead into no network of the host."""

from __future__ import annotations

import socket
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import backends, errno

from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from visruntime._runtime.session import RuntimeSession

ACTS = """
import fcntl, os, socket, stat, struct
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return 0
def interfaces(one):
    names = []
    for number in range(1, 16):
        request = struct.pack("16si20x", b"", number)
        try:
            names.append(fcntl.ioctl(one, 0x8910, request)[:16].split(b"\\0")[0].decode())
        except OSError:  # SIOCGIFNAME: no such number
            pass
    return names
found = []
for number in range(3, 1100):  # a jail without namespaces shows no /proc/self/fd
    try:
        status = os.fstat(number)
    except OSError:
        continue
    if not stat.S_ISSOCK(status.st_mode):
        continue
    one = socket.socket(fileno=os.dup(number))
    found.append({
        "inode": str(status.st_ino),
        "kind": int(one.type),
        "reached": attempt(one.connect, f"\\0{there}-{int(one.type)}"),
        "bound": attempt(one.bind, f"\\0{mine}-{number}"),
        "name": f"\\0{mine}-{number}",
        "interfaces": interfaces(one),
    })
found
"""


@pytest.fixture
def served() -> Iterator[str]:
    """Return an abstract name of the host at which somebody takes connections and packets."""
    name = f"visruntime-test-{uuid.uuid4()}"
    with ExitStack() as held:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            one = held.enter_context(socket.socket(socket.AF_UNIX, kind))
            one.bind(f"\0{name}-{int(kind)}")
            one.listen()
        yield name


def sockets_of(runtime: RuntimeSession, served: str) -> list[dict[str, Any]]:
    """Return what the code of a worker can do with each socket that it finds in its process."""
    code = ACTS.replace('f"\\0{there}-{int(one.type)}"', 'f"\\0{there}-{int(one.type)}"')
    result = runtime.run(
        code, inputs={"there": served, "mine": f"visruntime-test-{uuid.uuid4()}"}, check=True
    )
    found: list[dict[str, Any]] = result.value
    assert sorted(one["kind"] for one in found) == [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]
    return found


def host_can_take(kind: int, name: str) -> bool:
    """Tell whether an abstract name is free here, for a socket of that kind."""
    with socket.socket(socket.AF_UNIX, kind) as one:
        try:
            one.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True


def host_lists(inode: str) -> bool:
    """Tell whether a socket is one of this network namespace, by the kernel's own table."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        return any(line.split()[6] == inode for line in table)


def _own(runtime: RuntimeSession, held: ExitStack) -> RuntimeSession:
    held.enter_context(runtime)
    return runtime


def _copied(runtime: RuntimeSession, held: ExitStack) -> RuntimeSession:
    held.enter_context(runtime).exec("1")
    return held.enter_context(runtime.fork())


MAKERS: dict[str, tuple[dict[str, Any], Callable[[RuntimeSession, ExitStack], RuntimeSession]]] = {
    "started": ({}, _own),
    "copied": ({}, _copied),
    "preloaded": ({"preload": []}, _own),
}


@pytest.mark.parametrize("way", MAKERS)
@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_a_worker_has_no_socket_of_the_hosts_network(backend: str, way: str, served: str) -> None:
    """It must take no abstract name of the host, learn of none, and see no interface."""
    options, become = MAKERS[way]
    with ExitStack() as held:
        jailed = become(Runtime(JailPolicy(), backend=backend, **options), held)
        for one in sockets_of(jailed, served):
            assert one["reached"] == errno.ECONNREFUSED
            # It has a name now, in the network of its jail.
            assert one["bound"] == 0
            assert host_can_take(one["kind"], one["name"])
            assert one["interfaces"] == ["lo"]
            assert not host_lists(one["inode"])


@pytest.mark.parametrize("way", MAKERS)
def test_without_a_jail_it_has(way: str, served: str) -> None:
    """The same acts with sockets of the host's network, as a control."""
    options, become = MAKERS[way]
    with ExitStack() as held:
        trusted = become(TrustedRuntime(**options), held)
        for one in sockets_of(trusted, served):
            assert one["reached"] == errno.EISCONN
            assert one["bound"] == 0
            assert not host_can_take(one["kind"], one["name"])
            assert one["interfaces"] == [name for number, name in socket.if_nameindex()][:15]
            assert host_lists(one["inode"])


def test_a_bare_worker_names_no_socket_and_sees_no_interface(served: str) -> None:
    """Without namespaces it has a socket of the host's network, and makes nothing of it."""
    bare = JailPolicy(limits=Limits(processes=None, scratch=None))
    with Runtime(bare, backend="landlock") as runtime:
        for one in sockets_of(runtime, served):
            assert (one["reached"], one["bound"]) == (errno.EPERM, errno.EPERM)
            assert host_can_take(one["kind"], one["name"])
            assert one["interfaces"] == []

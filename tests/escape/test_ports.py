"""Boundary: single ports. What the policy names leads through the loopback, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Egress,
    Jail,
    JailPolicy,
    children_of,
    errno,
    inside,
    outside,
    spawn,
    until,
)

from visruntime.errors import JailUnavailable, PolicyError, PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

TABLE = 256
"""Connections that the relay of one jail serves at a time (CONNECTIONS_MAX)."""


class Echo:
    """A server of the host that sends back what it gets, and counts who comes."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.socket = socket.create_server((host, port), backlog=512)
        self.port: int = self.socket.getsockname()[1]
        self.came = 0
        self.resets = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. The thread ends first: its next accept could meet a reused number."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            self.came += 1
            threading.Thread(target=self._echo, args=(one,), daemon=True).start()

    def _echo(self, one: socket.socket) -> None:
        with one:
            try:
                while data := one.recv(65536):
                    one.sendall(data)
            except OSError:
                self.resets += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    """Return an echo server of the host."""
    server = Echo()
    yield server
    server.close()


SERVER = """
import socket, sys, threading
def serve(one):
    with one:
        try:
            while data := one.recv(65536):
                one.sendall(data)
        except OSError as error:
            print("error", error.errno, flush=True)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
print("ready", flush=True)
while True:
    one, _ = listener.accept()
    threading.Thread(target=serve, args=(one,), daemon=True).start()
"""


@contextlib.contextmanager
def guest_server(jail: Jail, port: int) -> Iterator[Any]:
    """Run an echo server in *jail*."""
    server = spawn(jail, [PYTHON, "-IBS", "-c", SERVER, str(port)], stdout=-1)
    with server:
        assert server.stdout.readline() == b"ready\n"
        yield server


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Connect to a port of the host."""
    return socket.create_connection((host, port), timeout=10)


def exchange(port: int, data: bytes) -> bytes:
    """Send *data* to an echo server, end, and return all that comes back."""
    with connect(port) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: one.recv(65536), b""))


def refused(port: int, host: str = "127.0.0.1") -> int | None:
    """Return the errno of a connection, or of the first read of one that ends at once."""
    try:
        with connect(port, host) as one:
            one.recv(1)
    except OSError as error:
        return error.errno
    return None


def own_address() -> str | None:
    """Return an address of this machine that is not its loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(one.getsockname()[0])


def test_inbound_leads_to_that_port_of_the_jail_only() -> None:
    """Nothing but the named port of a jail must be reached, and from the loopback only."""
    with Jail(JailPolicy(inbound={8000: 0})) as jail:
        port = jail.ports[8000]
        assert list(jail.ports) == [8000]
        assert refused(port) == errno.ECONNRESET  # nobody listens inside yet
        with guest_server(jail, 8000), guest_server(jail, 8001):
            assert exchange(port, b"hello") == b"hello"
            assert refused(8001) == errno.ECONNREFUSED
            assert refused(port, "127.0.0.2") == errno.ECONNREFUSED
            other = own_address()
            if other is not None:
                assert refused(port, other) == errno.ECONNREFUSED
        clause = next(c for c in jail.report.clauses if c.clause == "inbound[8000]")
        assert "relay process" in clause.mechanisms
        assert str(port) in (clause.note or "")
    assert refused(port) == errno.ECONNREFUSED  # closed with the jail


def test_host_ports_lead_to_that_port_of_the_host_only(echo: Echo) -> None:
    """A guest must reach the named port of the host, on its loopback address, and no other."""
    other = Echo()
    aside = Echo("127.0.0.2")
    text = f"""
def say(port, host="127.0.0.1"):
    with socket.socket() as one:
        try:
            one.settimeout(5); one.connect((host, port)); one.sendall(b"hi")
            return one.recv(9).decode()
        except OSError as error:
            return error.errno
answer([say({echo.port}), say({other.port}), say({aside.port}), say({aside.port}, "127.0.0.2"),
    say({echo.port}, "127.0.0.2"), say(53, "192.0.2.1")])
"""
    gone = errno.ECONNREFUSED
    with Jail(JailPolicy(host_ports=[echo.port, aside.port])) as jail:
        reset = errno.ECONNRESET  # the relay listens, the host's 127.0.0.1 does not
        got = inside(jail, text)
        assert got == ["hi", gone, reset, gone, gone, errno.ENETUNREACH]
        assert jail.ports == {}
    assert (echo.came, other.came, aside.came) == (1, 0, 0)
    control = outside(text)
    assert control[:4] == ["hi", "hi", gone, "hi"]
    for server in (other, aside):
        server.close()


def test_a_low_port_of_the_host_may_be_offered_inside() -> None:
    """A port below 1024 that is not served on the host must end in a reset, not in a failure."""
    with Jail(JailPolicy(host_ports=[7])) as jail:
        text = """
with socket.create_connection(("127.0.0.1", 7)) as one:
    answer(attempt(one.recv, 1))
"""
        assert inside(jail, text) == errno.ECONNRESET


NO_OTHER_PORT = """
import fcntl, socket, struct, sys
from visruntime import Jail, JailPolicy

PORT, how, python = 20_001, sys.argv[1], sys.argv[2]
SAY = (
    "import socket\\n"
    "with socket.socket() as one:\\n"
    "    try:\\n"
    "        one.settimeout(5)\\n"
    f"        one.connect(('127.0.0.1', {PORT}))\\n"
    "        one.sendall(b'hi')\\n"
    "        print(one.recv(9))\\n"
    "    except OSError as error:\\n"
    "        print(error.errno)\\n"
)
with socket.socket() as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS: IFF_UP
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write(f"{PORT} {PORT}")
if how == "control":
    exec(SAY)
else:
    with Jail(JailPolicy(host_ports=[PORT])) as jail:
        print(jail.run([python, "-IBS", "-c", SAY], check=True).stdout.decode())
"""
"""In a network whose one port to be handed out is one that nobody serves: connect to that."""


def test_no_port_of_the_host_is_its_own_peer() -> None:
    """Where nobody serves a port, a guest must not get back its own bytes, but a reset."""
    space = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "-r", "--net"]

    def outcome(how: str) -> str:
        command = [*space, sys.executable, "-c", NO_OTHER_PORT, how, PYTHON]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert outcome("control") == "b'hi'"
    assert outcome("jail") == str(errno.ECONNRESET)


def test_a_chosen_port_of_the_host_and_one_that_is_taken(echo: Echo) -> None:
    """A port in use must open no jail; the error names the clause."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]
    with Jail(JailPolicy(inbound={8000: chosen})) as jail, guest_server(jail, 8000):
        assert jail.ports == {8000: chosen}
        assert exchange(chosen, b"x") == b"x"
    with pytest.raises(JailUnavailable, match=r"inbound\[8000\].*in use") as raised:
        Jail(JailPolicy(inbound={8000: echo.port}))
    assert raised.value.stage == "ports"
    # Of a jail that is gone the port is free at once.
    with Jail(JailPolicy(inbound={8000: chosen})) as jail:
        assert jail.ports == {8000: chosen}


def test_a_privileged_port_of_the_host_is_refused() -> None:
    """A port that the guest's own user may not take must be refused, to a root caller too."""
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as file:
        first = int(file.read())
    if first <= 1:
        pytest.skip("this machine has no privileged ports")
    with pytest.raises(PolicyUnsupported, match=r"inbound\[8000\]"):
        Jail(JailPolicy(inbound={8000: first - 1}))


def test_what_cannot_be_is_refused() -> None:
    """Ports with the host's network, in both directions at once, or too many: no jail."""
    with pytest.raises(PolicyError, match="inbound"):
        JailPolicy(inbound={8000: 0}, egress=Egress.OPEN)
    with pytest.raises(PolicyError, match="8000"):
        Jail(JailPolicy(inbound={8000: 0}, host_ports=[8000]))
    with pytest.raises(PolicyUnsupported, match="65 ports"):
        Jail(JailPolicy(inbound={8000: 0}, host_ports=range(1000, 1064)))


def test_an_open_network_needs_no_relay(echo: Echo) -> None:
    """With Egress.OPEN a host port is reached as it is, and no process is in between."""
    policy = JailPolicy(egress=Egress.OPEN, host_ports=[echo.port])
    text = f"answer(attempt(socket.create_connection, ('127.0.0.1', {echo.port})))"
    with Jail(policy) as jail:
        assert inside(jail, text) == 0
        clause = next(c for c in jail.report.clauses if c.clause == "host_ports[0]")
        assert "relay process" not in clause.mechanisms


# ---- the bytes ---------------------------------------------------------------------


def test_each_half_ends_by_itself(echo: Echo) -> None:
    """An end of file must cross while the other direction goes on, both ways."""
    text = f"""
with socket.create_connection(("127.0.0.1", {echo.port})) as one:
    one.sendall(b"x" * 100000); one.shutdown(socket.SHUT_WR)
    got = b"".join(iter(lambda: one.recv(65536), b""))
answer(len(got))
"""
    with Jail(JailPolicy(inbound={8000: 0}, host_ports=[echo.port])) as jail:
        assert inside(jail, text) == 100000
        with guest_server(jail, 8000):
            assert exchange(jail.ports[8000], b"y" * 100000) == b"y" * 100000


def test_bytes_arrive_unchanged_through_a_slow_reader() -> None:
    """Sixteen MiB must come back as they went, though the reader pauses all the time."""
    data = os.urandom(1 << 20) * 16
    policy = JailPolicy(inbound={8000: 0})
    with Jail(policy) as jail, guest_server(jail, 8000), connect(jail.ports[8000]) as one:

        def send() -> None:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        digest = hashlib.sha256()
        size = turns = 0
        while part := one.recv(40000):
            digest.update(part)
            size += len(part)
            turns += 1
            if turns % 50 == 0:
                time.sleep(0.01)
        sender.join()
    assert size == len(data)
    assert digest.digest() == hashlib.sha256(data).digest()


def test_a_reader_that_never_reads_holds_its_writer_up() -> None:
    """The relay must not take more than its buffers for a peer that does not read."""
    deaf = """
import socket
listener = socket.create_server(("127.0.0.1", 8000))
print("ready", flush=True)
one, _ = listener.accept()
listener.accept()
"""
    with Jail(JailPolicy(inbound={8000: 0})) as jail:
        server = spawn(jail, [PYTHON, "-IBS", "-c", deaf], stdout=-1)
        with server:
            assert server.stdout.readline() == b"ready\n"
            with connect(jail.ports[8000]) as one:
                one.setblocking(False)
                sent = 0
                while select.select([], [one], [], 1.0)[1]:
                    with contextlib.suppress(BlockingIOError):
                        sent += one.send(b"z" * 65536)
                    assert sent < 64 << 20
                relay = helpers(jail)[1]
                assert resident(relay) < 12 << 10


def resident(pid: int) -> int:
    """Return the resident memory of a process, in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def abort(one: socket.socket) -> None:
    """Close a connection by a reset."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def test_a_reset_crosses(echo: Echo) -> None:
    """A peer that aborts must be seen as one that aborted, both ways, and end nothing else."""
    text = f"""
one = socket.create_connection(("127.0.0.1", {echo.port})); one.sendall(b"d"); one.recv(1)
one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); one.close()
answer(0)
"""
    policy = JailPolicy(inbound={8000: 0}, host_ports=[echo.port])
    with (
        Jail(policy) as jail,
        guest_server(jail, 8000) as server,
        connect(jail.ports[8000]) as kept,
    ):
        kept.sendall(b"a")
        assert kept.recv(1) == b"a"
        one = connect(jail.ports[8000])
        one.sendall(b"b")
        assert one.recv(1) == b"b"
        abort(one)
        assert server.stdout.readline() == f"error {errno.ECONNRESET}\n".encode()
        kept.sendall(b"c")
        assert kept.recv(1) == b"c"
        assert inside(jail, text) == 0
        assert until(lambda: echo.resets == 1)


def test_thousands_of_connections_leave_nothing_behind(echo: Echo) -> None:
    """Two thousand connections, one after the other, must leave no descriptor in the relay."""
    text = f"""
for turn in range(1000):
    with socket.create_connection(("127.0.0.1", {echo.port})) as one:
        if turn % 3:
            one.sendall(b"x")
            if turn % 3 == 1:
                one.recv(1)
answer(0)
"""
    with Jail(JailPolicy(inbound={8000: 0}, host_ports=[echo.port])) as jail:
        with guest_server(jail, 8000):
            for turn in range(1000):
                with connect(jail.ports[8000]) as one:
                    one.sendall(b"y")
                    if turn % 2:
                        assert one.recv(1) == b"y"
            assert inside(jail, text) == 0
            assert exchange(jail.ports[8000], b"still") == b"still"
        if os.geteuid() == 0:
            relay = helpers(jail)[1]
            held = f"/proc/{relay}/fd"
            # The dialer and two listeners.
            assert until(lambda: len(os.listdir(held)) == 3)
    assert until(lambda: echo.came == 1000)


def test_more_connections_than_the_table_holds_wait() -> None:
    """With the relay's table full a new connection must wait, and be served when one has gone."""
    with Jail(JailPolicy(inbound={8000: 0})) as jail, guest_server(jail, 8000):
        many = [connect(jail.ports[8000]) for _ in range(TABLE)]
        for one in many:
            one.sendall(b"x")
        for one in many:
            assert one.recv(1) == b"x"
        with connect(jail.ports[8000]) as late:
            late.sendall(b"y")
            late.settimeout(0.3)
            with pytest.raises(TimeoutError):
                late.recv(1)
            many.pop().close()
            late.settimeout(10)
            assert late.recv(1) == b"y"
        for one in many:
            one.close()


# ---- the processes -----------------------------------------------------------------


def helpers(jail: Jail) -> list[int]:
    """Return dialer and relay: on the host, the pids of the second and third process inside."""
    inhabitants = children_of(jail._handle.info["pid"])
    by_number = {int(status["NSpid"].split()[-1]): pid for pid, status in inhabitants.items()}
    return [by_number[2], by_number[3]]


def test_dialer_and_relay_hold_little(echo: Echo) -> None:
    """The two processes must have no capability, a filter, and no more than their sockets."""
    with Jail(JailPolicy(host_ports=[echo.port])) as jail:
        table = children_of(jail._handle.info["pid"])
        for pid in helpers(jail):
            status = table[pid]
            assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
            assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0}
            if os.geteuid() == 0:
                links = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
                assert all(link.startswith("socket:") for link in links)
                assert len(links) <= 2
        if os.geteuid() == 0:
            spaces = [os.readlink(f"/proc/{pid}/ns/net") for pid in helpers(jail)]
            assert spaces[0] == os.readlink("/proc/self/ns/net") != spaces[1]
        text = """
got = [attempt(os.kill, pid, number) for pid in (2, 3) for number in (0, signal.SIGKILL)]
got += [call("ptrace", 16, pid, 0, 0) for pid in (2, 3)]
answer([sorted(set(got)), [attempt(os.listdir, f"/proc/{pid}/fd") for pid in (2, 3)]])
"""
        assert inside(jail, text) == [[errno.EPERM], [errno.EACCES] * 2]


def test_no_process_of_the_jail_shows_the_hosts_network(echo: Echo) -> None:
    """The dialer lives in the host's network: its /proc must not show that to a guest."""
    other = Echo()
    text = f"""
wanted = ":%04X " % {other.port}
shown = []
for name in sorted(os.listdir("/proc")):
    for table in ("net/tcp", "task/" + name + "/net/tcp"):
        try:
            with open("/proc/" + name + "/" + table) as file:
                shown.append(wanted in file.read())
        except OSError:
            pass
answer([any(shown), len(shown) > 1, attempt(os.listdir, "/proc/2"), attempt(os.listdir, "/proc/3")])
"""
    with Jail(JailPolicy(host_ports=[echo.port])) as jail:
        assert inside(jail, text) == [False, True, errno.EACCES, 0]
    assert outside(text)[0] is True
    other.close()


def test_without_ports_no_process_is_there(jail: Jail) -> None:
    """A jail that asks for no port must have neither dialer nor relay."""
    assert jail.run(["/bin/true"]).exit_code == 0
    spaces = {int(s["NSpid"].split()[-1]) for s in children_of(jail._handle.info["pid"]).values()}
    assert all(
        status["Seccomp_filters"] == "1"
        for status in children_of(jail._handle.info["pid"]).values()
    ), spaces


@pytest.mark.parametrize("victim", [0, 1], ids=["dialer", "relay"])
def test_when_a_helper_ends_the_ports_are_closed(echo: Echo, victim: int) -> None:
    """Without dialer or relay a connection must fail, and the jail do everything else."""
    text = f"""
def say():
    with socket.create_connection(("127.0.0.1", {echo.port}), timeout=5) as one:
        one.sendall(b"x"); return one.recv(1) == b"x" or 1 / 0
answer(attempt(say))
"""
    with Jail(JailPolicy(host_ports=[echo.port])) as jail:
        assert inside(jail, text) == 0
        os.kill(helpers(jail)[victim], signal.SIGKILL)
        assert until(lambda: inside(jail, text) in (errno.ECONNREFUSED, errno.ECONNRESET))
        assert not jail.closed


HOST = """
import sys, time
import visruntime as vr
jail = vr.Jail(vr.JailPolicy(inbound={8000: 0}))
print(jail.ports[8000], flush=True)
time.sleep(60)
"""


def test_the_ports_end_with_the_host_process() -> None:
    """After ``kill -9`` of the host nothing must listen on the port any more."""
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        port = int(host.stdout.readline())
        assert refused(port) == errno.ECONNRESET
        host.kill()
        host.wait()
        assert until(lambda: refused(port) == errno.ECONNREFUSED)


def test_a_guest_listens_on_any_port_of_its_own_network() -> None:
    """A low port that the policy leads in is served; without one the jail's own stay closed."""
    text = """
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
number = attempt(server.bind, ("127.0.0.1", 81))
if not number:
    server.listen()
print(number, flush=True)
if not number:
    server.accept()[0].sendall(b"from 81")
"""
    with Jail(JailPolicy()) as jail:
        assert jail.run([PYTHON, "-IBS", "-c", PRELUDE + text]).stdout_text == f"{errno.EACCES}\n"
    with Jail(JailPolicy(inbound={81: 0})) as jail:
        guest = spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + text], stdout=-1)
        with guest:
            assert guest.stdout.readline() == b"0\n"
            with socket.create_connection(("127.0.0.1", jail.ports[81]), timeout=10) as client:
                assert client.recv(16) == b"from 81"


def test_a_port_of_the_host_that_no_process_of_a_jail_may_have_is_named() -> None:
    """A low port of the host is refused to the jails of root too, whose processes have no rights."""
    with pytest.raises(PolicyUnsupported, match="no process of a jail may listen") as caught:
        Jail(JailPolicy(inbound={8080: 81}))
    assert caught.value.field == "inbound[8080]"

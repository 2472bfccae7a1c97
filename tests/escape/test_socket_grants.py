"""Boundary: exact AF_UNIX grants. A guest reaches the sockets that the policy names, no other."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PYTHON,
    Egress,
    Jail,
    children_of,
    errno,
    inside,
    policy_of,
    spawn,
    until,
)
from jail_helpers import outside as outside_of

from visruntime.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


class Server:
    """A socket of the host that counts who comes, and says its name to each."""

    def __init__(self, path: Path, kind: int = socket.SOCK_STREAM) -> None:
        self.path = path
        self.came = 0
        self.socket = socket.socket(socket.AF_UNIX, kind)
        here = os.getcwd()
        os.chdir(path.parent)  # sun_path is short
        try:
            self.socket.bind(path.name)
        finally:
            os.chdir(here)
        path.chmod(0o777)
        self.socket.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            self.came += 1
            with one, contextlib.suppress(OSError):  # it may have left
                one.sendall(self.path.name.encode())

    def close(self) -> None:
        """Stop listening. The thread ends first: its next accept could meet a reused number."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self.socket.close()


@pytest.fixture
def serve() -> Iterator[Any]:
    """Return a function that makes a server of the host at a path."""
    made: list[Server] = []

    def start(path: Path, kind: int = socket.SOCK_STREAM) -> Server:
        made.append(Server(path, kind))
        return made[-1]

    yield start
    for one in made:
        one.close()


VISIT = """
def visit(path, kind=socket.SOCK_STREAM):
    # What the server says, or the errno of connect.
    with socket.socket(socket.AF_UNIX, kind) as one:
        try:
            one.connect(path)
        except OSError as error:
            return error.errno
        return one.recv(100).decode()
"""


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_ux_04_only_the_granted_socket_is_reached(
    workspace: Path, outside: Path, serve: Any, egress: Egress, kind: int
) -> None:
    """Beside a granted socket no other of the host must be reached, not one made later either."""
    beside, within, masked = outside / "beside", workspace / "within", workspace / "masked"
    for path in (beside, within, masked):
        serve(path, kind)
    folder = str(workspace)
    text = f"""{VISIT}
got = []
os.chdir({str(outside)!r}); got.append(visit("beside", {kind}))
os.chdir({folder!r})
answer(got + [visit(name, {kind}) for name in ("within", "./within", "masked", "later", "none")])
"""
    policy = policy_of(write=[workspace], sockets=[beside, within], egress=egress)
    with Jail(policy) as jail:
        later = serve(workspace / "later", kind)
        denied = errno.EACCES
        expected = ["beside", "within", "within", denied, denied, errno.ENOENT]
        assert inside(jail, text) == expected
        assert later.came == 0
        mechanisms = {c.clause: c.mechanisms for c in jail.report.clauses}
        assert mechanisms["sockets[0]"][0] == "connect broker"
        held = {canary.name for canary in jail.report.canaries if canary.held}
        assert {"connect to a path that is not granted", "make an AF_UNIX datagram socket"} <= held
    assert outside_of(text) == ["beside", "within", "within", "masked", "later", errno.ENOENT]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_without_folders_mounts_alone_are_exact(outside: Path, serve: Any, kind: int) -> None:
    """Where the guest sees no folder of the host, no broker runs and no other socket is there."""
    one = serve(outside / "one", kind)
    other = serve(outside / "other", kind)
    text = f"""{VISIT}
os.chdir({str(outside)!r})
answer([visit("one", {kind}), visit("other", {kind}), visit("later", {kind})])
"""
    with Jail(policy_of(sockets=[one.path])) as jail:
        later = serve(outside / "later", kind)
        assert inside(jail, text) == ["one", errno.ENOENT, errno.ENOENT]
        assert (other.came, later.came) == (0, 0)
        clause = next(c for c in jail.report.clauses if c.clause == "sockets[0]")
        assert clause.mechanisms == ("mount",)
        assert not any(int(status["CapEff"], 16) for status in inhabitants(jail).values())
    assert outside_of(text) == ["one", "other", "later"]


def inhabitants(jail: Jail) -> dict[int, dict[str, str]]:
    """Return the processes of a jail but pid 1, by their pids on the host."""
    return children_of(jail._handle.info["pid"])


def broker_of(jail: Jail) -> int:
    """Return the pid, on the host, of a jail's broker: the second process of its namespace."""
    found = [p for p, status in inhabitants(jail).items() if status["NSpid"].split()[-1] == "2"]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def brokered(workspace: Path, outside: Path, serve: Any) -> Iterator[Jail]:
    """Return a jail whose connections a broker judges; "granted" may be reached."""
    granted = serve(outside / "granted")
    with Jail(policy_of(write=[workspace], sockets=[granted.path])) as jail:
        yield jail


def at(folder: Path) -> str:
    """Return a guest's change to *folder*, from where a short name is enough."""
    return f"{VISIT}\nos.chdir({str(folder)!r})\n"


OWN = """
import threading
got = []
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b"x"); got.append(b.recv(1).decode())
    for address in ("/tmp/own%d" % kind, "/dev/shm/own%d" % kind, "\\0own%d" % kind):
        server = socket.socket(socket.AF_UNIX, kind); server.bind(address); server.listen()
        client = socket.socket(socket.AF_UNIX, kind); client.connect(address)
        client.send(b"y"); got.append(server.accept()[0].recv(1).decode())
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.socket(family); server.bind((host, 0)); server.listen()
    address = server.getsockname()
    client = socket.create_connection(address[:2]); client.send(b"z")
    got.append(server.accept()[0].recv(1).decode())
    waiting = socket.socket(family); waiting.setblocking(False)
    got.append(waiting.connect_ex(address[:2]) in (0, errno.EINPROGRESS))
    server.accept(); server.close()
    got.append(socket.socket(family).connect_ex(address[:2]))
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagram.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(datagram.getsockname()); sender.send(b"u"); got.append(datagram.recv(1).decode())
answer(got)
"""


def test_ux_01_the_guests_own_sockets_work_under_the_broker(brokered: Jail) -> None:
    """Sockets of the guest itself, and IP sockets, must not notice that a broker connects."""
    expected = ["x", "y", "y", "y"] * 2 + ["z", True, errno.ECONNREFUSED] * 2 + ["u"]
    assert inside(brokered, OWN) == expected


def test_asyncio_and_multiprocessing_work_under_the_broker(brokered: Jail) -> None:
    """Event loops and the forkserver, which connects to a socket of its own, must just work."""
    text = """
import asyncio, multiprocessing
async def main():
    server = await asyncio.start_unix_server(lambda r, w: w.close(), "/tmp/loop")
    reader, writer = await asyncio.open_unix_connection("/tmp/loop")
    return await reader.read()
got = [asyncio.run(main()).decode()]
context = multiprocessing.get_context("forkserver")
with context.Pool(1) as pool:
    got.append(pool.apply(abs, (-3,)))
answer(got)
"""
    assert inside(brokered, text) == ["", 3]


DATAGRAMS = """
def make(kind):
    return attempt(lambda: socket.socket(socket.AF_UNIX, kind).close())
def pair(kind):
    return attempt(lambda: [s.close() for s in socket.socketpair(socket.AF_UNIX, kind)])
# SOCK_RAW makes a datagram socket of this family
answer([f(kind | flags) for f in (make, pair) for kind in (2, 3) for flags in (0, 0o2000000)])
"""


def test_no_datagram_socket_goes_around_the_broker(brokered: Jail) -> None:
    """A datagram names its receiver in each send, so no such AF_UNIX socket must be made."""
    assert set(inside(brokered, DATAGRAMS)) == {errno.EPROTONOSUPPORT}
    assert set(outside_of(DATAGRAMS)) == {0}


def test_a_link_or_a_way_through_proc_is_no_way_around(
    brokered: Jail, workspace: Path, outside: Path, serve: Any
) -> None:
    """What decides is the object found at the path, whatever path led there."""
    bad = serve(workspace / "bad")
    text = f"""{at(workspace)}
os.symlink("bad", "link"); os.symlink({str(outside / "granted")!r}, "good")
here = os.open(".", os.O_RDONLY)
got = [visit("link"), visit("good"), visit("/proc/self/fd/%d/bad" % here)]
got += [visit("/proc/self/fd/%d/good" % here), visit("/proc/self/cwd/good"), visit(".")]
os.link("bad", "hard")
got.append(visit("hard"))
answer(got)
"""
    denied = errno.EACCES
    assert inside(brokered, text) == [
        denied,
        "granted",
        denied,
        "granted",
        "granted",
        denied,
        denied,
    ]
    assert bad.came == 0


def test_threads_and_undumpable_guests_connect(brokered: Jail, outside: Path) -> None:
    """The broker must find the socket of any thread, and of a guest that may not be traced."""
    text = f"""{at(outside)}
import threading
got = []
thread = threading.Thread(target=lambda: got.append(visit("granted")))
thread.start(); thread.join()
libc.prctl(4, 0)  # PR_SET_DUMPABLE
got.append(visit("granted"))
answer(got)
"""
    assert inside(brokered, text) == ["granted", "granted"]


def test_wrong_arguments_get_the_kernels_answers(brokered: Jail, outside: Path) -> None:
    """A bad descriptor, pointer, length or family must fail as it does without the broker."""
    text = """
NUMBERS["connect"] = 42 if os.uname().machine == "x86_64" else 203
one = socket.socket(socket.AF_UNIX); number = one.fileno()
file = os.open("/dev/null", os.O_RDONLY)
address = ctypes.create_string_buffer(struct.pack("H", 1) + b"/tmp/none" + bytes(120))
answer([
    call("connect", 99, ctypes.byref(address), 20), call("connect", -1, ctypes.byref(address), 20),
    call("connect", file, ctypes.byref(address), 20), call("connect", number, 8, 20),
    call("connect", number, ctypes.byref(address), -1),
    call("connect", number, ctypes.byref(address), 129),
    call("connect", number, ctypes.byref(address), 128),
    call("connect", number, ctypes.byref(address), 1),
    call("connect", number, ctypes.byref(ctypes.create_string_buffer(b"\\2\\0" + bytes(30))), 16),
    call("connect", number, ctypes.byref(address), 20),
])
"""
    got = inside(brokered, text)
    assert got == outside_of(text)
    assert got[:4] == [errno.EBADF, errno.EBADF, errno.ENOTSOCK, errno.EFAULT]
    assert got[-1] == errno.ENOENT


def test_a_signal_does_not_repeat_a_connection(brokered: Jail, outside: Path) -> None:
    """A call that a signal makes the kernel repeat must not meet its own first half (EISCONN)."""
    text = f"""{at(outside)}
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
got = sorted({{visit("granted") for _ in range(300)}})
signal.setitimer(signal.ITIMER_REAL, 0)
answer(got)
"""
    assert inside(brokered, text) == ["granted"]


def test_a_full_server_does_not_hold_up_others(workspace: Path, outside: Path, serve: Any) -> None:
    """Guests that wait for a server that never accepts must not keep others from theirs."""
    granted = serve(outside / "granted")
    here = os.getcwd()
    os.chdir(outside)
    full = socket.socket(socket.AF_UNIX)
    full.bind("full")
    os.chmod("full", 0o777)
    os.chdir(here)
    full.listen(0)
    wait = f"""
import os, socket
os.chdir({str(outside)!r})
kept = []
print("go", flush=True)
while True:
    kept.append(socket.socket(socket.AF_UNIX)); kept[-1].connect("full")
"""
    with Jail(policy_of(write=[workspace], sockets=[granted.path, outside / "full"])) as jail:
        waiting = [spawn(jail, [PYTHON, "-IBSc", wait], stdout=-1) for _ in range(4)]
        for one in waiting:
            assert one.stdout.readline() == b"go\n"
        # Each ends up in a child of the broker.
        assert until(lambda: len(children_of(broker_of(jail))) == 4)
        assert inside(jail, at(outside) + 'answer(visit("granted"))') == "granted"
        for one in waiting:
            one.close()
        assert until(lambda: not children_of(broker_of(jail)))
    full.close()


def test_when_the_broker_ends_nothing_is_connected(brokered: Jail, outside: Path) -> None:
    """Without its broker a jail must refuse to connect and to bind, and do all else."""
    text = f"""{at(outside)}
one = socket.socket()
answer([visit("granted"), attempt(one.bind, ("127.0.0.1", 0)),
    attempt(socket.socket(socket.AF_UNIX).bind, "/tmp/bound"), attempt(one.listen)])
"""
    assert inside(brokered, text) == ["granted", 0, 0, 0]
    broker = broker_of(brokered)
    os.kill(broker, signal.SIGKILL)
    assert until(lambda: broker not in inhabitants(brokered))
    assert inside(brokered, text) == [errno.ENOSYS, errno.ENOSYS, errno.ENOSYS, 0]
    assert not brokered.closed
    assert brokered.run(["/bin/true"]).exit_code == 0


def test_a_guest_neither_signals_nor_looks_at_the_broker(brokered: Jail) -> None:
    """The broker must be as far from a guest as the supervisor is."""
    text = """
got = [attempt(os.kill, 2, number) for number in (0, signal.SIGKILL, signal.SIGSTOP)]
got += [call("ptrace", 16, 2, 0, 0), opened("/proc/2/mem", os.O_RDWR), opened("/proc/2/environ")]
got += [attempt(os.listdir, "/proc/2/fd"), attempt(os.readlink, "/proc/2/cwd")]
with open("/proc/2/comm") as file: name = file.read().strip()
answer([name, got])
"""
    name, got = inside(brokered, text)
    assert name == "visjail-init"
    assert got[:4] == [errno.EPERM] * 4
    assert set(got[4:]) == {errno.EACCES}
    assert os.stat(f"/proc/{broker_of(brokered)}").st_uid >= 0  # it lives


def test_the_broker_holds_little(brokered: Jail) -> None:
    """The broker must be confined itself: its own filter, one capability, no way to the host."""
    status = inhabitants(brokered)[broker_of(brokered)]
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    few = 1 << 19 | 1 << 12  # CAP_SYS_PTRACE, CAP_NET_ADMIN: over the jail's own namespaces
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == few
    assert int(status["CapBnd"], 16) == int(status["CapInh"], 16) == 0
    folder = f"/proc/{broker_of(brokered)}/fd"
    if os.access(folder, os.R_OK):  # root
        held = sorted(os.readlink(f"{folder}/{name}") for name in os.listdir(folder))
        assert len(held) == 2  # the listener and the granted socket
        assert any("seccomp notify" in name for name in held)


FLIP = """
import mmap
os.chdir({folder!r})
shared = mmap.mmap(-1, 4096)
names = [struct.pack("H", 1) + name.ljust(12, b"\\0") for name in (b"granted", b"forbidden")]
shared[:14] = names[0]
end = time.monotonic() + {seconds}
flipper = os.fork()
if flipper == 0:
    while time.monotonic() < end:
        for _ in range(200):
            shared[:14] = names[1]
            shared[:14] = names[0]
    os._exit(0)
address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
libc.connect.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)
tried = reached = 0
while time.monotonic() < end:
    with socket.socket(socket.AF_UNIX) as one:
        tried += 1
        reached += libc.connect(one.fileno(), address, 14) == 0
os.waitpid(flipper, 0)
answer([tried, reached])
"""

SWAP = """
import threading
os.chdir({folder!r})
end = time.monotonic() + {seconds}
target = os.dup(0)
libc.connect.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
address = struct.pack("H", 1) + b"forbidden".ljust(12, b"\\0")
def swap():
    while time.monotonic() < end:
        with socket.socket(socket.AF_INET) as inet, socket.socket(socket.AF_UNIX) as local:
            for _ in range(50):
                os.dup2(inet.fileno(), target)
                os.dup2(local.fileno(), target)
swapper = threading.Thread(target=swap)
swapper.start()
tried = reached = 0
while time.monotonic() < end:
    tried += 1
    reached += libc.connect(target, address, 14) == 0
swapper.join()
answer([tried, reached])
"""


@pytest.mark.parametrize("race", [FLIP, SWAP], ids=["address", "descriptor"])
def test_races_against_the_broker_are_lost(
    brokered: Jail, workspace: Path, outside: Path, serve: Any, race: str
) -> None:
    """Changing the address or the socket while the broker looks must never reach another server."""
    forbidden = serve(workspace / "forbidden")
    (workspace / "granted").symlink_to(outside / "granted")
    tried, reached = inside(brokered, race.format(folder=str(workspace), seconds=3))
    assert tried > 500
    assert forbidden.came == 0
    assert reached > 0 or race is SWAP  # the granted one, now and then
    (workspace / "granted").unlink()
    serve(workspace / "granted")
    # The control: without a jail the same race meets the forbidden server at once.
    assert outside_of(race.format(folder=str(workspace), seconds=0.5))[1] > 0
    assert until(lambda: forbidden.came > 0)


BIND = """
def listening(path):
    one = socket.socket(socket.AF_UNIX)
    one.bind(path)
    one.listen()
    return one
"""


SHARED = """
one = listening("shared"); print("up", flush=True); one.accept()[0].send(b"shared")
"""


def test_ux_01_a_guests_own_socket_in_a_granted_folder(brokered: Jail, workspace: Path) -> None:
    """A socket that a guest bound in a grant must be as it made it, and be reached by guests."""
    text = f"""{at(workspace)}{BIND}
os.mkdir("sub"); os.umask(0o027)
one = listening("sub/relative"); two = listening(os.path.abspath("absolute"))
pid = os.fork()
if pid == 0:
    with socket.socket(socket.AF_UNIX) as a, socket.socket(socket.AF_UNIX) as b:
        a.connect("sub/relative"); b.connect("absolute")
    os._exit(0)
one.accept(); two.accept()
named = [one.getsockname(), two.getsockname() == os.path.abspath("absolute")]
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
again = attempt(socket.socket(socket.AF_UNIX).bind, "absolute")
missing = attempt(socket.socket(socket.AF_UNIX).bind, "none/s")
os.rename("absolute", "moved")
reached = attempt(socket.socket(socket.AF_UNIX).connect, "moved")
answer([ended, named, oct(os.stat("moved").st_mode), reached, again, missing])
"""
    assert inside(brokered, text) == [
        0, ["sub/relative", True], "0o140750", 0, errno.EADDRINUSE, errno.ENOENT,
    ]  # fmt: skip
    # Another run of the same jail reaches it too, while its server lives.
    server = spawn(
        brokered,
        [PYTHON, "-IBSc", f"import os, socket\nos.chdir({str(workspace)!r})\n{BIND}{SHARED}"],
        stdout=-1,
    )
    with server:
        assert server.stdout.readline() == b"up\n"
        assert inside(brokered, at(workspace) + 'answer(visit("shared"))') == "shared"
    assert (workspace / "shared").is_socket()


def test_a_servers_file_is_no_guests_by_its_number(
    brokered: Jail, workspace: Path, serve: Any
) -> None:
    """A host's socket must not pass for a guest's whose file is gone, nor by taking its name."""
    made = at(workspace) + BIND + 'listening("x"); os.unlink("x"); answer(0)'
    for turn in range(12):
        assert inside(brokered, made) == 0
        one = serve(workspace / f"host{turn}")
        assert inside(brokered, at(workspace) + f'answer(visit("host{turn}"))') == errno.EACCES
        assert one.came == 0
    text = f"""{at(workspace)}{BIND}
got = set()
kept = os.stat("host0").st_ino
end = time.monotonic() + 3
mover = os.fork()
while mover == 0:
    # The host's socket takes the name as soon as it has been bound.
    for name in ("host0", "x"):
        try: os.rename(name, "host0" if name == "x" else "x")
        except OSError: pass
    if time.monotonic() > end: os._exit(0)
while time.monotonic() < end:
    try: listening("y").close(); os.rename("x", "y")
    except OSError: pass
    got |= {{str(visit("x")), str(visit("y"))}}
    try: os.rename("y", "x") if os.stat("y").st_ino == kept else os.unlink("y")
    except OSError: pass
os.waitpid(mover, 0)
answer(sorted(got))
"""
    host = serve(workspace / "watched")
    os.rename(workspace / "host0", workspace / "host-before")
    os.rename(workspace / "watched", workspace / "host0")
    got = inside(brokered, text)
    assert "watched" not in got
    assert host.came == 0


def test_the_guests_bound_sockets_are_counted(brokered: Jail, workspace: Path) -> None:
    """With too many files of its own sockets a guest must get an error until it removes some."""
    text = f"""{at(workspace)}{BIND}
errors = [attempt(socket.socket(socket.AF_UNIX).bind, "s%d" % turn) for turn in range(513)]
other = attempt(socket.socket(socket.AF_UNIX).bind, "/tmp/elsewhere")
for turn in range(512): os.unlink("s%d" % turn)
answer([sorted(set(errors[:512])), errors[512], other, attempt(listening, "again")])
"""
    assert inside(brokered, text) == [[0], errno.ENOBUFS, errno.ENOBUFS, 0]


def test_with_an_open_network_only_private_places_hold_own_sockets(
    workspace: Path, outside: Path, serve: Any
) -> None:
    """Where the kernel does not tell whose a file is, a guest's socket in a grant is refused."""
    granted = serve(outside / "granted")
    policy = policy_of(write=[workspace], sockets=[granted.path], egress=Egress.OPEN)
    text = f"""{at(workspace)}{BIND}
one = listening("s"); two = listening("/tmp/s")
answer([attempt(socket.socket(socket.AF_UNIX).connect, path) for path in ("s", "/tmp/s")])
"""
    with Jail(policy) as jail:
        assert inside(jail, text) == [errno.EACCES, 0]


def test_one_broker_serves_sockets_and_held_names(
    workspace: Path, outside: Path, serve: Any
) -> None:
    """Beside names that must not be made no socket must be made of that name, nor another reached."""
    granted = serve(outside / "granted")
    policy = policy_of(
        write=[workspace],
        deny_write=[workspace / "held"],
        sockets=[granted.path],
        inbound={8000: 0},
    )
    text = f"""{at(workspace)}{BIND}
one = listening("/dev/shm/own")
open("other", "w").close()
answer([visit("granted-link"), visit("later"), attempt(listening, "held"),
    attempt(os.mkdir, "held"), os.path.exists("other"),
    attempt(socket.socket(socket.AF_UNIX).connect, "/dev/shm/own"),
    attempt(socket.create_connection, ("127.0.0.1", 9))])
"""
    with Jail(policy) as jail:
        later = serve(workspace / "later")
        (workspace / "granted-link").symlink_to(granted.path)
        denied = errno.EACCES
        got = inside(jail, text)
        assert got == ["granted", denied, denied, denied, True, 0, errno.ECONNREFUSED]
        assert later.came == 0
    assert not (workspace / "held").exists()


def test_no_connection_is_ever_continued() -> None:
    """The code that connects must not know the answer that lets the guest's own call go on."""
    source = ROOT / "native" / "visjail" / "linux_broker_connect.c"
    assert "act_connect" in source.read_text()
    assert "CONTINUE" not in source.read_text()


SENSITIVE = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/user/1000/podman/podman.sock",
    "/run/dbus/system_bus_socket",
    "/run/user/1000/bus",
    "/run/systemd/private",
    "/run/user/1000/systemd/private",
    "/run/user/1000/gnupg/S.gpg-agent",
    "/run/user/1000/gnupg/S.gpg-agent.ssh",
    "/tmp/ssh-abcdef/agent.17",
    "/run/user/1000/keyring/ssh",
    "/tmp/.X11-unix/X0",
    "/run/user/1000/wayland-0",
    "/tmp/tmux-1000/default",
]


@pytest.mark.parametrize("path", SENSITIVE)
def test_a_sensitive_socket_needs_a_second_word(path: str) -> None:
    """The doors of engines, buses and agents must not be granted by ``sockets`` alone."""
    with pytest.raises(PolicyError, match=r"sensitive_sockets=\["):
        policy_of(sockets=[path])
    assert policy_of(sensitive_sockets=[path]).sensitive_sockets == (path,)


def test_what_the_environment_names_is_sensitive(
    outside: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that SSH_AUTH_SOCK and the like name must be sensitive wherever it lies."""
    one = serve(outside / "s")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(one.path))
    with pytest.raises(PolicyError, match="SSH_AUTH_SOCK"):
        Jail(policy_of(sockets=[one.path]))
    monkeypatch.delenv("SSH_AUTH_SOCK")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{one.path}")
    with pytest.raises(PolicyError, match="DOCKER_HOST"):
        Jail(policy_of(sockets=[one.path]))
    with Jail(policy_of(sensitive_sockets=[one.path])) as jail:
        assert inside(jail, at(outside) + 'answer(visit("s"))') == "s"


def test_what_is_no_socket_is_refused(workspace: Path, outside: Path, serve: Any) -> None:
    """A grant of a missing path, a file or a link of a guest's making must open no jail."""
    serve(outside / "s")
    (workspace / "file").write_text("")
    (workspace / "link").symlink_to(outside / "s")
    for name, why in (("none", "does not exist"), ("file", "is no socket"), ("link", "is a link")):
        with pytest.raises(PolicyError, match=why):
            Jail(policy_of(write=[workspace], sockets=[workspace / name]))


def test_a_denied_socket_stays_denied(workspace: Path, serve: Any) -> None:
    """At the same path a deny beats the grant of a socket."""
    one = serve(workspace / "s")
    with Jail(policy_of(write=[workspace], sockets=[one.path], deny=[one.path])) as jail:
        assert inside(jail, at(workspace) + 'answer(visit("s"))') == errno.EACCES
    assert one.came == 0


def test_a_granted_socket_is_not_writable_otherwise(workspace: Path, serve: Any) -> None:
    """A grant to connect must not be one to remove, rename or change the socket's file."""
    one = serve(workspace / "s")
    text = f"""{at(workspace)}
answer([attempt(os.unlink, "s"), attempt(os.rename, "s", "t"), attempt(os.chmod, "s", 0o777)])
"""
    with Jail(policy_of(write=[workspace], sockets=[one.path])) as jail:
        assert inside(jail, text) == [errno.EBUSY, errno.EBUSY, errno.EROFS]
    assert stat.S_ISSOCK(one.path.lstat().st_mode)
    assert (
        outside_of(text.replace('"s", "t"', '"s", "s"').replace("os.unlink", "os.stat")) == [0] * 3
    )

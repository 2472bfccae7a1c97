"""Boundary: requests that ask for no right, where any open descriptor or socket would do."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from jail_helpers import (
    Egress,
    backends,
    errno,
    inside,
    is_root,
    jail_by,
    outside,
)

by_backend = pytest.mark.parametrize("backend", backends())

FILE = """
import fcntl
libc.fcntl.restype = ctypes.c_int
def hint(command, value):
    box = ctypes.c_uint64(value)
    return 0 if libc.fcntl(fd, command, ctypes.byref(box)) == 0 else ctypes.get_errno()
def ask(code, size=4096):
    box = ctypes.create_string_buffer(size)
    return call("ioctl", fd, code, ctypes.addressof(box))
fd = os.open({path!r}, os.O_RDONLY)
"""


@by_backend
def test_a_file_that_is_only_read_keeps_its_hints(backend: str, workspace: Path) -> None:
    """A write hint set by a reader must not stay with the file."""
    file = workspace / "data"
    file.write_text("x")
    text = FILE.format(path=str(file)) + "answer([hint(1036, 5), hint(1038, 0)])"
    with jail_by(backend, read=[workspace]) as jail:
        assert inside(jail, text) == [errno.EPERM, errno.EPERM]
    # Linux 6.12 and newer have no hints of a single descriptor any more.
    assert outside(text)[0] == 0
    assert outside(text)[1] in (0, errno.EINVAL)


@by_backend
def test_no_request_goes_behind_the_mount(backend: str, workspace: Path) -> None:
    """Keys, subvolumes and flags must not be asked for; cloning and looking goes on."""
    file = workspace / "data"
    file.write_text("x" * 4096)
    refused = {
        "add a key": 0xC0506617,
        "remove a key": 0xC0406618,
        "set a policy": 0x800C6613,
        "destroy a subvolume": 0x5000940F,
        "destroy by number": 0x5000943F,
        "make read-only": 0x4008941A,
        "enable verity": 0x40806685,
    }
    codes = list(refused.values())
    text = FILE.format(path=str(file)) + (
        f"answer([[ask(code) for code in {codes!r}], ask(0x80086601), ask(0xC020660B, 4096),"
        " ask(0x40049409)])"
    )
    with jail_by(backend, write=[workspace]) as jail:
        got, flags, extents, cloned = inside(jail, text)
    control = outside(text)
    assert got == [errno.EPERM] * len(codes)
    # Outside they reach the file system, which knows them or not.
    assert errno.EPERM not in control[0]
    assert [flags, extents, cloned] == control[1:]


ENCRYPTED = """
import fcntl, struct
from jail_helpers import inside, jail_by, outside
top, backend = sys.argv[1], sys.argv[2]
def key():
    box = bytearray(struct.pack("<II32sII32s", 2, 0, b"", 64, 0, b"") + os.urandom(64))
    f = os.open(top, os.O_RDONLY); fcntl.ioctl(f, 0xC0506617, box); os.close(f)
    return bytes(box[8:24])
name = key()
home = top + "/home"
os.mkdir(home)
f = os.open(home, os.O_RDONLY)
fcntl.ioctl(f, 0x800C6613, struct.pack("<BBBBB3s16s", 2, 1, 4, 0, 0, b"", name)); os.close(f)
os.mkdir(home + "/shared")
open(home + "/diary", "w").write("mine")
text = '''
fd = os.open(%r, os.O_RDONLY)
box = ctypes.create_string_buffer(struct.pack("<II32s24s", 2, 0, %r, b""))
answer(call("ioctl", fd, 0xC0406618, ctypes.addressof(box)))
''' % (home + "/shared", name)
with jail_by(backend, read=[home + "/shared"]) as jail:
    got = inside(jail, text)
def make(number):
    try:
        os.mkdir("%s/%d" % (home, number))
    except OSError as error:
        return error.errno
    return 0
print(got, make(1), outside(text), make(2))
"""


@pytest.mark.skipif(not is_root(), reason="mounts a file system")
@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_a_guest_cannot_take_the_keys_of_encrypted_files(backend: str, tmp_path: Path) -> None:
    """A grant below an encrypted folder must not serve to lock its owner out."""
    make = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if make is None:
        if os.environ.get("VIS_REQUIRE_TOOLS") == "1":
            pytest.fail("mkfs.ext4 is not installed, and VIS_REQUIRE_TOOLS=1 asks for it")
        pytest.skip("mkfs.ext4 is not installed")
    image, top = tmp_path / "image", tmp_path.resolve() / "top"
    top.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run([make, "-q", "-O", "encrypt", str(image)], check=True)
    # The mount is in a namespace of its own, and goes with the process.
    mounted = f'mount -o loop "{image}" "{top}" 2>/dev/null || exit 9; exec "$@"'
    guest = "import os, sys\nsys.path.insert(0, sys.argv[3])\n" + ENCRYPTED
    result = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", mounted, "sh"),
            *(sys.executable, "-c", guest, str(top), backend, str(Path(__file__).parent.parent)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if result.returncode == 9:
        pytest.skip("this machine mounts no image of an encrypted ext4")
    assert result.stdout.split() == [str(n) for n in (errno.EPERM, 0, 0, errno.ENOKEY)], (
        result.stderr
    )


# ---- memory that others share ----------------------------------------------------------------

FUTEX = """
import mmap
libc.mmap.restype = ctypes.c_void_p
def page(path):
    address = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, os.open(path, os.O_RDONLY), ctypes.c_long(0))
    ctypes.string_at(address, 1)
    return address
lock, other = page({lock!r}), page({other!r})
number = 202 if os.uname().machine == "x86_64" else 98
def move(operation, *rest):
    ctypes.set_errno(0)
    got = libc.syscall(number, ctypes.c_void_p(lock), operation, 0, ctypes.c_void_p(10), *rest)
    return got if got >= 0 else -ctypes.get_errno()
answer([move(3, ctypes.c_void_p(other), 0), move(4, ctypes.c_void_p(other), 0)])
"""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _wait(path: Path, done: list[int]) -> None:
    """Wait on the first word of *path*, as a program of the host that has it mapped would."""
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    number = 202 if os.uname().machine == "x86_64" else 98
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
        word = ctypes.c_char.from_buffer(memory)
        limit = _Time(2, 0)
        done.append(libc.syscall(number, ctypes.byref(word), 0, 0, ctypes.byref(limit), None, 0))
        del word


def _wake(path: Path) -> int:
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    number = 202 if os.uname().machine == "x86_64" else 98
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
        word = ctypes.c_char.from_buffer(memory)
        found = libc.syscall(number, ctypes.byref(word), 1, 10, None, None, 0)
        del word
    return int(found)


@by_backend
def test_no_waiter_of_the_host_is_moved_away(backend: str, workspace: Path) -> None:
    """Who waits in a file that the guest only reads must be found by the host's own wake."""
    lock, other = workspace / "lock", workspace / "other"
    for file in (lock, other):
        file.write_bytes(bytes(4096))
    text = FUTEX.format(lock=str(lock), other=str(other))
    done: list[int] = []
    with jail_by(backend, read=[workspace]) as jail:
        waiter = threading.Thread(target=_wait, args=(lock, done))
        waiter.start()
        time.sleep(0.2)
        assert inside(jail, text) == [-errno.ENOSYS, -errno.ENOSYS]
        assert _wake(lock) == 1
        waiter.join()
    assert done == [0]
    waiter = threading.Thread(target=_wait, args=(lock, done))
    waiter.start()
    time.sleep(0.2)
    assert outside(text)[0] == 1  # the control: one waiter was moved
    assert _wake(other) == 1
    waiter.join()


@by_backend
def test_no_memory_from_the_pools_of_the_machine(backend: str) -> None:
    """Huge pages and secret memory, which no limit counts, must not be had."""
    text = """
libc.mmap.restype = ctypes.c_long
def huge():
    ctypes.set_errno(0)
    got = libc.mmap(None, ctypes.c_size_t(2 << 20), 3, 0x40022, -1, ctypes.c_long(0))
    return ctypes.get_errno() if got == -1 else 0
NUMBERS["memfd_secret"] = 447
answer([call("memfd_create", b"m", 4), huge(), call("memfd_secret", 0)])
"""
    with jail_by(backend) as jail:
        assert inside(jail, text) == [errno.EPERM, errno.EPERM, errno.ENOSYS]
    control = outside(text)
    assert control[0] in (0, errno.ENOENT)  # ENOENT: no pages of this size
    assert control[1] in (0, errno.ENOMEM)  # ENOMEM: none are set aside
    assert control[2] in (0, errno.ENOSYS)  # ENOSYS: not in this kernel


# ---- sockets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_no_program_is_attached_to_a_socket(backend: str, egress: Egress) -> None:
    """A guest must not fill the machine's budget for compiled filters, in any network."""
    text = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffffffff))
program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(code))
answer([attempt(s.setsockopt, 1, option, program) for option in (26, 51)])
"""
    with jail_by(backend, egress=egress) as jail:
        assert inside(jail, text) == [errno.ENOPROTOOPT] * 2
    control = outside(text)
    assert control[0] == 0
    assert errno.ENOPROTOOPT not in control


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_no_datagrams_go_to_another_protocol(backend: str, egress: Egress) -> None:
    """UDP_ENCAP must give no socket to IPsec or L2TP of the host's kernel, in any network."""
    text = """
def encapsulate(kind):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        return attempt(s.setsockopt, socket.IPPROTO_UDP, 100, kind)
answer([encapsulate(2), encapsulate(3)])
"""
    with jail_by(backend, egress=egress) as jail:
        assert inside(jail, text) == [errno.ENOPROTOOPT] * 2
    control = outside(text)
    assert control[1] == 0
    assert control[0] in (0, errno.ENOPROTOOPT)  # a kernel without IPsec


TAKE_OVER = """
got = []
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind)
    got.append(attempt(s.setsockopt, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))
    got.append(attempt(s.bind, ("127.0.0.1", %d if kind == socket.SOCK_DGRAM else 0)))
answer(got)
"""


@by_backend
def test_no_datagram_of_a_host_server_goes_to_a_guest(backend: str) -> None:
    """A guest with the host's network must not join the port of a host's server; its own works."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        text = TAKE_OVER % server.getsockname()[1]
        with jail_by(backend, egress=Egress.OPEN) as jail:
            assert inside(jail, text) == [0, errno.EADDRINUSE, 0, 0]
        assert outside(text) == [0, 0, 0, 0]


def test_a_pair_of_sockets_takes_no_name_of_the_host() -> None:
    """Without namespaces an end of a pair must not occupy an abstract name."""
    text = f"""
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
answer(attempt(a.bind, "\\0visruntime-test-{os.getpid()}"))
"""
    with jail_by("landlock") as jail:
        assert inside(jail, text) == errno.EPERM
    assert outside(text) == 0


INTERFACES = """
import fcntl
one = socket.socketpair()[0]
def ask(request, *arguments):
    return attempt(fcntl.ioctl, one, request, *arguments)
box = ctypes.create_string_buffer(4096)
answer([
    ask(0x8910, struct.pack("16si20x", b"", 1)),  # SIOCGIFNAME
    ask(0x8912, struct.pack("iP", len(box), ctypes.addressof(box))),  # SIOCGIFCONF
    ask(0x8927, struct.pack("16s24x", b"lo")),  # SIOCGIFHWADDR
    ask(0x8903, bytes(4)),  # FIOGETOWN, of the socket itself
])
"""


def test_a_pair_of_sockets_shows_no_interface_of_the_host() -> None:
    """Without namespaces, and with the network off, a guest must not read the host's addresses."""
    with jail_by("landlock") as jail:
        assert inside(jail, INTERFACES) == [errno.EPERM] * 3 + [0]
    assert outside(INTERFACES) == [0, 0, 0, 0]


@by_backend
def test_no_line_discipline_is_loaded(backend: str) -> None:
    """A guest must not set the line discipline of its terminal."""
    text = """
import pty
try:
    fd = pty.openpty()[1]
except OSError:
    fd = 0 # without namespaces there is no terminal to make
box = ctypes.c_int(0)
answer(call("ioctl", fd, 0x5423, ctypes.addressof(box)))
"""
    with jail_by(backend) as jail:
        assert inside(jail, text) == errno.EPERM
    assert outside(text) == 0


@by_backend
def test_nothing_is_opened_without_reading_or_writing(backend: str, outside_file: Path) -> None:
    """The access mode 3 asks for no right that a rule could refuse: it must open no file at all."""
    text = f"""
import fcntl
def neither(path):
    descriptor = os.open(path, os.O_ACCMODE)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
answer([attempt(neither, path) for path in ({str(outside_file)!r}, "/dev/null")])
"""
    assert outside(text) == [0, 0]
    with jail_by(backend) as jail:
        assert inside(jail, text) == [errno.EPERM, errno.EPERM]

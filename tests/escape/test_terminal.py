"""Boundary: terminals. A guest has its own or none, and types into nobody else's."""

from __future__ import annotations

import os
import pty
import select
import sys
import textwrap
import time

import pytest
from jail_helpers import PRELUDE, PYTHON, Jail, JailPolicy, errno, inside, spawn

from visruntime.errors import CommandError, JailClosed

IOCTLS = """
import fcntl
def push(fd, code):
    value = result("ioctl", fd, code, ctypes.create_string_buffer(b"x"))
    return -value if value < 0 else 0
codes = (0x5412, 0x541C, 0x100005412, 0xFFFFFFFF00005412 - (1 << 64), 0x10000541C)
fds = [0, 1, 2]
answer([push(fd, code) for code in codes for fd in fds])
"""


def host_with_terminal(program: str) -> tuple[bytes, bytes]:
    """Run a host program on a terminal; return its output, and what came as if typed there."""
    child, master = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", textwrap.dedent(program)])
    output = b""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if not select.select([master], [], [], 0.2)[0]:
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            os.waitpid(child, 0)
            break
        if not data:
            break
        output += data
    os.close(master)
    typed = output.partition(b"TYPED:")[2].partition(b"\r\n")[0]
    return output, typed


TIOCSTI_HOST = """
import os, sys, select, termios, fcntl, tty
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
tty.setcbreak(0)
with Jail(JailPolicy()) as jail:
    process = jail.spawn(["/usr/bin/python3", "-IBS", "-c", {guest!r}], stdin=0, stdout=-1, stderr=-1)
    output, errors = process.communicate(timeout=15)
print("ANSWER:" + output.decode().strip() + errors.decode())
ready = select.select([0], [], [], 0.3)[0]
print("TYPED:" + (os.read(0, 100).decode() if ready else ""))
if {control}:
    try:
        fcntl.ioctl(0, termios.TIOCSTI, b"y")
        ready = select.select([0], [], [], 0.3)[0]
        print("CONTROL:" + (os.read(0, 100).decode() if ready else ""))
    except OSError as error:
        print("CONTROL:refused by the machine", error.errno)
"""


def test_pt_01_nothing_is_typed_into_the_hosts_terminal() -> None:
    """Even with the host's terminal as its stdin a guest must push no byte into it."""
    program = TIOCSTI_HOST.format(guest=PRELUDE + IOCTLS, control=True)
    output, typed = host_with_terminal(program)
    answers = output.partition(b"ANSWER:")[2].partition(b"\r\n")[0]
    assert answers == str([errno.EPERM] * 15).encode(), output
    assert typed == b""
    assert b"CONTROL:y" in output or b"refused by the machine" in output


def test_pt_01_a_terminal_of_its_own_takes_no_pushed_byte() -> None:
    """On the jail's own terminal the two calls must be refused as well."""
    with Jail(JailPolicy()) as jail:
        process = spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + IOCTLS], pty=True)
        output, _ = process.communicate(timeout=20)
    assert output.strip() == str([errno.EPERM] * 15).encode()


PT_07_HOST = """
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
with Jail(JailPolicy()) as jail:
    script = "echo STO''LEN > /dev/tty; echo rc=$?; ps -o tty= -p $$ 2>/dev/null || echo ?"
    result = jail.run(["sh", "-c", script])
    print("GOT:" + result.stdout_text.replace(chr(10), " "))
"""


def test_pt_07_without_a_terminal_dev_tty_does_not_open(jail: Jail) -> None:
    """A run without a terminal must get ENXIO, and write nothing on the host's."""
    text = """
answer([opened("/dev/tty"), opened("/dev/tty", os.O_WRONLY), opened("/dev/console"), os.isatty(0),
    int(open("/proc/self/stat").read().rpartition(")")[2].split()[4])])
"""
    assert inside(jail, text) == [errno.ENXIO, errno.ENXIO, errno.ENOENT, False, 0]
    output, _ = host_with_terminal(PT_07_HOST)
    assert b"STOLEN" not in output.replace(b"STO''LEN", b"")
    got = output.partition(b"GOT:")[2]
    assert b"rc=1" in got or b"rc=2" in got
    assert b"?" in got


def test_a_terminal_of_another_run_is_not_there() -> None:
    """A run must not open the terminal that another run of the jail works on."""
    with Jail(JailPolicy()) as jail, spawn(jail, ["sleep", "30"], pty=True):
        text = """
names = [n for n in os.listdir("/dev/pts") if n.isdigit()]
answer([names, [opened("/dev/pts/" + n, os.O_RDWR) for n in names]])
"""
        names, _ = inside(jail, text)
        # One trust domain: they share a devpts, but the host's terminals are not in it.
        assert names == ["0"]


def test_the_hosts_terminals_are_not_there(jail: Jail) -> None:
    """No terminal of the host may be found in /dev."""
    child, master = pty.fork()
    if child == 0:
        time.sleep(10)
        os._exit(0)
    try:
        assert [n for n in os.listdir("/dev/pts") if n.isdigit()]
        text = (
            "numbers = sorted(n for n in os.listdir('/dev/pts') if n.isdigit())\n"
            "answer(numbers + sorted(os.listdir('/dev')))"
        )
        got = inside(jail, text)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(master)
    if jail.report.backend == "bubblewrap":
        got.remove("core")  # a link to the masked /proc/kcore
    assert got == sorted(
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero".split()
    )


def test_no_guest_closes_the_terminals_to_others() -> None:
    """The modes of the devices may not be changed: what no run can open no later run can."""
    guest = """
paths = ("/dev/pts/ptmx", "/dev/ptmx", "/dev/null", "/dev/tty", "/dev")
got = [attempt(os.chmod, path, 0) for path in paths]
master, slave = os.openpty()
got += [attempt(os.fchmod, slave, 0o600), os.ttyname(slave)[:9]]
answer(got)
"""
    with Jail(JailPolicy()) as jail:
        assert inside(jail, guest) == [errno.EROFS] * 5 + [0, "/dev/pts/"]
        with spawn(jail, ["tty"], pty=True) as process:
            assert process.communicate()[0].startswith(b"/dev/pts/")


def test_terminals_run_out_with_a_name(jail: Jail) -> None:
    """When the guest holds all terminals of its jail, the host must be told what is missing."""
    text = """
held = []
try:
    while True: held.append(os.openpty())
except OSError as error:
    print(error.errno, len(held), flush=True)
time.sleep(60)
"""
    with spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + text], stdout=-1) as process:
        number, count = map(int, process.stdout.readline().split())
        assert number in (errno.ENOSPC, errno.EMFILE)
        assert count > 30
        if number == errno.ENOSPC:
            with pytest.raises(CommandError, match=r"terminal.*at most 64 at a time") as caught:
                spawn(jail, ["true"], pty=True)
            assert not isinstance(caught.value, JailClosed)
    assert jail.run(["true"]).exit_code == 0
    assert spawn(jail, ["true"], pty=True).wait(timeout=10) == 0

"""Boundary: pipes. No guest keeps the lock of a pipe that the host reads or writes, asleep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from jail_helpers import backends, errno, inside, jail_by, outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jail_helpers import Jail

HOLDERS = """
import fcntl, termios, tty
def full():
    sender, receiver = socket.socketpair()
    sender.setblocking(False)
    for size in (65536, 1):
        while attempt(sender.send, b"x" * size) == 0: pass
    sender.setblocking(True)
    return sender, receiver
empty = socket.socketpair()
busy = full()
terminal = empty[0].fileno()
try:
    kept, terminal = os.openpty()
    tty.setraw(terminal)
except PermissionError:
    pass  # without places of its own a jail has no terminal
def with_bytes(writer):
    os.write(writer, b"y" * 4096)
WAYS = dict(
    splice_in=lambda r, w: os.splice(empty[0].fileno(), w, 4096),
    splice_terminal=lambda r, w: os.splice(terminal, w, 4096),
    splice_out=lambda r, w: (with_bytes(w), os.splice(r, busy[0].fileno(), 4096)),
    send_in=lambda r, w: os.sendfile(w, terminal, None, 4096))
def ends(process, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(process, os.WNOHANG)[0]: return True
        time.sleep(0.01)
    return False
def held(way):
    # Whether somebody else waits for the lock: it is asked for until it does, or the call is over.
    reader, writer = os.pipe()
    holder = os.fork()
    if holder == 0:
        os._exit(attempt(way, reader, writer))
    end = time.monotonic() + 10
    while time.monotonic() < end:
        over = os.waitpid(holder, os.WNOHANG)
        if over[0]:
            return os.waitstatus_to_exitcode(over[1])
        asking = os.fork()
        if asking == 0:
            fcntl.ioctl(reader, termios.FIONREAD, bytes(4))
            os._exit(0)
        if not ends(asking, 0.25):
            os.kill(holder, 9)
            os.waitpid(holder, 0)
            os.waitpid(asking, 0)
            return "held"
    os.kill(holder, 9)
    return "neither"
answer({name: held(way) for name, way in WAYS.items()})
"""
NAMES = ("splice_in", "splice_terminal", "splice_out", "send_in")

COPIES = """
import asyncio, shutil, subprocess
content = os.urandom(300_000)
source, copy = folder + "/source", folder + "/copy"
with open(source, "wb") as file: file.write(content)
def copied(act):
    act()
    with open(copy, "rb") as file: same = file.read() == content
    os.unlink(copy)
    return same
def received(act):
    sender, receiver = socket.socketpair()
    child = os.fork()
    if child == 0:
        sender.close()
        got = b"".join(iter(lambda: receiver.recv(65536), b""))
        os._exit(got != content)
    receiver.close()
    with open(source, "rb") as file: act(sender, file)
    sender.close()
    return os.waitpid(child, 0)[1] == 0
async def loop_sends(sender, file):
    sender.setblocking(False)
    loop = asyncio.get_running_loop()
    _, writer = await asyncio.open_unix_connection(sock=sender)
    await loop.sendfile(writer.transport, file)
    writer.close()
    await writer.wait_closed()
async def loop_socket_sends(sender, file):
    sender.setblocking(False)
    await asyncio.get_running_loop().sock_sendfile(sender, file)
def shell(text):
    return lambda: subprocess.run(["sh", "-c", text, "sh", source, copy], check=True)
answer(dict(
    copyfile=copied(lambda: shutil.copyfile(source, copy)),
    sendfile=received(lambda sender, file: sender.sendfile(file)),
    transport=received(lambda sender, file: asyncio.run(loop_sends(sender, file))),
    loop=received(lambda sender, file: asyncio.run(loop_socket_sends(sender, file))),
    cp=copied(shell('cp "$1" "$2"')),
    cat=copied(shell('cat "$1" | cat >"$2"')),
    tar=copied(shell('tar -C "${1%/*}" -cf - source | tar -xOf - >"$2"'))))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder in which guests and their controls write."""
    return str(tmp_path_factory.mktemp("copies"))


@pytest.fixture(scope="module", params=backends())
def jail(request: pytest.FixtureRequest, folder: str) -> Iterator[Jail]:
    """A jail by each of the back ends."""
    with jail_by(request.param, write=[folder]) as jail:
        yield jail


def test_no_lock_of_a_pipe_is_held_asleep(jail: Jail) -> None:
    """No call waits for one thing with the lock of a pipe held, for which the host would wait."""
    assert inside(jail, HOLDERS) == dict.fromkeys(NAMES, errno.EINVAL)


def test_such_calls_hold_the_lock_without_a_jail() -> None:
    """Control: each of these keeps another process waiting until it is killed."""
    assert outside(HOLDERS) == dict.fromkeys(NAMES, "held")


def test_programs_copy_without_these_calls(jail: Jail, folder: str) -> None:
    """What copies by them elsewhere is not broken: it reads and writes."""
    text = f"folder = {folder!r}\n{COPIES}"
    copied = inside(jail, text)
    assert copied == outside(text) == dict.fromkeys(copied, True)
    assert len(copied) == 7

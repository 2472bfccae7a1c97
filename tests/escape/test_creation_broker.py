"""The creation broker: what it makes beside names that must not be made, and what not.

Behind the wall no guest makes a name by itself, so everything that works here was made by the
broker, with the same result as without a jail; and whatever a guest changes while the broker
looks, no denied name appears.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, children_of, errno, inside, outside
from names_tree import NAMES, policy, text

from visruntime import PathDenied

if TYPE_CHECKING:
    from typing import Any

WORK = r"""
os.chdir(top)
os.umask(0o027)
got = {}

def mode(path):
    return oct(os.lstat(path).st_mode)

def write(path, *flags):
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | sum(flags), 0o666)
    os.write(descriptor, b"text\n")
    status = libc.fcntl(descriptor, 3)
    inherited = os.get_inheritable(descriptor)
    os.close(descriptor)
    return [mode(path), bool(status & os.O_APPEND), inherited]

got["file"] = write("new")
got["append"] = write("appended", os.O_APPEND)
got["again"] = write("new", os.O_APPEND)
got["content"] = open("new").read()
got["truncate"] = [write("new", os.O_TRUNC), open("new").read()]
got["exclusive"] = [opened("new", os.O_CREAT | os.O_EXCL), opened("x", os.O_CREAT | os.O_EXCL)]
got["folder"] = [attempt(os.mkdir, "made", 0o777), mode("made"), attempt(os.mkdir, "made")]
got["in it"] = [attempt(os.mkdir, "made/a/"), opened("made/a/f", os.O_CREAT | os.O_WRONLY)]
got["sticky"] = [attempt(os.mkdir, "sticky", 0o1777), mode("sticky")]
got["link"] = [attempt(os.symlink, "made/a", "way"), os.readlink("way")]
got["through it"] = [opened("way/g", os.O_CREAT | os.O_WRONLY), sorted(os.listdir("made/a"))]
got["taken"] = [attempt(os.symlink, "x", "way"), attempt(os.link, "new", "way")]
got["fifo"] = [attempt(os.mkfifo, "pipe"), mode("pipe"), opened("pipe", os.O_CREAT | os.O_RDONLY)]
got["hard link"] = [attempt(os.link, "new", "other"), os.lstat("new").st_nlink]
got["rename"] = [attempt(os.rename, "other", "third"), attempt(os.rename, "third", "new")]
got["into free"] = [attempt(os.rename, "made", "free/made"), attempt(os.rename, "free/made", "back")]
got["no entry"] = [opened("no/x", os.O_CREAT), attempt(os.rename, "no", "x")]
got["no folder"] = attempt(os.mkdir, "new/x")
got["file in a place of a folder"] = [attempt(os.rename, "back", "new"), attempt(os.mkdir, "new")]
got["slash"] = [opened("s/", os.O_CREAT | os.O_WRONLY), attempt(os.symlink, "x", "s/")]
got["exchange"] = [call("renameat2", -100, b"back", -100, b"new", 2), os.path.isfile("back"),
    call("renameat2", -100, b"back", -100, b"new", 2)]
got["keep"] = call("renameat2", -100, b"new", -100, b"appended", 1)
got["long"] = [attempt(os.mkdir, "n" * 300), attempt(os.mkdir, "/".join(["n" * 200] * 30))]
got["bad"] = [call("mkdirat", -100, 1, 0o700), call("mkdirat", 77, b"n", 0o700)]
got["dangling"] = [attempt(os.symlink, "free/later", "d"), opened("d", os.O_CREAT | os.O_WRONLY)]
got["device"] = opened("/dev/null", os.O_CREAT | os.O_WRONLY)
folder = os.open("back", os.O_RDONLY)
def by_descriptor():
    os.close(os.open("h", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder))
got["folder"] += [attempt(by_descriptor), opened(f"/proc/self/fd/{folder}/i", os.O_CREAT)]
descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
libc.linkat(-100, f"/proc/self/fd/{descriptor}".encode(), -100, b"named", 0x400)
got["unnamed"] = mode("named")
import threading
def many(start):
    for number in range(start, start + 20):
        os.mkdir(f"t{number}")
threads = [threading.Thread(target=many, args=(100 * n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
got["threads"] = len([name for name in os.listdir(".") if name[0] == "t"])
def child():
    open("by child", "x").close()
    return 0
got["child"] = in_child(child)
got["all"] = sorted(n for n in os.listdir(".") if n[0] != "t")
answer(got)
"""


def test_work_behind_the_wall_is_as_outside(top: str) -> None:
    """No file, folder, link, mode or error may differ from what the same calls give outside."""
    expected = outside(text(top, WORK))
    shutil.rmtree(top)
    os.makedirs(f"{top}/.git")
    os.mkdir(f"{top}/free")
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, text(top, WORK)) == expected
        assert os.lstat(f"{top}/new").st_uid == os.geteuid()


def test_a_missing_folder_above_a_name_can_be_made_but_not_brought(top: str) -> None:
    """A denied name may not arrive inside of a folder that is moved to its place."""
    guest = """
os.chdir(top)
os.makedirs("free/ready/workflows")
os.makedirs("made/workflows")
got = [attempt(os.rename, "free/ready", ".github"), attempt(os.rename, "made", ".github")]
got += [call("renameat2", -100, b"made", -100, b".github", 2)]
got += [attempt(os.symlink, "free/ready", ".github"), opened(".github", os.O_CREAT | os.O_WRONLY)]
got += [attempt(os.mkdir, ".github"), attempt(os.mkdir, ".github/workflows")]
got += [attempt(os.rename, "free/ready/workflows", ".github/workflows")]
got += [opened(".github/settings", os.O_CREAT | os.O_WRONLY)]
got += [call("renameat2", -100, b"made", -100, b".github", 2)]
got += [attempt(os.rename, ".github", "aside"), attempt(os.mkdir, "aside")]
got += [attempt(os.rename, "aside", ".github"), attempt(os.rename, "aside", ".git/hooks")]
answer(got)
"""
    denied = errno.EACCES
    expected = [denied, denied, denied, denied, denied, 0, denied, denied, 0, denied, denied, 0]
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, text(top, guest)) == [*expected, denied, denied]
    assert os.listdir(f"{top}/.github") == ["settings"]
    assert os.listdir(f"{top}/.git") == []


RACE = r"""
import ctypes, threading, time
os.chdir(top)
os.makedirs("free/ready/hooks", exist_ok=True)
os.makedirs("free/x", exist_ok=True)
open("free/file", "w").close()
over = threading.Event()
start = time.monotonic()
family = ctypes.create_string_buffer(struct.pack("=H", socket.AF_UNIX), 66)
buffer = (ctypes.c_char * 64).from_buffer(family, 2)
folders = [os.open("free", os.O_PATH), os.open(".git", os.O_PATH), os.open(".", os.O_PATH)]
moving = os.dup(folders[0])

def bind(path):
    # A shared buffer holds by the time that it is read whatever was written to it last.
    with socket.socket(socket.AF_UNIX) as server:
        if path is buffer:
            libc.bind(server.fileno(), family, 66)
        else:
            attempt(server.bind, path)

def flip():
    # What the broker reads, and what the kernel reads after it, may be different things.
    while not over.is_set():
        for _ in range(200):
            for word in words:
                ctypes.memmove(buffer, word + b"\0", len(word) + 1)
            if moves:
                for folder in folders:
                    libc.dup2(folder, moving)
    return 0

def remove(path):
    try:
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    except OSError:
        pass

def attack():
    calls = broken = 0
    while not enough(calls, broken, time.monotonic() - start):
        for act in acts:
            act()
            calls += 1
        for target in targets:
            if os.path.lexists(target):
                broken += 1
                if broken < 100:
                    remove(target)
        for name in ("plain", "free/plain", ".git/plain", "free/hooks", "hooks"):
            remove(name)
    return calls, broken

thread = threading.Thread(target=flip)
thread.start()
outcome = attack()
over.set()
thread.join()
answer(outcome)
"""

# Another process turns what lies on the way to the name, until the attacker has ended.
TURNING = """
def flip(): pass
def turn(parent):
    while os.getppid() == parent:
        for act in ({acts}):
            attempt(act)
    os._exit(0)
parent = os.getpid()
if os.fork() == 0:
    turn(parent)
acts = [lambda path=path: bind(path) for path in ({paths})]
remove_too = ("free/hooks", "free2/hooks", "free2/sub/hooks", "free/sub/hooks")
acts.append(lambda: [remove(path) for path in remove_too])
"""

RACES = {
    "open": (
        'words, moves = [b"plain", b".envrc"], False\n'
        'acts = [lambda: result("openat", -100, buffer, os.O_CREAT | os.O_WRONLY, 0o600)]\n'
    ),
    "mkdir": (
        'words, moves = [b"free/hooks", b".git/hooks"], False\n'
        'acts = [lambda: result("mkdirat", -100, buffer, 0o700)]\n'
    ),
    "rename": (
        'words, moves = [b"free/plain", b".git/hooks"], False\n'
        "def act():\n"
        '    os.makedirs("free/ready", exist_ok=True)\n'
        '    result("renameat2", -100, b"free/ready", -100, buffer, 0)\n'
        "acts = [act]\n"
    ),
    "link": (
        'words, moves = [b"plain", b".envrc"], False\n'
        'acts = [lambda: libc.linkat(-100, b"free/file", -100, buffer, 0)]\n'
    ),
    "symlink": (
        'words, moves = [b"free/plain", b".envrc"], False\n'
        'acts = [lambda: libc.symlinkat(b"free", -100, buffer)]\n'
    ),
    "bind": ('words, moves = [b"plain", b".envrc"], False\nacts = [lambda: bind(buffer)]\n'),
    "bind through a link": TURNING.format(
        acts="""
    lambda: os.symlink("..", "free/other"), lambda: os.rename("free/other", "free/turn"),
    lambda: os.symlink("../.git", "free/other"), lambda: os.rename("free/other", "free/turn"),
""",
        paths='"free/turn/hooks", "free/turn/../.git/hooks", top + "/free/turn/hooks"',
    ),
    "bind in a folder that moves": TURNING.format(
        acts="""
    lambda: os.rename("free", "free2"), lambda: os.mkdir("free"), lambda: os.rmdir("free"),
    lambda: os.symlink(".git", "free"), lambda: os.unlink("free"),
    lambda: os.mkdir("free2/sub"), lambda: os.rmdir("free2/sub"),
    lambda: os.symlink("../.git", "free2/sub"), lambda: os.unlink("free2/sub"),
    lambda: os.rename("free2", "free"),
""",
        paths='"free/hooks", "free2/sub/hooks", top + "/free/hooks", top + "/free2/sub/hooks"',
    ),
    "folder": (
        'words, moves = [b"hooks"], True\n'
        'acts = [lambda: result("mkdirat", moving, buffer, 0o700)]\n'
    ),
}


@pytest.mark.parametrize("race", RACES)
def test_no_race_makes_a_name(top: str, race: str) -> None:
    """A path or descriptor that changes between the look and the act may never win."""
    guest = text(top, RACE.replace("thread = thr", RACES[race] + "thread = thr", 1))
    with Jail(policy(top, "broker")) as jail:
        enough = "enough = lambda calls, broken, seconds: seconds > 1.5 and calls > 500\n"
        calls, broken = inside(jail, enough + guest)
    assert broken == 0
    assert calls > 500
    for name in NAMES:
        assert not os.path.lexists(f"{top}/{name}")
    # The control: outside the very same attack makes the name.
    _, broken = outside("enough = lambda calls, broken, seconds: broken or seconds > 20\n" + guest)
    assert broken > 0


BIND = r"""
os.chdir(top)
os.umask(0o027)
os.mkdir("made")
os.symlink("made", "way")
os.mkdir("free/sub")

def bound(path):
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(path)
        except OSError as error:
            return error.errno
        name = server.getsockname()
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            pair = server.accept()[0]
            client.sendall(b"x")
            got = pair.recv(1).decode()
            pair.close()
        at = os.lstat(path)
        # Behind the wall a socket knows its name, and not the folder; but in the jail's own places.
        name = name if path.startswith("free") or path in ("/tmp/s", "/dev/shm/s") else "s"
        status = [oct(at.st_mode), at.st_uid == os.geteuid(), got, name]
        taken = attempt(socket.socket(socket.AF_UNIX).bind, path)
        os.unlink(path)
        return [*status, taken]

got = {path: bound(path) for path in ("s", "made/s", f"{top}/s", f"{top}/made/s", "free/s",
    "free/sub/s", "/tmp/s", "/dev/shm/s", "no/s", "s/", "/proc/self/none/s")}
os.chdir("made")
got["from below"] = bound("s")
os.chdir("/")
got["from the root"] = bound(f"{top}/s"[1:])
os.chdir(top)
got["taken"] = attempt(socket.socket(socket.AF_UNIX).bind, "made")
with socket.socket(socket.AF_UNIX) as server:
    server.bind(b"\0abstract")
    got["abstract"] = server.getsockname().decode()
with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    got["tcp"] = server.getsockname()[0]
    got["twice"] = attempt(server.bind, ("127.0.0.1", 0))
got["no address"] = -libc.bind(0, None, 0)
got["datagram"] = attempt(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind, "d")
# A folder in which guests make names keeps that right wherever it is.
os.rename("free", "freed")
got["moved"] = [bound("freed/s"), bound("freed/sub/s")]
answer(got)
"""

DETOURS = r"""
os.chdir(top)
os.mkdir("made")
os.symlink("made", "way")
def bound(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        name = server.getsockname()
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        os.unlink(path)
        return name
folder = os.open("made", os.O_PATH)
deep = "made"
for _ in range(4):
    deep += "/" + "n" * 60
    os.mkdir(deep)
far = os.open(deep, os.O_PATH)
answer([bound("way/s"), bound("./s"), bound(f"{top}//s"), bound("made/../s"),
    bound(f"/proc/self/fd/{folder}/s"), bound(f"/proc/self/fd/{far}/s")])
"""


def test_sockets_behind_the_wall_are_as_outside(top: str) -> None:
    """No socket may have another name, mode or owner than without a jail, nor be out of reach."""
    expected = outside(text(top, BIND))
    shutil.rmtree(top)
    os.makedirs(f"{top}/.git")
    os.mkdir(f"{top}/free")
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, text(top, BIND)) == expected


def test_a_socket_reached_by_a_detour_has_its_plain_name(top: str) -> None:
    """Words that a link could turn elsewhere may not reach the kernel; what they meant does."""
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, text(top, DETOURS)) == ["s"] * 6
    shutil.rmtree(f"{top}/made")
    os.unlink(f"{top}/way")
    assert outside(text(top, DETOURS))[0] == "way/s"


def test_without_the_broker_nothing_is_made(top: str) -> None:
    """When the broker ends no call that it would have judged may go on, and all others do."""
    with Jail(policy(top, "broker")) as jail:
        pid = jail._handle.info["pid"]
        inside(jail, f"answer(opened({top + '/first'!r}, os.O_CREAT | os.O_WRONLY))")
        guest = f"""
os.chdir({top!r})
print("ready", flush=True)
sys.stdin.read()
answer([opened("second", os.O_CREAT | os.O_WRONLY), attempt(os.mkdir, "free/folder"),
    opened("first", os.O_WRONLY), opened("/tmp/x", os.O_CREAT | os.O_WRONLY)])
"""
        # Of all in the jail only the broker has a capability: to look at guests.
        brokers = [p for p, status in children_of(pid).items() if int(status["CapPrm"], 16)]
        assert len(brokers) == 1
        os.kill(brokers[0], signal.SIGKILL)
        missing = errno.ENOSYS
        assert inside(jail, guest) == [missing, missing, 0, missing]
    assert not os.path.lexists(f"{top}/second")


def test_the_hosts_own_file_verbs_go_through_the_broker(top: str) -> None:
    """What the host asks for behind the wall is made, and a denied name is denied to it too."""
    with Jail(policy(top, "broker")) as jail:
        jail.write_bytes(f"{top}/report", b"text")
        jail.make_dir(f"{top}/folder")
        assert jail.read_bytes(f"{top}/report", max_bytes=10) == b"text"
        with pytest.raises(PathDenied):
            jail.write_bytes(f"{top}/.envrc", b"text")
        with pytest.raises(PathDenied):
            jail.make_dir(f"{top}/.git/hooks")
    assert sorted(os.listdir(top)) == [".git", "folder", "free", "report"]


def test_why_says_what_the_broker_makes(top: str) -> None:
    """No name that the broker refuses may be called allowed without a word."""
    asked = policy(top, "broker")
    assert asked.why("write", f"{top}/new").allowed
    assert asked.why("write", f"{top}/new").notes == ()
    above = asked.why("write", f"{top}/.github")
    assert above.allowed
    assert "only as a new folder" in above.notes[0]
    assert not asked.why("write", f"{top}/.github/workflows")
    assert not asked.why("write", f"{top}/.git/hooks/pre-commit")


def test_the_report_says_that_the_broker_was_tried(top: str) -> None:
    """A wall with a broker is proved twice: alone, and with the broker that could open it."""
    with Jail(policy(top, "broker")) as jail:
        report: Any = jail.report
    assert "creation broker" in report.mechanisms("deny_write[0]")
    held = {canary.name for canary in report.canaries if canary.held}
    for name in (".envrc", ".git/hooks"):
        assert {f"make {top}/{name}", f"have the broker make {top}/{name}"} <= held
    assert f"make {top}/.github" in held

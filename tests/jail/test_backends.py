"""Back ends: the one that is asked for or the first that can, and never less in silence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import jail_helpers
import pytest
from jail_helpers import (
    Egress,
    Jail,
    JailPolicy,
    Limits,
    backends,
    children_of,
    errno,
    inside,
    is_root,
    jail_by,
    outside,
    spawn,
    until,
)

import visruntime as vr
from visruntime import _native
from visruntime._jail import bubblewrap as _jail_bubblewrap
from visruntime._jail.diagnose import as_public_error
from visruntime._jail.plan import make_plan
from visruntime.errors import JailUnavailable, PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BARE = Limits(processes=None, scratch=None)
"""Limits that the back end landlock can hold."""


@pytest.fixture(params=backends())
def backend(request: pytest.FixtureRequest) -> str:
    """Return each back end that takes this caller."""
    name: str = request.param
    return name


def test_the_back_end_asked_for_is_the_one(backend: str) -> None:
    """No other back end than the one that was asked for may be used, and it is reported."""
    with jail_by(backend) as jail:
        assert jail.report.backend == backend
        assert jail.run(["sh", "-c", "echo $((40+2))"]).stdout == b"42\n"
        assert len(jail.report.canaries) > 10
        assert all(canary.held for canary in jail.report.canaries)
    with pytest.raises(ValueError, match="backend"):
        Jail(JailPolicy(), backend="docker")


def test_auto_takes_the_strongest() -> None:
    """Where visruntime's own namespaces open, auto must not take less."""
    with Jail(JailPolicy()) as jail:
        assert jail.report.backend == "namespaces"


def test_grants_hold(backend: str, workspace: Path, outside_folder: Path) -> None:
    """What is not granted must be out of reach, and what is granted must work."""
    read, write = workspace / "read", workspace / "write"
    for folder in (read, write):
        folder.mkdir()
        (folder / "file").write_text("x")
    secret = outside_folder / "secret"
    secret.write_text("top-secret")
    text = f"""
read, write, secret = {str(read)!r}, {str(write)!r}, {str(secret)!r}
answer([opened(read + "/file"), opened(read + "/file", os.O_WRONLY), opened(secret),
    opened(write + "/file", os.O_RDWR), attempt(os.mkdir, write + "/new"),
    attempt(os.mkdir, read + "/new"), attempt(os.rename, write + "/file", write + "/other"),
    attempt(os.listdir, os.path.dirname(secret)), attempt(os.truncate, read + "/file", 0),
    attempt(os.link, read + "/file", write + "/link") != 0])
"""
    assert outside(f"answer([opened({str(secret)!r}), opened({str(read)!r} + '/file', 1)])") == [
        0,
        0,
    ]
    hidden = errno.EACCES if backend == "landlock" else errno.ENOENT
    refused = errno.EACCES if backend == "landlock" else errno.EROFS
    with jail_by(backend, read=[read], write=[write]) as jail:
        got = inside(jail, text)
    assert got == [0, refused, hidden, 0, 0, refused, 0, hidden, refused, True]
    assert (write / "new").is_dir()
    assert secret.read_text() == "top-secret"


@pytest.fixture
def outside_folder(tmp_path: Path) -> Path:
    """Return a folder that no test grants, where the jails have no place of their own."""
    folder = tmp_path.resolve() / "elsewhere"
    folder.mkdir()
    return folder


def test_nothing_outlives_a_closed_jail(backend: str) -> None:
    """Daemons, their children and stopped programs must end with the jail."""
    text = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nos.fork()\ntime.sleep(90)\n"
    jail = jail_by(backend)
    spawn(jail, ["/usr/bin/python3", "-IBS", "-c", text + "\n"])
    process = spawn(jail, ["sh", "-c", "(setsid sleep 91 &) ; sleep 92"])
    assert until(lambda: len(sleepers()) >= 2)
    jail.close()
    assert until(lambda: not sleepers(), seconds=2)
    assert process.wait(timeout=5) is not None
    assert jail.closed


def sleepers() -> list[int]:
    """Return the pids of the programs of these tests that sleep."""
    return [p for p, s in children_of(os.getpid()).items() if s["Name"] in ("sleep", "python3")]


def test_a_run_ends_with_all_that_it_started(backend: str) -> None:
    """When the program has ended nothing of its run may be left, a daemon neither."""
    with jail_by(backend) as jail:
        result = jail.run(["sh", "-c", "(setsid sleep 93 &); (setsid setsid sleep 94 &); exit 3"])
        assert result.exit_code == 3
        assert not sleepers()
        late = time.monotonic()
        with pytest.raises(vr.CommandTimeout):
            jail.run(["sh", "-c", "(setsid sleep 95 &); sleep 96"], timeout=0.3)
        assert time.monotonic() - late < 5
        assert not sleepers()
        assert jail.run(["true"]).exit_code == 0


HOST = """
import sys, time
sys.path.insert(0, {tests!r})
from jail_helpers import jail_by
jail = jail_by({backend!r})
p = jail.spawn(["sh", "-c", "(setsid sleep 97 &); sleep 98"])
print("open", flush=True)
time.sleep(60)
"""


def test_nothing_outlives_a_killed_host(backend: str) -> None:
    """When the host is killed, the jail and all in it must be gone after a second."""
    text = HOST.format(tests=os.path.dirname(jail_helpers.__file__), backend=backend)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == b"open\n"
            assert until(lambda: len(named("sleep")) >= 2)
            before = children_of(host.pid)
            assert before
        finally:
            host.kill()
    assert until(lambda: not (before.keys() & set(alive(before))), seconds=2)


def named(name: str) -> list[int]:
    """Return the descendants of this process with a name."""
    return [p for p, s in children_of(os.getpid()).items() if s["Name"] == name]


def alive(pids: object) -> list[int]:
    """Return which of *pids* still live, zombies left out."""
    found = []
    for pid in pids:  # type: ignore[attr-defined]
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] != "Z":
                    found.append(pid)
        except OSError:
            continue
    return found


def test_a_killed_supervisor_ends_its_runs(backend: str) -> None:
    """A supervisor that is killed from outside must take its runs along."""
    with jail_by(backend) as jail:
        process = spawn(jail, ["sh", "-c", "(setsid sleep 99 &); sleep 100"])
        assert until(lambda: len(named("sleep")) >= 2)
        os.kill(jail._handle.info["pid"], signal.SIGKILL)
        process.wait(timeout=5)
        assert process.stopped_by == "closed"
        assert until(lambda: not named("sleep"), seconds=2)
        with pytest.raises(vr.JailClosed):
            jail.run(["true"])


def test_a_terminal(backend: str) -> None:
    """A terminal must be one, and no line must get from the guest into the host's input."""
    text = (
        "import os, fcntl\n"
        "print(os.isatty(0), os.get_terminal_size(0)[1])\n"
        "try: fcntl.ioctl(0, 0x5412, b'x')\n"
        "except OSError as error: print('TIOCSTI', error.errno)\n"
    )
    with jail_by(backend) as jail:
        process = spawn(
            jail, ["/usr/bin/python3", "-IBS", "-c", text], pty=True, rows=31, timeout=20
        )
        shown, _ = process.communicate()
    assert shown.split() == [b"True", b"31", b"TIOCSTI", b"1"]


def test_python_works(backend: str) -> None:
    """A worker must run code, call back and be interrupted under each back end."""
    limits = BARE if backend == "landlock" else Limits()
    with vr.Runtime(JailPolicy(limits=limits), backend=backend) as runtime:
        runtime.expose("double", lambda number: 2 * number)
        assert (
            runtime.run("import asyncio\nasyncio.run(asyncio.sleep(0.01)) or double(21)").value
            == 42
        )
        assert runtime.run("open('/etc/shadow')").error is not None
        with pytest.raises(vr.CommandTimeout):
            runtime.run("while True: pass", timeout=0.3)


def test_egress_open_says_what_it_shares(backend: str) -> None:
    """The report must say that the host's loopback is shared, and it must be."""
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        jail_by(backend, egress=Egress.OPEN) as jail,
    ):
        port = server.getsockname()[1]
        text = f"answer(attempt(socket.create_connection, ('127.0.0.1', {port})))"
        assert inside(jail, text) == 0
        clause = next(c for c in jail.report.clauses if c.clause == "egress")
        assert "loopback" in clause.note
        assert any("loopback" in note for note in jail.report.notes)
        with jail_by(backend) as closed:
            assert inside(closed, text) != 0


# ---- what a back end refuses --------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "field", "rules"),
    [
        ("landlock", "limits.processes", {"limits": Limits(scratch=None)}),
        ("landlock", "limits.scratch", {"limits": Limits(processes=None)}),
        ("landlock", "system", {"system": "host"}),
        ("landlock", "deny_exec[0]", {"deny_exec": ["/usr/bin/env"]}),
        ("landlock", "read[0]", {"read": ["/var"]}),
        *([] if is_root() else [("bubblewrap", "deny_exec[0]", {"deny_exec": ["/usr/bin/env"]})]),
    ],
)
def test_what_cannot_be_held_is_refused_by_name(
    backend: str, field: str, rules: dict[str, object]
) -> None:
    """A clause that the back end cannot hold must be refused, with its name and the back end's."""
    if backend in backends(backend):
        with pytest.raises(PolicyUnsupported, match=backend) as caught:
            jail_by(backend, **rules)
        assert caught.value.field == field


@pytest.mark.parametrize("kind", ["deny", "deny_read", "deny_write", "read"])
def test_landlock_takes_nothing_away_below_a_grant(workspace: Path, kind: str) -> None:
    """Less below a grant must be refused by name, and more below a grant must work."""
    inner = workspace / "inner"
    inner.mkdir()
    with pytest.raises(PolicyUnsupported, match=str(inner)):
        jail_by("landlock", write=[workspace], **{kind: [inner]})
    with jail_by("landlock", read=[workspace], write=[inner]) as jail:
        text = f"""
answer([attempt(os.mkdir, folder + "/a") for folder in ({str(inner)!r}, {str(workspace)!r})])
"""
        assert inside(jail, text) == [0, errno.EACCES]


NAMED = """
import socket
def named(kind, act):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    except OSError as error:
        return [error.errno, tried(one, act), bool(one.getsockname())]
    return [0, tried(one, act), bool(one.getsockname())]
def tried(one, act):
    try:
        act(one)
    except OSError as error:
        return error.errno
    return 0
answer([
    named(socket.SOCK_STREAM, lambda one: one.connect("\\0no such name")),
    named(socket.SOCK_SEQPACKET, lambda one: one.send(b"x")),
])
"""


def test_landlock_gives_no_name_to_a_pair_of_sockets() -> None:
    """Without a network namespace it would be one of the host's, and a connect would find others."""
    assert outside(NAMED) == [[0, errno.ECONNREFUSED, True], [0, 0, True]]
    with jail_by("landlock") as jail:
        assert inside(jail, NAMED) == [[errno.EPERM, errno.EPERM, False], [errno.EPERM, 0, False]]


@pytest.mark.parametrize("backend", backends())
def test_files_move_between_the_folders_of_a_grant(backend: str, workspace: Path) -> None:
    """A layer of Landlock that speaks of other things must not keep files where they are."""
    for name in ("one", "other"):
        (workspace / name).mkdir()
    text = f"""
os.chdir({str(workspace)!r})
open("one/file", "w").close()
answer([attempt(os.rename, "one/file", "other/file"), attempt(os.link, "other/file", "one/again")])
"""
    with jail_by(backend, write=[workspace]) as jail:
        assert inside(jail, text) == [0, 0]
    assert os.path.samefile(workspace / "other/file", workspace / "one/again")


def test_landlock_hides_the_private_keys_of_the_system() -> None:
    """A folder that the system's own grant leaves out must not be readable by that grant."""
    from visruntime._jail.backends import without_denied

    assert without_denied("/usr", ["/etc/x"]) == ["/usr"]
    around = without_denied("/usr", ["/usr/bin"])
    assert "/usr/lib" in around
    assert not any(each == "/usr" or each.startswith("/usr/bin") for each in around)
    with jail_by("landlock") as jail:
        text = (
            "answer([attempt(os.listdir, p) for p in ('/etc', '/etc/ssl/private', '/', '/proc')])"
        )
        got = inside(jail, text)
    assert set(got) <= {errno.EACCES, errno.ENOENT}


@pytest.mark.skipif(is_root(), reason="root may do all this to any file, so it proves nothing")
def test_landlock_alone_changes_nothing_of_the_host(workspace: Path) -> None:
    """Owners, modes, times, attributes and IPC of the caller must be out of a guest's reach."""
    granted, other = workspace / "granted", workspace / "other"
    for path in (granted, other):
        path.write_text("x")
    files = f"""
got = []
for path in ({str(granted)!r}, {str(other)!r}):
    got += [attempt(os.chmod, path, 0o600), attempt(os.utime, path, (1, 1)),
        attempt(os.chown, path, os.getuid(), os.getgid()),
        attempt(os.setxattr, path, "user.a", b"x")]
answer(got)
"""
    assert set(outside(files)) == {0}
    os.utime(granted, (9, 9))
    with subprocess.Popen(["sleep", "101"]) as target:
        try:
            rest = f"""
answer([attempt(os.sched_setaffinity, {target.pid}, [0]),
    attempt(os.setpriority, 0, {target.pid}, 5), attempt(os.kill, {target.pid}, 0),
    attempt(lambda: socket.socket(socket.AF_UNIX).close()),
    0 if libc.shmget({target.pid}, 4096, 0o1600) >= 0 else ctypes.get_errno()])
"""
            with jail_by("landlock", read=[granted]) as jail:
                assert set(inside(jail, files)) == {errno.EPERM}
                refused = [errno.EPERM] * 3 + [errno.EAFNOSUPPORT, errno.EPERM]
                assert inside(jail, rest) == refused
            assert outside("import subprocess\n" + rest.replace("[0])", "[0, 1])")) == [0] * 5
        finally:
            target.kill()
            subprocess.run(["ipcrm", "-M", str(target.pid)], check=False, capture_output=True)
    assert granted.stat().st_mtime == 9


def test_landlock_tells_no_attribute_of_a_file(workspace: Path) -> None:
    """Landlock does not see who asks for them by path; ordinary tools must go on without."""
    granted, other = workspace / "granted", workspace / "other"
    granted.mkdir()
    (granted / "file").write_text("x")
    for path in (granted / "file", other):
        path.touch()
        os.setxattr(path, "user.token", b"value")
    text = f"""
ways = [lambda p: os.getxattr(p, "user.token"), os.listxattr,
    lambda p: os.getxattr(p, "user.token", follow_symlinks=False),
    lambda p: os.listxattr(p, follow_symlinks=False),
    lambda p: os.getxattr("/proc/self/fd/%d" % os.open(p, os.O_PATH), "user.token")]
answer([attempt(way, {str(other)!r}) for way in ways])
"""
    assert outside(text) == [0] * 5
    tools = "ls -l . && cp file copy && tar cf archive file copy"
    with jail_by("landlock", write=[granted]) as jail:
        assert inside(jail, text) == [errno.ENOTSUP] * 5
        result = jail.run(["sh", "-c", f"cd '{granted}' && {tools}"])
    assert (result.exit_code, result.stderr_text) == (0, "")


def test_a_root_caller_gets_no_bubblewrap() -> None:
    """Where no ids are mapped a root caller must be refused, by name and with the way out."""
    if not is_root():
        assert "bubblewrap" in backends("bubblewrap")
        return
    with pytest.raises(JailUnavailable, match="namespaces") as caught:
        Jail(JailPolicy(), backend="bubblewrap")
    assert caught.value.stage == "bubblewrap"


# ---- the system's bubblewrap ----------------------------------------------------------


def test_only_roots_bubblewrap_is_used(tmp_path: Path, tool: Callable[[str], str]) -> None:
    """A bwrap that others could have put there, or that is set-uid, must not be run."""
    with pytest.raises(JailUnavailable, match="not installed"):
        _jail_bubblewrap.find_bubblewrap([str(tmp_path / "absent")])
    other = tmp_path / "bwrap"
    other.write_text("#!/bin/sh\ntouch ran\n")
    other.chmod(0o755)
    with pytest.raises(JailUnavailable, match=r"belongs to uid|can be written by others"):
        _jail_bubblewrap.find_bubblewrap([str(other)])
    assert not (tmp_path / "ran").exists()
    assert _jail_bubblewrap.find_bubblewrap([tool("bwrap")]) == os.path.realpath(tool("bwrap"))


def test_the_probe_sees_whether_links_are_followed(
    tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """The answer of the probe must be what the binary really does with a planted link."""
    bwrap = tool("bwrap")
    top = tmp_path.resolve()
    (top / "aside").mkdir()
    (top / "link").symlink_to("aside")
    command = [bwrap, "--unshare-user", "--ro-bind", "/", "/", "--bind", str(top), str(top)]
    command += ["--dir", f"{top}/link/made", "--", bwrap, "--version"]
    subprocess.run(command, capture_output=True, check=False, env={})
    followed = (top / "aside" / "made").exists()
    assert _jail_bubblewrap.follows_links(bwrap) is followed


@pytest.mark.skipif(is_root(), reason="bubblewrap takes no root caller")
def test_no_mount_where_a_guest_could_have_put_a_link(
    workspace: Path, tool: Callable[[str], str]
) -> None:
    """With a bwrap that follows links, no mount point may lie where others than root write."""
    secret = workspace / "secret"
    secret.mkdir()
    policy = JailPolicy(write=[workspace], deny=[secret])
    if not _jail_bubblewrap.follows_links(tool("bwrap")):
        with Jail(policy, backend="bubblewrap") as jail:
            assert inside(jail, f"answer(attempt(os.listdir, {str(secret)!r}))") == errno.EACCES
        return
    with pytest.raises(PolicyUnsupported, match=r"follows links") as caught:
        Jail(policy, backend="bubblewrap")
    assert str(secret) in str(caught.value)
    with Jail(JailPolicy(read=["/etc"], deny=["/etc/ssl"]), backend="bubblewrap") as jail:
        assert inside(jail, "answer(attempt(os.listdir, '/etc/ssl'))") == errno.EACCES


def test_a_bubblewrap_that_makes_another_jail_is_unavailable() -> None:
    """What it made wrong is no fault of the policy, and must be called by its name."""
    error = _native.NativeError("system", "mount verification", errno.EPROTO, -1, "")
    public = as_public_error(error, b"")
    assert isinstance(public, JailUnavailable)
    assert "not the one it was asked for" in str(public)


def test_what_a_trial_of_a_jail_leaves_behind_is_named() -> None:
    """It is made where the policy wants no name, and somebody has to remove it."""
    plan = make_plan(JailPolicy()).blob
    error = _native.NativeError("system", "canary left", errno.EPERM, 1, "")
    public = as_public_error(error, plan)
    assert isinstance(public, JailUnavailable)
    assert public.stage == "canaries"
    assert f"{_native.plan_path(plan, 1)} could be made" in str(public)


@pytest.mark.skipif(is_root(), reason="bubblewrap takes no root caller")
def test_many_rules_go_by_descriptor(workspace: Path, tool: Callable[[str], str]) -> None:
    """More grants than a command line holds must work, and more than bwrap takes be refused."""
    tool("bwrap")
    names = [workspace / f"{number:04}" for number in range(900)]
    for name in names:
        name.mkdir()
    with Jail(JailPolicy(read=names), backend="bubblewrap") as jail:
        got = inside(
            jail, f"answer([len(os.listdir({str(workspace)!r})), opened({str(names[7])!r})])"
        )
    assert got[1] == 0
    assert got[0] in (len(names), errno.EACCES)


# ---- the command line -------------------------------------------------------------------


def test_the_command_line_takes_a_back_end(backend: str, tmp_path: Path) -> None:
    """--backend must decide, and what it cannot hold must end with 125 and the clause's name."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "visruntime", "exec", "--backend", backend]
    bare = ["--processes", "none", "--scratch", "none"]
    done = subprocess.run(
        [*command, *bare, "--report", str(report), "--", "echo", "hi"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr
    assert json.loads(report.read_text())["backend"] == backend
    refused = subprocess.run(
        [*command, "--deny-exec", "/usr/bin/env", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    if backend == "namespaces":
        assert refused.returncode == 0
    else:
        assert refused.returncode == 125
        assert "deny_exec[0]" in refused.stderr


def test_all_that_landlock_cannot_hold_is_told_at_once() -> None:
    """With one clause after the other, each try would only show the next."""
    policy = vr.JailPolicy(limits=vr.Limits(memory=1 << 30, memory_by="watch"), inbound={8000: 0})
    with pytest.raises(PolicyUnsupported) as caught:
        vr.Jail(policy, backend="landlock")
    said = str(caught.value)
    for clause in ("inbound", "limits.processes", "limits.memory", "limits.scratch"):
        assert f"{clause}: " in said
    assert "--processes none" in said
    assert caught.value.field == "inbound"

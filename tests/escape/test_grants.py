"""What comes along with a grant: mounts, sockets, FIFOs, set-id files, descriptors, devices."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Jail,
    JailPolicy,
    errno,
    inside,
    is_root,
    outside,
    policy_of,
    spawn,
)

from visruntime.errors import PathDenied, PolicyError, PolicyUnsupported
from visruntime.jail import PIPE

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT = "answer(attempt(socket.socket(socket.AF_UNIX).connect, {path!r}))"
UNSHARE = (
    ("unshare", "--mount") if is_root() else ("unshare", "--user", "--map-root-user", "--mount")
)


@contextlib.contextmanager
def listening(top: Path) -> Iterator[Path]:
    """A listening host socket in a folder of its own in *top*, bound by a relative name."""
    folder = top / "folder"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(folder)
        try:
            server.bind("s")
        finally:
            os.fchdir(here)
            os.close(here)
        server.listen()
        yield folder / "s"
    folder.chmod(0o755)


@pytest.fixture
def listener(workspace: Path) -> Iterator[Path]:
    """Such a socket in the workspace."""
    with listening(workspace) as path:
        yield path


@pytest.mark.parametrize("mode", [0o755, 0o311, 0o000, 0o400, 0o600])
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_socket_in_a_folder_that_cannot_be_listed(listener: Path, kind: str, mode: int) -> None:
    """A guest must not reach a socket because the folder around it hides it from the search."""
    connect = CONNECT.format(path=str(listener))
    assert outside(connect) == 0
    listener.parent.chmod(mode)
    # An earlier guest may have prepared the folder; this one opens it again, if it may.
    open_up = f"attempt(os.chmod, {str(listener.parent)!r}, 0o755)\n"
    grant = [listener.parents[1]]
    policy = JailPolicy(read=grant) if kind == "read" else JailPolicy(write=grant)
    with Jail(policy) as jail:
        assert inside(jail, open_up + connect) == errno.EACCES


def test_a_socket_of_the_hosts_root_that_was_bound_by_a_relative_name() -> None:
    """With the host's whole root visible, no socket is, whatever the kernel calls it."""
    place = Path(os.path.expanduser("~"), f".vis-socket-{os.getpid()}")
    place.mkdir()
    try:
        with listening(place) as listener:
            connect = CONNECT.format(path=str(listener))
            assert outside(connect) == 0
            with Jail(JailPolicy(system="host")) as jail:
                # A home below a private place is not there at all.
                private = str(place).startswith(("/tmp/", "/var/tmp/"))
                assert inside(jail, connect) == (errno.ENOENT if private else errno.EACCES)
    finally:
        shutil.rmtree(place)


def test_more_sockets_than_can_be_masked_are_refused(workspace: Path) -> None:
    """A grant full of sockets is refused in words, and soon."""
    for number in range(1100):
        os.mknod(workspace / str(number), 0o140600)
    with pytest.raises(PolicyUnsupported, match="too many sockets"):
        Jail(JailPolicy(read=[workspace]))


def test_a_fifo_where_nothing_may_be_written(workspace: Path) -> None:
    """A read-only mount does not keep a guest from a FIFO, so it is masked."""
    (workspace / "ro").mkdir()
    paths = [workspace / "ro" / "f", workspace / "f"]
    for path in paths:
        os.mkfifo(path)
    readers = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in paths]
    text = f"answer([opened(p, os.O_WRONLY) for p in {[str(path) for path in paths]}])"
    try:
        assert outside(text) == [0, 0]
        with Jail(JailPolicy(write=[workspace], read=[workspace / "ro"])) as jail:
            assert inside(jail, text) == [errno.EACCES, 0]
    finally:
        for reader in readers:
            os.close(reader)


def test_a_set_id_file_in_a_write_grant_of_root(workspace: Path) -> None:
    """Root's set-id programs must not get new content: a shared mapping would keep the bit."""
    tool = workspace / "tool"
    tool.write_bytes(b"x")
    tool.chmod(0o4755)
    text = f"answer(opened({str(tool)!r}, os.O_RDWR))"
    assert outside(text) == 0
    with Jail(JailPolicy(write=[workspace])) as jail:
        # An ordinary caller's own files give nobody more than that caller has.
        assert inside(jail, text) == (errno.EROFS if is_root() else 0)


@pytest.mark.parametrize("what", ["proc", "alias"])
def test_mounts_that_would_undo_the_policy(workspace: Path, what: str) -> None:
    """A kernel file system below a grant, or a second mount of what is denied, is refused."""
    for name in ("secret", "other"):
        (workspace / name).mkdir()
    source = "/proc" if what == "proc" else workspace / "secret"
    rules = f"read=[{str(workspace)!r}]" + (
        "" if what == "proc" else f", deny=[{str(workspace / 'secret')!r}]"
    )
    script = (
        "import sys, visruntime as vr\nfrom visruntime._jail.plan import make_plan\n"
        f"try: make_plan(vr.JailPolicy({rules}))\n"
        "except vr.PolicyUnsupported as error: print(error)\n"
        "else: print('planned')\n"
    )

    def plan(*prefix: str) -> str:
        command = [*prefix, sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert plan() == "planned\n"
    mounted = [
        *UNSHARE,
        "sh",
        "-c",
        f'mount --rbind "{source}" "{workspace}/other" && exec "$@"',
        "sh",
    ]
    shown = plan(*mounted)
    assert f"{workspace}/other" in shown
    assert ("is a mounted proc" if what == "proc" else "second mount") in shown


OVERLAY = """
mount -t tmpfs none "$1/top" && cd "$1/top" && mkdir lower up work merged
echo genuine > lower/secret
mount -t overlay none -o "lowerdir=$2lower,upperdir=$2up,workdir=$2work" merged
cd / && shift 2 && exec "$@"
"""


@pytest.mark.parametrize("denied", ["lower", "merged", "up", "lower/secret", "merged/secret"])
@pytest.mark.parametrize("full", [True, False])
def test_an_overlay_does_not_show_what_is_denied(workspace: Path, denied: str, full: bool) -> None:  # noqa: FBT001
    """What an overlay shows a second time, or a layer of it, must be denied by both names."""
    (workspace / "top").mkdir()
    top = f"{workspace}/top"
    script = (
        "import sys, visruntime as vr\nfrom visruntime._jail.plan import make_plan\n"
        "print(open(sys.argv[1] + '/merged/secret').read())\n"
        "for rules in [sys.argv[2:3], sys.argv[2:]]:\n"
        "    try: make_plan(vr.JailPolicy(read=[sys.argv[1]], deny=rules))\n"
        "    except vr.PolicyUnsupported as error: print(error)\n"
        "    else: print('planned')\n"
    )
    every = [f"{top}/{name}" for name in (denied, "lower", "merged", "up")]
    layers = f"{top}/" if full else ""
    command = [*UNSHARE, "sh", "-ec", OVERLAY, "sh", str(workspace), layers]
    command += [sys.executable, "-c", script, top, *every]
    got = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert got[0] == "genuine"  # control: the second name leads to it
    assert got[2].startswith("deny[0]: ")
    assert "overlay" in got[2]
    # With full paths all names are known; of others the overlay itself may not be denied.
    assert got[3] == "planned" if full else got[3].startswith("deny")


@pytest.mark.skipif(not is_root(), reason="only root can have folders of others in a grant")
@pytest.mark.parametrize("kind", ["deny", "deny_write", "unasked"])
@pytest.mark.parametrize("inner", ["file", "in/file"])
def test_what_lies_in_a_folder_that_is_closed_to_the_guest(
    workspace: Path, kind: str, inner: str
) -> None:
    """A rule below another user's closed folder must hold, also once that folder is opened."""
    closed = workspace / "open" / "closed"
    path = closed / inner
    path.parent.mkdir(parents=True)
    path.write_text("x")
    for each in (path, closed, path.parent):
        os.chown(each, 2000, 2000)
    path.chmod(0o4666 if kind == "unasked" else 0o666)
    closed.chmod(0o700)
    for top in (workspace, workspace / "open"):
        os.chown(top, 1000, 1000)
    rules = {} if kind == "unasked" else {kind: [path]}
    text = f"answer([opened({str(path)!r}), opened({str(path)!r}, os.O_WRONLY)])"
    with Jail(policy_of(write=[workspace], **rules)) as jail:
        closed.chmod(0o777)
        got = inside(jail, text)
    assert set(got) <= {errno.EACCES, errno.ENOENT}
    assert outside(text) == [0, 0]
    closed.chmod(0o700)
    with pytest.raises(PolicyError, match=rf"{closed} \(of user 2000, mode 0700\) is closed"):
        Jail(policy_of(write=[workspace], read=[path]))


@pytest.mark.parametrize("what", ["stdin", "pass_fds"])
def test_what_a_guest_can_do_to_a_file_that_was_passed(outside_file: Path, what: str) -> None:
    """A file that was opened for reading must not be written, but its owner may change its mode."""
    text = """
p = "/proc/self/fd/%d"
answer([opened(p, os.O_RDWR), attempt(os.ftruncate, %d, 0), attempt(os.fchmod, %d, 0o640),
    attempt(os.utime, %d, (1, 1))])
"""
    number = 0 if what == "stdin" else 5
    text %= (number,) * 4
    outside_file.chmod(0o600)
    with outside_file.open("rb") as stream:
        assert outside(text, stdin=stream) == [0, errno.EINVAL, 0, 0] if number == 0 else True
        outside_file.chmod(0o600)
        options = {"stdin": stream} if number == 0 else {"pass_fds": {5: stream.fileno()}}
        with Jail(JailPolicy()) as jail:
            process = spawn(jail, [PYTHON, "-IBS", "-c", PRELUDE + text], stdout=PIPE, **options)
            got = json.loads(process.communicate()[0])
            process.close()
    assert got[:2] == [errno.EACCES, errno.EINVAL]
    # SECURITY.md says so: a root caller's guest is another user, any other is the caller.
    assert got[2:] == ([errno.EPERM, errno.EPERM] if is_root() else [0, 0])
    assert outside_file.stat().st_mode & 0o777 == (0o600 if is_root() else 0o640)
    assert outside_file.read_text() == "top-secret"


def test_a_descriptor_does_not_open_what_the_policy_closes(workspace: Path) -> None:
    """A guest may open a file anew by its descriptor; one that it may not write is not passed."""
    (workspace / "ro").mkdir()
    file = workspace / "ro" / "f"
    file.write_text("original")
    text = "answer(opened('/proc/self/fd/0', os.O_RDWR))"
    with file.open("rb") as stream:
        assert outside(text, stdin=stream) == 0
    with Jail(JailPolicy(write=[workspace], read=[workspace / "ro"])) as jail:
        with file.open("rb") as stream, pytest.raises(PathDenied, match="stdin"):
            jail.spawn(["cat"], stdin=stream)
        folder = os.open(workspace, os.O_RDONLY)
        try:
            with pytest.raises(ValueError, match="pass_fds"):
                jail.spawn(["cat"], pass_fds={3: folder})
        finally:
            os.close(folder)
    assert file.read_text() == "original"


def test_the_devices_of_the_host_keep_their_times_and_modes() -> None:
    """A jail's /dev/null is the host's device: a guest must not change what it shares."""
    text = "answer([attempt(os.utime, '/dev/null'), opened('/dev/null', os.O_RDWR)])"
    assert outside(text) == [0, 0]
    with Jail(JailPolicy()) as jail:
        assert inside(jail, text) == [errno.EROFS, 0]


def test_a_guest_takes_no_lease(workspace: Path) -> None:
    """A lease on a file that may only be read would stall the host's own open of it."""
    (workspace / "f").write_text("x")
    text = f"""
import fcntl
file = os.open({str(workspace / "f")!r}, os.O_RDONLY)
answer([attempt(fcntl.fcntl, file, 1024, fcntl.F_RDLCK), attempt(fcntl.fcntl, file, 1026, 1)])
"""
    assert outside(text)[0] == 0
    with Jail(JailPolicy(read=[workspace])) as jail:
        assert inside(jail, text) == [errno.EPERM, errno.EPERM]


def test_installed_code_that_is_linked_into_other_environments(workspace: Path) -> None:
    """Installers link one file into many environments: a guest must not write to all of them."""
    grant = workspace / "grant"
    packages = grant / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (workspace / "host.py").write_text("original")
    os.link(workspace / "host.py", packages / "code.py")
    (grant / "a").write_text("a")
    os.link(grant / "a", grant / "b")
    os.link(workspace / "host.py", grant / "data")
    text = (
        f"answer([opened(p, os.O_WRONLY) for p in {[str(packages / 'code.py'), str(grant / 'a')]}])"
    )
    assert outside(text) == [0, 0]
    with Jail(JailPolicy(write=[grant])) as jail:
        assert inside(jail, text) == [errno.EROFS, 0]
        assert jail.report.mechanisms(f"protected {packages}") == ("mount",)
        assert [note for note in jail.report.notes if note.startswith("linked_outside: 1 ")]
    assert (workspace / "host.py").read_text() == "original"


@pytest.mark.parametrize("mode", [0o400, 0o000])
def test_a_protected_folder_that_an_earlier_guest_closed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """What the host trusts below a grant is protected, or the grant refused, however it is hidden."""
    cache = workspace / "c" / "uv"
    cache.mkdir(parents=True)
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    text = f"""
attempt(os.chmod, {str(cache.parent)!r}, 0o755)
answer(attempt(os.mkdir, {str(cache / "evil")!r}))
"""
    assert outside(text) == 0
    (cache / "evil").rmdir()
    cache.parent.chmod(mode)
    policy = JailPolicy(write=[workspace])
    try:
        if is_root():  # root looks anywhere
            with Jail(policy) as jail:
                assert inside(jail, text) == errno.EROFS
        else:
            with pytest.raises(PolicyUnsupported, match=str(cache.parent)):
                Jail(policy)
    finally:
        cache.parent.chmod(0o755)
    assert not (cache / "evil").exists()


def test_the_file_that_a_policy_was_read_from(workspace: Path) -> None:
    """A guest must not write the policy of the next jail, though its file lies in the grant."""
    file = workspace / "visruntime.toml"
    file.write_text('write = ["."]\n')
    text = f"answer([opened({str(file)!r}, os.O_WRONLY), opened({str(workspace / 'f')!r}, os.O_CREAT)])"
    assert outside(text) == [0, 0]
    loaded = JailPolicy.load(file)
    assert loaded == JailPolicy.from_dict(loaded.to_dict())
    for policy in (loaded, loaded.replace(system="minimal"), loaded.narrow(loaded)):
        with Jail(policy) as jail:
            assert inside(jail, text) == [errno.EROFS, 0]


def test_a_folder_that_is_closed_only_while_the_jail_opens(workspace: Path) -> None:
    """Who may close a folder may open it again: what is denied in it must stay denied."""
    folder = workspace / "folder"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    text = f"answer(opened({str(folder / 'secret')!r}))"
    assert outside(text) == 0
    if is_root():
        os.chown(folder, 1000, 1000)  # another uid than the guest's
    folder.chmod(0o700 if is_root() else 0)
    policy = JailPolicy(read=[workspace], deny=[folder / "secret"])
    try:
        if is_root():
            with Jail(policy) as jail:
                assert inside(jail, text) == errno.EACCES
                folder.chmod(0o755)
                assert inside(jail, text) == errno.EACCES
        else:
            with pytest.raises(PolicyUnsupported):
                Jail(policy)
    finally:
        folder.chmod(0o755)


def test_a_descriptor_of_a_file_that_may_not_be_read(workspace: Path) -> None:
    """A log that the guest writes by a descriptor must not be readable through it."""
    log = workspace / "log"
    log.write_text("secret")
    with log.open("ab") as stream:  # for writing only; opened anew, it is read
        assert outside("answer(opened('/proc/self/fd/0'))", stdin=stream) == 0
    policy = JailPolicy(read=[workspace], deny=[log])
    with (
        Jail(policy) as jail,
        log.open("ab") as stream,
        pytest.raises(PathDenied, match="stdout"),
    ):
        jail.spawn(["true"], stdout=stream)

"""Boundary: files. What is not granted cannot be read, changed or run, by any call."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jail_helpers import Egress, Jail, JailPolicy, errno, inside, outside, policy_of

READS = """
answer([
    opened(PATH),
    opened(PATH, os.O_RDWR),
    opened(PATH, os.O_WRONLY | os.O_TRUNC),
    attempt(os.truncate, PATH, 0),
    opened("/proc/self/cwd" + PATH),
    opened("/proc/self/root" + PATH),
    attempt(os.listdir, os.path.dirname(PATH)),
])
"""


def snapshot(top: Path) -> dict[str, Any]:
    """Return content, mode, owner and times of everything below *top*, times of reading aside."""
    found = {}
    for path in sorted([top, *top.rglob("*")]):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (data, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
def test_what_is_not_granted_does_not_exist(outside_file: Path, egress: Egress) -> None:
    """A file beside all grants must not be opened by any name or flag."""
    text = f"PATH = {str(outside_file)!r}\n" + READS
    assert outside(text)[:2] == [0, 0]
    outside_file.write_text("secret")
    with Jail(JailPolicy(egress=egress)) as jail:
        assert set(inside(jail, text)) == {errno.ENOENT}
    assert outside_file.read_text() == "secret"


@pytest.mark.parametrize("grant", ["read", "write"])
@pytest.mark.parametrize("kind", ["deny", "deny_read"])
def test_fs_03_a_denied_file_inside_a_grant(workspace: Path, grant: str, kind: str) -> None:
    """The deny of a file must hold in a readable and in a writable grant, for every program."""
    secret = workspace / ".env"
    secret.write_text("TOP-SECRET")
    (workspace / "plain").write_text("plain")
    text = f"""
p = {str(secret)!r}
answer([opened(p), opened(p, os.O_WRONLY), attempt(os.truncate, p, 0), attempt(os.chmod, p, 0o644),
    attempt(os.utime, p), attempt(os.rename, p, p + "2"), attempt(os.unlink, p),
    attempt(os.link, p, p + "3"), opened("/proc/self/root" + p), attempt(os.execv, p, [p])])
"""
    with Jail(policy_of(**{grant: [workspace], kind: [secret]})) as jail:
        got = inside(jail, text)
        read_only = grant == "read"
        assert got[0] == got[8] == errno.EACCES
        assert got[1] == errno.EACCES
        assert got[2] == errno.EACCES
        assert got[3] == got[4] == errno.EROFS
        assert got[5] in ((errno.EROFS, errno.EBUSY) if read_only else (errno.EBUSY,))
        assert got[6] in ((errno.EROFS, errno.EBUSY) if read_only else (errno.EBUSY,))
        assert got[7] in (errno.EXDEV, errno.EROFS, errno.EPERM, errno.EACCES)
        assert got[9] == errno.EACCES
        for command in (
            f"cat {secret}",
            f"cp {secret} {workspace}/x",
            f"tar cf - {secret}",
            f"git -C {workspace} diff --no-index /dev/null .env",
            f"dd if={secret}",
        ):
            result = jail.shell(command)
            assert result.exit_code != 0, command
            assert b"TOP-SECRET" not in result.stdout + result.stderr, command
        assert jail.shell(f"cat {workspace}/plain").stdout == b"plain"
    assert all(b"TOP-SECRET" not in p.read_bytes() for p in workspace.rglob("*") if p != secret)
    assert secret.read_text() == "TOP-SECRET"
    unjailed = subprocess.run(["cat", secret], capture_output=True, check=True)
    assert unjailed.stdout == b"TOP-SECRET"


@pytest.mark.parametrize("grant", ["read", "write"])
def test_fs_01_a_denied_folder_refuses_reading_and_writing(workspace: Path, grant: str) -> None:
    """No write into a denied folder may seem to succeed, nor anything of it be seen."""
    folder = workspace / "secret"
    folder.mkdir()
    (folder / "k").write_text("key")
    text = f"""
d = {str(folder)!r}
answer([attempt(os.listdir, d), opened(d + "/k"), opened(d + "/new", os.O_CREAT | os.O_WRONLY),
    attempt(os.mkdir, d + "/sub"), attempt(os.rename, d, d + "2"), attempt(os.rmdir, d),
    attempt(os.chdir, d), attempt(os.chmod, d, 0o755)])
"""
    with Jail(policy_of(**{grant: [workspace], "deny": [folder]})) as jail:
        got = inside(jail, text)
        assert got[:4] == [errno.EACCES, errno.EACCES, errno.EACCES, errno.EACCES]
        assert got[4] in (errno.EBUSY, errno.EROFS)
        assert got[5] in (errno.EBUSY, errno.EROFS)
        assert got[6] == errno.EACCES
        assert got[7] == errno.EROFS
        script = f"echo X > {folder}/new; echo rc=$?; cat {folder}/k; echo rc=$?"
        result = jail.shell(script)
        assert result.stdout_text.count("rc=0") == 0
        assert b"key" not in result.stdout
    assert sorted(os.listdir(folder)) == ["k"]
    assert outside(text)[:2] == [0, 0]


@pytest.mark.parametrize("grant", ["read", "write"])
def test_denied_folders_share_nothing_that_a_guest_could_use(workspace: Path, grant: str) -> None:
    """One mask is behind all of them: it must have no name, take nothing and not change."""
    denied = [workspace / name for name in ("one", "two")]
    for folder in denied:
        folder.mkdir()
        (folder / "secret").write_text("secret")
    text = f"""
one, two = {[str(folder) for folder in denied]!r}
answer([sorted(name for name in os.listdir("/dev") if name.startswith(".")),
    attempt(os.listdir, one), attempt(os.chdir, one), opened(one + "/secret"),
    attempt(os.mkdir, one + "/new"), opened(one + "/new", os.O_CREAT | os.O_WRONLY),
    attempt(os.chmod, one, 0o755), attempt(os.utime, two), attempt(os.rmdir, two),
    attempt(os.rename, one, one + "2"), attempt(os.setxattr, one, "user.x", b"1"),
    oct(os.stat(one).st_mode & 0o777), os.stat(one).st_dev == os.stat("/dev").st_dev])
"""
    assert outside(f"answer(os.listdir({str(denied[0])!r}))") == ["secret"]
    with Jail(policy_of(**{grant: [workspace], "deny": denied})) as jail:
        got = inside(jail, text)
    assert got[0] == []
    assert got[1:6] == [errno.EACCES] * 5
    assert got[6:8] == [errno.EROFS] * 2
    assert {*got[8:10]} <= {errno.EBUSY, errno.EROFS, errno.EXDEV}
    assert got[10] in (errno.EROFS, errno.EACCES, errno.EPERM)
    assert got[11:] == ["0o0", True]


def test_a_read_grant_changes_in_no_way(workspace: Path) -> None:
    """Content, mode, times, owner, attributes and names of a read grant must stay as they are."""
    (workspace / "f").write_text("f")
    (workspace / "d").mkdir()
    (workspace / "d" / "g").write_text("g")
    text = f"""
w = {str(workspace)!r}
f = w + "/f"
answer([opened(f, os.O_WRONLY), opened(f, os.O_RDWR), opened(f, os.O_WRONLY | os.O_TRUNC),
    attempt(os.truncate, f, 0), attempt(os.chmod, f, 0o600), attempt(os.utime, f, (1, 1)),
    attempt(os.chown, f, os.getuid(), os.getgid()), attempt(os.setxattr, f, "user.x", b"1"),
    attempt(os.unlink, f), attempt(os.rename, f, w + "/h"), attempt(os.link, f, w + "/l"),
    attempt(os.symlink, "x", w + "/s"), attempt(os.mkdir, w + "/n"), attempt(os.rmdir, w + "/d"),
    opened(w + "/new", os.O_CREAT | os.O_WRONLY), attempt(os.mkfifo, w + "/fifo"),
    attempt(os.chmod, w, 0o700), opened(w, os.O_TMPFILE | os.O_RDWR),
    attempt(os.mknod, w + "/node", 0o600 | stat.S_IFREG),
    call("fchmodat2", -100, f.encode(), 0o600, 0)])
"""
    before = snapshot(workspace)
    with Jail(JailPolicy(read=[workspace])) as jail:
        got = inside(jail, text)
    assert set(got[:-1]) == {errno.EROFS}
    assert got[-1] in (errno.EROFS, errno.ENOSYS)
    assert snapshot(workspace) == before
    control = outside(text)
    assert control[:7] == [0] * 7
    assert control[8] == 0


def test_a_write_grant_is_a_place_to_work_in(workspace: Path) -> None:
    """What was refused elsewhere must work in a write grant, and the host must see it."""
    text = f"""
w = {str(workspace)!r}
f = w + "/f"
answer([opened(f, os.O_CREAT | os.O_WRONLY), attempt(os.chmod, f, 0o600),
    attempt(os.utime, f, (1, 1)), attempt(os.symlink, "x", w + "/s"), attempt(os.mkdir, w + "/n"),
    attempt(os.link, f, w + "/l"), attempt(os.rename, f, w + "/n/f"), attempt(os.unlink, w + "/l"),
    attempt(os.mkfifo, w + "/fifo"), attempt(os.truncate, w + "/n/f", 10)])
"""
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert set(inside(jail, text)) == {0}
    assert (workspace / "n" / "f").stat().st_size == 10
    assert (workspace / "n" / "f").stat().st_uid == workspace.stat().st_uid


def test_fs_02_the_most_specific_rule_wins(workspace: Path) -> None:
    """A write grant inside a read grant inside a deny must be writable, its parents not."""
    inner = workspace / "a" / "b"
    inner.mkdir(parents=True)
    (workspace / "z").mkdir()
    text = f"""
w = {str(workspace)!r}
answer([opened(w + "/a/b/ok", os.O_CREAT | os.O_WRONLY),
    opened(w + "/a/no", os.O_CREAT | os.O_WRONLY), attempt(os.listdir, w + "/z"),
    attempt(os.listdir, w + "/a")])
"""
    policy = JailPolicy(deny=[workspace], read=[workspace / "a"], write=[inner])
    with Jail(policy) as jail:
        assert inside(jail, text) == [0, errno.EROFS, errno.ENOENT, 0]
    assert (inner / "ok").exists()
    assert not (workspace / "a" / "no").exists()


def test_a_grant_reopened_below_a_deny(workspace: Path) -> None:
    """Around a grant inside a denied folder, the folder must stay shut, names included."""
    deny = workspace / "no"
    inner = deny / "x" / "yes"
    inner.mkdir(parents=True)
    (deny / "secret").write_text("s")
    (deny / "x" / "secret").write_text("s")
    text = f"""
d = {str(deny)!r}
answer([opened(d + "/x/yes/f", os.O_CREAT | os.O_WRONLY), attempt(os.listdir, d),
    os.listdir(d + "/x"), opened(d + "/secret"), opened(d + "/x/secret"),
    opened(d + "/x/new", os.O_CREAT | os.O_WRONLY), attempt(os.rename, d + "/x", d + "/y"),
    attempt(os.rename, d, d + "2"), attempt(os.rmdir, d + "/x/yes"), attempt(os.listdir, d + "/x/yes")])
"""
    with Jail(JailPolicy(write=[workspace, inner], deny=[deny])) as jail:
        got = inside(jail, text)
    assert got[0] == 0
    # A folder that leads to a grant is the jail's own: it shows that name and nothing else.
    assert got[1:3] == [errno.EACCES, ["yes"]]
    assert set(got[3:5]) <= {errno.ENOENT, errno.EACCES}
    assert got[5] in (errno.EROFS, errno.EACCES)
    assert got[6] in (errno.EROFS, errno.EACCES, errno.EBUSY)
    assert got[7] == errno.EBUSY
    assert got[8] in (errno.EBUSY, errno.EROFS)
    assert got[9] == 0
    assert (inner / "f").exists()


def test_deny_exec_holds_against_the_loader(workspace: Path) -> None:
    """A program under deny_exec must not run, not even through the dynamic loader."""
    tools = workspace / "tools"
    tools.mkdir()
    program = tools / "true"
    program.write_bytes(Path("/usr/bin/true").read_bytes())
    program.chmod(0o755)
    loader = next(str(p) for p in map(Path, LOADERS) if p.exists())
    text = f"""
p = {str(program)!r}
def run(*command):
    return in_child(lambda: attempt(os.execv, command[0], command))
answer([run(p), os.access(p, os.X_OK), run({loader!r}, p), opened(p)])
"""
    with Jail(JailPolicy(write=[workspace], deny_exec=[tools])) as jail:
        assert inside(jail, text) == [errno.EACCES, False, 127, 0]
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert inside(jail, text) == [0, True, 0, 0]


LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


@pytest.mark.parametrize("system", ["minimal", "host"])
def test_the_root_takes_no_names(system: str, tmp_path: Path) -> None:
    """Nothing must be made at the root or in a folder that only leads to a grant."""
    grant = tmp_path.resolve()
    names = ["/new", f"{grant.parent}/new", "/etc/new", "/usr/new"]
    policy = policy_of(system=system, read=[grant])
    text = f"answer([opened(n, os.O_CREAT | os.O_WRONLY) for n in {names!r}])"
    with Jail(policy) as jail:
        got = inside(jail, text)
    # The folders above a grant in /tmp are the jail's own, private ones.
    private = str(grant).startswith(("/tmp/", "/var/tmp/"))
    assert got[0] in (errno.EROFS, errno.EACCES)
    assert got[1] in ((0,) if private else (errno.EROFS, errno.EACCES))
    assert set(got[2:]) <= {errno.EROFS, errno.EACCES}
    assert not (grant.parent / "new").exists()
    assert outside(
        f"answer([opened({str(grant.parent / 'new')!r}, os.O_CREAT | os.O_WRONLY)])"
    ) == [0]
    (grant.parent / "new").unlink()


def test_a_descriptor_of_the_host_opens_nothing_more(outside_file: Path) -> None:
    """A file given as stdin must not be opened again for writing through /proc."""
    text = """
answer([os.read(0, 3).decode(), opened("/proc/self/fd/0", os.O_WRONLY),
    opened("/dev/stdin", os.O_RDWR), opened("/proc/thread-self/fd/0", os.O_WRONLY)])
"""
    with open(outside_file, "rb") as file:
        control = outside(text, stdin=file)
    assert control == ["top", 0, 0, 0]
    with open(outside_file, "rb") as file, Jail(JailPolicy()) as jail:
        process = jail.spawn(
            ["/usr/bin/python3", "-IBS", "-c", prelude() + text], stdin=file, stdout=-1, stderr=-1
        )
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert output.decode().split("\n")[0] == '["top", 13, 13, 13]'
    assert outside_file.read_text() == "top-secret"


def prelude() -> str:
    """Return what the text of a guest starts with."""
    from jail_helpers import PRELUDE

    return PRELUDE

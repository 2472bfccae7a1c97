"""Whose files a guest of a root caller has: those of the owner of each grant, and no others."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, is_root, outside, policy_of
from mount_helpers import in_mount_namespace

from visruntime._jail.own_places import GUEST_IDS
from visruntime._policy.planted import is_planted
from visruntime.errors import PolicyError, PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

pytestmark = pytest.mark.skipif(not is_root(), reason="only root has files of several owners")

OWNER = 1000
TRY = """
path = {path!r}
answer([attempt(lambda: open(path).read()), attempt(lambda: open(path, "a").write("x"))])
"""


@pytest.fixture
def folder(workspace: Path) -> Path:
    """Return a folder of an ordinary user in which root keeps a file for itself."""
    (workspace / "conf").mkdir()
    (workspace / "conf" / "cron").write_text("root's\n")
    (workspace / "conf" / "cron").chmod(0o600)
    os.chown(workspace, OWNER, OWNER)
    return workspace


@pytest.mark.parametrize(
    "rule",
    [{}, {"deny_exec": ["conf"]}, {"deny_write": ["conf"]}, {"deny_exec": ["conf/cron"]}],
    ids=["none", "deny_exec", "deny_write", "deny_exec of the file"],
)
def test_a_rule_that_denies_shows_nothing_more(folder: Path, rule: dict[str, list[str]]) -> None:
    """A mount made for a deny must not map the files in it to another owner."""
    text = TRY.format(path=str(folder / "conf" / "cron"))
    assert outside(text) == [0, 0]
    rules: Any = {kind: [folder / path for path in paths] for kind, paths in rule.items()}
    with Jail(JailPolicy(write=[folder], **rules)) as jail:
        reading, writing = inside(jail, text)
    assert reading == errno.EACCES
    assert writing in (errno.EACCES, errno.EROFS)


def test_a_file_that_is_protected_unasked_shows_nothing_more(folder: Path) -> None:
    """A set-id file that only root may read must stay unreadable while it is kept read-only."""
    program = folder / "tool"
    program.write_bytes(b"secret program")
    program.chmod(0o4711)
    text = TRY.format(path=str(program))
    assert outside(text)[0] == 0
    program.chmod(0o4711)  # the control has written, which takes the bit
    with Jail(JailPolicy(write=[folder])) as jail:
        reading, writing = inside(jail, text)
    assert reading == errno.EACCES
    assert writing in (errno.EACCES, errno.EROFS)


def test_each_grant_has_its_own_owner(folder: Path) -> None:
    """A grant inside a grant must be the files of its own owner, as it is alone."""
    inner = folder / "conf"
    os.chown(folder, 0, 0)
    for path in (inner, inner / "cron"):
        os.chown(path, OWNER, OWNER)
    text = TRY.format(path=str(inner / "cron"))
    for grants in ([inner], [folder, inner]):
        with Jail(JailPolicy(write=grants)) as jail:
            assert inside(jail, text) == [0, 0]
    with Jail(JailPolicy(write=[folder], read=[inner])) as jail:
        assert inside(jail, text) == [0, errno.EROFS]


def test_an_owner_with_the_number_of_the_guest_takes_nothing_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest must not stay uid 0 of the host because a grant's owner has its number already."""
    number = GUEST_IDS[0] + 77
    monkeypatch.setattr("visruntime._jail.plan.new_guest_id", lambda: number)
    for path in (folder, folder / "conf", folder / "conf" / "cron"):
        os.chown(path, number, number)
    made = str(folder / "made")
    with Jail(JailPolicy(write=[folder])) as jail:
        assert jail._handle.info["guest_id"] == number
        assert inside(jail, TRY.format(path=str(folder / "conf" / "cron"))) == [0, 0]
        assert inside(jail, f"answer(attempt(lambda: open({made!r}, 'x').close()))") == 0
    assert (os.stat(made).st_uid, os.stat(made).st_gid) == (number, number)


@pytest.mark.parametrize("grant", ["conf/renamed", "conf", "conf/*"])
def test_what_a_guest_has_renamed_is_no_grant_of_roots(folder: Path, grant: str) -> None:
    """Where others rename, the owner of what is at a path does not say in whose name it is."""
    inner = folder / "conf"
    os.chown(inner, OWNER, OWNER)
    with Jail(JailPolicy(write=[folder])) as jail:
        assert inside(jail, TRY.format(path=str(inner / "cron"))) == [errno.EACCES] * 2
        assert jail.run(["mv", inner / "cron", inner / "renamed"]).exit_code == 0
    if grant == "conf":
        os.chown(inner, 0, 0)  # as root's own folder, which the guest could have moved here
    text = TRY.format(path=str(inner / "renamed"))
    assert outside(text) == [0, 0]
    with Jail(JailPolicy(write=[folder / grant])) as jail:
        assert inside(jail, text) == [errno.EACCES] * 2
        assert any(note.startswith("planted_grants: ") for note in jail.report.notes)


def test_the_folders_of_root_and_the_owner_alone_plant_nothing(folder: Path) -> None:
    """In folders that only root and the owner may change the grants are the owner's as before."""
    assert is_planted(str(folder / "conf" / "cron"), 0)
    assert not is_planted(str(folder / "conf"), OWNER)
    assert not is_planted(str(folder.parent), 0)
    folder.parent.chmod(0o1777)
    assert is_planted(str(folder.parent / "file"), 0)
    (folder.parent / "file").touch()
    assert is_planted(str(folder.parent / "file"), 0)  # moved here from a folder of others
    (folder.parent / "own").mkdir(mode=0o755)
    assert not is_planted(str(folder.parent / "own"), 0)  # no others can move a folder of root's
    (folder.parent / "own").chmod(0o777)
    assert is_planted(str(folder.parent / "own"), 0)


def test_the_group_of_a_grant_is_only_its_owners(folder: Path) -> None:
    """A folder of a user that belongs to root's group does not put the guest into that group."""
    (folder / "shared").write_text("root's group\n")
    (folder / "shared").chmod(0o660)
    os.chown(folder, OWNER, 0)
    text = TRY.format(path=str(folder / "shared"))
    assert outside(text) == [0, 0]
    with Jail(JailPolicy(write=[folder])) as jail:
        assert inside(jail, text) == [errno.EACCES] * 2
        assert jail.run(["touch", folder / "new"]).exit_code == 0


def test_a_revealed_secret_is_read_as_the_grant_around_it(folder: Path) -> None:
    """`reveal` lifts what hides a file, and grants nothing by itself."""
    (folder / ".ssh").mkdir()
    for name, owner in (("config", 0), ("known_hosts", OWNER)):
        (folder / ".ssh" / name).write_text("x\n")
        (folder / ".ssh" / name).chmod(0o600)
        os.chown(folder / ".ssh" / name, owner, owner)
    os.chown(folder / ".ssh", OWNER, OWNER)
    secrets = [folder / ".ssh" / "config", folder / ".ssh" / "known_hosts"]
    with Jail(JailPolicy(write=[folder], reveal=secrets)) as jail:
        found = [inside(jail, TRY.format(path=str(path))) for path in secrets]
    assert found == [[errno.EACCES] * 2, [0, 0]]
    assert [outside(TRY.format(path=str(path))) for path in secrets] == [[0, 0]] * 2


def test_root_reads_nothing_for_a_guest_that_the_guest_put_there(folder: Path) -> None:
    """Not as a script, nor by `copy_in`: both are read by the host, as root."""
    own = folder.parent / "own.py"
    own.write_text("print('own')\n")
    planted = folder / "conf" / "job.py"
    os.chown(folder / "conf", OWNER, OWNER)
    os.rename(folder / "conf" / "cron", planted)
    with Jail(JailPolicy()) as jail:
        jail.copy_in(own, "/tmp/own")
        with pytest.raises(PermissionError, match="could have put it there"):
            jail.copy_in(planted, "/tmp/planted")
        os.chown(planted, OWNER, OWNER)  # the user's own file in the user's own folder
        jail.copy_in(planted, "/tmp/planted")
    os.chown(planted, 0, 0)
    for script, code in ((own, 0), (planted, 125)):
        done = visruntime("run", str(script))
        assert done.returncode == code, done.stderr
    assert "could have put it there" in done.stderr


@pytest.fixture
def shared(folder: Path) -> Path:
    """Return a folder of root's with a file that a user keeps for itself."""
    os.chown(folder, 0, 0)
    (folder / "key").write_text("the user's\n")
    (folder / "key").chmod(0o600)
    os.chown(folder / "key", OWNER, OWNER)
    return folder


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("move", ["mv -f", "ln -f"])
def test_a_guest_in_a_folder_of_roots_plants_no_file_of_a_user(
    shared: Path, move: str, kind: str
) -> None:
    """It writes there as root, and must get what it moves in its owner's name from no later jail."""
    config = shared / "config"
    with Jail(JailPolicy(write=[shared])) as jail:
        assert inside(jail, TRY.format(path=str(shared / "key"))) == [errno.EACCES] * 2
        act = f"cd '{shared}' && {move} key config"
        moved = jail.run(["sh", "-c", act]).exit_code == 0
    if not moved:  # a second name: fs.protected_hardlinks keeps it from some guests
        os.rename(shared / "key", config)
    text = TRY.format(path=str(config))
    assert outside(text) == [0, 0]
    rules: Any = {kind: [config]}
    with Jail(JailPolicy(**rules)) as jail:
        reading, writing = inside(jail, text)
        assert any(note.startswith("planted_grants: ") for note in jail.report.notes)
        with pytest.raises(PermissionError, match=r"could have put it there|in the jail"):
            jail.copy_in(config, "/tmp/planted")
    assert (reading, writing in (errno.EACCES, errno.EROFS)) == (errno.EACCES, True)
    os.rename(config, shared / "uv.lock")
    (shared / "pyproject.toml").write_text("[project]\nname='x'\nversion='1'\n")
    done = visruntime("run", "--project", str(shared), "-c", "0")
    assert done.returncode != 0
    assert "could have put it there" in done.stderr


def test_what_everybody_may_read_is_granted_as_before(shared: Path) -> None:
    """A service's file in a folder of root's, and a user's folder in one, go on working."""
    log = shared / "log"
    log.write_text("of a service\n")
    log.chmod(0o644)
    home = shared / "home"
    home.mkdir(mode=0o700)
    (home / "file").write_text("of a user\n")
    (home / "file").chmod(0o600)
    for path in (log, home, home / "file"):
        os.chown(path, OWNER, OWNER)
    with Jail(JailPolicy(read=[log], write=[home])) as jail:
        assert inside(jail, TRY.format(path=str(log)))[0] == 0
        assert inside(jail, TRY.format(path=str(home / "file"))) == [0, 0]
        assert not any(note.startswith("planted_grants: ") for note in jail.report.notes)
        jail.copy_in(log, "/tmp/log")
    with Jail(JailPolicy(write=[log])) as jail:  # what only its owner may do
        assert inside(jail, TRY.format(path=str(log))) == [0, errno.EACCES]


def test_no_report_is_written_into_a_file_of_another_user(folder: Path) -> None:
    """It would show another user what root's jail was granted."""
    report = folder.parent / "report.json"
    report.write_text("kept")
    os.chown(report, OWNER, OWNER)
    refused = visruntime("exec", "--report", str(report), "--", "true")
    assert "belongs to another user" in refused.stderr
    assert report.read_text() == "kept"
    os.chown(report, 0, 0)
    assert visruntime("exec", "--report", str(report), "--", "true").returncode == 0


def visruntime(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "visruntime", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_an_access_control_list_lets_others_plant(workspace: Path) -> None:
    """Whoever a list lets write in a folder may rename there, whatever the folder's group is."""
    folder = workspace / "shared"
    folder.mkdir()
    (folder / "data").touch()
    os.chown(folder, -1, os.getegid())
    assert not is_planted(str(folder / "data"), os.geteuid())
    entries = [(1, 7, -1), (2, 7, 1234), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    listed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(folder, "system.posix_acl_access", struct.pack("<I", 2) + listed)
    assert is_planted(str(folder / "data"), os.geteuid())


def test_a_grant_that_is_closed_to_its_guest_is_refused_for_that(folder: Path) -> None:
    """Where others rename, a closed folder of root is a stranger's; no rule in it could hold."""
    folder.chmod(0o777)
    closed = folder / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(PolicyError, match=f"since {closed} .*mode 0700. is closed to the guest"):
        Jail(JailPolicy(write=[closed], deny_write=[closed / "inner"]))
    closed.chmod(0o755)
    text = TRY.format(path=str(closed / "inner" / "file"))
    with Jail(JailPolicy(write=[closed], deny_write=[closed / "inner"])) as jail:
        assert inside(jail, text) == [errno.ENOENT, errno.EROFS]


ACCOUNTS = """
import json, os, sys
from visruntime._policy.planted import is_planted
print(json.dumps([is_planted(sys.argv[1], 0), is_planted(sys.argv[2], 1000)]))
"""


@pytest.mark.parametrize(
    ("users", "groups", "expected"),
    [
        ("", "", [False, False]),
        ("", "root:x:0:u", [True, False]),
        ("v:x:1001:0::/:/bin/sh", "", [True, False]),
        ("toor:x:0:0::/:/bin/sh", "root:x:0:toor,root,nobody-at-all", [False, False]),
        ("v:x:1001:1000::/:/bin/sh", "", [False, True]),
        ("", "u:x:1000:v", [False, False]),
        ("v:x:1001:1001::/:/bin/sh", "u:x:1000:v", [False, True]),
    ],
)
def test_who_is_in_a_group_may_plant_in_its_folders(
    workspace: Path, outside: Path, users: str, groups: str, expected: list[bool]
) -> None:
    """Members of root's group count, and users who share one group as their own."""
    accounts = outside
    (accounts / "passwd").write_text(f"root:x:0:0::/:/bin/sh\nu:x:1000:1000::/:/bin/sh\n{users}\n")
    names = "" if groups.startswith("root:") else "root:x:0:\n"
    names += "" if groups.startswith("u:") else "u:x:1000:\n"
    (accounts / "group").write_text(f"{names}{groups}\n")
    roots, of_user = workspace / "roots", workspace / "of-user"
    for folder, owner in ((roots, 0), (of_user, OWNER)):
        folder.mkdir()
        (folder / "file").touch()
        os.chown(folder, owner, owner)
        os.chown(folder / "file", owner, owner)
        folder.chmod(0o775)
    script = f"mount --bind {accounts}/passwd /etc/passwd; mount --bind {accounts}/group /etc/group"
    output = in_mount_namespace(
        script, ACCOUNTS, arguments=(str(roots / "file"), str(of_user / "file"))
    )
    assert json.loads(output) == expected


CONNECT = """
server = socket.socket(socket.AF_UNIX)
answer(attempt(server.connect, {path!r}))
"""


@pytest.fixture
def served() -> Iterator[Path]:
    """Return a socket of root's that serves, in a folder to which everybody may come."""
    folder = Path(tempfile.mkdtemp(prefix="vis-served-"))
    folder.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        server.listen()
        yield folder / "socket"
    shutil.rmtree(folder)


@pytest.mark.parametrize("tier", ["mount", "broker"])
def test_a_socket_that_others_could_have_put_there_is_not_roots(
    served: Path, outside_file: Path, tier: str
) -> None:
    """A guest connects as the owner of a socket only where nobody else chose what is there."""
    served.chmod(0o600)
    grants: Any = {} if tier == "mount" else {"read": [outside_file.parent]}
    text = CONNECT.format(path=str(served))
    assert outside(text) == 0
    with Jail(JailPolicy(sockets=[served], **grants)) as jail:
        assert inside(jail, text) == 0
    os.chown(served.parent, OWNER, OWNER)  # who may have renamed it from a folder of its own
    for field in ("sockets", "sensitive_sockets"):
        with pytest.raises(PolicyUnsupported, match="could have put") as caught:
            Jail(policy_of(**{field: [served]}, **grants))
        assert caught.value.field == f"{field}[0]"
    served.chmod(0o666)
    with Jail(JailPolicy(sockets=[served], **grants)) as jail:
        assert inside(jail, text) == 0
    served.parent.chmod(0o700)  # it is for those who may come to it
    with pytest.raises(PolicyUnsupported, match="not everybody may connect"):
        Jail(JailPolicy(sockets=[served], **grants))

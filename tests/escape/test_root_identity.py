"""Root's guests that stay uid 0 of the host: they get nothing in a name that is not root's.

That is so by the back end landlock, and by mounts where a file system of the grants takes no
id-maps (here a ramfs, as root's own or as a user could mount one by FUSE in a folder of its own).
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, Limits, errno, inside, is_root, jail_by, outside
from mount_helpers import in_mount_namespace

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.skipif(not is_root(), reason="only root's guests may be uid 0")

OWNER = 1000
READ = "answer(attempt(lambda: open({path!r}).read()))"


@pytest.fixture
def home(workspace: Path) -> Path:
    """Return a folder of an ordinary user in which files of root's are, which only root may read."""
    (workspace / "tree").mkdir()
    for name in ("planted", "tree/inner"):
        (workspace / name).write_text("root's\n")
        (workspace / name).chmod(0o600)
    (workspace / "public").write_text("for everybody\n")
    os.chown(workspace, OWNER, OWNER)
    return workspace


GRANTS = {
    "file": ({"read": ["planted"]}, "planted", "could have been put there"),
    "folder": ({"read": ["tree"]}, "tree/inner", "could have been put there"),
    "written": ({"write": ["planted"]}, "planted", "could have been put there"),
    "of a user": ({"read": [""]}, "planted", f"belongs to uid {OWNER}"),
}


@pytest.mark.parametrize("case", list(GRANTS))
def test_landlock_shows_root_nothing_in_another_name(home: Path, case: str) -> None:
    """A stranger's view needs mounts: without them the guest would read it as root."""
    rules, name, why = GRANTS[case]
    policy: Any = {kind: [home / path for path in paths] for kind, paths in rules.items()}
    text = READ.format(path=str(home / name))
    assert outside(text) == 0
    with jail_by("namespaces", **policy) as jail:
        assert inside(jail, text) == errno.EACCES
    with pytest.raises(PolicyUnsupported, match=why) as caught:
        jail_by("landlock", **policy)
    assert "root" in str(caught.value)
    assert caught.value.field == f"{next(iter(rules))}[0]"


def test_landlock_shows_root_what_everybody_may_read(home: Path) -> None:
    """A file for everybody is the same in every name; the report claims nothing else."""
    with jail_by("landlock", read=[home / "public"]) as jail:
        assert inside(jail, READ.format(path=str(home / "public"))) == 0
        assert any("reads what only root may read" in note for note in jail.report.notes)
    with pytest.raises(PolicyUnsupported, match="could have been put there"):
        jail_by("landlock", write=[home / "public"])


def test_landlock_holds_a_narrowed_policy_of_root_or_refuses_it(home: Path) -> None:
    """What a narrowed policy would show as a stranger sees it is refused by its name."""
    narrow = JailPolicy(read=[home]).narrow(JailPolicy(read=[home / "tree"]))
    text = READ.format(path=str(home / "tree" / "inner"))
    with Jail(narrow) as jail:
        assert inside(jail, text) == errno.EACCES
        assert any(note.startswith("narrowed_grants: ") for note in jail.report.notes)
    bare = narrow.replace(limits=Limits(processes=None, scratch=None))
    with pytest.raises(PolicyUnsupported, match="by the policy that was narrowed"):
        Jail(bare, backend="landlock")


MOUNTED = """
import json, os, sys
from jail_helpers import Jail, JailPolicy, inside
from visruntime.errors import PolicyUnsupported
home, folder, text = sys.argv[1:]
got = []
for policy in ({"read": [home]}, {"read": [home + "/planted", folder]}, {"read": [folder]}):
    try:
        with Jail(JailPolicy(**policy)) as jail:
            got.append([jail.report.identity, list(jail.report.notes), inside(jail, text)])
    except PolicyUnsupported as error:
        got.append([error.field, str(error)])
print(json.dumps(got))
"""


def test_a_mount_in_a_grant_takes_nobodys_name_away(home: Path, outside: Path) -> None:
    """A user who mounts something below a grant must not make the guest root in all others."""
    for folder in (home, outside):
        (folder / "mnt").mkdir()
    os.chown(home / "mnt", OWNER, OWNER)
    (outside / "kept").write_text("root's own\n")
    (outside / "kept").chmod(0o600)
    with Jail(JailPolicy(read=[home])) as jail:
        assert inside(jail, READ.format(path=str(home / "planted"))) == errno.EACCES
    output = in_mount_namespace(
        f"mount -t ramfs none {home}/mnt; mount -t ramfs none {outside}/mnt",
        MOUNTED,
        arguments=(str(home), str(outside), READ.format(path=str(outside / "kept"))),
    )
    of_user, both, own = json.loads(output.splitlines()[-1])
    assert of_user[0] == both[0] == "read[0]"
    assert f"belongs to uid {OWNER}" in of_user[1]
    assert f"{home}/mnt is ramfs" in of_user[1]
    assert "could have been put there" in both[1]
    assert f"{outside}/mnt is ramfs" in both[1]
    # All that is granted is root's own: that the guest gets as before, and is told why.
    assert own[0].startswith("host uid 0 without capabilities")
    assert any(f"{outside}/mnt is ramfs" in note for note in own[1])
    assert own[2] == 0


PASSED = """
import json, os, sys
from jail_helpers import PRELUDE, PYTHON, Jail, JailPolicy, jail_by
from visruntime.errors import PathDenied
kept, written, grant, text = sys.argv[1:]
got = []
for backend, policy in (("namespaces", {}), ("namespaces", {"write": [grant]}), ("landlock", {})):
    with jail_by(backend, **policy) as jail, open(kept) as file:
        got.append(jail.report.identity)
        try:
            guest = jail.spawn([PYTHON, "-IBS", "-c", PRELUDE + text], stdin=file, stdout=-1)
            got.append(json.loads(guest.communicate(timeout=20)[0]))
        except PathDenied as error:
            got.append(str(error))
with Jail(JailPolicy(write=[grant])) as jail, open(written, "w") as file, os.fdopen(
    os.open(grant, os.O_TMPFILE | os.O_RDWR)
) as nameless:
    guest = jail.spawn(["sh", "-c", "echo x"], stdout=file, stdin=nameless)
    got.append(guest.wait(20))
print(json.dumps(got))
"""
CHANGE = """
answer([attempt(os.fchmod, 0, 0o666), attempt(os.utime, 0, (1, 1)),
    attempt(os.setxattr, 0, "user.x", b"1")])
"""


def test_a_file_of_roots_that_is_only_to_be_read_stays_as_it_is(
    workspace: Path, outside_file: Path
) -> None:
    """Of a file that it owns a guest could change all but the content, by the descriptor alone."""
    (workspace / "output").touch()
    output = in_mount_namespace(
        f"mount -t tmpfs none {workspace}; mkdir {workspace}/mnt; touch {workspace}/output; "
        f"mount -t ramfs none {workspace}/mnt",
        PASSED,
        arguments=(str(outside_file), f"{workspace}/output", str(workspace), CHANGE),
    )
    *got, code = json.loads(output.splitlines()[-1])
    assert "id-mapped" in got[0]
    assert got[1] == [errno.EPERM, errno.EPERM, errno.EACCES]
    assert got[2].startswith("host uid 0")
    assert "stdin: " in got[3]
    assert "is open for reading only" in got[3]
    assert got[4].startswith("host uid 0")
    assert got[5][:2] == [errno.EPERM, errno.EPERM]
    assert code == 0
    with outside_file.open() as file:
        assert outside(CHANGE, stdin=file)[:2] == [0, 0]


def test_the_key_of_the_hosts_connections_is_not_read(workspace: Path) -> None:
    """In the host's network a guest with root's uid must not read what only root may."""
    key = "/proc/sys/net/ipv4/tcp_fastopen_key"
    (workspace / "mnt").mkdir()
    output = in_mount_namespace(
        f"mount -t ramfs none {workspace}/mnt",
        """
        import json, sys
        from jail_helpers import Egress, Jail, JailPolicy, inside
        with Jail(JailPolicy(read=[sys.argv[1]], egress=Egress.OPEN)) as jail:
            print(json.dumps([jail.report.identity, inside(jail, sys.argv[2])]))
        """,
        arguments=(
            str(workspace),
            f"answer([opened({key!r}), opened('/proc/sys/net/ipv4/tcp_ecn')])",
        ),
    )
    identity, got = json.loads(output.splitlines()[-1])
    assert identity.startswith("host uid 0")
    assert got == [errno.EACCES, 0]
    assert outside(f"answer(opened({key!r}))") == 0


def test_what_a_worker_runs_from_is_roots_or_the_hosts_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's interpreter could bring files of root's along; the host's own has an owner it trusts."""
    grants = [(str(home / "tree"), "Python installation")]
    os.chown(home, 0, 0)
    os.chown(home / "tree", OWNER, OWNER)
    text = READ.format(path=str(home / "tree" / "inner"))
    bare = JailPolicy(limits=Limits(processes=None, scratch=None))
    with Jail(JailPolicy(), implicit_read=grants) as jail:
        assert inside(jail, text) == errno.EACCES
    with pytest.raises(PolicyUnsupported, match=f"belongs to uid {OWNER}") as caught:
        Jail(bare, backend="landlock", implicit_read=grants)
    assert caught.value.field == "python"
    monkeypatch.setattr(sys, "prefix", str(home))
    with Jail(bare, backend="landlock", implicit_read=grants) as jail:
        assert inside(jail, text) == 0

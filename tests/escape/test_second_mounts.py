"""Boundary: a second mount of the same file system is no second door to what is protected.

Each test mounts in a mount namespace of its own and opens a jail there. Without the mount the
same policy holds, so that the mount is what is refused, or covered.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jail_helpers import is_root
from mount_helpers import in_mount_namespace

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

UNSHARE = ["unshare", "--mount"] if is_root() else ["unshare", "--user", "-r", "--mount"]

OPEN = """
import json, os, sys
import visruntime as vr
top, mode, rules, command, files = json.loads(sys.argv[1])
if mode == "imported":
    sys.path.append(top + "/real/lib/site-packages")
if mode == "kept":
    os.environ["XDG_CACHE_HOME"] = top + "/real"
try:
    with vr.Jail(vr.JailPolicy(**rules), config_files=files) as jail:
        done = jail.run(["sh", "-c", command], cwd="/")
        print(json.dumps([done.stdout_text, done.stderr_text, [s for s in jail.report.notes]]))
except vr.VisRuntimeError as error:
    print(json.dumps(str(error)))
"""


KEPT = ("environments", "bundles", "caches")


@pytest.fixture
def tree(workspace: Path) -> Path:
    """Return a folder with `real`, which the tests mount at `alias`, and things in it."""
    for name in ("alias", "real/lib/site-packages", "real/conf", "real/ro", "real/.ssh", "keys"):
        (workspace / name).mkdir(parents=True)
    for name in KEPT:
        (workspace / "real/visruntime" / name).mkdir(parents=True)
        (workspace / "real/visruntime" / name / "file").write_text("genuine\n")
    for name in ("lib/site-packages/module.py", "conf/visruntime.toml", "ro/file", ".ssh/used"):
        (workspace / "real" / name).write_text("genuine\n")
    (workspace / "real" / ".env").write_text("genuine\n")
    (workspace / "plain").touch()
    return workspace


def opened(
    top: Path, mounts: dict[str, str], mode: str, rules: dict[str, Any], name: str, mark: str = ""
) -> Any:
    """Return what came of a jail that writes to `name`, beside mounts of {point: source}.

    With *mark* the mounts are made such (unbindable).
    """
    script = "".join(f'mount --bind "{top}/{s}" "{top}/{p}" && ' for p, s in mounts.items())
    if mark:
        script += "".join(f'mount --make-{mark} "{top}/{point}" && ' for point in mounts)
    files = [f"{top}/real/conf/visruntime.toml"] if mode == "used" else []
    command = f"cat {top}/{name}; echo EVIL >> {top}/{name}"
    given = json.dumps([str(top), mode, rules, command, files])
    ran = subprocess.run(
        [*UNSHARE, "sh", "-c", f'{script}exec "$@"', "sh", sys.executable, "-c", OPEN, given],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("imported", "lib/site-packages/module.py"),
        ("used", "conf/visruntime.toml"),
        ("asked", "ro/file"),
    ],
)
def test_what_is_read_only_is_not_writable_by_a_second_mount(
    tree: Path, mode: str, name: str
) -> None:
    """Packages, files in use and read grants may not be written by another path."""
    rules: dict[str, Any] = {"write": [f"{tree}/alias"]}
    if mode == "asked":
        rules = {"write": [str(tree)], "read": [f"{tree}/real/ro"]}
    # Control: without the mount the jail opens, and with it the name leads to the file.
    assert isinstance(opened(tree, {}, mode, rules, "plain"), list)
    free = {"write": [f"{tree}/alias"]}
    shown, errors, _ = opened(tree, {"alias": "real"}, "none", free, f"alias/{name}")
    assert (shown, errors) == ("genuine\n", "")
    assert (tree / "real" / name).read_text() == "genuine\nEVIL\n"
    message = opened(tree, {"alias": "real"}, mode, rules, f"alias/{name}")
    assert isinstance(message, str), message
    assert "second mount" in message
    assert f"{tree}/alias" in message
    # The fix that the message names: the other path is denied as well.
    fixed = rules | {"deny_write": [f"{tree}/alias/{name.rpartition('/')[0]}"]}
    _, errors, _ = opened(tree, {"alias": "real"}, mode, fixed, f"alias/{name}")
    assert "Read-only file system" in errors


@pytest.mark.parametrize("folder", KEPT)
def test_the_state_folder_has_no_second_door(tree: Path, folder: str) -> None:
    """Environments, archives and caches may not be written by another path either."""
    rules: dict[str, Any] = {"write": [f"{tree}/alias"]}
    mount = {"alias": f"real/visruntime/{folder}"}
    # The control: without a word of where the state folder is, the mount is like any other.
    shown, errors, _ = opened(tree, mount, "none", rules, "alias/file")
    assert (shown, errors) == ("genuine\n", "")
    message = opened(tree, mount, "kept", rules, "alias/file")
    assert isinstance(message, str), message
    assert ("caches of all policies" if folder == "caches" else "second mount") in message
    assert f"{tree}/alias" in message


@pytest.mark.parametrize(
    ("source", "point", "name"),
    [("real/.env", "plain", "plain"), ("real/.ssh", "keys", "keys/used")],
)
def test_a_secret_is_hidden_by_all_its_mounts(
    tree: Path, source: str, point: str, name: str
) -> None:
    """A second mount that gives a secret another name may not show it, unless revealed."""
    (tree / name).touch()
    rules: dict[str, Any] = {"write": [str(tree)]}
    shown, errors, _ = opened(tree, {point: source}, "none", rules, name)
    assert shown == ""
    assert errors.count("Permission denied") == 2
    revealed = rules | {"reveal": [f"{tree}/{source}", f"{tree}/{point}"]}
    shown, _, notes = opened(tree, {point: source}, "none", revealed, name)
    assert shown == "genuine\n"
    assert [note for note in notes if note.startswith("reveal")] == []
    # One that reveals nothing is named.
    idle = rules | {"reveal": [f"{tree}/alias"]}
    assert (
        f"reveal[0]: nothing is hidden at {tree}/alias" in opened(tree, {}, "none", idle, name)[2]
    )


@pytest.mark.parametrize("kind", ["read", "write"])
def test_nothing_that_a_mount_covers_is_shown(tree: Path, kind: str) -> None:
    """A mount that the kernel binds nowhere else may not leave open what lies under it."""
    (tree / "alias/covered").write_text("genuine\n")
    rules: dict[str, Any] = {kind: [str(tree)]}
    mounts = {"alias": "real"}
    # Controls: what lies there is shown without a mount, and is not with one of the usual kind.
    shown, _, _ = opened(tree, {}, "none", rules, "alias/covered")
    assert shown == "genuine\n"
    (tree / "alias/covered").write_text("genuine\n")
    (tree / "real/covered").unlink(missing_ok=True)
    shown, _, _ = opened(tree, mounts, "none", rules, "alias/covered", "private")
    assert shown == ""
    message = opened(tree, mounts, "none", rules, "alias/covered", "unbindable")
    assert isinstance(message, str), message
    assert f"mount --make-private {tree}/alias" in message
    assert (tree / "alias/covered").read_text() == "genuine\n"


COVERED = """
import json
import visruntime as vr
try:
    with vr.Jail(vr.JailPolicy(system="host")) as jail:
        done = jail.run(["cat", "/mnt/point/covered"])
    print(json.dumps([done.stdout_text, done.stderr_text]))
except vr.PolicyUnsupported as error:
    print(json.dumps([error.field, str(error)]))
"""


@pytest.mark.skipif(
    not is_root(), reason="an ordinary user has no mount in a place of the system's"
)
def test_nothing_that_a_mount_covers_is_shown_with_the_hosts_root() -> None:
    """Without any grant such a mount must be as closed as another one."""
    below = "mount -t tmpfs none /mnt; mkdir /mnt/point; echo genuine > /mnt/point/covered\n"
    cover = below + "mount -t tmpfs none /mnt/point; mount --make-{} /mnt/point"
    shown, _ = json.loads(in_mount_namespace(below, COVERED))
    assert shown == "genuine\n"  # the control: where nothing covers it, it is seen
    shown, errors = json.loads(in_mount_namespace(cover.format("private"), COVERED))
    assert shown == ""
    assert "No such file" in errors
    field, errors = json.loads(in_mount_namespace(cover.format("unbindable"), COVERED))
    assert field == "system"
    assert "mount --make-private /mnt/point" in errors


NESTED = """
import json, sys
from jail_helpers import Jail, JailPolicy, inside, outside
top = sys.argv[1]
paths = [top + "/" + name + "/in ner/new" for name in ("no write", "read only", "writable")]
text = f"answer([opened(path, os.O_CREAT | os.O_WRONLY) for path in {paths!r}])"
policy = JailPolicy(write=[top], deny_write=[top + "/no write"], read=[top + "/read only"])
with Jail(policy) as jail:
    found = inside(jail, text)
print(json.dumps([found, outside(text)]))
"""


def test_a_mount_inside_what_is_read_only_is_read_only(workspace: Path) -> None:
    """What is mounted below a denied or read-only folder must not be writable, by any name."""
    script = ""
    for name in ("no write", "read only", "writable"):
        (workspace / name / "in ner").mkdir(parents=True)
        script += f"mount -t tmpfs -o mode=777 none '{workspace}/{name}/in ner'\n"
    output = in_mount_namespace(script, NESTED, arguments=(str(workspace),))
    found, control = json.loads(output.splitlines()[-1])
    assert found == [errno.EROFS, errno.EROFS, 0]
    assert control == [0, 0, 0]

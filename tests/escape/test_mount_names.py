"""Boundary: what mounts show is known by file system and place, whatever the paths are called.

Each test mounts in a mount namespace of its own and opens jails there. Its controls are that the
other name leads to the file, and that the policy holds once that name is denied as well.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from jail_helpers import is_root
from mount_helpers import in_mount_namespace

from visruntime._jail.bound_sockets import names_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

OPEN = """
import json, os, sys
import visruntime as vr
modules, *jails = json.loads(sys.argv[1])
sys.path += modules
for rules, command in jails:
    try:
        with vr.Jail(vr.JailPolicy(**rules)) as jail:
            done = jail.run(["sh", "-c", command], cwd="/")
            print(json.dumps([done.stdout_text, done.stderr_text]))
    except vr.PolicyUnsupported as error:
        print(json.dumps(str(error)))
"""


def opened(script: str, *jails: tuple[dict[str, Any], str], modules: tuple[str, ...] = ()) -> Any:
    """Return what came of each jail, (rules, command): what the command wrote, or the refusal."""
    given = json.dumps([modules, *jails])
    return [
        json.loads(line)
        for line in in_mount_namespace(script, OPEN, arguments=(given,)).splitlines()
    ]


# ---- mounts below what is protected --------------------------------------------------------------


def _below(top: Path) -> str:
    """Return a script: `private/db` is a mount of its own, and shown once more by `view`."""
    return f"""
mount -t tmpfs -o mode=755 none {top}; cd {top}; mkdir -p private/db view other
mount -t tmpfs -o mode=755 none private/db; mkdir private/db/in
echo genuine > private/db/key; cp private/db/key private/db/in
mount --bind private/db view; cd /
"""


@pytest.mark.parametrize(
    ("grant", "kind", "fix"),
    [
        ("read", "deny", "deny"),
        ("write", "deny_write", "deny_write"),
        ("write", "read", "deny_write"),
    ],
)
def test_a_mount_below_what_is_closed_has_no_second_door(
    workspace: Path, grant: str, kind: str, fix: str
) -> None:
    """What is mounted in a closed folder may be neither read nor changed where it is shown again."""
    top = str(workspace)
    command = f"cat {top}/view/key; echo EVIL >> {top}/view/key"
    rules = {grant: [top], kind: [f"{top}/private"]}
    fixed = rules | {fix: [*rules.get(fix, []), f"{top}/view"]}
    free, message, held = opened(
        _below(workspace), ({"read": [top]}, command), (rules, command), (fixed, command)
    )
    assert free[0] == "genuine\n"  # the control: the second name leads to it
    assert isinstance(message, str), message
    assert f"{top}/private/db can also be reached as {top}/view, by a second mount" in message
    assert held[0] == ("" if kind == "deny" else "genuine\n")
    assert held[1].count("Permission denied" if kind == "deny" else "Read-only file system") >= 1


def test_a_grant_inside_of_a_second_mount_is_no_door(workspace: Path) -> None:
    """A grant may not open a part of a second mount that is itself in no grant."""
    top = str(workspace)
    command = f"cat {top}/view/in/key"
    rules = {"read": [f"{top}/private", f"{top}/view/in"]}
    free, message = opened(
        _below(workspace), (rules, command), (rules | {"deny": [f"{top}/private/db"]}, command)
    )
    assert free == ["genuine\n", ""]
    assert isinstance(message, str), message
    assert f"{top}/private/db/in can also be reached as {top}/view/in" in message


def test_a_mount_below_a_secret_is_hidden_by_all_its_mounts(workspace: Path) -> None:
    """Keys that are mounted in ~/.ssh may not be read where they are mounted once more."""
    top = str(workspace)
    script = _below(workspace).replace("private", ".ssh")
    command = f"cat {top}/view/key"
    free, (shown, errors) = opened(
        script,
        ({"read": [top], "reveal": [f"{top}/.ssh", f"{top}/view"]}, command),
        ({"read": [top]}, command),
    )
    assert free == ["genuine\n", ""]
    assert shown == ""
    assert "Permission denied" in errors


def test_a_mounted_package_of_the_host_is_not_written_by_its_second_mount(workspace: Path) -> None:
    """A guest may not write modules of the host that are a mount below its sys.path."""
    top = str(workspace)
    jail = ({"write": [f"{top}/view"]}, f"echo EVIL >> {top}/view/key; cat {top}/private/db/key")
    (free,) = opened(_below(workspace), jail)
    assert (
        free[1].count("No such file") == 1
    )  # the control: it is written, and seen by no other name
    (message,) = opened(_below(workspace), jail, modules=(f"{top}/private",))
    assert isinstance(message, str), message
    assert f"{top}/private/db can also be reached as {top}/view" in message


def test_a_read_grant_is_not_written_by_a_second_mount(workspace: Path) -> None:
    """What is granted for reading only may not change by a grant of the folder that it shows."""
    top = str(workspace)
    script = f"""
mount -t tmpfs -o mode=755 none {top}; cd {top}; mkdir -p w/sub ro; echo genuine > w/sub/key
mount --bind w/sub ro; cd /
"""
    command = f"echo EVIL >> {top}/w/sub/key; cat {top}/w/sub/key"
    both = {"read": [f"{top}/ro"], "write": [f"{top}/w"]}
    message, apart, held = opened(
        script,
        (both, command),
        ({"write": [f"{top}/w", f"{top}/ro"]}, "true"),
        (both | {"deny_write": [f"{top}/w/sub"]}, command),
    )
    assert isinstance(message, str), message
    assert f"{top}/ro can also be reached as {top}/w/sub" in message
    assert apart == ["", ""]  # what may be written by both names is no contradiction
    assert held[0] == "genuine\n"
    assert "Read-only file system" in held[1]


# ---- which mount a path is on --------------------------------------------------------------------


@pytest.mark.parametrize("covered", [False, True])
def test_a_covered_mount_does_not_lead_astray(workspace: Path, covered: bool) -> None:  # noqa: FBT001
    """A mount that nobody reaches any more may not hide on which one a denied folder lies."""
    top = str(workspace)
    hidden = "mount -t tmpfs none a/b" if covered else "true"
    script = f"""
mount -t tmpfs -o mode=755 none {top}; cd {top}; mkdir -p a/b view; {hidden}
mount -t tmpfs -o mode=755 none a; mkdir a/b; echo genuine > a/b/key; mount --bind a view; cd /
"""
    command = f"cat {top}/view/b/key"
    rules = {"read": [top], "deny": [f"{top}/a/b"]}
    free, message, held = opened(
        script,
        ({"read": [top]}, command),
        (rules, command),
        (rules | {"deny": [f"{top}/a/b", f"{top}/view/b"]}, command),
    )
    assert free == ["genuine\n", ""]
    assert isinstance(message, str), message
    assert f"{top}/a/b can also be reached as {top}/view/b" in message
    assert "Permission denied" in held[1]


@pytest.mark.parametrize("how", ["link", "bound", "moved", "part"])
def test_a_layer_of_an_overlay_is_known_by_the_folder_that_it_is(workspace: Path, how: str) -> None:
    """An overlay may show no denied folder because its layer was named otherwise at the time."""
    top, far = f"{workspace}/top", f"{workspace}/far"
    layer, after, name = {
        "link": (f"{far}/link", "true", "view"),
        "bound": (f"{far}/bound", "true", "view"),
        "moved": (f"{top}/private", f"mv {top}/private {top}/secret", "view"),
        "part": (f"{top}/private", f"mount --bind {top}/view/in {top}/elsewhere", "elsewhere"),
    }[how]
    script = f"""
mount -t tmpfs -o mode=755 none {workspace}; cd {workspace}
mkdir -p top/private/in top/view top/elsewhere far/up far/work far/bound
echo genuine > top/private/in/key; ln -s {top}/private far/link; mount --bind top/private far/bound
mount -t overlay none -o lowerdir={layer},upperdir={far}/up,workdir={far}/work top/view
{after}; cd /
"""
    inner = "/in" if how == "part" else ""
    denied = [f"{top}/{'secret' if how == 'moved' else 'private'}{inner}"]
    if inner:
        denied.append(f"{top}/view{inner}")
    command = f"cat {top}/{name}/{'' if inner else 'in/'}key"
    free, message, held = opened(
        script,
        ({"read": [top]}, command),
        ({"read": [top], "deny": denied}, command),
        ({"read": [top], "deny": [*denied, f"{top}/{name}"]}, command),
    )
    assert free == ["genuine\n", ""]
    assert isinstance(message, str), message
    assert "overlay" in message
    assert f"{top}/{name}" in message
    if how == "moved":  # of what is denied in the overlay itself nobody knows the layer
        assert isinstance(held, str), held
    else:
        assert "Permission denied" in held[1]


# ---- names that guests choose --------------------------------------------------------------------

RENAMED = """
import json, os, sys
import visruntime as vr
from visruntime._jail.cgroup_find import _own_groups
top, name = json.loads(sys.argv[1])
policy = vr.JailPolicy(write=[top])
def shown():
    with vr.Jail(vr.JailPolicy()) as jail:
        assert jail.run(["true"]).exit_code == 0
    with vr.Jail(policy) as jail:
        return jail.run(["cat", f"{top}/conf/x/settings"])
groups, before = _own_groups(), shown()
with vr.Jail(policy) as jail:
    text = f"import os; os.rename('{top}/vol', '{top}/' + {name!r})"
    moved = jail.run(["/usr/bin/python3", "-c", text])
assert moved.exit_code == 0, moved.stderr
assert os.path.ismount(f"{top}/{name}/data")
after = shown()
assert _own_groups() == groups
print(json.dumps([[one.stdout_text, one.stderr_text] for one in (before, after)]))
"""


@pytest.mark.parametrize(
    "name", ["vol\r", "app\x0bq", "vol\x0c", "vol\x1c", "vol\x85", "vol\u2028"]
)
def test_no_name_that_a_guest_chose_changes_what_the_mount_table_says(
    workspace: Path, name: str
) -> None:
    """A guest that renames a folder above a mount may neither stop nor mislead later jails."""
    top = str(workspace)
    script = f"""
mount -t tmpfs -o mode=755 none {top}; cd {top}; mkdir -p app conf/x vol/data
echo genuine > app/.env; : > conf/x/settings
mount -t tmpfs none vol/data; mount --bind app/.env conf/x/settings; cd /
"""
    (control,) = opened(script, ({"read": [f"{top}/conf"]}, f"cat {top}/conf/x/settings"))
    assert control == ["genuine\n", ""]
    given = (json.dumps([top, name]),)
    for shown, errors in json.loads(in_mount_namespace(script, RENAMED, arguments=given)):
        assert shown == ""
        assert "Permission denied" in errors


@pytest.mark.parametrize("name", ["a\x0bb", "a\nb", "a b", "a\x85", "a\n: b"])
def test_no_name_hides_a_socket_in_the_kernels_table(tmp_path: Path, name: str) -> None:
    """A socket in a folder whose name has such bytes may not be overlooked."""
    path = str(tmp_path / name / "socket")
    (tmp_path / name).mkdir()
    with open("/proc/net/unix", "rb") as table:
        assert path not in names_of(table.read())
    with socket.socket(socket.AF_UNIX) as server, open("/proc/net/unix", "rb") as table:
        server.bind(path)
        assert path in names_of(table.read())


# ---- files of the host by another mount ----------------------------------------------------------

TWICE = """
mount -t tmpfs -o mode=755 none {top}; cd {top}; mkdir -p w/out alias
echo genuine > w/file; mount --bind w alias; cd /
"""

PASSED = """
import json, sys
import visruntime as vr
top, = json.loads(sys.argv[1])
def passed(path, **rules):
    with vr.Jail(vr.JailPolicy(write=[f"{top}/w"], **rules)) as jail, open(path) as file:
        try:
            child = jail.spawn(["sh", "-c", "echo x; echo EVIL >> /proc/self/fd/0"], stdin=file)
        except vr.PathDenied as error:
            return str(error)
        child.wait()
        with open(path) as now:
            return now.read()
print(json.dumps([
    passed(f"{top}/alias/file", deny_write=[f"{top}/w/file"]),
    passed(f"{top}/w/file", deny_write=[f"{top}/w/file"]),
    passed(f"{top}/alias/file"),
]))
"""


def test_a_descriptor_by_a_second_mount_does_not_open_what_is_closed(workspace: Path) -> None:
    """A file under deny_write may not be opened for writing by a descriptor of its second mount."""
    given = (json.dumps([str(workspace)]),)
    script = TWICE.format(top=workspace) + f"chmod 666 {workspace}/w/file"
    other, same, free = json.loads(in_mount_namespace(script, PASSED, arguments=given))
    for refusal in (other, same):
        assert f"does not let the guest write {workspace}/w/file" in refusal
    assert free.startswith("genuine\n")  # the control: without the clause it is taken


COPIED = """
import json, sys
import visruntime as vr
top, = json.loads(sys.argv[1])
def copied(path):
    try:
        jail.copy_in(path, "/tmp/x")
    except vr.PathDenied as error:
        return [error.path, error.errno]
    return jail.run(["cat", "/tmp/x"]).stdout_text
with vr.Jail(vr.JailPolicy(write=[f"{top}/w"])) as jail:
    before = copied(f"{top}/alias/out/file")
    moved = jail.run(["sh", "-c", f"cd {top}/w; cat other/file; mv out gone; mv other out"])
    assert "Permission denied" in moved.stderr_text
    print(json.dumps([before, copied(f"{top}/w/out/file"), copied(f"{top}/alias/out/file")]))
"""


@pytest.mark.skipif(not is_root(), reason="only root reads for a guest what the guest may not read")
def test_root_copies_nothing_in_by_a_second_mount_that_the_guest_may_not_read(
    workspace: Path,
) -> None:
    """A guest that moves another user's file may not have it copied in by another mount's name."""
    script = (
        TWICE.format(top=workspace)
        + f"""
cd {workspace}/w; mkdir other; echo public > out/file; echo closed > other/file
chmod 600 other/file; chown -R 1000:1000 other; cd /
"""
    )
    given = (json.dumps([str(workspace)]),)
    before, same, other = json.loads(in_mount_namespace(script, COPIED, arguments=given))
    assert before == "public\n"
    assert same == other == [f"{workspace}/w/out/file", 13]

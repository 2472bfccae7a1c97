"""Names that do not exist when the jail opens: no guest makes one, and the host sees nothing.

The acts are the same inside and outside; outside each one succeeds. See names_tree.py for the
tree and its policy.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, errno, inside, outside, policy_of
from names_tree import NAMES, policy, text
from watching import Watch

from visruntime import PolicyError, PolicyUnsupported

if TYPE_CHECKING:
    from pathlib import Path

MODES = ("broker", "wall")

MAKE = r"""
os.chdir(top)

def materials():
    # Everything that an act needs is in the folder `free`, where names may be made.
    for path in ("free/folder/hooks", "free/folder/workflows"):
        os.makedirs(path, exist_ok=True)
    with open("free/file", "w") as file:
        file.write("x")

def temporary(target):
    descriptor = os.open(os.path.dirname(target) or ".", os.O_TMPFILE | os.O_RDWR, 0o600)
    names = os.open("/proc/self/fd", os.O_PATH)  # only with a folder given links are followed
    os.link(str(descriptor), target, src_dir_fd=names, follow_symlinks=True)

def bound(target):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(target)

def by_descriptor(target):
    folder = os.open(os.path.dirname(target) or ".", os.O_PATH)
    os.close(os.open(os.path.basename(target), os.O_CREAT | os.O_WRONLY, dir_fd=folder))

def called(number, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

WAYS = {
    "open": lambda t: os.close(os.open(t, os.O_CREAT | os.O_WRONLY, 0o644)),
    "open exclusively": lambda t: os.close(os.open(t, os.O_CREAT | os.O_EXCL | os.O_RDWR)),
    "open to read": lambda t: os.close(os.open(t, os.O_CREAT | os.O_RDONLY)),
    "open absolute": lambda t: os.close(os.open(f"{top}/{t}", os.O_CREAT | os.O_WRONLY)),
    "open by folder": by_descriptor,
    "open with dots": lambda t: os.close(os.open(f"free/../{t}", os.O_CREAT | os.O_WRONLY)),
    "mkdir": os.mkdir,
    "mkdir with a slash": lambda t: os.mkdir(t + "/"),
    "symlink": lambda t: os.symlink("free", t),
    "mkfifo": os.mkfifo,
    "mknod": lambda t: os.mknod(t, stat.S_IFREG | 0o600),
    "bind": bound,
    "link": lambda t: os.link("free/file", t),
    "rename a file": lambda t: os.rename("free/file", t),
    "rename a folder": lambda t: os.rename("free/folder", t),
    "O_TMPFILE": temporary,
}

def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            os.rmdir(f"{path}/{name}")
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)

def tried(target):
    got = {}
    for name, way in WAYS.items():
        materials()
        got[name] = attempt(way, target)
        made = os.path.lexists(target)
        remove(target)
        if made != (got[name] == 0):
            got[name] = "made" if made else "not made"
    return got
"""

ALL = (
    MAKE
    + r"""
answer({target: tried(target) for target in targets})
"""
)

ANCESTORS = (
    MAKE
    + r"""
def planted(replace):
    materials()
    return attempt(os.rename, "free/folder", replace)
got = {
    "remove .git": attempt(os.rmdir, ".git"),
    "move .git aside": attempt(os.rename, ".git", "free/git"),
    "move the top aside": attempt(os.rename, top, top + "2"),
    "a folder for .github": planted(".github"),
    "a link for .github": attempt(os.symlink, "free/folder", ".github"),
    "a file for .github": attempt(os.link, "free/file", ".github"),
}
materials()
got["made"] = sorted(set(os.listdir(".")) - {".git", "free"})
answer(got)
"""
)


def seen(top: str) -> dict[str, tuple[int, ...]]:
    """Return what the host sees of the tree, but for what a guest may change."""
    found: dict[str, tuple[int, ...]] = {}
    for folder, folders, files in os.walk(top):
        if folder == f"{top}/free":
            folders.clear()
            continue
        for name in (".", *folders, *files):
            path = os.path.join(folder, name)
            at = os.lstat(path)
            found[path] = (at.st_mode, at.st_ino, at.st_uid)
            if path != f"{top}/free":
                found[path] += (at.st_nlink, at.st_mtime_ns, at.st_ctime_ns)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_fs_09_no_way_leads_to_a_name(top: str, mode: str) -> None:
    """FS-09: none of the ways to make a name may make a denied one; outside all of them do."""
    os.mkdir(f"{top}/.github")  # for the control: there all three parents exist
    control = outside(text(top, ALL))
    assert control == {name: dict.fromkeys(control[name], 0) for name in NAMES}
    shutil.rmtree(f"{top}/free")
    os.rmdir(f"{top}/.github")
    os.mkdir(f"{top}/free")
    with Jail(policy(top, mode)) as jail:
        got = inside(jail, text(top, ALL, NAMES[:2]))
    for name in NAMES[:2]:
        # A file without a name, and a folder that would gain rights, are refused as a move
        # between file systems is.
        other = {"O_TMPFILE": errno.EXDEV, "rename a folder": errno.EXDEV}
        expected = dict.fromkeys(got[name], errno.EACCES)
        assert got[name] in (expected, expected | other, expected | {"O_TMPFILE": errno.EXDEV})
        assert not os.path.lexists(f"{top}/{name}")


@pytest.mark.parametrize("mode", MODES)
def test_fs_05_the_host_sees_nothing(top: str, mode: str) -> None:
    """FS-05: while a jail opens, works, is attacked and closes, no name may come and go."""
    before = seen(top)
    with Watch(top, f"{top}/.git") as watch, Jail(policy(top, mode)) as jail:
        assert jail.run(["true"]).exit_code == 0
        assert jail.run(["false"]).exit_code == 1
        inside(jail, text(top, ALL, NAMES[:2]))
        inside(jail, text(top, ANCESTORS))
    names = watch.names()
    assert not names, names
    assert seen(top) == before
    # The control: a name that does come is seen.
    with Watch(top) as watch:
        subprocess.run(["touch", f"{top}/.envrc"], check=True)
        assert watch.names() == {".envrc"}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_above_a_name_is_neither_moved_nor_replaced(top: str, mode: str) -> None:
    """No folder, link or file may take the place of a folder above a denied name."""
    control = outside(text(top, ANCESTORS.replace('attempt(os.rename, top, top + "2")', "0")))
    # Outside the first one makes room, and is put to where the others take their things.
    assert control == {
        "remove .git": 0,
        "move .git aside": errno.ENOENT,
        "move the top aside": 0,
        "a folder for .github": 0,
        "a link for .github": errno.EEXIST,
        "a file for .github": errno.EEXIST,
        "made": [".github"],
    }
    shutil.rmtree(top)
    os.makedirs(f"{top}/.git")
    os.mkdir(f"{top}/free")
    with Jail(policy(top, mode)) as jail:
        got = inside(jail, text(top, ANCESTORS))
    assert got.pop("made") == []
    # Of a move Landlock, or the broker, judges before the mount point does.
    assert got.pop("move .git aside") == (errno.EXDEV if mode == "wall" else errno.EACCES)
    assert got.pop("remove .git") == errno.EBUSY
    # Beside it the jail's own folder is walled too, or the root, which takes no names at all.
    hidden = errno.EACCES
    assert got.pop("move the top aside") == (hidden if top.startswith("/tmp/") else errno.EROFS)
    assert set(got.values()) <= {errno.EACCES, errno.EXDEV}, got
    assert sorted(os.listdir(top)) == [".git", "free"]


def test_what_the_host_makes_at_a_name_is_not_moved_away(top: str) -> None:
    """Elsewhere the name would be held no more, and what is in it would be the guest's."""
    acts = """
answer([attempt(os.rename, top + "/.envrc", top + "/free/envrc"),
        attempt(os.rename, top + "/free/envrc", top + "/.envrc")])
"""
    with Jail(policy(top, "broker")) as jail:
        with open(f"{top}/.envrc", "w", encoding="ascii") as file:
            file.write("genuine")
        assert inside(jail, text(top, acts)) == [errno.EACCES, errno.EACCES]
    assert outside(text(top, acts)) == [0, 0]


def test_only_the_folders_behind_the_wall_take_no_names(top: str) -> None:
    """The wall may keep no one from work in folders that exist, nor from changing what is there."""
    os.mkdir(f"{top}/free/deep")
    with open(f"{top}/file", "w", encoding="utf-8") as file:
        file.write("x")
    guest = f"""
os.chdir({top!r})
got = [opened("file", os.O_WRONLY | os.O_TRUNC), opened("new", os.O_CREAT | os.O_WRONLY)]
got += [opened("free/deep/new", os.O_CREAT | os.O_WRONLY), attempt(os.mkdir, "free/made")]
got += [opened("free/made/new", os.O_CREAT | os.O_WRONLY), attempt(os.mkdir, "made")]
got += [attempt(os.rename, "free/deep", "free/other"), attempt(os.unlink, "file")]
got += [opened("/dev/shm/new", os.O_CREAT | os.O_WRONLY)]
answer(got)
"""
    denied = errno.EACCES
    with Jail(policy(top, "wall")) as jail:
        assert inside(jail, guest) == [0, denied, 0, 0, 0, denied, 0, 0, 0]
    asked = policy(top, "wall")
    assert not asked.why("write", f"{top}/new")
    assert "cannot make" in asked.why("write", f"{top}/new").reason
    assert not asked.why("write", f"{top}/made/new")
    assert asked.why("write", f"{top}/free/other/name")
    assert not asked.why("write", f"{top}/.github")


@pytest.mark.parametrize("mode", MODES)
def test_the_report_names_the_wall_and_its_canaries(top: str, mode: str) -> None:
    """A name that does not exist may not be reported as held by a mount."""
    with Jail(policy(top, mode)) as jail:
        report = jail.report
    for index in range(len(NAMES)):
        mechanisms = report.mechanisms(f"deny_write[{index}]")
        assert mechanisms[0].startswith("landlock-")
        assert mechanisms[0].endswith(" wall")
    held = {canary.name for canary in report.canaries if canary.held}
    assert {f"make {top}/{name}" for name in (".envrc", ".git/hooks", ".github")} <= held
    assert any(note.startswith("wall: ") and f"{top}/.git" in note for note in report.notes)


@pytest.mark.parametrize("mode", MODES)
def test_a_file_in_the_place_of_a_folder_stays(top: str, mode: str) -> None:
    """A ``.git`` that is a file may be neither changed nor replaced by a folder with hooks."""
    os.rmdir(f"{top}/.git")
    with open(f"{top}/.git", "w", encoding="utf-8") as file:
        file.write("gitdir: elsewhere\n")
    guest = f"""
os.chdir({top!r})
answer([opened(".git", os.O_WRONLY), attempt(os.unlink, ".git"), attempt(os.mkdir, ".git/hooks"),
        attempt(os.rename, ".git", "free/x")])
"""
    with Jail(policy(top, mode)) as jail:
        got = inside(jail, guest)
        assert f"protected {top}/.git" in [clause.clause for clause in jail.report.clauses]
    assert got == [errno.EROFS, errno.EBUSY, errno.ENOTDIR, errno.EBUSY]
    assert outside(guest) == [0, 0, errno.ENOENT, errno.ENOENT]


@pytest.mark.parametrize("mode", MODES)
def test_grants_around_and_inside_do_not_open_the_wall(top: str, mode: str) -> None:
    """A grant above the tree may not give back the right to make names that the wall takes."""
    above = os.path.dirname(top)
    os.mkdir(f"{above}/beside")
    nested = policy_of(
        write=[above, top, f"{top}/free"],
        read=[f"{top}/.git"],
        deny_write=[f"{top}/.envrc", f"{above}/.envrc", f"{top}/.git/hooks"],
        absent_deny=mode,
    )
    with Jail(nested) as jail:
        got = inside(jail, text(top, ALL, (".envrc", "../.envrc", ".git/hooks")))
        beside = f"answer(opened({above + '/beside/new'!r}, os.O_CREAT | os.O_WRONLY))"
        assert inside(jail, beside) == 0
    for name in (".envrc", "../.envrc"):
        assert set(got[name].values()) <= {errno.EACCES, errno.EXDEV}, got[name]
    # Below a read grant the mount refuses, and no wall is needed.
    assert set(got[".git/hooks"].values()) <= {errno.EROFS, errno.EXDEV}, got
    assert sorted(os.listdir(above)) == ["beside", "tree"]
    assert sorted(os.listdir(top)) == [".git", "free"]


@pytest.mark.parametrize(
    ("mode", "missing", "named"),
    [
        ("wall", "444", "Landlock"),  # landlock_create_ruleset
        ("broker", "444", "Landlock"),
        # seccomp with SECCOMP_FILTER_FLAG_NEW_LISTENER
        ("broker", '"seccomp", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 8, 8)', "broker"),
    ],
)
def test_a_kernel_without_the_means_refuses(top: str, mode: str, missing: str, named: str) -> None:
    """Where the name cannot be held no jail may open, and the error names the clause."""
    script = f"""
import errno, sys
import pyseccomp
import visruntime as vr
program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), {missing})
program.load()
vr.Jail(vr.JailPolicy(write=[{top!r}])).close()
try:
    vr.Jail(vr.JailPolicy(write=[{top!r}], deny_write=[{top!r} + "/.envrc"], absent_deny={mode!r}))
except vr.PolicyUnsupported as error:
    print(error.field, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("deny_write[0] ")
    assert named in done.stdout


def test_no_folder_takes_its_names_for_others(top: str) -> None:
    """A folder that tells names apart by case no more must not be made, where names are held."""
    flags = f"""
fd = os.open({top + "/free"!r}, os.O_RDONLY)
box = ctypes.c_int(0)
answer([call("ioctl", fd, code, ctypes.addressof(box)) for code in (0x80086601, 0x40086602)])
"""
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, flags) == [0, errno.EPERM]
    assert outside(flags) == [0, 0]


def test_a_name_denied_for_reading_cannot_be_held(top: str) -> None:
    """The host may make the name later, which no wall keeps from being read: refused."""
    for kind in ("deny", "deny_read", "deny_exec"):
        with pytest.raises(PolicyUnsupported, match=r"\.envrc does not exist") as caught:
            Jail(policy_of(write=[top], absent_deny="wall", **{kind: [f"{top}/.envrc"]}))
        assert caught.value.field == f"{kind}[0]"
    with pytest.raises(PolicyUnsupported, match=r'absent_deny="error"') as caught:
        Jail(policy(top, "error"))
    assert caught.value.field == "deny_write[0]"


def test_links_that_could_lead_to_a_name_are_refused(top: str, outside: Path) -> None:
    """A denied name that is a link to nothing may not be taken for one that does not exist."""
    os.symlink(f"{outside}/nothing", f"{top}/.envrc")
    with pytest.raises(PolicyError, match=r"is a link inside a writable grant"):
        Jail(policy(top, "wall"))


@pytest.mark.parametrize("mode", MODES)
def test_a_socket_grant_opens_no_way_to_a_name(top: str, mode: str) -> None:
    """A broker that binds sockets for guests may not bind one at a denied name."""
    path = f"{os.path.dirname(top)}/s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with Jail(policy(top, mode, sockets=[path])) as jail:
            guest = text(top, MAKE + 'answer([attempt(bound, ".envrc"), attempt(bound, "s")])')
            other = errno.EACCES if mode == "wall" else 0
            assert inside(jail, guest) == [errno.EACCES, other]
            assert inside(jail, text(top, 'answer(attempt(os.unlink, top + "/s"))')) == (
                errno.ENOENT if other else 0
            )
            got = inside(jail, text(top, ALL, NAMES[:2]))
            assert {*got[".envrc"].values(), *got[".git/hooks"].values()} <= {
                errno.EACCES,
                errno.EXDEV,
            }
            reached = f"answer(attempt(socket.socket(socket.AF_UNIX).connect, {path!r}))"
            assert inside(jail, reached) == 0
    assert sorted(os.listdir(top)) == [".git", "free"]


WRITE_AND_RUN = """
import os, subprocess
failed = 0
for number in range(200):
    name = f"program{number}"
    with open(name, "w") as file: file.write("#!/bin/true\\n")
    os.chmod(name, 0o755)
    try: failed += subprocess.run(["./" + name]).returncode
    except OSError as error: failed += error.errno
    os.unlink(name)
print(failed)
"""


def test_a_program_runs_as_soon_as_it_is_written(workspace: Path) -> None:
    """The broker must have let go of a file that it made when the guest goes on."""
    rules = policy_of(write=[workspace], deny_write=[workspace / ".envrc"])
    with Jail(rules) as jail:
        result = jail.run([PYTHON, "-c", WRITE_AND_RUN], cwd=workspace)
    assert (result.stdout, result.stderr) == (b"0\n", b"")

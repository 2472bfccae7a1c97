"""Boundary: names. No rename, link or exchange leads around a rule, before or while a jail runs."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, is_root, outside, policy_of

from visruntime._jail import open as _jail_open
from visruntime._jail.plan import make_plan
from visruntime.errors import JailUnavailable, PolicyError, PolicyUnsupported

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from visruntime._jail.plan import JailPlan

EXCHANGE = 2  # RENAME_EXCHANGE
SWAPS = 60


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("kind", ["deny", "deny_write", "read"])
def test_no_folder_above_a_rule_can_be_moved_aside(workspace: Path, depth: int, kind: str) -> None:
    """Each folder between a write grant and a rule must stay where it is."""
    folders = [f"d{number}" for number in range(depth)]
    held = workspace.joinpath(*folders, "held")
    held.mkdir(parents=True)
    (held / "f").write_text("before")
    (workspace / "other").mkdir()
    chain = [str(workspace.joinpath(*folders[: number + 1])) for number in range(depth)]
    chain.append(str(held))
    text = f"""
w = {str(workspace)!r}
got = []
for path in {chain!r}:
    p, o = path.encode(), (w + "/other").encode()
    got.append([attempt(os.rename, path, w + "/aside"), attempt(os.rmdir, path),
        call("renameat2", -100, p, -100, o, {EXCHANGE}), attempt(os.rename, w + "/other", path),
        attempt(os.symlink, "/tmp", path)])
answer(got)
"""
    with Jail(policy_of(write=[workspace], **{kind: [held]})) as jail:
        got = inside(jail, text)
        for renamed, removed, exchanged, replaced, linked in got:
            assert renamed == exchanged == replaced == errno.EBUSY
            assert removed in (errno.EBUSY, errno.ENOTEMPTY)
            assert linked == errno.EEXIST
        # Next to the rule the grant stays one place to work in.
        free = workspace.joinpath(*folders)
        moved = f"""
d = {str(free)!r}
os.mkdir(d + "/new"); os.rename(d + "/new", {str(workspace)!r} + "/new")
answer(attempt(os.rmdir, {str(workspace)!r} + "/new"))
"""
        assert inside(jail, moved) == 0
    assert (held / "f").read_text() == "before"
    assert not (workspace / "aside").exists()
    control = f"answer(attempt(os.rename, {chain[0]!r}, {str(workspace / 'aside')!r}))"
    assert outside(control) == 0


def test_fs_10_no_name_can_be_put_over_a_protected_one(workspace: Path) -> None:
    """Renaming, linking, removing, exchanging and opening must all leave a protected file."""
    git = workspace / ".git"
    git.mkdir()
    (git / "config").write_text("[core]\n")
    (workspace / "x").write_text("evil")
    text = f"""
w = {str(workspace)!r}
os.chdir(w)
c = ".git/config"
answer([attempt(os.rename, "x", c), attempt(os.link, "x", c), attempt(os.unlink, c),
    call("renameat2", -100, b"x", -100, c.encode(), {EXCHANGE}), attempt(os.symlink, "x", c),
    opened(c, os.O_WRONLY), opened(c, os.O_WRONLY | os.O_TRUNC), attempt(os.truncate, c, 0),
    attempt(os.chmod, c, 0o666), attempt(os.rename, c, "y"), attempt(os.mkdir, c),
    call("mount", b"x", c.encode(), 0, 4096, 0), attempt(os.setxattr, c, "user.a", b"b")])
"""
    with Jail(JailPolicy(write=[workspace], deny_write=[git / "config"])) as jail:
        got = inside(jail, text)
        assert got == [
            errno.EBUSY,
            errno.EEXIST,
            errno.EBUSY,
            errno.EBUSY,
            errno.EEXIST,
            errno.EROFS,
            errno.EROFS,
            errno.EROFS,
            errno.EROFS,
            errno.EBUSY,
            errno.EEXIST,
            errno.EPERM,
            errno.EROFS,
        ]
        for command in (
            "mv x .git/config",
            "ln -f x .git/config",
            "ln -sf x .git/config",
            "rm -f .git/config",
            "git config core.fsmonitor /tmp/x",
            "echo evil > .git/config",
            "mv .git .tig",
        ):
            assert jail.shell(command, cwd=workspace).exit_code != 0, command
    assert (git / "config").read_text() == "[core]\n"
    control = f"answer(attempt(os.rename, {str(workspace / 'x')!r}, {str(git / 'config')!r}))"
    assert outside(control) == 0


def test_fs_13_no_hard_link_out_of_a_denied_or_read_only_area(workspace: Path) -> None:
    """A second name must not carry a file out of the rule that holds for it."""
    for name in ("rw", "ro"):
        (workspace / name).mkdir()
    (workspace / "ro" / "f").write_text("before")
    (workspace / "rw" / "secret").write_text("TOP")
    (workspace / "rw" / "kept").mkdir()
    (workspace / "rw" / "kept" / "f").write_text("before")
    text = f"""
os.chdir({str(workspace)!r})
def through_descriptor(path, to):
    file = os.open(path, os.O_RDONLY)
    return call2(file, to)
def call2(file, to):
    return attempt(os.link, "/proc/self/fd/%d" % file, to, follow_symlinks=True)
answer([attempt(os.link, "ro/f", "rw/a"), attempt(os.link, "rw/secret", "rw/b"),
    attempt(os.link, "rw/kept/f", "rw/c"), through_descriptor("ro/f", "rw/d"),
    through_descriptor("rw/kept/f", "rw/e"), attempt(os.rename, "rw/kept/f", "rw/g")])
"""
    policy = JailPolicy(
        write=[workspace / "rw"],
        read=[workspace / "ro"],
        deny=[workspace / "rw" / "secret"],
        deny_write=[workspace / "rw" / "kept"],
    )
    with Jail(policy) as jail:
        got = inside(jail, text)
        assert set(got[:5]) <= {errno.EXDEV, errno.EROFS}
        assert got[5] in (errno.EXDEV, errno.EROFS)
        result = jail.shell(
            "ln ro/f rw/a && echo X > rw/a; ln rw/secret rw/b && cat rw/b", cwd=workspace / "rw"
        )
        assert b"TOP" not in result.stdout
    assert sorted(os.listdir(workspace / "rw")) == ["kept", "secret"]
    assert (workspace / "ro" / "f").read_text() == "before"
    assert outside(text)[:2] == [0, 0]


def test_fs_13_a_denied_file_with_a_second_name_is_refused(workspace: Path) -> None:
    """A deny that another name would void must be refused before anything starts."""
    secret = workspace / "secret"
    secret.write_text("TOP")
    os.link(secret, workspace / "alias")
    with pytest.raises(PolicyUnsupported, match=r"deny\[0\].*hard links"):
        Jail(JailPolicy(write=[workspace], deny=[secret]))
    (workspace / "alias").unlink()
    with Jail(JailPolicy(write=[workspace], deny=[secret])) as jail:
        assert inside(jail, f"answer(opened({str(secret)!r}))") == errno.EACCES


def test_fs_19_one_write_grant_has_no_seams(workspace: Path) -> None:
    """Renames and links between folders of one grant must work, with rules inside it too."""
    (workspace / "keep" / "deep").mkdir(parents=True)
    text = f"""
os.chdir({str(workspace)!r})
os.makedirs("d/n"); open("d/f", "w").close(); os.rename("d/f", "d/n/f"); os.link("d/n/f", "l")
os.rename("d", "e"); os.rename("e", "keep/e"); os.rename("keep/e/n/f", "m"); answer(os.listdir("."))
"""
    with Jail(JailPolicy(write=[workspace], deny=[workspace / "keep" / "deep"])) as jail:
        assert sorted(inside(jail, text)) == ["keep", "l", "m"]


def test_a_link_that_a_guest_planted_leads_nowhere(workspace: Path, outside_file: Path) -> None:
    """A later policy that passes through a guest's link must be refused, not followed."""
    (workspace / "out").mkdir()
    plant = f"""
os.chdir({str(workspace)!r})
os.rmdir("out"); os.symlink({str(outside_file.parent)!r}, "out"); os.symlink("/etc", "etc")
answer(opened("out/secret.txt"))
"""
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert inside(jail, plant) == errno.ENOENT
    read_through = f"answer(opened({str(workspace / 'out' / 'secret.txt')!r}))"
    assert outside(read_through) == 0
    for changes in (
        {"deny": [workspace / "out" / "secret.txt"]},
        {"read": [workspace / "out"]},
        {"deny_write": [workspace / "etc"]},
        {"read": [workspace / "etc" / "ssl"]},
    ):
        with pytest.raises(PolicyError, match=r"is a link (inside a writable|out of its folder)"):
            Jail(policy_of(write=[workspace], **changes))
    # A later policy need not know the grant that the link was made in.
    for changes in ({"read": [workspace / "etc" / "ssl"]}, {"deny": [workspace / "etc" / "ssl"]}):
        with pytest.raises(PolicyError, match="is a link in a folder that is not the system's"):
            Jail(policy_of(**changes))
    for changes in ({"read": [workspace / "out"]}, {"write": [workspace / "out"]}):
        with pytest.raises(PolicyError, match="out of its folder"):
            Jail(policy_of(**changes))


def test_sy_01_a_deny_through_a_link(workspace: Path) -> None:
    """A protected name that is a link must hold for what it leads to, or be refused in words."""
    (workspace / "real").mkdir()
    (workspace / ".agents").symlink_to("real")
    with pytest.raises(PolicyError, match="is a link inside a writable grant"):
        Jail(JailPolicy(write=[workspace], deny_write=[workspace / ".agents"]))
    with pytest.raises(PolicyError, match="name what it leads to"):
        Jail(JailPolicy(read=[workspace], deny=[workspace / ".agents"]))
    (workspace / "real" / "f").write_text("secret")
    with Jail(JailPolicy(read=[workspace], deny=[workspace / "real"])) as jail:
        text = f"""
os.chdir({str(workspace)!r})
answer([opened(".agents/f"), opened("real/f"), attempt(os.listdir, "real")])
"""
        assert inside(jail, text) == [errno.EACCES] * 3
        assert outside(text) == [0, 0, 0]


def test_a_grant_that_is_swapped_while_a_jail_opens(workspace: Path, outside_file: Path) -> None:
    """A folder that becomes a link between compiling and mounting must never lead elsewhere."""
    grant = workspace / "grant"
    grant.mkdir()
    (grant / "mine").write_text("mine")
    (workspace / "kept").mkdir()
    going = True

    def swap() -> None:
        while going:
            grant.rename(workspace / "kept" / "grant")
            grant.symlink_to(outside_file.parent)
            grant.unlink()
            (workspace / "kept" / "grant").rename(grant)

    racer = threading.Thread(target=swap)
    racer.start()
    opened = refused = 0
    try:
        for _ in range(SWAPS):
            try:
                with Jail(JailPolicy(read=[grant])) as jail:
                    opened += 1
                    assert jail.run(["ls", str(grant)]).stdout in (b"mine\n", b"")
                    assert not jail.exists(grant / "secret.txt")
            except (PolicyError, JailUnavailable):
                refused += 1
    finally:
        going = False
        racer.join()
    assert opened + refused == SWAPS
    assert refused, "the race was never met"


@pytest.mark.parametrize("kind", ["read", "write", "deny", "deny_write", "deny_exec"])
@pytest.mark.parametrize("shape", ["file", "folder"])
@pytest.mark.parametrize("above", [False, True])
def test_an_object_that_is_replaced_between_plan_and_mount(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shape: str, *, above: bool
) -> None:
    """No rule must be laid over another object than the one that it was compiled for."""
    folder = workspace / "folder"
    folder.mkdir()
    target = folder / "target"
    make(target, shape)

    def plan_then_swap(*arguments: Any, **named: Any) -> JailPlan:
        plan = make_plan(*arguments, **named)
        moved = folder if above else target
        moved.rename(workspace / "aside")
        if above:
            folder.mkdir()
        make(target, shape)
        return plan

    rules = (
        {kind: [target]} if kind in ("read", "write") else {"write": [workspace], kind: [target]}
    )
    monkeypatch.setattr(_jail_open, "make_plan", plan_then_swap)
    with pytest.raises(PolicyError, match=r"replaced while the jail was opening"):
        Jail(policy_of(**rules))
    monkeypatch.undo()
    with Jail(policy_of(**rules)) as jail:
        assert jail.run(["true"]).exit_code == 0


def make(path: Path, shape: str) -> None:
    """Make a new file or folder."""
    if shape == "file":
        path.write_text("x")
    else:
        path.mkdir()


@pytest.mark.skipif(not is_root(), reason="only root may hand the guest's files to others")
def test_files_of_others_in_a_grant_keep_their_owner(workspace: Path) -> None:
    """A root caller's guest must not own what belongs to another user inside the grant."""
    other = workspace / "other"
    other.write_text("x")
    other.chmod(0o600)
    os.chown(other, 4321, 4321)
    text = f"answer([opened({str(other)!r}), attempt(os.chmod, {str(other)!r}, 0o777)])"
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert inside(jail, text) == [errno.EACCES, errno.EPERM]
    assert outside(text) == [0, 0]

"""Boundary: folders that a guest closes for a moment. No rule on what is in them is left out."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PYTHON,
    Jail,
    JailPolicy,
    errno,
    guest,
    inside,
    is_root,
    outside,
    policy_of,
)

from visruntime._policy import links as links_module
from visruntime.errors import PolicyError, VisRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

READ = "answer(opened({top!r} + '/a/b/prod.cred'))"
WRITE = "answer(opened({top!r} + '/a/b/prod.cred', os.O_WRONLY))"
MAKE = "answer(opened({top!r} + '/a/new', os.O_CREAT | os.O_WRONLY))"
EXECUTE = """
program = {top!r} + "/a/b/program"
def run():
    os.execv(program, ["program"])
answer(attempt(run) if not os.access(program, os.X_OK) or in_child(lambda: attempt(run)) else 0)
"""
HOOK = "answer(opened({top!r} + '/a/.git/hooks/pre-commit', os.O_CREAT | os.O_WRONLY))"


def _workspace(top: str) -> Jail:
    return Jail(JailPolicy.workspace(f"{top}/a"))


def _implicit(top: str) -> Jail:
    return Jail(JailPolicy(write=[top]), implicit_read=[(f"{top}/a/b", "the environment")])


def _by(**fields: str) -> Callable[[str], Jail]:
    def opening(top: str) -> Jail:
        return Jail(policy_of(write=[top], **{kind: [top + end] for kind, end in fields.items()}))

    return opening


RULES: dict[str, tuple[Callable[[str], Jail], str, set[int]]] = {
    "deny": (_by(deny="/a/b/prod.cred"), READ, {errno.EACCES}),
    "deny_write": (_by(deny_write="/a/b/prod.cred"), WRITE, {errno.EROFS, errno.EACCES}),
    "deny_write of a name to come": (_by(deny_write="/a/new"), MAKE, {errno.EACCES}),
    "deny_exec": (_by(deny_exec="/a/b"), EXECUTE, {errno.EACCES}),
    "read": (_by(read="/a/b"), WRITE, {errno.EROFS, errno.EACCES}),
    "pattern": (_by(deny="/**/*.cred"), READ, {errno.EACCES}),
    "pattern of links": (_by(deny="/*.link"), READ, {errno.EACCES}),
    "linked secret": (_by(), READ, {errno.EACCES}),
    "implicit read": (_implicit, WRITE, {errno.EROFS, errno.EACCES}),
    "workspace": (_workspace, HOOK, {errno.EROFS, errno.EACCES}),
}
"""Of each kind of rule a jail, what its guest tries, and what must come back."""


@pytest.fixture
def top(workspace: Path) -> str:
    """Return a folder whose folder ``a`` guests will close."""
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "a" / "b" / "prod.cred").write_text("top-secret")
    shutil.copy("/bin/true", workspace / "a" / "b" / "program")
    (workspace / "a" / ".git" / "hooks").mkdir(parents=True)
    (workspace / "a" / ".git" / "config").write_text("[core]\n")
    return str(workspace)


def _prepare(top: str, kind: str) -> None:
    names = {"linked secret": ".env", "pattern of links": "one.link"}
    if kind in names:
        os.symlink("a/b/prod.cred", f"{top}/{names[kind]}")


MOST_LOOKS = 16
"""That are tried one by one: a workspace has hundreds, of which some stand for all."""


class Closing:
    """Lets one look of this process at what is in a folder fail, as if that were closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
        self._folder = folder
        self.looks = 0
        self.closed_at = -1
        for module, name in ((os, "lstat"), (os, "stat"), (os, "open"), (links_module, "step")):
            monkeypatch.setattr(module, name, self._closing(getattr(module, name)))

    def _closing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def closing(path: Any, *rest: Any, **named: Any) -> Any:
            folder = named.get("dir_fd")
            if folder is None and function.__name__ == "step":
                folder = rest[0]
            if isinstance(path, str) and self._is_inside(path, folder):
                self.looks += 1
                if self.looks - 1 == self.closed_at:
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return function(path, *rest, **named)

        return closing

    def _is_inside(self, path: str, folder: int | None) -> bool:
        if folder is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        return path.startswith(f"{self._folder}/")


@pytest.mark.parametrize("kind", RULES)
def test_no_look_that_finds_a_folder_closed_drops_a_rule(
    top: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whichever look at a folder finds it closed, the jail refuses by name or holds the rule."""
    opening, text, denied = RULES[kind]
    text = text.format(top=top)
    _prepare(top, kind)
    with monkeypatch.context() as patch:
        closing = Closing(patch, f"{top}/a")
        with opening(top) as jail:
            looks = closing.looks
            assert inside(jail, text) in denied  # nothing is closed
        assert looks > 0
        refused = 0
        for number in range(0, looks, -(-looks // MOST_LOOKS)):
            closing.looks, closing.closed_at = 0, number
            try:
                with opening(top) as jail:
                    assert inside(jail, text) in denied, f"look {number} of {looks}"
            except PolicyError as error:
                refused += top in str(error)
        assert refused > 0
    assert outside(text) == 0  # control


FLIP = """
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    os.chmod({folder!r}, 0)
    time.sleep(0.00003)
    os.chmod({folder!r}, 0o755)
    time.sleep(0.0004)
"""
SECONDS = 4
TRIES = """
got = set()
for _ in range(200):
    got.add(opened({path!r}))
answer(sorted(got))
"""


def test_a_folder_that_is_closed_and_opened_again_shows_no_later_jail_a_secret(top: str) -> None:
    """While one guest opens and closes the folder above a deny, no jail of the policy shows it."""
    path = f"{top}/a/b/prod.cred"
    policy = JailPolicy(write=[top], deny=[path])
    flip = guest(FLIP.format(seconds=SECONDS, folder=f"{top}/a"))
    opened = 0
    with Jail(policy) as first:
        flipping = first.spawn([PYTHON, "-IBS", "-c", flip])
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                with Jail(policy) as jail:
                    got = inside(jail, TRIES.format(path=path))
            except VisRuntimeError:
                continue  # refused while it was closed
            assert set(got) <= {errno.EACCES}
            opened += 1
        flipping.wait()
    assert opened > 0
    os.chmod(f"{top}/a", 0o755)
    assert outside(f"answer(opened({path!r}))") == 0  # control


def test_settings_of_git_that_a_guest_keeps_closed_are_no_missing_ones(top: str) -> None:
    """Settings that cannot be read for the moment may name programs, so they are refused by name."""
    if is_root():
        pytest.skip("root reads what is closed")
    folder = f"{top}/a"
    with open(f"{folder}/.git/config", "w", encoding="ascii") as file:
        file.write("[core]\n\tfsmonitor = b/program\n[include]\n\tpath = ../more\n")
    with open(f"{folder}/more", "w", encoding="ascii") as file:
        file.write("[core]\n\thooksPath = hooks\n")
    policy = JailPolicy.workspace(folder)
    assert {f"{folder}/b/program", f"{folder}/hooks"} <= set(policy.deny_write)  # control
    for closed, named in ((".git", ".git/config"), (".git/config",) * 2, ("more",) * 2):
        mode = os.stat(f"{folder}/{closed}").st_mode
        os.chmod(f"{folder}/{closed}", 0)
        with pytest.raises(PolicyError, match=f"{re.escape(named)} cannot be read"):
            JailPolicy.workspace(folder)
        os.chmod(f"{folder}/{closed}", mode)
    assert JailPolicy.workspace(folder) == policy

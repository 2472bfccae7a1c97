"""Names that are held while the folders around them come and go.

What stood above a denied name when the jail opened can be removed by the host (a checkout of
another branch does that), or by a guest of another jail on the same folder. What is made in its
place is another object, and the name is denied there all the same.
"""

from __future__ import annotations

import os
import shutil

import pytest
from jail_helpers import Jail, errno, inside, outside, policy_of
from names_tree import policy, text

from visruntime import PolicyUnsupported

DENIED = errno.EACCES

MAKE = """
os.chdir(top)
got = [attempt(os.mkdir, ".github"), attempt(os.mkdir, ".github/workflows")]
got += [attempt(os.mkdir, ".git"), attempt(os.mkdir, ".git/hooks")]
got += [opened(".git/other", os.O_CREAT | os.O_WRONLY), attempt(os.mkdir, "new")]
answer(got)
"""


def test_the_folder_above_a_name_is_removed_by_the_host(top: str) -> None:
    """A name in a folder that was removed and made anew may not be made, others may."""
    os.mkdir(f"{top}/.github")
    with Jail(policy(top, "broker")) as jail:
        exists = errno.EEXIST
        assert inside(jail, text(top, MAKE)) == [exists, DENIED, exists, DENIED, 0, 0]
        shutil.rmtree(f"{top}/.git")
        os.rmdir(f"{top}/.github")
        os.rmdir(f"{top}/new")
        assert inside(jail, text(top, MAKE)) == [0, DENIED, 0, DENIED, 0, 0]
    assert os.listdir(f"{top}/.github") == []
    assert os.listdir(f"{top}/.git") == ["other"]
    for name in (".github", ".git", "new"):
        shutil.rmtree(f"{top}/{name}")
    assert outside(text(top, MAKE)) == [0] * 6


def test_what_is_denied_and_was_removed_by_the_host_is_not_made_anew(top: str) -> None:
    """A name that existed when the jail opened may not come back as the guest's own."""
    os.makedirs(f"{top}/.vscode")
    os.makedirs(f"{top}/src/kept")
    os.mkdir(f"{top}/src/free")
    for name in ("src/file", "src/secret", "free/file"):
        open(f"{top}/{name}", "w").close()
    asked = policy(top, "broker")
    paths = [f"{top}/{name}" for name in (".vscode", "src/file", "free/file")]
    asked = asked.replace(
        deny_write=[*asked.deny_write, *paths], deny=[f"{top}/src/secret"], read=[f"{top}/src/kept"]
    )
    guest = """
os.chdir(top)
open("source", "w").close()
os.mkdir("folder")
got = []
for name in (".vscode", "src/kept", "src/file", "src/secret", "free/file"):
    got.append([attempt(os.mkdir, name), opened(name, os.O_CREAT | os.O_WRONLY),
        attempt(os.symlink, "source", name), attempt(os.link, "source", name),
        attempt(os.rename, "folder", name), attempt(os.rename, "source", name),
        attempt(socket.socket(socket.AF_UNIX).bind, name)])
    if os.path.lexists(name):
        break
got.append(opened("src/new", os.O_CREAT | os.O_WRONLY))
got.append(opened("src/free/new", os.O_CREAT | os.O_WRONLY))
answer(got)
"""
    with Jail(asked) as jail:
        shutil.rmtree(f"{top}/.vscode")
        shutil.rmtree(f"{top}/src/kept")
        for name in ("src/file", "src/secret", "free/file"):
            os.unlink(f"{top}/{name}")
        assert inside(jail, text(top, guest)) == [*[[DENIED] * 7] * 5, 0, 0]
    shutil.rmtree(f"{top}/folder")
    os.unlink(f"{top}/source")
    assert outside(text(top, guest))[0][0] == 0


def test_installed_code_is_kept_for_what_is_in_it(top: str) -> None:
    """A folder that is read-only for its linked files may be made anew once those are gone."""
    code = f"{top}/venv/lib/site-packages"
    os.makedirs(code)
    open(f"{code}/module.py", "w").close()
    os.link(f"{code}/module.py", f"{os.path.dirname(top)}/linked.py")
    guest = """
os.chdir(top)
name = "venv/lib/site-packages"
got = [opened(name + "/module.py", os.O_WRONLY), attempt(os.mkdir, "new")]
answer(got)
"""
    again = """
os.chdir(top)
name = "venv/lib/site-packages"
answer([attempt(os.mkdir, name), opened(name + "/module.py", os.O_CREAT | os.O_WRONLY)])
"""
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, text(top, guest)) == [errno.EROFS, 0]
        shutil.rmtree(code)
        assert inside(jail, text(top, again)) == [0, 0]
    shutil.rmtree(code)
    assert outside(text(top, again)) == [0, 0]


INSIDE = """
os.chdir(top)
got = [attempt(os.mkdir, f"{grant}/folder"), opened(f"{grant}/file", os.O_CREAT | os.O_WRONLY),
    attempt(os.rename, f"{grant}/file", f"{grant}/folder/file"),
    attempt(os.link, f"{grant}/folder/file", f"{grant}/second"),
    attempt(socket.socket(socket.AF_UNIX).bind, f"{grant}/socket"),
    opened(f"{grant}/{missing}", os.O_CREAT | os.O_WRONLY),
    attempt(os.rename, f"{grant}/second", f"{grant}/kept"),
    attempt(os.mkdir, kept)]
answer(got)
"""


@pytest.mark.parametrize(
    ("kept", "grant", "missing", "rules"),
    [
        ("src", "src/gen", "secret.key", {"read": ["src"]}),
        ("a", "a/b", ".envrc", {"deny_write": ["a"]}),
    ],
)
def test_a_grant_inside_of_a_kept_name_is_one(
    top: str, kept: str, grant: str, missing: str, rules: dict[str, list[str]]
) -> None:
    """What is denied around a grant may not be kept in it; what is denied in it may not come."""
    os.makedirs(f"{top}/{grant}/kept")
    given = {kind: [f"{top}/{name}" for name in names] for kind, names in rules.items()}
    given["deny_write"] = [
        *given.get("deny_write", ()),
        f"{top}/{grant}/{missing}",
        f"{top}/{grant}/kept",
    ]
    asked = policy_of(write=[top, f"{top}/{grant}"], absent_deny="broker", **given)
    guest = f"grant, missing, kept = {grant!r}, {missing!r}, {kept!r}\n{INSIDE}"
    assert asked.why("write", f"{top}/{grant}/folder").allowed
    with Jail(asked) as jail:
        os.rmdir(f"{top}/{grant}/kept")
        exists = errno.EEXIST
        assert inside(jail, text(top, guest)) == [0, 0, 0, 0, 0, DENIED, DENIED, exists]
        shutil.rmtree(f"{top}/{kept}")
        lost = f"os.chdir(top)\nanswer([attempt(os.mkdir, {kept!r}), attempt(os.mkdir, 'new')])"
        assert inside(jail, text(top, lost)) == [DENIED, 0]
    os.makedirs(f"{top}/{grant}")
    os.rmdir(f"{top}/new")
    assert outside(text(top, guest)) == [0, 0, 0, 0, 0, 0, 0, exists]
    shutil.rmtree(f"{top}/{kept}")
    assert outside(text(top, lost)) == [0, 0]


def test_names_that_exist_answer_as_without_the_broker(top: str) -> None:
    """Programs that make what is there already (mkdir -p) may not fail for another reason."""
    os.makedirs(f"{top}/.vscode")
    open(f"{top}/file", "w").close()
    asked = policy(top, "broker")
    asked = asked.replace(
        deny_write=[*asked.deny_write, f"{top}/.vscode", f"{top}/file"],
    )
    guest = """
os.chdir(top)
answer([attempt(os.mkdir, ".vscode"), attempt(os.mkdir, ".git"), attempt(os.mkdir, "file"),
    opened("file", os.O_CREAT), opened(".git", os.O_CREAT | os.O_WRONLY),
    opened("file", os.O_CREAT | os.O_EXCL), attempt(os.symlink, "x", "file"),
    opened("file", os.O_CREAT | os.O_WRONLY), opened(".vscode/x", os.O_CREAT | os.O_WRONLY)])
"""
    there = [*[errno.EEXIST] * 3, 0, errno.EISDIR, errno.EEXIST, errno.EEXIST]
    with Jail(asked) as jail:
        assert inside(jail, text(top, guest)) == [*there, errno.EROFS, errno.EROFS]
    assert outside(text(top, guest)) == [*there, 0, 0]


def test_two_jails_cannot_bring_a_name_together(top: str) -> None:
    """What one guest moves or removes may not let a guest with the same policy make a name."""
    os.rmdir(f"{top}/.git")
    prepare = """
os.chdir(top)
answer([attempt(os.mkdir, name) for name in (".git", ".github", "full", "full/hooks")])
"""
    away = """
os.chdir(top)
answer([attempt(os.rename, ".git", "aside"), attempt(os.rename, "full", ".git"),
    call("renameat2", -100, b"full", -100, b".git", 2), attempt(os.rename, ".github", "free/x"),
    attempt(os.rmdir, ".github")])
"""
    with Jail(policy(top, "broker")) as first:
        assert inside(first, text(top, prepare)) == [0] * 4
        with Jail(policy(top, "broker")) as second:
            assert inside(first, text(top, away)) == [*[DENIED] * 4, 0]
            exists = errno.EEXIST
            assert inside(second, text(top, MAKE)) == [0, DENIED, exists, DENIED, 0, 0]
            # Also where the folder went away by other hands.
            os.rename(f"{top}/.git", f"{top}/moved")
            moved = """
os.chdir(top)
answer([attempt(os.mkdir, "moved/hooks"), attempt(os.mkdir, ".git"), attempt(os.mkdir, ".git/hooks"),
    attempt(os.mkdir, "moved/x")])
"""
            assert inside(second, text(top, moved)) == [DENIED, 0, DENIED, 0]
    assert os.listdir(f"{top}/.git") == []
    shutil.rmtree(top)
    os.makedirs(f"{top}/free")
    assert outside(text(top, prepare)) == [0] * 4
    assert outside(text(top, away)) == [0, 0, errno.ENOENT, 0, errno.ENOENT]


def test_a_folder_named_as_if_it_were_removed_is_one(top: str) -> None:
    """The kernel's mark of a removed folder may not be taken for a name, nor a name for it."""
    guest = """
os.chdir(top)
name = ".git (deleted)"
got = [attempt(os.mkdir, name), attempt(os.mkdir, name + "/hooks"), attempt(os.mkdir, name + "/x")]
os.mkdir("gone (deleted)")
os.mkdir("gone")
folder = os.open("gone", os.O_PATH)
os.rmdir("gone")
answer([*got, call("mkdirat", folder, b"x", 0o700), os.listdir("gone (deleted)")])
"""
    expected = [0, 0, 0, errno.ENOENT, []]
    with Jail(policy(top, "broker")) as jail:
        assert inside(jail, text(top, guest)) == expected
    shutil.rmtree(top)
    os.mkdir(top)
    assert outside(text(top, guest)) == expected


def test_more_kept_names_than_the_broker_knows_are_refused_by_name(top: str) -> None:
    """No name beyond the broker's list may be left out silently."""
    names = [f"{top}/free/{number}" for number in range(4097)]
    for name in names:
        os.mkdir(name)
    asked = policy_of(write=[top], deny_write=[f"{top}/.envrc", *names], absent_deny="broker")
    with pytest.raises(PolicyUnsupported, match=r"4096 others .* here 4097"):
        Jail(asked)
    fewer = asked.replace(deny_write=[f"{top}/.envrc", *names[:4001]])
    guest = "os.chdir(top)\nanswer([attempt(os.mkdir, f'free/{n}') for n in ('4000/x', 'new')])"
    with Jail(fewer) as jail:
        assert inside(jail, text(top, guest)) == [errno.EROFS, 0]
    os.rmdir(f"{top}/free/new")
    assert outside(text(top, guest)) == [0, 0]

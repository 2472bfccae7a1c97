"""Boundary: what the host's git runs in a workspace that a guest has worked in."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy

from visruntime._policy import linked_names
from visruntime.errors import PolicyError
from visruntime.policy import PROTECTED_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENVIRONMENT = {
    "PATH": os.defpath,
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the host's git in *folder*."""
    return subprocess.run(
        ["git", "-c", "safe.directory=*", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
    )


def link_hook(folder: Path) -> None:
    """Make a script of the repository its hook, as many projects do."""
    (folder / "scripts").mkdir()
    script = folder / "scripts/check.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    (folder / ".git/hooks/pre-commit").symlink_to("../../scripts/check.sh")


@pytest.fixture
def repository(workspace: Path, tool: Callable[[str], str]) -> Path:
    """Return a repository with one commit, in a folder that others may be beside."""
    tool("git")
    folder = workspace / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a").write_text("a")
    git(folder, "add", "a")
    assert git(folder, "commit", "-qm", "first").returncode == 0
    return folder


def runs(folder: Path, attack: str, marker: Path, *command: str, where: Path | None = None) -> bool:
    """Tell whether the host's git runs what *attack*, a program in Python, prepares."""
    done = subprocess.run([PYTHON, "-c", attack], cwd=folder, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    git(where or folder, *command)
    return marker.exists()


def ran_after_a_guest(
    folder: Path, attack: str, marker: Path, *command: str, where: Path | None = None
) -> bool:
    """Tell the same where a guest of a workspace prepares it."""
    with Jail(JailPolicy.workspace(folder)) as jail:
        jail.run([PYTHON, "-c", attack], cwd=folder)
    git(where or folder, *command)
    return marker.exists()


BARE = r"""
import os, shutil
if os.path.exists(".git/HEAD"):
    for name in ("objects", "refs"):
        shutil.copytree(".git/" + name, name)
    shutil.copy(".git/index", "index")
    shutil.move(".git/HEAD", "HEAD")
else:
    os.mkdir("objects"); os.mkdir("refs")
    open("HEAD", "w").write("ref: refs/heads/main\n")
text = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "
open("config", "w").write(text + "\"touch {marker}; false\"\n")
"""
WORKTREE = r"""
import os, shutil
shutil.copytree(".git", "evil", ignore=shutil.ignore_patterns("worktrees", "hooks"))
open("evil/config", "a").write("[core]\nfsmonitor = \"touch {marker}; false\"\n")
open(".git/worktrees/elsewhere/commondir", "w").write("../../../evil\n")
"""
REBASE = r"""
import os
head = open(".git/" + open(".git/HEAD").read()[5:].strip()).read()
os.mkdir(".git/rebase-merge")
for name, text in dict(onto=head, done="", interactive="", end="1", msgnum="0").items():
    open(".git/rebase-merge/" + name, "w").write(text)
open(".git/rebase-merge/head-name", "w").write(open(".git/HEAD").read()[5:])
open(".git/rebase-merge/orig-head", "w").write(head)
open(".git/rebase-merge/git-rebase-todo", "w").write("exec touch {marker}\n")
"""
HOOK = r"""
import os
os.makedirs("tools/hooks", exist_ok=True)
open("tools/hooks/pre-commit", "w").write("#!/bin/sh\ntouch {marker}\n")
os.chmod("tools/hooks/pre-commit", 0o755)
"""
INCLUDED = r"""
open("team.config", "w").write("[core]\nfsmonitor = \"touch {marker}; false\"\n")
"""
PROGRAM = r"""
open("clean.sh", "w").write("touch {marker}; cat\n")
open("b.txt", "w").write("b")
open(".gitattributes", "w").write("*.txt filter=ours\n")
"""
SUBMODULE = r"""
open(".git/modules/part/config", "a").write("[core]\nfsmonitor = \"touch {marker}; false\"\n")
"""
LEFT_MODULE = r"""
import os, shutil
shutil.copytree(".git", "evil")
open("evil/config", "a").write("[core]\nfsmonitor = \"touch {marker}; false\"\n")
os.unlink("part/.git"); open("part/.git", "w").write("gitdir: ../evil\n")
"""


LINKED = r"""
open(".git/hooks/pre-commit", "w").write("#!/bin/sh\ntouch {marker}\n")
"""

LINKED_FOLDER = r"""
import os
os.rename("scripts", "gone"); os.mkdir("scripts")
open("scripts/check.sh", "w").write("touch {marker}\n"); os.chmod("scripts/check.sh", 0o755)
"""


@pytest.mark.parametrize("guarded", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize(
    ("attack", "command"),
    [
        (BARE, ["status"]),
        (WORKTREE, ["status"]),
        (REBASE, ["rebase", "--continue"]),
        (HOOK, ["commit", "--allow-empty", "-m", "x"]),
        (INCLUDED, ["status"]),
        (PROGRAM, ["add", "b.txt"]),
        (SUBMODULE, ["status"]),
        (LEFT_MODULE, ["status"]),
        (LINKED, ["commit", "--allow-empty", "-m", "x"]),
        (LINKED_FOLDER, ["commit", "--allow-empty", "-m", "x"]),
    ],
    ids=(
        "bare worktree rebase hook included program submodule left-module linked linked-folder"
    ).split(),
)
def test_no_guest_makes_the_hosts_git_run_its_command(
    repository: Path, outside: Path, attack: str, command: list[str], *, guarded: bool
) -> None:
    """Each way runs a command of the guest outside, and none where a workspace kept it."""
    where = None
    if attack == WORKTREE:
        where = repository.parent / "elsewhere"
        assert git(repository, "worktree", "add", str(where)).returncode == 0
    elif attack == HOOK:
        git(repository, "config", "core.hooksPath", "tools/hooks")
    elif attack == INCLUDED:
        git(repository, "config", "include.path", "../team.config")
    elif attack == PROGRAM:
        (repository / "clean.sh").write_text("cat\n")
        git(repository, "config", "filter.ours.clean", "sh ./clean.sh %f")
    elif attack in (LINKED, LINKED_FOLDER):
        link_hook(repository)
    elif attack in (SUBMODULE, LEFT_MODULE):
        git(repository.parent, "clone", "-q", "--no-hardlinks", "repository", "source")
        added = git(repository, "submodule", "add", "-q", "../source", "part")
        assert added.returncode == 0, added.stderr
        git(repository, "commit", "-qm", "part")
    marker = outside / "ran"
    try_it = ran_after_a_guest if guarded else runs
    text = attack.replace("{marker}", str(marker))
    assert try_it(repository, text, marker, *command, where=where) is not guarded


HOOK_IN = r"""
import os, sys
os.makedirs("{place}", exist_ok=True)
with open("{place}/pre-commit", "w") as file: file.write("#!/bin/sh\ntouch {marker}\n")
os.chmod("{place}/pre-commit", 0o755)
"""


@pytest.mark.parametrize("guarded", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("layout", ["separate", "submodule", "setting", "link"])
def test_a_repository_elsewhere_is_kept_as_well(
    repository: Path, outside: Path, layout: str, *, guarded: bool
) -> None:
    """Its ``.git`` may be a file, as a submodule's; and a workspace may be a part of its work."""
    folder, place, where = repository, ".bare/hooks", repository
    if layout == "separate":
        git(repository, "init", "-q", "--separate-git-dir", ".bare")
    elif layout == "submodule":
        where = repository / "part"
        (repository / ".store").mkdir()
        git(repository, "init", "-q", "--separate-git-dir", ".store/part", "part")
        (repository / ".gitmodules").write_text('[submodule "part"]\n\tpath = part\n\turl = ./x\n')
        place = ".store/part/hooks"
    else:
        folder, place = repository / "web", "hooks"
        folder.mkdir()
        if layout == "setting":
            git(repository, "config", "core.hooksPath", "web/hooks")
        else:
            (repository / ".git/hooks/pre-commit").symlink_to("../../web/hooks/pre-commit")
    marker = outside / "ran"
    text = HOOK_IN.replace("{marker}", str(marker)).replace("{place}", place)
    try_it = ran_after_a_guest if guarded else runs
    command = ("commit", "--allow-empty", "-m", "x")
    assert try_it(folder, text, marker, *command, where=where) is not guarded


def test_a_folder_around_what_is_kept_is_kept_whole(repository: Path) -> None:
    """Whether one link leads to a folder, and another to a file in it, in whatever order."""
    link_hook(repository)
    (repository / ".claude").mkdir()
    (repository / ".claude/commands").symlink_to("../scripts")
    (repository / ".vscode/lfs").mkdir(parents=True)
    (repository / ".vscode/lfs/tasks").symlink_to("../../a")
    policy = JailPolicy.workspace(repository)
    kept = {os.path.relpath(path, repository) for path in policy.deny_write} - set(PROTECTED_NAMES)
    assert kept == {"scripts", "scripts/check.sh", "a"}


def test_a_workspace_without_a_repository_becomes_none(
    workspace: Path, outside: Path, tool: Callable[[str], str]
) -> None:
    """Without ``.git`` git looks at the folder itself, which needs a HEAD to be a repository."""
    tool("git")
    marker = outside / "ran"
    attack = BARE.replace("{marker}", str(marker))
    assert not ran_after_a_guest(workspace, attack, marker, "status")
    assert not (workspace / "HEAD").exists()


def test_a_bare_repository_keeps_its_hooks_and_settings(
    repository: Path, tool: Callable[[str], str]
) -> None:
    """The folder may be a repository itself: then the names of ``.git`` are at its top."""
    tool("git")
    bare = repository.parent / "bare"
    git(repository.parent, "clone", "-q", "--bare", "repository", "bare")
    with Jail(JailPolicy.workspace(bare)) as jail:
        for name in ("config", "hooks/pre-receive", "commondir", "HEAD"):
            assert jail.run(["sh", "-c", f"echo x >> {bare}/{name}"]).exit_code != 0, name
        assert jail.run(["sh", "-c", f"echo x > {bare}/description"]).exit_code == 0


def test_what_links_of_protected_folders_lead_to_is_kept(repository: Path) -> None:
    """Files, folders and what is to come, also by links in what links lead to."""
    link_hook(repository)
    for folder in (".vscode", "config/deep"):
        (repository / folder).mkdir(parents=True)
    (repository / ".vscode/tasks.json").symlink_to("../later/tasks.json")
    (repository / ".vscode/all").symlink_to("..")  # around what is protected: nothing is kept by it
    (repository / ".vscode/out").symlink_to("/etc/hostname")
    (repository / ".vscode/loop").symlink_to("loop")
    (repository / ".vscode/inside").symlink_to("tasks.json")
    (repository / ".husky").symlink_to("config")
    (repository / ".githooks").mkdir()
    (repository / ".githooks/more").symlink_to("../config")
    (repository / "config/deep/last").symlink_to("../../a")
    policy = JailPolicy.workspace(repository)
    kept = {os.path.relpath(path, repository) for path in policy.deny_write} - set(PROTECTED_NAMES)
    assert kept == {"scripts/check.sh", "later/tasks.json", "config", "a"}
    (repository / ".husky").unlink()  # a protected name that is a link is refused by the jail
    with Jail(policy) as jail:
        for name in kept:
            attack = f"mkdir -p {repository}/later; echo x >> {repository}/{name}"
            assert jail.run(["sh", "-c", attack]).exit_code != 0, name
        assert jail.run(["sh", "-c", f"echo x > {repository}/scripts/other"]).exit_code == 0


def test_a_link_that_leads_on_by_a_guests_link_is_refused(repository: Path) -> None:
    """A link between a hook and its script could be changed; the error names it."""
    link_hook(repository)
    script = repository / "scripts/check.sh"
    script.rename(repository / "scripts/real.sh")
    script.symlink_to("real.sh")
    with pytest.raises(PolicyError, match=r"pre-commit leads on by .*/scripts/check\.sh, a link"):
        JailPolicy.workspace(repository)


def test_too_many_names_in_protected_folders_are_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked at is bounded, and where that is not all the workspace is refused."""
    monkeypatch.setattr(linked_names, "MOST_ENTRIES", 3)
    (repository / ".vscode").mkdir()
    for name in "abc":
        (repository / ".vscode" / name).touch()
    shutil.rmtree(repository / ".git/hooks")
    JailPolicy.workspace(repository)
    (repository / ".vscode/d").touch()
    with pytest.raises(PolicyError, match="more than 3 names lie in its protected folders"):
        JailPolicy.workspace(repository)


def test_settings_are_read_as_git_reads_them(repository: Path) -> None:
    """Quotes, comments, sections in one line and continued values, and files that are included."""
    config = repository / ".git" / "config"
    config.write_text(
        '[core]hooksPath = "tools/ho\\\noks" ; a comment\n'
        '[includeIf "gitdir:~/"]\n\tpath = more\n# [core] fsmonitor = none.sh\n'
        "[diff \"a b\"] textconv = ./show.sh -x 'y z'\n[alias] x = !./asked.sh\n"
        '[filter "x"]\nclean = python3 \\\n  run.py --all\n[core]\nbare\n'
    )
    (repository / ".git" / "more").write_text("[CORE]\nFSMONITOR = ../repository/watch.sh\n")
    for name in ("show.sh", "run.py", "watch.sh", "none.sh", "asked.sh"):
        (repository / name).touch()
    kept = {
        os.path.relpath(path, repository) for path in JailPolicy.workspace(repository).deny_write
    } - set(PROTECTED_NAMES)
    assert kept == {"tools/hooks", "show.sh", "run.py", "watch.sh", ".git/more"}


def test_settings_of_the_user_and_more_programs_are_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user's own configuration names in a workspace is kept, whatever comments end in."""
    settings = repository.parent / "gitconfig"
    settings.write_text(
        "[core]\n\teditor = vi # a comment \\\n\thooksPath = .ours\n"
        '[gpg "ssh"]\n\tdefaultKeyCommand = ./key.sh\n[tar "xz"]\n\tcommand = ./pack.sh -9\n'
    )
    for name in ("key.sh", "pack.sh", "fetch.sh"):
        (repository / name).touch()
    git(repository, "config", "remote.origin.uploadpack", "./fetch.sh")
    hook = f"{repository}/.ours/pre-commit"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    assert JailPolicy.workspace(repository).why("write", hook)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    policy = JailPolicy.workspace(repository)
    for name in (".ours/pre-commit", "key.sh", "pack.sh", "fetch.sh"):
        assert not policy.why("write", f"{repository}/{name}"), name
    assert git(repository, "config", "-f", str(settings), "core.hooksPath").stdout == ".ours\n"
    attack = f"mkdir -p {repository}/.ours && echo x > {hook}"
    with Jail(policy) as jail:
        assert jail.run(["sh", "-c", attack]).exit_code != 0
    assert subprocess.run(["sh", "-c", attack], check=False).returncode == 0

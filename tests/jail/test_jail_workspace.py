"""Ordinary work in the jail of `JailPolicy.workspace`, and what it keeps from being made.

Nothing of `PROTECTED_NAMES` but what git itself makes exists in these workspaces, so all new
names at their top and in `.git` are made by the broker.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy, errno, inside, outside
from names_tree import places

from visruntime.policy import PROTECTED_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}

GIT_WORK = r"""
set -e
echo one > file; git add file; git commit -q -m one
git switch -q -c topic; echo two >> file; git commit -q -am two
git switch -q main; echo other > other; git add other; git commit -q -m other
git merge -q -m merge topic
echo change >> file; git stash -q; git stash pop -q; git checkout -q file
git tag v1; git branch -q more; git branch -q -d more
git worktree add -q tree v1; (cd tree; echo three > three; git add three; git commit -q -m three)
git worktree remove tree
mkdir deep; echo x > deep/x; git add deep; git commit -q -m deep; git mv deep moved
git commit -q -m moved; git reset -q --hard HEAD~1; git cherry-pick -x v1 || git reset -q --hard
git gc -q; git fsck --no-dangling; git status --porcelain; git log --format=%s -1
"""


def repository(folder: Path) -> None:
    """Make an empty repository as the host's user does."""
    environment = {**GIT, "PATH": os.defpath, "HOME": "/nonexistent"}
    command = ["git", "init", "-q", "-b", "main", str(folder)]
    subprocess.run(command, check=True, env=environment)


def test_work_with_git(workspace: Path, tool: Callable[[str], str]) -> None:
    """Commit, branch, merge, stash, worktree and gc must work beside protected names."""
    tool("git")
    repository(workspace)
    before = (workspace / ".git/config").read_bytes(), os.listdir(workspace / ".git/hooks")
    with Jail(JailPolicy.workspace(workspace, env=GIT)) as jail:
        done = jail.run(["sh", "-c", GIT_WORK], cwd=workspace, timeout=50)
        assert done.exit_code == 0, done.stderr_text
        assert done.stdout_text == "deep\n"
        for words in (
            ["config", "core.fsmonitor", "/tmp/x"],
            ["rebase", "--force-rebase", "HEAD~1"],
        ):
            assert jail.run(["git", *words], cwd=workspace).exit_code != 0
        assert jail.run(["git", "status", "--porcelain"], cwd=workspace).stdout_text == ""
    after = (workspace / ".git/config").read_bytes(), os.listdir(workspace / ".git/hooks")
    assert after == before
    assert not set(PROTECTED_NAMES) & set(os.listdir(workspace))


RENAMED = "git branch -q -m old new; echo $?; git branch --format='%(refname:short)'"
COPIED = (
    "git switch -q -c newest && git branch -q -d main && "
    "git branch -q last new && git branch -q -d new"
)


def test_renaming_a_branch_changes_no_setting(workspace: Path, tool: Callable[[str], str]) -> None:
    """``git branch -m`` must not get at the settings, which it writes last; copies must work."""
    tool("git")
    repository(workspace)
    start = "echo one > file; git add file; git commit -q -m one; git branch -q old; "
    before = (workspace / ".git/config").read_bytes()
    with Jail(JailPolicy.workspace(workspace, env=GIT)) as jail:
        renamed = jail.run(["sh", "-c", start + RENAMED], cwd=workspace, timeout=20)
        assert renamed.stdout_text.split() == ["128", "main", "new"], renamed.stderr_text
        assert "config" in renamed.stderr_text
        copied = jail.run(["sh", "-c", COPIED], cwd=workspace, timeout=20)
        assert copied.exit_code == 0, copied.stderr_text
    assert (workspace / ".git/config").read_bytes() == before
    # Control: without a jail nothing stands in the way.
    command = ["git", "-C", str(workspace), "branch", "-q", "-m", "last", "new"]
    # The folder is of whoever runs the tests, but for files of a root caller's guest.
    subprocess.run([*command[:1], "-c", "safe.directory=*", *command[1:]], check=True)


def test_fs_09_a_fresh_repository_has_no_hooks(workspace: Path, tool: Callable[[str], str]) -> None:
    """FS-09: what a guest makes of a workspace without ``.git`` holds no hook and no setting."""
    tool("git")
    script = (
        "git init -q .; mkdir -p .git/hooks; printf x > .git/hooks/pre-commit; printf x > .envrc; "
        "printf .. > .git/commondir; git config core.fsmonitor /tmp/x; exit 0"
    )
    with Jail(JailPolicy.workspace(workspace, env=GIT)) as jail:
        assert jail.run(["sh", "-c", script], cwd=workspace, timeout=20).exit_code == 0
    assert not (workspace / ".envrc").exists()
    for name in PROTECTED_NAMES:
        assert not os.path.lexists(workspace / name), name


def test_no_protected_name_is_made(workspace: Path) -> None:
    """None of the names may be made, as a file or with all that is above it; outside all are."""
    guest = f"""
os.chdir({str(workspace)!r})
got = {{}}
for name in {PROTECTED_NAMES!r}:
    attempt(os.makedirs, os.path.dirname(name) or ".", exist_ok=True)
    got[name] = opened(name, os.O_CREAT | os.O_WRONLY)
answer(got)
"""
    with Jail(JailPolicy.workspace(workspace)) as jail:
        assert inside(jail, guest) == dict.fromkeys(PROTECTED_NAMES, errno.EACCES)
        canaries = [c for c in jail.report.canaries if c.name.startswith("have the broker make")]
        assert all(c.held for c in canaries)
        assert len(canaries) == len([name for name in PROTECTED_NAMES if "/" not in name])
    assert outside(guest) == dict.fromkeys(PROTECTED_NAMES, 0)


WORKERS = """
import multiprocessing, os, socket
from multiprocessing.managers import SyncManager

def square(number):
    return number * number

if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    with multiprocessing.Pool(2) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    with SyncManager() as manager:
        assert list(manager.list([1, 2])) == [1, 2]
    for path in ("server", "/tmp/server", os.environ["HOME"] + "/server"):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
    print("done")
"""


@pytest.mark.parametrize("place", places())
def test_programs_that_make_sockets_work(place: str) -> None:
    """A server of the guests' own may not fail, whether the workspace is below /tmp or not."""
    with tempfile.TemporaryDirectory(prefix=".vis-sockets-", dir=place) as folder:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/.git")
        with open(f"{folder}/workers.py", "w", encoding="utf-8") as file:
            file.write(WORKERS)
        with Jail(JailPolicy.workspace(folder)) as jail:
            done = jail.run([PYTHON, "workers.py"], cwd=folder, timeout=50)
        assert (done.exit_code, done.stdout) == (0, b"done\n"), done.stderr_text
        assert os.path.exists(f"{folder}/server")


def test_git_takes_no_settings_from_elsewhere(
    workspace: Path, tool: Callable[[str], str], outside: Path
) -> None:
    """A guest may not lead the host's git to a configuration of its own by ``.git/commondir``."""
    tool("git")
    repository(workspace)
    mark = outside / "ran"
    script = (
        "mkdir -p evil && cp -r .git/HEAD .git/objects .git/refs .git/config evil/ && "
        f"git config -f evil/config core.fsmonitor 'touch {mark}; false' && "
        "printf ../evil > .git/commondir"
    )
    environment = {**GIT, "PATH": os.defpath, "HOME": "/nonexistent"}
    with Jail(JailPolicy.workspace(workspace, env=GIT)) as jail:
        assert jail.run(["sh", "-c", script], cwd=workspace, timeout=20).exit_code != 0
    subprocess.run(["git", "status"], cwd=workspace, env=environment, check=True)
    assert not mark.exists()
    # The control: without the jail the host's git runs what the script wrote.
    subprocess.run(["sh", "-c", f"rm -rf evil; {script}"], cwd=workspace, check=True)
    subprocess.run(["git", "status"], cwd=workspace, env=environment, check=False)
    assert mark.exists()


def test_work_with_npm(workspace: Path, tool: Callable[[str], str]) -> None:
    """Installing a package at the top of a workspace must work: links, lock file, renames."""
    tool("npm")
    package = workspace / "small"
    package.mkdir()
    (package / "package.json").write_text('{"name": "small", "version": "1.0.0"}')
    (package / "index.js").write_text("module.exports = 42\n")
    (workspace / "package.json").write_text('{"name": "top", "version": "1.0.0"}')
    script = (
        "npm pack --silent ./small && npm install --offline --no-audit --no-fund --silent "
        "./small-1.0.0.tgz && node -p 'require(\"small\")'"
    )
    with Jail(JailPolicy.workspace(workspace)) as jail:
        done = jail.run(["sh", "-c", script], cwd=workspace, timeout=50)
    assert done.exit_code == 0, done.stderr_text
    assert done.stdout_text.splitlines()[-1] == "42"
    assert (workspace / "package-lock.json").exists()
    assert (workspace / "node_modules/small/index.js").exists()


PYTHON_WORK = r"""
import compileall, os, sqlite3, subprocess, sys, tempfile, zipfile
subprocess.run([sys.executable, "-m", "venv", "--without-pip", "own"], check=True)
with zipfile.ZipFile("w.whl", "w") as archive:
    archive.writestr("small/__init__.py", "value = 42\n")
folder = subprocess.run(["own/bin/python", "-c",
    "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True)
with zipfile.ZipFile("w.whl") as archive:
    archive.extractall(folder.stdout.strip())
compileall.compile_dir(folder.stdout.strip(), quiet=1)
subprocess.run(["own/bin/python", "-c", "import small; print(small.value)"], check=True)
# As editors save: beside the file and then in its place, and with a copy kept.
for _ in range(3):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        file.write("text\n")
    os.replace(file.name, "document")
os.rename("document", "document~")
with open("document", "x") as file:
    file.write("text\n")
base = sqlite3.connect("data.db")
base.execute("pragma journal_mode=wal")
base.execute("create table t (x)")
base.commit()
base.close()
"""


def test_work_with_python(workspace: Path) -> None:
    """An environment, unpacked packages, saved documents and a database at the top must work."""
    (workspace / "work.py").write_text(PYTHON_WORK)
    with Jail(JailPolicy.workspace(workspace)) as jail:
        done = jail.run([PYTHON, "-B", "work.py"], cwd=workspace, timeout=50)
    assert done.exit_code == 0, done.stderr_text
    assert done.stdout_text == "42\n"
    assert (workspace / "document").read_text() == (workspace / "document~").read_text()


def test_a_linked_worktree_keeps_its_way_to_the_repository(
    workspace: Path, tool: Callable[[str], str]
) -> None:
    """Where ``.git`` is a file, a guest may not let it name another repository."""
    tool("git")
    (workspace / ".git").write_text("gitdir: /nonexistent\n")
    guest = f"""
os.chdir({str(workspace)!r})
answer([opened(".git", os.O_WRONLY), attempt(os.unlink, ".git"), opened("new", os.O_CREAT)])
"""
    with Jail(JailPolicy.workspace(workspace)) as jail:
        assert inside(jail, guest) == [errno.EROFS, errno.EBUSY, 0]
    assert outside(guest) == [0, 0, 0]


@pytest.mark.parametrize("mode", ["broker", "wall"])
def test_a_workspace_is_left_as_it_was(workspace: Path, mode: str) -> None:
    """FS-05: opening and closing may leave no name, mode or time of the workspace changed."""

    def seen() -> list[object]:
        status = os.lstat(workspace)  # but for the time of reading, which the test itself changes
        return [status.st_mode, status.st_mtime_ns, status.st_ctime_ns, os.listdir(workspace)]

    before = seen()
    with Jail(JailPolicy.workspace(workspace, absent_deny=mode)) as jail:
        assert jail.run(["true"]).exit_code == 0
        assert jail.run(["false"]).exit_code == 1
    assert seen() == before

"""What `JailPolicy.workspace` keeps in one workspace: what the settings of its git name."""

from __future__ import annotations

import errno
import os
import re
import stat

from visruntime._policy.command_paths import command_paths
from visruntime._policy.looks import MISSING, is_missing
from visruntime._policy.paths import ancestors, is_within, visible
from visruntime._policy.protected_names import PROTECTED_NAMES
from visruntime._policy.settings_budget import MOST_BYTES, Budget
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["further_names", "hooks_around", "work_tree_of"]

HOOKS = tuple(
    (
        "applypatch-msg commit-msg fsmonitor-watchman p4-changelist p4-post-changelist "
        "p4-pre-submit p4-prepare-changelist post-applypatch post-checkout post-commit "
        "post-index-change post-merge post-receive post-rewrite post-update pre-applypatch "
        "pre-auto-gc pre-commit "
        "pre-merge-commit pre-push pre-rebase pre-receive prepare-commit-msg proc-receive "
        "push-to-checkout reference-transaction sendemail-validate update"
    ).split()
)
"""Names of hooks (githooks(5)), for settings that look for them beside the work itself."""

FILES = ("include.path", "includeif.path")
COMMANDS = frozenset(
    (
        "browser.cmd browser.path core.alternaterefscommand core.askpass core.editor core.fsmonitor "
        "core.gitproxy core.pager core.sshcommand credential.helper "
        "diff.command diff.external diff.textconv difftool.cmd difftool.path "
        "filter.clean filter.process filter.smudge gpg.defaultkeycommand gpg.program guitool.cmd "
        "hook.command imap.tunnel instaweb.httpd interactive.difffilter lfs.args lfs.clean lfs.path "
        "lfs.smudge man.cmd man.path remote.receivepack remote.uploadpack sendemail.cccmd "
        "sendemail.headercmd "
        "sendemail.sendmailcmd sendemail.smtpserver sendemail.tocmd tar.command "
        "merge.driver mergetool.cmd mergetool.path sequence.editor submodule.update trailer.cmd "
        "trailer.command uploadpack.packobjectshook"
    ).split()
)
"""Settings (without what stands in quotes between section and name) that are programs to run."""

NO_FILE = (*MISSING, errno.ELOOP, errno.EISDIR, errno.EINVAL)
"""Answers by which git reads nothing either, or by a link that a jail refuses."""

IN_GIT = tuple(name.removeprefix(".git/") for name in PROTECTED_NAMES if name.startswith(".git/"))
"""Names in a repository that are kept, wherever it is."""

SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")


def further_names(folder: str) -> list[str]:
    """Return the names below *folder* that this very workspace has to keep as well.

    Those are the files and folders that the configuration of its git names, as hooks, as more
    configuration or as programs; the administration of linked worktrees, where there are some;
    where the submodules' repositories are; and what `PROTECTED_NAMES` keeps in ``.git`` of each
    repository that is elsewhere in it: of the folder itself (a bare one), and of those that a
    file ``.git`` names. Without a ``.git`` it may lie in the work of a repository around it, whose
    configuration counts then.

    Raises:
        PolicyError: it has more settings than are read, or some that cannot be read.
    """
    budget = Budget(folder)
    found = [".git/worktrees"] if not is_missing(f"{folder}/.git/worktrees") else []
    top = work_tree_of(folder)
    git = _git_folder(top)
    found += _repository_in(folder, git)
    if not any(is_missing(f"{folder}/{name}") for name in ("HEAD", "objects", "refs")):
        found += [*IN_GIT, "worktrees"]
        top, git = (top, git) if git and top == folder else (folder, folder)
    for name, path in _settings(f"{folder}/.gitmodules", budget):
        if name == "submodule.path":
            budget.spend("submodules")
            found.append(os.path.join(path, ".git"))
            submodule = os.path.normpath(os.path.join(folder, path))
            if is_within(submodule, folder):
                found += _repository_in(folder, _git_folder(submodule))
    for path in _named(folder, top, git, budget):
        found.append(os.path.relpath(path, folder))
    return [
        name
        for name in dict.fromkeys(map(os.path.normpath, found))
        if name not in PROTECTED_NAMES and not name.startswith("..") and not os.path.isabs(name)
    ]


def work_tree_of(folder: str) -> str:
    """Return the folder with a ``.git`` around *folder*, as git finds it; itself if there is none."""
    for step in reversed(tuple(ancestors(folder))):
        if not is_missing(f"{step}/.git"):
            return step
    return folder


def hooks_around(folder: str) -> list[str]:
    """Return the folder of hooks of the repository in whose work *folder* lies, if it is outside."""
    git = _git_folder(work_tree_of(folder))
    return [f"{git}/hooks"] if git and not is_within(git, folder) else []


def _repository_in(folder: str, git: str) -> list[str]:
    """Return what is kept of the repository *git* where it is in *folder*, but not as ``.git``."""
    place = os.path.relpath(git, folder) if git and is_within(git, folder) else ""
    if not place or os.path.basename(place) == ".git" or is_within(git, f"{folder}/.git/modules"):
        return []
    names = [*IN_GIT, *(() if is_missing(f"{git}/worktrees") else ("worktrees",))]
    return [os.path.join(place, name) for name in names]


def _git_folder(folder: str) -> str:
    """Return where the configuration of the repository in *folder* is, "" where there is none."""
    git = f"{folder}/.git"
    if not stat.S_ISDIR(_mode(git)):
        words = _read(git)
        if not words.startswith("gitdir:"):
            return ""
        git = os.path.join(folder, words.removeprefix("gitdir:").strip())
        common = _read(f"{git}/commondir").strip()
        git = os.path.join(git, common) if common else git
    return os.path.normpath(git)


def _named(folder: str, top: str, git: str, budget: Budget) -> Iterator[str]:
    """Yield the paths inside of *folder* that the settings in *git*, and the user's own, name.

    Args:
        folder: the workspace.
        top: the work tree of *git*, where its commands run.
        git: the repository, or "".
        budget: of all settings together.
    """
    waiting = [f"{git}/config", f"{git}/config.worktree"] if git else []
    waiting += _settings_of_all()
    seen: set[str] = set()
    for file in waiting:
        if file in seen:
            continue
        seen.add(file)
        budget.spend("files")
        for name, value in _settings(file, budget):
            if name in FILES:
                path = os.path.normpath(
                    os.path.join(os.path.dirname(file), os.path.expanduser(value))
                )
                waiting.append(path)
                words = [path]
            elif name == "core.hookspath":
                here = os.path.normpath(os.path.join(top, value)) == folder
                words = list(HOOKS) if here else [value]
            elif name == "init.templatedir":
                words = [value]  # its hooks are copied to each new repository
            elif name in COMMANDS or name.startswith("pager."):
                # A program that is only a word comes from PATH; its arguments may not.
                words = [word for word in command_paths(value, budget) if _is_file(top, word)]
            else:
                continue
            for word in words:
                path = os.path.normpath(os.path.join(top, os.path.expanduser(word)))
                if is_within(path, folder) and path != folder:
                    yield path


def _settings_of_all() -> list[str]:
    """Return the configuration that holds in all repositories of this user (git-config(1))."""
    system = [] if os.environ.get("GIT_CONFIG_NOSYSTEM") else ["/etc/gitconfig"]
    if "GIT_CONFIG_SYSTEM" in os.environ:
        system = [os.environ["GIT_CONFIG_SYSTEM"]]
    own = ["~/.gitconfig", os.environ.get("XDG_CONFIG_HOME") or "~/.config"]
    own[1] = os.path.join(own[1], "git/config")
    if "GIT_CONFIG_GLOBAL" in os.environ:
        own = [os.environ["GIT_CONFIG_GLOBAL"]]
    return [os.path.expanduser(path) for path in (*system, *own) if path]


def _is_file(folder: str, word: str) -> bool:
    if "\0" in word or len(word) >= 4096:
        return False
    try:
        return stat.S_ISREG(os.stat(os.path.join(folder, os.path.expanduser(word))).st_mode)
    except OSError as error:
        return error.errno not in NO_FILE  # one that cannot be looked at may be one


def _settings(path: str, budget: Budget) -> Iterator[tuple[str, str]]:
    """Yield the settings of a configuration of git (git-config(1)), with names in lower case."""
    text = _read(path, MOST_BYTES + 1)
    budget.spend("bytes", len(os.fsencode(text)))  # as they were read
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section = ""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        header = SECTION.match(text, at)
        setting = SETTING.match(text, at)
        if header is not None:
            section = header[1].partition(".")[0].lower()
            at = header.end()
        elif setting is not None:
            value, at = _value(text, setting.end()) if setting[2] else ("", setting.end())
            yield f"{section}.{setting[1].lower()}", value
        else:  # a comment, or what git refuses
            end = text.find("\n", at)
            at = len(text) if end < 0 else end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at *at*, and where its line ends.

    Without quotes, comments and the space around; a comment ends with its line, whatever it
    ends in.
    """
    said: list[str] = []
    end = 0  # of what is no space
    quoted = comment = False
    while at < len(text) and text[at] != "\n":
        character = text[at]
        at += 1
        if comment:
            continue
        if character == "\\":
            escaped = text[at : at + 1]
            at += 1
            if escaped == "\n":
                continue
            said.append({"n": "\n", "t": "\t", "b": "\b"}.get(escaped, escaped))
            end = len(said)
        elif character == '"':
            quoted = not quoted
        elif character in "#;" and not quoted:
            comment = True
        elif quoted or not character.isspace():
            said.append(character)
            end = len(said)
        elif said:
            said.append(character)
    return "".join(said[:end]), min(at, len(text))


def _read(path: str, most: int = 4096) -> str:
    from visruntime._host.files import open_regular  # with flags that Windows has not

    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError as error:
        _refuse_unread(path, error)
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return os.fsdecode(file.read(most))


def _mode(path: str) -> int:
    """Return the mode of what is at *path*, 0 where nothing is."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        _refuse_unread(path, error)
        return 0


def _refuse_unread(path: str, error: OSError) -> None:
    """Refuse settings that are at *path* and cannot be read: git may read them later.

    A guest that may change modes can have closed them, for as long as this is asked.
    """
    if error.errno in NO_FILE or _is_kept_by_another(path):
        return
    raise PolicyError(
        f"workspace: {visible(path)} cannot be read ({error.strerror}), so what its settings of git "
        "name cannot be kept; open it, and the folders above it, to yourself",
        field="workspace",
        value=path,
    ) from None


def _is_kept_by_another(path: str) -> bool:
    """Tell whether *path* is in a closed folder of another user, such as a HOME of root's."""
    owner = os.geteuid()
    for step in ancestors(path):
        try:
            found = os.lstat(step)
        except PermissionError:
            return owner != os.geteuid()
        except OSError:
            return False
        owner = found.st_uid
    return False

"""Files with several names: no name may give what a rule on another one takes away."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, errno, inside, is_root, outside, policy_of

import visruntime as vr

if TYPE_CHECKING:
    from pathlib import Path

NAMES = "answer([opened(p, os.O_WRONLY) for p in {paths!r}])"


def tree(workspace: Path) -> tuple[Path, Path]:
    """Return two folders; the first has a file whose second name is in the other one."""
    kept, free = workspace / "kept", workspace / "free"
    kept.mkdir()
    free.mkdir()
    (kept / "file").write_text("A")
    os.link(kept / "file", free / "alias")
    return kept, free


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"read": ["."], "deny": ["kept"]}, "denied"),
        ({"write": ["."], "deny_read": ["kept"]}, "denied"),
        ({"write": ["."], "deny_write": ["kept"]}, "read-only"),
        ({"write": ["."], "read": ["kept"]}, "read-only"),
        ({"write": ["free"], "read": ["kept"]}, "read-only"),
    ],
)
def test_a_second_name_of_what_is_kept_is_refused(
    workspace: Path, rules: dict[str, list[str]], word: str
) -> None:
    """A file in a denied or read-only folder must not be had by its name in another folder."""
    kept, free = tree(workspace)
    policy = policy_of(**{k: [workspace / p for p in paths] for k, paths in rules.items()})
    with pytest.raises(vr.PolicyUnsupported, match=rf"{kept}/file is {word}, but {free}/alias"):
        Jail(policy)
    # With a file of its own the same policy opens, and the other one stays as it was.
    (free / "alias").unlink()
    (free / "alias").write_text("A")
    paths = [str(kept / "file"), str(free / "alias")]
    with Jail(policy) as jail:
        got = inside(jail, NAMES.format(paths=paths))
    assert got[0] in (errno.EROFS, errno.EACCES, errno.ENOENT)
    assert got[1] == (0 if "write" in rules else errno.EROFS)
    assert outside(NAMES.format(paths=paths)) == [0, 0]


def test_two_names_with_the_same_rights_are_no_reason_to_refuse(workspace: Path) -> None:
    """Names that give the same must not keep a jail from opening."""
    kept, free = tree(workspace)
    for rules in ({"write": [workspace]}, {"read": [workspace]}, {"write": [kept, free]}):
        with Jail(policy_of(**rules)) as jail:
            got = inside(jail, NAMES.format(paths=[str(kept / "file"), str(free / "alias")]))
        assert got == ([0, 0] if "write" in rules else [errno.EROFS, errno.EROFS])


def test_denied_copies_of_installed_code_are_reported(workspace: Path) -> None:
    """An environment linked from a cache must not keep a jail from opening that shows the cache."""
    cache, packages = workspace / "cache", workspace / "proj/lib/python3.12/site-packages"
    cache.mkdir()
    packages.mkdir(parents=True)
    (cache / "module.py").write_text("x = 1\n")
    os.link(cache / "module.py", packages / "module.py")
    with Jail(policy_of(read=[workspace], deny=[workspace / "proj"])) as jail:
        assert [note for note in jail.report.notes if note.startswith("linked_inside: 1 ")]
        text = f"answer([opened(str(p)) for p in {[str(packages), str(cache / 'module.py')]!r}])"
        got = inside(jail, text)
    assert got[0] in (errno.EACCES, errno.ENOENT)
    assert got[1] == 0


def test_installed_code_that_shares_files_with_a_read_grant_stays_as_it_is(
    workspace: Path,
) -> None:
    """What an installer linked from a cache must not be changed by way of the environment."""
    cache, packages = workspace / "cache", workspace / "proj/.venv/lib/python3.12/site-packages"
    cache.mkdir()
    packages.mkdir(parents=True)
    (cache / "module.py").write_text("x = 1\n")
    os.link(cache / "module.py", packages / "module.py")
    with Jail(policy_of(write=[workspace / "proj"], read=[cache])) as jail:
        got = inside(jail, NAMES.format(paths=[str(packages / "module.py")]))
    assert got == [errno.EROFS]
    assert outside(NAMES.format(paths=[str(packages / "module.py")])) == [0]


def environment(workspace: Path) -> tuple[Path, Path]:
    """Return a package folder of an environment, and the cache that shares its file."""
    cache, package = workspace / "cache", workspace / "proj/.venv/lib/python3.12/site-packages/pkg"
    cache.mkdir()
    package.mkdir(parents=True)
    (cache / "module.py").write_text("x = 1\n")
    os.link(cache / "module.py", package / "module.py")
    return package, cache


@pytest.mark.parametrize("depth", ["module.py", ".", "..", "../../../../.."])
def test_no_grant_inside_of_installed_code_lifts_its_protection(
    workspace: Path, depth: str
) -> None:
    """A grant of a package or of one file must not make a linked file writable."""
    package, cache = environment(workspace)
    grant = (package / depth).resolve()
    module = str(package / "module.py")
    with Jail(policy_of(write=[grant])) as jail:
        assert inside(jail, NAMES.format(paths=[module])) == [errno.EROFS]
        assert any(c.clause.startswith("protected ") for c in jail.report.clauses)
    with Jail(policy_of(read=[workspace], write=[workspace / "proj", grant])) as jail:
        assert inside(jail, NAMES.format(paths=[module])) == [errno.EROFS]
    shutil.rmtree(cache)
    with Jail(policy_of(write=[grant])) as jail:  # control: with one name it is the guest's
        assert inside(jail, NAMES.format(paths=[module])) == [0]


def test_a_name_in_a_grant_inside_of_a_grant_counts_once(workspace: Path) -> None:
    """A second name outside must not be overlooked because two grants hold the first one."""
    package, _ = environment(workspace)
    with Jail(policy_of(write=[package.parents[4], package.parent, package])) as jail:
        got = inside(jail, NAMES.format(paths=[str(package / "module.py")]))
    assert got == [errno.EROFS]


def test_what_is_protected_unasked_has_no_second_name(workspace: Path) -> None:
    """A policy file in use must not be changed by a link that an earlier guest made."""
    (workspace / "policy.toml").write_text(f'write = ["{workspace}"]\n')
    with Jail(policy_of(write=[workspace])) as jail:
        made = inside(
            jail,
            f"answer(attempt(os.link, {str(workspace / 'policy.toml')!r}, "
            f"{str(workspace / 'alias')!r}))",
        )
    assert made == 0
    policy = vr.JailPolicy.load(workspace / "policy.toml")
    with pytest.raises(vr.PolicyUnsupported, match=r"policy.toml is read-only, but .*/alias is"):
        Jail(policy)
    (workspace / "alias").unlink()
    with Jail(policy) as jail:
        paths = [str(workspace / "policy.toml")]
        assert inside(jail, NAMES.format(paths=paths)) == [errno.EROFS]
    assert outside(NAMES.format(paths=paths)) == [0]


MAP = """
def act():
    import mmap
    file = os.open({path!r}, os.O_RDWR)
    memory = mmap.mmap(file, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[200:204] = b"EVIL"
    memory.flush()
answer(attempt(act))
"""
CAPABILITIES = """
import os, struct, sys
data = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
os.setxattr(sys.argv[1], "security.capability", data)
"""


def program(path: Path) -> Path:
    """Return a copy of a program."""
    shutil.copyfile("/bin/true", path)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("grant", [".", "tool"])
def test_a_program_with_capabilities_stays_as_it_is(workspace: Path, grant: str) -> None:
    """A write through a shared mapping, which keeps file capabilities, must not be had."""
    tool = program(workspace / "tool")
    root = [] if is_root() else ["unshare", "--user", "--map-root-user"]
    subprocess.run([*root, sys.executable, "-c", CAPABILITIES, str(tool)], check=True)
    act = MAP.format(path=str(tool))
    policy = policy_of(write=[workspace / grant])
    with Jail(policy) as jail:
        assert inside(jail, act) == errno.EROFS
        assert f"protected {tool}" in {c.clause for c in jail.report.clauses}
    assert os.getxattr(tool, "security.capability")
    # Control: the write is possible, and the capabilities outlive it.
    assert outside(act) == 0
    assert tool.read_bytes()[200:204] == b"EVIL"
    assert os.getxattr(tool, "security.capability")
    os.remove(tool)
    program(tool)
    with Jail(policy) as jail:
        assert inside(jail, act) == 0


@pytest.mark.skipif(not is_root(), reason="only root's guests get past the owner of such a file")
def test_a_set_id_file_that_is_the_grant_stays_as_it_is(workspace: Path) -> None:
    """A grant that is a set-id file itself must be looked at like one in a folder."""
    tool = program(workspace / "tool")
    tool.chmod(0o4755)
    act = f"answer(opened({str(tool)!r}, os.O_RDWR))"
    with Jail(policy_of(write=[tool])) as jail:
        assert inside(jail, act) == errno.EROFS
    assert outside(act) == 0
    assert tool.stat().st_mode & stat.S_ISUID


LINKS = """
top, number = {top!r}, {number}
os.chdir(top)
for _ in range(14):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
for n in range(number):
    if n % 60000 == 0:
        source = f"s{{n}}"
        os.close(os.open(source, os.O_CREAT | os.O_WRONLY))
    os.link(source, f"{{n:x}}")
answer(True)
"""


def test_links_at_long_paths_cost_the_host_little_memory(workspace: Path) -> None:
    """A guest's hundred thousand names of 3.6 KB each must not come into the host's memory."""
    with Jail(policy_of(write=[workspace])) as jail:
        assert inside(jail, LINKS.format(top=str(workspace), number=100_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Jail(policy_of(write=[workspace])) as jail:
        assert jail.report.notes == ()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    subprocess.run(["rm", "-r", "--", *map(str, workspace.iterdir())], check=True)
    assert grown < 32 * 1024  # KiB; the paths alone are 360,000

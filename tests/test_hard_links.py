"""Files with several names: no name may give what a rule on another one takes away."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, errno, inside, outside, policy_of

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

"""What looking for patterns may cost, above all those of a policy file that a guest may have made."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from visruntime import JailPolicy, PolicyError, PolicyUnsupported, _native
from visruntime.config import MAX_FOUND_PATTERNS, MAX_FOUND_RULES, narrow_by_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

SLOW = f"*{'a' * 100}b"
"""Fits no name of many a's, and is compared with each part of one."""


def config(folder: Path, field: str, paths: list[str]) -> str:
    """Write a policy file with one list of rules."""
    file = folder / "visruntime.toml"
    file.write_text(f"{field} = {paths!r}\n".replace("'", '"'))
    return str(file)


def budget(entries: int = 10**6, matches: int = 10**6, work: int = 10**9) -> Any:
    """More of each than the tests need."""
    return _native.expand_budget(entries=entries, matches=matches, work=work)


def walk(folder: Path, patterns: list[str], left: Any) -> int:
    """How many names the patterns have below the folder."""
    fixed = len(str(folder).encode())
    found = _native.expand(
        str(folder), fixed=fixed, patterns=patterns, budget=left, most_matches=10**6
    )
    return len(found)


def test_patterns_that_begin_alike_share_one_walk(tmp_path: Path) -> None:
    """Fifty patterns look at each name once, and what is left of the budget is known."""
    for number in range(20):
        (tmp_path / f"file{number}").touch()
    patterns = [f"**/file{number}*" for number in range(50)]
    left = budget(entries=39)
    assert walk(tmp_path, patterns, left) == 20 + 10  # file1* names eleven
    with pytest.raises(_native.NativeError, match="too many files to look through"):
        walk(tmp_path, patterns, left)
    assert walk(tmp_path, patterns, budget(entries=20)) == 30


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"entries": 9}, "too many files to look through"),
        ({"matches": 9}, "it names too many files"),
        ({"work": 99}, "too many names to compare"),
    ],
)
def test_each_part_of_the_budget_ends_the_walk(
    tmp_path: Path, limits: dict[str, int], message: str
) -> None:
    """None of the three may be exceeded; with enough of each the same walk ends by itself."""
    for number in range(10):
        (tmp_path / f"{number}-{'a' * 40}").touch()
    assert walk(tmp_path, ["*a"], budget()) == 10
    with pytest.raises(_native.NativeError, match=message) as caught:
        walk(tmp_path, ["no such name", "*a"], budget(**limits))
    assert caught.value.status == "refused"
    assert caught.value.index in (0, 1)


@pytest.mark.parametrize(
    ("most", "name", "what"),
    [(MAX_FOUND_RULES, "plain{}", "rules"), (MAX_FOUND_PATTERNS, "*x{}", "patterns")],
)
def test_a_found_file_has_few_rules(tmp_path: Path, most: int, name: str, what: str) -> None:
    """One more is refused by name; as many are taken, and a file that is named has more."""
    owner = JailPolicy(write=[tmp_path])
    names = [name.format(number) for number in range(most + 1)]
    narrow_by_config(owner, config(tmp_path, "deny_read", names[:-1]))
    file = config(tmp_path, "deny_read", names)
    assert len(JailPolicy.load(file).deny_read) == most + 1
    with pytest.raises(PolicyError, match=f"deny_read: more than {most} {what}") as caught:
        narrow_by_config(owner, file)
    assert (caught.value.file, caught.value.line) == (file, 1)


def test_patterns_of_a_found_file_may_cost_little_together(tmp_path: Path) -> None:
    """What a guest left in a folder does not hold up the next jail; the owner's own may."""
    for number in range(200):
        (tmp_path / f"{'a' * 240}{number}").touch()
    patterns = [f"{SLOW}{number}" for number in range(MAX_FOUND_PATTERNS)]
    owner = JailPolicy(write=[tmp_path])
    with pytest.raises(
        PolicyUnsupported, match=r"too many names to compare .all patterns of found"
    ):
        narrow_by_config(owner, config(tmp_path, "deny", patterns))
    narrow_by_config(owner, config(tmp_path, "deny", patterns[:5]))
    own = owner.replace(deny=[str(tmp_path / pattern) for pattern in patterns])
    assert not [
        rule for rule in own.resolved_rules() if rule.kind == "deny" and "a" * 99 in rule.path
    ]


def test_who_wrote_a_pattern_is_remembered(tmp_path: Path) -> None:
    """Found stays found in copies, and what the owner writes too is the owner's."""
    names = [str(tmp_path / name) for name in ("*.one", "*.two")]
    owner = JailPolicy(write=[tmp_path], deny=names[:1])
    narrowed = narrow_by_config(owner, config(tmp_path, "deny", ["*.one", "*.two"]))
    for policy in (
        narrowed,
        narrowed.replace(strict_globs=False),
        pickle.loads(pickle.dumps(narrowed)),
        narrowed.narrow(JailPolicy(write=[tmp_path])),
        JailPolicy(write=[tmp_path]).narrow(narrowed),
    ):
        assert set(policy.deny) >= set(names)
        assert policy.found == {names[1]}
    assert narrowed.narrow(JailPolicy(write=[tmp_path], deny=names)).found == frozenset()

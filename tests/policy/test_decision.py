"""The C decision function against the oracle, on random policies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import oracle
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from visruntime._native import decide

if TYPE_CHECKING:
    from random import Random

pytestmark = pytest.mark.one_uid

EXAMPLES = 5_000 if os.environ.get("VIS_FULL") else 500

RIGHTS = ("read", "write", "exec")

# Few names, so that rules meet each other; one is a prefix of another, so that a
# comparison by characters instead of segments is caught.
names = st.sampled_from(["a", "ab", "b", "a b", ".git", "é"])
paths = st.lists(names, max_size=5).map(lambda parts: "/" + "/".join(parts))
rules = st.lists(st.tuples(st.sampled_from(sorted(oracle.SAYS)), paths), max_size=12)

full = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@full
@given(rules=rules, path=paths)
@example(rules=[("deny_exec", "/a"), ("deny", "/a/b"), ("read", "/a/b/a")], path="/a/b/a/a")
@example(rules=[("read", "/a"), ("write", "/a")], path="/a")
@example(rules=[("write", "/a"), ("deny_write", "/a"), ("write", "/a/b")], path="/a/b")
@example(rules=[("read", "/a")], path="/ab")
def test_c_decides_as_the_oracle(rules: list[tuple[str, str]], path: str) -> None:
    """C must never allow what the specification denies, nor deny what it allows."""
    for right in RIGHTS:
        allowed, _ = decide(rules, right, path)
        assert allowed == oracle.decide(rules, right, path), right


@full
@given(rules=rules, path=paths, random=st.randoms(use_true_random=False))
def test_the_order_of_rules_never_matters(
    rules: list[tuple[str, str]], path: str, random: Random
) -> None:
    """No answer may change when the same rules are given in another order or twice."""
    shuffled = [*rules, *rules]
    random.shuffle(shuffled)
    for right in RIGHTS:
        assert decide(rules, right, path)[0] == decide(shuffled, right, path)[0]


@full
@given(rules=rules, path=paths)
def test_the_deciding_rule_speaks_of_the_path(rules: list[tuple[str, str]], path: str) -> None:
    """The index must name a rule that covers the path and says what was answered."""
    for right in RIGHTS:
        allowed, index = decide(rules, right, path)
        covering = [kind for kind, top in rules if oracle.covers(top, path)]
        if index < 0:
            assert not allowed
            assert not any("read" in oracle.SAYS[kind] for kind in covering)
            continue
        kind, top = rules[index]
        assert oracle.covers(top, path)
        if allowed:
            assert kind in ("read", "write")
        else:
            assert kind.startswith("deny") or (kind == "read" and right == "write")


@full
@given(rules=rules, path=paths, kind=st.sampled_from([k for k in oracle.SAYS if "deny" in k]))
def test_a_deny_more_never_allows_more(rules: list[tuple[str, str]], path: str, kind: str) -> None:
    """Adding any deny at the asked path must never turn an answer into allowed."""
    for right in RIGHTS:
        if not decide(rules, right, path)[0]:
            assert not decide([*rules, (kind, path)], right, path)[0]


@pytest.mark.parametrize(
    ("right", "path", "allowed"),
    [
        ("read", "/w/x", True),
        ("write", "/w/x", True),
        ("exec", "/w/x", True),
        ("write", "/w/ro/x", False),
        ("read", "/w/ro/x", True),
        ("read", "/w/no/x", False),
        ("exec", "/w/no/x", False),
        ("write", "/w/no/yes", True),
        ("exec", "/w/bin/deep/tool", False),
        ("write", "/w/bin/deep/tool", True),
        ("read", "/wx", False),
        ("read", "/", False),
    ],
)
def test_decisions_written_out(right: str, path: str, *, allowed: bool) -> None:
    """The meaning of each kind, by hand: C and oracle alike must give exactly this."""
    rules = [
        ("write", "/w"),
        ("read", "/w/ro"),
        ("deny", "/w/no"),
        ("write", "/w/no/yes"),
        ("deny_exec", "/w/bin"),
        ("write", "/w/bin/deep"),
    ]
    assert decide(rules, right, path)[0] is allowed
    assert oracle.decide(rules, right, path) is allowed

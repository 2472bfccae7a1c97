"""What two policies have in common: never more than either, and nothing lost on the way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import oracle
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import visruntime as vr
from visruntime._policy.fields import KINDS

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = 2_000 if os.environ.get("VIS_FULL") else 200


def reaches_host(policy: vr.JailPolicy, operation: str, path: Path) -> bool:
    """Tell whether the act is allowed on the host's file, not in a jail's own place."""
    decision = policy.why(operation, path)  # type: ignore[arg-type]
    return decision.allowed and decision.rule is not None and decision.rule.origin != "private"


names = st.sampled_from(["q", "r", "tmp", "home", "user", "usr", "bin"])
tails = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
grants = st.lists(tails, max_size=4)


def policies() -> st.SearchStrategy[vr.JailPolicy]:
    """Random policies whose paths meet each other, the system and the private places."""
    return st.builds(
        vr.JailPolicy,
        read=grants,
        write=grants,
        deny=grants,
        deny_read=st.lists(tails, max_size=2),
        deny_write=st.lists(tails, max_size=2),
        deny_exec=st.lists(tails, max_size=2),
        system=st.sampled_from(["minimal", "host", "none"]),
        egress=st.sampled_from([vr.Egress.OFF, vr.Egress.OPEN, vr.Egress.proxy(allow=["a.test"])]),
        host_ports=st.lists(st.sampled_from([1, 2]), max_size=2),
        inherit_env=st.lists(st.sampled_from(["LANG", "TERM"]), max_size=2),
    )


def answers(policy: vr.JailPolicy, path: str) -> tuple[dict[str, bool], bool]:
    """The oracle's answers on real paths, and whether the host's own files are meant."""
    rules = policy.resolved_rules()
    pairs = [(rule.kind, rule.path) for rule in rules]
    over = [r for r in rules if r.kind in ("read", "write") and oracle.covers(r.path, path)]
    deepest = max((oracle.depth(r.path) for r in over), default=0)
    nearest = [r for r in over if oracle.depth(r.path) == deepest]
    private = bool(nearest) and all(r.origin == "private" for r in nearest)
    decided = {right: oracle.decide(pairs, right, path) for right in ("read", "write", "exec")}
    return decided, not private


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(  # the private HOME is back where a grant no longer shows the host's
    one=vr.JailPolicy(deny_read=["/home"], system="host"),
    two=vr.JailPolicy(write=["/home"]),
    asked=["/home/user"],
)
@given(one=policies(), two=policies(), asked=st.lists(tails, min_size=1, max_size=5))
def test_narrow_grants_nothing_that_either_does_not(
    one: vr.JailPolicy, two: vr.JailPolicy, asked: list[str]
) -> None:
    """The narrowed policy must allow no act and reach no host file that one of the two does not."""
    both = one.narrow(two)
    every = {
        path for policy in (one, two, both) for kind in KINDS for path in getattr(policy, kind)
    }
    for path in {os.path.realpath(path) for path in (*asked, *every, "/usr/bin", "/tmp/q", "/")}:
        (a, host_a), (b, host_b), (c, host_c) = (answers(p, path) for p in (one, two, both))
        # A private place is the guest's own and begins empty: a deny of the host's folder around
        # it may close it in one of the two and not in both, which shows nothing of the host.
        for right, allowed in c.items() if host_c else ():
            assert not allowed or (a[right] and b[right]), (right, path, both)
        if c["read"] and host_c:
            assert host_a, (path, both)
            assert host_b, (path, both)
        # Nothing is lost either where both mean the host's own file. Where the two together do not
        # show it, a private place may be there instead, with all rights in it.
        if host_a and host_b:
            for right, allowed in c.items():
                wanted = a[right] and b[right]
                assert allowed == wanted or (allowed and not host_c), (right, path, both)
    for kind in ("deny", "deny_read", "deny_write", "deny_exec"):
        assert {*getattr(one, kind), *getattr(two, kind)} <= set(getattr(both, kind))
    assert set(both.host_ports) <= set(one.host_ports) & set(two.host_ports)
    assert set(both.inherit_env) <= set(one.inherit_env) & set(two.inherit_env)
    order = ["off", "proxy", "open"]
    assert order.index(both.egress.mode) == min(
        order.index(one.egress.mode), order.index(two.egress.mode)
    )


def test_narrow_takes_the_smaller_of_everything_else() -> None:
    """Limits, environment, ports and hosts of the result are in both policies."""
    one = vr.JailPolicy(
        absent_deny="wall",
        env={"A": "1", "B": "2", "S": vr.Secret("x"), "T": vr.Secret("y")},
        inbound={80: 0, 81: 0},
        egress=vr.Egress.proxy(allow=["*.a.test", "b.test:443"], deny=["x.a.test"]),
        limits=vr.Limits(memory=10, memory_by="process", processes=None, output=5),
    )
    two = vr.JailPolicy(
        env={"A": "1", "B": "3", "S": vr.Secret("x"), "T": "y"},
        inbound={80: 0, 81: 1},
        egress=vr.Egress.proxy(allow=["c.a.test", "b.test", "d.test"], deny=["y.test"]),
        limits=vr.Limits(memory=20, memory_by="cgroup", processes=3, output=None),
    )
    both = one.narrow(two)
    assert both.absent_deny == "wall"
    assert both.narrow(vr.JailPolicy(absent_deny="error")).absent_deny == "error"
    assert dict(both.env) == {"A": "1", "S": vr.Secret("x")}
    assert dict(both.inbound) == {80: 0}
    assert both.egress == vr.Egress.proxy(
        allow=["b.test:443", "c.a.test"], deny=["x.a.test", "y.test"]
    )
    assert both.limits == vr.Limits(memory=10, memory_by="cgroup", processes=3, output=5)


def test_narrow_of_open_files_is_never_larger_than_auto() -> None:
    """A number above what "auto" will mean must not win over it."""
    auto = vr.Limits()
    assert auto.narrow(vr.Limits(open_files=2**30)).open_files == "auto"
    assert auto.narrow(vr.Limits(open_files=8)).open_files == 8
    assert vr.Limits(open_files=8).narrow(vr.Limits(open_files=None)).open_files == 8
    assert auto.narrow(vr.Limits(open_files=None)).open_files == "auto"


def test_narrow_compares_where_links_lead(workspace: Path, outside: Path) -> None:
    """A link inside one policy's grant must not bring in what the other does not grant."""
    (outside / "secret").touch()
    (workspace / "link").symlink_to(outside)
    one = vr.JailPolicy(write=[workspace])
    two = vr.JailPolicy(read=[workspace / "link"])
    assert reaches_host(two, "read", workspace / "link" / "secret")
    for both in (one.narrow(two), two.narrow(one)):
        assert not reaches_host(both, "read", outside / "secret")
        assert not reaches_host(both, "read", workspace / "link" / "secret")
        assert both.read == both.write == ()


def test_narrow_with_itself_keeps_every_answer() -> None:
    """A policy has everything in common with itself."""
    policy = vr.JailPolicy(read=["/r"], write=["/w", "/tmp"], deny=["/w/x"], deny_exec=["/r/b"])
    same = policy.narrow(policy)
    assert same.digest == policy.digest

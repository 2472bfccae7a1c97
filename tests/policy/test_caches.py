"""Caches as a policy says them: where they may be, and what is answered about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import visruntime as vr

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

CACHE = "/home/user/.cache"


@pytest.mark.parametrize(
    "caches",
    [
        ["/"],
        ["/proc/x"],
        ["/usr/lib"],
        ["/etc"],
        ["/dev/shm"],
        ["/tmp"],
        ["/home"],
        ["/home/user"],
        ["/srv/a", "/srv/a/b"],
        ["/srv/a", "/srv/a"],
        ["relative"],
        [f"/srv/{number}" for number in range(65)],
    ],
)
def test_no_cache_takes_what_is_needed(caches: list[str]) -> None:
    """A cache must be neither the jail's own place, nor the kernel's, nor within another one."""
    with pytest.raises(vr.PolicyError, match="caches"):
        vr.JailPolicy(caches=caches)


@pytest.mark.parametrize(
    "rules",
    [
        {"read": ["{folder}/cache"]},
        {"write": ["{folder}/cache/inside"]},
        {"deny": ["{folder}/cache"], "write": ["{folder}"]},
        {"deny": ["{folder}/cache/inside"], "write": ["{folder}"]},
        {"deny": ["{folder}/c*"], "write": ["{folder}"]},
    ],
)
def test_what_another_rule_speaks_of_is_no_cache(
    workspace: Path, rules: dict[str, list[str]]
) -> None:
    """A rule about what a cache covers would hold for nothing, so it must be refused."""
    (workspace / "cache" / "inside").mkdir(parents=True)
    fields: dict[str, Any] = {
        name: [text.format(folder=workspace) for text in texts] for name, texts in rules.items()
    }
    policy = vr.JailPolicy(**{"caches": [workspace / "cache"], **fields})
    assert [field for field, _ in policy.unsupported()] == ["caches[0]"]
    with pytest.raises(vr.PolicyUnsupported, match="shows nothing of the host's"):
        vr.Jail(policy)


def test_patterns_say_nothing_of_a_cache(workspace: Path) -> None:
    """Names of the host's that a cache covers must be neither granted nor denied inside it."""
    for name in ("cache/one.key", "other/one.key", "cache/sub"):
        (workspace / name).mkdir(parents=True)
    policy = vr.JailPolicy(
        write=[workspace],
        read=[workspace / "*" / "sub*"],
        deny=[workspace / "**" / "*.key"],
        caches=[workspace / "cache"],
    )
    with pytest.raises(vr.PolicyError, match="names nothing that exists"):
        vr.Jail(policy)
    policy = policy.replace(read=[])
    assert policy.unsupported() == []
    assert policy.why("write", workspace / "cache" / "one.key").allowed
    assert not policy.why("write", workspace / "other" / "one.key").allowed


def test_why_speaks_of_the_cache_and_not_of_the_host(workspace: Path, outside: Path) -> None:
    """Links and secrets of the host must not enter an answer about what is the policy's own."""
    cache = workspace / "cache"
    cache.mkdir()
    (cache / "link").symlink_to(outside)
    (cache / ".env").touch()
    policy = vr.JailPolicy(write=[workspace], caches=[cache])
    for name in ("link/file", ".env"):
        decision = policy.why("write", cache / name)
        assert decision.allowed
        assert decision.rule is not None
        assert (decision.rule.origin, decision.rule.is_own) == ("caches[0]", True)
    assert "what the host has there is not visible" in policy.why("read", cache / ".env").reason
    decision = vr.JailPolicy(write=[workspace], deny_write=[outside]).why("write", cache / "x")
    assert decision.rule is not None
    assert not decision.rule.is_own


def test_narrowing_keeps_shared_caches_and_grants_none_of_the_hosts(workspace: Path) -> None:
    """What one policy covers by a cache must not be open in what both have in common."""
    cache = workspace / "cache"
    cache.mkdir()
    grant = vr.JailPolicy(write=[workspace])
    both = vr.JailPolicy(write=[workspace], caches=[cache, CACHE])
    one = grant.narrow(both)
    assert one.caches == ()
    assert not one.why("read", cache).allowed
    assert one.why("write", workspace / "x").allowed
    assert (
        not vr.JailPolicy(write=[cache])
        .narrow(vr.JailPolicy(caches=[cache]))
        .why("read", cache)
        .allowed
    )
    same = both.narrow(both)
    assert same.caches == both.caches
    assert same.unsupported() == []
    assert same.why("write", cache / "x").rule == vr.Rule(
        kind="write", path=str(cache), origin="caches[0]"
    )


def test_a_cache_behind_a_link_is_refused(workspace: Path, outside: Path) -> None:
    """A link that a guest could have made must not say where a cache stands."""
    (workspace / "link").symlink_to(outside)
    with pytest.raises(vr.PolicyError, match="is a link"):
        vr.Jail(vr.JailPolicy(caches=[workspace / "link" / "cache"]))


def test_a_cache_in_a_grant_needs_a_folder(workspace: Path) -> None:
    """Nothing is made on the host, so a missing cache there must be refused, and a file too."""
    policy = vr.JailPolicy(write=[workspace], caches=[workspace / "cache"])
    with pytest.raises(vr.PolicyError, match=r"caches\[0\]: .* does not exist inside"):
        vr.Jail(policy)
    (workspace / "cache").touch()
    with pytest.raises(vr.PolicyUnsupported, match="is no folder"):
        vr.Jail(policy)


def test_what_a_worker_needs_is_no_cache() -> None:
    """The interpreter of a worker must not be replaced by what an earlier guest has left."""
    import os
    import sys

    refusals = (vr.PolicyUnsupported, vr.PolicyError)
    with pytest.raises(refusals, match=r"lie in each other|no programs"):
        vr.Runtime(vr.JailPolicy(caches=[os.path.join(sys.base_prefix, "lib")], system="none"))

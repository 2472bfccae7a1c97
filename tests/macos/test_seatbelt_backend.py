"""The back end of macOS from Python: what it refuses, and that a profile means its policy."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seatbelt_model import Profile, codes

import visruntime as vr
from visruntime._jail.open import open_jail
from visruntime._jail.seatbelt import make_profile, refused
from visruntime._policy.platforms import COLUMNS, HELD, REFUSED, SEATBELT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

EXAMPLES = 300 if os.environ.get("VIS_FULL") else 25
BARE = vr.Limits(processes=None, scratch=None)
KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")

names = st.sampled_from(["a", "ab", "b", "a b", "é"])
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/srv/" + "/".join(parts))
fields = st.fixed_dictionaries({kind: st.lists(paths, max_size=3) for kind in KINDS})


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_fields=fields, asked=st.lists(paths, min_size=1, max_size=6))
def test_a_profile_means_what_the_policy_says(
    given_fields: dict[str, Any], asked: list[str]
) -> None:
    """V41: `why` and the profile must never differ about what a guest may do."""
    policy = vr.JailPolicy(system="none", limits=BARE, **given_fields)
    profile = Profile(*make_profile(policy))
    assert codes(profile) == set()
    rights: dict[Literal["read", "write", "exec"], str] = {
        "read": "file-read-data",
        "write": "file-write-data",
        "exec": "process-exec",
    }
    for path in {*asked, *(path for paths in given_fields.values() for path in paths)}:
        for right, operation in rights.items():
            decision = policy.why(right, path)
            assert profile.decides(operation, path=path) == decision.allowed, (path, decision)


def test_links_are_followed_and_secrets_stay_closed(tmp_path: Path) -> None:
    """P4: a deny behind a link must hold where it leads, and what was found is denied."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    policy = vr.JailPolicy(write=[tmp_path], deny=[tmp_path / "link"], limits=BARE)
    profile = Profile(*make_profile(policy, hidden=[f"{tmp_path}/.env"]))
    assert profile.decides("file-read-data", path=f"/private{tmp_path}/other")
    for name in ("data/x", ".env"):
        assert not profile.decides("file-read-data", path=f"/private{tmp_path}/{name}")


def test_the_preset_of_a_workspace(tmp_path: Path) -> None:
    """Hooks that do not exist must not be made, by no spelling; the work itself goes on."""
    (tmp_path / ".git").mkdir()
    policy = vr.JailPolicy.workspace(tmp_path, limits=BARE)
    held = [path for path in policy.deny_write if not os.path.lexists(path)]
    text, parameters = make_profile(policy, held=held, own="/var/folders/x")
    profile = Profile(text, parameters)
    assert codes(profile) == set()
    here = f"/private{tmp_path}"
    for name in (".git/hooks/pre-commit", ".GIT/HOOKS/pre-commit", ".vscode/tasks.json"):
        assert not profile.decides("file-write-create", path=f"{here}/{name}"), name
    for name in ("src/a.py", ".git/objects/aa/bb", ".git/index"):
        assert profile.decides("file-write-create", path=f"{here}/{name}"), name


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("limits.memory", {"limits": BARE.replace(memory=1 << 30, memory_by="process")}),
        ("limits.processes", {"limits": BARE.replace(processes=10)}),
        ("limits.cpus", {"limits": BARE.replace(cpus=1.0)}),
        ("limits.scratch", {"limits": BARE.replace(scratch=1 << 20)}),
        ("egress", {"egress": vr.Egress.proxy(allow=["host.test"])}),
        ("inbound[8000]", {"inbound": {8000: 8000}}),
        ("caches", {"caches": ["/srv/cache"]}),
        ("deny[1]", {"deny": ["/srv/a", "/srv/\udcff"]}),
        ("services[0]", {"services": ["com.apple.coreservices.launchservicesd"]}),
    ],
)
def test_what_seatbelt_cannot_hold_is_refused_by_name(field: str, more: dict[str, Any]) -> None:
    """No clause may be left out: the field is named, with what to do."""
    policy = vr.JailPolicy(**({"limits": BARE} | more))
    with pytest.raises(vr.PolicyUnsupported, match="seatbelt") as caught:
        make_profile(policy)
    assert caught.value.field == field
    assert make_profile(vr.JailPolicy(limits=BARE))


def test_all_that_is_refused_is_said_at_once() -> None:
    """With one after the other, each try would show the next."""
    policy = vr.JailPolicy(inbound={1: 0, 2: 0})
    found = [field for field, _ in refused(policy)]
    assert found == ["inbound[1]", "inbound[2]", "limits.processes", "limits.scratch"]
    with pytest.raises(vr.PolicyUnsupported, match=r"inbound\[2\].*limits\.scratch"):
        make_profile(policy)


def test_seatbelt_is_not_linux() -> None:
    """Off macOS the back end must be refused, and nothing else tried."""
    with pytest.raises(vr.JailUnavailable, match=f"macOS, and this system is {sys.platform}") as e:
        vr.Jail(vr.JailPolicy(), backend="seatbelt")
    assert e.value.stage == "platform"


def test_no_back_end_of_linux_opens_on_macos() -> None:
    """A jail must not open by a back end that is not there, nor another be tried instead."""
    for backend in ("namespaces", "bubblewrap", "landlock"):
        with pytest.raises(vr.JailUnavailable, match="belongs to Linux") as caught:
            open_jail(vr.JailPolicy(), backend, platform="darwin")
        assert caught.value.reason == "platform"


def test_every_field_is_held_or_refused() -> None:
    """V41: no field may be without an answer, and the refused ones are what `refused` says."""
    rows = {*COLUMNS["linux"]}
    assert set(SEATBELT) == rows
    held = {row for row, (kind, _) in SEATBELT.items() if kind == HELD}
    assert rows - held == {
        *("caches", "egress.proxy", "inbound", "limits.cpus", "limits.memory"),
        *("limits.memory_by", "limits.processes", "limits.scratch"),
    }
    assert COLUMNS["macos"] is SEATBELT
    assert {kind for kind, _ in SEATBELT.values()} == {HELD, REFUSED}

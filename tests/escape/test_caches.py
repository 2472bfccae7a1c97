"""Boundary: caches. What guests of one policy keep is theirs alone, and nobody's else to believe."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, Literal

import pytest
from jail_helpers import (
    Jail,
    JailPolicy,
    Secret,
    backends,
    errno,
    inside,
    is_root,
    jail_by,
    outside,
)
from packages_helpers import make_wheel, require_uv

import visruntime as vr
from visruntime._jail import caches as caches_module
from visruntime._jail.state_folder import folder_at

if TYPE_CHECKING:
    from pathlib import Path

CACHE = "/home/user/.cache"
"""Where tools in a jail look for their caches."""

LEAVE = """
made = [opened(p + "/left", os.O_CREAT | os.O_WRONLY), attempt(os.mkdir, p + "/folder")]
answer([made, sorted(os.listdir(p))])
"""
LIST = "answer(sorted(os.listdir(p)))"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the caches of these tests in a folder of their own, and return it."""
    folder = tmp_path.resolve() / "state"
    for name in ("uv", "pip"):  # a grant around them needs them
        (folder / name).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "visruntime" / "caches"


def at(path: str | Path, text: str) -> str:
    """Return the program *text* for the cache at *path*."""
    return f"p = {str(path)!r}\n{text}"


def folders(state: Path) -> list[Path]:
    """Return the folder behind each cache of each policy."""
    return [cache for policy in state.iterdir() if policy.is_dir() for cache in policy.iterdir()]


def test_a_cache_outlives_its_jail_for_guests_of_that_policy_only(state: Path) -> None:
    """What a guest left must not be seen under another policy, and must be there under its own."""
    policy = JailPolicy(caches=[CACHE])
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, LEAVE)) == [[0, 0], ["folder", "left"]]
        clause = next(c for c in jail.report.clauses if c.clause == "caches[0]")
        assert "mount" in clause.mechanisms
        assert [c.held for c in jail.report.canaries if c.name == f"read {state}"] == [True]
    with Jail(JailPolicy(caches=[CACHE])) as jail:
        assert inside(jail, at(CACHE, LIST)) == ["folder", "left"]
    for other in (JailPolicy(caches=[CACHE], env={"A": "b"}), JailPolicy(caches=[CACHE, "/srv/b"])):
        with Jail(other) as jail:
            assert inside(jail, at(CACHE, LIST)) == []
    (folder,) = folders(state)
    assert sorted(os.listdir(folder)) == ["folder", "left"]
    for step in (state, folder.parent, folder):
        found = step.stat()
        assert (found.st_mode & 0o777, found.st_uid) == (0o700, os.geteuid())
    assert (state / "key").stat().st_mode & 0o777 == 0o600


def test_policies_that_differ_in_a_secret_do_not_share(state: Path) -> None:
    """Two users of one service, whose policies differ in a token alone, must not share a cache."""
    one, two = (JailPolicy(caches=[CACHE], env={"TOKEN": Secret(text)}) for text in ("a", "b"))
    assert one.digest == two.digest
    with Jail(one) as jail:
        inside(jail, at(CACHE, LEAVE))
    with Jail(two) as jail:
        assert inside(jail, at(CACHE, LIST)) == []
    with Jail(one) as jail:
        assert inside(jail, at(CACHE, LIST)) == ["folder", "left"]


def test_inherited_values_tell_caches_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users whom a variable of the host tells apart must not share a cache."""
    policy = JailPolicy(caches=[CACHE], inherit_env=["TENANT"])
    seen = []
    for value in ("a", "b", None, "a"):
        if value is None:
            monkeypatch.delenv("TENANT")
        else:
            monkeypatch.setenv("TENANT", value)
        with Jail(policy) as jail:
            seen.append(inside(jail, at(CACHE, LIST)))
            jail.write_bytes(f"{CACHE}/{value}", b"")
    assert seen == [[], [], [], ["a"]]


@pytest.mark.parametrize("kind", ["read", "write"])
def test_what_the_host_has_there_is_neither_read_nor_written(workspace: Path, kind: str) -> None:
    """A cache inside of a grant must show nothing of the host's, nor let it be moved aside."""
    host = workspace / "tool" / "cache"
    host.mkdir(parents=True)
    (host / "wheel").write_text("genuine")
    text = """
moved = [attempt(os.rename, p, p + ".2"), attempt(os.rename, above, above + ".2")]
answer([opened(p + "/wheel"), moved, opened(p + "/wheel", os.O_CREAT | os.O_WRONLY)])
"""
    text = at(host, f"above = {str(host.parent)!r}\n{text}")
    rules: dict[str, Any] = {kind: [workspace], "caches": [host]}
    with Jail(JailPolicy(**rules)) as jail:
        refused = errno.EBUSY if kind == "write" else errno.EROFS
        missing, moved, made = inside(jail, text)
        assert (missing, made) == (errno.ENOENT, 0)
        assert moved == [errno.EBUSY, refused] if kind == "write" else [errno.EBUSY, errno.EROFS]
    assert (host / "wheel").read_text() == "genuine"
    assert outside(at(host, 'answer(opened(p + "/wheel"))')) == 0
    assert os.listdir(workspace) == ["tool"]


@pytest.mark.parametrize("kind", ["read", "write"])
def test_caches_are_out_of_sight_for_all_others(state: Path, kind: str) -> None:
    """A guest that has the user's home must neither read nor poison what others keep."""
    with Jail(JailPolicy(caches=[CACHE])) as jail:
        inside(jail, at(CACHE, LEAVE))
    (folder,) = folders(state)
    text = at(
        folder,
        "top = os.path.dirname(os.path.dirname(p))\nanswer([attempt(os.listdir, top),"
        ' opened(p + "/left"), opened(p + "/new", os.O_CREAT | os.O_WRONLY)])',
    )
    rules: dict[str, Any] = {kind: [state.parent.parent]}
    with Jail(JailPolicy(**rules)) as jail:
        assert inside(jail, text) == [errno.EACCES, errno.EACCES, errno.EACCES]
        assert f"masked {state}" in [clause.clause for clause in jail.report.clauses]
    assert outside(text) == [0, 0, 0]


@pytest.mark.parametrize("mode", ["broker", "wall", "error"])
def test_caches_made_after_a_jail_opened_are_out_of_its_sight(
    tmp_path: Path, state: Path, mode: Literal["broker", "wall", "error"]
) -> None:
    """A guest that had the user's home before the first cache was made must not reach it either."""
    home = tmp_path.resolve()
    free = home / "free"
    free.mkdir()
    with Jail(JailPolicy(write=[home], absent_deny=mode)) as first:
        policy = JailPolicy(caches=[CACHE])
        with Jail(policy) as jail:
            inside(jail, at(CACHE, LEAVE))
        (folder,) = folders(state)
        acts = f"""
left, state, free = p + "/left", {str(state.parent)!r}, {str(free)!r}
answer([opened(left, os.O_WRONLY), attempt(os.link, left, free + "/second"),
        attempt(os.rename, left, free + "/left"), attempt(os.listdir, state + "/caches"),
        attempt(os.rename, state + "/caches", free + "/caches"),
        attempt(os.mkdir, state + "/environments/made"), attempt(os.rename, state, free + "/state")])
"""
        got = inside(first, at(folder, acts))
        assert 0 not in got
        assert got[:4] == [errno.EACCES] * 4
    assert os.listdir(free) == []
    assert state.parent.stat().st_mode & 0o777 == 0o700
    assert state.stat().st_mode & 0o777 == 0o700
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, LIST)) == ["folder", "left"]
    # The control: without a jail each act succeeds.
    assert outside(at(folder, acts)) == [0] * 7


def test_no_grant_leads_to_a_cache(state: Path) -> None:
    """A policy must not write in another one's caches by naming them."""
    with Jail(JailPolicy(caches=[CACHE])) as jail:
        inside(jail, at(CACHE, LEAVE))
    (folder,) = folders(state)
    with pytest.raises(vr.PolicyError, match="lies in"):
        Jail(JailPolicy(write=[folder]))
    for path in (folder, folder / "left", folder.parent, state, state / "key"):
        with pytest.raises(vr.PolicyError, match=r"read\[0\]: .* caches of all policies"):
            Jail(JailPolicy(read=[path]))
    for name in ("", "building", "bundles", "interpreters", "locks", "other"):
        path = state.parent / name
        path.mkdir(exist_ok=True)
        with pytest.raises(vr.PolicyError, match="lies in"):
            Jail(JailPolicy(write=[path]))
    with pytest.raises(vr.PolicyUnsupported, match="keeps things of its own"):
        Jail(JailPolicy(caches=[folder]))


def test_a_guest_cannot_lead_out_of_its_cache(outside: Path, state: Path) -> None:
    """Links, and names of files elsewhere, must lead nowhere, not in the next jail either."""
    (outside / "secret").write_text("x")
    policy = JailPolicy(caches=[CACHE], read=[outside])
    plant = f"""
os.symlink("/", p + "/root")
os.symlink({str(state)!r}, p + "/others")
answer([attempt(os.link, {str(outside / "secret")!r}, p + "/second")])
"""
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, plant)) == [errno.EXDEV]
    with Jail(policy) as jail:
        text = 'answer([opened(p + "/others/key"), opened(p + "/root/etc/shadow")])'
        assert inside(jail, at(CACHE, text)) == [errno.ENOENT, errno.ENOENT]


def too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look find too much."""
    monkeypatch.setattr(caches_module, "MOST_NAMES", 3)
    monkeypatch.setattr(caches_module, "LOOK_SECONDS", 0)


HOSTILE = """
os.symlink(out, p + "/link")
os.mkdir(p + "/closed"); open(p + "/closed/file", "w").close(); os.chmod(p + "/closed", 0)
here = os.open(p, os.O_RDONLY)
for step in range(40):
    os.mkdir("d" * 200, dir_fd=here)
    here = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
os.chmod(p, 0)
answer(0)
"""


def test_a_cache_that_holds_too_much_is_emptied(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tree that a guest leaves, deep, closed or linked, may be kept for ever or lead out."""
    (outside / "kept").write_text("x")
    policy = JailPolicy(caches=[CACHE])
    with Jail(policy) as jail:
        inside(jail, at(CACHE, f"out = {str(outside)!r}\n{HOSTILE}"))
        monkeypatch.setattr(caches_module, "LOOK_SECONDS", 0)
        with Jail(policy) as second:  # not while somebody uses it
            assert "link" in inside(second, at(CACHE, LIST))
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, LEAVE)) == [[0, 0], ["folder", "left"]]
        assert any(note.startswith("caches: they were emptied") for note in jail.report.notes)
    assert os.listdir(outside) == ["kept"]
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, LIST)) == ["folder", "left"]
        for number in range(3):
            jail.write_bytes(f"{CACHE}/{number}", b"")
    too_much(monkeypatch)
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, LIST)) == []


BROAD = """
here = os.open(p, os.O_RDONLY)
for step in range(14):
    os.mkdir("d" * 250, dir_fd=here)
    here = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
for number in range(300):
    os.mkdir("%d\\U0001F600" % number, dir_fd=here)
answer(0)
"""


def test_to_count_a_cache_takes_little_memory(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long paths of many folders must not fill the memory of the host whose jail opens next."""
    policy = JailPolicy(caches=[CACHE])
    with Jail(policy) as jail:
        assert inside(jail, at(CACHE, BROAD)) == 0
    monkeypatch.setattr(caches_module, "MOST_PENDING_BYTES", 1 << 18, raising=False)
    (folder,) = folders(state)
    tracemalloc.start()
    try:
        with folder_at(str(folder.parent)) as around:
            assert caches_module._holds_too_much(around, folder.name)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # the paths of all are 4 MiB
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(caches_module, "LOOK_SECONDS", 0)
    with Jail(policy) as jail:
        assert any(note.startswith("caches: they were emptied") for note in jail.report.notes)
        assert inside(jail, at(CACHE, LIST)) == []


def test_no_link_leads_the_host_out_of_its_caches(
    state: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest of another host may write above the caches: nothing of others' is removed or made."""
    first = JailPolicy(caches=[CACHE])
    with Jail(first) as jail:
        jail.write_bytes(f"{CACHE}/file", b"")
    (folder,) = folders(state)
    for name in (folder.parent.name, "f" * 32):
        (outside / name / "victim").mkdir(parents=True)
        (outside / f"{name}.lock").touch()
        os.utime(outside / f"{name}.lock", (1, 1))
    before = sorted(outside.rglob("*"))
    monkeypatch.setattr(caches_module, "LOOK_SECONDS", 0)
    hold = caches_module._hold

    def swapped(root: str, top: int, name: str, notes: list[str]) -> int:
        state.rename(state.parent / "away")
        state.symlink_to(outside)
        return hold(root, top, name, notes)

    monkeypatch.setattr(caches_module, "_hold", swapped)
    with pytest.raises(vr.PolicyUnsupported, match="is a link"):
        Jail(first)
    assert sorted(outside.rglob("*")) == before


def test_caches_that_nobody_opens_go(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches of policies must not pile up: the oldest go, but none that is in use."""
    monkeypatch.setattr(caches_module, "LOOK_SECONDS", 0)
    old = [JailPolicy(caches=[CACHE], env={"N": str(number)}) for number in range(3)]
    with Jail(old[0]) as used:
        for policy in old:
            with Jail(policy) as jail:
                jail.write_bytes(f"{CACHE}/file", b"x")
        assert len(folders(state)) == 3
        long_ago = time.time() - caches_module.UNUSED_SECONDS - 60
        for lock in state.glob("*.lock"):
            os.utime(lock, (long_ago, long_ago))
        with Jail(JailPolicy(caches=[CACHE])):
            assert len([p for p in state.iterdir() if p.is_dir()]) == 2
        assert used.exists(f"{CACHE}/file")
    monkeypatch.setattr(caches_module, "MOST_POLICIES", 1)
    with Jail(JailPolicy(caches=[CACHE])):
        assert len([p for p in state.iterdir() if p.is_dir()]) == 1


def test_an_unused_cache_leaves_no_folder(state: Path) -> None:
    """A jail whose guest kept nothing must leave nothing behind, nor one that did not open."""
    Jail(JailPolicy(caches=[CACHE, "/srv/other"])).close()
    with pytest.raises(vr.PolicyError, match="does not exist"):
        Jail(JailPolicy(caches=[CACHE], read=["/nonexistent"]))
    assert os.listdir(state) == ["key"]


def test_a_forked_child_lets_the_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of the host that closes its copy of a jail must not free the cache of its parent."""
    policy = JailPolicy(caches=[CACHE])
    with Jail(policy) as jail:
        jail.write_bytes(f"{CACHE}/a", b"x" * 10)
        child = os.fork()
        if child == 0:
            jail.close()
            os._exit(0)
        os.waitpid(child, 0)
        too_much(monkeypatch)
        monkeypatch.setattr(caches_module, "MOST_NAMES", 0)
        with Jail(policy) as second:
            assert inside(second, at(CACHE, LIST)) == ["a"]
    with Jail(policy) as third:
        assert inside(third, at(CACHE, LIST)) == []


def test_a_cache_beside_a_name_that_is_held(workspace: Path) -> None:
    """Names must stay held beside a cache, and none in the cache itself."""
    cache = workspace / "cache"
    cache.mkdir()
    for absent in ("broker", "wall"):
        policy = JailPolicy(
            write=[workspace],
            caches=[cache],
            deny_write=[workspace / "absent"],
            absent_deny=absent,
        )
        with Jail(policy) as jail:
            text = 'answer([attempt(os.mkdir, p + "/../absent"), attempt(os.mkdir, p + "/absent")])'
            refused, made = inside(jail, at(cache, text))
            assert refused in (errno.EACCES, errno.EROFS)
            assert made == 0


def test_execution_that_is_denied_above_a_cache_is_denied_in_it() -> None:
    """No cache may lift a deny of execution."""
    text = """
with open(p + "/program", "w") as file: file.write("#!/bin/sh\\n")
os.chmod(p + "/program", 0o755)
answer(in_child(lambda: attempt(os.execv, p + "/program", ["program"])))
"""
    with Jail(JailPolicy(caches=["/tmp/cache"], deny_exec=["/tmp"])) as jail:
        assert inside(jail, at("/tmp/cache", text)) == errno.EACCES
    with Jail(JailPolicy(caches=["/tmp/cache"])) as jail:
        assert inside(jail, at("/tmp/cache", text)) == 0


def test_a_cache_that_stands_below_a_deny(workspace: Path) -> None:
    """What is around a cache must stay closed."""
    cache = workspace / "closed" / "cache"
    cache.mkdir(parents=True)
    (workspace / "closed" / "secret").touch()
    policy = JailPolicy(read=[workspace], deny=[workspace / "closed"], caches=[cache])
    with Jail(policy) as jail:
        text = 'answer([opened(p + "/../secret"), opened(p + "/new", os.O_CREAT | os.O_WRONLY)])'
        assert inside(jail, at(cache, text)) == [errno.ENOENT, 0]


@pytest.mark.parametrize("backend", backends("bubblewrap", "landlock"))
def test_other_back_ends_refuse_caches(backend: str) -> None:
    """A back end that cannot show a folder elsewhere must say so."""
    with pytest.raises(vr.PolicyUnsupported, match="caches: only a jail with mounts"):
        jail_by(backend, caches=[CACHE])


def test_a_folder_that_others_can_write_is_not_used(state: Path) -> None:
    """Where somebody else could plant a cache, none is taken."""
    state.parent.mkdir(mode=0o700)
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(vr.PolicyError, match="only you can write"):
        Jail(JailPolicy(caches=[CACHE]))
    state.chmod(0o700)
    state.rename(state.parent / "moved")
    state.symlink_to(state.parent / "moved")
    with pytest.raises(vr.PolicyError, match="is a link that a guest could have made"):
        Jail(JailPolicy(caches=[CACHE]))


def test_the_guest_of_a_root_caller_keeps_its_cache_under_another_uid(state: Path) -> None:
    """Each guest of a root caller has its own uid, and must find the cache as its own."""
    if not is_root():
        with Jail(JailPolicy(caches=[CACHE])) as jail:
            assert inside(jail, at(CACHE, "answer(os.stat(p).st_uid == os.getuid())"))
        return
    seen = set()
    for _ in range(2):
        with Jail(JailPolicy(caches=[CACHE])) as jail:
            uid, own = inside(jail, at(CACHE, "answer([os.getuid(), os.stat(p).st_uid])"))
            assert uid == own
            seen.add(jail.report.identity)
            jail.write_bytes(f"{CACHE}/file", b"x")
    assert len(seen) == 2 or "uid 0" in seen.pop()
    (folder,) = folders(state)
    assert (folder / "file").stat().st_uid == 0


def test_uv_finds_what_it_kept(tmp_path: Path) -> None:
    """A tool's cache must serve the next jail of the same policy, and be none of the host's."""
    uv = require_uv()
    house = tmp_path.resolve() / "house"
    make_wheel(house, "one", "1", {"one.py": ""})
    policy = JailPolicy(caches=[CACHE], read=[house, uv])
    command = [uv, "pip", "install", "-v", "--no-index", "--find-links", str(house), "--target"]
    said = []
    for number in range(2):
        with Jail(policy) as jail:
            python = ["--python", "/usr/bin/python3"]
            result = jail.run([*command, f"/tmp/{number}", *python, "one"], timeout=60)
            assert result.exit_code == 0, result.stderr_text
            said.append("requirement already cached" in result.stderr_text)
    assert said == [False, True]


UNCLOSED = """
import visruntime as vr
runtime = vr.Runtime(vr.JailPolicy(caches=["/home/user/.cache"]))
print(runtime.run("1").value)
"""


def test_a_host_that_ends_without_closing_leaves_no_empty_cache(state: Path) -> None:
    """The end of the interpreter must let go of caches as a host would: in silence, and wholly."""
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED], capture_output=True, text=True, check=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert [path.name for path in state.iterdir()] == ["key"]


def test_the_places_of_the_account_are_kept_whatever_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process of this user keeps by default must be covered for this one's guests too."""
    home = tmp_path.resolve() / "home"
    for name in ("uv", "pip", "visruntime/bundles"):
        (home / ".cache" / name).mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    with Jail(JailPolicy(caches=[CACHE])) as jail:
        assert inside(jail, at(CACHE, LEAVE))[0] == [0, 0]
    other = tmp_path / "other"
    for name in ("uv", "pip"):
        (other / name).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(other))
    for name in ("UV_CACHE_DIR", "PIP_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    text = f"""
c = {str(home / ".cache")!r}
new = [c + "/uv/x", c + "/pip/x", c + "/visruntime/bundles/x"]
answer([attempt(os.listdir, c + "/visruntime/caches"), *(attempt(os.mkdir, p) for p in new)])
"""
    for policy in (JailPolicy(write=[home]), JailPolicy(write=[tmp_path.resolve()])):
        with Jail(policy) as jail:
            assert inside(jail, text) == [errno.EACCES, *[errno.EROFS] * 3]
    with Jail(JailPolicy(read=[home])) as jail:
        assert inside(jail, text)[0] == errno.EACCES
    with pytest.raises(vr.PolicyError, match="where visruntime keeps"):
        Jail(JailPolicy(write=[home / ".cache/visruntime/bundles"]))
    assert outside(text) == [0] * 4


def test_a_cache_of_the_account_that_is_missing_is_made_by_no_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest must not make what an installer with other variables would link files from."""
    home = tmp_path.resolve() / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with Jail(JailPolicy(write=[home])) as jail:
        text = (
            f"answer([attempt(os.mkdir, {str(home)!r} + n) for n in ('/.cache/uv', '/.cache/own')])"
        )
        assert inside(jail, text) == [errno.EACCES, 0]
    assert outside(text) == [0, errno.EEXIST]

"""The profile of a policy: it decides as the policy does, and in a form that cannot be undone."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import golden_profiles
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from seatbelt_model import Profile, codes

from visruntime._native import NativeError, decide
from visruntime._native.profiles import macos_path, macos_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.one_uid

EXAMPLES = 1_000 if os.environ.get("VIS_FULL") else 50
full = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

OPERATIONS = {
    "read": ("file-read-data", "file-read-metadata", "file-test-existence", "file-read-xattr"),
    "write": ("file-write-data", "file-write-mode", "file-write-xattr"),
    "exec": ("process-exec", "process-exec-interpreter", "file-map-executable"),
}
KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
# One name is the start of another, one has a character that patterns know.
names = st.sampled_from(["a", "ab", "b", "a.b", "é"])
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/w/" + "/".join(parts))
rule_lists = st.lists(st.tuples(st.sampled_from(KINDS), paths), max_size=9)


def profile_of(rules: Sequence[tuple[str, str]], **more: Any) -> Profile:
    """Return the profile of *rules*, read back."""
    return Profile(*macos_profile(rules=rules, **more))


def ancestors(path: str) -> list[str]:
    """Return every folder above *path* but the root."""
    return [path[:at] for at in range(1, len(path)) if path[at] == "/"]


def asked_about(rules: Sequence[tuple[str, str]], more: Sequence[str]) -> list[str]:
    """Return the paths at which an answer could change, and some others."""
    found = {path for _, path in rules}
    found |= {f"{path}/x" for _, path in rules} | {f"{path}x" for _, path in rules}
    return sorted(found.union(more))


@full
@given(rules=rule_lists, more=st.lists(paths, max_size=4))
@example(rules=[("write", "/w/a"), ("deny", "/w/a/b"), ("write", "/w/a/b/a")], more=[])
@example(rules=[("read", "/w/a"), ("deny_exec", "/w/a"), ("read", "/w/a/b")], more=[])
@example(rules=[("deny", "/w/a"), ("read", "/w/a/b"), ("deny_write", "/w/a/b")], more=[])
@example(rules=[("write", "/w/a"), ("deny_exec", "/w/a/b"), ("deny", "/w/a/b/a")], more=[])
def test_the_profile_decides_as_the_policy(rules: list[tuple[str, str]], more: list[str]) -> None:
    """V41: no path may have a right that the policy denies, nor lack one that it gives.

    By the known order of rules, and by the one that would be if narrow operations did not win.
    """
    profile = profile_of(rules)
    assert codes(profile) == set()
    leads = {folder for _, path in rules for folder in ancestors(path)}
    for path in asked_about(rules, more):
        for right, operations in OPERATIONS.items():
            allowed, _ = decide(rules, right, path)
            for operation in operations:
                # Folders that lead to a grant can be looked at.
                looks = operation in ("file-read-metadata", "file-test-existence")
                if looks and not allowed and path in leads:
                    continue
                for narrow_first in (True, False):
                    answer = profile.decides(operation, narrow_first=narrow_first, path=path)
                    assert answer == allowed, (operation, path, narrow_first)


@full
@given(rules=rule_lists)
@example(rules=[("write", "/w/a"), ("deny", "/w/a/b"), ("read", "/w/a/b/a/b")])
@example(rules=[("read", "/"), ("deny", "/w"), ("read", "/w/a/b"), ("read", "/w/a/a.b/b")])
def test_what_leads_to_an_island_can_be_looked_at(rules: list[tuple[str, str]]) -> None:
    """No folder that leads to a readable one may be hidden, as node asks; nor may it be listed."""
    profile = profile_of(rules)
    for _, path in rules:
        if not decide(rules, "read", path)[0]:
            continue
        for folder in ancestors(path):
            allowed = decide(rules, "read", folder)[0]
            for narrow_first in (True, False):
                answers = [
                    profile.decides(operation, narrow_first=narrow_first, path=folder)
                    for operation in ("file-read-metadata", "file-test-existence")
                ]
                assert answers == [True, True], folder
                for operation in ("file-read-data", "file-read-xattr"):
                    assert (
                        profile.decides(operation, narrow_first=narrow_first, path=folder)
                        is allowed
                    ), folder


@full
@given(rules=rule_lists)
def test_nothing_denied_can_be_moved(rules: list[tuple[str, str]]) -> None:
    """P5: what has less than its folder, and each writable folder above it, must stay in place."""
    profile = profile_of(rules)
    for narrow_first in (True, False):
        for _, path in rules:
            above = path.rpartition("/")[0]
            less = any(
                decide(rules, right, above)[0] and not decide(rules, right, path)[0]
                for right in OPERATIONS
            )
            if not less:
                continue
            for place in (path, *ancestors(path)):
                for operation in ("file-write-unlink", "file-write-create"):
                    assert not profile.decides(operation, narrow_first=narrow_first, path=place)


@full
@given(rules=rule_lists, path=paths)
def test_no_second_names(rules: list[tuple[str, str]], path: str) -> None:
    """P6: no policy may allow links, clones, devices, mounts or set-id bits."""
    profile = profile_of(rules)
    for narrow_first in (True, False):
        for operation in (
            *("file-link", "file-mknod", "file-mount", "file-mount-update", "file-unmount"),
            *("file-chroot", "file-write-setugid", "fs-snapshot-create", "fs-snapshot-mount"),
            *("file-graft", "file-ungraft"),
        ):
            assert not profile.decides(operation, narrow_first=narrow_first, path=path)


@full
@given(rules=rule_lists, path=paths)
@example(rules=[("read", "/"), ("deny", "/w/a")], path="/")
@example(rules=[("write", "/w/a"), ("deny", "/w/a/b/a")], path="/w/a/b")
def test_no_clone_of_what_is_denied(rules: list[tuple[str, str]], path: str) -> None:
    """P11: a copy of a folder must not make readable what is denied in it."""
    profile = profile_of(rules)
    beneath = [at for _, at in rules if at.startswith(f"{path.rstrip('/')}/")]
    whole = all(decide(rules, "read", at)[0] for at in (path, *beneath))
    for narrow_first in (True, False):
        assert profile.decides("file-clone", narrow_first=narrow_first, path=path) is whole


def test_no_device_comes_with_the_root() -> None:
    """The user's terminals and the machine's serial lines must not come with a grant of /."""
    for kind in ("read", "write"):
        profile = profile_of([(kind, "/")])
        assert profile.decides("file-read-data", path="/Users/me/file")
        assert profile.decides("file-read-data", path="/dev/null")
        for device in ("ttys003", "cu.usbserial", "rdisk0"):
            for operation in ("file-read-data", "file-write-data", "file-read-metadata"):
                assert not profile.decides(operation, path=f"/dev/{device}")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "deny" in kind])
@pytest.mark.parametrize(
    "place", ["/usr/lib/x", "/System/Library/Frameworks/A", "/bin", "/usr/bin"]
)
def test_a_deny_in_the_systems_places_holds(kind: str, place: str) -> None:
    """What every program is given must not outlive a deny of it."""
    profile = profile_of([(kind, place)], system=True)
    read = profile.decides("file-read-data", path=place)
    executed = profile.decides("process-exec", path=place)
    assert (read, executed) == {
        "deny": (False, False),
        "deny_read": (False, False),
        "deny_write": (True, True),
        "deny_exec": (True, False),
    }[kind]


@pytest.mark.parametrize("name", golden_profiles.CASES)
def test_kept_profiles(name: str) -> None:
    """A change of a profile must be seen: `python tests/golden_profiles.py` writes them anew."""
    kept = (golden_profiles.FOLDER / f"{name}.sb").read_text(encoding="utf-8")
    assert golden_profiles.golden(name) == kept
    assert codes(Profile(*macos_profile(**golden_profiles.CASES[name]))) == set()


def test_denies_come_last_and_shallow_rules_first() -> None:
    """Whatever is appended later must be seen here: after a deny nothing is allowed."""
    text, parameters = macos_profile(**golden_profiles.CASES["nested"])
    heads = [line.split(" ")[0] for line in text.splitlines() if line.startswith("(")]
    assert heads[:3] == ["(version", "(deny", "(deny"]
    first = heads.index("(deny", 3)
    assert set(heads[3:first]) == {"(allow"}
    assert set(heads[first:]) == {"(deny", "(if"}
    allows = re.findall(
        r'^\(allow file-read\*.*\(subpath \(param "(P\d+)"\)\)\)$', text, re.MULTILINE
    )
    depths = [parameters[name].count("/") for name in allows]
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]


def test_no_path_is_part_of_the_text() -> None:
    """A name must not be able to end a string and go on as a rule."""
    evil = '/w/") (allow file-read* (subpath "/x")) ("y'
    text, parameters = macos_profile(rules=[("read", evil)])
    assert "/w/" not in text
    assert evil in parameters.values()
    profile = Profile(text, parameters)
    assert profile.decides("file-read-data", path=evil)
    assert not profile.decides("file-read-data", path="/x")


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/tmp", "/private/tmp"),
        ("/tmp/x", "/private/tmp/x"),
        ("/tmpx", "/tmpx"),
        ("/var/folders/ab", "/private/var/folders/ab"),
        ("/etc/ssl", "/private/etc/ssl"),
        ("/home/me", "/System/Volumes/Data/home/me"),
        ("/System/Volumes/Data/home/me", "/System/Volumes/Data/home/me"),
        ("/private/tmp", "/private/tmp"),
        ("/", "/"),
        ("/a/..b/.c", "/a/..b/.c"),
        ("/" + "é" * 511, "/" + "é" * 511),
    ],
)
def test_paths_become_those_that_the_kernel_knows(path: str, resolved: str) -> None:
    """P4: a deny on a link of the system must hold where it leads."""
    assert macos_path(path) == resolved
    if path != "/":
        profile = profile_of([("write", "/w"), ("read", path)])
        assert profile.decides("file-read-data", path=resolved)
        assert codes(profile) == set()


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("a", "absolute"),
        ("", "absolute"),
        ("/a/", "slash at its end"),
        ("/a//b", "two slashes"),
        ("/a/./b", "in it"),
        ("/a/..", "in it"),
        ("/..", "in it"),
        ("/a\nb", "control"),
        ("/a\x7f", "control"),
        ("/\udcff", "UTF-8"),
        ("/\udced\udca0\udc80", "UTF-8"),
        ("/" + "a" * 1024, "1024"),
        ("/tmp/" + "a" * 1015, "1024"),
        ("/System/Volumes/Data/Users/me", "/System/Volumes/Data"),
        ("/System/Volumes/Data", "/System/Volumes/Data"),
        ("/dev/null", "devices"),
    ],
)
def test_paths_that_no_filter_finds_are_refused(path: str, word: str) -> None:
    """P4: such a deny would hold nothing, so it must not be written; the rule is named."""
    with pytest.raises(NativeError, match=word) as caught:
        macos_profile(rules=[("read", "/ok"), ("deny", path)])
    assert (caught.value.status, caught.value.index) == ("refused", 1)


def test_longest_path() -> None:
    """1024 bytes pass; the linter agrees with the bound."""
    path = "/" + "a" * 1023
    profile = profile_of([("read", path)])
    assert profile.decides("file-read-data", path=path)


def test_names_that_must_not_be_made_on_volumes_that_ignore_case() -> None:
    """A held name must not be made by another spelling, nor moved into place with its folder."""
    rules = [("write", "/U/Project.1"), ("deny_write", "/U/Project.1/.git/hooks")]
    held = {"/U/Project.1/.git/hooks"}
    profile = profile_of(rules, held=held, ignores_case=True)
    assert codes(profile) == set()
    for folder in (".git", ".GIT", ".Git"):
        for operation in ("file-write-create", "file-write-unlink"):
            assert not profile.decides(operation, path=f"/U/Project.1/{folder}")
        for name in ("hooks", "HOOKS", "hOoks/pre-commit"):
            path = f"/U/Project.1/{folder}/{name}"
            assert not profile.decides("file-write-create", path=path)
            assert not profile.decides("file-write-data", path=path)
    for other in ("xgit", ".gitx", ".git2/hooks", ".git/hooksx", ".git/x/hooks"):
        assert profile.decides("file-write-create", path=f"/U/Project.1/{other}"), other
    # The project's own folder has one spelling, so another one is another folder.
    assert not profile.decides("file-write-create", path="/U/PROJECT.1/.git")
    exact = profile_of(rules, held=held)
    assert exact.decides("file-write-create", path="/U/Project.1/.GIT/hooks")
    assert not exact.decides("file-write-create", path="/U/Project.1/.git")


@pytest.mark.parametrize(
    ("name", "always"), [("/w/é", True), ("/w/x/e\u0301/y", True), ("/w/" + "a" * 300, False)]
)
def test_spellings_that_cannot_be_told_are_refused(name: str, *, always: bool) -> None:
    """What cannot be written as a pattern must not be left out: accents have two spellings anyway."""
    rules = [("write", "/w"), ("deny_write", name)]
    for ignores_case in (True, False) if always else (True,):
        with pytest.raises(NativeError, match="spellings") as caught:
            macos_profile(rules=rules, held={name}, ignores_case=ignores_case)
        assert caught.value.index == 1
    if not always:
        profile = profile_of(rules, held={name})
        assert not profile.decides("file-write-create", path=name)
    # Where nothing can be made there is nothing to spell.
    assert macos_profile(rules=[("read", "/w"), rules[1]], held={name}, ignores_case=True)


def test_network() -> None:
    """Off is nothing; open is addresses and no socket of the host; ports are exact."""
    far = ("tcp", "192.0.2.1", 443)
    near = ("tcp", "127.0.0.1", 5432)
    off = profile_of([])
    opened = profile_of([], network_open=True)
    ports = profile_of([], host_ports=[5432])
    for profile, reaches_far, reaches_near in (
        (off, False, False),
        (opened, True, True),
        (ports, False, True),
    ):
        assert profile.decides("network-outbound", remote=far) is reaches_far
        assert profile.decides("network-outbound", remote=near) is reaches_near
        assert not profile.decides("network-outbound", path="/private/var/run/docker.sock")
        assert not profile.decides("network-outbound", path="/private/tmp/agent.sock")
    assert not ports.decides("network-outbound", remote=("tcp", "127.0.0.1", 5433))
    assert not ports.decides("network-outbound", remote=("udp", "127.0.0.1", 5432))
    for operation in ("network-bind", "network-inbound"):
        assert not ports.decides(operation, local=("tcp", "127.0.0.1", 5432))
        assert opened.decides(operation, local=("tcp", "0.0.0.0", 80))
    assert not opened.decides("mach-lookup", name="com.apple.SecurityServer")
    assert off.decides("system-socket", domain="AF_UNIX")
    assert not off.decides("system-socket", domain="AF_INET")


def test_sockets() -> None:
    """V41: exactly the granted socket, and in the jail's own folder what its guests make."""
    profile = profile_of(
        [("write", "/w"), ("deny", "/s")],
        own="/var/folders/vj",
        sockets=["/var/run/a.sock", "/s/b.sock"],
    )
    for path, allowed in (
        ("/private/var/run/a.sock", True),
        ("/private/var/run/a.sock/x", False),
        ("/s/b.sock", True),
        ("/s/c.sock", False),
        ("/private/var/folders/vj/x.sock", True),
        ("/w/x.sock", False),
    ):
        assert profile.decides("network-outbound", path=path) is allowed, path
        bound = path.startswith("/private/var/folders/vj")
        for operation in ("network-bind", "network-inbound"):
            assert profile.decides(operation, path=path) is bound, path
    with pytest.raises(NativeError, match="socket"):
        macos_profile(rules=[("deny", "/s/b.sock")], sockets=["/s/b.sock"])


def test_services() -> None:
    """VP15: a lookup needs its name; what starts programs outside has none that is taken."""
    profile = profile_of([], services=["com.apple.SecurityServer", "posix-shm:/psm_"])
    assert profile.decides("mach-lookup", name="com.apple.SecurityServer")
    assert not profile.decides("mach-lookup", name="com.apple.securityd.xpc")
    assert profile.decides("ipc-posix-shm-write-create", name="/psm_1a2b")
    assert not profile.decides("ipc-posix-shm-read-data", name="/other")
    assert not profile_of([]).decides("ipc-posix-shm-read-data", name="/psm_1a2b")
    for name, word in (
        ("com.apple.coreservices.launchservicesd", "outside"),
        ("com.apple.coreservices.appleevents", "outside"),
        ('x"))(allow default', "wrong"),
        ("", "wrong"),
        ("a" * 256, "wrong"),
        ("posix-shm:/a", "three"),
        ("posix-shm:psm_x", "three"),
    ):
        with pytest.raises(NativeError, match=word):
            macos_profile(rules=[], services=[name])


def test_programs() -> None:
    """What only some programs need must not be given to all."""
    bare = profile_of([])
    python = profile_of([], programs=["python"])
    for name, allowed in (("/__KMP_REGISTERED_LIB_42", True), ("/__KMP_REGISTERED_LIB_4x", False)):
        assert python.decides("ipc-posix-shm-write-create", name=name) is allowed
        assert not bare.decides("ipc-posix-shm-write-create", name=name)
    configuration = "com.apple.SystemConfiguration.configd"
    assert python.decides("mach-lookup", name=configuration)
    assert not bare.decides("mach-lookup", name=configuration)
    for link in ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/private/etc/resolv.conf"):
        assert bare.decides("file-read-metadata", path=link)
        assert not bare.decides("file-read-data", path=link)
    system = profile_of([], system=True)
    assert system.decides("file-read-data", path="/private/var/select/sh")
    node = profile_of([], programs=["node"])
    for name, allowed in (("/mp-abc", True), ("/other", False)):
        assert python.decides("ipc-posix-sem", name=name) is allowed
        assert not bare.decides("ipc-posix-sem", name=name)
    assert node.decides("mach-lookup", name="com.apple.FSEvents")
    assert not python.decides("mach-lookup", name="com.apple.FSEvents")
    # The user's own terminals are no jail's, whatever their number.
    assert not python.decides("file-read-data", path="/dev/ttys003")
    marked: dict[str, Any] = {"path": "/dev/ttys003", "extension": "com.apple.sandbox.pty"}
    assert python.decides("file-read-data", **marked)
    assert not bare.decides("pseudo-tty")
    assert python.decides("pseudo-tty")
    given = profile_of([], terminal="/dev/ttys007")
    assert given.decides("file-ioctl", path="/dev/ttys007")
    assert not given.decides("file-ioctl", path="/dev/ttys008")
    git = profile_of([], programs=["git"])
    tool = "/Library/Developer/CommandLineTools/usr/bin/git"
    assert git.decides("process-exec", path=tool)
    assert not bare.decides("process-exec", path=tool)


@pytest.mark.parametrize("terminal", ["/dev/disk0", "/tmp/x", "/dev/../x", "/dev/tty\n"])
def test_a_terminal_is_a_terminal(terminal: str) -> None:
    """No other device may come in by that word."""
    with pytest.raises(NativeError, match="terminal"):
        macos_profile(rules=[], terminal=terminal)


def test_no_data_of_servers() -> None:
    """The system's places must not bring what Homebrew's servers keep beside their programs."""
    profile = profile_of([], system=True)
    for place in ("/opt/homebrew", "/usr/local"):
        for name in ("bin/node", "Cellar/git/2/bin/git", "lib/libz.dylib", "share/zsh"):
            assert profile.decides("process-exec", path=f"{place}/{name}"), name
        for name in ("var/postgres/base/1", "etc/my.cnf", "etc/redis.conf", "Caskroom", ""):
            assert not profile.decides("file-read-data", path=f"{place}/{name}".rstrip("/")), name


def test_other_processes() -> None:
    """Signals and questions about processes must stay within the jail."""
    profile = profile_of([("read", "/")], system=True, network_open=True)
    for operation in ("signal", "process-info-pidinfo"):
        assert profile.decides(operation, target="same-sandbox")
        assert not profile.decides(operation, target="others")
    for operation in ("mach-priv-task-port", "mach-register", "job-creation", "appleevent-send"):
        assert not profile.decides(operation, name="x")
    for name in ("kern.proc.all", "kern.procargs2", "kern.bootargs", "hw.serialnumber"):
        assert not profile.decides("sysctl-read", name=name)
    assert profile.decides("sysctl-read", name="hw.ncpu")


def test_bounds() -> None:
    """Ten thousand rules are taken; more names than a policy can have are not."""
    many = [("read", f"/w/{number}") for number in range(10_000)]
    text, parameters = macos_profile(rules=many)
    assert len(text) < 4 << 20
    assert "/w/9999" in parameters.values()
    with pytest.raises(NativeError, match="more"):
        macos_profile(rules=[], host_ports=[1] * 1001)
    with pytest.raises(NativeError, match="port 0"):
        macos_profile(rules=[], host_ports=[0])
    long = [("read", "/" + "a" * 700 + f"/{number}") for number in range(7_000)]
    with pytest.raises(NativeError, match="4 MiB"):
        macos_profile(rules=long)

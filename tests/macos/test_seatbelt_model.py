"""The model of Seatbelt's decisions, and the linter, against what was measured on macOS."""

from __future__ import annotations

from typing import Any

import pytest
from seatbelt_model import Profile, SbplError, codes

pytestmark = pytest.mark.one_uid

BASE = '(version 1)(deny default)(allow file-read* (literal "/"))'


def decides(rules: str, operation: str, **facts: Any) -> bool:
    """Return what a profile of *rules* answers."""
    return Profile(BASE + rules).decides(operation, **facts)


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ('(allow file-read* (subpath "/a"))(deny file-read* (subpath "/a"))', "/a", False),
        ('(deny file-read* (subpath "/a"))(allow file-read* (subpath "/a"))', "/a", True),
        ('(deny file-read* (subpath "/a"))(allow file-read* (subpath "/a/b"))', "/a/b/c", True),
        ('(allow file-read* (subpath "/a"))(deny file-read* (literal "/a/b"))', "/a/b/c", True),
        ('(allow file-read* (subpath "/a"))', "/ab", False),
        ('(allow file-read* (regex "^/a/[0-9]+$"))', "/a/12", True),
        ('(allow file-read* (regex #"^/a\\.b$"))', "/a.b", True),
        ('(allow file-read* (prefix "/a"))', "/ab", True),
        ('(allow file-read* (require-all (subpath "/a") (require-not (subpath "/a/b"))))', "/a/c",
         True),
        ('(allow file-read* (require-all (subpath "/a") (require-not (subpath "/a/b"))))', "/a/b/c",
         False),
    ],
)  # fmt: skip
def test_the_last_rule_that_fits_decides(rules: str, path: str, *, allowed: bool) -> None:
    """P1: neither the first rule nor the longest path may win."""
    assert decides(rules, "file-read-data", path=path) is allowed


def test_a_rule_without_filter_overrides_none_with_one() -> None:
    """P2: a later unfiltered allow must not lift a filtered deny."""
    rules = '(deny network-outbound (literal "/s"))(allow network-outbound)'
    assert not decides(rules, "network-outbound", path="/s")
    assert decides(rules, "network-outbound", path="/other")


def test_what_only_its_name_denies() -> None:
    """P10: neither the default nor a wide operation closes what the compiler leaves open."""
    for rules in ("", "(deny file*)"):
        assert decides(rules, "file-link", path="/a")
        assert not decides(rules, "file-mknod", path="/a")
    assert not decides("(deny file-link)", "file-link", path="/a")
    assert not decides("(if (defined? 'file-graft) (deny file-graft))", "file-graft", path="/a")
    assert decides("", "process-info-pidinfo", target="others")
    assert not decides("(deny process-info*)", "process-info-pidinfo", target="others")


def test_a_narrow_operation_beats_a_wide_one() -> None:
    """P3: a deny of unlinking survives a later allow of all writing; the other reading differs."""
    rules = '(deny file-write-unlink (subpath "/a"))(allow file-write* (subpath "/a"))'
    profile = Profile(BASE + rules)
    assert not profile.decides("file-write-unlink", path="/a/x")
    assert profile.decides("file-write-data", path="/a/x")
    assert profile.decides("file-write-unlink", narrow_first=False, path="/a/x")


@pytest.mark.parametrize(
    ("rule", "facts", "allowed"),
    [
        ('(remote tcp "localhost:80")', {"remote": ("tcp", "127.0.0.1", 80)}, True),
        ('(remote tcp "localhost:80")', {"remote": ("tcp", "::1", 80)}, True),
        ('(remote tcp "localhost:80")', {"remote": ("udp", "127.0.0.1", 80)}, False),
        ('(remote tcp "localhost:80")', {"remote": ("tcp", "127.0.0.1", 81)}, False),
        ('(remote tcp "localhost:80")', {"remote": ("tcp", "::ffff:127.0.0.1", 80)}, False),
        ('(remote ip "*:*")', {"remote": ("udp", "192.0.2.1", 53)}, True),
        ('(remote ip "*:*")', {"path": "/private/var/run/docker.sock"}, False),
        ('(local ip "localhost:*")', {"local": ("tcp", "0.0.0.0", 7)}, True),
    ],
)
def test_addresses(rule: str, facts: dict[str, Any], *, allowed: bool) -> None:
    """P7, P8: an address is no socket file, and a local "localhost" is everything unbound."""
    assert decides(f"(allow network-outbound {rule})", "network-outbound", **facts) is allowed


@pytest.mark.parametrize(
    ("rule", "operation", "facts"),
    [
        ('(mach-lookup (global-name "a.b"))', "mach-lookup", {"name": "a.b"}),
        ('(sysctl-read (sysctl-name-prefix "hw."))', "sysctl-read", {"name": "hw.ncpu"}),
        ("(signal (target same-sandbox))", "signal", {"target": "same-sandbox"}),
        ("(system-socket (socket-domain AF_UNIX))", "system-socket", {"domain": "AF_UNIX"}),
        ('(ipc-posix-sem (ipc-posix-name "/x"))', "ipc-posix-sem", {"name": "/x"}),
    ],
)
def test_names(rule: str, operation: str, facts: dict[str, Any]) -> None:
    """A name fits itself and nothing else."""
    rules = f"(allow {rule[1:]}"
    assert decides(rules, operation, **facts)
    assert not decides(rules, operation, **dict.fromkeys(facts, "another"))


@pytest.mark.parametrize(
    "text",
    [
        "(version 1)(deny default",
        "(version 1))",
        "(deny default)",
        "(version 2)(deny default)",
        "word",
        "(version 1)(permit default)",
        "(version 1)(deny)",
        "(version 1)(deny file-erase)",
        '(version 1)(deny file-read* (inside "/a"))',
        '(version 1)(deny file-read* (subpath "a"))',
        '(version 1)(deny file-read* (subpath (param "X")))',
        '(version 1)(deny file-read* (subpath "/a)',
        '(version 1)(deny file-read* (subpath "/a\\',
        '(version 1)(deny file-read* (subpath "/a\nb"))',
        '(version 1)(deny file-read* (subpath "/a\0b"))',
        '(version 1)(deny file-read* (regex "^/["))',
        f'(version 1)(deny file-read* (subpath "/{"a" * 1024}"))',
        '(version 1)(allow network-outbound (remote ip "example.test:80"))',
        '(version 1)(allow network-outbound (remote ip "*:http"))',
        '(version 1)(allow network-outbound (remote ip "*:70000"))',
        '(version 1)(allow network-outbound (remote sctp "*:80"))',
        "(version 1)(allow file-read* (require-not x))",
        "(version 1)(allow mach-lookup (global-name))",
        "(version 1)(if (defined? 'file-graft) (allow file-graft))",
        "(version 1)(if (defined? 'file-graft) (deny file-ungraft))",
    ],
)
def test_what_macos_would_not_compile(text: str) -> None:
    """A text that is no profile must not be read as one."""
    with pytest.raises(SbplError):
        Profile(text)


def test_parameters_are_strings_too() -> None:
    """The bounds of strings hold for parameters, which no text shows."""
    text = '(version 1)(deny default)(allow file-read* (subpath (param "P")))'
    assert Profile(text, {"P": "/"}).findings == []
    for value in ("/" + "a" * 1024, "/a\nb", "/a\0b"):
        with pytest.raises(SbplError):
            Profile(text, {"P": value})


@pytest.mark.parametrize(
    ("code", "rules"),
    [
        ("dead-path", '(allow file-read* (subpath "/tmp/x"))'),
        ("dead-path", '(deny file-read* (literal "/var"))'),
        ("dead-path", '(deny file-read* (subpath "/a//b"))'),
        ("dead-path", '(deny file-read* (subpath "/a/"))'),
        ("dead-path", '(deny file-read* (subpath "/a/../b"))'),
        ("dead-path", '(allow file-read-data (literal "/etc"))'),
        ("allow-after-deny", '(deny file-read* (subpath "/a"))(allow file-read* (subpath "/p"))'),
        ("too-wide", '(allow file* (subpath "/a"))'),
        ("too-wide", '(allow file-link (subpath "/a"))'),
        ("unfiltered", "(allow file-clone)"),
        ("too-wide", "(allow default)"),
        ("unfiltered", "(allow file-read*)"),
        ("unfiltered", "(allow network-outbound)"),
        ("unfiltered", "(allow mach-lookup)"),
        ("unfiltered", "(allow process-exec)"),
        ("wide-address", '(allow network-bind (local ip "localhost:*"))'),
        ("loose-pattern", '(deny file-read* (regex "secret"))'),
        ("movable",
         '(allow file-read* file-write* (subpath "/w"))(deny file-read* file-write* (subpath "/w/x"))'),
        ("movable",
         '(allow file-read* file-write* (subpath "/w"))(deny file-read* (subpath "/w/x"))'),
    ],
)  # fmt: skip
def test_the_linter_finds(code: str, rules: str) -> None:
    """Each weakness that was seen in a published profile must be found by its word."""
    assert codes(Profile(BASE)) == set()
    assert code in codes(Profile(BASE + rules))


def test_the_linter_finds_what_is_left_out() -> None:
    """No default, a root that cannot be read, a parameter that nothing uses."""
    assert codes(Profile("(version 1)")) == {"no-default-deny", "unreadable-root"}
    assert codes(Profile(BASE, {"P1": "/x"})) == {"unused-parameter"}


def test_links_of_the_system_can_be_looked_at() -> None:
    """/tmp as a link is alive for metadata, and for nothing else."""
    rule = '(allow file-read-metadata file-test-existence (literal "/tmp"))'
    assert codes(Profile(BASE + rule)) == set()

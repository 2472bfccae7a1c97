"""The policy value: what it accepts, refuses, keeps, shows, and what it means."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import visruntime as vr
from visruntime.policy import MAX_RULES, MINIMAL_READ, PRIVATE_WRITE, PROTECTED_NAMES

pytestmark = pytest.mark.one_uid

EXAMPLES = 2_000 if os.environ.get("VIS_FULL") else 200


def reaches_host(policy: vr.JailPolicy, operation: str, path: Path) -> bool:
    """Tell whether the act is allowed on the host's file, not in a jail's own place."""
    decision = policy.why(operation, path)  # type: ignore[arg-type]
    return decision.allowed and decision.rule is not None and decision.rule.origin != "private"


class PathOfBytes:
    """An os.PathLike whose path is bytes."""

    def __fspath__(self) -> bytes:
        return b"/x"


REFUSED = [
    ({"write": "/x"}, "write"),
    ({"write": {"/x": 1}}, "write"),
    ({"write": 5}, "write"),
    ({"write": ["/a", "b"]}, "write[1]"),
    ({"write": [b"/x"]}, "write[0]"),
    ({"write": [PathOfBytes()]}, "write[0]"),
    ({"write": [None]}, "write[0]"),
    ({"write": [""]}, "write[0]"),
    ({"write": ["/a", "/b", "/a/../b"]}, "write[2]"),
    ({"read": ["/a\0b"]}, "read[0]"),
    ({"read": ["/" + "a" * 4096]}, "read[0]"),
    ({"read": ["/\ud800"]}, "read[0]"),
    ({"read": ["/"]}, "read[0]"),
    ({"write": ["//"]}, "write[0]"),
    ({"read": ["/proc"]}, "read[0]"),
    ({"write": ["/dev/shm"]}, "write[0]"),
    ({"write": ["/ok", "/./sys//kernel"]}, "write[1]"),
    ({"deny": ["x"]}, "deny[0]"),
    ({"deny_exec": ["~/x"]}, "deny_exec[0]"),
    ({"sockets": ["/" + "s" * 107]}, "sockets[0]"),
    ({"system": "all"}, "system"),
    ({"egress": "off"}, "egress"),
    ({"limits": {"memory": 1}}, "limits"),
    ({"inbound": [8000]}, "inbound"),
    ({"inbound": {0: 1}}, "inbound"),
    ({"inbound": {True: 1}}, "inbound"),
    ({"inbound": {80: 65536}}, "inbound[80]"),
    ({"inbound": {80: 0}, "egress": vr.Egress.OPEN}, "inbound"),
    ({"host_ports": [80, "81"]}, "host_ports[1]"),
    ({"services": ["a b"]}, "services[0]"),
    ({"env": ["A=b"]}, "env"),
    ({"env": {"A-B": "x"}}, "env"),
    ({"env": {"A": 1}}, "env['A']"),
    ({"env": {"A": "x\0y"}}, "env['A']"),
    ({"env": {"A": "x" * 131072}}, "env['A']"),
    ({"env": {"A": vr.Secret("x\0y")}}, "env['A']"),
    ({"env": {f"V{n}": "x" * 100_000 for n in range(11)}}, "env"),
    ({"env": {f"V{n}": "" for n in range(1001)}}, "env"),
    ({"inherit_env": "LANG"}, "inherit_env"),
    ({"inherit_env": ["LANG", "1A"]}, "inherit_env[1]"),
    ({"read": [f"/{n}" for n in range(MAX_RULES)], "deny": ["/x"]}, "rules"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED, ids=[f for _, f in REFUSED])
def test_wrong_values_are_refused_by_name(fields: dict[str, Any], field: str) -> None:
    """A wrong value must not become a policy; the error names the field and says why."""
    with pytest.raises(vr.PolicyError) as caught:
        vr.JailPolicy(**fields)
    assert caught.value.field == field
    assert field in str(caught.value) or field == "rules"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_X", "DYLD_LIB", "PERL5LIB", "PERLIO", "BASH_ENV", "ENV"]
)
def test_loader_variables_are_refused_from_every_source(name: str) -> None:
    """What makes programs load foreign code must not cross, not even as a secret."""
    for fields in (
        {"env": {name: "x"}},
        {"env": {name: vr.Secret("x")}},
        {"inherit_env": [name]},
    ):
        with pytest.raises(vr.PolicyError, match=name):
            vr.JailPolicy(**fields)


@pytest.mark.parametrize(
    "name",
    [
        *("API_KEY", "TOKEN", "db_password", "A_PASSWD", "X_CREDENTIALS", "APIKEY", "PGPASSWORD"),
        *("GITHUBTOKEN", "MYSQL_PWD", "SMTP_PASS", "GITHUB_PAT", "SECRET_KEY_BASE", "TOKEN_2"),
        *("GOOGLE_CREDENTIALS_JSON", "API_KEYS", "NPM_CONFIG__AUTH"),
    ],
)
def test_names_of_secrets_need_a_secret(name: str) -> None:
    """A secret must be neither inherited nor written as plain text."""
    with pytest.raises(vr.PolicyError, match=name):
        vr.JailPolicy(inherit_env=[name])
    with pytest.raises(vr.PolicyError) as caught:
        vr.JailPolicy(env={name: "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert caught.value.value is None
    assert vr.JailPolicy(env={name: vr.Secret("hunter2")}).env[name] == vr.Secret("hunter2")


def test_names_that_only_look_a_little_like_secrets_pass() -> None:
    """MONKEY is no KEY, and PWD is where a shell is."""
    names = ("MONKEY", "KEY_FILE", "PWD", "OLDPWD", "PASS", "TOKENIZERS_PARALLELISM", "COMPASS")
    policy = vr.JailPolicy(env=dict.fromkeys(names, "x"), inherit_env=["KEYBOARD", "AUTHOR"])
    assert set(policy.env) == set(names)


@pytest.mark.parametrize("name", ["PYTHONPATH", "NODE_OPTIONS", "GIT_DIR", "PS4", "RUBYOPT"])
def test_steering_variables_are_given_not_inherited(name: str) -> None:
    """A variable that steers programs must be the caller's explicit word."""
    with pytest.raises(vr.PolicyError, match=name):
        vr.JailPolicy(inherit_env=[name])
    assert vr.JailPolicy(env={name: "x"}).env[name] == "x"


def test_paths_are_normalised_lexically() -> None:
    """Doubled slashes, dots and a last slash change nothing; links stay as they are."""
    policy = vr.JailPolicy(read=["//a///b/./c/", Path("/d")], deny=("/",))
    assert policy.read == ("/a/b/c", "/d")
    assert policy.deny == ("/",)


def test_a_policy_is_frozen_in_every_part() -> None:
    """No part of a policy may change after its check."""
    source = {"A": "b"}
    policy = vr.JailPolicy(env=source, inbound={1: 2})
    source["B"] = "c"
    assert dict(policy.env) == {"A": "b"}
    with pytest.raises(TypeError):
        policy.env["A"] = "c"  # type: ignore[index]
    for thing, name in (
        (policy, "write"),
        (policy.limits, "memory"),
        (policy.egress, "mode"),
        (vr.Secret("x"), "_value"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, name, None)
        with pytest.raises(AttributeError):
            delattr(thing, name)
        with pytest.raises(AttributeError):
            thing.anything = 1


def test_policies_compare_and_hash_by_value() -> None:
    """Equal policies are one key of a dict; a different one is another."""
    one = vr.JailPolicy(read=["/a"], env={"X_TOKEN": vr.Secret("s")}, inbound={1: 0})
    two = vr.JailPolicy(read=["/a/"], env={"X_TOKEN": vr.Secret("s")}, inbound={1: 0})
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two, one.replace(read=[])}) == 2
    assert one != two.replace(env={"X_TOKEN": vr.Secret("t")})
    assert one != "policy"


def test_a_policy_without_secrets_can_be_pickled_and_copied() -> None:
    """A policy reaches another process unchanged, and is checked there again."""
    policy = vr.JailPolicy(
        write=["/w"],
        egress=vr.Egress.proxy(allow=["a.example.org:443"]),
        env={"A": "b"},
        inbound={8000: 0},
        limits=vr.Limits(cpus=1.5),
    )
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert copy.deepcopy(policy) is policy
    rule = policy.rules()[0]
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_a_secret_shows_nowhere() -> None:
    """The text of a secret must be in no repr, dict, digest input, copy or pickle."""
    secret = vr.Secret("hunter2")
    policy = vr.JailPolicy(env={"A": secret})
    shown = f"{secret} {secret!r} {policy!r} {policy} {policy.to_dict()} {policy.why('read', '/x')}"
    assert "hunter2" not in shown
    assert policy.digest == vr.JailPolicy(env={"A": vr.Secret("other")}).digest
    assert policy.digest != vr.JailPolicy(env={"A": "hunter2"}).digest
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        pickle.dumps(policy)
    assert copy.deepcopy(secret) is secret
    assert secret == vr.Secret("hunter2")
    assert secret != vr.Secret("hunter3")
    assert secret != "hunter2"
    assert secret.reveal() == "hunter2"


def test_the_repr_is_short() -> None:
    """A large policy must not fill a log."""
    policy = vr.JailPolicy(read=[f"/{n}" for n in range(1000)], system="none")
    assert repr(policy) == "JailPolicy(read=<1000 entries>, system='none')"
    assert repr(vr.JailPolicy()) == "JailPolicy()"


def test_the_dict_is_json_and_comes_back() -> None:
    """What to_dict writes, from_dict reads to an equal policy."""
    policy = vr.JailPolicy(
        read=["/r"],
        write=["/w"],
        deny=["/w/d"],
        egress=vr.Egress.proxy(allow=["*.example.org"], deny=["x.example.org"]),
        inbound={8000: 0},
        env={"A": "b"},
        inherit_env=["LANG"],
        limits=vr.Limits(memory=10, open_files=None),
    )
    assert vr.JailPolicy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    assert vr.JailPolicy.from_dict({}) == vr.JailPolicy()
    assert vr.JailPolicy.from_dict({"egress": "open"}).egress == vr.Egress.OPEN


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"reads": []}, "reads"),
        ({5: []}, "5"),
        (["read"], "policy"),
        ("read", "policy"),
        (None, "policy"),
        ({"limits": {"memry": 1}}, "limits.memry"),
        ({"limits": 5}, "limits"),
        ({"egress": {"mode": "off", "port": 1}}, "egress.port"),
        ({"egress": "closed"}, "egress.mode"),
        ({"egress": 3}, "egress"),
        ({"env": {"A": {"secret": True}}}, "env['A']"),
        ({"env": []}, "env"),
        ({"read": ["x"]}, "read[0]"),
    ],
)
def test_wrong_data_is_refused_by_name(data: Any, field: str) -> None:
    """An unknown key must not be dropped, nor a secret's marker become a value."""
    with pytest.raises(vr.PolicyError) as caught:
        vr.JailPolicy.from_dict(data)
    assert caught.value.field == field


def test_replace_refuses_an_unknown_field() -> None:
    """A misspelt change must not be lost."""
    with pytest.raises(vr.PolicyError, match="wirte"):
        vr.JailPolicy().replace(wirte=["/x"])
    with pytest.raises(vr.PolicyError, match="wirte"):
        vr.JailPolicy.workspace("/", wirte=["/x"])


def test_the_digest_is_stable_and_ignores_order() -> None:
    """The same policy has the same digest in every process; any other has another."""
    policy = vr.JailPolicy(read=["/a", "/b"], env={"A": "1", "B": "2"})
    assert policy.digest == vr.JailPolicy(read=["/b", "/a"], env={"B": "2", "A": "1"}).digest
    code = (
        "import visruntime as vr\n"
        "print(vr.JailPolicy(read=['/a', '/b'], env={'A': '1', 'B': '2'}).digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    assert done.stdout.strip() == policy.digest
    others = [
        policy.replace(read=["/a"]),
        policy.replace(read=(), write=policy.read),
        policy.replace(system="none"),
        policy.replace(egress=vr.Egress.OPEN),
        policy.replace(limits=vr.Limits(processes=1)),
        policy.replace(env={}),
    ]
    assert len({policy.digest, *(other.digest for other in others)}) == len(others) + 1


@pytest.mark.parametrize(
    "limits",
    [
        {"memory": 0},
        {"memory": -1},
        {"memory": True},
        {"memory": 1.5},
        {"memory": "1G"},
        {"memory": 2**60 + 1},
        {"memory_by": "hope"},
        {"processes": 2**22 + 1},
        {"cpus": float("nan")},
        {"cpus": float("inf")},
        {"cpus": 0},
        {"wall_seconds": 2**31 + 1},
        {"cpu_seconds": 1.5},
        {"open_files": "all"},
        {"open_files": 0},
        {"output": False},
        {"scratch": []},
    ],
)
def test_wrong_limits_are_refused_by_name(limits: dict[str, Any]) -> None:
    """A limit that is no positive number must not become 'no limit'."""
    (name,) = limits
    with pytest.raises(vr.PolicyError) as caught:
        vr.Limits(**limits)
    assert caught.value.field == f"limits.{name}"


def test_default_limits_are_finite_where_they_can_be() -> None:
    """A policy that says nothing about limits still bounds processes, room and output."""
    limits = vr.Limits()
    assert (limits.processes, limits.scratch, limits.output) == (1024, 1024**3, 64 * 1024**2)
    assert limits.open_files == "auto"


@pytest.mark.parametrize(
    "host", ["", "a b", "*", "*.", "a:0", "a:65536", "a:x", "a:", "http://a", "ä.example", 5, "a/b"]
)
def test_wrong_hosts_are_refused(host: object) -> None:
    """A host that is not understood must not become a pattern."""
    with pytest.raises(vr.PolicyError, match=r"egress\.allow\[0\]"):
        vr.Egress.proxy(allow=[host])  # type: ignore[list-item]


def test_hosts_belong_to_a_proxy() -> None:
    """Hosts with a mode that ignores them must not look as if they counted."""
    with pytest.raises(vr.PolicyError, match="proxy"):
        vr.Egress(mode="off", allow=["example.org"])


def test_rules_name_their_origin() -> None:
    """Each field, the system roots and the private places give rules with their origin."""
    rules = vr.JailPolicy(read=["/r"], deny_write=["/x"], system="none").rules()
    assert [(r.kind, r.path) for r in rules if r.origin != "private"] == [
        ("read", "/r"),
        ("deny_write", "/x"),
    ]
    assert [r.origin for r in rules[:2]] == ["read[0]", "deny_write[0]"]
    made = {r.path for r in vr.JailPolicy().rules() if r.origin == "private"} - set(PRIVATE_WRITE)
    assert made == {"/proc", "/dev", "/etc/passwd", "/etc/group", "/etc/hosts"}
    private = {(r.kind, r.path) for r in rules if r.origin == "private"}
    assert private == {("write", p) for p in PRIVATE_WRITE} | {("read", "/proc"), ("read", "/dev")}
    host = vr.JailPolicy(system="host").rules()
    assert [r.path for r in host if r.origin == "system"] == ["/"]


@pytest.mark.parametrize("field", ["read", "write", "deny", "deny_write", "caches"])
def test_links_that_go_round_are_refused_by_the_rule(tmp_path: Path, field: str) -> None:
    """A path that leads nowhere for ever must be refused by the rule that holds it, with a fix."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    fields: dict[str, Any] = {"write": [tmp_path], field: [tmp_path / "one"]}
    with pytest.raises(vr.PolicyError, match=r"too many links on the way; name what") as caught:
        vr.Jail(vr.JailPolicy(**fields))
    assert caught.value.field == f"{field}[0]"
    assert str(caught.value).startswith(f"{field}[0]: {tmp_path}/one: ")


def test_the_minimal_system_holds_no_name_and_no_secret_of_the_host() -> None:
    """The system roots must not let a guest read accounts, keys or hosts."""
    policy = vr.JailPolicy()
    assert policy.why("read", "/usr/lib")
    for path in ("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/machine-id", "/root", "/etc"):
        assert not reaches_host(policy, "read", Path(path)), path
    existing = {r.path for r in policy.rules() if r.origin == "system"}
    assert all(os.path.lexists(path) for path in existing)
    assert "/usr" in existing
    assert "/etc/ssl" in MINIMAL_READ


def test_the_minimal_system_keeps_private_keys_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of private keys below a system root must stay closed unless it is granted itself."""
    keys = "/etc/ssl/private"
    real = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda path: path == keys or real(path))
    denied = vr.JailPolicy().why("read", f"{keys}/key.pem")
    assert not denied
    assert "private keys" in denied.reason
    assert vr.JailPolicy().why("read", "/etc/ssl/certs")
    for path in (keys, f"{keys}/key.pem"):
        assert f"read=['{path}']" in vr.JailPolicy().why("read", path).reason
        assert vr.JailPolicy(read=[path]).why("read", f"{keys}/key.pem")
    assert not vr.JailPolicy(read=["/etc/ssl"]).why("read", f"{keys}/key.pem")


def test_a_granted_place_is_not_private() -> None:
    """Granting /tmp itself means the host's /tmp, read-only if so granted."""
    policy = vr.JailPolicy(read=["/tmp"])
    assert not [r for r in policy.rules() if r.path == "/tmp" and r.origin == "private"]
    assert not policy.why("write", "/tmp/x")
    assert policy.why("write", "/var/tmp/x")


@pytest.mark.parametrize(
    ("operation", "target", "allowed", "words"),
    [
        ("read", "/w/x", True, ["write[0]"]),
        ("write", "/w/x", True, ["write[0]"]),
        ("exec", "/w/x", True, []),
        ("write", "/r/x", False, ["read[0]", "write=['/r/x']", "more specific"]),
        ("read", "/w/no/x", False, ["deny[0]", "read=['/w/no/x']"]),
        ("read", "/w/no", False, ["deny[0]", "remove that rule"]),
        ("exec", "/w/bin/x", False, ["deny_exec[0]", "only removing"]),
        ("read", "/else", False, ["no rule", "read=['/else']"]),
        ("write", "/else", False, ["no rule", "write=['/else']"]),
        ("write", "/tmp/x", True, ["jail's own"]),
        ("read", "/sys/kernel", False, ["can be granted"]),
        ("read", "/proc/self/status", True, ["jail's own"]),
    ],
)
def test_why_says_the_rule_and_the_grant(
    operation: str, target: str, *, allowed: bool, words: list[str]
) -> None:
    """The answer must be right, name the deciding rule, and give a grant to paste."""
    policy = vr.JailPolicy(
        read=["/r"], write=["/w"], deny=["/w/no"], deny_exec=["/w/bin"], system="none"
    )
    decision = policy.why(operation, target)  # type: ignore[arg-type]
    assert decision.allowed is allowed
    assert bool(decision) is allowed
    for word in words:
        assert word in decision.reason
    assert (decision.rule is None) == ("no rule" in words or target.startswith("/sys"))


def test_why_follows_a_link_that_is_a_grant_in_a_private_place(workspace: Path) -> None:
    """A granted link must be answered for what it leads to, also inside the jail's own /tmp."""
    (workspace / "real").mkdir()
    (workspace / "link").symlink_to("real")
    policy = vr.JailPolicy(read=[workspace / "link"])
    for name in ("link", "real"):
        assert reaches_host(policy, "read", workspace / name / "x")
        assert not policy.why("write", workspace / name / "x")


def test_messages_carry_no_control_sequence(workspace: Path) -> None:
    """A file's name, which a guest may have chosen, must not steer the reader's terminal."""
    name = "a\n\x1b[31m\u202eb\udcff"
    (workspace / name).symlink_to("/srv/\x1b[0m")
    policy = vr.JailPolicy(write=[workspace], deny_write=[workspace / f"{name}2"])
    said = [
        policy.why("read", workspace / name).reason,
        policy.why("write", f"/srv/{name}").reason,
        policy.why("connect", f"/srv/{name}").reason,
        *(sentence for _, sentence in policy.unsupported()),
    ]
    assert len(said) == 4
    for sentence in said:
        assert sentence.isprintable(), ascii(sentence)


def test_why_says_when_a_private_place_hides_a_host_file(workspace: Path) -> None:
    """An answer about the jail's own /tmp must not pass for one about the host's file."""
    (workspace / "x").touch()
    policy = vr.JailPolicy(system="none")
    for place, present in ((Path("/tmp/absent name"), False), (Path("/tmp"), True)):
        reason = policy.why("read", place).reason
        assert ("not visible" in reason) is present
    if workspace.is_relative_to("/tmp"):
        assert f"read=['{workspace}/x']" in policy.why("read", workspace / "x").reason


def test_the_pasted_grant_works() -> None:
    """Following the advice of a denial must allow the act."""
    policy = vr.JailPolicy(read=["/r"], deny=["/r/no"], system="none")
    for operation in ("read", "write", "exec"):
        for path in ("/r/no/x", "/else/y", "/r/z"):
            decision = policy.why(operation, path)
            if not decision:
                field = "write" if operation == "write" else "read"
                assert f"{field}=['{path}']" in decision.reason
                wider = policy.replace(**{field: (*getattr(policy, field), path)})
                assert wider.why(operation, path), (operation, path)


def test_why_follows_links_of_the_target_and_of_the_rules(workspace: Path, outside: Path) -> None:
    """A link inside a grant must not answer for what it leads to, nor hide a deny."""
    (workspace / "link").symlink_to(outside)
    (workspace / "real").mkdir()
    (workspace / "alias").symlink_to(workspace / "real")
    policy = vr.JailPolicy(write=[workspace], deny=[workspace / "alias"])
    escaped = policy.why("read", workspace / "link" / "x")
    assert not reaches_host(policy, "read", workspace / "link" / "x")
    assert str(outside) in escaped.reason
    assert not policy.why("read", workspace / "real" / "x")
    assert not policy.why("write", workspace / "alias")
    assert policy.why("read", workspace / "other")


@pytest.mark.parametrize(
    ("egress", "target", "allowed"),
    [
        (vr.Egress.OFF, "example.org:443", False),
        (vr.Egress.OPEN, "example.org:443", True),
        (vr.Egress.proxy(allow=["example.org"]), "example.org:443", True),
        (vr.Egress.proxy(allow=["example.org:443"]), "EXAMPLE.org:443", True),
        (vr.Egress.proxy(allow=["example.org:443"]), "example.org:80", False),
        (vr.Egress.proxy(allow=["*.example.org"]), "a.example.org:1", True),
        (vr.Egress.proxy(allow=["*.example.org"]), "example.org:1", False),
        (vr.Egress.proxy(allow=["*.example.org"]), "badexample.org:1", False),
        (vr.Egress.proxy(allow=["a.test"], deny=["a.test:22"]), "a.test:22", False),
        (vr.Egress.proxy(allow=["a.test"], deny=["a.test:22"]), "a.test:23", True),
        (vr.Egress.OFF, "127.0.0.1:5432", True),
        (vr.Egress.OFF, "127.0.0.1:5433", False),
        (vr.Egress.OFF, "/run/x.sock", True),
        (vr.Egress.OPEN, "/run/y.sock", False),
    ],
)
def test_why_connect(egress: vr.Egress, target: str, *, allowed: bool) -> None:
    """Connections are answered from egress, host ports and sockets; deny wins."""
    policy = vr.JailPolicy(egress=egress, host_ports=[5432], sockets=["/run/x.sock"])
    assert policy.why("connect", target).allowed is allowed


@pytest.mark.parametrize(
    ("operation", "target"),
    [
        ("delete", "/x"),
        ("read", "x"),
        ("read", b"/x"),
        ("read", "/a/../b"),
        ("connect", "example.org"),
        ("connect", "example.org:0"),
        ("connect", ":80"),
        ("connect", 80),
    ],
)
def test_why_refuses_what_is_no_question(operation: str, target: object) -> None:
    """A question that is not understood must not be answered."""
    with pytest.raises(vr.PolicyError):
        vr.JailPolicy().why(operation, target)  # type: ignore[arg-type]


def test_what_later_versions_bring_is_kept_and_named() -> None:
    """A clause that cannot be enforced must be listed, never silently accepted."""
    policy = vr.JailPolicy(
        reveal=["/a"],
        caches=["/b"],
        services=["s"],
        inbound={80: 0},
        host_ports=[1],
        sockets=["/s"],
        egress=vr.Egress.proxy(),
    )
    listed = dict(policy.unsupported())
    assert set(listed) == {
        "services",
        "egress",
    }
    assert vr.JailPolicy.from_dict(policy.to_dict()) == policy
    assert vr.JailPolicy().unsupported() == []


def test_a_name_with_a_star_that_exists_is_a_name(workspace: Path) -> None:
    """A pattern's characters in an existing name are no pattern."""
    (workspace / "a*").touch()
    assert vr.JailPolicy(read=[workspace / "a*"]).unsupported() == []
    with pytest.raises(vr.PolicyError, match="names nothing that exists"):
        vr.Jail(vr.JailPolicy(read=[workspace / "b*"]))


def test_an_absent_deny_inside_a_grant_is_named(workspace: Path) -> None:
    """A deny that a mount cannot hold must be listed; one that nothing could reach need not."""
    absent = workspace / "absent"
    (workspace / "present").touch()
    for kind in ("deny", "deny_read", "deny_write", "deny_exec"):
        denied: dict[str, Any] = {kind: [workspace / "present", absent]}
        policy = vr.JailPolicy(write=[workspace], absent_deny="error", **denied)
        assert [field for field, _ in policy.unsupported()] == [f"{kind}[1]"]
        held = [policy.replace(absent_deny=mode).unsupported() for mode in ("broker", "wall")]
        assert held == ([[], []] if kind == "deny_write" else [policy.unsupported()] * 2)
        assert vr.JailPolicy(**denied).unsupported() == []
    assert vr.JailPolicy(read=[workspace], deny_write=[absent]).unsupported() == []
    assert vr.JailPolicy(read=[workspace], deny=[absent]).unsupported() != []


def test_a_deny_of_a_file_that_the_jail_makes_is_named() -> None:
    """The jail's own /etc/passwd is there whatever a policy says, so the deny must not pass."""
    listed = vr.JailPolicy(deny=["/etc/passwd"], deny_write=["/etc/hosts"]).unsupported()
    assert [field for field, _ in listed] == ["deny[0]"]
    assert vr.JailPolicy(deny=["/etc/passwd"], system="none").unsupported() == []
    assert vr.JailPolicy(deny=["/etc/resolv.conf"]).unsupported() == []
    assert vr.JailPolicy(deny=["/etc/resolv.conf"], egress=vr.Egress.OPEN).unsupported() != []


def test_a_grant_that_leads_to_the_kernel_is_named(workspace: Path) -> None:
    """A link must not grant what cannot be granted by its own name."""
    (workspace / "p").symlink_to("/proc")
    (workspace / "r").symlink_to("/")
    policy = vr.JailPolicy(read=[workspace / "p"], write=[workspace / "r"])
    assert [field for field, _ in policy.unsupported()] == ["read[0]", "write[0]"]


def test_workspace_protects_what_the_host_runs(workspace: Path) -> None:
    """Hooks and configuration in a workspace must not be writable, whether they exist or not."""
    (workspace / ".git/hooks").mkdir(parents=True)
    policy = vr.JailPolicy.workspace(workspace, read=["/r"], write=["/w"], deny_write=["/w/x"])
    assert policy.why("write", workspace / "src/main.py")
    for name in PROTECTED_NAMES:
        assert not policy.why("write", workspace / name), name
        assert policy.why("read", workspace / name), name
    assert policy.write == (str(workspace), "/w")
    assert policy.deny_write[-1] == "/w/x"
    assert policy.absent_deny == "broker"
    assert policy.unsupported() == []
    absent = {field for field, _ in policy.replace(absent_deny="error").unsupported()}
    assert len(absent) == len(PROTECTED_NAMES)  # all but the hooks, and /w/x
    assert f"deny_write[{PROTECTED_NAMES.index('.git/hooks')}]" not in absent
    for name in PROTECTED_NAMES:
        (workspace / name).mkdir(parents=True, exist_ok=True)
    assert vr.JailPolicy.workspace(workspace, absent_deny="error").unsupported() == []
    with pytest.raises(vr.PolicyError, match="workspace"):
        vr.JailPolicy.workspace(workspace / "absent")

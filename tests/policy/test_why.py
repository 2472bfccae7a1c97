"""The grants of `why` can be pasted in both spellings, and its notes say what is true in a jail."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import socket
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import inside

import visruntime as vr
from visruntime.cli import main
from visruntime.cli.flags import Parser, make_policy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid


def by_flag(grant: vr.Grant) -> vr.JailPolicy:
    """Return the policy of a command line with the grant pasted in."""
    parser = Parser("exec", "", "", "")
    parser.add_policy_flags()
    options, rest = parser.split([*shlex.split(grant.cli), "--", "ls"])
    assert rest == ["ls"]
    return make_policy(options)


def by_argument(grant: vr.Grant) -> vr.JailPolicy:
    """Return a policy with the grant pasted into its call."""
    policy = eval(f"vr.JailPolicy({grant.python})", {"vr": vr})
    assert isinstance(policy, vr.JailPolicy)
    return policy


@pytest.mark.parametrize(
    ("operation", "target"),
    [
        ("read", "/srv/a b'c"),
        ("write", "/srv/$HOME;x"),
        ("exec", "/srv/--read"),
        ("connect", "service.test:443"),
        ("connect", "[2001:db8::1]:443"),
        ("connect", "localhost:5432"),
        ("connect", "/srv/app.sock"),
    ],
)
def test_a_grant_allows_what_was_denied_in_both_spellings(
    operation: Any, target: str, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    """Pasted, a grant must give what it was offered for, and be what this version enforces."""
    monkeypatch.chdir(workspace)
    before = vr.JailPolicy().why(operation, target)
    assert not before
    assert before.grant is not None
    assert before.grant.python in before.reason
    for wider in (by_flag(before.grant), by_argument(before.grant)):
        assert wider.why(operation, target)
        # Only that the file is not there may still be in the way.
        assert wider.unsupported() == []


def test_a_socket_behind_which_somebody_acts_has_no_flag() -> None:
    """The answer must not make it easy to hand out a container engine."""
    decision = vr.JailPolicy().why("connect", "/run/docker.sock")
    assert decision.grant == vr.Grant(python="sensitive_sockets=['/run/docker.sock']", cli="")
    assert "container engine" in decision.reason
    assert by_argument(decision.grant).why("connect", "/run/docker.sock")


def test_a_proxy_keeps_what_it_lets_through() -> None:
    """The pasted value of egress replaces the old one, so it must hold the old hosts too."""
    policy = vr.JailPolicy(egress=vr.Egress.proxy(allow=["a.test"], deny=["b.test"]))
    decision = policy.why("connect", "c.test:443")
    assert decision.grant is not None
    wider = by_argument(decision.grant)
    assert wider.why("connect", "c.test:443")
    assert wider.why("connect", "a.test:1")
    assert policy.why("connect", "b.test:1").grant is None


@pytest.mark.parametrize(
    ("operation", "target"),
    [("read", "/w/no"), ("exec", "/w/bin/x"), ("write", "/sys/x"), ("connect", "@bus")],
)
def test_where_nothing_can_be_added_there_is_no_grant(operation: Any, target: str) -> None:
    """A grant that would change nothing must not be offered."""
    policy = vr.JailPolicy(write=["/w"], deny=["/w/no"], deny_exec=["/w/bin"])
    decision = policy.why(operation, target)
    assert not decision
    assert decision.grant is None


def test_a_grant_cannot_be_seen_through_a_terminal() -> None:
    """The flag for a hostile name must be printable, and still mean that name to a shell."""
    target = "/srv/\x1b[31m'\n\u202eb"
    decision = vr.JailPolicy().why("read", target)
    assert decision.grant is not None
    assert decision.grant.cli.isprintable()
    assert decision.grant.python.isprintable()
    granted = by_argument(decision.grant)
    assert granted.read == (target.replace("[", "[[]"),)
    assert granted.why("read", target)
    import subprocess

    words = f"printf %s {decision.grant.cli.removeprefix('--read ')}"
    printed = subprocess.run(["bash", "-c", words], capture_output=True, check=True).stdout
    assert (os.fsdecode(printed),) == granted.read


def test_what_deny_exec_does_not_cover_is_said_and_true(workspace: Path) -> None:
    """The notes must name the ways that are open, and the closed ones must stay closed."""
    shutil.copy("/bin/true", workspace / "tool")
    (workspace / "script").write_text("exit 7\n")
    policy = vr.JailPolicy(read=[workspace], deny_exec=[workspace / "tool", workspace / "script"])
    decision = policy.why("exec", workspace / "tool")
    assert not decision
    assert len(decision.notes) == 2
    with vr.Jail(policy) as jail:
        with pytest.raises(vr.CommandNotExecutable) as caught:
            jail.run([workspace / "tool"])
        assert caught.value.errno == errno.EACCES
        assert "interprets" in decision.notes[0]
        assert jail.run(["sh", workspace / "script"]).exit_code == 7
        assert "copy" in decision.notes[1]
        copied = jail.run(["sh", "-c", f"cp {workspace}/tool /tmp/copy && /tmp/copy"])
        assert copied.exit_code == 0, copied.stderr_text
        # By the loader, which the first note says is covered.
        loader = f"""
import glob, subprocess
loaders = glob.glob("/lib64/ld-linux-*.so.*") + glob.glob("/lib/ld-linux-*.so.*")
answer([subprocess.run([loaders[0], path]).returncode for path in ("/bin/true", "{workspace}/tool")])
"""
        plain, denied = inside(jail, loader)
        assert plain == 0
        assert denied != 0
    allowed = vr.JailPolicy(read=[workspace]).why("exec", workspace / "tool")
    assert allowed.notes == ()


def test_the_loopback_of_a_jail_is_its_own_as_the_note_says() -> None:
    """A denied loopback port must say that the jail's own servers can be reached, and they can."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        decision = vr.JailPolicy().why("connect", f"127.0.0.1:{port}")
        assert not decision
        assert "of its own" in decision.notes[0]
        text = f"""
before = attempt(socket.create_connection, ("127.0.0.1", {port}), 2)
own = socket.create_server(("127.0.0.1", {port}))
answer([before, attempt(socket.create_connection, ("127.0.0.1", {port}), 2)])
"""
        with vr.Jail(vr.JailPolicy()) as jail:
            assert inside(jail, text) == [errno.ECONNREFUSED, 0]
        socket.create_connection(("127.0.0.1", port), 2).close()


def test_the_command_prints_both_spellings_and_the_rule(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a reader has to paste must stand on lines of its own."""
    monkeypatch.chdir(workspace)
    assert main(["why", "--write", ".", "--deny", "x", "read", "x/y"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("denied: ")
    assert lines[1] == f"rule: deny {workspace}/x (deny[0])"
    assert lines[2] == f"flag: --read {workspace}/x/y"
    assert lines[3] == f"Python: read=['{workspace}/x/y']"


def test_the_command_names_a_file_that_narrowed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An answer that a found file changed must say so."""
    monkeypatch.chdir(workspace)
    (workspace / "visruntime.toml").write_text('deny = ["x"]\n')
    (workspace / "x").touch()
    assert main(["why", "--write", ".", "write", "x"]) == 1
    assert f"note: {workspace}/visruntime.toml was found here" in capfd.readouterr().out
    (workspace / "mine.toml").write_text('write = ["."]\n')
    (workspace / "visruntime.toml").unlink()
    assert main(["why", "--policy", "mine.toml", "write", "x"]) == 0
    assert "was found here" not in capfd.readouterr().out


def test_a_decision_is_plain_data() -> None:
    """Programs can pass an answer on as JSON."""
    data = vr.JailPolicy(deny=["/srv"]).why("read", "/srv").to_dict()
    assert data["allowed"] is False
    assert data["rule"] == {"kind": "deny", "origin": "deny[0]", "path": "/srv"}
    assert data["grant"] is None


def test_why_knows_whether_a_jail_has_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the jail leaves out must not be called readable."""
    policy = vr.JailPolicy(egress=vr.Egress.OPEN)
    for text, allowed in (("nameserver 192.0.2.1\n", True), (None, False)):
        with monkeypatch.context() as patch:
            patch.setattr("visruntime.policy.name_servers", lambda text=text: text)
            assert policy.why("read", "/etc/resolv.conf").allowed is allowed
    assert not vr.JailPolicy().why("read", "/etc/resolv.conf").allowed


@pytest.mark.parametrize("rules", [["f/held"], ["f/a/held", "other"]])
def test_a_file_above_a_denied_name_stays_as_it_is(workspace: Path, rules: list[str]) -> None:
    """Where the kernel keeps such a file, which a folder could replace, `why` must not allow it."""
    (workspace / "f").write_text("kept")
    (workspace / "free").write_text("x")
    policy = vr.JailPolicy(write=[workspace], deny_write=[workspace / name for name in rules])
    answer = policy.why("write", workspace / "f")
    assert not answer.allowed
    assert "is no folder, so it stays as it is" in answer.reason
    assert policy.why("read", workspace / "f").allowed
    assert policy.why("write", workspace / "free").allowed
    with vr.Jail(policy) as jail:
        written = "answer(opened({!r}, os.O_WRONLY))"
        assert inside(jail, written.format(str(workspace / "f"))) == errno.EROFS
        assert inside(jail, written.format(str(workspace / "free"))) == 0

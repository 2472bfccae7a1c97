"""Violations: limits are exact, what a guest says about files is a hint, and both are bounded."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import visruntime as vr
from visruntime._jail.violations import (
    MAX_VIOLATIONS,
    Explainer,
    bounded,
    guessed,
    limit_violations,
)
from visruntime.config import schema

if TYPE_CHECKING:
    from pathlib import Path


def pasted(text: str) -> dict[str, Any]:
    """Evaluate a grant as somebody would who pastes it into a call."""
    fields: dict[str, Any] = eval(f"dict({text})", {"vr": vr, "dict": dict})
    return fields


def explainer(**fields: Any) -> Explainer:
    """Return an explainer of a policy, without a jail."""
    policy = vr.JailPolicy(**fields)
    return Explainer(policy, [(rule.kind, rule.path) for rule in policy.rules()])


def test_a_hint_grants_no_more_than_the_name_that_it_is_about() -> None:
    """A guest says which name was refused; pasted, a pattern in it must not grant others."""
    with vr.Jail(vr.JailPolicy()) as jail:
        text = "cat: '/home/**': Permission denied"
        result = jail.run(["sh", "-c", 'echo "$0" >&2; exit 1', text])
    (violation,) = result.violations
    assert violation.grant is not None
    assert violation.grant.cli == "--read '/home/[*][*]'"
    granted = vr.JailPolicy(**pasted(violation.grant.python))
    assert granted.why("read", "/home/**")
    assert not granted.why("read", "/home/other")
    # As the guest wrote it, it would.
    assert vr.JailPolicy(read=["/home/**"]).why("read", "/home/other")


def test_a_limit_that_ended_a_run_is_exact() -> None:
    """What the host measured must be there as data, with twice as much to paste."""
    limits = vr.Limits(wall_seconds=0.3)
    with vr.Jail(vr.JailPolicy(limits=limits)) as jail:
        result = jail.run(["sleep", "9"], timeout=30)
        ordinary = jail.run(["sh", "-c", "kill -9 $$"], timeout=30)
    (violation,) = result.violations
    assert (violation.kind, violation.rule) == ("limits.wall_seconds", "limits.wall_seconds")
    assert (violation.confidence, result.stopped_by) == ("exact", "wall")
    assert violation.grant is not None
    assert pasted(violation.grant.python) == {"limits": vr.Limits(wall_seconds=0.6)}
    assert ordinary.violations == ()


@pytest.mark.parametrize(
    ("stopped_by", "limits", "grant"),
    [
        ("cpu", vr.Limits(cpu_seconds=3), "--cpu-seconds 6"),
        (
            "memory",
            vr.Limits(memory=2**20, memory_by="watch"),
            "--memory 2097152 --memory-by watch",
        ),
        ("processes", vr.Limits(processes=7), "--processes 14"),
        ("wall", vr.Limits(wall_seconds=1.5), ""),
    ],
)
def test_each_limit_has_its_clause_and_grant(
    stopped_by: str, limits: vr.Limits, grant: str
) -> None:
    """Whatever ended a run by a limit must lead to the clause that has to change."""
    (violation,) = limit_violations(stopped_by, limits)
    assert violation.grant is not None
    assert violation.grant.cli == grant
    (larger,) = pasted(violation.grant.python).values()
    name = violation.kind.partition(".")[2]
    assert getattr(larger, name) == 2 * getattr(limits, name)
    for other in (None, "timeout", "killed", "closed", "output"):
        assert limit_violations(other, limits) == ()


def test_a_timeout_of_the_caller_violates_no_policy() -> None:
    """The caller's own patience must not be shown as a clause of the policy."""
    with vr.Jail(vr.JailPolicy()) as jail, pytest.raises(vr.CommandTimeout) as caught:
        jail.run(["sleep", "9"], timeout=0.2)
    assert caught.value.result.stopped_by == "timeout"
    assert caught.value.result.violations == ()


def test_output_over_the_limit_is_exact() -> None:
    """Output that was cut is counted by the host, for each stream, in commands and workers."""
    policy = vr.JailPolicy(limits=vr.Limits(output=100))
    with vr.Jail(policy) as jail:
        result = jail.run(["sh", "-c", "head -c 500 /dev/zero; head -c 100 /dev/zero >&2"])
    (violation,) = result.violations
    assert (violation.kind, violation.target) == ("limits.output", "stdout")
    assert violation.confidence == "exact"
    assert "500" in violation.detail
    assert violation.grant is not None
    assert violation.grant.cli == "--output 200"
    with vr.Runtime(policy) as runtime:
        cut = runtime.run("print('x' * 500)")
        whole = runtime.run("print('x' * 50)")
    assert [(v.kind, v.target) for v in cut.violations] == [("limits.output", "stdout")]
    assert whole.violations == ()


def test_a_file_at_its_limit_is_a_hint(workspace: Path) -> None:
    """SIGXFSZ can be sent by the guest itself, so it must not be called exact."""
    policy = vr.JailPolicy(write=[workspace], limits=vr.Limits(file_size=4096))
    with vr.Jail(policy) as jail:
        real = jail.run(["sh", "-c", f"exec head -c 9999 /dev/zero > {workspace}/x"])
        forged = jail.run(["sh", "-c", "kill -XFSZ $$"])
    for result in (real, forged):
        (violation,) = result.violations
        assert (violation.kind, violation.confidence) == ("limits.file_size", "hint")


def test_a_guests_error_becomes_a_hint_with_rule_and_grant(workspace: Path, outside: Path) -> None:
    """An exception about a path names the rule, and what to paste; it does not claim a cause."""
    (workspace / "secret").write_text("x")
    (outside / "data").write_text("data")
    policy = vr.JailPolicy(write=[workspace], deny=[workspace / "secret"])
    code = "try: open(a)\nexcept OSError: open(b)"
    names = {"a": str(workspace / "secret"), "b": str(outside / "data")}
    with vr.Runtime(policy) as runtime:
        result = runtime.run(code, inputs=names)
        fine = runtime.run("1/0")
    absent, denied = result.violations
    assert (absent.kind, absent.target, absent.confidence) == ("read", names["b"], "hint")
    assert absent.errno == errno.ENOENT
    assert absent.rule in ("", "private")  # the folder may lie where a jail has its own /tmp
    assert (denied.target, denied.rule, denied.grant) == (names["a"], "deny[0]", None)
    assert denied.errno == errno.EACCES
    assert fine.violations == ()
    # The grant, pasted, makes the same act succeed.
    assert absent.grant is not None
    with vr.Runtime(policy.replace(**pasted(absent.grant.python))) as runtime:
        assert runtime.run("open(b).read()", inputs=names).value == "data"


def test_a_connection_without_a_network_is_a_hint() -> None:
    """An error of a connection names egress where that is off, and nothing where it is open."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        with vr.Runtime(vr.JailPolicy()) as runtime:
            result = runtime.run(code)
            unreachable = runtime.run("import socket; socket.socket().connect(('192.0.2.1', 9))")
        (violation,) = result.violations
        assert (violation.kind, violation.confidence) == ("connect", "hint")
        assert (violation.errno, violation.rule) == (errno.ECONNREFUSED, "egress")
        assert [v.errno for v in unreachable.violations] == [errno.ENETUNREACH]
        assert violation.grant is not None
        with vr.Runtime(vr.JailPolicy(**pasted(violation.grant.python))) as runtime:
            assert runtime.run(code).error is None
            closed = runtime.run("import socket; socket.create_connection(('127.0.0.1', 1))")
        assert closed.error is not None
        assert closed.violations == ()
    script = "echo 'x: Network is unreachable' >&2; exit 1"
    with vr.Jail(vr.JailPolicy()) as jail:
        guesses = jail.run(["sh", "-c", script]).violations
    assert [(v.kind, v.confidence) for v in guesses] == [("connect", "guess")]


def test_a_hidden_secret_is_told_apart_and_can_be_lifted(workspace: Path) -> None:
    """A secret must not look like a missing grant, and what is offered must show that one only."""
    for name in (".env", "id_rsa"):
        (workspace / name).write_text("swordfish")
    policy = vr.JailPolicy(read=[workspace])
    with vr.Jail(policy) as jail:
        (guess,) = jail.run(["cat", workspace / ".env"]).violations
    assert (guess.rule, guess.errno) == ("secrets", errno.EACCES)
    decision = policy.why("read", workspace / ".env")
    assert decision.grant == guess.grant
    assert guess.grant is not None
    assert guess.grant.cli == f"--reveal {workspace}/.env"
    with vr.Jail(policy.replace(**pasted(guess.grant.python))) as jail:
        assert jail.run(["cat", workspace / ".env"]).stdout == b"swordfish"
        assert jail.run(["cat", workspace / "id_rsa"]).exit_code == 1


def test_stderr_gives_guesses_only(workspace: Path, outside: Path) -> None:
    """Text must never be called more than a guess, and a program that succeeded has none."""
    (outside / "data").write_text("data")
    policy = vr.JailPolicy(read=[workspace])
    with vr.Jail(policy) as jail:
        failed = jail.run(["cat", str(outside / "data")])
        forged = jail.run(["sh", "-c", "echo \"x: '/srv/a b': Permission denied\" >&2; exit 1"])
        passed = jail.run(["sh", "-c", f"cat {outside}/data; exit 0"])
        written = jail.run(["sh", "-c", f"touch {workspace}/new"])
        absent = jail.run(["cat", f"{workspace}/absent"])
    (guess,) = failed.violations
    assert (guess.kind, guess.target, guess.confidence) == ("read", f"{outside}/data", "guess")
    assert guess.grant is not None
    assert guess.grant.cli == f"--read {outside}/data"
    assert [(v.target, v.confidence) for v in forged.violations] == [("/srv/a b", "guess")]
    assert forged.violations[0].grant is not None
    assert forged.violations[0].grant.cli == "--read '/srv/a b'"
    assert passed.violations == ()
    assert [(v.kind, v.errno) for v in written.violations] == [("write", errno.EROFS)]
    assert absent.violations == ()


def test_violations_are_bounded_and_counted() -> None:
    """A guest must not fill the host's memory with what it complains of."""
    script = "for i in $(seq 200); do cat /srv/n$i; cat /srv/n$i; done"
    with vr.Jail(vr.JailPolicy()) as jail:
        result = jail.run(["sh", "-c", script], timeout=30)
    assert len(result.violations) == MAX_VIOLATIONS
    assert result.violations_dropped == 200 - MAX_VIOLATIONS
    assert len({violation.target for violation in result.violations}) == MAX_VIOLATIONS
    assert bounded([]) == ((), 0)


@pytest.mark.parametrize(
    ("number", "path", "kind", "rule", "grant"),
    [
        (errno.ENOENT, "/srv/x", "read", "", "--read /srv/x"),
        (errno.EACCES, "/w/secret", "read", "deny[0]", None),
        (errno.EACCES, "/w/secret/below", "read", "deny[0]", "--read /w/secret/below"),
        (errno.EROFS, "/r/x", "write", "read[0]", "--write /r/x"),
        (errno.EROFS, "/w/kept", "write", "deny_write[0]", None),
        (errno.EACCES, "/w/tools/a", "exec", "deny_exec[0]", None),
        (errno.EACCES, "/proc/1/mem", "write", "private", None),
        (errno.EPERM, "/r/x", "write", "read[0]", "--write /r/x"),
    ],
)
def test_what_the_policy_says_of_an_error(
    number: int, path: str, kind: str, rule: str, grant: str | None
) -> None:
    """The right, the rule and the grant follow from the policy alone."""
    explain = explainer(
        read=["/r"],
        write=["/w"],
        deny=["/w/secret"],
        deny_write=["/w/kept"],
        deny_exec=["/w/tools"],
    )
    found = explain.explain(number, path)
    assert found is not None
    assert (found.kind, found.rule, found.target) == (kind, rule, path)
    assert (None if found.grant is None else found.grant.cli) == grant


@pytest.mark.parametrize(
    ("number", "path"),
    [
        (errno.ENOENT, "/w/absent"),
        (errno.EACCES, "/w/x"),
        (errno.EISDIR, "/srv"),
        (errno.ENOENT, "relative"),
        (errno.ENOENT, "/a\0b"),
        (errno.ENOENT, "/" + "x" * 5000),
    ],
)
def test_what_the_policy_has_nothing_to_do_with(number: int, path: str) -> None:
    """An ordinary error must not be blamed on the policy, and no path may break the host."""
    assert explainer(write=["/w"]).explain(number, path) is None


def test_git_without_its_repository_names_the_missing_grant() -> None:
    """In a linked worktree git must not leave it open which repository the guest does not see."""
    text = b"fatal: not a git repository: /srv/main/.git/worktrees/tree\n"
    (guess,) = guessed(text, explainer(write=["/srv/tree"]).explain)
    assert (guess.kind, guess.target) == ("read", "/srv/main/.git/worktrees/tree")
    assert not list(guessed(text, explainer(write=["/srv"]).explain))
    outside = b"fatal: not a git repository (or any of the parent directories): .git\n"
    assert not list(guessed(outside, explainer(write=["/srv/tree"]).explain))


def test_hostile_text_is_read_in_bounded_time_and_shown_safely() -> None:
    """No stderr may take long, be looked up on the host, or steer a terminal."""
    import time

    explain = explainer()
    text = b"'" * 40_000 + b"/" * 40_000 + b" Permission denied\n" * 1000 + b"\xff/srv/\x1b[31m: "
    text += b"No such file or directory\nx: /srv/\xe2\x80\xae\xff: Permission denied"
    started = time.monotonic()
    found = list(guessed(text, explain.explain))
    assert time.monotonic() - started < 5
    assert found
    for violation in found:
        assert violation.detail.isprintable()
        if violation.grant is not None:
            assert violation.grant.cli.isprintable()


def test_many_rules_and_many_complaints_take_bounded_time() -> None:
    """A guest must not keep the host busy by complaining under a large policy."""
    import time

    explain = explainer(deny=[f"/srv/{number}/x" for number in range(9_000)], write=["/srv"])
    text = b"".join(b"/srv/%d/x: Permission denied\n" % number for number in range(2_500))
    started = time.monotonic()
    violations, dropped = bounded(guessed(text, explain.explain))
    assert time.monotonic() - started < 5
    assert len(violations) + dropped > 2_000


def command_line(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "visruntime", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


@pytest.mark.parametrize(
    ("words", "status", "kinds"),
    [
        (["exec", "--", "true"], 0, []),
        (["exec", "--", "cat", "/srv/secret"], 1, [("read", "guess")]),
        (["exec", "--policy", "wall.toml", "--", "sleep", "9"], 124,
         [("limits.wall_seconds", "exact")]),
        (["exec", "--timeout", "0.3", "--", "sleep", "9"], 124, []),
        (["exec", "--", "no-such-program"], 127, []),
        (["exec", "--", "/etc"], 126, []),
        (["run", "-c", "open('/srv/secret')"], 1, [("read", "hint")]),
        (["run", "-c", "raise SystemExit(3)"], 3, []),
        (["run", "-c", "import os; os.kill(os.getpid(), 9)"], 137, []),
        (["run", "--timeout", "0.5", "-c", "while True: pass"], 124, []),
    ],
)  # fmt: skip
def test_the_report_is_consistent_whatever_happens(
    workspace: Path, outside: Path, words: list[str], status: int, kinds: list[tuple[str, str]]
) -> None:
    """Each way to end gives a report of one shape, with our exit code and the violations."""
    file = outside / "report.json"
    (workspace / "wall.toml").write_text("limits.wall_seconds = 0.3\n")
    name, *rest = words
    done = command_line(name, "--report", str(file), *rest, cwd=workspace)
    assert done.returncode == status, done.stderr
    data = json.loads(file.read_text())
    jsonschema.Draft202012Validator(schema("report")).validate(data)
    assert data["status"] == status
    assert [(v["kind"], v["confidence"]) for v in data["violations"]] == kinds
    ran = status not in (126, 127)
    assert (data["error"] is None) == ran
    code, number = data["exit"]["code"], data["exit"]["signal"]
    if status == 124:
        assert data["exit"]["stopped_by"] == ("wall" if kinds else "timeout")
    elif ran:
        assert status == (code if code is not None else 128 + number)


def test_run_says_which_grant_is_missing(workspace: Path, outside: Path) -> None:
    """A script that fails at a path gets the flag that it needs, and with it passes."""
    (outside / "data").write_text("data")
    (workspace / "s.py").write_text(f"print(open({str(outside / 'data')!r}).read())")
    done = command_line("run", "s.py", cwd=workspace)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("visruntime: hint: ")
    assert done.stderr.endswith(f"to allow it: --read {outside}/data\n")
    again = command_line("run", "--read", str(outside / "data"), "s.py", cwd=workspace)
    assert again.stdout == "data\n"


def test_the_result_of_a_run_shows_its_exit_code() -> None:
    """A result in a log must not hide that the code left with an exit code."""
    with vr.Runtime(vr.JailPolicy()) as runtime:
        assert "exit_code=3" in repr(runtime.run("raise SystemExit(3)"))
        assert "exit_code" not in repr(runtime.run("3"))


def test_violations_are_plain_values() -> None:
    """A violation can be compared, pickled and written as JSON."""
    import pickle

    found = explainer().explain(errno.ENOENT, "/srv/x")
    assert found is not None
    assert pickle.loads(pickle.dumps(found)) == found
    shape = schema("report")["$defs"]["violation"]
    jsonschema.Draft202012Validator(shape).validate(json.loads(json.dumps(found.to_dict())))
    assert os.fspath("/srv/x") in found.detail

"""Jails: opening, refusing, running, and what ordinary programs do inside."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy, Limits, errno, inside, is_root, policy_of, spawn

import visruntime.jail as jail_module
from visruntime import _native
from visruntime.errors import (
    CommandFailed,
    CommandNotExecutable,
    CommandNotFound,
    CommandTimeout,
    JailClosed,
    JailUnavailable,
    PathDenied,
    PolicyError,
    PolicyUnsupported,
    VisRuntimeError,
)
from visruntime.policy import Egress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """Return a jail without any grant."""
    with Jail(JailPolicy()) as opened:
        yield opened


# ---- running -------------------------------------------------------------------------


def test_run_returns_what_the_program_did(jail: Jail) -> None:
    """Exit code, both streams and their sizes must be those of the program."""
    result = jail.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.exit_code, result.signal) == (3, None)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert (result.stdout_text, result.stderr_text) == ("out\n", "err\n")
    assert (result.stdout_total, result.stderr_total) == (4, 4)
    assert not result.truncated
    assert result.stopped_by is None
    assert result.violations == ()
    assert result.report is jail.report


def test_a_signal_is_no_exit_code(jail: Jail) -> None:
    """A program that a signal ended must have a signal and no exit code."""
    result = jail.run(["sh", "-c", "kill -TERM $$"])
    assert (result.exit_code, result.signal) == (None, 15)
    assert jail.run(["sh", "-c", "exit 143"]).signal is None


def test_input_arrives_whole(jail: Jail) -> None:
    """Input of any size must arrive, also where the program takes none of it."""
    data = os.urandom(3_000_000)
    assert jail.run(["cat"], input=data).stdout == data
    assert jail.run(["true"], input=data).exit_code == 0
    assert jail.run(["head", "-c", "10"], input=data).stdout == data[:10]


@pytest.mark.parametrize("wrong", ["text", 5, ["x"], [1, 2]])
def test_input_is_bytes(jail: Jail, wrong: Any) -> None:
    """Input that is no bytes must be refused, not turned into some."""
    with jail.spawn(["cat"], stdin=-1) as process, pytest.raises(TypeError, match="input"):
        process.communicate(wrong)
    with pytest.raises(TypeError, match="input"):
        jail.run(["cat"], input=wrong)


def test_check_raises_with_the_result(jail: Jail) -> None:
    """check=True must raise for a failure and a signal only, with the whole result."""
    assert jail.run(["true"], check=True).exit_code == 0
    with pytest.raises(CommandFailed, match="exit code 4") as caught:
        jail.run(["sh", "-c", "echo part; exit 4"], check=True)
    assert caught.value.result.stdout == b"part\n"
    with pytest.raises(CommandFailed, match="signal 9"):
        jail.run(["sh", "-c", "kill -9 $$"], check=True)


def test_a_timeout_raises_with_the_output_so_far(jail: Jail) -> None:
    """timeout= must end the program and keep what it wrote."""
    with pytest.raises(CommandTimeout, match=r"sh was ended after 0\.3 s") as caught:
        jail.run(["sh", "-c", "echo so far; sleep 60"], timeout=0.3)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.result.stdout == b"so far\n"
    assert caught.value.result.stopped_by == "timeout"


def test_an_infinite_timeout_is_no_limit(jail: Jail) -> None:
    """Infinity, which `wait` of other libraries takes for ever, must not be refused."""
    endless = float("inf")
    assert jail.run(["sh", "-c", "sleep 0.2; echo done"], timeout=endless).stdout == b"done\n"
    with spawn(jail, ["sh", "-c", "sleep 0.2; exit 5"], timeout=endless) as process:
        assert process.wait(timeout=endless) == 5
    with spawn(jail, ["true"], timeout=1e300) as process:
        assert process.wait(timeout=1e300) == 0


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_timeout_that_is_none_is_refused(jail: Jail, timeout: float) -> None:
    """A negative timeout, or one that is no number, must be refused by name."""
    with pytest.raises(ValueError, match="timeout"):
        jail.run(["true"], timeout=timeout)


def test_shell_runs_a_script(jail: Jail) -> None:
    """shell() must give the script to a shell, and take the options of run()."""
    result = jail.shell("a=5; echo $((a + 1)) | cat; exit 2", env={"X": "1"})
    assert (result.exit_code, result.stdout) == (2, b"6\n")
    with pytest.raises(CommandFailed):
        jail.shell("false", check=True)


# ---- what cannot be started ----------------------------------------------------------


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "/etc/passwd/x"])
def test_a_missing_program_is_not_found(jail: Jail, name: str) -> None:
    """A program that is not there must raise, and not look like one that exits with 127."""
    with pytest.raises(CommandNotFound, match=name) as caught:
        jail.run([name])
    assert isinstance(caught.value, FileNotFoundError)
    assert jail.run(["sh", "-c", "exit 127"]).exit_code == 127


def test_a_program_of_the_host_that_is_not_granted(jail: Jail, outside: Path) -> None:
    """The message must say which grant is missing."""
    program = outside / "tool"
    shutil.copy("/usr/bin/true", program)
    with pytest.raises(CommandNotFound, match=rf"grant it by read=\['{outside}'\]"):
        jail.run([program])


def test_a_program_in_a_folder_that_only_the_hosts_path_names(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grant alone does not let a program be found by its name: the message must say what else."""
    shutil.copy("/usr/bin/true", outside / "some-tool")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{outside}")
    with (
        Jail(JailPolicy()) as jail,
        pytest.raises(CommandNotFound, match=f"grant it by .* start it as {outside}/some-tool$"),
    ):
        jail.run(["some-tool"])
    with Jail(JailPolicy(read=[outside])) as jail:
        with pytest.raises(CommandNotFound, match="the PATH of the jail does not name") as caught:
            jail.run(["some-tool"])
        advised = re.search(r"env=(\{.*?\})", str(caught.value))
        assert advised
        assert jail.run(["some-tool"], env=ast.literal_eval(advised[1])).exit_code == 0
        assert jail.run([outside / "some-tool"]).exit_code == 0


def test_what_is_no_program_is_not_executable(workspace: Path) -> None:
    """A file without the bit, a folder and a text that names no interpreter must be told apart."""
    (workspace / "plain").write_text("x")
    (workspace / "broken").write_bytes(b"\x7fELFnonsense")
    (workspace / "broken").chmod(0o755)
    (workspace / "script").write_text("#!/no/such/interpreter\n")
    (workspace / "script").chmod(0o755)
    with Jail(JailPolicy(read=[workspace])) as jail:
        for name, words in (("plain", "Permission"), ("broken", "Exec format")):
            with pytest.raises(CommandNotExecutable, match=words) as caught:
                jail.run([workspace / name])
            assert isinstance(caught.value, PermissionError)
        with pytest.raises(CommandNotExecutable):
            jail.run([workspace])
        with pytest.raises(CommandNotFound, match="interpreter or loader"):
            jail.run([workspace / "script"])


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("ls -l", TypeError, "command is a list"),
        (b"ls", TypeError, "command is a list"),
        ([], ValueError, "program is missing"),
        ([""], ValueError, "program is missing"),
        (["a\0b"], ValueError, r"command\[0\].*NUL"),
        (["ls", "x\0"], ValueError, r"command\[1\].*NUL"),
        (["ls", 5], TypeError, None),
        (["ls", b"x"], TypeError, r"command\[1\]"),
        (["ls", "x" * (3 << 20)], ValueError, "bytes of arguments"),
    ],
)
def test_a_command_that_is_none_is_refused(
    jail: Jail, command: Any, kind: type[Exception], words: str | None
) -> None:
    """A command of the wrong shape must be refused before anything starts."""
    with pytest.raises(kind, match=words):
        jail.run(command)


@pytest.mark.parametrize("cwd", ["relative", "", "/tmp\0", b"/tmp", "."])
def test_a_working_directory_that_is_none_is_refused(jail: Jail, cwd: Any) -> None:
    """A relative or broken cwd must be refused by name."""
    with pytest.raises((TypeError, ValueError), match="cwd"):
        jail.run(["true"], cwd=cwd)


def test_the_working_directory(workspace: Path, outside: Path, jail: Jail) -> None:
    """A given cwd must hold or be refused; without one it is the host's if granted, else HOME."""
    with Jail(JailPolicy(read=[workspace])) as granted:
        assert granted.run(["pwd"], cwd=workspace).stdout_text == f"{workspace}\n"
        with pytest.raises(PathDenied, match="cwd") as caught:
            granted.run(["pwd"], cwd=outside)
        assert caught.value.path == str(outside)
        here = os.getcwd()
        try:
            os.chdir(workspace)
            assert granted.run(["pwd"]).stdout_text == f"{workspace}\n"
            os.chdir(outside)
            assert granted.run(["pwd"]).stdout == b"/home/user\n"
        finally:
            os.chdir(here)
    assert jail.run(["pwd"], cwd="/usr").stdout == b"/usr\n"
    with pytest.raises(PathDenied, match="cwd"):
        jail.run(["pwd"], cwd="/etc/passwd")


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A": "x\0"}, {"A\0": "x"}, {"A": 5}])
def test_variables_that_are_none_are_refused(jail: Jail, env: dict[str, Any]) -> None:
    """A variable that no environment can hold must be refused."""
    with pytest.raises((ValueError, TypeError)):
        jail.run(["true"], env=env)


def test_long_arguments_and_environments(jail: Jail) -> None:
    """Arguments past one message must arrive whole, and too many be refused in words."""
    many = [f"argument number {number}" for number in range(20_000)]
    text = "import sys, hashlib; print(hashlib.sha256('|'.join(sys.argv[1:]).encode()).hexdigest())"
    wanted = hashlib.sha256("|".join(many).encode()).hexdigest()
    assert jail.run([PYTHON, "-IBS", "-c", text, *many]).stdout_text == wanted + "\n"
    long = {f"V{number}": "x" * 1000 for number in range(200)}
    assert jail.run(["sh", "-c", "echo ${#V199}"], env=long).stdout == b"1000\n"
    with pytest.raises(VisRuntimeError, match=r"long|large|many"):
        jail.run(["true", *["x"] * 70_000])
    assert jail.run(["true"]).exit_code == 0


# ---- policies that open no jail --------------------------------------------------------


def test_fs_04_a_grant_that_does_not_exist_is_refused(workspace: Path) -> None:
    """A grant must never be left out without a word."""
    for kind in ("read", "write"):
        with pytest.raises(PolicyError, match=rf"{kind}\[0\].*docs/specs does not exist") as caught:
            Jail(policy_of(**{kind: [workspace / "docs" / "specs"]}))
        assert caught.value.field == f"{kind}[0]"
        assert caught.value.value == str(workspace / "docs" / "specs")
    assert list(workspace.iterdir()) == []


def test_grants_of_odd_objects_are_refused(workspace: Path) -> None:
    """A pipe or a socket is no grant."""
    os.mkfifo(workspace / "fifo")
    with pytest.raises(PolicyUnsupported, match=r"read\[0\].*neither a folder nor a regular file"):
        Jail(JailPolicy(read=[workspace / "fifo"]))


def test_a_missing_grant_is_named_as_it_is() -> None:
    """A grant at the top of the root that does not exist must be refused by its own name."""
    with pytest.raises(PolicyError, match=r"read\[0\]: /no-such/there does not exist"):
        Jail(JailPolicy(read=["/no-such/there"]))


def test_a_link_out_of_its_folder_is_refused(workspace: Path, outside: Path) -> None:
    """A grant that is a link to elsewhere must be refused, naming where it leads."""
    (workspace / "out").symlink_to(outside)
    with pytest.raises(PolicyError, match=rf"write\[0\].*link out of its folder, to {outside}"):
        Jail(JailPolicy(write=[workspace / "out"]))
    (workspace / "real").mkdir()
    (workspace / "in").symlink_to("real")
    with pytest.raises(PolicyError, match=rf"write\[0\].*name what it leads to .*{workspace}/real"):
        Jail(JailPolicy(write=[workspace / "in"]))


def test_wrong_arguments_open_nothing() -> None:
    """What is no policy and no back end must be refused before anything starts."""
    with pytest.raises(TypeError, match="policy"):
        Jail({"read": ["/usr"]})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend"):
        Jail(JailPolicy(), backend="docker")
    with pytest.raises(PolicyUnsupported, match="egress"):
        Jail(JailPolicy(egress=Egress.proxy(allow=["a.test"])))


def test_un_01_without_the_launcher_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, workspace: Path, outside: Path
) -> None:
    """With a missing, failing or lying launcher the call must raise and start nothing."""
    marker = workspace / "pwn"
    for text in ("#!/bin/sh\nexit 1\n", f"#!/bin/sh\ntouch {marker}2\nexit 0\n", "garbage"):
        (outside / "bin").mkdir(exist_ok=True)
        fake = outside / "bin" / "visjail-init"
        fake.write_text(text)
        fake.chmod(0o755)
        monkeypatch.setattr(_native, "BINARY_DIRECTORY", str(outside))
        with pytest.raises(VisRuntimeError):
            Jail(JailPolicy(write=[workspace])).run(["touch", str(marker)])
    fake.unlink()
    with pytest.raises(JailUnavailable, match="reinstall"):
        Jail(JailPolicy(write=[workspace]))
    assert not marker.exists()


NO_NAMESPACES = """
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
from visruntime.errors import JailUnavailable
try:
    Jail(JailPolicy()).run(["true"])
    print("ran")
except JailUnavailable as error:
    print("refused", error.fix)
"""


def test_un_01_without_user_namespaces_it_says_what_helps(tool: Callable[[str], str]) -> None:
    """Where user namespaces are switched off, the sysctl must be named and nothing run."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    result = subprocess.run(
        [tool("unshare"), "-Ur", "sh", "-c", script, "sh", sys.executable, "-c", NO_NAMESPACES],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("refused")
    assert "user.max_user_namespaces" in result.stdout


def test_a_root_that_is_none_outside_opens_jails(tool: Callable[[str], str]) -> None:
    """Root of a user namespace, as in a rootless container, must get a jail as itself."""
    script = """
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
with Jail(JailPolicy()) as jail:
    print(jail.run(["id", "-u"]).stdout_text.strip(), jail.report.identity)
"""
    result = subprocess.run(
        [tool("unshare"), "-Ur", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    # Root's own user namespace maps 0 to the host's 0: there it is no other uid.
    identity = (
        "host uid 0 without capabilities: a file system refused id-mapped mounts"
        if is_root()
        else "uid 0 of the caller's user namespace, which is another uid of the host"
    )
    assert result.stdout == f"0 {identity}\n", result.stderr


TWO_LINES = """
import ctypes, os, signal
from visruntime.errors import JailUnavailable
from visruntime.jail import Jail
from visruntime.policy import JailPolicy

CLONE_NEWUSER = 0x10000000
asks, asked = os.pipe()
go, gone = os.pipe()
pid = os.fork()
if pid == 0:
    assert ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0
    os.write(asked, b"x")
    os.read(go, 1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    with Jail(JailPolicy()) as jail:
        print(jail.report.identity, flush=True)
    try:
        Jail(JailPolicy(), backend="bubblewrap")
    except JailUnavailable as error:
        print(error.stage, flush=True)
    os._exit(0)
signal.alarm(20)
os.read(asks, 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{pid}/{name}", "w") as file:
        file.write("1 1 65533\\n0 0 1\\n")
os.write(gone, b"x")
os.waitpid(pid, 0)
"""


@pytest.mark.skipif(not is_root(), reason="only root may map the host's uid 0")
def test_the_hosts_root_is_known_by_any_map() -> None:
    """In a user namespace that has the host's uid 0, wherever in its map, a caller is root."""
    result = subprocess.run(
        [sys.executable, "-c", TWO_LINES], capture_output=True, text=True, check=False, timeout=30
    )
    identity = "host uid 0 without capabilities: a file system refused id-mapped mounts"
    assert result.stdout.splitlines() == [identity, "bubblewrap"], result.stderr


# ---- state -----------------------------------------------------------------------------


def test_the_report_says_what_enforces_each_clause(workspace: Path) -> None:
    """Each clause of the policy must be in the report with its mechanisms, and canaries held."""
    (workspace / "secret").write_text("s")
    (workspace / "kept").write_text("k")
    (workspace / "tool").write_text("t")
    policy = JailPolicy(
        write=[workspace],
        read=["/usr/share"],
        deny=[workspace / "secret"],
        deny_write=[workspace / "kept"],
        deny_exec=[workspace / "tool"],
        limits=Limits(cpu_seconds=5),
    )
    with Jail(policy) as jail:
        report = jail.report
    names = [clause.clause for clause in report.clauses]
    for name in ("system", "write[0]", "read[0]", "deny[0]", "deny_write[0]", "deny_exec[0]"):
        assert name in names
        assert "mount" in " ".join(report.mechanisms(name))
    assert report.mechanisms("limits.cpu_seconds") == ("RLIMIT_CPU",)
    assert "network namespace" in report.mechanisms("egress")
    assert report.mechanisms("deny[0]") == ("mount",)  # a deny rests on mounts alone
    assert report.backend == "namespaces"
    canaries = {canary.name: canary for canary in report.canaries}
    assert all(canary.held and canary.errno for canary in report.canaries)
    assert f"read {workspace}/secret" in canaries
    assert f"write {workspace}/kept" in canaries
    assert canaries["write /usr/share"].errno == errno.EROFS
    assert canaries["mount a file system"].errno == errno.EPERM
    plain = report.to_dict()
    assert [clause["clause"] for clause in plain["clauses"]] == names
    assert {"version", "backend", "canaries"} <= plain.keys()


def test_a_read_grant_is_tried_where_that_says_something(workspace: Path) -> None:
    """Each folder to read is tried, a program that runs on the host is not: it has its own errno."""
    import subprocess

    shutil.copy("/bin/sleep", workspace / "busy")
    (workspace / "folder").mkdir()
    with subprocess.Popen([workspace / "busy", "30"]) as process:
        try:
            policy = JailPolicy(read=[workspace / "folder", workspace / "busy"])
            with Jail(policy) as jail:
                named = {canary.name for canary in jail.report.canaries}
        finally:
            process.kill()
    assert f"write {workspace}/folder" in named
    assert f"write {workspace}/busy" not in named
    assert list((workspace / "folder").iterdir()) == []


def test_a_canary_that_does_not_hold_closes_the_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jail in which a forbidden act succeeds must not be handed out."""
    from visruntime._jail import canaries as _jail_canaries

    wrong = tuple((name, frozenset({-5})) for name, _ in _jail_canaries.CANARIES)
    monkeypatch.setattr(_jail_canaries, "CANARIES", wrong)
    with pytest.raises(JailUnavailable, match="did not hold: mount a file system"):
        Jail(JailPolicy())


def test_a_closed_jail_refuses_everything(workspace: Path) -> None:
    """After close() every verb must say that the jail is closed."""
    jail = Jail(JailPolicy(write=[workspace]))
    assert not jail.closed
    jail.close()
    jail.close()
    assert jail.closed
    for act in (
        lambda: jail.run(["true"]),
        lambda: jail.spawn(["true"]),
        lambda: jail.spawn(["true"], pty=True),
        lambda: jail.shell("true"),
        lambda: jail.read_bytes("/etc/passwd"),
        lambda: jail.exists("/etc"),
    ):
        with pytest.raises(JailClosed):
            act()
    assert "closed" in repr(jail)


def test_two_jails_do_not_mix(workspace: Path, outside: Path) -> None:
    """Two jails at once must each have their own places, processes and policy."""
    (outside / "f").write_text("outside")
    with Jail(JailPolicy(write=[workspace])) as one, Jail(JailPolicy(read=[outside])) as two:
        one.write_bytes("/tmp/mine", b"one")
        assert not two.exists("/tmp/mine")
        assert one.exists(workspace)
        assert not two.exists(workspace)
        assert two.read_bytes(outside / "f") == b"outside"
        assert not one.exists(outside / "f")


def test_threads_share_one_jail() -> None:
    """Eight threads with twenty-five runs each must get each their own answers."""
    wrong: list[object] = []

    def work(jail: Jail, number: int) -> None:
        for turn in range(25):
            word = f"{number}-{turn}"
            try:
                result = jail.run(
                    ["sh", "-c", f"echo {word}; cat; exit {turn}"], input=word.encode()
                )
                if (result.stdout, result.exit_code) != (f"{word}\n{word}".encode(), turn):
                    wrong.append((word, result))
            except Exception as error:
                wrong.append((word, error))

    with Jail(JailPolicy()) as jail:
        threads = [threading.Thread(target=work, args=(jail, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_ec_01_output_that_is_no_text(workspace: Path) -> None:
    """Bytes that are not UTF-8 must be kept, and shown with replacements."""
    (workspace / "latin-é").write_text("x")
    os.close(os.open(os.fsencode(workspace) + b"/latin-\xe9", os.O_CREAT | os.O_WRONLY))
    with Jail(JailPolicy(read=[workspace])) as jail:
        result = jail.run(["printf", r"a\360(\377\000b"])
        assert result.stdout == b"a\xf0(\xff\x00b"
        assert result.stdout_text == "a\ufffd(\ufffd\x00b"
        random = jail.run(["head", "-c", "100000", "/dev/urandom"])
        assert len(random.stdout) == 100_000
        assert isinstance(random.stdout_text, str)
        assert b"latin-\xe9\n" in jail.run(["ls", str(workspace)]).stdout
        assert "latin-\udce9" in jail.list_dir(workspace)
        assert (
            jail.run(["echo", "gr\u00fc\u00df \U0001f600"]).stdout_text
            == "gr\u00fc\u00df \U0001f600\n"
        )


def test_ux_06_long_and_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR and a workspace of more than 200 characters, not ASCII, must not matter."""
    long = tmp_path.resolve() / ("very long é ü 名前 " * 6).strip() / ("x" * 120)
    (long / "w o r k").mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    workspace = long / "w o r k"
    assert len(os.fsencode(workspace)) > 250
    (workspace / "secret\n").write_text("s")
    with Jail(JailPolicy(write=[workspace], deny=[workspace / "secret\n"])) as jail:
        result = jail.run(["sh", "-c", "pwd; echo x > f; cat f; cat s*"], cwd=workspace)
        assert result.stdout_text == f"{workspace}\nx\n"
        assert b"ermission denied" in result.stderr
        process = jail.spawn(["pwd"], cwd=workspace, pty=True)
        assert process.communicate(timeout=10)[0].decode().strip() == str(workspace)
        assert jail.read_bytes(workspace / "f") == b"x\n"


def test_sc_10_a_program_that_reads_finds_the_end(jail: Jail, tool: Callable[[str], str]) -> None:
    """Stdin must be empty unless given, and the host's own stdin be left alone."""
    tool("git")
    host = """
import os, sys
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
with Jail(JailPolicy()) as jail:
    script = "cat; git clone http://127.0.0.1:9/x; read v; echo rc=$?"
    result = jail.run(["sh", "-c", script], timeout=20)
    print(result.stdout_text.strip(), os.read(0, 100).decode())
"""
    result = subprocess.run(
        [sys.executable, "-c", host],
        input=b"next message",
        capture_output=True,
        check=False,
        timeout=40,
    )
    assert result.stdout.decode().strip() == "rc=1 next message", result.stderr


def test_the_standard_streams_can_be_opened_by_name(jail: Jail) -> None:
    """/dev/stdin, /dev/stdout and /dev/stderr must open, with pipes and without."""
    script = "cat /dev/stdin > /dev/stdout; echo err > /dev/stderr; echo fd > /proc/self/fd/1"
    result = jail.run(["sh", "-c", script], input=b"in\n")
    assert (result.stdout, result.stderr) == (b"in\nfd\n", b"err\n")
    process = jail.spawn(["sh", "-c", script + "; echo $? > /tmp/streams"])
    assert process.wait(timeout=10) == 0
    assert jail.read_bytes("/tmp/streams") == b"0\n"


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        ({"read": ["/var"]}, "/var/tmp"),
        ({"write": ["/var"]}, "/var/tmp"),
        ({"read": ["/home"]}, "HOME"),
        ({"system": "host"}, "HOME"),
        ({"system": "host", "deny": ["/var"]}, "/var/tmp"),
        ({"read": ["/etc"]}, "HOME"),
    ],
)
def test_private_places_inside_grants_stay_private(rules: dict[str, object], place: str) -> None:
    """A rule above one of the jail's own places must not cover it, and the host see nothing."""
    if rules.get("write") and not os.access("/var", os.W_OK):
        pytest.skip("only who can write /var can grant it")
    text = f"""
place = os.environ["HOME"] if {place!r} == "HOME" else {place!r}
answer([opened(place + "/vis-private", os.O_CREAT | os.O_WRONLY), place])
"""
    with Jail(policy_of(**rules)) as jail:
        made, where = inside(jail, text)
    assert made == 0
    assert not os.path.exists(f"{where}/vis-private")


@pytest.mark.parametrize("kind", ["deny", "deny_write"])
def test_a_private_place_can_be_denied(kind: str) -> None:
    """A deny of one of the jail's own places must hold like any other."""
    expected = errno.EACCES if kind == "deny" else errno.EROFS
    text = 'answer([opened("/tmp/x", os.O_CREAT | os.O_WRONLY), opened("/var/tmp/x", os.O_CREAT)])'
    with Jail(policy_of(**{kind: ["/tmp"]})) as jail:
        assert inside(jail, text) == [expected, 0]


def test_the_identity_is_the_callers(jail: Jail) -> None:
    """The report must name under which host uid the guest runs."""
    identity = jail.report.identity
    if is_root():
        assert "host uid" in identity
    else:
        assert identity == f"host uid {os.geteuid()}, the caller's own"
    assert jail_module.Jail is Jail

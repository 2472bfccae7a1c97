"""The command line with real jails: what the user sees, and what the guest cannot do."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import sysconfig
import termios
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-m", "visruntime"]


def visruntime(
    *words: object, cwd: Path, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with *words*, as a user would."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=50,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL),
        (["sh", "-c", "kill -SEGV $$"], 128 + signal.SIGSEGV),
        (["no-such-program"], 127),
        (["/usr/lib"], 126),
    ],
)
def test_exit_codes_of_exec(workspace: Path, words: list[str], code: int) -> None:
    """The exit code tells what became of the program, and ours are those of a shell."""
    done = visruntime("exec", "--", *words, cwd=workspace)
    assert done.returncode == code
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == (1 if code in (126, 127) else 0)


def test_a_timeout_is_124_and_keeps_the_output(workspace: Path) -> None:
    """What the guest said before its time was over must not be lost."""
    before = time.monotonic()
    done = visruntime(
        "exec", "--timeout", "0.5", "--", "sh", "-c", "echo early; sleep 30", cwd=workspace
    )
    assert done.returncode == 124
    assert done.stdout == b"early\n"
    assert time.monotonic() - before < 10


def test_streams_cross_as_bytes(workspace: Path) -> None:
    """Every byte of stdin reaches the guest and comes back unchanged."""
    sent = os.urandom(1_000_000)
    done = visruntime("exec", "--", "sh", "-c", "cat; echo err >&2", cwd=workspace, stdin=sent)
    assert done.stdout == sent
    assert done.stderr == b"err\n"


def test_only_what_is_granted_can_be_reached(workspace: Path, outside: Path) -> None:
    """A file without a grant must not be readable nor writable; with a grant both work."""
    (outside / "secret").write_text("secret\n")
    (workspace / "data").write_text("data\n")
    script = f"cat {outside}/secret; echo x > {outside}/new; cat data; echo y > made"
    unjailed = subprocess.run(
        ["sh", "-c", script.replace("new", "control")],
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    assert (unjailed.stdout, unjailed.stderr) == (b"secret\ndata\n", b"")
    (workspace / "made").unlink()
    done = visruntime("exec", "--write", ".", "--", "sh", "-c", script, cwd=workspace)
    assert done.stdout == b"data\n"
    assert done.stderr.count(b"No such file or directory") + done.stderr.count(b"nonexistent") == 2
    assert not (outside / "new").exists()
    assert (workspace / "made").read_text() == "y\n"


def test_flags_narrow_inside_a_grant(workspace: Path) -> None:
    """Denies inside a grant hold, with the kernel's own errors."""
    for name in ("closed", "fixed", "open"):
        (workspace / name).write_text(name)
    code = (
        "import os\n"
        "for name, flags in (('closed', os.O_RDONLY), ('fixed', os.O_RDONLY),\n"
        "                    ('fixed', os.O_WRONLY), ('open', os.O_WRONLY)):\n"
        "    try:\n"
        "        os.close(os.open(name, flags))\n"
        "        print(name, 'ok')\n"
        "    except OSError as error:\n"
        "        print(name, error.errno)\n"
    )
    python = "/usr/bin/python3"
    if not os.path.exists(python):
        pytest.fail("this test needs /usr/bin/python3")
    words = ["--write", ".", "--deny", "closed", "--deny-write", "fixed"]
    jailed = visruntime("exec", *words, "--", python, "-c", code, cwd=workspace)
    assert jailed.stdout.splitlines() == [b"closed 13", b"fixed ok", b"fixed 30", b"open ok"]
    plain = subprocess.run([python, "-c", code], cwd=workspace, capture_output=True, check=True)
    assert plain.stdout.count(b"ok") == 4


def test_the_environment_is_built_not_inherited(workspace: Path) -> None:
    """A variable must cross only if it is named."""
    done = visruntime(
        "exec", "--env", "SHOWN", "--env", "A_TOKEN", "--env", "GIVEN=g", "--", "env",
        cwd=workspace, SHOWN="s", HIDDEN="h", A_TOKEN="t",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert {b"SHOWN=s", b"GIVEN=g", b"A_TOKEN=t"} <= set(lines)
    assert not [line for line in lines if b"HIDDEN" in line]


def test_the_report_says_what_enforced_what(workspace: Path, outside: Path) -> None:
    """The report holds clauses, canaries that held, and the measured end."""
    file = outside / "report.json"
    done = visruntime(
        "exec", "--write", ".", "--report", file, "--", "sh", "-c", "exit 3", cwd=workspace
    )
    assert done.returncode == 3
    report = json.loads(file.read_text())
    assert report["backend"] == report["enforcement"] == "namespaces"
    assert report["jailed"] is True
    assert report["exit"] == {"code": 3, "signal": None, "stopped_by": None}
    assert report["canaries"]
    assert all(canary["held"] for canary in report["canaries"])
    clauses = {clause["clause"]: clause["mechanisms"] for clause in report["clauses"]}
    assert clauses["write[0]"]
    assert clauses["egress"]
    assert report["usage"]["wall_seconds"] > 0
    assert report["violations"] == []
    done = visruntime("exec", "--report", file, "--", "sh", "-c", "kill -9 $$", cwd=workspace)
    assert json.loads(file.read_text())["exit"] == {
        "code": None, "signal": 9, "stopped_by": None,
    }  # fmt: skip
    visruntime("exec", "--report", file, "--timeout", "0.2", "--", "sleep", "9", cwd=workspace)
    assert json.loads(file.read_text())["exit"]["stopped_by"] == "timeout"
    visruntime("exec", "--report", file, "--", "no-such-program", cwd=workspace)
    assert "no-such-program" in json.loads(file.read_text())["error"]


def test_a_policy_file_in_reach_of_the_guest_stays_as_it_is(workspace: Path) -> None:
    """The guest must not rewrite the policy that it runs under."""
    (workspace / "p.toml").write_text('write = ["."]\n')
    script = "echo x >> p.toml; echo $?; echo x > other; echo $?"
    done = visruntime("exec", "--policy", "p.toml", "--", "sh", "-c", script, cwd=workspace)
    codes = done.stdout.split()
    assert codes[0] != b"0"
    assert codes[1] == b"0"
    assert (workspace / "p.toml").read_text() == 'write = ["."]\n'


def test_an_interrupt_ends_the_guest(workspace: Path) -> None:
    """Ctrl-C must end what was started, with the code of the signal."""
    with subprocess.Popen(
        [*COMMAND, "exec", "--", "sh", "-c", "echo up; exec sleep 40"],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 128 + signal.SIGINT


def test_a_path_of_any_bytes_is_answered(workspace: Path) -> None:
    """A path that is no text must be neither a traceback nor raw bytes on the terminal."""
    done = subprocess.run(
        [*map(os.fsencode, COMMAND), b"why", b"read", b"/srv/\xff\x1b"],
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b""
    assert done.stdout.startswith(b"denied: ")
    assert b"\x1b" not in done.stdout
    done = subprocess.run(
        [*map(os.fsencode, COMMAND), b"exec", b"--", b"\xff"],
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 127


def test_missing_streams_are_filled(workspace: Path) -> None:
    """A caller that closed 0, 1 and 2 must not get another file in their place."""
    words = " ".join([*COMMAND, "exec", "--write", ".", "--", "sh", "-c", "'echo x; echo y > f'"])
    done = subprocess.run(
        ["sh", "-c", f"exec {words} <&- >&- 2>&-"], cwd=workspace, check=False, timeout=50
    )
    assert done.returncode == 0
    assert (workspace / "f").read_text() == "y\n"


# run


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('bad')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV),
        ("print('fine')", 0),
    ],
)
def test_exit_codes_of_run(workspace: Path, code: str, expected: int) -> None:
    """A script's end is told as python tells it."""
    assert visruntime("run", "-c", code, cwd=workspace).returncode == expected


def test_run_prints_as_python_does(workspace: Path) -> None:
    """Output, traceback and arguments are the interpreter's own; the script needs no grant."""
    (workspace / "s.py").write_text(
        "import sys\nprint(sys.argv, __name__)\nprint('e', file=sys.stderr)\n"
        "try:\n    open(__file__)\nexcept OSError as error:\n    print(error.errno)\n1 / 0\n"
    )
    words = ["s.py", "a", "--write", "/"]
    plain = subprocess.run(
        [sys.executable, *words], cwd=workspace, capture_output=True, check=False
    )
    done = visruntime("run", *words, cwd=workspace)
    assert done.returncode == plain.returncode == 1
    assert done.stdout == plain.stdout + b"2\n"
    named = plain.stderr.replace(b'File "s.py"', f'File "{workspace}/s.py"'.encode())
    assert done.stderr == named


def test_run_reads_code_from_stdin_and_shows_output_at_once(workspace: Path) -> None:
    """What is printed must be seen before the script ends."""
    code = b"import time\nprint('now', flush=True)\ntime.sleep(30)\n"
    with subprocess.Popen(
        [*COMMAND, "run", "-"], cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(code)
        process.stdin.close()
        assert process.stdout.readline() == b"now\n"
        process.kill()


def test_run_gets_stdin_that_is_no_terminal(workspace: Path) -> None:
    """A script must get every byte that is piped to it, and see the end."""
    sent = os.urandom(1_000_000)
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    done = visruntime("run", "-c", code, cwd=workspace, stdin=sent)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == sent
    done = visruntime("run", "-c", "print(input())", cwd=workspace, stdin=b"a line\nmore\n")
    assert done.stdout == b"a line\n"


def test_run_does_not_wait_for_stdin(workspace: Path) -> None:
    """A script that has ended must not be held by a pipe that stays open, empty or full."""
    for given in (b"", b"x" * 50_000):
        with subprocess.Popen(
            [*COMMAND, "run", "-c", "print('done')"],
            cwd=workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(given)
            process.stdin.flush()
            assert process.stdout.readline() == b"done\n"
            assert process.wait(timeout=20) == 0


def test_run_gets_no_descriptor_of_ours(workspace: Path, outside: Path) -> None:
    """A file that we have open for both directions must not be writable through stdin."""
    file = outside / "data"
    file.write_text("data\n")
    code = (
        "import os, sys\nprint(sys.stdin.readline().strip())\n"
        "for act in (lambda: os.write(0, b'x'), lambda: os.ftruncate(0, 0)):\n"
        "    try:\n        print(act())\n"
        "    except OSError as error:\n        print(error.errno)\n"
    )
    with file.open("r+b") as both:
        plain = subprocess.run(
            [sys.executable, "-c", code], stdin=both, capture_output=True, check=True
        )
        assert plain.stdout == b"data\n1\nNone\n"
        file.write_text("data\n")
        both.seek(0)
        jailed = subprocess.run(
            [*COMMAND, "run", "-c", code],
            stdin=both,
            cwd=workspace,
            capture_output=True,
            check=True,
        )
    assert jailed.stdout == b"data\n9\n22\n"
    assert file.read_text() == "data\n"


@pytest.mark.parametrize(
    ("backend", "reason"), [("landlock", b"limits.processes"), ("no-such", b"--backend")]
)
def test_run_refuses_another_back_end(workspace: Path, backend: str, reason: bytes) -> None:
    """A back end that is asked for is taken or refused, never replaced in silence."""
    done = visruntime("run", "--backend", backend, "-c", "print(1)", cwd=workspace)
    assert (done.returncode, done.stdout) == (125, b"")
    assert reason in done.stderr
    done = visruntime("run", "--backend", "namespaces", "-c", "print(1)", cwd=workspace)
    assert (done.returncode, done.stdout) == (0, b"1\n")


def test_run_names_the_read_that_a_neighbour_needs(workspace: Path) -> None:
    """A sibling import fails without a grant, says which, and works with it."""
    (workspace / "s.py").write_text("import helper\nprint(helper.x)\n")
    (workspace / "helper.py").write_text("x = 5\n")
    done = visruntime("run", "s.py", cwd=workspace)
    assert done.returncode == 1
    assert f"--read {workspace}".encode() in done.stderr
    done = visruntime("run", "--read", workspace, "s.py", cwd=workspace)
    assert (done.returncode, done.stdout) == (0, b"5\n")


def test_run_stops_at_its_timeout(workspace: Path, outside: Path) -> None:
    """A loop without end is 124 and one line, also where the guest then leaves with another code."""
    leaves = "try:\n while True: pass\nexcept BaseException:\n import os; os._exit(0)"
    file = outside / "report.json"
    for code in ("while True: pass", leaves):
        done = visruntime("run", "--report", file, "--timeout", "0.5", "-c", code, cwd=workspace)
        assert done.returncode == 124
        assert b"timed out" in done.stderr
        assert json.loads(file.read_text())["exit"] == {
            "code": None,
            "signal": None,
            "stopped_by": "timeout",
        }


def test_run_writes_a_report(workspace: Path, outside: Path) -> None:
    """A worker's run is reported as a program's is."""
    file = outside / "report.json"
    visruntime("run", "--report", file, "-c", "import sys; sys.exit(4)", cwd=workspace)
    report = json.loads(file.read_text())
    assert report["exit"]["code"] == 4
    assert report["backend"] == "namespaces"
    assert all(canary["held"] for canary in report["canaries"])


def test_run_takes_the_options_of_a_worker(workspace: Path, outside: Path) -> None:
    """Each flag refuses what it says, by the layer that it says, and nothing else does."""
    file = outside / "report.json"
    start = "import subprocess; print(subprocess.run(['true']).returncode)"
    load = "import ctypes; print(bool(ctypes.CDLL(None)))"
    module = (
        sysconfig.get_config_var("DESTSHARED") + "/_json" + sysconfig.get_config_var("EXT_SUFFIX")
    )
    copy = f"import shutil, sys\nshutil.copy({module!r}, 'mine.so')\n"
    copy += "import importlib.util as u\ns = u.spec_from_file_location('_json', 'mine.so')\n"
    copy += "print(bool(u.module_from_spec(s)))"
    for code, flags in (
        (start, ["--no-processes"]),
        (load, ["--no-ctypes"]),
        (copy, ["--native-modules", "read-only"]),
    ):
        free = ["--native-modules=anywhere"]
        assert visruntime("run", "--write", ".", *free, "-c", code, cwd=workspace).returncode == 0
        done = visruntime(
            "run", "--write", ".", *flags, "--report", file, "-c", code, cwd=workspace
        )
        assert done.returncode == 1
        rule = {"--no-processes": "processes=False", "--no-ctypes": "ctypes=False"}.get(
            flags[0], 'native_modules="read-only"'
        )
        assert f"(rule: {rule})".encode() in done.stderr
        clauses = {c["clause"]: c["mechanisms"] for c in json.loads(file.read_text())["clauses"]}
        expected = {"--no-processes": ["seccomp in the worker"], "--no-ctypes": ["audit hook"]}
        assert clauses.get(rule) == expected.get(flags[0])


# Terminals


class Session:
    """The command on a terminal."""

    def __init__(self, words: list[str], cwd: Path, **variables: str) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (33, 111))
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        os.close(slave)
        self.seen = b""

    def until(self, words: bytes) -> bytes:
        """Read until *words* appear; fail after 20 s."""
        deadline = time.monotonic() + 20
        while words not in self.seen:
            left = max(deadline - time.monotonic(), 0)
            assert select.select([self.master], [], [], left)[0], self.seen
            self.seen += os.read(self.master, 65536)
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, keys: bytes) -> None:
        """Press *keys*."""
        os.write(self.master, keys)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def shell(workspace: Path) -> Iterator[Session]:
    """A jailed shell on a terminal."""
    session = Session(["shell", "--write", "."], workspace, SHELL="/bin/bash", PS1="> ")
    yield session
    session.close()


def test_shell_is_interactive_with_jobs_and_size(shell: Session, workspace: Path) -> None:
    """A shell in a jail has a terminal of its own: its size, job control and Ctrl-C work."""
    shell.type(b"echo $((6*7)); stty size; pwd\r")
    shell.until(b"42\r\n")
    shell.until(b"33 111")
    shell.until(str(workspace).encode())
    shell.type(b"sleep 40\r")
    time.sleep(0.3)
    shell.type(b"\x03")
    shell.type(b"echo rc=$?\r")
    shell.until(b"rc=130")
    shell.type(b"sleep 40 &\r")
    shell.type(b"kill %1; wait; tty; exit 6\r")
    shell.until(b"/dev/pts/")
    assert shell.process.wait(timeout=20) == 6


def test_exec_on_a_terminal_gives_a_terminal(workspace: Path) -> None:
    """On a terminal the guest gets one of its own; with --no-tty it gets pipes."""
    for flags, answer in (([], b"is a tty"), (["--no-tty"], b"is none")):
        script = "if test -t 1; then echo is a tty; else echo is none; fi"
        session = Session(["exec", *flags, "--", "sh", "-c", script], workspace)
        try:
            session.until(answer)
            assert session.process.wait(timeout=20) == 0
        finally:
            session.close()


def test_pipes_to_a_terminal_are_cleaned(workspace: Path) -> None:
    """Without a terminal of its own a guest must not steer ours."""
    script = "printf 'a\\033[31mb\\n'"
    session = Session(["exec", "--no-tty", "--", "sh", "-c", script], workspace)
    try:
        assert session.until(b"b\r\n") == b"a\\x1b[31m"
    finally:
        session.close()


def test_a_signal_ends_a_terminal_session(workspace: Path) -> None:
    """SIGTERM must end the guest and leave the user's terminal as it was."""
    session = Session(["exec", "--tty", "--", "sh", "-c", "trap '' TERM; echo up; cat"], workspace)
    try:
        session.until(b"up")
        assert not termios.tcgetattr(session.master)[3] & termios.ECHO
        session.process.send_signal(signal.SIGTERM)
        assert session.process.wait(timeout=20) == 128 + signal.SIGTERM
        assert termios.tcgetattr(session.master)[3] & termios.ECHO
    finally:
        session.close()


def test_a_timeout_ends_a_terminal_that_is_typed_at(workspace: Path) -> None:
    """Typing at a guest that does not read must not hold off its end."""
    script = "stty raw -echo; echo up; exec sleep 60"
    session = Session(["exec", "--tty", "--timeout", "2", "--", "sh", "-c", script], workspace)
    try:
        session.until(b"up")
        os.set_blocking(session.master, False)
        deadline = time.monotonic() + 20
        while session.process.poll() is None and time.monotonic() < deadline:
            with suppress(BlockingIOError):
                os.write(session.master, b"x" * 1000)
            time.sleep(0.01)
        assert session.process.returncode == 124
    finally:
        session.close()


def test_run_gets_no_terminal(workspace: Path) -> None:
    """A script on a terminal must find its stdin at the end, not our keys."""
    code = "import sys; print('read', len(sys.stdin.read()), sys.stdin.isatty())"
    session = Session(["run", "-c", code], workspace)
    try:
        session.type(b"keys\r")
        session.until(b"read 0 False")
        assert session.process.wait(timeout=20) == 0
    finally:
        session.close()


@pytest.mark.parametrize(
    ("code", "status", "exit_"),
    [
        ("import os; os._exit(137)", 137, {"code": 137, "signal": None}),
        ("import os; os.kill(os.getpid(), 9)", 137, {"code": None, "signal": 9}),
        ("import sys; sys.exit(143)", 143, {"code": 143, "signal": None}),
    ],
)
def test_a_report_names_a_signal_only_if_there_was_one(
    workspace: Path, outside: Path, code: str, status: int, exit_: dict[str, int | None]
) -> None:
    """A worker can leave with any exit code, and that is no measured signal."""
    file = outside / "report.json"
    done = visruntime("run", "--report", file, "-c", code, cwd=workspace)
    assert done.returncode == status
    assert json.loads(file.read_text())["exit"] == exit_ | {"stopped_by": None}

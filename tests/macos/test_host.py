"""The host's side of Seatbelt, with a sandbox that only marks: how programs start and end.

What runs here is the code of macOS on calls of macOS that are made of Linux
(``tests/native/darwin``). It shows nothing of what Seatbelt holds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from darwin_build import build_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY: dict[str, Any] = (
    {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
)
TIMEOUT = 20
IN_ANOTHER = ("prlimit", "--msgqueue=5", "--")
"""Starts a program in another sandbox, as these marks go."""


class Host:
    """The probe of a build, and the lines of its policy."""

    def __init__(self, out: Path, folder: Path) -> None:
        self.probe = str(out / "macos-probe")
        self.folder = folder
        self.lines = [
            f"helper\t{out}/visjail-macos-init",
            f"watcher\t{out}/visjail-macos-watch",
        ]

    def command(self, word: str, *program: str, more: tuple[str, ...] = ()) -> list[str]:
        """Return the command that does *word* with *program*; later lines of a policy win."""
        policy = self.folder / f"policy-{time.monotonic_ns()}"
        policy.write_text("".join(f"{line}\n" for line in (*self.lines, *more)))
        policy.chmod(0o644)
        return [self.probe, word, str(policy), *program]

    def do(
        self,
        word: str,
        *program: str,
        more: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        settings = {"stdin": subprocess.DEVNULL, **NOBODY, **options}
        asked = [self.probe, word, *program] if word == "path" else None
        return subprocess.run(
            [*before, *(asked or self.command(word, *program, more=more))],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            **settings,
        )


@pytest.fixture
def host(programs: Path) -> Iterator[Host]:
    """Give each test policies of its own."""
    with tempfile.TemporaryDirectory(prefix="vj", dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Host(programs / "bin", Path(name))


def is_gone(process: int, seconds: float) -> bool:
    """Tell whether a process has ended, or does so within *seconds*."""
    until = time.monotonic() + seconds
    while True:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)


def test_a_program_gets_what_is_named_and_nothing_else(host: Host) -> None:
    """No variable, signal, session or limit of the host may reach the program."""
    code = "env; ulimit -n; ulimit -c; pwd; ps -o sid= -p $$ | tr -d ' '; echo $$; exit 7"
    done = host.do(
        "run", "/bin/sh", "-c", code,
        more=("variable\tPATH=/usr/bin:/bin", "variable\tA=b c", f"directory\t{host.folder}"),
        env={"LEAK": "1", "DYLD_INSERT_LIBRARIES": "/x"},
    )  # fmt: skip
    *rest, session, process = done.stdout.split("\n")[:-1]
    variables = {
        line for line in rest[:-3] if not line.startswith(("PWD=", "_=", "OLDPWD=", "SHLVL="))
    }
    assert variables == {"PATH=/usr/bin:/bin", "A=b c"}
    assert rest[-3:] == ["64", "0", str(host.folder)]
    assert session == process
    assert done.returncode == 7


def test_the_end_by_a_signal_is_told(host: Host) -> None:
    """A program that was killed must not look like one that ended."""
    assert host.do("run", "/bin/sh", "-c", "kill -9 $$").returncode == 128 + 9


@pytest.mark.parametrize(
    ("stage", "program", "more"),
    [
        ("execute", "/nowhere/program", ()),
        ("execute", "/etc/passwd", ()),
        ("working directory", "/bin/true", ("directory\t/nowhere",)),
        ("request", "bin/true", ()),
        ("process", "/bin/true", ("helper\t/nowhere/helper",)),
        ("process", "/bin/true", ("watcher\t/nowhere/watcher",)),
        ("supervisor", "/bin/true", ("helper\t/bin/false",)),
        ("supervisor", "/bin/true", ("helper\t/bin/cat",)),
        ("request", "/bin/true", ("helper\tvisjail-macos-init",)),
        ("sandbox: line 1", "/bin/true", ("service\tcom.example.not-compiled",)),
        ("canaries", "/bin/true", ("canary\t/etc/passwd", "service\tcom.example.leaks-r")),
        ("plan", "/bin/true", ("deny\t/dev/null",)),
    ],
)
def test_what_fails_is_told_by_its_stage(
    host: Host, stage: str, program: str, more: tuple[str, ...]
) -> None:
    """No step may fail quietly, and none may leave the program running."""
    done = host.do("run", program, more=more)
    assert (done.returncode, done.stdout) == (125, "")
    assert f": {stage}" in done.stderr


def test_a_jail_whose_processes_could_not_be_found_does_not_start(host: Host) -> None:
    """The marker must be known to the kernel, and nothing else, before the program begins."""
    for service, words in (
        ("com.example.no-marker", "the jail's marker cannot be looked up"),
        ("com.example.every-name", "names that are not granted can be looked up"),
    ):
        done = host.do("run", "/bin/echo", "ran", more=(f"service\t{service}",))
        assert (done.returncode, done.stdout) == (125, "")
        assert f"start: sandbox: {words}" in done.stderr


def test_a_macos_that_lacks_a_call_is_named(host: Host) -> None:
    """A guest must not get what the user let the host do, where macOS cannot part them."""
    lacks = {"DARWIN_LACKS": "responsibility_spawnattrs_setdisclaim"}
    done = host.do("run", "/bin/echo", "ran", env=lacks)
    assert (done.returncode, done.stdout) == (125, "")
    assert "no process that answers for itself" in done.stderr


def test_the_spelling_of_a_path(host: Host) -> None:
    """A rule must not be about one spelling where the kernel may find another."""
    folder = host.folder / "Real"
    folder.mkdir()
    (host.folder / "link").symlink_to("Real")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    for asked, real in (("link", "Real"), ("Real/s", "Real/s")):
        done = host.do("path", str(host.folder / asked))
        assert done.stdout == f"/private{host.folder}/{real}\n", done.stderr
    listener.close()
    (host.folder / "two-spellings").mkdir()
    for name, word in (("two-spellings", "in two ways"), ("none", "No such file")):
        done = host.do("path", str(host.folder / name))
        assert (done.returncode, done.stdout) == (125, "")
        assert word in done.stderr


def test_a_terminal_of_its_own(host: Host) -> None:
    """The program must have the terminal as its controlling one, of the size that was asked for."""
    code = "stty size; : >/dev/tty && echo mine; exit 3"
    done = host.do("terminal", "/bin/sh", "-c", code, more=("variable\tPATH=/usr/bin:/bin",))
    assert done.stdout.split() == ["30", "100", "mine"]
    assert done.returncode == 3


def test_a_large_brief_crosses(host: Host) -> None:
    """What is more than a pipe holds must arrive whole."""
    more = tuple(f"variable\tV{number}={'x' * 4000}" for number in range(100))
    done = host.do("run", "/usr/bin/env", more=more)
    assert done.stdout.count("x" * 4000) == 100


def test_a_jail_is_ended_with_whoever_left(host: Host) -> None:
    """A process of another session, without parent, deaf to SIGTERM, must not stay."""
    done = host.do("end", host.probe, "leave")
    process, left, _ = done.stdout.split("\n")
    assert left == "left 0"
    assert is_gone(int(process), 0)


def test_who_is_only_left_to_be_reaped_hides_nobody(host: Host) -> None:
    """With a program on the machine that nobody reaps, the end of a jail must still be sure."""
    other = subprocess.Popen(["/bin/true"], **NOBODY)
    try:
        assert is_gone(other.pid, TIMEOUT)
        done = host.do("end", host.probe, "leave")
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        other.wait(TIMEOUT)


def test_others_are_left_alone(host: Host) -> None:
    """A process of the same user that is in no sandbox, or in another one, must live on."""
    others = [
        subprocess.Popen([*before, "/bin/sleep", "60"], **NOBODY) for before in ((), IN_ANOTHER)
    ]
    try:
        assert "left 0" in host.do("end", host.probe, "leave").stdout
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.wait(TIMEOUT)


@pytest.mark.parametrize("forked", [False, True])
def test_nothing_outlives_a_killed_host(host: Host, *, forked: bool) -> None:
    """The jail must end with its host, also while a child of the host lives on."""
    command = host.command("run", host.probe, "leave")
    if forked:  # a copy of all descriptors of the host, as a child that it forked would have
        command = ["/bin/sh", "-c", 'sleep 30 & echo $!; exec "$@"', "sh", *command]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **NOBODY
    )
    assert process.stdout is not None
    sleeper = int(process.stdout.readline()) if forked else 0
    left = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(TIMEOUT)
    assert is_gone(left, 1)
    process.stdout.close()
    if sleeper:
        os.kill(sleeper, signal.SIGKILL)


def test_the_watcher_ends_what_its_host_could_not(host: Host) -> None:
    """A host that gave a jail up must not have ended the one that can still end it."""
    done = host.do("give-up", host.probe, "leave")
    assert done.returncode == 0
    left = int(done.stdout)
    try:
        assert is_gone(left, 2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


def test_no_jail_in_a_sandbox(host: Host) -> None:
    """VP14: from within a sandbox nothing is started, and no variable makes one believe in it."""
    marker = {"APP_SANDBOX_CONTAINER_ID": "x", "SANDBOX": "1"}
    assert host.do("run", "/bin/true", env=marker).returncode == 0

    done = host.do("run", "/bin/echo", "ran", before=IN_ANOTHER)
    assert (done.returncode, done.stdout) == (125, "")
    assert "sandbox around the host" in done.stderr
    assert host.do("where", before=IN_ANOTHER).stdout == "in a sandbox\n"
    assert host.do("where").stdout == "in no sandbox\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as root")
def test_a_caller_that_is_root_is_refused(host: Host) -> None:
    """No guest may be root."""
    done = host.do("run", "/bin/true", user=None, group=None, extra_groups=None)
    assert done.returncode == 125
    assert "ordinary user" in done.stderr


@pytest.mark.skipif(not os.environ.get("VIS_FULL"), reason="thousands of processes are looked at")
def test_whatever_fails_at_the_start_leaves_nothing(programs: Path) -> None:
    """Each call of the system fails once: no process and no descriptor may stay, and it is told."""
    build_faults(programs)
    tools = [str(programs / "bin" / f"visjail-macos-{name}") for name in ("init", "watch")]
    done = subprocess.run(
        [str(programs / "macos-faults"), *tools],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        **NOBODY,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 20

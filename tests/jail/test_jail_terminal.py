"""Terminal sessions: preview, run, input, resize, kill, restart, and what they show."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy, Secret, until

from visruntime.errors import CommandError, CommandNotFound, CommandTimeout, JailClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from visruntime.jail import JailProcess

ROUNDS = 300 if os.environ.get("VIS_FULL") else 40
FLOOD = 64 << 20


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """Return a jail without any grant."""
    with Jail(JailPolicy(env={"TOKEN": Secret("not to be shown")})) as opened:
        yield opened


def sees(session: object, text: bytes) -> bool:
    """Tell whether *text* is in the output by now."""
    return until(lambda: text in session.output)  # type: ignore[attr-defined]


def test_preview_starts_nothing_and_shows_no_value(jail: Jail) -> None:
    """A preview must tell command, folder, size and names, while nothing runs."""
    with jail.terminal(["sh", "-c", "echo on"], rows=30, cols=99, env={"X": "y"}) as session:
        preview = session.preview()
        assert (preview.state, preview.reason) == ("ready", None)
        assert preview.command == ("sh", "-c", "echo on")
        assert (preview.rows, preview.cols, preview.cwd) == (30, 99, "/home/user")
        assert {"TOKEN", "X", "TERM"} <= set(preview.environment)
        assert "not to be shown" not in repr(preview)
        assert session.state == "ready"
        assert session.result is None
        assert jail.processes() == ()


def test_without_a_terminal_the_preview_says_so() -> None:
    """F19: when no terminal is left the state is "unavailable", reason "pty_unavailable"."""
    with Jail(JailPolicy()) as jail:
        held: list[JailProcess] = []
        with pytest.raises(CommandError, match="no terminal"):
            held.extend(jail.spawn(["sleep", "60"], pty=True) for _ in range(65))
        preview = jail.terminal(["true"]).preview()
        assert (preview.state, preview.reason) == ("unavailable", "pty_unavailable")
        with pytest.raises(CommandError, match="no terminal"):
            jail.terminal(["true"]).run()
        for process in held:
            process.close()
        assert jail.terminal(["true"]).preview().state == "ready"


def test_a_conversation(jail: Jail) -> None:
    """What is typed must arrive, and what is shown be there, as bytes and as plain text."""
    with jail.terminal(["sh"], rows=30, cols=99) as session:
        session.run()
        session.input("stty size; printf '\\033[31mred\\033[0m\\n'\r")
        assert sees(session, b"30 99")
        assert sees(session, b"\x1b[31mred\x1b[0m\r\n")
        assert "\nred\n" in session.text
        assert "\x1b" not in session.text
        session.resize(40, 100)
        session.input(b"stty size; exit 7\r")
        result = session.wait(10)
        assert b"40 100" in result.stdout
        assert (result.exit_code, result.stopped_by) == (7, None)
        assert result.stdout == session.output
        assert session.state == "ended"
        assert result.report is jail.report


def test_only_one_runs_at_a_time(jail: Jail) -> None:
    """A second start must be refused, from whatever thread, unless it names the same key."""
    with jail.terminal(["sleep", "60"]) as session:
        session.run(key="first")
        session.run(key="first")
        started = session.process
        refused = []

        def start() -> None:
            with pytest.raises(CommandError, match="runs already; use restart"):
                session.run()
            refused.append(True)

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 4
        assert session.process is started


def test_restart_forgets_what_was_shown(jail: Jail) -> None:
    """A restart must end the old program with all that it started, and show only the new one."""
    with jail.terminal(["sh", "-c", "sleep 60 & echo shell $$; read x"]) as session:
        session.run()
        assert sees(session, b"shell")
        first = session.process
        session.restart(key="again")
        session.restart(key="again")
        assert first is not None
        assert first.returncode == -9
        assert sees(session, b"shell")
        assert session.output.count(b"shell") == 1
        assert until(lambda: {found.name for found in jail.processes()} == {"sh", "sleep"})
        result = session.kill()
        assert result is not None
        assert (result.exit_code, result.signal, result.stopped_by) == (None, 9, "killed")
        assert jail.processes() == ()


def test_input_waits_in_a_host_of_many_descriptors(jail: Jail) -> None:
    """A terminal whose descriptor select(2) cannot take must still be waited for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= 2048
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    many: list[int] = []
    try:
        while not many or many[-1] < 1024:
            many.append(os.open("/dev/null", os.O_RDONLY))
        with jail.terminal(["sleep", "60"]) as session:
            session.run()
            session.input("a whole line\r")  # without one the terminal drops what is too much
            with pytest.raises(CommandTimeout, match=r"typed \d+ of 65536 bytes"):
                session.input(b"y" * 65536, timeout=0.3)
            session.kill()
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_input_without_a_limit_of_time(jail: Jail) -> None:
    """Where nobody reads what is typed, it must wait until the program ends, and fail then."""
    with jail.terminal(["sleep", "60"]) as session:
        session.run()
        session.input("a whole line\r", timeout=None)
        begin = time.monotonic()
        end = threading.Timer(0.4, session.kill)
        end.start()
        with pytest.raises(CommandError, match="does not run"):
            session.input(b"y" * 65536, timeout=None)
        assert 0.3 < time.monotonic() - begin < 5
        end.join(5)


def test_input_is_checked(jail: Jail) -> None:
    """F20: NUL and overlong input must be refused; a program that reads nothing, be named."""
    with jail.terminal(["sleep", "60"]) as session:
        with pytest.raises(CommandError, match="does not run"):
            session.input("early")
        session.run()
        with pytest.raises(ValueError, match="NUL"):
            session.input("a\0b")
        with pytest.raises(ValueError, match="at most 65536"):
            session.input(b"x" * 65537)
        session.input("stty\r")
        begin = time.monotonic()
        with pytest.raises(CommandTimeout, match=r"typed \d+ of 65536 bytes"):
            session.input(b"y" * 65536, timeout=0.3)
        assert time.monotonic() - begin < 5
        session.kill()
        with pytest.raises(CommandError, match="does not run"):
            session.input("late")


def test_output_is_bounded_by_bytes_and_by_lines(jail: Jail) -> None:
    """F21: of a flood the last part must be kept, and all of it be counted."""
    flood = "import sys; sys.stdout.write('0123456789abcde' * (FLOOD // 15)); print('the end')"
    code = flood.replace("FLOOD", str(FLOOD))
    with jail.terminal([PYTHON, "-c", code], max_bytes=5000) as session:
        session.run()
        result = session.wait(120)
        assert session.output.endswith(b"the end\r\n")
        assert len(session.output) == 5000
        assert result.stdout_total == session.total == FLOOD // 15 * 15 + len("the end\r\n")
        assert result.truncated
    with jail.terminal(["seq", "1000"], max_lines=3) as session:
        session.run()
        assert session.wait(10).stdout == b"998\r\n999\r\n1000\r\n"


def test_reading_goes_on_where_it_stopped(jail: Jail) -> None:
    """`read` must give each byte once, wait for more, and end with nothing."""
    with jail.terminal(["sh", "-c", "echo one; read x; echo two"]) as session:
        session.run()
        data = b""
        while b"one\r\n" not in data:
            data += session.read(10)
        with pytest.raises(CommandTimeout, match="wrote nothing"):
            session.read(0.05)
        session.input("\r")
        while piece := session.read(10):
            data += piece
        assert data == b"one\r\n\r\ntwo\r\n"
        assert session.read(0) == b""


def test_the_last_bytes_are_never_lost(jail: Jail) -> None:
    """A program that writes and ends at once must have all of it kept, every time."""
    code = "import os; os.write(1, b'x' * 200000 + b'LAST'); os._exit(0)"
    with jail.terminal([PYTHON, "-c", code]) as session:
        for _ in range(ROUNDS):
            session.run()
            assert session.wait(30).stdout == b"x" * 200000 + b"LAST"


TAKE_AND_WRITE = """
import os, socket, time
server = socket.socket(socket.AF_UNIX); server.bind("/tmp/handed"); server.listen()
_, (terminal,), _, _ = socket.recv_fds(server.accept()[0], 1, 1)
while True:
    try: os.write(terminal, b"held ")
    except OSError: time.sleep(0.01)  # the session has let go of it, which ends nobody else
"""
HAND_OVER = """
import os, socket, time
while not os.path.exists("/tmp/handed"): time.sleep(0.01)
time.sleep(0.05)
client = socket.socket(socket.AF_UNIX); client.connect("/tmp/handed")
socket.send_fds(client, [b"x"], [1])
input(); print("bye")
"""


def test_a_terminal_that_another_run_holds_open(jail: Jail) -> None:
    """The end must come although a stranger keeps writing to the terminal."""
    with (
        jail.spawn([PYTHON, "-c", TAKE_AND_WRITE]) as holder,
        jail.terminal([PYTHON, "-c", HAND_OVER]) as session,
    ):
        session.run()
        assert sees(session, b"held held held")
        session.input("\r")
        result = session.wait(20)
        assert (result.exit_code, result.stopped_by) == (0, None)
        assert holder.poll() is None


def test_a_time_limit_and_an_unknown_program(jail: Jail) -> None:
    """Ends by the host must be named; a program that is not there must raise where it starts."""
    with jail.terminal(["sleep", "60"], timeout=0.2) as session:
        session.run()
        assert session.wait(10).stopped_by == "timeout"
    with pytest.raises(CommandNotFound):
        jail.terminal(["no-such-program"]).run()
    with pytest.raises(TypeError, match="command is a list"):
        jail.terminal("sh")
    with pytest.raises(ValueError, match="at least 1"):
        jail.terminal(["sh"], max_bytes=0)


def test_closing_the_jail_ends_the_session() -> None:
    """A jail that closes must end its sessions, with the output so far and no thread left."""
    jail = Jail(JailPolicy())
    session = jail.terminal(["sh", "-c", "echo here; sleep 60"])
    session.run()
    assert sees(session, b"here")
    jail.close()
    result = session.wait(10)
    assert (result.signal, result.stopped_by) == (9, "closed")
    assert b"here" in session.output
    with pytest.raises(JailClosed):
        session.restart()
    assert not [t for t in threading.enumerate() if t.name == "visruntime-terminal"]


def test_sessions_leave_no_descriptor_and_no_process(jail: Jail) -> None:
    """Many runs of a session must leave nothing behind in the host."""
    session = jail.terminal(["sh", "-c", "sleep 60 & echo x"])
    session.run()
    session.wait(10)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        session.restart()
        session.wait(10)
    session.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert jail.processes() == ()

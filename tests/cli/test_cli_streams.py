"""Bytes between our descriptors and a guest's: all of them, in both directions, to the end.

`subprocess.Popen` has the names of a jailed process, so that the relays can be tried alone.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

RELAY = """
import fcntl, os, subprocess, sys, termios
from visruntime._native import write_quietly
from visruntime.cli.streams import Stopped, forwarded_signals, relay_pipes

class Streams:
    read, write = staticmethod(os.read), staticmethod(write_quietly)
    def pending(self, pipe):
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)

class Process(subprocess.Popen):
    _run = Streams()

    def fileno(self):
        return self.pidfd

process = Process(
    sys.argv[1:], bufsize=0, start_new_session=True,
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
)
lowest = os.pidfd_open(process.pid)
process.pidfd = fcntl.fcntl(lowest, fcntl.F_DUPFD_CLOEXEC, 3)
os.close(lowest)
try:
    with forwarded_signals(process):
        relay_pipes(process)
        code = process.wait()
except Stopped as stop:
    sys.exit(128 + stop.number)
sys.exit(code if code >= 0 else 128 - code)
"""

RELAY_TERMINAL = """
import fcntl, os, pty, struct, subprocess, sys, termios
from visruntime.cli.streams import Stopped, ending_signals, relay_terminal, terminal_size

class Process(subprocess.Popen):
    def resize(self, rows, columns):
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def fileno(self):
        return self.pidfd

master, slave = pty.openpty()
# The program must not outlive this relay, which the tests end with SIGKILL.
command = ["setpriv", "--pdeathsig", "KILL", *sys.argv[1:]]
process = Process(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
os.close(slave)
process.pidfd = os.pidfd_open(process.pid)
process.pty = open(master, "r+b", buffering=0)
process.resize(*terminal_size())
try:
    with ending_signals():
        relay_terminal(process)
except Stopped as stop:
    process.kill()
    print("stopped by", stop.number)
print("ended with", process.wait())
"""


def relay(*command: str, **how: object) -> subprocess.Popen[bytes]:
    """Start a relay of *command*."""
    words = [sys.executable, "-c", RELAY, *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, **{"stdin": pipe, "stdout": pipe, "stderr": pipe} | how)  # type: ignore[call-overload, no-any-return]


def test_every_byte_crosses_in_both_directions() -> None:
    """No byte may be lost or changed, nor the order, however much there is."""
    sent = os.urandom(3_000_000)
    out, err = relay("cat").communicate(sent, timeout=30)
    assert out == sent
    assert err == b""


def test_streams_stay_apart_and_the_code_is_passed_on() -> None:
    """Stdout and stderr must not mix, and the exit code is the program's."""
    process = relay("sh", "-c", "echo out; echo err >&2; exit 7")
    assert process.communicate(b"", timeout=30) == (b"out\n", b"err\n")
    assert process.returncode == 7


def test_output_is_passed_on_while_the_program_runs() -> None:
    """A line must arrive before the program ends."""
    with relay("sh", "-c", "echo now; read line; echo $line") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.stdin.write(b"later\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"later\n"


def test_a_program_that_reads_nothing_does_not_hang() -> None:
    """Input that nobody takes must not keep the relay alive."""
    process = relay("sh", "-c", "exec <&-; echo done")
    out, _ = process.communicate(b"x" * 1_000_000, timeout=30)
    assert out == b"done\n"


def test_a_program_that_closes_its_output_is_waited_for() -> None:
    """The end of both streams is not the end of the program."""
    process = relay("sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 5")
    process.communicate(b"", timeout=30)
    assert process.returncode == 5


def test_a_reader_that_leaves_ends_the_program() -> None:
    """As in `yes | head`: the guest must learn that nobody reads."""
    with relay("yes") as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(timeout=30) == 128 + signal.SIGPIPE


def test_closed_descriptors_do_not_break_the_relay() -> None:
    """A caller without stdin must see the output all the same."""
    words = f"exec {sys.executable} -c '{RELAY}' sh -c 'cat; echo end' <&-"
    done = subprocess.run(["sh", "-c", words], capture_output=True, check=True, timeout=30)
    assert done.stdout == b"end\n"


def test_signals_are_passed_on_and_the_third_kills() -> None:
    """Ctrl-C must reach the guest; one that ignores it is killed in the end."""
    with relay("sh", "-c", "trap 'echo caught' TERM; echo up; while :; do sleep 0.05; done") as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"up\n"
        for _ in range(2):
            one.send_signal(signal.SIGTERM)
            assert one.stdout.readline() == b"caught\n"
        one.send_signal(signal.SIGTERM)
        assert one.wait(timeout=30) == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("script", "ended_by"),
    [
        ("echo up; kill -STOP $$; sleep 60", signal.SIGTERM),
        ("trap '' TERM HUP; echo up; sleep 60", signal.SIGKILL),
    ],
    ids=["stopped", "ignored"],
)
def test_one_signal_ends_a_guest_that_does_not_take_it(script: str, ended_by: int) -> None:
    """Whoever sends SIGTERM once, as timeout(1) does, must not wait for ever."""
    text = RELAY.replace("class Process", "streams.GRACE_SECONDS = 0.5\nclass Process", 1)
    text = f"from visruntime.cli import streams\n{text}"
    with subprocess.Popen(
        [sys.executable, "-c", text, "sh", "-c", script], stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"up\n"
        if ended_by == signal.SIGTERM:
            deadline = time.monotonic() + 20
            while "T" not in children_of(one.pid)().values():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        one.send_signal(signal.SIGTERM)
        assert one.wait(timeout=20) == 128 + ended_by


@pytest.mark.parametrize("heir", ["sleep 30", "yes"])
def test_a_stream_that_somebody_else_holds_is_not_waited_for(heir: str) -> None:
    """Whoever got hold of the program's stdout, silent or flooding, may not keep us."""
    with relay("sh", "-c", f"echo first; {heir} & echo $! >&2") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        out: list[bytes] = []
        # Beside the other stream: a flood that nobody takes would hold up both.
        reader = threading.Thread(target=lambda stream=process.stdout: out.append(stream.read()))
        reader.start()
        other = int(process.stderr.readline())
        try:
            before = time.monotonic()
            assert process.wait(timeout=10) == 0
            reader.join(10)
            assert time.monotonic() - before < 10
            os.kill(other, 0)  # it still runs
            assert out[0].startswith(b"first\n")
        finally:
            os.kill(other, signal.SIGKILL)


def test_a_signal_after_the_end_ends_us() -> None:
    """Nobody is left to take a signal once the program has ended: we must take it."""
    with relay("sh", "-c", "head -c 120000 /dev/zero; echo done >&2; exit 3") as process:
        assert process.stdout is not None
        assert fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ) == 65536
        # More than our stdout takes; what is left fits into the pipe of the program.
        program = children_of(process.pid)
        deadline = time.monotonic() + 20
        while any(state != "Z" for state in program().values()) or not program():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 128 + signal.SIGTERM


def children_of(pid: int) -> Callable[[], dict[int, str]]:
    """Return a function that tells the state of each child of *pid*."""

    def states() -> dict[int, str]:
        found = {}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(FileNotFoundError):
                stat = Path(f"/proc/{child}/stat").read_text()
                found[int(child)] = stat.rpartition(")")[2].split()[0]
        return found

    return states


class Terminal:
    """A terminal with a command in it."""

    def __init__(self, *command: str) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (31, 101))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        self.slave = slave
        self.seen = b""

    def until(self, words: bytes) -> bytes:
        """Read until *words* appear; fail after 20 s."""
        deadline = time.monotonic() + 20
        while words not in self.seen:
            assert select.select([self.master], [], [], deadline - time.monotonic())[0], self.seen
            self.seen += os.read(self.master, 65536)
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, keys: bytes) -> None:
        """Press *keys*."""
        os.write(self.master, keys)

    def local_echo(self) -> bool:
        """Tell whether this terminal echoes by itself."""
        return bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal() -> object:
    """A terminal in which the relay runs a shell."""
    one = Terminal(sys.executable, "-c", RELAY_TERMINAL, "sh", "-c", "echo ready; exec sh")
    yield one
    one.close()


def test_a_terminal_is_raw_while_the_guest_runs_and_restored(terminal: Terminal) -> None:
    """Keys must reach the guest's terminal, and ours must be as before at the end."""
    assert terminal.local_echo()
    terminal.until(b"ready")
    assert not terminal.local_echo()
    terminal.type(b"stty size; echo $((6*7))\r")
    terminal.until(b"31 101")
    terminal.until(b"42")
    terminal.type(b"exit 3\r")
    terminal.until(b"ended with 3")
    assert terminal.process.wait(timeout=20) == 0
    assert terminal.local_echo()


def test_a_new_window_size_reaches_the_guest(terminal: Terminal) -> None:
    """A resized window must be resized inside too."""
    terminal.until(b"ready")
    termios.tcsetwinsize(terminal.slave, (40, 90))
    terminal.process.send_signal(signal.SIGWINCH)
    for _ in range(50):
        terminal.type(b"stty size\r")
        time.sleep(0.05)
        if b"40 90" in terminal.until(b"stty size") + terminal.seen:
            break
    terminal.type(b"stty size; exit\r")
    terminal.until(b"40 90")
    terminal.until(b"ended with 0")
    assert terminal.process.wait(timeout=20) == 0


def test_the_last_output_of_a_terminal_is_not_lost() -> None:
    """What a program writes just before it ends must still be shown."""
    for _ in range(5):
        script = "head -c 100000 /dev/zero | tr '\\0' x; printf END"
        one = Terminal(sys.executable, "-c", RELAY_TERMINAL, "sh", "-c", script)
        try:
            assert one.until(b"END").count(b"x") == 100000
        finally:
            one.close()


def test_a_guest_that_does_not_read_does_not_stop_its_output() -> None:
    """However much is typed at a guest that reads nothing, its output must go on."""
    script = "stty raw -echo; echo ready; while :; do echo tick; sleep 0.05; done"
    one = Terminal(sys.executable, "-c", RELAY_TERMINAL, "sh", "-c", script)
    try:
        one.until(b"ready")
        os.set_blocking(one.master, False)
        typed = 0
        deadline = time.monotonic() + 20
        while typed < 50_000:  # the guest's terminal takes a tenth of it
            assert time.monotonic() < deadline, typed
            with suppress(BlockingIOError):
                typed += os.write(one.master, b"x\n" * 500)
            time.sleep(0.001)
        os.set_blocking(one.master, True)
        one.seen = b""
        for _ in range(20):
            one.until(b"tick")
    finally:
        one.close()


def test_a_signal_restores_the_terminal_and_drops_what_was_typed() -> None:
    """A terminal must be left as it was, without keys in it that the next shell would take."""
    script = "stty raw -echo; echo ready; exec sleep 60"
    one = Terminal(sys.executable, "-c", RELAY_TERMINAL, "sh", "-c", script)
    try:
        before = termios.tcgetattr(one.slave)
        one.until(b"ready")
        os.set_blocking(one.master, False)
        quiet = 0
        while quiet < 50:  # until nobody takes any more: not the guest, not the relay
            try:
                os.write(one.master, b"touch x\n" * 100)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.01)
        os.set_blocking(one.master, True)
        assert select.select([one.slave], [], [], 0)[0] == [one.slave]
        one.process.send_signal(signal.SIGTERM)
        one.until(b"stopped by 15")
        assert one.process.wait(timeout=20) == 0
        assert termios.tcgetattr(one.slave) == before
        assert select.select([one.slave], [], [], 0)[0] == []
    finally:
        one.close()


def test_a_terminal_that_somebody_else_holds_is_not_waited_for() -> None:
    """Whoever keeps writing to the guest's terminal after its end may not keep ours."""
    script = "(trap '' HUP; exec yes) & echo heir $!; sleep 0.2"
    one = Terminal(sys.executable, "-c", RELAY_TERMINAL, "sh", "-c", script)
    heir = 0
    try:
        one.until(b"heir ")
        heir = int(one.until(b"\r\n"))
        one.until(b"ended with 0")
        assert one.process.wait(timeout=20) == 0
    finally:
        if heir:
            os.kill(heir, signal.SIGKILL)
        one.close()


def test_what_another_reader_took_holds_up_nothing() -> None:
    """Who has the pipe too may read what poll(2) saw: that is not the end, and no reason to wait."""
    program = (
        "import fcntl, os, subprocess, termios, time\n"
        "thief = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\n"
        "for burst in range(20):\n"
        "    for _ in range(2000):\n"
        "        os.write(1, b'x')\n"
        "        try: os.read(thief, 1)\n"
        "        except BlockingIOError: pass\n"
        "    os.write(2, b'.')\n"
        "    time.sleep(0.05)\n"
        # Nobody takes this: the relay is inside a read of the other pipe.
        "    if any(fcntl.ioctl(2, termios.FIONREAD, bytes(4))): break\n"
        # Somebody outside of the run keeps that pipe open, and says nothing more.
        "subprocess.Popen(['sleep', '8'], start_new_session=True, stderr=subprocess.DEVNULL)\n"
    )
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", RELAY, sys.executable, "-c", program],
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    assert result.returncode == 0
    assert result.stderr.strip(b".") == b""  # fewer where the relay only had to wait for its turn
    assert time.monotonic() - started < 6

"""Bytes between our descriptors and a guest's: all of them, in both directions, to the end.

`subprocess.Popen` has the names of a jailed process, so that the relays can be tried alone.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

RELAY = """
import subprocess, sys
from visruntime.cli.streams import forwarded_signals, relay_pipes
process = subprocess.Popen(
    sys.argv[1:], bufsize=0, start_new_session=True,
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
)
with forwarded_signals(process):
    relay_pipes(process)
code = process.wait()
sys.exit(code if code >= 0 else 128 - code)
"""

RELAY_TERMINAL = """
import fcntl, os, pty, struct, subprocess, sys, termios
from visruntime.cli.streams import relay_terminal, terminal_size

class Process(subprocess.Popen):
    def resize(self, rows, columns):
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

master, slave = pty.openpty()
process = Process(sys.argv[1:], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
os.close(slave)
process.pty = open(master, "r+b", buffering=0)
process.resize(*terminal_size())
relay_terminal(process)
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

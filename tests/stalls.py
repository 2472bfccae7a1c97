"""A pytest plugin: a test run that makes no progress says where it stands, and ends with 124.

The tests run in a child; this process only watches it, so that it answers even when a test holds
the interpreter's lock, or never comes back from a system call. After ``--stall-seconds`` without a
new test, stage or fixture it prints the name of what was under way, the stacks of every Python
thread of the tests, and those of the guests in the workers that they started. Then it ends them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import functools
import gc
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

EXIT_STALLED = 124
"""Exit code of a run that was ended, as of timeout(1)."""
STALL_SECONDS = 120.0
"""How long one stage of a test may take without any sign of life."""
ANSWER_SECONDS = 10.0
"""How long the tests' process may take to write down its guests' stacks, at most."""
DUMP_SIGNAL = signal.SIGRTMAX - 6
"""Makes the tests' process write its stacks, whoever holds the interpreter's lock."""
ASK_SIGNAL = signal.SIGRTMAX - 7
"""Tells the tests' process to read what its watcher wants. No test and no worker uses the two."""
FRAME_SECONDS = 30.0
"""How long the start and the end of pytest itself may take at least."""
START, END = "pytest (start)", "pytest (end of the session)"
HOLD = "in the debugger"
"""A stage that may take as long as it likes."""
_ASK = b"?"
_F_SETSIG = 10
"""Of asm-generic/fcntl.h; Python has no name for it, nor for the next, of linux/prctl.h."""
_PR_SET_PDEATHSIG = 1
_DONE = b"\0"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for how long that is."""
    parser.addoption(
        "--stall-seconds",
        type=float,
        default=STALL_SECONDS,
        help="end a run without progress for so long with exit code 124; 0: never (120)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Fork: the child goes on as pytest, the parent watches it and returns its exit code."""
    seconds: float = config.getoption("--stall-seconds")
    if seconds <= 0:
        return None
    signs, tell = os.pipe()
    heard, ask = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    watcher = os.getpid()
    child = os.fork()
    if child == 0:
        # For ends of the watcher that it cannot pass on; it has but one thread, whose end this is.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(EXIT_STALLED)
        os.close(signs)
        os.close(ask)
        config.pluginmanager.register(Progress(tell, heard), "stalls-progress")
        return None
    os.close(tell)
    os.close(heard)
    return Watch(child, signs, ask, seconds).run()


class Progress:
    """In the tests' process: tells each stage, and writes the guests' stacks when it is asked."""

    def __init__(self, tell: int, heard: int) -> None:
        self._tell = tell
        self._process = os.getpid()
        # Here pytest has not yet taken standard error away.
        self._screen = os.dup(2)
        faulthandler.register(DUMP_SIGNAL, file=self._screen, all_threads=True)
        # The kernel sends the signal when the watcher writes. A thread would do as well, but from
        # 3.12 on each fork in a test would warn of it.
        self._heard = heard
        os.set_blocking(heard, False)
        signal.signal(ASK_SIGNAL, self._listen)
        fcntl.fcntl(heard, fcntl.F_SETOWN, self._process)
        fcntl.fcntl(heard, _F_SETSIG, ASK_SIGNAL)
        fcntl.fcntl(heard, fcntl.F_SETFL, fcntl.fcntl(heard, fcntl.F_GETFL) | os.O_ASYNC)

    def say(self, name: str, stage: str) -> None:
        """Tell what begins now; not in forked children of tests, which have the pipe too."""
        if os.getpid() == self._process:
            with suppress(OSError):
                os.write(self._tell, f"{name} ({stage})\n".encode("utf-8", "replace")[-4096:])

    def _listen(self, _number: int, _frame: object) -> None:
        if os.getpid() != self._process:
            return
        try:
            asked = os.read(self._heard, 1)
        except BlockingIOError:
            return
        if not asked:
            return  # the watcher is gone
        with suppress(Exception):
            self._write_guests()
        os.write(self._tell, _DONE)

    def _write_guests(self) -> None:
        from visruntime.worker import Worker

        workers = [found for found in gc.get_objects() if type(found) is Worker]
        for number, worker in enumerate(workers, 1):
            try:
                text = worker.stacks(ANSWER_SECONDS / 5)
            except TimeoutError as silence:
                text = f"{silence}\n"
            os.write(self._screen, f"\nguest {number} of {len(workers)}:\n{text}".encode())

    @pytest.hookimpl
    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """A file is imported."""
        self.say(collector.nodeid or "tests", "collection")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Fixtures are made."""
        self.say(item.nodeid, "setup")
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """The test runs."""
        self.say(item.nodeid, "call")
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Fixtures are let go of."""
        self.say(item.nodeid, "teardown")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """One fixture is made; when it is let go of, that is told first."""
        name, fixture = request.node.nodeid, fixturedef.argname
        self.say(name, f"setup of the fixture {fixture}")
        made = yield
        fixturedef.addfinalizer(
            functools.partial(self.say, name, f"teardown of the fixture {fixture}")
        )
        self.say(name, "setup")
        return made

    def pytest_enter_pdb(self) -> None:
        """Somebody looks at the tests, and takes time."""
        self.say("pytest", HOLD)

    def pytest_sessionfinish(self) -> None:
        """What is left is the report."""
        self.say("pytest", "end of the session")


class Watch:
    """In the first process: waits for signs of life, and for the end."""

    def __init__(self, child: int, signs: int, ask: int, seconds: float) -> None:
        self._child = child
        self._pidfd = os.pidfd_open(child)
        self._signs = signs
        self._ask = ask
        self._seconds = seconds
        self._stage = START
        self._rest = b""

    def run(self) -> int:
        """Return the exit code of the tests, or 124."""
        # The terminal's Ctrl-C reaches the tests by itself, and they say how they end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        seen = time.monotonic()
        while True:
            left = None
            if not self._stage.endswith(f"({HOLD})"):
                left = max(seen + self._allowed() - time.monotonic(), 0)
            ready = self._wait(left)
            if self._pidfd in ready:
                return self._exit_code()
            if self._signs in ready:
                self._read()
                seen = time.monotonic()
            elif left is not None and time.monotonic() >= seen + self._allowed():
                self._report()
                os.kill(self._child, signal.SIGKILL)
                self._exit_code()
                return EXIT_STALLED

    def _allowed(self) -> float:
        return max(self._seconds, FRAME_SECONDS if self._stage in (START, END) else 0)

    def _pass_on(self, number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._child, number)

    def _wait(self, seconds: float | None) -> list[int]:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if self._signs >= 0:
            poll.register(self._signs, select.POLLIN)
        return [fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000 + 1)]

    def _read(self) -> None:
        data = os.read(self._signs, 65536)
        if not data:  # the tests are about to end
            os.close(self._signs)
            self._signs = -1
            return
        *lines, self._rest = (self._rest + data.replace(_DONE, b"")).split(b"\n")
        if lines:
            self._stage = lines[-1].decode("utf-8", "replace")

    def _exit_code(self) -> int:
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            self._print(f"\nthe tests were ended by signal {-code} at {self._stage}\n")
            return 128 - code
        return code

    def _report(self) -> None:
        self._print(
            f"\n\nno progress for {self._allowed():g} s at {self._stage}\n\nthe tests' threads:\n"
        )
        with suppress(ProcessLookupError):
            os.kill(self._child, DUMP_SIGNAL)
        time.sleep(0.2)  # it writes to the same screen
        with suppress(OSError):
            os.write(self._ask, _ASK)
        end = time.monotonic() + min(ANSWER_SECONDS, 2 * self._seconds)
        while self._signs >= 0 and (left := end - time.monotonic()) > 0:
            ready = self._wait(left)
            if self._pidfd in ready:
                return
            if self._signs in ready and _DONE in os.read(self._signs, 65536):
                return
        self._print("the guests could not be asked: the tests hold the interpreter's lock\n")

    def _print(self, text: str) -> None:
        os.write(2, text.encode("utf-8", "replace"))

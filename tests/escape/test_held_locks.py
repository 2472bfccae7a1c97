"""A guest that holds a lock of the kernel's must not hold up its host, nor outlive it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import backends, children_of, jail_by, policy_of, spawn, until
from required import missing

from visruntime import Jail, JailPolicy, Limits, Runtime
from visruntime.errors import CommandTimeout

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = Path(__file__).parents[1] / "native" / "holds_pipe.c"

SPINNERS = "60"
"""So many that a thread waits for its turn longer than a host may wait for that thread: in a jail
it has the ordinary priority, though it asks for the lowest."""

SECONDS = "40"
"""Until the guest ends by itself; what waits for its lock waits for most of that."""

ATTEMPTS = 10
"""How often a guest may fail to hold its lock, by the scheduler's choice."""

PATIENCE = 3.0
"""Seconds by which a limit of the host may be late: the keepers look every second."""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compile the guest, and return its command."""
    program = tmp_path_factory.mktemp("guest") / "holds_pipe"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-pthread"]
    compiler = shutil.which("cc") or missing("cc is not installed")
    subprocess.run([compiler, *flags, "-o", program, SOURCE], check=True)
    for path in (program.parent, *program.parent.parents[:2]):
        path.chmod(0o755)
    return [str(program), SPINNERS, SECONDS]


def state_of(thread: int | str) -> str:
    """Return the letter of /proc/PID/stat; a thread that has ended is Z."""
    return Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[0]


def is_held(thread: int | str) -> bool:
    """Whether a thread waits so that no signal ends it, for longer than a moment."""
    for _ in range(10):
        if state_of(thread) != "D":
            return False
        time.sleep(0.02)
    return True


READER = """
import os, select, time
os.set_blocking(0, False)
end = time.monotonic() + 1
while time.monotonic() < end:
    if select.select([0], [], [], 0.1)[0]: os.read(0, 65536)
"""


@pytest.mark.one_uid
def test_such_a_guest_holds_up_whoever_reads(guest: list[str]) -> None:
    """The control: without a jail, a reader that wants to read for a second is held for longer."""
    for _ in range(ATTEMPTS):
        writer = subprocess.Popen(guest, stdout=subprocess.PIPE, start_new_session=True)
        reader = subprocess.Popen([sys.executable, "-Ic", READER], stdin=writer.stdout)
        assert writer.stdout is not None
        writer.stdout.close()
        try:
            reader.wait(1 + PATIENCE)
        except subprocess.TimeoutExpired:
            return
        finally:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()
            reader.wait()
    pytest.fail("the guest holds no lock")


@pytest.mark.one_uid
def test_a_limit_of_the_host_is_kept(guest: list[str]) -> None:
    """A host that reads the output must not be held beyond its own limit of time."""
    with jail_by("namespaces", read=[guest[0]]) as jail:
        process = spawn(jail, guest, stdout=-1)
        start = time.monotonic()
        with pytest.raises(CommandTimeout):
            process.communicate(timeout=2)
        assert time.monotonic() - start < 2 + PATIENCE
        assert process.poll() is None  # it was only stopped for a moment
        start = time.monotonic()
    assert time.monotonic() - start < PATIENCE


@pytest.mark.one_uid
def test_a_limit_of_a_run_is_kept(guest: list[str]) -> None:
    """A runtime must not be held, either, by what its guest has started."""
    with Runtime(policy_of(read=[guest[0]])) as runtime:
        start = time.monotonic()
        with pytest.raises(CommandTimeout):
            runtime.run(f"import subprocess\nsubprocess.run({guest!r})", timeout=2)
        assert time.monotonic() - start < 2 + PATIENCE


LENT = """
import subprocess
import _visguest.buffers as buffers
class Core:
    def __getattr__(self, name): return getattr(core, name)
    def pour(self, descriptor, data):
        subprocess.run({guest}, stdout=descriptor)
core, buffers.core = buffers.core, Core()
bytes(64 << 20)
"""


def starve(ended: threading.Event) -> None:
    """Put the guest's thread behind all others, as no guest can itself, until the run has ended."""
    while not ended.wait(0.05):
        for pid, status in children_of(os.getpid()).items():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                threads = os.listdir(f"/proc/{pid}/task") if status["Name"] == "holds_pipe" else []
                for thread in map(int, threads):
                    if thread != pid:
                        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def test_a_limit_is_kept_where_a_lent_pipe_is_held(guest: list[str]) -> None:
    """Nor may it be held by the pipe that a guest was lent for a large value."""
    ended = threading.Event()
    starving = threading.Thread(target=starve, args=(ended,))
    with Runtime(policy_of(read=[guest[0]])) as runtime:
        runtime.run("1")
        starving.start()
        try:
            start = time.monotonic()
            with pytest.raises(CommandTimeout):
                runtime.run(LENT.format(guest=guest), timeout=3)
            assert time.monotonic() - start < 3 + PATIENCE
        finally:
            ended.set()
            starving.join()


HOST = """
import os, select, sys, threading, time
sys.path[:0] = {path!r}
from jail_helpers import jail_by, spawn
from test_held_locks import is_held
with jail_by({backend!r}, read=[{guest[0]!r}]) as jail:
    process = spawn(jail, {guest!r}, stdout=-1)
    output = process.stdout.fileno()
    def read():
        # A writer that is held wakes nobody.
        while not select.select([output], [], [], 0.1)[0] or os.read(output, 65536): pass
    def exits():
        thread = threading.Thread(target=read)
        thread.start()
        while not is_held(f"self/task/{{thread.native_id}}"): pass
        os._exit(0)
    print("started", flush=True)
    {act}
"""


def end_a_held_host(guest: list[str], act: str, backend: str, signal_number: int) -> bool:
    """Start a process that starts the guest in a jail, and end it once it is held.

    Fails if it, or anything of its jail, has not ended in time. False where it was not held.
    """
    path = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    text = HOST.format(path=path, backend=backend, guest=guest, act=act)
    host = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    try:
        assert host.stdout is not None
        with host.stdout:
            assert host.stdout.readline() == b"started\n"
        guests = children_of(host.pid)
        assert guests
        if not until(lambda: is_held(host.pid) or state_of(host.pid) == "Z"):
            return False
        host.send_signal(signal_number)
        assert host.wait(PATIENCE) == -signal_number
        assert until(lambda: have_ended(guests))
        return True
    finally:
        host.kill()
        host.wait()


def have_ended(guests: Iterable[int]) -> bool:
    """Whether no process of a jail is left."""
    return not any(Path(f"/proc/{pid}").exists() for pid in guests)


@pytest.mark.parametrize("backend", backends())
def test_a_jail_ends_with_a_host_that_is_held(guest: list[str], backend: str) -> None:
    """A host that is killed while it is held must not leave its guests running."""
    held = (end_a_held_host(guest, "read()", backend, signal.SIGKILL) for _ in range(ATTEMPTS))
    assert any(held)


@pytest.mark.one_uid
def test_a_jail_ends_with_a_host_that_cannot_exit(guest: list[str]) -> None:
    """Nor one that exits, while one of its threads is held."""
    held = (end_a_held_host(guest, "exits()", "namespaces", 0) for _ in range(ATTEMPTS))
    assert any(held)


@pytest.mark.one_uid
def test_a_limit_is_kept_where_memory_cannot_be_measured(guest: list[str]) -> None:
    """A keeper that waits for a lock of the guest's must not leave its limits to chance."""
    limits = Limits(memory=100 << 20, memory_by="watch")
    with Jail(JailPolicy(read=[guest[0]], limits=limits)) as jail:
        process = spawn(jail, [guest[0], "48", SECONDS, "grow"], timeout=1.5)
        process.wait(5 + PATIENCE)
        assert process.stopped_by in {"memory", "timeout", "closed"}

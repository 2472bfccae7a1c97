"""Output of runs: every writer is heard, in order, and none fills the host or stops the worker."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from runtime_helpers import runtime

from visruntime.errors import WorkerDied
from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from runtime_helpers import AnyRuntime

    from visruntime.runtime import RunEvent

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module

MIB = 1024 * 1024


def test_lm_02_a_gigabyte_on_both_streams_at_once() -> None:
    """LM-02: LM-02: two floods stop neither each other nor the worker, and cost the host the limit."""
    with Runtime(JailPolicy(limits=Limits(output=MIB))) as runtime:
        runtime.run("import os, threading")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = runtime.run(
            "block = bytes(1 << 20)\n"
            "def flood(fd):\n"
            "    for _ in range(512):\n"
            "        rest = memoryview(block)\n"
            "        while rest: rest = rest[os.write(fd, rest):]\n"
            "    os.write(fd, b'END')\n"
            "threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]\n"
            "for t in threads: t.start()\n"
            "for t in threads: t.join()\n"
            "'done'",
            timeout=60,
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert runtime.run("1 + 1").value == 2
    assert result.value == "done"
    for kept, dropped in zip((result.stdout, result.stderr), result.dropped, strict=True):
        assert len(kept) + dropped == 512 * MIB + 3
        assert len(kept) <= MIB
        assert kept.endswith(b"END")
    assert grown < 50_000  # KiB


def test_ec_01_bytes_that_are_no_text_are_kept(runtime: AnyRuntime) -> None:
    """EC-01: invalid UTF-8 stays as it is in bytes and is replaced in text, cut anywhere."""
    events: list[RunEvent] = []
    result = runtime.run(
        "import os, time\n"
        "os.write(1, b'a\\xff\\xc3'); time.sleep(.1); os.write(1, b'\\xa9\\x00')\n"
        "os.write(2, b'\\xed\\xa0\\x80')\n"
        "print('\\udc80'); '\\udc80'",
        on_event=events.append,
    )
    assert result.stdout == b"a\xff\xc3\xa9\x00\x80\n"
    assert result.stdout_text == "a\ufffdé\0\ufffd\n"
    assert "\ufffd" in result.stderr_text
    assert result.value == "\udc80"
    assert b"".join(e.data for e in events if e.kind == "stdout") == result.stdout
    assert next(e.text for e in events if e.kind == "stdout") == "a\ufffd\ufffd"


def test_lines_of_c_code_come_in_their_place(runtime: AnyRuntime) -> None:
    """A line that C code prints must not wait for the end of the run."""
    result = runtime.run(
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "libc.puts(b'one'); print('two'); libc.puts(b'three'); os.system('echo four')\n"
        "libc.printf(b'five'); print('six', end='')"
    )
    assert result.stdout.startswith(b"one\ntwo\nthree\nfour\n")
    assert sorted(result.stdout[19:].replace(b"six", b"-").split(b"-")) == [b"", b"five"]


def test_a_flood_during_a_call_to_the_host_does_not_hold_it_up(runtime: AnyRuntime) -> None:
    """While the host computes an answer a guest's thread fills the pipes; both go on."""

    def slow() -> str:
        time.sleep(0.3)
        return "x" * MIB

    runtime.expose("slow", slow)
    result = runtime.run(
        "import os, threading\n"
        "def flood(fd):\n"
        "    for _ in range(100): os.write(fd, bytes(100_000))\n"
        "threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]\n"
        "for t in threads: t.start()\n"
        "size = len(slow())\n"
        "for t in threads: t.join()\n"
        "size",
        timeout=30,
    )
    assert result.value == MIB
    sizes = (len(result.stdout) + result.dropped[0], len(result.stderr) + result.dropped[1])
    assert sizes == (10_000_000, 10_000_000)


def test_a_guest_without_standard_streams_goes_on(runtime: AnyRuntime) -> None:
    """Closed and replaced streams are the guest's own matter; its values still arrive."""
    code = "import os, sys\nos.close(1); os.close(2)\nsys.stdout = sys.stderr = None\n3"
    assert runtime.run(code).value == 3
    result = runtime.run("display(4); 5")
    assert (result.value, result.stdout, result.stderr) == (5, b"", b"")
    assert [display.text for display in result.displays] == ["4"]


def test_output_between_runs_is_bounded(runtime: AnyRuntime) -> None:
    """A thread that prints for ever between two runs costs the host no more than a pipe."""
    runtime.run(
        "import os, threading\ngo = True\n"
        "def flood():\n"
        "    while go: os.write(1, bytes(65536))\n"
        "threading.Thread(target=flood, daemon=True).start()"
    )
    time.sleep(0.3)
    result = runtime.run("go = False")
    assert 0 < len(result.late_stdout) <= 2 * MIB


def test_output_while_a_worker_starts_is_counted(tmp_path: Path) -> None:
    """What start-up files write, a line without an end too, is neither lost nor a run's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    (site,) = (tmp_path / "v/lib").glob("python3.*/site-packages")
    (site / "loud.pth").write_text(
        "import sys; hasattr(sys, 'loud') or sys.stdout.write('started')"
        " and sys.stderr.write('x' * 100_000); sys.loud = True  # site reads it twice\n"
    )
    with TrustedRuntime(environment=tmp_path / "v") as runtime:
        result = runtime.run("print('run')")
        assert (result.stdout, result.stderr) == (b"run\n", b"")
        assert result.late_stdout == b"started"
        assert len(result.late_stderr) + result.dropped[1] == 100_000
        assert len(result.late_stderr) == 65536
        again = runtime.run("1")
        assert (again.late_stdout, again.late_stderr, again.dropped) == (b"", b"", (0, 0))


def test_late_output_outlives_a_request_that_cannot_be_made(runtime: AnyRuntime) -> None:
    """An input that cannot cross must not cost what was written since the last run."""
    runtime.run(
        "import threading, time\n"
        "def write():\n    time.sleep(.1); print('late', flush=True)\n"
        "thread = threading.Thread(target=write); thread.start()"
    )
    time.sleep(0.5)
    for _ in range(2):
        with pytest.raises(TypeError):
            runtime.run("1", inputs={"x": object()})
    result = runtime.run("2")
    assert (result.value, result.late_stdout, result.stdout) == (2, b"late\n", b"")
    assert runtime.run("3").late_stdout == b""


def test_output_reaches_observers_of_two_runtimes_at_once() -> None:
    """Two runtimes driven by two threads must not mix their events."""
    seen: dict[str, list[bytes]] = {"a": [], "b": []}

    def work(name: str) -> None:
        with Runtime(JailPolicy()) as runtime:
            runtime.run(
                f"for _ in range(50): print({name!r}, flush=True)",
                on_event=lambda event: (
                    seen[name].append(event.data) if event.kind == "stdout" else None
                ),
            )

    threads = [threading.Thread(target=work, args=(name,)) for name in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {name: b"".join(data) for name, data in seen.items()} == {
        "a": b"a\n" * 50,
        "b": b"b\n" * 50,
    }


@pytest.mark.parametrize("aside", [False, True])
def test_late_output_that_is_cut_is_counted(*, aside: bool) -> None:
    """What a guest wrote between two runs is kept, or counted as gone and reported as such."""
    size = 200_000
    with Runtime(JailPolicy(limits=Limits(output=1000))) as runtime:
        runtime.run(
            "import os, threading\n"
            f"threading.Timer(0.2, os.write, (2, b'A' * {size // 2} + b'B' * {size // 2})).start()"
        )
        time.sleep(0.5)
        if aside:
            runtime.expose("f", lambda: 1)
            runtime.expose("g", lambda: 1)
        result = runtime.run("1")
    assert len(result.late_stderr) == (65536 if aside else 1000)
    assert result.dropped == (0, size - len(result.late_stderr))
    assert result.truncated
    (violation,) = result.violations
    assert (violation.rule, violation.target) == ("limits.output", "late_stderr")


@pytest.mark.parametrize("end", ["os._exit(3)", "pass"])
def test_writes_that_keep_their_bounds_are_all_read(runtime: AnyRuntime, end: str) -> None:
    """A guest can have each read end where a write did; what is left at the end must be read all."""
    runtime.expose("wait", lambda: time.sleep(0.3))
    code = (
        "import fcntl, os, threading, time\n"
        "fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_DIRECT)\n"
        "def write():\n"
        "    time.sleep(.1)\n"
        "    for _ in range(100): os.write(1, b'abc')\n"
        f"    {end}\n"
        "thread = threading.Thread(target=write)\n"
        "thread.start(); wait(); thread.join()"
    )
    try:
        result = runtime.run(code)
    except WorkerDied as death:
        result = death.result
    assert (result.stdout, result.dropped) == (b"abc" * 100, (0, 0))
    late = "fcntl.fcntl(2, fcntl.F_SETFL, os.O_WRONLY | os.O_DIRECT)\n"
    late += "for _ in range(50): os.write(2, b'late')"
    runtime.run(
        f"import fcntl, os, threading\ndef write():\n {late.replace(chr(10), chr(10) + ' ')}\n"
        "threading.Timer(.1, write).start()"
    )
    time.sleep(0.3)
    assert runtime.run("1").late_stderr == b"late" * 50

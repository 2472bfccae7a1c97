"""V40: a test run that stalls names the test and its stage, shows both stacks, and exits with 124."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import stalls

if TYPE_CHECKING:
    from typing import Protocol

    class Run(Protocol):
        """Runs the tests of a text."""

        def __call__(  # noqa: D102
            self, code: str, *, seconds: float = 1.0
        ) -> subprocess.CompletedProcess[str]: ...


def command(tmp_path: Path, code: str, seconds: float) -> list[str]:
    """Write a test file; return the command that runs it."""
    (tmp_path / "test_it.py").write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    option = f"--stall-seconds={seconds}"
    return [sys.executable, "-m", "pytest", "-p", "stalls", "-p", "no:cacheprovider", option]


def environment() -> dict[str, str]:
    """Return the environment in which the plugin is found."""
    return os.environ | {"PYTHONPATH": str(Path(stalls.__file__).parent)}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs tests under the plugin."""

    def run(code: str, *, seconds: float = 1.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(tmp_path, code, seconds),
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run


def test_our_own_tests_run_under_it(pytestconfig: pytest.Config) -> None:
    """The limit holds for this run, and is two minutes where nobody chose another."""
    assert stalls.STALL_SECONDS == 120
    assert stalls.EXIT_STALLED == 124
    if pytestconfig.getoption("--stall-seconds") > 0:
        assert pytestconfig.pluginmanager.hasplugin("stalls-progress")


def test_success_and_failure_end_as_they_do_without_it(run: Run) -> None:
    """The exit code and the output of pytest are kept, also when a test takes long in all."""
    test = "import time\ndef test_{}(): time.sleep(.8)\n"
    done = run("".join(test.format(name) for name in "abc"), seconds=2)
    assert done.returncode == 0
    assert "3 passed" in done.stdout
    assert done.stderr == ""
    done = run("def test_a(): pass\ndef test_b(): raise LookupError('no such thing')\n")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "no such thing" in done.stdout


def test_a_stalled_test_is_named(run: Run) -> None:
    """Test and stage are said, and where each thread of the host is."""
    started = time.monotonic()
    done = run(
        "import threading, time\ndef sleeper(): time.sleep(60)\ndef test_fine(): pass\n"
        "def test_stuck():\n    threading.Thread(target=sleeper, daemon=True).start()\n"
        "    print('captured')\n    time.sleep(60)\n"
    )
    assert time.monotonic() - started < 25
    assert done.returncode == 124
    assert "no progress for 1 s at test_it.py::test_stuck (call)" in done.stderr
    assert "in test_stuck" in done.stderr
    assert "in sleeper" in done.stderr


@pytest.mark.parametrize("stage", ["setup", "teardown"])
def test_a_stalled_fixture_is_named(run: Run, stage: str) -> None:
    """A fixture that does not come to an end is said by name, in its setup or its teardown."""
    wait = "time.sleep(60)"
    before, after = (wait, "pass") if stage == "setup" else ("pass", wait)
    done = run(
        "import pytest, time\n@pytest.fixture\ndef outer(): yield 1\n"
        f"@pytest.fixture\ndef slow(outer):\n    {before}\n    yield 2\n    {after}\n"
        "@pytest.fixture\ndef last(slow): yield 3\ndef test_it(last): pass\n"
    )
    assert done.returncode == 124
    assert f"test_it.py::test_it ({stage} of the fixture slow)" in done.stderr
    assert "in slow" in done.stderr


def test_a_stalled_guest_shows_both_stacks(run: Run) -> None:
    """A test that waits for embedded Python shows the host's threads and the guest's."""
    done = run(
        "from visruntime import TrustedRuntime\ndef test_guest():\n"
        "    with TrustedRuntime() as runtime:\n"
        "        runtime.run('def stuck():\\n    sum(range(10**12))\\nstuck()')\n",
        seconds=3,
    )
    assert done.returncode == 124
    assert "test_it.py::test_guest (call)" in done.stderr
    host, _, guest = done.stderr.partition("guest 1 of 1:")
    assert "in test_guest" in host
    assert "in stuck" in guest


def test_a_test_that_holds_the_lock_of_the_interpreter_is_ended_too(
    run: Run,
) -> None:
    """C code that never lets another thread run keeps nobody from seeing where it is."""
    done = run("def test_deaf(): sum(range(10**12))\n")
    assert done.returncode == 124
    assert "test_it.py::test_deaf (call)" in done.stderr
    assert "in test_deaf" in done.stderr
    assert "the guests could not be asked" in done.stderr


def test_the_tests_end_with_their_watcher(tmp_path: Path) -> None:
    """A signal to the first process reaches the tests; if it is killed they end by themselves."""
    code = (
        "import os, time\ndef test_wait():\n"
        "    print(os.getpid(), file=open('pid', 'w'), flush=True)\n    time.sleep(60)\n"
    )
    for number, expected in ((signal.SIGTERM, 128 + 15), (signal.SIGKILL, -9)):
        pid_file = tmp_path / "pid"
        pid_file.unlink(missing_ok=True)
        with subprocess.Popen(
            command(tmp_path, code, 60),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as watcher:
            deadline = time.monotonic() + 30
            while not (pid_file.exists() and pid_file.read_text().strip()):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            held = os.pidfd_open(int(pid_file.read_text()))
            watcher.send_signal(number)
            assert watcher.wait(10) == expected
            signal_seen = False
            while not signal_seen and time.monotonic() < deadline:
                try:
                    signal.pidfd_send_signal(held, 0)
                    time.sleep(0.02)
                except ProcessLookupError:
                    signal_seen = True
            os.close(held)
            assert signal_seen

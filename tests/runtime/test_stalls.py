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
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.one_uid

SECONDS = 3.0
"""How long nothing may happen in these runs; a busy machine takes a while to start one."""

SLOW = "import pytest, time\n@pytest.fixture\ndef outer(): yield 1\n@pytest.fixture\ndef slow(outer):\n"
LAST = "@pytest.fixture\ndef last(slow): yield 3\ndef test_it(last): pass\n"

RUNS = {
    "success": "import time\n" + "".join(f"def test_{n}(): time.sleep(1.1)\n" for n in "abc"),
    "failure": "def test_a(): pass\ndef test_b(): raise LookupError('no such thing')\n",
    "test": "import threading, time\ndef sleeper(): time.sleep(60)\ndef test_fine(): pass\n"
    "def test_stuck():\n    threading.Thread(target=sleeper, daemon=True).start()\n"
    "    print('captured')\n    time.sleep(60)\n",
    "setup": f"{SLOW}    time.sleep(60)\n    yield 2\n{LAST}",
    "teardown": f"{SLOW}    yield 2\n    time.sleep(60)\n{LAST}",
    "guest": "from visruntime import TrustedRuntime\ndef test_guest():\n"
    "    with TrustedRuntime() as runtime:\n"
    "        runtime.run('import time\\ndef stuck():\\n    time.sleep(60)\\nstuck()')\n",
    "deaf": "import os\nos.nice(10)\ndef test_deaf(): sum(range(10**12))\n",
}


def start(folder: Path, code: str, seconds: float) -> subprocess.Popen[str]:
    """Start tests under the plugin, in a folder of their own."""
    folder.mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\n")
    plugins = ["-p", "stalls", "-p", "no:cacheprovider"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, f"--stall-seconds={seconds}"],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(stalls.__file__).parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take longer than all the rest
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


Outcome = tuple[int, str, str]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Outcome]]:
    """Return a function that gives the exit code, stdout and stderr of a run; all start at once."""
    folder = tmp_path_factory.mktemp("stalls")
    running = {name: start(folder / name, code, SECONDS) for name, code in RUNS.items()}

    def wait(name: str) -> Outcome:
        out, errors = running[name].communicate(timeout=50)
        return running[name].returncode, out, errors

    yield wait
    for process in running.values():
        process.kill()
        process.communicate()


def test_our_own_tests_run_under_it(pytestconfig: pytest.Config) -> None:
    """The limit holds for this run, and is two minutes where nobody chose another."""
    assert stalls.STALL_SECONDS == 120
    assert stalls.EXIT_STALLED == 124
    if pytestconfig.getoption("--stall-seconds") > 0:
        assert pytestconfig.pluginmanager.hasplugin("stalls-progress")


def test_success_and_failure_end_as_they_do_without_it(outcome: Callable[[str], Outcome]) -> None:
    """The exit code and the output of pytest are kept, also when the tests take long in all."""
    code, out, errors = outcome("success")
    assert (code, errors) == (0, "")
    assert "3 passed" in out
    code, out, errors = outcome("failure")
    assert (code, errors) == (1, "")
    assert "1 failed, 1 passed" in out
    assert "no such thing" in out


def test_a_stalled_test_is_named(outcome: Callable[[str], Outcome]) -> None:
    """Test and stage are said, and where each thread of the host is."""
    code, _, errors = outcome("test")
    assert code == 124
    assert "no progress for 3 s at test_it.py::test_stuck (call)" in errors
    assert "in test_stuck" in errors
    assert "in sleeper" in errors


@pytest.mark.parametrize("stage", ["setup", "teardown"])
def test_a_stalled_fixture_is_named(outcome: Callable[[str], Outcome], stage: str) -> None:
    """A fixture that does not come to an end is said by name, in its setup or its teardown."""
    code, _, errors = outcome(stage)
    assert code == 124
    assert f"test_it.py::test_it ({stage} of the fixture slow)" in errors
    assert "in slow" in errors


def test_a_stalled_guest_shows_both_stacks(outcome: Callable[[str], Outcome]) -> None:
    """A test that waits for embedded Python shows the host's threads and the guest's."""
    code, _, errors = outcome("guest")
    assert code == 124
    assert "test_it.py::test_guest (call)" in errors
    host, _, guest = errors.partition("guest 1 of 1:")
    assert "in test_guest" in host
    assert "in stuck" in guest


def test_a_test_that_holds_the_lock_of_the_interpreter_is_ended_too(
    outcome: Callable[[str], Outcome],
) -> None:
    """C code that never lets another thread run keeps nobody from seeing where it is."""
    code, _, errors = outcome("deaf")
    assert code == 124
    assert "test_it.py::test_deaf (call)" in errors
    assert "in test_deaf" in errors
    assert "the guests could not be asked" in errors


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 128 + 15), (signal.SIGKILL, -9)])
def test_the_tests_end_with_their_watcher(tmp_path: Path, number: int, expected: int) -> None:
    """A signal to the first process reaches the tests; if it is killed they end by themselves."""
    code = (
        "import os, time\ndef test_wait():\n"
        "    print(os.getpid(), file=open('pid', 'w'), flush=True)\n    time.sleep(60)\n"
    )
    pid_file = tmp_path / "pid"
    watcher = start(tmp_path, code, 60)
    try:
        deadline = time.monotonic() + 30
        while not (pid_file.exists() and pid_file.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        held = os.pidfd_open(int(pid_file.read_text()))
        watcher.send_signal(number)
        watcher.communicate(timeout=20)
        assert watcher.returncode == expected
        while True:
            try:
                signal.pidfd_send_signal(held, 0)
            except ProcessLookupError:
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.close(held)
    finally:
        watcher.kill()
        watcher.communicate()

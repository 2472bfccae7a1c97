"""What newer CPythons than the oldest bring: new ways to start, to compute and to be steered."""

from __future__ import annotations

import errno
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from interpreters import newer_interpreter

import visruntime as vr

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[14, 15], ids=["3.14", "3.15"])
def python(request: pytest.FixtureRequest) -> str:
    """Return a CPython that has what these tests are about."""
    return newer_interpreter(request.param)


STEER = """
import os, subprocess, sys, time
with open(script, "w") as file:
    file.write(f"open({mark!r}, 'w').close()")
start = [sys.executable, "-I", "-S", "-c"]
endless = "import time; print(1, flush=True)\\nwhile True: time.sleep(.01)"
act = '''
import sys
try: sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except OSError as error: print(error.errno)
except RuntimeError as error: print(error)
else: print("sent")
'''
with subprocess.Popen([*start, endless], stdout=subprocess.PIPE) as victim:
    victim.stdout.readline()
    said = [
        subprocess.run([*start, act, str(pid), script], stdout=-1, text=True).stdout.strip()
        for pid in (victim.pid, os.getpid())
    ]
    end = time.monotonic() + 5
    while said[0] == "sent" and not os.path.exists(mark) and time.monotonic() < end:
        time.sleep(.01)
    victim.kill()
[*said, os.path.exists(mark), sys.is_remote_debug_enabled()]
"""


def test_no_process_is_steered_by_another(python: str, tmp_path: Path) -> None:
    """A guest may have no interpreter run a script of its choice (PEP 768), nor anybody a worker."""
    names = {"script": "steer.py", "mark": "steered"}
    with vr.Runtime(vr.JailPolicy(), python=python) as runtime:
        inputs: dict[str, Any] = {key: f"/tmp/{name}" for key, name in names.items()}
        result = runtime.run(STEER, inputs=inputs)
        assert result.error is None, result.error.traceback
        assert result.value == [str(errno.EPERM), str(errno.EPERM), False, False]
        failed = runtime.run("import sys; sys.remote_exec(1, '/tmp/steer.py')")
        assert failed.error is not None
        assert "not enabled" in failed.error.message
        assert failed.trips["sys.remote_exec"] == 1
    with vr.TrustedRuntime(python=python) as trusted:
        inputs = {key: str(tmp_path / name) for key, name in names.items()}
        sent, to_worker, steered, enabled = trusted.run(STEER, inputs=inputs).value
    assert (sent, steered) == ("sent", True)  # the control
    assert "not enabled in the remote process" in to_worker
    assert enabled is False


PROGRAM = """
import concurrent.futures, concurrent.interpreters, multiprocessing, os, sys
from compression import zstd

def double(number):
    return number * 2

if __name__ == "__main__":
    assert multiprocessing.get_start_method() == "forkserver"
    with multiprocessing.Pool(2) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert list(pool.map(double, [1, 2])) == [2, 4]
    with concurrent.futures.InterpreterPoolExecutor(2) as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
    one = concurrent.interpreters.create()
    assert one.call(abs, -3) == 3
    one.close()
    assert zstd.decompress(zstd.compress(b"x" * 1000)) == b"x" * 1000
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(*t"{sys.version_info.minor}".values)
"""


def test_a_program_uses_what_is_new(python: str, workspace: Path) -> None:
    """Servers that fork, interpreters in threads, zstd and templates work, and nothing warns."""
    script = workspace / "program.py"
    script.write_text(PROGRAM)
    words = ["run", "--python", python, "--read", str(script), str(script)]
    done = subprocess.run(
        [sys.executable, "-m", "visruntime", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("14\n", "15\n")


def test_hints_are_looked_up_late_in_a_session(python: str) -> None:
    """A hint that names nothing stops no run, and source text is found as on other versions."""
    with vr.TrustedRuntime(python=python) as runtime:
        code = "import inspect\nclass Later:\n    x: Nowhere\ninspect.getsource(Later)"
        assert runtime.run(code).value == "class Later:\n    x: Nowhere\n"
        failed = runtime.run("Later.__annotations__")
        assert failed.error is not None
        assert failed.error.type_name == "NameError"

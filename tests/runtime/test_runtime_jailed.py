"""What a policy means for a Python worker: grants, limits, environments and shared jails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from interpreters import INTERPRETERS

from visruntime._worker.threads import THREAD_VARIABLES
from visruntime.errors import (
    CommandTimeout,
    JailClosed,
    PathDenied,
    PolicyError,
    WorkerDied,
)
from visruntime.jail import Jail
from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_files_follow_the_policy_with_exact_errors(workspace: Path, outside: Path) -> None:
    """Granted files are read and written live; others are not there, or read-only: exact errno."""
    (workspace / "in.txt").write_text("data")
    (outside / "secret.txt").write_text("secret")
    readable = workspace / "readable"
    readable.mkdir()
    code = (
        "def attempt(act, *arguments):\n"
        "    try: return act(*arguments)\n"
        "    except OSError as e: return -e.errno\n"
        "def write(p):\n"
        "    with open(p, 'w') as f: return f.write('new')\n"
        "def read(p):\n"
        "    with open(p) as f: return f.read()\n"
        "[attempt(read, a), attempt(write, b), attempt(read, c), attempt(write, d)]"
    )
    names = {
        "a": str(workspace / "in.txt"),
        "b": str(workspace / "out.txt"),
        "c": str(outside / "secret.txt"),
        "d": str(readable / "new.txt"),
    }
    policy = JailPolicy(write=[str(workspace)], read=[str(readable)])
    with TrustedRuntime() as free:
        assert free.run(code, inputs=names).value == ["data", 3, "secret", 3]
    (readable / "new.txt").unlink()
    with Runtime(policy) as runtime:
        assert runtime.run(code, inputs=names).value == ["data", 3, -2, -30]  # ENOENT, EROFS
    assert (workspace / "out.txt").read_text() == "new"
    assert not (readable / "new.txt").exists()


def test_refusals_are_explained_by_the_policy(workspace: Path) -> None:
    """An error about a path says what the policy has to do with it; an ordinary one says nothing."""
    (workspace / "fixed").mkdir()
    policy = JailPolicy(write=[str(workspace)], read=[str(workspace / "fixed")])
    with Runtime(policy) as runtime:
        secret = runtime.run("open(p)", inputs={"p": "/srv/visruntime/secret"}).error
        fixed = runtime.run("open(p, 'w')", inputs={"p": f"{workspace}/./fixed/x"}).error
        absent = runtime.run("open(p)", inputs={"p": f"{workspace}/absent"}).error
    assert secret is not None
    assert (secret.errno, secret.path) == (2, "/srv/visruntime/secret")
    assert secret.explanation == (
        "the policy does not let the guest read '/srv/visruntime/secret': no rule grants it"
    )
    assert secret.explanation in secret.traceback
    assert fixed is not None
    assert fixed.errno == 30
    assert fixed.explanation == (
        f"the policy does not let the guest change '{workspace}/fixed/x': "
        f"read='{workspace}/fixed' decides"
    )
    assert absent is not None
    assert absent.explanation is None


def test_the_network_is_off(workspace: Path) -> None:
    """A listener of the host is out of reach of a jailed worker, and in reach without a jail."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket\nsocket.create_connection({server.getsockname()!r}, 2).close()"
        with TrustedRuntime() as free:
            assert free.run(code).error is None
        with Runtime(JailPolicy()) as runtime:
            error = runtime.run(code).error
    assert error is not None
    assert error.type_name == "ConnectionRefusedError"


def test_en_01_nothing_of_the_hosts_environment_crosses(monkeypatch: pytest.MonkeyPatch) -> None:
    """EN-01: tokens and interpreter variables of the host are absent, what was given is there."""
    for name in (
        "FAKE_TOKEN",
        "OMP_NUM_THREADS",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHASHSEED",
        "GIT_ASKPASS",
    ):
        monkeypatch.setenv(name, "1")
    with Runtime(JailPolicy(env={"GIVEN": "x"})) as runtime:
        names = runtime.eval("dict(__import__('os').environ)")
    assert names.pop("GIVEN") == "x"
    assert names["OMP_NUM_THREADS"] == names["MKL_NUM_THREADS"]  # and not what the host has
    own = {"PATH", "HOME", "TMPDIR", "LANG", "USER", "LOGNAME", "SHELL", *THREAD_VARIABLES}
    assert set(names) <= own


def test_standard_input_may_be_given(tmp_path: Path) -> None:
    """A descriptor that is given becomes the worker's stdin."""
    (tmp_path / "in").write_text("line one\nline two\n")
    with open(tmp_path / "in") as file, Runtime(JailPolicy(), stdin=file.fileno()) as runtime:
        assert runtime.run("import sys\n(input(), sys.stdin.read())").value == (
            "line one",
            "line two\n",
        )


def test_usage_of_a_jailed_worker_is_measured_from_outside() -> None:
    """Processor time of the worker and its children is seen though they are in a jail."""
    with Runtime(JailPolicy()) as runtime:
        busy = runtime.run("import time\nwhile time.process_time() < .3: pass").usage
        child = runtime.run(
            "import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', "
            "'import time\\nwhile time.process_time() < .3: pass'])"
        ).usage
    assert busy.cpu_seconds is not None
    assert 0.2 < busy.cpu_seconds < 3
    assert child.cpu_seconds is not None
    assert child.cpu_seconds > 0.2
    assert busy.peak_memory is not None
    assert busy.peak_memory > 5_000_000


def test_the_wall_limit_ends_the_worker() -> None:
    """A limit of the policy ends the worker, and the error names it."""
    with Runtime(JailPolicy(limits=Limits(wall_seconds=1))) as runtime:
        started = time.monotonic()
        with pytest.raises(WorkerDied) as caught:
            runtime.run("import time; print('so far', flush=True); time.sleep(60)")
    assert time.monotonic() - started < 4
    assert caught.value.stopped_by == "wall"
    assert caught.value.result.stdout == b"so far\n"


def test_output_is_bounded_by_the_policy() -> None:
    """``limits.output`` bounds what is kept of a run."""
    with Runtime(JailPolicy(limits=Limits(output=10_000))) as runtime:
        result = runtime.run("print('x' * 1_000_000)")
    assert result.truncated
    assert len(result.stdout) == 10_000
    assert sum(result.dropped) == 1_000_001 - 10_000


def test_a_worker_can_run_in_an_open_jail(workspace: Path) -> None:
    """Runtime(jail) shares the jail's files and processes with its other programs, and outlives not."""
    with Runtime(JailPolicy()) as scout:
        needed = [path for path, _ in scout._interpreter.grants]
    with Jail(JailPolicy(read=needed, write=[str(workspace)])) as jail:
        with Runtime(jail) as runtime:
            runtime.exec(
                "open(p, 'w').write('from the worker')", inputs={"p": str(workspace / "f")}
            )
            assert jail.run(["cat", str(workspace / "f")]).stdout == b"from the worker"
            assert runtime.run("1").report == jail.report
        assert jail.run(["true"]).exit_code == 0


def test_a_jail_without_the_interpreter_is_refused() -> None:
    """Runtime(jail) says which path the jail's policy lacks."""
    with Runtime(JailPolicy()) as scout:
        needed = scout._interpreter.grants
    if not needed:
        pytest.fail("this interpreter needs no grant, so the worker's own files lie in /usr")
    with (
        Jail(JailPolicy()) as jail,
        pytest.raises(PolicyError, match="the jail cannot read") as caught,
    ):
        Runtime(jail)
    assert caught.value.value == needed[0][0]


def test_closing_the_jail_ends_the_worker() -> None:
    """A jail that is closed under a run ends it with an error, and at once."""
    runtime = Runtime(JailPolicy())
    runtime.run("1")
    timer = threading.Timer(0.3, runtime._jail.close)
    timer.start()
    started = time.monotonic()
    with pytest.raises((WorkerDied, JailClosed)):
        runtime.run("import time; time.sleep(60)")
    timer.join()
    assert time.monotonic() - started < 3
    # A jail of its own that was brought down is opened anew; one that was given is not.
    assert runtime.eval("1+1") == 2
    runtime.close()
    with Runtime(JailPolicy()) as scout:
        needed = [path for path, _ in scout._interpreter.grants]
    with Jail(JailPolicy(read=needed)) as jail, Runtime(jail) as guest:
        guest.run("1")
        jail.close()
        with pytest.raises((WorkerDied, JailClosed)):
            guest.run("1")
        with pytest.raises(JailClosed):
            guest.run("1")


def test_children_end_with_their_worker(workspace: Path) -> None:
    """A daemon that a guest leaves behind is gone when its worker was ended for a time limit."""
    with Runtime(JailPolicy(write=[str(workspace)])) as runtime:
        # A worker that is interrupted while it still starts the daemon obeys, and lives on with it.
        started = runtime.run(
            "import os, subprocess, time\n"
            "loop = f'while :; do echo x >> {p}; sleep .05; done'\n"
            "subprocess.Popen(['setsid', 'sh', '-c', loop])\n"
            "while not os.path.exists(p): time.sleep(0.01)",
            inputs={"p": str(workspace / "t")},
        )
        assert started.error is None
        with pytest.raises(CommandTimeout):
            runtime.run("sum(range(10**12))", timeout=0.5)
        before = (workspace / "t").read_text()
        assert before
        time.sleep(0.4)
        assert (workspace / "t").read_text() == before
        assert runtime.eval("1+1") == 2


@pytest.mark.parametrize("python", INTERPRETERS)
def test_every_interpreter_found_runs_jailed(python: str) -> None:
    """Each CPython found here is asked for its version in a jail, and then works in one."""
    with Runtime(JailPolicy(), python=python) as runtime:
        result = runtime.run("import sys, ssl, sqlite3, ctypes; sys.version_info[:2]")
    assert result.error is None, result.error.traceback
    own = python == sys.executable
    assert result.value == (sys.version_info[:2] if own else (3, int(python[-2:])))


def test_packages_of_a_venv_are_there_and_read_only(tmp_path: Path) -> None:
    """A venv is granted with its interpreter; the guest cannot change it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python3.*/site-packages")
    (site_packages / "present.py").write_text("answer = 42\n")
    with Runtime(JailPolicy(), environment=tmp_path / "venv") as runtime:
        result = runtime.run(
            "import present, sys\n"
            "try: open(present.__file__, 'w'); e = 0\nexcept OSError as error: e = error.errno\n"
            "(present.answer, e, sys.prefix)"
        )
    assert result.value == (42, 30, str(tmp_path / "venv"))
    assert (site_packages / "present.py").read_text() == "answer = 42\n"


def test_a_hostile_interpreter_is_probed_in_a_jail(
    tmp_path: Path, outside: Path, tool: Callable[[str], str]
) -> None:
    """A foreign program that passes for a Python does its worst in a jail, and is then refused."""
    compiler = tool("cc")
    (outside / "secret").write_text("s")
    (tmp_path / "bin").mkdir()
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <stdio.h>\n"
        "int PySys_AddAuditHook(void) { return 0; }\n"
        "int PyImport_AppendInittab(void) { return 0; }\n"
        "int main(void) {\n"
        f'    FILE *f = fopen("{outside}/secret", "r");\n'
        f'    FILE *g = fopen("{outside}/planted", "w");\n'
        "    puts(f || g ? \"('cpython', (3, 13), 'got out', True)\" : \"held\");\n"
        "    return 0;\n}\n"
    )
    program = tmp_path / "bin" / "python3"
    subprocess.run([compiler, "-rdynamic", "-o", program, source], check=True)
    assert "got out" in subprocess.run([program], capture_output=True, text=True, check=True).stdout
    (outside / "planted").unlink()
    with pytest.raises(PolicyError, match="cannot be a worker"):
        Runtime(JailPolicy(), python=program)
    assert not (outside / "planted").exists()


def test_two_runtimes_do_not_see_each_other() -> None:
    """Workers of two runtimes share no name, no process and no temporary file."""
    with Runtime(JailPolicy()) as one, Runtime(JailPolicy()) as two:
        one.exec("x = 1; open('/tmp/mark', 'w').close()")
        assert two.run("import os; ('x' in globals(), os.path.exists('/tmp/mark'))").value == (
            False,
            False,
        )
        assert one.eval("len([p for p in __import__('os').listdir('/proc') if p.isdigit()])") < 8


def test_no_descriptor_or_process_is_left() -> None:
    """After close the host has the descriptors that it had before."""
    with Runtime(JailPolicy()) as warm:
        warm.run("1")
    before = sorted(os.listdir("/proc/self/fd"))
    with Runtime(JailPolicy()) as runtime:
        runtime.run("1")
        with pytest.raises(WorkerDied):
            runtime.run("import os; os._exit(1)")
        runtime.run("1")
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "path",
    ["'/\\ud800'", "'/\\udcff'", "b'/\\xff'", "'/a\\0b'", "'/' + 'a' * 30_000", "'/../' * 999"],
)
def test_no_path_that_a_guest_claims_breaks_the_host(path: str) -> None:
    """An error about a path that no kernel could know may neither end the session nor raise."""
    with Runtime(JailPolicy()) as runtime:
        runtime.run("kept = 1")
        for number in (13, 2, 30, 1, 2**31 - 1, 2**70):
            result = runtime.run(f"raise OSError({number}, 'no', {path})")
            assert result.error is not None
            result.error.traceback.encode()
            assert isinstance(result.error.to_exception(result), Exception)
        assert runtime.get("kept") == 1


def test_a_guest_that_closes_its_home_closes_it_to_itself() -> None:
    """Neither a later run nor a later worker may be kept from starting by a mode of HOME."""
    close = "import os; os.chmod(os.environ['HOME'], 0)"
    with Runtime(JailPolicy()) as runtime:
        with pytest.raises(WorkerDied):
            runtime.run(f"{close}; os.kill(os.getpid(), 9)")
        assert runtime.run("__import__('os').getcwd()").value == "/"
    with Jail(JailPolicy()) as jail:
        assert jail.run(["pwd"]).stdout == b"/home/user\n"
        assert jail.run(["chmod", "0", "/home/user"]).exit_code == 0
        assert jail.run(["pwd"]).stdout == b"/\n"
        # What was asked for by name has no other place.
        with pytest.raises(PathDenied):
            jail.run(["pwd"], cwd="/home/user")

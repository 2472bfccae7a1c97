"""Public failures of other tools, tried in a Python worker.

Each case is named where it is tested; a test of a jail's program alone is not enough for a worker,
which has an audit hook, kept state and a channel of its own. Where each case is held for workers:

===== ==========================================================================================
PW-01 test_worker: test_pw_01_the_guest_owns_fds_0_to_2
PW-02 test_interrupts: test_pw_02_time_limits_are_real
PW-03 test_worker: test_pw_03_a_worker_that_ends_is_told_at_once; test_control:
      test_pw_03_a_crash_leaves_its_stacks, test_a_lack_of_memory_is_said_where_it_was_measured
EN-01 test_runtime_jailed: test_en_01_nothing_of_the_hosts_environment_crosses
TL-01 test_tls: test_tl_01_every_client_by_every_kind; test_tls_installers
LM-01 here: test_lm_01_a_bomb_in_a_worker_ends_with_it
LM-02 test_run_output: test_lm_02_a_gigabyte_on_both_streams_at_once; test_runtime
EC-01 test_run_output: test_ec_01_bytes_that_are_no_text_are_kept
SC-01 here: test_sc_01_what_a_worker_started_ends_with_it
SC-03 here: test_sc_03_nothing_outlives_a_worker_that_leaves
SC-10 test_runtime: test_stdin_is_empty
FD-01 test_worker: test_workers_inherit_no_descriptor_of_the_host
SE-01 here: test_ordinary_python_works_in_a_worker, with SE-06, UX-01 and FS-19
SE-08 here: test_se_08_memory_is_what_is_used_and_not_what_is_mapped
UX-06 here: test_ux_06_long_and_odd_paths
PT-01 here: test_pt_01_a_workers_terminal_takes_no_pushed_byte; PT-07 with the files below
FS-01 here: test_files_sockets_and_networks_that_are_not_granted, with FS-02, FS-03, FS-09, FS-10,
      FS-13, UX-04, NP-04 and PT-07
===== ==========================================================================================

Cases of policies (FS-04, FS-05, FS-15, SY-01), of the jail's file verbs (PG-01) and of its start
(UN-01) have no worker in them. Those of the proxy, of approvals, of workspaces and of archives
belong to parts that are not there yet.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import is_root, until

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRY = """
import ctypes, errno, os, shutil, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)

def tried(act):
    try:
        answer = act()
    except OSError as error:
        return error.errno
    if isinstance(answer, int) and answer == -1:  # of the C library
        return ctypes.get_errno()
    return 0

def read(path):
    with open(path) as file:
        return file.read()

def write(path):
    with open(path, "w") as file:
        file.write("x")

def by(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
"""

ACTS = """
os.chdir(w)
for name in ("new1", "new2", "new3"):
    write(name)
os.makedirs("rw", exist_ok=True)
mine = f"link-{os.getpid()}"
acts = {
    "FS-01 make": lambda: write("secret/new"),
    "FS-01 read": lambda: read("secret/k"),
    "FS-01 list": lambda: os.listdir("secret"),
    "FS-02 inner write": lambda: write("a/b/ok"),
    "FS-02 outer write": lambda: write("a/no"),
    "FS-03": lambda: read(".env"),
    "FS-03 copy": lambda: shutil.copyfile(".env", "x"),
    "FS-09 plant": lambda: (os.makedirs(".git/hooks", exist_ok=True), write(".git/hooks/pre-commit")),
    "FS-10 rename": lambda: os.rename("new1", "kept"),
    "FS-10 link over": lambda: (os.link("new3", mine), os.rename(mine, "kept")),
    "FS-10 exchange": lambda: libc.renameat2(-100, b"new2", -100, b"kept", 2),
    "FS-10 truncate": lambda: os.truncate("kept", 0),
    "FS-10 unlink": lambda: os.unlink("kept"),
    "FS-13 link out of read": lambda: os.link("ro/f", "rw/a"),
    "FS-13 link out of deny": lambda: os.link(".env", "rw/b"),
    "UX-04": lambda: socket.socket(socket.AF_UNIX).connect(w + "/s"),
    "NP-04 tcp": lambda: socket.create_connection(("127.0.0.1", port), 2),
    "NP-04 udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(
        b"x", ("127.0.0.1", port)),
}
answers = {name: tried(act) for name, act in acts.items()}
texts = b"".join([
    by("cat", ".env").stdout, by("tar", "cf", "-", ".env").stdout, by("cp", ".env", "y").stdout,
    by(sys.executable, "-c", "print(open('.env').read())").stdout,
])
[answers, b"TOKEN" in texts]
"""


@pytest.fixture
def tree(workspace: Path) -> Iterator[tuple[Path, int]]:
    """Make the files and the servers that a guest is after; gives the folder and the port."""
    for folder in ("secret", "a/b", "ro"):
        (workspace / folder).mkdir(parents=True)
    for file in ("secret/k", "kept", "ro/f", ".env"):
        (workspace / file).write_text("TOKEN")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        listening.bind(str(workspace / "s"))
        listening.listen()
        yield workspace, server.getsockname()[1]


def test_files_sockets_and_networks_that_are_not_granted(
    tree: tuple[Path, int], tmp_path: Path
) -> None:
    """FS-01, 02, 03, 09, 10, 13, UX-04, NP-04: no way in Python, ctypes or a child reaches them."""
    workspace, port = tree
    inputs = {"w": str(workspace), "port": port}
    policy = vr.JailPolicy(
        write=[workspace, workspace / "a/b"],
        read=[workspace / "a", workspace / "ro"],
        deny=[workspace / "secret", workspace / ".env"],
        deny_write=[workspace / "kept", workspace / ".git/hooks"],
    )
    before = {path: path.read_text() for path in workspace.rglob("*") if path.is_file()}
    with vr.Runtime(policy) as runtime:
        runtime.exec(TRY)
        answers, leaked = runtime.run(ACTS, inputs=inputs, check=True).value
    assert not leaked
    refused = {name for name, number in answers.items() if number}
    assert refused == {*answers} - {"FS-02 inner write", "NP-04 udp"}
    assert {answers[name] for name in answers if name.startswith(("FS-01", "FS-03"))} <= {
        errno.EACCES,
        errno.ENOENT,
        errno.EROFS,
        errno.EPERM,
    }
    assert answers["NP-04 tcp"] in (errno.ECONNREFUSED, errno.ENETUNREACH)
    assert {path: path.read_text() for path in before} == before
    assert not any(workspace.glob("**/pre-commit"))
    assert not list((workspace / "rw").iterdir())
    # The control: without a jail each act succeeds.
    with vr.TrustedRuntime() as runtime:
        runtime.exec(TRY)
        answers, leaked = runtime.run(ACTS, inputs=inputs, check=True).value
    assert {name: number for name, number in answers.items() if number} == {}
    assert leaked


WORKS = """
import asyncio, multiprocessing, os, socket, subprocess, tempfile, threading
from multiprocessing import shared_memory
os.chdir(w)
os.makedirs("d/n"); open("d/f", "w").close()
os.rename("d/f", "d/n/f"); os.link("d/n/f", "l"); os.rename("d", "e")
found = []
threads = [threading.Thread(target=found.append, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
a, b = socket.socketpair(); a.send(b"x")
reader, writer = multiprocessing.Pipe(); writer.send("piped")
lock = multiprocessing.Semaphore(2); lock.acquire()
memory = shared_memory.SharedMemory(create=True, size=1 << 20); memory.buf[0] = 7
asyncio.new_event_loop().run_until_complete(asyncio.sleep(0))
out = subprocess.run(["sh", "-c", "echo child"], capture_output=True).stdout
answers = [sorted(found), b.recv(1), reader.recv(), memory.buf[0], out,
    os.path.exists("e/n/f"), os.path.isdir(tempfile.gettempdir())]
memory.close(); memory.unlink()
answers
"""


def test_ordinary_python_works_in_a_worker(workspace: Path) -> None:
    """SE-01, SE-06, UX-01, FS-19: threads, pipes, shared memory, children and renames just work."""
    with vr.Runtime(vr.JailPolicy(write=[workspace])) as runtime:
        result = runtime.run(WORKS, inputs={"w": str(workspace)}, check=True)
        assert result.value == [[*range(8)], b"x", "piped", 7, b"child\n", True, True]
        assert result.denials == ()
    assert (workspace / "e/n/f").exists()


@pytest.mark.parametrize("bomb", ["forks", "threads"])
def test_lm_01_a_bomb_in_a_worker_ends_with_it(bomb: str) -> None:
    """LM-01: a bomb stays within its limit, the host goes on, and the next call has a fresh worker."""
    with vr.Jail(vr.JailPolicy()) as jail:
        uncounted = is_root() and "without capabilities" in jail.report.identity
    if uncounted:
        pytest.skip("the kernel does not count the processes of host uid 0")
    code = {
        "forks": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "threads": "import threading, time\n"
        "while True:\n"
        "    try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "    except RuntimeError: pass",
    }[bomb]
    with vr.Runtime(vr.JailPolicy(limits=vr.Limits(processes=64))) as runtime:
        jail = runtime._jail
        started = time.monotonic()
        run = runtime.start(code, timeout=1)
        time.sleep(0.5)
        spawned = time.monotonic()
        subprocess.run(["true"], check=True)
        assert time.monotonic() - spawned < 1
        with pytest.raises((vr.CommandTimeout, vr.WorkerDied)):
            run.result(10)
        runtime.kill()
        assert time.monotonic() - started < 8
        assert runtime.eval("6 * 7") == 42
        assert len(jail.processes()) == 1


def test_sc_01_what_a_worker_started_ends_with_it(workspace: Path) -> None:
    """SC-01: when a run has to be killed, its children that hold the pipes go with the worker."""
    ticks = workspace / "t"
    with vr.Runtime(vr.JailPolicy(write=[workspace])) as runtime:
        started = time.monotonic()
        with pytest.raises(vr.CommandTimeout) as late:
            runtime.run(
                "import signal, subprocess, time\n"
                "loop = 'while :; do echo x; date >' + t + '; sleep .05; done'\n"
                "subprocess.Popen(['sh', '-c', loop])\n"
                "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(99)",
                inputs={"t": str(ticks)},
                timeout=0.7,
            )
        assert time.monotonic() - started < 5
        assert b"x\n" in late.value.result.stdout
        assert late.value.result.session_lost
        assert runtime._jail.processes() == ()
        last = ticks.stat().st_mtime_ns  # the control: it was written
        time.sleep(0.3)
        assert ticks.stat().st_mtime_ns == last
        assert runtime.eval("1") == 1


def test_sc_03_nothing_outlives_a_worker_that_leaves(workspace: Path) -> None:
    """SC-03: what a worker left behind when it exited is ended, and writes no late word."""
    late = workspace / "late"
    leave = (
        "import os, subprocess\n"
        "late = ['sh', '-c', 'sleep 1; echo LATE > ' + t]\n"
        "subprocess.Popen(late, start_new_session=True)\n"
        "subprocess.Popen(['sleep', '73'], start_new_session=True)\n"
        "os._exit(0)"
    )
    with vr.Jail(vr.JailPolicy(write=[workspace])) as jail, vr.Runtime(jail.policy) as runtime:
        started = time.monotonic()
        with pytest.raises(vr.WorkerDied) as death:
            runtime.run(leave, inputs={"t": str(late)})
        assert time.monotonic() - started < 1.5
        assert death.value.exit_code == 0
        assert until(lambda: runtime._jail.processes() == ())
        time.sleep(1.2)
        assert not late.exists()
    # The control: without a jail the word comes, from a session of its own.
    free = leave.replace("subprocess.Popen(['sleep', '73'], start_new_session=True)\n", "")
    assert free != leave
    with vr.TrustedRuntime() as trusted, pytest.raises(vr.WorkerDied):
        trusted.run(free, inputs={"t": str(late)})
    assert until(late.exists)


def test_se_08_memory_is_what_is_used_and_not_what_is_mapped() -> None:
    """SE-08: a large reservation is no use of memory; what is touched beyond the limit ends the run."""
    limits = vr.Limits(memory=300 << 20, memory_by="watch")
    with vr.Runtime(vr.JailPolicy(limits=limits)) as runtime:
        reserve = "import mmap\nm = mmap.mmap(-1, 4 << 30)\nm[0] = 1\nlen(m)"
        assert runtime.run(reserve, check=True).value == 4 << 30
        with pytest.raises(vr.WorkerDied) as death:
            runtime.run("data = b'x' * (600 << 20)\nimport time; time.sleep(20)")
        assert death.value.stopped_by == "memory"
        assert runtime.eval("1") == 1


def test_ux_06_long_and_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UX-06: a TMPDIR and a workspace of more than 200 characters matter to no worker."""
    work = tmp_path.resolve() / ("very long é ü 名前 " * 6).strip() / ("x" * 120) / "w o r k"
    work.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(work))
    assert len(os.fsencode(work)) > 250
    choices: list[dict[str, Any]] = [{"stdin": "pty"}, {"preload": []}]
    for options in choices:
        policy = vr.JailPolicy(write=[work])
        with vr.Runtime(policy, cwd=work, **options) as runtime:
            code = "import os; open('f', 'w').write('x'); os.getcwd()"
            assert runtime.run(code, check=True).value == str(work)
            with runtime.fork() as copy:
                assert copy.eval("open('f').read()") == "x"
        assert (work / "f").read_text() == "x"
        (work / "f").unlink()


def test_pt_01_a_workers_terminal_takes_no_pushed_byte() -> None:
    """PT-01, PT-07: no typed command can be pushed, and there is no terminal but a worker's own."""
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def push(request):\n"
        "    answer = libc.syscall(nr, 0, ctypes.c_ulong(request), ctypes.byref(ctypes.c_char(b'x')))\n"
        "    return ctypes.get_errno() if answer else 0\n"
        "def opened(path):\n"
        "    try: os.close(os.open(path, os.O_RDWR))\n"
        "    except OSError as error: return error.errno\n"
        "    return 0\n"
        "[os.isatty(0), [push(n) for n in requests], opened('/dev/tty'), opened('/dev/console')]"
    )
    inputs: dict[str, Any] = {
        "nr": {"x86_64": 16, "aarch64": 29}[os.uname().machine],
        "requests": [0x5412, 0x541C, 0x1_0000_5412, 0xFFFF_FFFF_0000_5412],
    }
    with vr.Runtime(vr.JailPolicy(), stdin="pty") as runtime:
        terminal, pushed, tty, console = runtime.run(code, inputs=inputs, check=True).value
        assert (terminal, pushed) == (True, [errno.EPERM] * 4)
        assert tty in (0, errno.ENXIO)  # that of the worker, or none
        assert console == errno.ENOENT
    with vr.Runtime(vr.JailPolicy()) as runtime:
        terminal, pushed, tty, _ = runtime.run(code, inputs=inputs, check=True).value
        assert (terminal, tty) == (False, errno.ENXIO)

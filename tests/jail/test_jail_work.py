"""Real work in jails: the programs that people use must just work inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """Return a jail without any grant."""
    with Jail(JailPolicy()) as opened:
        yield opened


def ran(jail: Jail, *command: str, **options: Any) -> str:
    """Run a program that must succeed, and return its output."""
    result = jail.run(command, timeout=50, **options)
    assert result.exit_code == 0, (result.stdout_text, result.stderr_text)
    return result.stdout_text


def test_work_with_git(workspace: Path, tool: Callable[[str], str]) -> None:
    """Cloning a local repository and committing in a write grant must work."""
    tool("git")
    origin = workspace / "origin"
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.defpath, "HOME": "/nonexistent"}
    for command in (
        ["git", "init", "-q", str(origin)],
        [
            "git",
            "-C",
            str(origin),
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "first",
        ],
    ):
        subprocess.run(command, check=True, env=environment)
    (workspace / "work").mkdir()
    script = (
        "git clone -q ../origin clone && cd clone && echo x > f && git add f && "
        "git -c user.name=b -c user.email=b@example.org commit -q -m second && git log --format=%s"
    )
    with Jail(JailPolicy(read=[origin], write=[workspace / "work"])) as jail:
        assert ran(jail, "sh", "-c", script, cwd=workspace / "work") == "second\nfirst\n"
    assert (workspace / "work" / "clone" / "f").read_text() == "x\n"


def test_work_with_node(jail: Jail, tool: Callable[[str], str]) -> None:
    """Node must run scripts, workers and children with a message channel (UX-01)."""
    tool("node")
    text = (
        'const {Worker} = require("worker_threads");'
        "new Worker(\"require('worker_threads').parentPort.postMessage(42)\", {eval: true})"
        '.on("message", m => {'
        ' require("child_process").execFile("echo", ["child"], (e, out) => console.log(m, out.trim()));'
        "});"
    )
    assert ran(jail, "node", "-e", text) == "42 child\n"
    fork = (
        'if (process.argv[2]) { process.send("hello"); process.disconnect(); } else {'
        ' require("child_process").fork("/tmp/f.js", ["x"]).on("message", m => console.log(m)); }'
    )
    jail.write_bytes("/tmp/f.js", fork.encode())
    assert ran(jail, "node", "/tmp/f.js") == "hello\n"


def test_work_with_a_compiler(workspace: Path, tool: Callable[[str], str]) -> None:
    """Compiling and running a C program must work."""
    tool("gcc")
    (workspace / "a.c").write_text(
        '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n'
    )
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert ran(jail, "sh", "-c", "gcc -O1 -o a a.c && ./a", cwd=workspace) == "built\n"


def test_se_01_threads_and_tools_start(jail: Jail) -> None:
    """Programs that use new system calls with a fallback must start: threads, listings, Java."""
    text = "import threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()"
    assert ran(jail, PYTHON, "-c", text) == "thread\n"
    assert "bin" in ran(jail, "ls", "/usr")
    if shutil.which("java"):
        options = {"JAVA_TOOL_OPTIONS": "-Xmx64m"}
        result = jail.run(["java", "-version"], env=options, timeout=50)
        assert result.exit_code == 0, result.stderr_text
        assert "ersion" in result.stderr_text


MULTIPROCESSING = """
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory
def square(x): return x * x
def child(connection): connection.send(os.getpid())
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            assert list(pool.map(square, range(5))) == [0, 1, 4, 9, 16]
        here, there = context.Pipe()
        process = context.Process(target=child, args=(there,)); process.start()
        assert here.recv() == process.pid; process.join()
    assert multiprocessing.Semaphore(1).acquire()
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    memory.buf[-1] = 7; other = shared_memory.SharedMemory(memory.name); assert other.buf[-1] == 7
    print(sorted(os.listdir("/dev/shm")) != []); other.close(); memory.close(); memory.unlink()
"""


def test_se_06_multiprocessing_and_shared_memory(workspace: Path) -> None:
    """All start methods, semaphores and shared memory must work, in a /dev/shm of the jail's own."""
    before = set(os.listdir("/dev/shm"))
    (workspace / "m.py").write_text(MULTIPROCESSING)
    with Jail(JailPolicy(read=[workspace])) as jail, Jail(JailPolicy()) as other:
        assert ran(jail, PYTHON, "-B", str(workspace / "m.py")) == "True\n"
        jail.write_bytes("/dev/shm/seen", b"x")
        assert other.list_dir("/dev/shm") == []
    assert "seen" not in set(os.listdir("/dev/shm")) - before


STANDARD_LIBRARY = """
import asyncio, os, sqlite3, ssl, subprocess, tempfile, socket, pty
async def main():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\\n"); assert await reader.readline() == b"HELLO\\n"; writer.close()
    child = await asyncio.create_subprocess_exec("echo", "sub", stdout=subprocess.PIPE)
    assert (await child.communicate())[0] == b"sub\\n"
asyncio.run(main())
with tempfile.TemporaryDirectory() as folder:
    base = sqlite3.connect(folder + "/b.db"); base.execute("pragma journal_mode=wal")
    base.execute("create table t(x)"); base.execute("insert into t values (1)"); base.commit()
    assert sqlite3.connect(folder + "/b.db").execute("select x from t").fetchall() == [(1,)]
master, slave = os.openpty(); os.write(slave, b"x"); assert os.read(master, 1) == b"x"
assert os.ttyname(slave).startswith("/dev/pts/")
certificates = os.path.exists("/etc/ssl/certs/ca-certificates.crt")
assert ssl.create_default_context().cert_store_stats()["x509_ca"] > 0 or not certificates
assert socket.gethostbyname("localhost") == "127.0.0.1"
import getpass, pwd; assert pwd.getpwuid(os.getuid()).pw_name == getpass.getuser() == "user"
assert os.path.expanduser("~") == os.environ["HOME"]
print("all")
"""


def test_work_with_the_standard_library(jail: Jail) -> None:
    """asyncio, subprocess, sqlite3, openpty, names and certificates must work."""
    assert ran(jail, PYTHON, "-c", STANDARD_LIBRARY) == "all\n"


TLS = """
import os, socket, ssl, subprocess, threading
os.chdir("/tmp")
subprocess.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    " -keyout k.pem -out c.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost".split(),
    check=True, capture_output=True)
server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH); server.load_cert_chain("c.pem", "k.pem")
listening = socket.create_server(("127.0.0.1", 0))
def serve():
    with server.wrap_socket(listening.accept()[0], server_side=True) as one:
        one.sendall(one.recv(5)[::-1])
thread = threading.Thread(target=serve); thread.start()
client = ssl.create_default_context(cafile="c.pem")
plain = socket.create_connection(listening.getsockname())
with client.wrap_socket(plain, server_hostname="localhost") as one:
    one.sendall(b"hello"); print(one.recv(5).decode())
thread.join()
"""


def test_work_with_tls(jail: Jail, tool: Callable[[str], str]) -> None:
    """A TLS server and client on the jail's loopback must talk and verify."""
    tool("openssl")
    assert ran(jail, PYTHON, "-c", TLS) == "olleh\n"


def test_work_with_an_installed_package(workspace: Path, tool: Callable[[str], str]) -> None:
    """Unittest must find and run the tests of a package in a granted environment."""
    uv = tool("uv")
    package = workspace / "source" / "small"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def twice(x):\n    return x * 2\n")
    (package / "test_small.py").write_text(
        "import unittest\nfrom small import twice\n"
        "class T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(twice(4), 8)\n"
    )
    wheel(workspace, package)
    environment = workspace / "environment"
    own = {**os.environ, "UV_CACHE_DIR": str(workspace / "cache")}
    for command in (
        [uv, "venv", "-q", "--python", PYTHON, str(environment)],
        [
            uv,
            "pip",
            "install",
            "-q",
            "--offline",
            "--no-deps",
            "--python",
            str(environment / "bin" / "python"),
            str(workspace / "small-1.0-py3-none-any.whl"),
        ],
    ):
        subprocess.run(command, check=True, env=own, capture_output=True)
    with Jail(JailPolicy(read=[environment])) as jail:
        command = [str(environment / "bin" / "python"), "-m", "unittest", "small.test_small"]
        result = jail.run(command, timeout=50)
        assert result.exit_code == 0, result.stderr_text
        assert "Ran 1 test" in result.stderr_text


def wheel(folder: Path, package: Path) -> None:
    """Write a wheel of one package by hand: nothing is downloaded."""
    import zipfile

    information = "small-1.0.dist-info"
    with zipfile.ZipFile(folder / "small-1.0-py3-none-any.whl", "w") as archive:
        for file in package.iterdir():
            archive.write(file, f"small/{file.name}")
        archive.writestr(
            f"{information}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{information}/RECORD", "")

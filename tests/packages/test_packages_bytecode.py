"""What of its packages a build runs: nothing, also where their modules are compiled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packages_helpers import make_wheel, require_uv

import visruntime as vr
from visruntime.guest import bytecode

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid

PASSWORD = "hunter2"
UNCHECKED_HASH = b"\1\0\0\0"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the environments of a test, and the cache of uv, below its own folder."""
    require_uv()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    return tmp_path / "cache" / "visruntime"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder as an index that asks for a password; yield the folder and the URL."""
    wanted = "Basic " + b64encode(f"me:{PASSWORD}".encode()).decode()

    class Index(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] == wanted:
                super().do_GET()
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    folder = tmp_path / "index"
    folder.mkdir()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: Index(*args, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield folder, f"http://me:{PASSWORD}@127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def serve_wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    """Put the wheel of *name*, with *files*, into an index."""
    make_wheel(folder, name, "1.0", files)
    page = folder / "simple" / name
    page.mkdir(parents=True)
    wheel = f"{name}-1.0-py3-none-any.whl"
    (page / "index.html").write_text(f'<a href="/{wheel}">{wheel}</a>')


def test_no_package_runs_while_the_network_and_the_password_are_there(
    index: tuple[Path, str],
) -> None:
    """A wheel's ``.pth`` file, sitecustomize or ``py_compile`` must not run in its build."""
    folder, url = index
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        # Every way to be seen: a file beside the packages, a connection, the password in it.
        act = (
            "import os, socket, sys; sys.ran = getattr(sys, 'ran', []) + [NAME]; "
            "open(os.path.join(PLACE, 'ran-' + NAME), 'a').write(repr(dict(os.environ))); "
            f"socket.create_connection({listener.getsockname()!r}, 2).close()"
        )
        pth = act.replace("NAME", "'pth'").replace(
            "PLACE", "os.environ.get('PLACE', sys.prefix + '/lib')"
        )
        customize = act.replace("NAME", "'site'").replace("PLACE", "os.path.dirname(__file__)")
        serve_wheel(
            folder,
            "sly",
            {
                "sly.py": "x = 1\n",
                "sly.pth": f"{pth}\n",
                "sitecustomize.py": f"{customize}\n",
                "py_compile.py": f"{customize}\n",
            },
        )
        environment = vr.Environment.from_requirements(["sly"], hashes="resolve", index=url)
        built = environment.build()
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert built.report is not None
        assert list(Path(built.folder).rglob("ran-*")) == []
        packages = next(Path(built.folder).glob("lib/*/site-packages"))
        # The controls: unjailed they run and connect; in a worker, whose policy decides, they run.
        place = folder.parent / "place"
        place.mkdir()
        subprocess.run(
            [sys.executable, "-S", "-c", f"import site; site.addsitedir({str(packages)!r})"],
            check=True,
            env={"PLACE": str(place)},
        )
        listener.accept()[0].close()
    assert [path.name for path in place.iterdir()] == ["ran-pth"]
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        ran = runtime.run("import sys; sys.ran")
    assert "pth" in ran.value


def test_a_wheel_with_folders_deep_in_each_other(index: tuple[Path, str]) -> None:
    """What a wheel holds is no fault of the policy or of the machine, and says whose it is."""
    folder, url = index
    serve_wheel(folder, "deep", {"deep/" + "a/" * 150 + "x.py": "x = 1\n"})
    environment = vr.Environment.from_requirements(["deep"], hashes="resolve", index=url)
    with pytest.raises(vr.EnvironmentNotBuilt, match="installs"):
        environment.build()


def test_modules_are_compiled_for_good(tmp_path: Path) -> None:
    """Bytecode depends on the source alone, names no folder of the build, and is what is run."""
    modules = {f"many/m{number}.py": f"x = {number}\n" for number in range(150)}
    make_wheel(
        tmp_path / "wheels",
        "many",
        "1.0",
        {
            **modules,
            "many/__init__.py": "def fail():\n    return 1 / 0\n",
            "many/warns.py": "x = '\\d'\n",
            "many/broken.py": "print 'of another Python'\n",
            "many/closed.py": "x = 1\0\n",
        },
    )
    said: list[str] = []
    environment = vr.Environment.from_requirements(
        ["many"], wheelhouse=tmp_path / "wheels", hashes="resolve", progress=said.append
    )
    folder = Path(environment.build().folder)
    assert not any("Warning" in line or "broken" in line for line in said), said
    (package,) = folder.glob("lib/*/site-packages/many")
    compiled = {path.name.partition(".")[0]: path for path in (package / "__pycache__").iterdir()}
    assert set(compiled) == {path.stem for path in package.glob("*.py")} - {"broken", "closed"}
    for path in compiled.values():
        content = path.read_bytes()
        assert content[4:8] == UNCHECKED_HASH
        assert b"building" not in content
        assert os.fsencode(folder) not in content
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        failed = runtime.run("import many; many.fail()")
    assert failed.error is not None
    assert failed.error.frames[-1].file == str(package / "__init__.py")


def test_a_compiler_that_is_ended_is_an_error(tmp_path: Path) -> None:
    """What was compiled in part only must not pass for the whole."""
    for number in range(130):
        (tmp_path / f"m{number}.py").write_text("x = 1\n")
    # The two largest go to different processes: one is read at once, the other never ends.
    (tmp_path / "long.py").write_text("#" * 8_000_000)
    (tmp_path / "slow.py").write_text("x = [\n" + "    {'a': 1},\n" * 400_000 + "]\n")
    source = Path(bytecode.__file__).read_text()
    begin = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\n"

    def run(text: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", "-c", text, str(tmp_path), "2"]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    ended = run(source.replace("import os\n", f"import os\n{begin}"))
    assert (ended.returncode, ended.stderr) == (
        1,
        f"a process that compiles modules ended with -{signal.SIGXCPU.value}\n",
    )
    (tmp_path / "slow.py").unlink()
    done = run(source)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "__pycache__").iterdir())) == 131

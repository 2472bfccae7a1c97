"""Who gets to know the password of an index, or of a proxy: the index and the proxy, nobody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from interpreters import copy_installation
from jail_helpers import PYTHON
from packages_helpers import make_source, make_wheel, require_uv

import visruntime as vr
from visruntime._packages.addresses import (
    MOST_CREDENTIALS,
    credentials_in,
    without_credentials,
)
from visruntime._packages.uv import certificates, find_uv, host_cache, settings, variables
from visruntime._policy.values import Secret
from visruntime.environments import Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.one_uid

PASSWORD = "hunter2"
UV = "/usr/bin/true"
"""For keys: a program of the system in the place of uv."""
PROXY_PASSWORD = "s3same"
VARIABLES = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    *("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "http_proxy", "https_proxy"),
    *("UV_CONFIG_FILE", "UV_KEYRING_PROVIDER", "NETRC", "SSL_CLIENT_CERT"),
)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all below the test's folder, with a proxy that has a password (but not for us)."""
    require_uv()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    for name in ("ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://someone:{PROXY_PASSWORD}@127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@contextmanager
def serving(folder: Path, wanted: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Serve *folder*, perhaps only to who is *wanted*; yield the address, and what is asked."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            if wanted is None or self.headers["Authorization"] == wanted:
                super().do_GET()
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    folder.mkdir(exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


WHO = "Basic " + b64encode(f"me:{PASSWORD}".encode()).decode()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Serve an index that asks for a password; yield its folder, its URL and who asked."""
    folder = tmp_path / "index"
    with serving(folder, WHO) as (address, asked):
        yield folder, f"http://me:{PASSWORD}@{address}/simple", asked


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Serve what is somebody else's, to everybody."""
    folder = tmp_path / "other"
    with serving(folder) as (address, asked):
        yield folder, f"http://{address}", asked


def serve_wheel(folder: Path, name: str, requires: tuple[str, ...] = ()) -> str:
    """Put a wheel into an index; return its hash."""
    held = make_wheel(folder, name, "1.0", {f"{name}.py": "x = 1\n"}, requires=requires)
    page = folder / "simple" / name
    page.mkdir(parents=True)
    wheel = f"{name}-1.0-py3-none-any.whl"
    (page / "index.html").write_text(f'<a href="/{wheel}">{wheel}</a>')
    return held


def hidden_in(text: str) -> list[str]:
    """Return which secrets are in *text*."""
    return [secret for secret in (PASSWORD, PROXY_PASSWORD, WHO[6:], "someone") if secret in text]


def test_the_metadata_of_a_wheel_is_not_told_the_password(
    index: tuple[Path, str, list[str]], other: tuple[Path, str, list[str]]
) -> None:
    """A requirement in a wheel, with variables in its address, must get no secret by them."""
    folder, url, asked = index
    elsewhere, address, seen = other
    serve_wheel(folder, "plain")
    make_wheel(elsewhere, "theirs", "1.0", {"theirs.py": "x = 1\n"})
    query = "&".join(f"{name}=${{{name}}}" for name in (*VARIABLES, "UV_NO_PROGRESS"))
    needs = f"theirs @ {address}/theirs-1.0-py3-none-any.whl?{query}"
    make_wheel(elsewhere, "sly", "1.0", {"sly.py": "x = 1\n"}, requires=(needs,))
    wanted = ["plain", f"sly @ {address}/sly-1.0-py3-none-any.whl"]
    environment = vr.Environment.from_requirements(wanted, hashes="resolve", index=url)
    with pytest.raises(vr.EnvironmentNotBuilt, match="variable of the environment") as caught:
        environment.build()
    told = [str(caught.value), caught.value.output]
    # The controls: uv has filled in what it knows, and asked the index with its password.
    assert [one for one in seen if "UV_DEFAULT_INDEX" in one and "UV_NO_PROGRESS=1" in one]
    assert [who for who in asked if who.startswith("/simple/plain/") and who.endswith(WHO)]
    assert hidden_in("\n".join([*seen, *told])) == []


SPLIT = ["${UV_DEFAULT_INDEX}", "$\\t{UV_DEFAULT_INDEX}", "$\\n\\r{UV_DEFAULT_INDEX}", "$\\u007bX}"]


@pytest.mark.parametrize("variable", SPLIT)
def test_a_lock_is_not_told_the_password(
    tmp_path: Path,
    index: tuple[Path, str, list[str]],
    other: tuple[Path, str, list[str]],
    variable: str,
) -> None:
    """Refused, also where what reads an address drops what stands between the $ and the brace."""
    _, url, asked = index
    elsewhere, address, seen = other
    held = make_wheel(elsewhere, "theirs", "1.0", {"theirs.py": "x = 1\n"}).partition("=")[2]
    place = f"{address}/theirs-1.0-py3-none-any.whl"
    requires = f'requires-python = ">=3.11"\ndependencies = ["theirs @ {place}"]\n'
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(f'[project]\nname = "p"\nversion = "1"\n{requires}')
    header = "".join(f"# {line}\n" for line in requires.splitlines())
    (project / "s.py").write_text(f"# /// script\n{header}# ///\n")
    for end in (f"#{variable}", f"?{variable}", ""):
        theirs = (
            f'[[package]]\nname = "theirs"\nversion = "1.0"\nsource = {{ url = "{place}{end}" }}\n'
            f'wheels = [{{ url = "{place}{end}", hash = "{held}" }}]\n'
        )
        head = 'version = 1\nrevision = 1\nrequires-python = ">=3.11"\n'
        asks = f'[{{ name = "theirs", url = "{place}{end}" }}]\n'
        (project / "s.py.lock").write_text(f"{head}[manifest]\nrequirements = {asks}{theirs}")
        (project / "uv.lock").write_text(
            f'{head}[[package]]\nname = "p"\nversion = "1"\nsource = {{ virtual = "." }}\n'
            f'dependencies = [{{ name = "theirs" }}]\n[package.metadata]\nrequires-dist = {asks}'
            f"{theirs}"
        )
        if end:
            with pytest.raises(vr.PolicyError, match="variable of the environment"):
                vr.Environment.from_script(project / "s.py", index=url)
            with pytest.raises(vr.PolicyError, match="variable of the environment"):
                vr.Environment.from_project(project, index=url)
    # The control: the same locks without it are installed, from there, and nobody is told.
    vr.Environment.from_script(project / "s.py", index=url).build()
    vr.Environment.from_project(project, index=url).build()
    assert seen
    assert hidden_in("\n".join([*seen, *asked])) == []


def test_what_uv_exports_is_looked_at_again(
    tmp_path: Path,
) -> None:
    """What no look at the lock found is refused in the text that uv makes of it."""
    uv = tmp_path / "uv"
    uv.mkdir()
    # A uv that makes another thing of a lock than this version of it does.
    source = uv / "uv.c"
    source.write_text(
        "#include <stdio.h>\n#include <string.h>\nint main(int n, char **a) {\n"
        '  FILE *out = fopen(a[n - 1], "w"); if (strcmp(a[1], "export")) return 7;\n'
        '  fputs("a @ http://x.test/a.whl?${X}\\n", out); return fclose(out); }\n'
    )
    subprocess.run(["cc", "-o", uv / "uv", source], check=True)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    (project / "uv.lock").write_text("version = 1\n")
    with pytest.raises(vr.EnvironmentNotBuilt, match="variable of the environment"):
        vr.Environment.from_project(project, uv=uv / "uv", hashes="resolve").build()


def test_code_of_a_package_finds_no_password_in_its_environment(
    tmp_path: Path, index: tuple[Path, str, list[str]]
) -> None:
    """Where a build may run code, the index is neither in a variable nor on a command line."""
    folder, url, asked = index
    page = folder / "simple" / "loud"
    page.mkdir(parents=True)
    make_source(
        folder,
        "loud",
        "1.0",
        "import glob, os\n"
        "told = repr(os.environb).encode()\n"
        "names = glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ')\n"
        "for folder, _, found in os.walk(work()):\n"
        "    names += [os.path.join(folder, name) for name in found]\n"
        "for name in names:\n"
        "    try: told += open(name, 'rb').read()\n"
        "    except OSError: pass\n"
        f"if bytes.fromhex('{PASSWORD.encode().hex()}') in told: raise SystemExit('found it')\n"
        "assert b'UV_NO_PROGRESS' in told and b'--config-file' in told",
    )
    (page / "index.html").write_text('<a href="/loud-1.0.tar.gz">loud-1.0.tar.gz</a>')
    environment = vr.Environment.from_requirements(
        ["loud"], hashes="resolve", index=url, wheels_only=False
    )
    environment.build()
    assert [who for who in asked if who.endswith(WHO)]


def test_the_environment_of_a_build_has_no_secret_that_uv_fills_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uv puts in what has an upper-case name; the proxies go by the other, and no other secret."""
    monkeypatch.setenv("http_proxy", "http://lower:1@p.test")
    monkeypatch.setenv("HTTP_PROXY", "http://upper:1@p.test")
    for name in ("UV_INDEX_X_PASSWORD", "UV_PUBLISH_TOKEN", "NETRC", "SSL_CLIENT_CERT", "UV_INDEX"):
        monkeypatch.setenv(name, "secret")
    given = variables("/cache", f"http://me:{PASSWORD}@x.test/simple")
    secret = {name for name, value in given.items() if isinstance(value, Secret)}
    assert secret == {"all_proxy", "https_proxy", "http_proxy", "no_proxy"}
    assert given["http_proxy"] == Secret("http://upper:1@p.test")
    plain = [str(value) for value in given.values() if not isinstance(value, Secret)]
    assert not [text for text in plain if PASSWORD in text or "secret" in text]
    assert variables("/cache", None).keys().isdisjoint(secret)


def test_the_configuration_names_any_index() -> None:
    """Quotes and backslashes in an address end no text; without an address there is none."""
    import tomllib

    for url in ('http://a"b\\c@x.test/', "http://ü:𝄞@x.test/simple", "file:///a/b"):
        assert tomllib.loads(settings(url).decode()) == {"index": [{"url": url, "default": True}]}
    assert settings(None) == settings("default") == b""


def holding(folder: Path, text: str) -> list[str]:
    """Return the files below *folder* that hold *text*."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def test_the_password_of_a_requirement_stays_out_of_the_environment(
    tmp_path: Path, index: tuple[Path, str, list[str]]
) -> None:
    """Uv uses it; no file of the environment, no compiler and no line of progress must have it."""
    folder, url, asked = index
    serve_wheel(folder, "plain")
    wanted = f"plain @ {url.removesuffix('/simple')}/plain-1.0-py3-none-any.whl"
    said: list[str] = []
    held: list[list[str]] = []

    def progress(line: str) -> None:
        said.append(line)
        held.append(holding(tmp_path / "cache", PASSWORD))

    environment = vr.Environment.from_requirements(
        [wanted], hashes="resolve", index=f"http://{url.partition('@')[2]}", progress=progress
    )
    built = environment.build()
    assert holding(tmp_path / "cache", PASSWORD) == []
    assert f"plain @ http://{url.partition('@')[2].partition('/')[0]}/plain-1.0" in built.locked
    assert hidden_in("\n".join([built.locked, *said])) == []
    # The controls: it was there while uv needed it, gone for the compiler, and given to the server.
    before = next(at for at, line in enumerate(said) if line.startswith("installing"))
    after = next(at for at, line in enumerate(said) if line.startswith("compiling"))
    assert "requirements.in" in held[before]
    assert held[after] == []
    assert [who for who in asked if who.endswith(WHO)]


def test_the_query_of_a_requirement_stays_out_of_the_environment(
    tmp_path: Path, other: tuple[Path, str, list[str]]
) -> None:
    """No guest reads a token behind the ? of an address, and no line of progress shows it."""
    folder, address, asked = other
    serve_wheel(folder, "plain")
    wanted = f"plain @ {address}/plain-1.0-py3-none-any.whl?token=QUERY22#FRAGMENT33"
    said: list[str] = []
    environment = vr.Environment.from_requirements(
        [wanted], hashes="resolve", index=f"{address}/simple", progress=said.append
    )
    built = environment.build()
    for text in ("QUERY22", "FRAGMENT33"):
        assert holding(tmp_path / "cache", text) == []
        assert text not in "\n".join([built.locked, *said])
    (noted,) = (tmp_path / "cache").rglob("direct_url.json")
    assert f'"{address}/plain-1.0-py3-none-any.whl"' in noted.read_text()
    lines = (noted.parent / "RECORD").read_text().splitlines()
    assert "plain-1.0.dist-info/direct_url.json,," in lines
    assert len([line for line in lines if ",sha256=" in line]) > 2
    # The control: the server is told.
    assert [line for line in asked if "token=QUERY22" in line]


@pytest.mark.parametrize(
    "line",
    [
        "--index-url http://me:hunter2@x.test/simple",
        "a @ http://me:hunter2@x.test/${X}",
        "@ http://me:hunter2@x.test/a",
        "a @ file://me:hunter2@x.test/a.whl",
        "a @ http:me:hunter2@x.test/a\x01",
        "a @ http://x.test/a?hunter2=${X}",
    ],
)
def test_a_refused_requirement_is_quoted_without_its_password(line: str) -> None:
    """A message that quotes what it refuses must leave the credentials of addresses out."""
    with pytest.raises(vr.PolicyError) as caught:
        vr.Environment.from_requirements([line])
    assert "x.test" in str(caught.value)
    assert hidden_in(str(caught.value)) == []


def test_an_interpreter_that_a_guest_may_have_made_meets_no_password(
    tmp_path: Path,
    index: tuple[Path, str, list[str]],
    other: tuple[Path, str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uv runs the interpreter, which could read uv's memory: one from anywhere is refused."""
    folder, url, asked = index
    elsewhere, address, _ = other
    serve_wheel(folder, "plain")
    serve_wheel(elsewhere, "plain")
    system = Path(PYTHON).resolve()
    python = tmp_path / "own" / "bin" / system.name
    python.parent.mkdir(parents=True)
    shutil.copy(system, python)
    (tmp_path / "own" / "pyvenv.cfg").write_text(f"home = {system.parent}\n")
    wanted, line = ["plain"], f"plain @ http://me:{PASSWORD}@x.test/plain-1.0-py3-none-any.whl"
    for packages, server in ((wanted, url), ([line], f"{address}/simple")):
        asking = vr.Environment.from_requirements(
            packages, hashes="resolve", index=server, python=python
        )
        with pytest.raises(vr.PolicyError, match="a guest may have made it") as caught:
            asking.build()
        assert caught.value.field == "python"
        assert hidden_in(str(caught.value)) == []
    assert asked == []
    # The controls: the system's own is taken, and the password given to the index alone. And
    # the copy is an interpreter: where there is no password, it is taken.
    vr.Environment.from_requirements(wanted, hashes="resolve", index=url, python=system).build()
    assert [who for who in asked if who.endswith(WHO)]
    for name in ("ALL_PROXY", "https_proxy"):
        monkeypatch.delenv(name)
    built = vr.Environment.from_requirements(
        wanted, hashes="resolve", index=f"{address}/simple", python=python
    ).build()
    assert built.interpreter.program == str(python)
    assert not built.reused


@pytest.mark.parametrize(
    ("variable", "granted"),
    [("SSL_CERT_DIR", certificates), ("SSL_CERT_FILE", certificates), ("UV_CACHE_DIR", host_cache)],
)
def test_no_link_that_a_guest_made_is_followed_for_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, granted: Callable[[], object]
) -> None:
    """What the user's variables name is granted to a build, and not where a guest has led it."""
    (tmp_path / "private").mkdir()
    there = tmp_path / "project/there"
    there.mkdir(parents=True)
    for name in ("SSL_CERT_DIR", "SSL_CERT_FILE", "UV_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as patch:
        patch.setenv(variable, str(there))
        assert granted() in (str(there), [str(there)])  # the control
    with vr.Jail(vr.JailPolicy(write=[there.parent])) as jail:
        jail.run(["sh", "-c", f"rmdir '{there}' && ln -s ../private '{there}'"], check=True)
    monkeypatch.setenv(variable, str(there))
    with pytest.raises(vr.errors.PolicyError, match=f"{variable}: .*/there is a link"):
        granted()


def test_a_uv_that_a_guest_may_have_made_meets_no_password(
    tmp_path: Path, index: tuple[Path, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of PATH may be what an earlier guest has put into a project's own bin."""
    folder, url, asked = index
    serve_wheel(folder, "plain")
    planted = tmp_path / "project" / ".venv" / "bin" / "uv"
    planted.parent.mkdir(parents=True)
    real = require_uv()
    shutil.copy(real, planted)
    system = tmp_path / "links" / "uv"  # nor does a link of a guest's choose another program
    system.parent.mkdir()
    system.symlink_to(Path(PYTHON).resolve())
    monkeypatch.setenv("PATH", f"{system.parent}:{planted.parent}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    for name in ("prefix", "base_prefix", "exec_prefix"):
        monkeypatch.setattr(f"visruntime._packages.uv.sys.{name}", "/usr")
    with pytest.raises(vr.PolicyError, match=r"no guest can have made.*uv=") as caught:
        find_uv(secret=True)
    assert caught.value.field == "environment"
    asking = vr.Environment.from_requirements(["plain"], hashes="resolve", index=url)
    with pytest.raises(vr.PolicyError, match="no guest can have made"):
        asking.build()
    assert asked == []
    # The controls: without a password it is as good as any, as is the one that the caller names.
    system.unlink()
    assert find_uv() == str(planted)
    assert find_uv(planted, secret=True) == str(planted)
    named = vr.Environment.from_requirements(["plain"], hashes="resolve", index=url, uv=planted)
    named.build()
    assert [who for who in asked if who.endswith(WHO)]


def test_another_uv_makes_another_environment(tmp_path: Path) -> None:
    """What a guest's uv has made must not be taken for an honest one's; the system's is one."""
    environment = vr.Environment.from_requirements(["plain"], hashes="resolve")
    interpreter = Interpreter(
        name=PYTHON,
        program=str(Path(PYTHON).resolve()),
        version=sys.version,
        library=None,
        grants=(),
        same_as_host=True,
    )
    uv = tmp_path / "uv"
    uv.write_bytes(b"hostile")
    hostile = environment._key(interpreter, str(uv))
    assert environment._key(interpreter, str(uv)) == hostile
    uv.write_bytes(b"honest!")
    assert environment._key(interpreter, str(uv)) != hostile
    missing = vr.PolicyError("none", field="environment")
    assert environment._key(interpreter, UV) == environment._key(interpreter, missing)


def test_another_file_in_the_place_of_the_interpreter_is_another_environment(
    tmp_path: Path,
) -> None:
    """What a hostile program at a path has compiled must not be an honest one's afterwards."""
    program = tmp_path / "python3"
    program.write_bytes(b"hostile")
    environment = vr.Environment.from_requirements(["plain"], hashes="resolve")
    interpreter = Interpreter(
        name=str(program),
        program=str(program),
        version=sys.version,
        library=None,
        grants=(),
        same_as_host=True,
    )
    before = environment._key(interpreter, UV)
    assert environment._key(interpreter, UV) == before
    status = program.stat()
    program.rename(tmp_path / "aside")
    program.write_bytes(b"honest!")
    os.utime(program, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert environment._key(interpreter, UV) != before


def test_a_changed_standard_library_is_another_environment(tmp_path: Path) -> None:
    """It compiles what the environment holds: one that a guest changed for a while made another."""
    program = copy_installation(tmp_path / "python")
    module = next((tmp_path / "python" / "lib").glob("python3.*")) / "encodings" / "__init__.py"
    module.parent.mkdir()
    module.write_text("honest")
    environment = vr.Environment.from_requirements(["plain"], hashes="resolve")
    interpreter = Interpreter(
        name=str(program),
        program=str(program),
        version=sys.version,
        library=None,
        grants=(),
        same_as_host=True,
    )
    keys = [environment._key(interpreter, UV)]
    assert environment._key(interpreter, UV) == keys[0]
    status = module.stat()
    for text in ("guest's", "honest"):  # its times set back, as a guest can
        time.sleep(0.02)  # of one tick of the clock
        module.write_text(text[:6])
        os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns))
        keys.append(environment._key(interpreter, UV))
    (tmp_path / "python" / "lib" / "python311.zip").touch()
    keys.append(environment._key(interpreter, UV))
    (tmp_path / "python" / "bin" / "pyvenv.cfg").write_text(f"home = {tmp_path}/other/bin\n")
    other = tmp_path / "other" / "lib" / "python3.11"
    other.mkdir(parents=True)
    keys.append(environment._key(interpreter, UV))
    (other / "os.py").touch()
    keys.append(environment._key(interpreter, UV))
    assert len(set(keys)) == len(keys)


def test_the_query_of_a_quoted_address_is_known_without_the_quote() -> None:
    """A lock writes its addresses in quotes, uv shows them without; and one may have a quote."""
    line = 'sdist = { url = "https://x.test/a.zip?token=abc", hash = "sha256:0" }'
    assert "token=abc" in credentials_in(line)
    assert "abc" not in without_credentials(line)
    assert "token=abc" in credentials_in("a @ https://x.test/a.zip#token=abc")
    assert credentials_in("a @ https://x.test/a.zip#sha256=00") == set()
    assert without_credentials('a @ https://x.test/a.zip?tok"abc') == "a @ https://x.test/a.zip"


def test_more_credentials_than_can_be_kept_out_are_refused() -> None:
    """Each is looked for in all that uv says, so a lock of a guest's must not name millions."""
    lines = [f"https://x.test/a?{number}" for number in range(MOST_CREDENTIALS + 1)]
    assert len(credentials_in(*lines[1:], *lines[1:])) == MOST_CREDENTIALS
    packages = [f"a{number} @ {line}" for number, line in enumerate(lines)]
    environment = vr.Environment.from_requirements(
        packages, hashes="resolve", index="https://x.test/simple"
    )
    with pytest.raises(vr.PolicyError, match="more than 1000 different"):
        environment.build()

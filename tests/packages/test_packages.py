"""Environments that uv builds in a jail, from wheels that the tests make."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from jail_helpers import until
from packages_helpers import (
    cache,
    left_behind,
    make_project,
    make_source,
    make_wheel,
    no_leftovers,
    require_uv,
    resolved,
    wheels,
)

import visruntime as vr
from visruntime._jail.making import make_folder
from visruntime._packages.tree import LOCKED, assemble, packages_of

__all__ = ["cache", "no_leftovers", "wheels"]

THIS = sys.version_info[:3]


def test_packages_are_installed_compiled_and_read_only(wheels: Path, cache: Path) -> None:
    """A guest imports what was installed from its bytecode, runs its scripts, and changes nothing."""
    environment = resolved(wheels, "tinya")
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        result = runtime.run(
            "import os, subprocess, sys, tinya\n"
            "[tinya.y, sys.prefix, os.path.exists(tinya.__spec__.cached),"
            " subprocess.run(['tinya'], capture_output=True, env={'PATH': sys.prefix + '/bin:'"
            " '/usr/bin:/bin'}).stdout]"
        )
        assert result.error is None, result.error.traceback
        y, prefix, compiled, printed = result.value
        assert (y, compiled, printed) == (2, True, b"ran 2\n")
        assert Path(prefix).parent == cache / "environments"
        for act in ("open(tinya.__file__, 'a')", "open(sys.prefix + '/new', 'w')"):
            denied = runtime.run(act)
            assert denied.error is not None
            assert denied.error.errno == errno.EROFS
    # The control: for the host these are ordinary files.
    (cache / "environments" / Path(prefix).name / "new").touch()
    built = environment.build()
    assert (built.folder, built.reused, built.report) == (prefix, True, None)
    assert built.locked.count("--hash=sha256:") == 2
    assert left_behind(cache) == [built.key]


def test_an_environment_is_built_once(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing runs: not even uv is needed, where no guest can have made it."""
    monkeypatch.setattr("visruntime.packages.is_kept", lambda _uv: True)
    first = resolved(wheels, "tinyb").build()
    again = resolved(wheels, "tinyb", uv="/nonexistent").build()
    assert (first.reused, again.reused) == (False, True)
    assert first.report is not None
    assert first.folder == again.folder
    other = resolved(wheels, "tinyb", wheels_only=False).build()
    assert other.key != first.key


def test_many_builders_make_one(wheels: Path) -> None:
    """Builders at the same time must neither meet nor build twice."""
    built: list[vr.BuiltEnvironment] = []
    threads = [
        threading.Thread(target=lambda: built.append(resolved(wheels, "tinyb").build()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.folder for one in built}) == 1
    assert sorted(one.reused for one in built) == [False, True, True, True]


def test_a_hash_that_differs_keeps_a_package_out(wheels: Path, cache: Path) -> None:
    """Other bytes than the ones that were asked for must not be installed, nor leave anything."""
    right = make_wheel(wheels, "held", "1.0", {"held.py": "x = 1\n"})
    with pytest.raises(vr.EnvironmentNotBuilt, match=r"(?i)hash") as caught:
        vr.Environment.from_requirements(
            [f"held==1.0 --hash=sha256:{'0' * 64}"], wheelhouse=wheels
        ).build()
    assert "Hash mismatch" in caught.value.output
    assert left_behind(cache) == []
    built = vr.Environment.from_requirements([f"held==1.0 {right}"], wheelhouse=wheels).build()
    assert right in built.locked
    make_wheel(wheels, "held", "1.0", {"held.py": "x = 'another'\n"})
    assert vr.Environment.from_requirements([f"held==1.0 {right}"]).build().reused


def test_hashes_are_required_unless_they_are_resolved(wheels: Path) -> None:
    """Without a hash anything could come; the message says both ways out."""
    with pytest.raises(vr.PolicyError, match='hashes="resolve"'):
        vr.Environment.from_requirements(["tinyb"], wheelhouse=wheels)
    assert "tinyb==1.2" in resolved(wheels, "tinyb").build().locked


def test_without_an_index_nothing_is_fetched(wheels: Path, cache: Path) -> None:
    """An index that answers must not be asked; named, it is."""
    asked = []

    class Index(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    root = wheels.parent / "index"
    (root / "simple" / "tinyb").mkdir(parents=True)
    (root / "tinyb-1.2-py3-none-any.whl").write_bytes(
        (wheels / "tinyb-1.2-py3-none-any.whl").read_bytes()
    )
    (root / "simple" / "tinyb" / "index.html").write_text(
        '<a href="/tinyb-1.2-py3-none-any.whl">tinyb-1.2-py3-none-any.whl</a>'
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Index(*args, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/simple"
        offline = vr.Environment.from_requirements(["tinyb"], hashes="resolve")
        with pytest.raises(vr.EnvironmentNotBuilt, match="--index default"):
            offline.build()
        assert asked == []
        assert left_behind(cache) == []
        built = vr.Environment.from_requirements(["tinyb"], hashes="resolve", index=url).build()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert "/simple/tinyb/" in asked
    assert built.report is not None
    assert "tinyb==1.2" in built.locked


def test_the_users_cache_serves_a_build_without_network(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What uv has in its cache is enough, and the build changes nothing there."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    (tmp_path / "uv" / "archive-v0").mkdir(parents=True)
    before = sorted(str(path) for path in (tmp_path / "uv").rglob("*"))
    with pytest.raises(vr.EnvironmentNotBuilt, match="not found in the cache"):
        vr.Environment.from_requirements(["tinyb"], hashes="resolve").build()
    assert sorted(str(path) for path in (tmp_path / "uv").rglob("*")) == before


def test_a_failure_of_another_kind_is_not_told_to_fetch(wheels: Path) -> None:
    """Only what no source has can come from an index: else the hint would lead astray."""
    wrong = ["tinyb==1.2 --hash=sha256:" + "0" * 64]
    with pytest.raises(vr.EnvironmentNotBuilt, match=r"(?i)hash") as caught:
        vr.Environment.from_requirements(wrong, wheelhouse=wheels).build()
    assert "nothing was fetched" not in str(caught.value)
    with pytest.raises(vr.EnvironmentNotBuilt) as caught:
        resolved(wheels, "tinyb==1.2", "tinyb==1.1").build()
    assert "nothing was fetched" not in str(caught.value)
    with pytest.raises(vr.EnvironmentNotBuilt, match="nothing was fetched"):
        resolved(wheels, "nosuchpackage").build()


def test_an_index_that_fails_is_shown_without_its_credentials(cache: Path) -> None:
    """The user must see which index it was, and nobody the password."""
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        index = f"http://someone:hunter%232@127.0.0.1:{port}/simple"
        with pytest.raises(vr.EnvironmentNotBuilt) as caught:
            vr.Environment.from_requirements(["tinyb"], hashes="resolve", index=index).build()
    said = str(caught.value) + caught.value.output
    assert f"127.0.0.1:{port}/simple" in said
    for hidden in ("someone", "hunter%232", "hunter#2"):
        assert hidden not in said


# ---- packages that would have to be built ----


def test_a_package_that_runs_code_is_built_only_if_allowed(
    wheels: Path, cache: Path, tmp_path: Path
) -> None:
    """Building runs a package's code, which is refused by default, and jailed otherwise."""
    target = tmp_path / "outside"
    target.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        attack = f"""
import os, socket
def attempt(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return 0
found = [
    attempt(lambda: open({str(target / "planted")!r}, "w")),
    attempt(lambda: socket.create_connection({address!r}, 2)),
    attempt(lambda: open(os.path.join(work(), "venv", "found"), "w")),
]
os.makedirs(os.path.join(work(), "venv", "share"))
open(os.path.join(work(), "venv", "share", "found"), "w").write(repr(found))
"""
        requirement = f"runs==1.0 {make_source(wheels, 'runs', '1.0', attack)}"
        direct = requirement.replace("==1.0", f" @ file://{wheels}/runs-1.0.tar.gz")
        with pytest.raises(vr.EnvironmentNotBuilt, match="--allow-builds"):
            vr.Environment.from_requirements([requirement], wheelhouse=wheels).build()
        with pytest.raises(vr.PolicyError, match="no address of a server"):
            vr.Environment.from_requirements([direct], wheelhouse=wheels)
        assert left_behind(cache) == []
        built = vr.Environment.from_requirements(
            [requirement], wheelhouse=wheels, wheels_only=False
        ).build()
        socket.create_connection(address, 2).close()  # the control: outside there is a server
    text = (Path(built.folder) / "share" / "found").read_text()
    assert text == repr([errno.ENOENT, errno.ECONNREFUSED, 0])
    assert list(target.iterdir()) == []
    assert not (Path(built.folder) / "found").exists()
    (target / "planted").touch()  # the control: the host can


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        ("os.mkfifo(packages + '/pipe')", "neither a file nor a folder"),
        ("os.link(venv + '/pyvenv.cfg', packages + '/second')", "more than one name"),
        ("os.rename(venv + '/lib', venv + '/real'); os.symlink('real', venv + '/lib')",
         "is no environment|uv pip"),
    ],
)  # fmt: skip
def test_what_no_installation_has_is_refused(
    wheels: Path, cache: Path, attack: str, problem: str
) -> None:
    """A build that leaves pipes, second names or links where folders were makes no environment."""
    lines = (
        "import os, sys\n"
        "venv = work() + '/venv'\n"
        f"packages = venv + '/lib/python{THIS[0]}.{THIS[1]}/site-packages'\n"
        f"{attack}"
    )
    held = make_source(wheels, "strange", "1.0", lines)
    with pytest.raises(vr.EnvironmentNotBuilt, match=problem):
        vr.Environment.from_requirements(
            [f"strange==1.0 {held}"], wheelhouse=wheels, wheels_only=False
        ).build()
    assert left_behind(cache) == []


def test_a_build_chooses_no_interpreter(wheels: Path, tmp_path: Path) -> None:
    """What a build wrote as interpreter and as pyvenv.cfg must lead to no grant and no start."""
    secret = tmp_path / "secret"
    secret.mkdir()
    lines = (
        "import os\n"
        "venv = work() + '/venv'\n"
        "os.remove(venv + '/pyvenv.cfg')\n"
        f"open(venv + '/pyvenv.cfg', 'w').write('home = {secret}')\n"
        "os.rename(venv + '/bin/python', venv + '/bin/was')\n"
        "os.symlink('was', venv + '/bin/python')\n"
        "open(venv + '/bin/python9', 'w').write('x')"
    )
    held = make_source(wheels, "sly", "1.0", lines)
    environment = vr.Environment.from_requirements(
        [f"sly==1.0 {held}"], wheelhouse=wheels, wheels_only=False
    )
    built = environment.build()
    folder = Path(built.folder)
    assert (folder / "bin" / "python").resolve() == Path(built.interpreter.program)
    assert str(secret) not in (folder / "pyvenv.cfg").read_text()
    assert not (folder / "bin" / "python9").exists()
    assert not (folder / "bin" / "was").exists()
    assert not any(str(secret) in path for path, _ in built.interpreter.grants)
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        assert runtime.eval("__import__('sly').built") is True


def test_a_link_in_the_way_of_what_the_host_writes_is_refused(tmp_path: Path) -> None:
    """The host writes into site-packages, and a link there must not lead it elsewhere."""
    name = f"python{THIS[0]}.{THIS[1]}"
    outside = tmp_path / "outside" / "site-packages"
    outside.mkdir(parents=True)
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib").mkdir()
    (venv / "lib" / name).symlink_to(outside.parent)
    with pytest.raises(vr.EnvironmentNotBuilt, match="is no environment"):
        assemble(str(venv), str(tmp_path / "tree"), sys.executable, THIS, locked=b"", paths=["/x"])
    assert list(outside.iterdir()) == []
    (tmp_path / "link").symlink_to(venv)
    with pytest.raises(vr.EnvironmentNotBuilt, match="is no environment"):
        assemble(str(tmp_path / "link"), str(tmp_path / "t2"), "/x", THIS, locked=b"", paths=[])


@pytest.mark.parametrize("level", ["tree", "tree/bin"])
def test_a_link_that_comes_while_it_is_assembled_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """A guest that may write above the state folder must not choose where programs are put."""
    packages = packages_of(THIS)
    outside, away, venv = tmp_path / "outside", tmp_path / "away", tmp_path / "venv"
    outside.mkdir()
    (venv / packages).mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "git").touch()

    def swap(name: str, parent: int, mode: int) -> int:
        folder = make_folder(name, parent, mode)
        if name == os.path.basename(level):
            (tmp_path / level).rename(away)
            (tmp_path / level).symlink_to(outside)
        return folder

    monkeypatch.setattr("visruntime._packages.tree.make_folder", swap)
    assemble(str(venv), str(tmp_path / "tree"), sys.executable, THIS, locked=b"", paths=[])
    assert list(outside.iterdir()) == []
    assert {path.name for path in away.rglob("*")} >= {"git", "python"}  # the control


# ---- projects and scripts ----


@pytest.fixture
def project(tmp_path: Path, wheels: Path) -> Path:
    """Return a project with a lock that has hashes, as that of an index has."""
    folder = tmp_path / "project"
    (folder / "src" / "mine").mkdir(parents=True)
    (folder / "src" / "mine" / "__init__.py").write_text("import tinyb\nz = 3\n")
    devtool = make_wheel(wheels, "devtool", "1.0", {"devtool.py": ""})
    tinyb = make_wheel(wheels, "tinyb", "1.2", {"tinyb.py": "y = 2\n"})
    make_project(folder, {"tinyb": ("1.2", tinyb), "devtool": ("1.0", devtool)})
    return folder


def test_a_project_comes_from_its_lock(project: Path, wheels: Path) -> None:
    """What is locked is installed by its hash, from a wheelhouse too, and no development group."""
    environment = vr.Environment.from_project(project, wheelhouse=wheels)
    policy = vr.JailPolicy(read=[str(project / "src")])
    with vr.Runtime(policy, environment=environment) as runtime:
        assert runtime.eval("__import__('mine').z") == 3
        missing = runtime.run("import devtool")
        assert missing.error is not None
        assert missing.error.explanation == (
            f"the project {project} has no devtool; to add its package: "
            f"uv add --project {project} devtool"
        )
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        hidden = runtime.run("import mine")
        assert hidden.error is not None
        assert hidden.error.explanation is not None
        assert f"stands in {project / 'src'}" in hidden.error.explanation
    more = vr.Environment.from_project(project, wheelhouse=wheels, groups=["dev"]).build()
    assert "devtool==1.0" in more.locked
    plain = vr.Environment.from_project(project, wheelhouse=wheels, editable=False).build()
    assert plain.key != environment.build().key


def test_a_lock_that_changed_is_another_environment(project: Path, wheels: Path) -> None:
    """An environment must not outlive what its lock said."""
    first = vr.Environment.from_project(project, wheelhouse=wheels).build()
    held = make_wheel(wheels, "tinyb", "1.3", {"tinyb.py": "y = 3\n"})
    make_project(project, {"tinyb": ("1.3", held)})
    second = vr.Environment.from_project(project, wheelhouse=wheels).build()
    assert second.key != first.key
    assert "tinyb==1.3" in second.locked


def test_a_lock_without_hashes_is_refused(project: Path, wheels: Path) -> None:
    """Uv locks the wheels of a folder without hashes: that is said, not taken."""
    (project / "uv.lock").unlink()
    done = subprocess.run(
        [
            require_uv(),
            *("lock", "--offline", "--no-index", "--find-links", str(wheels), "--no-config"),
            *("--python", os.path.realpath(sys.executable), "--quiet"),
        ],
        cwd=project,
        env={"PATH": os.defpath, "UV_CACHE_DIR": str(project / "cache"), "HOME": "/nonexistent"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises(vr.EnvironmentNotBuilt, match=r'hashes="resolve" \(--hashes resolve\)'):
        vr.Environment.from_project(project, wheelhouse=wheels).build()
    built = vr.Environment.from_project(project, wheelhouse=wheels, hashes="resolve").build()
    assert "--hash=sha256:" in built.locked


def test_a_script_brings_its_packages(tmp_path: Path, wheels: Path) -> None:
    """The metadata of a script is an environment, and its Python is checked."""
    script = tmp_path / "s.py"
    script.write_text('# /// script\n# dependencies = ["tinyb"]\n# ///\nimport tinyb\n')
    built = vr.Environment.from_script(script, wheelhouse=wheels, hashes="resolve").build()
    assert "tinyb==1.2" in built.locked
    old = b'# /// script\n# requires-python = "<3"\n# dependencies = ["tinyb"]\n# ///\n'
    environment = vr.Environment.from_script(old, wheelhouse=wheels, hashes="resolve")
    with pytest.raises(vr.PolicyError, match="needs Python <3"):
        environment.build()
    with pytest.raises(vr.PolicyError, match="asks for no packages"):
        vr.Environment.from_script(b"print(1)")


def test_no_packages_need_no_uv(cache: Path) -> None:
    """A script that only asks for a version of Python gets an empty environment."""
    source = b'# /// script\n# requires-python = ">=3.11"\n# ///\n'
    environment = vr.Environment.from_script(source, uv="/nonexistent")
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        assert runtime.eval("__import__('sys').prefix") == environment.build().folder
    assert (Path(environment.build().folder) / LOCKED).read_bytes() == b""


# ---- what is kept is no guest's ----


def test_wrong_options_are_refused(wheels: Path) -> None:
    """Each wrong option is an error that names it."""
    with pytest.raises(vr.PolicyError, match="python= to the Environment"):
        vr.Runtime(vr.JailPolicy(), python=sys.executable, environment=resolved(wheels, "tinyb"))
    for options, problem in (
        ({"hashes": "none"}, "hashes"),
        ({"timeout": 0}, "timeout"),
        ({"wheelhouse": wheels / "missing"}, "no folder"),
    ):
        with pytest.raises(ValueError, match=problem):
            vr.Environment.from_requirements([], **options)
    with pytest.raises(TypeError, match="index"):
        vr.Environment.from_requirements([], index=True)
    with pytest.raises(TypeError, match="not one text"):
        vr.Environment.from_requirements("tinyb")
    shim = wheels / "uv"
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    with pytest.raises(vr.PolicyError, match="it is a script"):
        resolved(wheels, "tinyb", uv=shim).build()


def test_a_build_has_a_time_limit(wheels: Path, cache: Path) -> None:
    """A build that never ends is ended, and nothing of it stays."""
    held = make_source(wheels, "slow", "1.0", "import time\ntime.sleep(60)")
    environment = vr.Environment.from_requirements(
        [f"slow==1.0 {held}"], wheelhouse=wheels, wheels_only=False, timeout=1.5
    )
    with pytest.raises(vr.EnvironmentNotBuilt, match="longer than 2 s"):
        environment.build()
    assert left_behind(cache) == []


def test_a_build_has_a_memory_limit(wheels: Path, cache: Path) -> None:
    """A build that takes more than its limit is ended and says so, and nothing of it stays."""
    take = "data = [bytearray(b'x') * (16 << 20) for _ in range(64)]"
    held = make_source(wheels, "large", "1.0", take)
    options = {"wheelhouse": wheels, "wheels_only": False}
    limits = vr.Limits(memory=512 << 20, memory_by="watch", processes=512)
    environment = vr.Environment.from_requirements([f"large==1.0 {held}"], limits=limits, **options)
    with pytest.raises(vr.EnvironmentNotBuilt, match=r"more than the 536870912 bytes.*limits="):
        environment.build()
    assert left_behind(cache) == []
    # The control: with the limit that builds have it is built, and the limit is held.
    built = vr.Environment.from_requirements([f"large==1.0 {held}"], **options).build()
    assert built.report is not None
    (memory,) = [limit for limit in built.report.limits if limit.clause == "limits.memory"]
    assert memory.mechanisms
    assert 0 < (memory.value or 0) <= 8 << 30


def test_limits_that_were_asked_for_are_never_exchanged(wheels: Path, cache: Path) -> None:
    """Where the kernel cannot hold what the caller asked for, nothing is built with less."""
    try:
        vr.Jail(vr.JailPolicy(limits=vr.Limits(memory=1 << 30))).close()
    except vr.PolicyUnsupported:
        with pytest.raises(vr.PolicyUnsupported, match="cgroup"):
            resolved(wheels, "tinya", limits=vr.Limits(memory=1 << 30)).build()
        assert left_behind(cache) == []
    else:
        built = resolved(wheels, "tinya", limits=vr.Limits(memory=1 << 30)).build()
        assert built.report is not None
        assert "cgroup" in built.report.mechanisms("limits.memory")[0]
    with pytest.raises(TypeError, match="limits"):
        resolved(wheels, "tinya", limits={"memory": 1})


BUILDER = """
import sys
import visruntime as vr
requirement, wheels = sys.argv[1:]
vr.Environment.from_requirements([requirement], wheelhouse=wheels, wheels_only=False).build()
"""


def test_a_builder_that_is_killed_leaves_nothing_for_long(wheels: Path, cache: Path) -> None:
    """With the host its build ends, and the next builder removes what is left of it."""
    attack = (
        "import time\n"
        "while True:\n"
        "    open(work() + '/venv/beat', 'a').write('x')\n"
        "    time.sleep(.02)"
    )
    held = make_source(wheels, "endless", "1.0", attack)
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, f"endless==1.0 {held}", str(wheels)])
    try:
        assert until(lambda: list((cache / "building").glob("*/work/venv/beat")), seconds=20)
    finally:
        builder.kill()
        builder.wait()
    (beat,) = (cache / "building").glob("*/work/venv/beat")

    def has_stopped() -> bool:
        before = beat.stat().st_size
        time.sleep(0.1)
        return beat.stat().st_size == before

    assert until(has_stopped)
    assert resolved(wheels, "tinyb").build().folder
    assert list((cache / "building").iterdir()) == []


def test_packages_of_the_index_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the index named, a real package comes, is held by its hash and imported."""
    lines: list[str] = []
    environment = vr.Environment.from_requirements(
        ["six==1.17.0"], hashes="resolve", index="default", progress=lines.append
    )
    try:
        environment.build()
    except vr.EnvironmentNotBuilt as problem:
        if any(sign in problem.output for sign in ("dns error", "client error", "timed out")):
            pytest.skip(f"the package index cannot be reached from here: {problem}")
        raise
    assert any("six" in line for line in lines)
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        assert runtime.eval("__import__('six').__version__") == "1.17.0"

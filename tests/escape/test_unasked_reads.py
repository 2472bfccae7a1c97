"""Boundary: what a worker may read unasked, its interpreter and its environment, and nothing beside."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, backends, errno, inside, outside

from visruntime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRETS = (".env", ".ssh/id_ed25519", "bin/.env", "share/.env", "share/deep/id_rsa")
ASKED = "answer([opened(path) for path in {paths!r}])"
REACHED = """
one = socket.socket(socket.AF_UNIX)
os.chdir({folder!r})
answer(attempt(one.connect, "agent.sock"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """Return a project that is itself a venv, with secrets, and servers with relative names."""
    project = tmp_path / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project], check=True)
    for name in (*SECRETS, "notes.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("top-secret")
    servers = []
    here = os.getcwd()
    for folder in (project, project / "share" / "deep"):
        os.chdir(folder)
        server = socket.socket(socket.AF_UNIX)
        server.bind("agent.sock")
        server.listen()
        servers.append(server)
    os.chdir(here)
    yield project
    for server in servers:
        server.close()


def packages(project: Path) -> Path:
    """Return the folder of installed code of a venv."""
    return project / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_a_project_around_an_environment_is_not_shown(project: Path, backend: str) -> None:
    """A worker of a venv must see nothing of the folder around it, which may be a project."""
    # A bwrap that follows links masks nothing where others write, and is refused for that.
    shutil.rmtree(project / "share")
    (project / "bin" / ".env").unlink()
    beside = [str(project / name) for name in (".env", ".ssh/id_ed25519", "notes.txt")]
    text = f"""
import os
got = []
for path in {beside!r}:
    try:
        got.append(open(path).read())
    except OSError as error:
        got.append(error.errno)
got + [sorted(os.listdir({str(project)!r}))]
"""
    with Runtime(JailPolicy(), environment=project, backend=backend) as runtime:
        *got, names = runtime.run(text).value
    assert got == [errno.ENOENT] * 3
    assert set(names) <= {"bin", "include", "lib", "pyvenv.cfg"}
    assert outside(ASKED.format(paths=beside)) == [0] * 3


def test_what_belongs_to_an_environment_is_looked_through(project: Path) -> None:
    """Secrets and sockets in the parts of a venv must be covered, and installed code must not."""
    (packages(project) / "cacert.pem").write_text("a bundle")
    (packages(project) / "own.py").write_text("there = True")
    beside = [str(project / name) for name in (".env", ".ssh/id_ed25519", "notes.txt")]
    within = [str(project / name) for name in SECRETS[2:]]
    bundle = str(packages(project) / "cacert.pem")
    text = f"""
import errno, os, socket, own
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return 0
def reached(folder):
    os.chdir(folder)
    return attempt(socket.socket(socket.AF_UNIX).connect, "agent.sock")
found = [[attempt(open, path) for path in paths] for paths in ({beside!r}, {within!r}, [{bundle!r}])]
found + [reached({str(project)!r}), reached({str(project / "share" / "deep")!r})]
"""
    with Runtime(JailPolicy(), environment=project) as runtime:
        found = runtime.run(text).value
        clauses = {clause.clause for clause in runtime.report.clauses}
    assert found == [
        [errno.ENOENT] * 3,
        [errno.EACCES] * 3,
        [0],
        errno.ENOENT,
        errno.EACCES,
    ]
    assert {f"secrets {path}" for path in within} <= clauses
    assert outside(ASKED.format(paths=[*beside, *within])) == [0] * 6
    for folder in (project, project / "share" / "deep"):
        assert outside(REACHED.format(folder=str(folder))) == 0


def test_any_unasked_grant_is_looked_through(project: Path) -> None:
    """Secrets, sockets and closed folders in what a library adds must be covered as in a grant."""
    (packages(project) / ".env").write_text("not one: installed code is no place for secrets")
    os.mkfifo(project / "share" / "pipe")
    secrets = [str(project / name) for name in SECRETS]
    pipe = str(project / "share" / "pipe")
    shown = [str(packages(project) / ".env"), str(project / "notes.txt")]
    written = f"answer(attempt(os.open, {pipe!r}, os.O_RDWR | os.O_NONBLOCK))"
    reached = REACHED.format(folder=str(project))
    unasked = [(str(project), "for a test")]
    with Jail(JailPolicy(), implicit_read=unasked) as jail:
        assert inside(jail, ASKED.format(paths=secrets)) == [errno.EACCES] * len(secrets)
        assert inside(jail, ASKED.format(paths=shown)) == [0, 0]
        assert inside(jail, reached) == errno.EACCES
        assert inside(jail, written) == errno.EACCES
    assert outside(ASKED.format(paths=secrets)) == [0] * len(secrets)
    assert outside(reached) == 0
    assert outside(written) == 0
    revealed = JailPolicy(reveal=[secrets[0]])
    with Jail(revealed, implicit_read=unasked) as jail:
        assert inside(jail, ASKED.format(paths=secrets[:2])) == [0, errno.EACCES]


def test_beside_what_was_built_nothing_is_left_out(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project in a folder that is the state folder by its name must be looked through as well."""
    state = project.parent / "visruntime"
    (state / "environments").mkdir(parents=True)
    for folder in (state / "project", state / "environments" / "built"):
        folder.mkdir()
        (folder / ".env").write_text("top-secret")
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.parent))
    for name, expected in (("project", errno.EACCES), ("environments/built", 0)):
        text = ASKED.format(paths=[str(state / name / ".env")])
        with Jail(JailPolicy(), implicit_read=[(str(state / name), "a test")]) as jail:
            assert inside(jail, text) == [expected]
        assert outside(text) == [0]

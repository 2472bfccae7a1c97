"""The programs that people build with, each doing real work in a jail."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy, Limits, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    Tool = Callable[[str], str]


def ran(jail: Jail, *command: str, **options: Any) -> str:
    """Run a program that must succeed, and return its output."""
    result = jail.run(command, **{"timeout": 100, **options})
    assert result.exit_code == 0, (result.stdout_text[-3000:], result.stderr_text[-3000:])
    return result.stdout_text


# ---- version control -----------------------------------------------------------------

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
GIT_NAMES = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def test_git_worktrees_and_submodules(workspace: Path, tool: Tool) -> None:
    """Worktrees, submodules, stashes, merges and packing must work in a write grant."""
    tool("git")
    script = """
    set -e
    git init -q part && git -C part commit -q --allow-empty -m part
    git init -q whole && cd whole
    git -c protocol.file.allow=always submodule add -q ../part part
    git commit -q -m with-part
    git worktree add -q -b side ../side
    echo one > ../side/file && git -C ../side add file && git -C ../side commit -q -m side
    git merge -q --no-edit side
    echo two > file && git stash -q && git stash pop -q && git commit -q -am two
    git gc -q && git fsck --strict > /dev/null
    git worktree remove ../side
    git log --format=%s
    """
    env = {"HOME": str(workspace), **GIT_NAMES}
    with Jail(JailPolicy(write=[workspace])) as jail:
        jail.write_bytes(workspace / ".gitconfig", b"[init]\n defaultBranch = main\n")
        log = ran(jail, "sh", "-c", script, cwd=workspace, env=env)
    assert log.splitlines() == ["two", "side", "with-part"]
    assert (workspace / "whole" / "file").read_text() == "two\n"
    outside = subprocess.run(
        ["git", "-C", str(workspace / "whole"), "status", "--porcelain"],
        env={"PATH": os.defpath, "HOME": "/nonexistent", **GIT, "GIT_CONFIG_COUNT": "1",
             "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
        capture_output=True,
        check=True,
    )  # fmt: skip
    assert outside.stdout == b""


# ---- packages from an index ------------------------------------------------------------


def make_index(folder: Path) -> None:
    """Write a package index with one wheel, as installers read it."""
    name = "demo_pkg-1.0-py3-none-any.whl"
    place = folder / "simple" / "demo-pkg"
    place.mkdir(parents=True)
    files = {
        "demo_pkg.py": "ANSWER = 42\n",
        "demo_pkg-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n",
        "demo_pkg-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    files["demo_pkg-1.0.dist-info/RECORD"] = record + "demo_pkg-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(place / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    (place / "index.html").write_text(f'<a href="{name}">{name}</a>')


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_an_installer_with_an_index_inside(
    workspace: Path, outside: Path, tool: Tool, installer: str
) -> None:
    """Making an environment and installing into it must work, from an index on loopback."""
    make_index(outside)
    # `uv run` says where it is; what PATH finds may be a script that leads there.
    uv = os.path.realpath(os.environ.get("UV") or tool("uv")) if installer == "uv" else ""
    grants = [str(outside), *([uv] if uv else [])]
    index = "http://127.0.0.1:8000/simple"
    with (
        Jail(JailPolicy(read=grants, write=[workspace])) as jail,
        jail.spawn([PYTHON, "-m", "http.server", "8000", "--bind", "127.0.0.1"], cwd=outside),
    ):
        probe = f"import urllib.request as u; u.urlopen('{index}/demo-pkg/').read()"
        assert until(lambda: jail.run([PYTHON, "-c", probe]).exit_code == 0)
        target = str(workspace / "env")
        if uv:
            cache = {"UV_CACHE_DIR": "/tmp/uv", "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}
            ran(jail, uv, "venv", "-q", "--python", PYTHON, target, env=cache)
            install = [uv, "pip", "install", "-q", "--python", f"{target}/bin/python"]
            ran(jail, *install, "--index-url", index, "demo-pkg", env=cache)
        else:
            ran(jail, PYTHON, "-m", "venv", target)
            install = [f"{target}/bin/pip", "install", "-q", "--disable-pip-version-check"]
            ran(jail, *install, "--index-url", index, "demo-pkg")
        answer = ran(jail, f"{target}/bin/python", "-c", "import demo_pkg; print(demo_pkg.ANSWER)")
    assert answer == "42\n"


# ---- compilers and builds ----------------------------------------------------------------


def test_cmake(workspace: Path, tool: Tool) -> None:
    """A CMake project must configure, build and pass its tests."""
    tool("cmake")
    (workspace / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p C)\nenable_testing()\n"
        "add_executable(p p.c)\nadd_test(NAME p COMMAND p)\n"
    )
    (workspace / "p.c").write_text("int main(void) { return 0; }\n")
    script = "cmake -S . -B b > /dev/null && cmake --build b && cmake --build b -t test"
    with Jail(JailPolicy(write=[workspace])) as jail:
        ran(jail, "sh", "-c", script, cwd=workspace)


def test_npm(workspace: Path, large_tool: Tool) -> None:
    """A package's test script must run, and the package be packed."""
    large_tool("npm")
    (workspace / "package.json").write_text(
        '{"name": "p", "version": "1.0.0", "scripts": {"test": "node --test"}}'
    )
    (workspace / "p.test.js").write_text(
        'require("node:test")("adds", () => require("assert").equal(1 + 1, 2));'
    )
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert "pass 1" in ran(jail, "npm", "test", cwd=workspace)
        assert ran(jail, "npm", "pack", "--silent", cwd=workspace) == "p-1.0.0.tgz\n"


def test_java(workspace: Path, large_tool: Tool) -> None:
    """The Java compiler and machine must work, under a limit of memory too."""
    large_tool("javac")
    (workspace / "Hello.java").write_text(
        "public class Hello { public static void main(String[] a) throws Exception {"
        ' Thread t = new Thread(() -> System.out.println("thread")); t.start(); t.join(); } }'
    )
    limits = Limits(memory=1 << 30, memory_by="process")
    with Jail(JailPolicy(write=[workspace], limits=limits)) as jail:
        env = {"JAVA_TOOL_OPTIONS": "-Xmx64m"}
        ran(jail, "javac", "Hello.java", cwd=workspace, env=env)
        assert ran(jail, "java", "Hello", cwd=workspace, env=env) == "thread\n"


def test_go(workspace: Path, large_tool: Tool) -> None:
    """A Go program must build, test and run without a network."""
    large_tool("go")
    (workspace / "go.mod").write_text("module example.org/p\n\ngo 1.19\n")
    (workspace / "p.go").write_text('package main\n\nfunc main() { println("go") }\n')
    (workspace / "p_test.go").write_text(
        'package main\n\nimport "testing"\n\nfunc TestP(t *testing.T) { main() }\n'
    )
    with Jail(JailPolicy(write=[workspace])) as jail:
        ran(jail, "sh", "-c", "go vet . && go test . && go build -o p . && ./p", cwd=workspace)


# ---- large programs ------------------------------------------------------------------------


def test_postgresql(large_tool: Tool) -> None:
    """A database cluster must be made, started and asked over its own socket."""
    large_tool("pg_config")
    programs = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True)
    script = """
    set -e
    export PATH=$1:$PATH
    initdb -D /tmp/data -U me > /dev/null
    pg_ctl -D /tmp/data -o "-k /tmp -h ''" -l /tmp/log -w start > /dev/null
    psql -h /tmp -U me -Atc "create table t as select generate_series(1, 1000) n" postgres
    psql -h /tmp -U me -Atc "select sum(n) from t" postgres
    pg_ctl -D /tmp/data -m fast stop > /dev/null
    """
    with Jail(JailPolicy()) as jail:
        answer = ran(jail, "sh", "-c", script, "sh", programs.stdout.strip())
    assert answer.splitlines()[-1] == "500500"


def test_latex(workspace: Path, large_tool: Tool) -> None:
    """A document must become a PDF, by the formats that the system made when TeX was installed."""
    large_tool("pdflatex")
    text = r"\documentclass{article}\begin{document}$x^2$\end{document}"
    (workspace / "a.tex").write_text(text)
    with Jail(JailPolicy(write=[workspace])) as jail:
        ran(jail, "pdflatex", "-interaction=batchmode", "a.tex", cwd=workspace)
        made = jail.run(["sh", "-c", "echo x > /var/lib/texmf/planted"])
    assert (workspace / "a.pdf").read_bytes().startswith(b"%PDF-")
    assert made.exit_code == 2
    assert "Read-only file system" in made.stderr_text


def test_headless_chromium(workspace: Path, large_tool: Tool) -> None:
    """A browser must print a page to a picture (its own sandbox needs user namespaces)."""
    large_tool("chromium")
    (workspace / "page.html").write_text("<body style='background: #0a0'><h1>jailed</h1>")
    with Jail(JailPolicy(write=[workspace])) as jail:
        ran(
            jail, "chromium", "--headless", "--no-sandbox", "--disable-gpu",
            "--window-size=320,200", f"--screenshot={workspace}/page.png",
            f"file://{workspace}/page.html",
        )  # fmt: skip
    picture = (workspace / "page.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (320, 200)


def test_numpy_pandas_and_matplotlib(workspace: Path) -> None:
    """The scientific packages must import, compute with threads and draw."""
    environment = os.environ.get("VIS_SCIENCE")
    if environment is None:
        if os.environ.get("VIS_FULL") == "1":
            pytest.fail("VIS_SCIENCE names no environment, and VIS_FULL=1 asks for it")
        pytest.skip("VIS_SCIENCE names no environment with numpy, pandas and matplotlib")
    code = """
import matplotlib; matplotlib.use("Agg")
import numpy as np, pandas as pd, matplotlib.pyplot as plt
a = np.random.default_rng(1).random((500, 500)); b = np.linalg.inv(a) @ a
frame = pd.DataFrame({"x": range(10)}); frame.to_csv("out.csv")
plt.plot(frame.x); plt.savefig("out.png")
print(bool(np.allclose(b, np.eye(500))), int(frame.x.sum()))
"""
    python = f"{environment}/bin/python"
    grants = [environment, os.path.dirname(os.path.dirname(os.path.realpath(python)))]
    with Jail(JailPolicy(read=grants, write=[workspace])) as jail:
        env = {"MPLCONFIGDIR": "/tmp/mpl"}
        assert ran(jail, python, "-c", code, cwd=workspace, env=env) == "True 45\n"
    assert (workspace / "out.png").read_bytes().startswith(b"\x89PNG")

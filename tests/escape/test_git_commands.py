"""Boundary: programs that git's settings name, however a shell lets one write that."""

from __future__ import annotations

import errno
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, inside, outside

from visruntime._policy.git_names import further_names
from visruntime.errors import PolicyError, PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPELLINGS = (
    "tools/{}",
    "sh -c 'tools/{} %f'",
    "sh -c \"sh -c 'tools/{}'\"",
    "tools/{}; cat",
    "cat|tools/{}",
    "A=1 tools/{}",
    "true&&tools/{}",
    "f() {{ tools/{}; }}; f",
    "$PWD/tools/{}",
    '"$PWD/tools/{}"',
    "${{PWD}}/tools/{}",
    '"$(git rev-parse --show-toplevel)"/tools/{}',
    "$(git rev-parse --show-toplevel)/tools/{}",
    "`git rev-parse --show-toplevel`/tools/{}",
    '"$(git rev-parse --git-dir)/../tools/{}"',
    "cat; $(tools/{})",
    "cd tools; ./{}",
    'cd "$(git rev-parse --show-toplevel)/tools" && sh -c ./{}',
)
"""Of a filter's command, all of which run the program that they name."""


@pytest.fixture
def repository(tmp_path: Path, tool: Callable[[str], str]) -> Path:
    """Return a repository with a filter for each spelling, whose programs leave marks."""
    tool("git")
    folder = tmp_path.resolve() / "work"
    (folder / "tools").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    settings = attributes = ""
    for number, spelling in enumerate(SPELLINGS):
        name = f"clean {number}" if '"$PWD/' in spelling else f"clean{number}"
        program = folder / "tools" / name
        program.write_text(f"#!/bin/sh\n: > '{tmp_path}/ran{number}'\ncat\n")
        program.chmod(0o755)
        command = spelling.format(name).replace("\\", "\\\\").replace('"', '\\"')
        settings += f'[filter "x{number}"]\n\tclean = "{command}"\n'
        attributes += f"*.{number} filter=x{number}\n"
        (folder / f"a.{number}").write_text("1")
    with (folder / ".git" / "config").open("a") as file:
        file.write(settings)
    (folder / ".gitattributes").write_text(attributes)
    return folder


def test_programs_in_gits_settings_stay_as_they_are(repository: Path) -> None:
    """Each spelling must run its program outside, and none may be changed by a guest."""
    subprocess.run(
        ["git", "-c", "safe.directory=*", "add", "."], cwd=repository, check=False, timeout=30
    )
    marks = {path.name for path in repository.parent.glob("ran*")}
    assert marks == {f"ran{number}" for number in range(len(SPELLINGS))}
    tools = sorted(str(path) for path in (repository / "tools").iterdir())
    tries = f"answer([opened(p, os.O_WRONLY) for p in {tools!r}])"
    with Jail(JailPolicy.workspace(repository)) as jail:
        assert inside(jail, tries) == [errno.EROFS] * len(tools)
    assert outside(tries) == [0] * len(tools)


def test_programs_of_large_files_and_spelled_by_variables_are_named(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of git-lfs and variables of the host must lead to files, other text to none."""
    monkeypatch.setenv("VIS_TOOLS", str(repository / "tools"))
    (repository / "tools" / "send").write_text("")
    (repository / "tools" / "my own").write_text("")
    (repository / ".git" / "config").write_text(
        '[lfs "customtransfer.a"]\n\tpath = tools/send\n\targs = $VIS_TOOLS/clean0\n'
        "[core]\n\tfsmonitor = 'tools/my own'; cat\n\teditor = \"tools/clean1 'open\"\n"
        '\tpager = cd tools; $X/nothing; \\"\\"\n'
    )
    assert further_names(str(repository)) == [
        "tools/send",
        "tools/clean0",
        "tools/my own",
        "tools/clean1",
    ]


@pytest.mark.parametrize(
    ("settings", "unit"),
    [
        ("[pager]\n\ta = tools/x\n" * 60_000, "bytes"),
        ("# \U0001f600\n" * 160_000 + "[pager]\n\ta = tools/x\n", "bytes"),
        ('[difftool "x"]\n\tcmd = "%s"\n' % ("${" * 2000) * 10, "characters of commands"),
        (f'[core]\n\tpager = "cd a; cd b; cd c; {" ".join(map(str, range(3000)))}"\n',
         "paths in commands"),
        ("".join(f"[include]\n\tpath = more{number}\n" for number in range(40)), "files"),
    ],
    ids=["bytes", "wide", "characters", "paths", "files"],
)  # fmt: skip
def test_settings_that_would_take_long_to_read_are_refused(
    settings: str, unit: str, tmp_path: Path
) -> None:
    """Whoever wrote a repository must not keep the host busy, nor hide a program behind much."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(settings)
    started = time.process_time()
    with pytest.raises(PolicyError, match=f"more than [0-9]+ {unit}") as caught:
        JailPolicy.workspace(tmp_path)
    assert caught.value.field == "workspace"
    assert time.process_time() - started < 5  # it took 20 s for 100 KiB, and hours for all


def test_many_submodules_are_refused_by_the_name_of_their_file(tmp_path: Path) -> None:
    """What .gitmodules asks for must not read as a fault of the policy."""
    modules = tmp_path / ".gitmodules"
    modules.write_text("".join(f'[submodule "{n}"]\npath = m{n}\n' for n in range(600)))
    with pytest.raises(PolicyUnsupported, match=r"600 of them \.git .*\.gitmodules.*wall"):
        Jail(JailPolicy.workspace(tmp_path))
    modules.write_text("".join(f'[submodule "{n}"]\npath = m{n}\n' for n in range(9000)))
    with pytest.raises(PolicyError, match=r"more than 8192 submodules in \.gitmodules"):
        JailPolicy.workspace(tmp_path)


def test_a_file_of_settings_that_includes_itself_is_read_once(repository: Path) -> None:
    """What git itself refuses later must not look like too many files."""
    with (repository / ".git" / "config").open("a") as file:
        file.write("[include]\n\tpath = config\n")
    assert "tools/clean0" in further_names(str(repository))


def test_a_command_that_goes_to_folder_after_folder_is_followed(repository: Path) -> None:
    """Each folder to which it goes starts in the one before."""
    program = repository / "tools" / "inner" / "run"
    program.parent.mkdir()
    program.write_text("")
    (repository / ".git" / "config").write_text('[core]\n\tpager = "cd tools; cd inner; ./run"\n')
    assert further_names(str(repository)) == ["tools/inner/run"]

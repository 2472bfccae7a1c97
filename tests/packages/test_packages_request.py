"""What is read of locks, requirements and scripts, before anything is built."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visruntime._packages.request import (
    _blocks,
    of_project,
    of_requirements,
    of_script,
    read_requirements,
    script_metadata,
)
from visruntime._packages.versions import release, satisfies
from visruntime.errors import PolicyError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

HASH = "--hash=sha256:" + "0" * 64
SCRIPT = b"""#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "first>=1",
#
#   "second",
# ]
# ///
print("hello")
"""


def requirements(*lines: str) -> tuple[list[str], bool | None]:
    """Return the requirements that *lines* hold, and whether all have hashes."""
    request = of_requirements(lines, label="x", add="")
    return request.files["requirements.in"].decode().splitlines(), request.hashed


def test_requirements_are_joined_and_comments_dropped() -> None:
    """A line that goes on is one requirement, and no comment is taken for one."""
    found, hashed = requirements(
        "# all", "", "a==1 \\", f"    {HASH}", "b  # why", "c @ https://x.test/c#egg=c"
    )
    assert found == [f"a==1 {HASH}", "b", "c @ https://x.test/c#egg=c"]
    assert hashed is False
    assert requirements(f"a==1 {HASH}", f"b==2 {HASH}")[1] is True
    assert requirements() == ([], True)


@pytest.mark.parametrize(
    "line", ["-e .", "--index-url x", "-r other.txt", "./folder", "/etc/passwd", "a\0b"]
)
def test_options_and_paths_are_no_requirements(line: str) -> None:
    """What would steer the installer elsewhere is refused, not passed on."""
    with pytest.raises(PolicyError, match=r"option of pip|no requirement|one line"):
        requirements("good", line)


@pytest.mark.parametrize("line", ["a @ https://x.test/a.whl?q=${SECRET}", "a==${VERSION}"])
def test_no_variable_is_put_into_a_requirement(line: str) -> None:
    """Uv would put in what the environment of the build holds, the index's password too."""
    with pytest.raises(PolicyError, match="variable of the environment"):
        requirements(line)
    script = f"# /// script\n# dependencies = [{line!r}]\n# ///\n".encode()
    with pytest.raises(PolicyError, match="variable of the environment"):
        of_script(script, None)


@pytest.mark.parametrize(
    "url", ["https://x.test/?q=${SECRET}", "https://x.test/?q=\\u0024{SECRET}"]
)
def test_no_variable_is_put_into_a_lock(tmp_path: Path, url: str) -> None:
    """A guest that may write the workspace may write its lock."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (tmp_path / "uv.lock").write_text(
        f'version = 1\n[[package]]\nname = "a"\nversion = "1"\nsource = {{ url = "{url}" }}\n'
    )
    with pytest.raises(PolicyError, match="variable of the environment"):
        of_project(str(tmp_path), extras=(), groups=(), editable=False)


@pytest.mark.parametrize("character", ["\n", "\x1b", "\0", "\r", "\u2028", "\x85"])
def test_a_requirement_has_no_control_characters(character: str) -> None:
    """One line is one requirement, for whoever reads it."""
    with pytest.raises(PolicyError, match="without control characters"):
        requirements(f"first{character}second")


@pytest.mark.parametrize("line", ["x" + " #" * 200_000 + "\nx", "x" + "#" * 400_000, "#\n" * 9])
def test_a_long_requirement_is_read_at_once(line: str) -> None:
    """The time is that of its length, and no more."""
    began = time.monotonic()
    with suppress(PolicyError):
        requirements(line)
    assert time.monotonic() - began < 1


def test_a_script_says_what_it_needs() -> None:
    """The metadata of PEP 723 is found among comments, with either end of line."""
    for source in (SCRIPT, SCRIPT.replace(b"\n", b"\r\n")):
        request = of_script(source, None, ["third"])
        assert request is not None
        assert request.files["requirements.in"] == b"first>=1\nsecond\nthird\n"
        assert request.requires_python == ">=3.11"
    assert of_script(b"print(1)", None) is None
    assert script_metadata(b"# /// other\n# x = 1\n# ///\n", "s") == {}
    only_python = of_script(b'# /// script\n# requires-python = ">=3.11"\n# ///\n', None)
    assert only_python is not None
    assert only_python.is_empty


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (SCRIPT + SCRIPT, "2 blocks"),
        (b"# /// script\n# dependencies = [\n# ///\n", "Invalid|Unclosed|at end"),
        (b'# /// script\n# dependencies = "a"\n# ///\n', "list of texts"),
        (b"# /// script\n# dependencies = [1]\n# ///\n", "list of texts"),
        (b"# /// script\n# [tool.uv.sources]\n# a = {path='x'}\n# ///\n", "uv lock --script"),
    ],
)
def test_wrong_metadata_is_refused(source: bytes, problem: str) -> None:
    """Metadata that cannot be followed to the letter must not be followed in part."""
    with pytest.raises(PolicyError, match=problem):
        of_script(source, None)


def test_the_lock_beside_a_script_is_used(tmp_path: Path) -> None:
    """What is locked is not resolved again, and the build gets no code of the script."""
    script = tmp_path / "s.py"
    (tmp_path / "s.py.lock").write_bytes(b"version = 1\n")
    request = of_script(SCRIPT, str(script))
    assert request is not None
    assert request.export is not None
    assert b"hello" not in request.files["script.py"]
    assert request.files["script.py.lock"] == b"version = 1\n"
    more = of_script(SCRIPT, str(script), ["third"])
    assert more is not None
    assert more.export is None


REFERENCE = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
"""The expression that PEP 723 gives."""
LINES = st.sampled_from(
    ["# /// script", "# /// other", "# ///", "#", "# a = 1", "#x", "x", "", " # ///", "# /// "]
)


@given(st.lists(LINES, max_size=12))
def test_blocks_are_found_as_the_standard_finds_them(lines: list[str]) -> None:
    """No script may have other metadata here than for other tools."""
    text = "\n".join(lines)
    expected = [
        match["content"].splitlines()
        for match in REFERENCE.finditer(text)
        if match["type"] == "script"
    ]
    found = _blocks(text.encode())
    assert [block for _, block in found] == expected
    for before, block in found:
        assert lines[before : before + len(block)] == block


def test_a_script_made_to_be_slow_is_read_at_once() -> None:
    """Many beginnings without an end must not take the square of their number."""
    assert _blocks(b"# /// script\n" * 500_000) == []
    with pytest.raises(PolicyError, match="more than 16 parts"):
        script_metadata(b"# /// script\n# " + b"a." * 60_000 + b"a = 1\n# ///\n", "s")


def make_project(folder: Path, *sources: str) -> None:
    """Write a project whose lock has a package for each of *sources*."""
    (folder / "pyproject.toml").write_text('[project]\nname = "p"\nrequires-python = ">=3.11"\n')
    packages = [f'[[package]]\nname = "p{n}"\nsource = {{ {s} }}\n' for n, s in enumerate(sources)]
    (folder / "uv.lock").write_text("version = 1\n" + "".join(packages))


def test_a_project_needs_its_lock(tmp_path: Path) -> None:
    """Without a lock there is nothing to hold packages to, and the message says how to make one."""
    with pytest.raises(PolicyError, match="is no project"):
        of_project(str(tmp_path), extras=(), groups=(), editable=True)
    make_project(tmp_path)
    (tmp_path / "uv.lock").unlink()
    with pytest.raises(PolicyError, match="uv lock"):
        of_project(str(tmp_path), extras=(), groups=(), editable=True)


def test_the_sources_of_a_workspace_are_found_where_they_stand(tmp_path: Path) -> None:
    """Code of the project itself is not built, only found; with src where there is one."""
    (tmp_path / "member" / "src").mkdir(parents=True)
    make_project(tmp_path, 'virtual = "."', 'editable = "member"', 'registry = "r"')
    request = of_project(str(tmp_path), extras=["x"], groups=["g"], editable=True)
    assert request.paths == (str(tmp_path), str(tmp_path / "member" / "src"))
    assert request.export is not None
    assert request.export[-4:] == ("--extra", "x", "--group", "g")
    assert "--no-default-groups" in request.export
    assert of_project(str(tmp_path), extras=(), groups=(), editable=False).paths == ()


@pytest.mark.parametrize("source", ['git = "https://g.test/x?rev=1#1"', 'path = "x.whl"'])
def test_what_no_hash_holds_is_refused(tmp_path: Path, source: str) -> None:
    """A repository or a local file in a lock must not be left out unsaid."""
    make_project(tmp_path, source)
    with pytest.raises(PolicyError, match="no hash to hold it to"):
        of_project(str(tmp_path), extras=(), groups=(), editable=True)


def test_names_of_extras_are_names(tmp_path: Path) -> None:
    """Nothing that would be an option of uv passes for the name of an extra or a group."""
    make_project(tmp_path)
    for extras in (["--index=x"], [""], ["a b"]):
        with pytest.raises(PolicyError, match="is no name"):
            of_project(str(tmp_path), extras=extras, groups=(), editable=True)
    with pytest.raises(TypeError, match="not one text"):
        of_project(str(tmp_path), extras=(), groups="dev", editable=True)


def test_a_planted_link_is_not_read(tmp_path: Path) -> None:
    """A link that a guest could have made must not choose which file of the host is read."""
    (tmp_path / "secret").write_text("a==1\n")
    (tmp_path / "requirements.txt").symlink_to(tmp_path / "secret")
    assert read_requirements(str(tmp_path / "secret")) == ["a==1"]
    with pytest.raises(PolicyError, match="link"):
        read_requirements(str(tmp_path / "requirements.txt"))


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (">=3.11", True),
        (">=3.13", False),
        (">=3.11,<3.12", False),
        ("<4", True),
        ("==3.12.*", True),
        ("!=3.12.*", False),
        ("==3.12.1", True),
        ("==3.12", False),
        ("~=3.11", True),
        ("~=3.11.2", False),
        ("~=3.12.0", True),
        ("> 3.12", True),
        ("<=3.12.1", True),
        ("<3.12.1", False),
        ("!=3.12.0", True),
        ("", True),
    ],
)
def test_requires_python_is_understood(wanted: str, *, fits: bool) -> None:
    """An interpreter that was not asked for must not be taken, nor a right one refused."""
    assert satisfies((3, 12, 1), wanted) is fits


@pytest.mark.parametrize("wanted", ["3.11", ">=three", "~=3", ">=3.*", ">=3.11;x"])
def test_a_clause_that_is_not_understood_is_an_error(wanted: str) -> None:
    """It must not count as fulfilled."""
    with pytest.raises(ValueError, match=r"clause|numbers|goes with"):
        satisfies((3, 12, 1), wanted)


def test_the_version_of_an_interpreter_is_numbers() -> None:
    """An interpreter's claim becomes no part of a path."""
    assert release("3.12.1 (main, x) [GCC]") == (3, 12, 1)
    assert release("3.14.0rc1+ (x)") == (3, 14, 0)
    for claim in ("3./../../x", "4.0.0", "", "3.12"):
        with pytest.raises(PolicyError, match="no version"):
            release(claim)

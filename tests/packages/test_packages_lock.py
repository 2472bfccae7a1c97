"""What a lock or requirements that a guest may have written make the host look at: nothing else."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from visruntime._packages.request import of_project, of_requirements, of_script
from visruntime.errors import PolicyError
from visruntime.packages import Environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_uid

SCRIPT = b"# /// script\n# dependencies = ['a']\n# ///\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder beside the project, with what a project would have."""
    folder = tmp_path / "outside"
    (folder / "src" / "secret").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\n')
    return folder


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the names which the host asks the system about, from now on."""
    names: list[str] = []

    def watched(act: Callable[..., object]) -> Callable[..., object]:
        def ask(path: object = ".", *args: object, **options: object) -> object:
            if isinstance(path, (str, bytes, os.PathLike)):
                names.append(os.fsdecode(path))
            return act(path, *args, **options)

        return ask

    for name in ("stat", "lstat", "open", "listdir", "scandir", "readlink", "access"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    return names


def write_lock(project: Path, source: str, *, name: str = "uv.lock") -> Path:
    """Write a project whose lock has one package with *source*."""
    project.mkdir(exist_ok=True)
    (project / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "0"\n')
    (project / name).write_text(
        f'version = 1\n[[package]]\nname = "a"\nversion = "1"\nsource = {{ {source} }}\n'
    )
    return project


FOLDERS = [
    f'{kind} = "{place}"'
    for kind in ("editable", "directory", "virtual")
    for place in ("../outside", "../../../etc", "/etc", "x/../../outside", "..")
]
UNHELD = [
    'path = "../outside/a-1.0-py3-none-any.whl"',
    'path = "/etc/passwd"',
    'url = "file:///etc/a-1.0-py3-none-any.whl"',
    'url = "FILE:../outside/a-1.0-py3-none-any.whl"',
    'url = "../outside/a-1.0-py3-none-any.whl"',
    'git = "file:///etc?rev=1#1"',
    'git = "../outside"',
]


@pytest.mark.parametrize("source", FOLDERS + UNHELD)
def test_a_lock_makes_nobody_look_outside_of_its_project(
    tmp_path: Path, outside: Path, looked: list[str], source: str
) -> None:
    """Whether there is something must show neither in what is asked nor in what is said."""
    project = write_lock(tmp_path / "project", source)
    said = []
    for _ in range(2):
        looked.clear()
        with pytest.raises(PolicyError, match=r"a is locked to") as caught:
            of_project(str(project), extras=(), groups=(), editable=True)
        said.append(str(caught.value))
        assert looked  # the project itself was read
        assert not [name for name in looked if "outside" in name or "etc" in name]
        shutil.rmtree(outside, ignore_errors=True)
    assert said[0] == said[1]
    assert "src" not in said[0]


def test_folders_of_the_project_are_looked_at(tmp_path: Path, looked: list[str]) -> None:
    """The control: what lies in the project is seen, and asked for by its name."""
    project = write_lock(tmp_path / "project", 'editable = "member/../other"')
    (project / "other" / "src").mkdir(parents=True)
    request = of_project(str(project), extras=(), groups=(), editable=True)
    assert request.paths == (str(project / "other" / "src"),)
    assert "other" in looked
    looked.clear()
    (project / "other").rename(project / "elsewhere")
    assert of_project(str(project), extras=(), groups=(), editable=False).paths == ()
    assert "other" not in looked


@pytest.mark.parametrize("place", ["member", "member/inner", "member/src"])
def test_a_link_in_a_project_leads_to_no_folder_of_source(
    tmp_path: Path, outside: Path, place: str
) -> None:
    """A member that a guest made a link of must show nothing of where it leads."""
    local = place.removesuffix("/src")
    project = write_lock(tmp_path / "project", f'editable = "{local}"')
    link = project / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside / "src")
    with pytest.raises(PolicyError, match=rf"'{link.name}' is a link"):
        of_project(str(project), extras=(), groups=(), editable=True)
    link.unlink()
    link.mkdir()
    assert of_project(str(project), extras=(), groups=(), editable=True).paths == (
        str(project / place),
    )


def test_a_member_that_becomes_a_link_is_not_listed(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an import would need must not be told from names behind a link that came later."""
    project = write_lock(tmp_path / "project", 'editable = "member"')
    (project / "member").mkdir()
    (project / "member" / "here.py").touch()
    environment = Environment.from_project(project)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", None)  # a guest's folder may have any number of names
        assert "stands in" in environment.how_to_add("here")
    shutil.rmtree(project / "member")
    (project / "member").symlink_to(outside / "src")
    assert "stands in" not in environment.how_to_add("secret")


@pytest.mark.parametrize(
    "table",
    [
        '[tool.uv.workspace]\nmembers = ["../outside", "../../*"]\n',
        '[tool.uv.sources]\na = { path = "../outside", editable = true }\n',
        '[tool.uv]\nfind-links = ["../outside"]\n',
        '[[tool.uv.index]]\nname = "x"\nurl = "file:../outside"\ndefault = true\n',
        '[build-system]\nrequires = ["a @ file:../outside"]\n',
    ],
)
def test_a_project_file_makes_nobody_look_elsewhere(
    tmp_path: Path, outside: Path, looked: list[str], table: str
) -> None:
    """Of a project's file only its Python counts here, so it names no place either."""
    project = write_lock(tmp_path / "project", 'registry = "../outside"')
    with open(project / "pyproject.toml", "a") as file:
        file.write(table)
    looked.clear()
    assert of_project(str(project), extras=(), groups=(), editable=True).paths == ()
    assert looked
    assert not [name for name in looked if "outside" in name]


@pytest.mark.parametrize(
    "line",
    [
        *("-e ../outside", "--editable=../outside", "-r ../../x", "-r /etc/passwd", "-c ../x"),
        *("--index-url file:///etc", "-i ../outside", "--extra-index-url file:x"),
        *("--find-links ../outside", "-f /etc", "../outside", "/etc", "./x", "x/../../outside"),
        *("x/a.whl", "file:///etc/a.whl", "FILE:../outside", "https://x.test/a.whl", "git+file:x"),
        *("a @ file:../outside", "a @ ../outside", "a@/etc", "a[x] @ FILE:///etc", "a @ git+file:///x"),
        *("a @ file:///etc ; python_version > '3'", "a @ 'file:x'", "a\u00a0@ file:x"),
    ],
)  # fmt: skip
def test_requirements_make_nobody_look_elsewhere(
    tmp_path: Path, outside: Path, looked: list[str], line: str
) -> None:
    """Options, paths and addresses that are no server's are refused by what they say."""
    del tmp_path, outside
    problem = r"option of pip|no requirement|no address of a server"
    looked.clear()
    with pytest.raises(PolicyError, match=problem):
        of_requirements([line], label="r", add="")
    script = f"# /// script\n# dependencies = [{line!r}]\n# ///\n"
    with pytest.raises(PolicyError, match=problem):
        of_script(script.encode(), None)
    assert looked == []


def test_addresses_of_servers_are_requirements() -> None:
    """The control: what names a server, and each form of a version, passes."""
    lines = [
        "a",
        "a-b.c_d",
        "a[x,y]>=1,<2",
        "a == 1.0 ; python_version > '3'",
        "a (>=1)",
        "a~=1; extra == 'x'",
        "a @ https://x.test/a-1.whl",
        "a@https://x.test/a-1.whl --hash=sha256:0",
        "a [x] @ HTTP://x.test/a.whl#sha256=0 ; python_version > '3'",
        "a===1",
        "a!=1",
    ]
    request = of_requirements(lines, label="r", add="")
    assert request.files["requirements.in"].decode().splitlines() == lines


@pytest.mark.parametrize("source", FOLDERS[:6] + UNHELD + ['editable = "."', 'directory = "x"'])
def test_the_lock_of_a_script_names_no_place(
    tmp_path: Path, outside: Path, looked: list[str], source: str
) -> None:
    """To a script belongs no folder, so none is taken, looked at or left out unsaid."""
    del outside
    write_lock(tmp_path / "folder", source, name="s.py.lock")
    looked.clear()
    with pytest.raises(PolicyError, match="wheelhouse"):
        of_script(SCRIPT, str(tmp_path / "folder" / "s.py"))
    assert not [name for name in looked if "outside" in name or name == "etc"]


def test_no_variable_is_put_into_the_lock_of_a_script(tmp_path: Path) -> None:
    """Uv would send the index's password to whom the lock names."""
    url = "https://x.test/a-1-py3-none-any.whl?q=${UV_DEFAULT_INDEX}"
    write_lock(tmp_path, f'url = "{url}"', name="s.py.lock")
    with pytest.raises(PolicyError, match="variable of the environment"):
        of_script(SCRIPT, str(tmp_path / "s.py"))
    write_lock(tmp_path, f'url = "{url.partition("?")[0]}"', name="s.py.lock")
    assert of_script(SCRIPT, str(tmp_path / "s.py")) is not None

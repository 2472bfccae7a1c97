"""The table [python] of policy files: who may relax what, and how files are merged."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from tls_servers import Authority

import visruntime as vr
from visruntime.cli import main
from visruntime.config import ConfigFile, PythonSettings, narrow_by_config, python_settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

VALUES = (None, True, False)


def file_with(folder: Path, name: str, value: bool | None) -> Path:  # noqa: FBT001
    """Write a policy file with that setting."""
    table = "" if value is None else f"[python]\ntls_strict = {json.dumps(value)}\n"
    path = folder / name
    path.write_text(f"# a file\n{table}")
    return path


@pytest.mark.parametrize(
    ("given", "owner", "found"), list(itertools.product(VALUES, VALUES, VALUES))
)
def test_a_found_file_makes_stricter_and_never_relaxes(
    workspace: Path,
    given: bool | None,  # noqa: FBT001
    owner: bool | None,  # noqa: FBT001
    found: bool | None,  # noqa: FBT001
) -> None:
    """Of all combinations none lets a project's file relax what its owner left strict."""
    mine = file_with(workspace, "mine.toml", owner)
    project = file_with(workspace, "visruntime.toml", found)
    asked = given if given is not None else owner
    if found is False and asked is not False:
        with pytest.raises(vr.PolicyError, match="may not relax") as refusal:
            python_settings(mine, [project], tls_strict=given)
        error = refusal.value
        assert (error.field, error.file, error.line) == ("python.tls_strict", str(project), 3)
        return
    merged = python_settings(mine, [project], tls_strict=given)
    assert merged == PythonSettings(tls_strict=True if found else asked)
    assert python_settings(ConfigFile(mine), [ConfigFile(project)], tls_strict=given) == merged


def test_nothing_said_is_none() -> None:
    """Without files and flags the setting is that of Python."""
    assert python_settings() == PythonSettings()
    assert python_settings().tls_strict is None


def test_a_pyproject_holds_it_nested(workspace: Path) -> None:
    """The table of a pyproject.toml counts alike, and a table of another place never does."""
    file = workspace / "pyproject.toml"
    file.write_text("[python]\ntls_strict = false\n[tool.visruntime.python]\ntls_strict = true\n")
    assert ConfigFile(file).python.tls_strict is True
    file.write_text("[tool.visruntime]\n[tool.visruntime.python]\ntls_strict = false\n")
    with pytest.raises(vr.PolicyError, match="may not relax") as refusal:
        python_settings(None, [file])
    assert refusal.value.line == 3


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("[python]\ntls_strict = 0\n", 2, "python.tls_strict"),
        ('[python]\ntls_strict = "no"\n', 2, "python.tls_strict"),
        ("read = []\n[python]\n# x\ntls_verify = false\n", 4, "python.tls_verify"),
        ("python = false\n", 1, "python"),
        ("tls_strict = false\n", 1, "tls_strict"),
        ("[tls]\nstrict = false\n", 1, "tls"),
        ('[python]\n"\\u001b[31m" = false\n', 1, "python.\x1b[31m"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    workspace: Path, text: str, line: int, field: str
) -> None:
    """There is one setting with one name; nothing else is taken for it, wherever it is read."""
    file = workspace / "visruntime.toml"
    file.write_text(text)
    for read in (
        vr.JailPolicy.load,
        ConfigFile,
        lambda path: narrow_by_config(vr.JailPolicy(), path),
    ):
        with pytest.raises(vr.PolicyError) as refusal:
            read(file).policy() if read is ConfigFile else read(file)
        assert (refusal.value.field, refusal.value.line) == (field, line)
        assert str(refusal.value).isprintable()


def test_it_is_no_part_of_a_policy(workspace: Path) -> None:
    """A policy is what the kernel enforces, so the table is read beside it."""
    file = file_with(workspace, "visruntime.toml", value=False)
    assert vr.JailPolicy.load(file) == vr.JailPolicy()
    assert narrow_by_config(vr.JailPolicy(), file).digest == vr.JailPolicy().digest
    with pytest.raises(vr.PolicyError, match="python"):
        vr.JailPolicy.from_dict({"python": {"tls_strict": False}})


STRICT = (
    "import ssl; c = ssl.create_default_context(); c.verify_flags |= ssl.VERIFY_X509_STRICT; "
    "print(bool(c.verify_flags & ssl.VERIFY_X509_STRICT))"
)


@pytest.fixture
def run(workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs `visruntime run` in the workspace: exit code, out, err."""
    monkeypatch.chdir(workspace)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["run", *words, "-c", STRICT])
        return code, *capfd.readouterr()

    return run


def test_the_command_line_merges_flags_and_files(run: Any, workspace: Path) -> None:
    """The flag and the named file relax; a found file is refused for it, and may take it back."""
    read = ("--read", str(workspace))
    mine = file_with(workspace, "mine.toml", value=False)
    assert run()[:2] == (0, "True\n")
    assert run("--tls-lenient")[:2] == (0, "False\n")
    assert run("--policy", str(mine))[:2] == (0, "False\n")
    file_with(workspace, "visruntime.toml", value=False)
    code, out, err = run(*read)
    assert (code, out) == (125, "")
    assert "visruntime.toml', line 3: python.tls_strict" in err
    assert run(*read, "--tls-lenient")[:2] == (0, "False\n")
    assert run("--policy", str(mine))[:2] == (0, "False\n")
    code, out, err = run()
    assert (code, out) == (0, "True\n")
    assert "ignored visruntime.toml" in err
    file_with(workspace, "visruntime.toml", value=True)
    code, out, err = run(*read, "--tls-lenient")
    assert (code, out) == (0, "True\n")
    assert "TLS stays strict" in err
    code, out, err = run(*read)
    assert (code, out, err) == (0, "True\n", "")


def test_other_commands_take_such_files(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A setting of Python workers never keeps a program from being run or asked about."""
    file_with(workspace, "visruntime.toml", value=False)
    monkeypatch.chdir(workspace)
    assert main(["why", "--read", ".", "read", "x"]) == 0
    assert main(["exec", "--read", ".", "--", "true"]) == 0
    capfd.readouterr()


def test_a_bundle_on_the_command_line(run: Any, workspace: Path) -> None:
    """--ca starts at the current folder, is in the report, and is refused by name."""
    report = workspace / "report.json"
    assert run("--ca", "missing.pem")[0] == 125
    (workspace / "bundle.pem").write_text("no certificates\n")
    code, _, err = run("--ca", "bundle.pem", "--report", str(report))
    assert code == 125
    assert f"ca: {workspace}/bundle.pem: it is no list of certificates" in err
    assert json.loads(report.read_text())["error"].startswith("ca: ")
    (workspace / "bundle.pem").write_bytes(Authority("Example Authority").pem)
    assert run("--ca", "bundle.pem", "--report", str(report))[:2] == (0, "True\n")
    clauses = {one["clause"]: one for one in json.loads(report.read_text())["clauses"]}
    assert clauses["ca"]["note"].startswith(f"{workspace}/bundle.pem")
    assert f"implicit read {workspace}/bundle.pem" in clauses

"""Policy files: how they are found, read, and kept from adding to what an owner gave."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import visruntime as vr
from visruntime._config.lines import line_of
from visruntime.config import (
    MAX_CONFIG_BYTES,
    find_configs,
    narrow_by_config,
    parse_size,
    read_config,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

POLICY = """
read = ["data", "/abs/./x"]
write = ["../outside"]
deny = ["data/secret"]
system = "none"
egress = "open"
host_ports = [5432]

[limits]
memory = "512MiB"
processes = 5

[env]
LANG = "C.UTF-8"
"""


def test_a_file_is_read_beside_itself(workspace: Path) -> None:
    """Relative paths must start at the file's folder, wherever the process is."""
    file = workspace / "visruntime.toml"
    file.write_text(POLICY)
    policy = vr.JailPolicy.load(file)
    assert policy.read == (f"{workspace}/data", "/abs/x")
    assert policy.write == (f"{workspace.parent}/outside",)
    assert policy.deny == (f"{workspace}/data/secret",)
    assert policy.egress is vr.Egress.OPEN or policy.egress == vr.Egress.OPEN
    assert policy.limits == vr.Limits(memory=512 * 1024**2, processes=5)
    assert dict(policy.env) == {"LANG": "C.UTF-8"}


def test_a_pyproject_counts_with_its_table(workspace: Path) -> None:
    """Only [tool.visruntime] of a pyproject.toml is a policy."""
    file = workspace / "pyproject.toml"
    file.write_text('[project]\nname = "x"\n[tool.visruntime]\nread = ["."]\n')
    assert vr.JailPolicy.load(file).read == (str(workspace),)
    file.write_text('[project]\nname = "x"\n')
    with pytest.raises(vr.PolicyError, match=r"tool\.visruntime"):
        vr.JailPolicy.load(file)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("reed = []", "reed"),
        ("read = 'x'", "read"),
        ("read = ['~/x']", "~"),
        ("read = [5]", r"read\[0\]"),
        ("read = [", "TOML"),
        ("[limits]\nmemory = 'much'", "limits.memory"),
        ("[limits]\nmemry = 5", "memry"),
        ("[env]\nAPI_KEY = 'x'", "Secret"),
        ("[inbound]\nhttp = 5", "inbound"),
        ("\x00", "TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(workspace: Path, text: str, word: str) -> None:
    """A file that is not understood in full must not become a policy."""
    file = workspace / "visruntime.toml"
    file.write_text(text)
    with pytest.raises(vr.PolicyError, match=word) as caught:
        vr.JailPolicy.load(file)
    assert str(file) in str(caught.value)
    with pytest.raises(vr.PolicyError, match=word) as caught:
        narrow_by_config(vr.JailPolicy(), file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("read = ['/a']\n\n# why\nreed = []\n", 4, "reed"),
        ("read = [\n  '/a',\n  5,\n]\n", 1, "read[1]"),
        ("write = []\n[limits]\nprocesses = 5\nmemory = 'much'\n", 4, "limits.memory"),
        ("write = []\nlimits.memry = 5\n", 2, "limits.memry"),
        ("limits = { cpus = 1, processes = 0 }\n", 1, "limits.processes"),
        ('deny = ["""/a\n[limits]\nmemory = 5"""]\n[limits]\nmemory = -1', 4 + 1, "limits.memory"),
        ("[env]\nLANG = 'C'\n'API_KEY' = 'x'\n", 3, "env['API_KEY']"),
        ("[inbound]\n80 = 1\nhttp = 5\n", 1, "inbound"),
        ("\r\n[egress]\r\nallow = [\r\n 'a.test',\r\n '-:x']", 3, "egress.allow[1]"),
        ("read = []\nwrite = [\n", 2, "policy"),
        ("read = []\nwrite = [ ;\n", 2, "policy"),
    ],
)
def test_an_error_says_file_line_and_field(
    workspace: Path, text: str, line: int, field: str
) -> None:
    """The reader of an error must not have to search for what it is about."""
    file = workspace / "visruntime.toml"
    file.write_bytes(text.encode())
    with pytest.raises(vr.PolicyError) as caught:
        vr.JailPolicy.load(file)
    assert (caught.value.file, caught.value.line) == (str(file), line), str(caught.value)
    assert caught.value.field == field
    assert f"line {line}" in str(caught.value)
    with pytest.raises(vr.PolicyError) as narrowing:
        narrow_by_config(vr.JailPolicy(), file)
    assert str(narrowing.value) == str(caught.value)
    inside = "[tool.visruntime." if "\n[" in text or text.startswith("[") else None
    if inside is None:
        tool = workspace / "pyproject.toml"
        tool.write_text(f"[tool.visruntime]\n{text}")
        with pytest.raises(vr.PolicyError) as caught:
            vr.JailPolicy.load(tool)
        assert (caught.value.file, caught.value.line) == (str(tool), line + 1)


@pytest.mark.parametrize(
    "text",
    ['"r\\u202ed" = 1', '[limits]\n"\\u001b[31m" = 1', '[egress]\n"\\u001b[31m" = 1',
     '[env]\n"\\u001b[31m" = "x"', '[inbound]\n"\\u001b[31m" = 1', 'read = ["\\u001b[31m"]\nx = 1'],
)  # fmt: skip
def test_no_name_in_a_file_steers_a_terminal(workspace: Path, text: str) -> None:
    """A file that a guest may have written must not reach a terminal through an error."""
    file = workspace / "visruntime.toml"
    file.write_text(text)
    with pytest.raises(vr.PolicyError) as caught:
        vr.JailPolicy.load(file)
    assert str(caught.value).isprintable(), ascii(str(caught.value))
    assert caught.value.line is not None


def test_the_search_for_a_line_is_bounded() -> None:
    """A file made to be slow to search must cost an error its line, not the host its time."""
    text = "read = [\n" + "'/a',\n" * 100_000 + "5]\nreed = 1\n"
    started = time.monotonic()
    assert line_of(text, "reed") is None
    assert time.monotonic() - started < 20
    assert line_of("a = 1\nreed = 1\n", "reed") == 2
    assert line_of("a = 1\n", "reed") is None


def test_a_pyproject_whose_entry_is_no_table_is_refused(workspace: Path) -> None:
    """A policy that cannot be understood must not be taken for none."""
    file = workspace / "pyproject.toml"
    file.write_text("[tool]\nvisruntime = 5\n")
    with pytest.raises(vr.PolicyError, match="no table"):
        find_configs(workspace)
    with pytest.raises(vr.PolicyError, match="no table"):
        vr.JailPolicy.load(file)


def test_no_limit_is_written_none(workspace: Path) -> None:
    """TOML has no null, and a file must be able to say what Python says by None."""
    file = workspace / "visruntime.toml"
    file.write_text('[limits]\nprocesses = "none"\noutput = "none"\n')
    assert vr.JailPolicy.load(file).limits == vr.Limits(processes=None, output=None)
    owner = vr.JailPolicy(limits=vr.Limits(processes=7))
    assert narrow_by_config(owner, file).limits == owner.limits
    file.write_text('[limits]\nmemory_by = "none"\n')
    with pytest.raises(vr.PolicyError, match="memory_by"):
        vr.JailPolicy.load(file)


def test_the_files_in_use_are_remembered(workspace: Path) -> None:
    """A file that narrowed a policy must be kept from guests like the one that gave it."""
    mine, found = workspace / "mine.toml", workspace / "visruntime.toml"
    mine.write_text('write = ["."]\n')
    found.write_text("deny_write = []\n")
    policy = vr.JailPolicy.load(mine)
    assert policy.files == (str(mine),)
    assert narrow_by_config(policy, found).files == (str(mine), str(found))


def test_a_file_that_is_no_text_or_too_large_is_refused(workspace: Path) -> None:
    """Reading a policy must stay bounded."""
    file = workspace / "visruntime.toml"
    file.write_bytes(b"# \xff\n")
    with pytest.raises(vr.PolicyError, match="TOML"):
        vr.JailPolicy.load(file)
    file.write_bytes(b"#" * (MAX_CONFIG_BYTES + 1))
    with pytest.raises(vr.PolicyError, match="larger"):
        vr.JailPolicy.load(file)
    with pytest.raises(FileNotFoundError):
        vr.JailPolicy.load(workspace / "absent.toml")


def test_only_the_folder_itself_is_searched(workspace: Path) -> None:
    """A file above the folder must not count, and none puts another out of force."""
    assert find_configs(workspace) == []
    (workspace / "pyproject.toml").write_text("[project]\n")
    assert find_configs(workspace) == []
    (workspace / "pyproject.toml").write_text("[tool.visruntime]\n")
    assert find_configs(workspace) == [str(workspace / "pyproject.toml")]
    (workspace / "visruntime.toml").write_text("")
    assert find_configs(workspace) == [
        str(workspace / "visruntime.toml"),
        str(workspace / "pyproject.toml"),
    ]
    (workspace / "below").mkdir()
    assert find_configs(workspace / "below") == []


def test_a_found_file_can_only_take_away(workspace: Path, outside: Path) -> None:
    """A file that a guest may have written must not add a grant, a network or a limit."""
    owner = vr.JailPolicy(
        write=[workspace],
        system="none",
        env={"A": "1", "B": "2"},
        limits=vr.Limits(processes=10),
    )
    file = workspace / "visruntime.toml"
    file.write_text(
        f'write = [".", "{outside}"]\nsystem = "host"\negress = "open"\nhost_ports = [1]\n'
        'deny = ["secret"]\n[env]\nA = "1"\nC = "3"\n[limits]\nprocesses = 1000\noutput = 5\n'
    )
    narrowed = narrow_by_config(owner, file)
    assert narrowed.write == (str(workspace),)
    assert narrowed.deny == (f"{workspace}/secret",)
    assert narrowed.system == "none"
    assert narrowed.egress == vr.Egress.OFF
    assert narrowed.host_ports == ()
    assert dict(narrowed.env) == {"A": "1"}
    assert narrowed.limits == vr.Limits(processes=10, output=5)


def test_a_found_file_leaves_alone_what_it_does_not_name(workspace: Path) -> None:
    """A field that the file leaves out must stay as the owner gave it."""
    owner = vr.JailPolicy(
        read=["/srv/r"], write=[workspace], egress=vr.Egress.OPEN, env={"A": "1"}, deny=["/srv/r/x"]
    )
    file = workspace / "visruntime.toml"
    file.write_text('deny_write = ["a"]\n')
    narrowed = narrow_by_config(owner, file)
    assert narrowed.deny_write == (f"{workspace}/a",)
    assert narrowed.replace(deny_write=()).digest == owner.digest
    file.write_text("read = []\n")
    narrowed = narrow_by_config(owner, file)
    assert narrowed.write == (str(workspace),)
    assert narrowed.deny == ("/srv/r/x",)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("4k", 4096), ("512MiB", 2**29), ("1G", 2**30), (" 2 TB ", 2**41), ("3b", 3)],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes are whole numbers with a unit of powers of 1024."""
    assert parse_size(text, "x") == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1.5G", "0x10", "1P", "\u0661", "9" * 30, "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """A text that is no size must not become a limit."""
    with pytest.raises(vr.PolicyError, match="size"):
        parse_size(text, "limits.memory")


def test_read_config_gives_plain_data(workspace: Path) -> None:
    """The table is data; sizes in text are numbers already."""
    file = workspace / "visruntime.toml"
    file.write_text('[limits]\nscratch = "1M"\n')
    assert read_config(file) == {"limits": {"scratch": 1024**2}}

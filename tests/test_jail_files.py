"""File verbs of the host beside a guest that prepares the paths."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy

from visruntime.errors import LimitExceeded, OutputLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def jail(workspace: Path) -> Iterator[Jail]:
    """A jail that may change the workspace."""
    with Jail(JailPolicy(write=[workspace])) as one:
        yield one


def plant(jail: Jail, workspace: Path, target: Path, name: str) -> None:
    """Let the guest make a link to *target* in the workspace."""
    jail.run(["ln", "-s", str(target), str(workspace / name)], check=True)


def test_copy_in_follows_no_link(jail: Jail, workspace: Path, outside: Path) -> None:
    """A link that a guest planted must not make the host hand over a secret."""
    (outside / "secret").write_text("secret")
    plant(jail, workspace, outside / "secret", "in")
    plant(jail, workspace, outside, "folder")
    for path in (workspace / "in", workspace / "folder" / "secret"):
        assert path.read_text() == "secret"  # the host's own open follows
        with pytest.raises(OSError, match="is a link") as caught:
            jail.copy_in(path, "/tmp/got")
        assert caught.value.errno == errno.ELOOP
        assert caught.value.filename == str(path)
        assert not jail.exists("/tmp/got")
    jail.copy_in(outside / "secret", "/tmp/got")
    assert jail.read_bytes("/tmp/got") == b"secret"


def test_copy_out_follows_no_link(jail: Jail, workspace: Path, outside: Path) -> None:
    """A link that a guest planted must not make the host write elsewhere."""
    jail.write_bytes("/tmp/evil", b"evil")
    plant(jail, workspace, outside, "folder")
    plant(jail, workspace, outside / "new", "link")
    with pytest.raises(OSError, match="is a link") as caught:
        jail.copy_out("/tmp/evil", workspace / "folder" / "planted")
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(FileExistsError):
        jail.copy_out("/tmp/evil", workspace / "link")
    assert os.listdir(outside) == []
    jail.copy_out("/tmp/evil", outside / "wanted")
    assert (outside / "wanted").read_bytes() == b"evil"


def test_copies_take_relative_paths(
    jail: Jail, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path counts from the host's current folder, `..` included."""
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "data").write_bytes(b"data")
    monkeypatch.chdir(workspace / "a" / "b")
    jail.copy_in("../../data", "/tmp/data")
    jail.copy_out("/tmp/data", "../copy")
    assert (workspace / "a" / "copy").read_bytes() == b"data"


def test_copy_in_opens_regular_files_only(jail: Jail, workspace: Path) -> None:
    """A pipe that a guest made must not hold the host, and a folder is no file."""
    jail.run(["mkfifo", str(workspace / "pipe")], check=True)
    for path, number in ((workspace / "pipe", errno.EINVAL), (workspace, errno.EISDIR)):
        with pytest.raises(OSError, match="is no regular file") as caught:
            jail.copy_in(path, "/tmp/got")
        assert caught.value.errno == number
    with pytest.raises(FileNotFoundError):
        jail.copy_in(workspace / "nothing", "/tmp/got")
    with pytest.raises(IsADirectoryError):
        jail.copy_in("/", "/tmp/got")


def test_copies_are_bounded(jail: Jail, workspace: Path) -> None:
    """No file may fill the host's memory: one byte above the bound is an error."""
    (workspace / "large").write_bytes(bytes(1001))
    with pytest.raises(LimitExceeded, match="longer than 1000 bytes") as caught:
        jail.copy_in(workspace / "large", "/tmp/got", max_bytes=1000)
    assert (caught.value.kind, caught.value.limit) == ("max_bytes", 1000)
    assert not jail.exists("/tmp/got")
    jail.copy_in(workspace / "large", "/tmp/got", max_bytes=1001)
    with pytest.raises(OutputLimitExceeded):
        jail.copy_out("/tmp/got", workspace / "out", max_bytes=1000)
    assert not (workspace / "out").exists()


def test_list_dir_drops_no_name(jail: Jail, workspace: Path) -> None:
    """A folder with more names than fit must be an error, not a part of its names."""
    code = f"for i in range(300): open('{workspace}/' + 'n' * 200 + str(i), 'w').close()"
    jail.run([PYTHON, "-c", code], check=True)
    wanted = sorted("n" * 200 + str(i) for i in range(300))
    size = sum(len(name) + 1 for name in wanted)
    assert jail.list_dir(workspace) == wanted
    assert jail.list_dir(workspace, max_bytes=size) == wanted
    with pytest.raises(OutputLimitExceeded, match=f"longer than {size - 1} bytes") as caught:
        jail.list_dir(workspace, max_bytes=size - 1)
    assert (caught.value.kind, caught.value.limit) == ("max_bytes", size - 1)

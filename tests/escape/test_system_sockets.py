"""Boundary: sockets that the host's programs have bound in what a jail shows unasked."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, outside
from mount_helpers import in_mount_namespace

from visruntime._jail import bound_sockets
from visruntime._jail.mount_table import MountTree, mount_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

HOST = """
import json, os, socket, sys
from jail_helpers import Jail, JailPolicy, inside, outside
top = "/usr/games"
os.chdir(top)
servers = []
def serve(address):
    one = socket.socket(socket.AF_UNIX)
    one.bind(address)
    one.listen()
    servers.append(one)
serve("relative")
serve(top + "/absolute")
serve("/usr/./games/../games//dotted")
serve(top + "/before")
os.rename("before", "moved")
os.mkdir("deep")
os.chdir("deep")
serve("relative")
names = ["relative", "absolute", "dotted", "moved", "deep/relative"]
text = f'''
got = []
for name in {names!r}:
    with socket.socket(socket.AF_UNIX) as one:
        got.append(attempt(one.connect, {top!r} + "/" + name))
answer(got)
'''
found = []
for options in ({}, {"system": "host"}, {"read": ["/usr/games/deep"]}):
    with Jail(JailPolicy(**options)) as jail:
        found.append(inside(jail, text))
print(json.dumps([found, outside(text)]))
"""


def test_no_socket_below_the_systems_folders_is_reached() -> None:
    """Neither a relative name nor one that leads elsewhere must hide a server of the host's."""
    output = in_mount_namespace("mount -t tmpfs -o mode=755 none /usr/games", HOST)
    found, control = json.loads(output.splitlines()[-1])
    assert found == [[errno.EACCES] * 5] * 3
    assert control == [0] * 5


FIFO = """
import json, os
from jail_helpers import Jail, JailPolicy, inside, outside
path = "/usr/games/pipe"
os.mkfifo(path)
os.chmod(path, 0o666)
keeps = os.open(path, os.O_RDWR | os.O_NONBLOCK)
text = f"answer([opened({path!r}, flags) for flags in (os.O_WRONLY, os.O_RDWR)])"
with Jail(JailPolicy()) as jail:
    found = inside(jail, text)
print(json.dumps([found, outside(text)]))
"""


def test_no_pipe_below_the_systems_folders_is_written() -> None:
    """A FIFO that everybody may write must not be written below /usr."""
    output = in_mount_namespace("mount -t tmpfs -o mode=755 none /usr/games", FIFO)
    found, control = json.loads(output.splitlines()[-1])
    assert found == [errno.EACCES] * 2
    assert control == [0, 0]


@pytest.fixture
def top() -> Iterator[Path]:
    """Return a folder with a short name, on a disk."""
    folder = Path(tempfile.mkdtemp(prefix="vis-", dir="/var/tmp")).resolve()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bind(top: Path) -> Iterator[Callable[[str, str], None]]:
    """Return a function that binds a socket in a folder of the host, by the name given."""
    made: list[socket.socket] = []

    def bound(folder: str, address: str) -> None:
        here = os.getcwd()
        os.chdir(top / folder)
        try:
            one = socket.socket(socket.AF_UNIX)
            made.append(one)
            one.bind(address)
            one.listen()
        finally:
            os.chdir(here)

    yield bound
    for one in made:
        one.close()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the folders that were searched, as they come, for sockets of this test only."""
    folders: list[str] = []
    search, bound = bound_sockets._search, bound_sockets._bound
    before = {cookie for _, _, cookie in bound()}

    def spied(folder: str) -> list[str]:
        folders.append(folder)
        return search(folder)

    monkeypatch.setattr(bound_sockets, "_search", spied)
    monkeypatch.setattr(
        bound_sockets, "_bound", lambda: [one for one in bound() if one[2] not in before]
    )
    return folders


def found_in(top: Path, searched: dict[Any, Any] | None = None) -> list[str]:
    """Return what is found in the folder ``shown`` of *top*."""
    rules = [("read", str(top / "shown"))]
    searched = {} if searched is None else searched
    return bound_sockets.bound_elsewhere(rules, MountTree(mount_table()), searched=searched)


def test_a_search_is_made_only_for_sockets_that_may_be_there(
    top: Path, bind: Callable[[str, str], None], searches: list[str]
) -> None:
    """No socket in what is shown may be missed, and one whose name leads to it costs no search."""
    (top / "shown" / "deep").mkdir(parents=True)
    (top / "beside").mkdir()
    bind("shown", f"{top}/shown/absolute")
    bind("beside", f"{top}/beside/absolute")
    assert found_in(top) == [f"{top}/shown/absolute"]
    assert searches == []
    bind("shown/deep", "relative")
    assert found_in(top) == [f"{top}/shown/absolute", f"{top}/shown/deep/relative"]
    assert searches == [f"{top}/shown"]
    bind("shown", f"{top}/shown/before")
    (top / "shown" / "before").rename(top / "shown" / "after")
    assert f"{top}/shown/after" in found_in(top)


def test_a_socket_that_is_not_there_is_searched_for_once(
    top: Path, bind: Callable[[str, str], None], searches: list[str]
) -> None:
    """What a policy remembers of a search must hide no socket that came since."""
    (top / "shown").mkdir()
    (top / "beside").mkdir()
    bind("beside", "relative")
    searched: dict[Any, Any] = {}
    assert found_in(top, searched) == []
    assert searches == [f"{top}/shown"]
    assert found_in(top, searched) == []
    assert len(searches) == 1
    (top / "beside" / "relative").unlink()
    bind("shown", "relative")  # it may have the inode of the other one
    assert found_in(top, searched) == [f"{top}/shown/relative"]
    assert len(searches) == 2


def test_without_the_kernels_answer_all_is_searched(
    top: Path,
    bind: Callable[[str, str], None],
    searches: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the kernel tells names only, a relative one must lead to a search."""
    (top / "shown").mkdir()
    bind("shown", "relative")

    def refused() -> Iterator[bytes]:
        raise PermissionError

    monkeypatch.setattr(bound_sockets, "_messages", refused)
    assert found_in(top) == [f"{top}/shown/relative"]
    assert searches == [f"{top}/shown"]


def test_a_socket_in_installed_code_is_masked(top: Path, bind: Callable[[str, str], None]) -> None:
    """What is not looked through for secrets must show no socket either."""
    folder = top / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    bind("lib/python3.11/site-packages", "relative")
    text = f"""
os.chdir({str(folder)!r})
answer(attempt(socket.socket(socket.AF_UNIX).connect, "relative"))
"""
    with Jail(JailPolicy(), implicit_read=[(str(top), "a test")]) as jail:
        assert inside(jail, text) == errno.EACCES
    assert outside(text) == 0

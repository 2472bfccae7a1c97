"""File verbs: what the host does with a guest's files, under the jail's own rights."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy, Limits, children_of, inside, until

from visruntime._jail import files as _jail_files
from visruntime.errors import (
    CommandTimeout,
    JailClosed,
    LimitExceeded,
    OutputLimitExceeded,
    PathDenied,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


@pytest.fixture
def jail(workspace: Path) -> Iterator[Jail]:
    """Return a jail that may write the workspace, but for a secret in it."""
    (workspace / "secret").write_text("TOP")
    (workspace / "kept").write_text("kept")
    policy = JailPolicy(
        write=[workspace], deny=[workspace / "secret"], deny_write=[workspace / "kept"]
    )
    with Jail(policy) as opened:
        yield opened


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_001])
def test_bytes_go_in_and_out(jail: Jail, workspace: Path, size: int) -> None:
    """Content of any size must be written and read back whole."""
    data = os.urandom(size)
    path = workspace / "f"
    jail.write_bytes(path, data)
    assert path.read_bytes() == data
    assert jail.read_bytes(path) == data
    jail.write_bytes(path, b"short")
    assert path.read_bytes() == b"short"
    assert jail.stat(path).size == 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_uid == workspace.stat().st_uid


def test_private_places_can_be_used(jail: Jail) -> None:
    """Files in the jail's own places must be reachable for the host by the verbs alone."""
    jail.write_bytes("/tmp/f", b"private")
    assert jail.run(["cat", "/tmp/f"]).stdout == b"private"
    assert not os.path.exists("/tmp/f") or Path("/tmp/f").read_bytes() != b"private"


def test_pg_01_a_link_in_the_last_place_is_not_followed(
    jail: Jail, workspace: Path, outside: Path
) -> None:
    """Reading or writing a name that is a link must be refused, wherever it leads."""
    victim = outside / "victim"
    victim.write_text("victim")
    for name, target in (
        ("out", victim),
        ("in", workspace / "kept"),
        ("denied", workspace / "secret"),
        ("dangling", workspace / "nothing"),
    ):
        (workspace / name).symlink_to(target)
        for act in (
            jail.read_bytes,
            lambda path: jail.write_bytes(path, b"x"),
            jail.list_dir,
        ):
            with pytest.raises((PathDenied, NotADirectoryError)):
                act(workspace / name)
        assert stat.S_ISLNK(jail.stat(workspace / name).mode)
    assert victim.read_text() == "victim"
    assert not (workspace / "nothing").exists()
    jail.remove(workspace / "out")
    assert victim.exists()
    assert jail.realpath(workspace / "in") == str(workspace / "kept")


def test_a_folder_that_is_a_link_out_leads_nowhere(
    jail: Jail, workspace: Path, outside: Path
) -> None:
    """A link on the way must lead only to what the jail can see."""
    (workspace / "away").symlink_to(outside)
    with pytest.raises(FileNotFoundError):
        jail.write_bytes(workspace / "away" / "f", b"x")
    assert list(outside.iterdir()) == []


def test_the_policy_holds_for_the_verbs(jail: Jail, workspace: Path, outside: Path) -> None:
    """Denied, read-only and ungranted files must be refused with the path."""
    for act in (
        lambda: jail.read_bytes(workspace / "secret"),
        lambda: jail.write_bytes(workspace / "secret", b"x"),
        lambda: jail.write_bytes(workspace / "kept", b"x"),
        lambda: jail.write_bytes("/usr/x", b"x"),
        lambda: jail.make_dir("/usr/x"),
        lambda: jail.list_dir("/"),
    ):
        with pytest.raises(PathDenied) as caught:
            act()
        assert caught.value.path
        assert isinstance(caught.value, PermissionError)
    with pytest.raises(FileNotFoundError):
        jail.read_bytes(outside / "f")
    assert (workspace / "secret").read_text() == "TOP"
    assert (workspace / "kept").read_text() == "kept"


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "device"])
def test_only_regular_files_are_opened(jail: Jail, workspace: Path, kind: str) -> None:
    """A pipe, socket, folder or device must be refused at once and never be waited for."""
    path = workspace / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        text = f"import os; os.chdir({str(workspace)!r})\nsocket.socket(1).bind('odd'); answer(0)"
        inside(jail, text)
    elif kind == "folder":
        path.mkdir()
    start = time.monotonic()
    target = "/dev/zero" if kind == "device" else path
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is judged below
        jail.read_bytes(target)
    assert caught.value.errno in (21, 22, 6, 13)
    with pytest.raises(OSError):  # noqa: PT011 - any refusal will do
        jail.write_bytes(target, b"x")
    assert time.monotonic() - start < 5


def test_reading_is_bounded(jail: Jail, workspace: Path) -> None:
    """A file that is longer than max_bytes must raise and not be cut."""
    (workspace / "f").write_bytes(b"x" * 1000)
    assert jail.read_bytes(workspace / "f", max_bytes=1000) == b"x" * 1000
    for most in (999, 0):
        with pytest.raises(OutputLimitExceeded, match="longer than") as caught:
            jail.read_bytes(workspace / "f", max_bytes=most)
        assert caught.value.limit == most
    with pytest.raises(ValueError, match="max_bytes"):
        jail.read_bytes(workspace / "f", max_bytes=-1)
    os.truncate(workspace / "f", 1 << 40)  # a hole of a terabyte
    with pytest.raises(OutputLimitExceeded):
        jail.read_bytes(workspace / "f", max_bytes=1 << 20)


def test_a_file_that_grows_while_it_is_read(jail: Jail, workspace: Path) -> None:
    """A guest that appends without end must not keep the host reading."""
    path = workspace / "log"
    script = f"while :; do head -c 1000000 /dev/zero >> {path}; done"
    with jail.spawn(["sh", "-c", script]):
        time.sleep(0.2)
        start = time.monotonic()
        try:
            assert len(jail.read_bytes(path, max_bytes=200_000_000)) > 0
        except OutputLimitExceeded:
            pass
        assert time.monotonic() - start < 20
    path.unlink()


def test_folders(jail: Jail, workspace: Path) -> None:
    """Names must be listed whole and sorted, in any spelling, and folders be made and removed."""
    jail.make_dir(workspace / "d")
    names = ["a", "b c", "new\nline", "é", "\udcff", "x" * 255]
    for name in names:
        jail.write_bytes(workspace / "d" / name, b"")
    assert jail.list_dir(workspace / "d") == sorted(names)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is judged below
        jail.remove(workspace / "d")
    assert caught.value.errno == 39  # ENOTEMPTY
    for name in names:
        jail.remove(workspace / "d" / name)
    jail.remove(workspace / "d")
    assert not jail.exists(workspace / "d")
    with pytest.raises(FileExistsError):
        jail.make_dir(workspace / "kept")
    with pytest.raises(NotADirectoryError):
        jail.list_dir(workspace / "kept")
    with pytest.raises(FileNotFoundError):
        jail.remove(workspace / "nothing")


def test_many_short_names_count_with_what_they_take(jail: Jail, workspace: Path) -> None:
    """A guest that makes many names must not take the host many times *max_bytes* of memory."""
    (workspace / "d").mkdir()
    for number in range(1000):
        (workspace / "d" / f"{number}").touch()
    with pytest.raises(OutputLimitExceeded, match="so many names"):
        jail.list_dir(workspace / "d", max_bytes=60_000)
    assert len(jail.list_dir(workspace / "d", max_bytes=70_000)) == 1000


def test_what_is_there_and_what_it_is(jail: Jail, workspace: Path) -> None:
    """exists() and stat() must tell what the jail sees, not what the host has."""
    os.utime(workspace / "kept", ns=(1_500_000_000, 1_500_000_000))
    status = jail.stat(workspace / "kept")
    assert (status.size, status.links) == (4, 1)
    assert stat.S_ISREG(status.mode)
    assert status.modified == 1.5
    assert jail.exists(workspace / "kept")
    assert jail.exists("/usr")
    assert not jail.exists(workspace / "nothing")
    assert not jail.exists("/root/nothing")
    assert not jail.exists(workspace / "kept" / "below")
    with pytest.raises(FileNotFoundError):
        jail.stat(workspace / "nothing")


@pytest.mark.parametrize("path", ["relative", "", "/x\0y", b"/tmp/f"])
def test_a_path_that_is_none_is_refused(jail: Jail, path: Any) -> None:
    """A relative path, a NUL or bytes must be refused by every verb."""
    for act in (
        lambda: jail.read_bytes(path),
        lambda: jail.write_bytes(path, b""),
        lambda: jail.stat(path),
        lambda: jail.exists(path),
        lambda: jail.list_dir(path),
        lambda: jail.remove(path),
        lambda: jail.make_dir(path),
        lambda: jail.realpath(path),
    ):
        with pytest.raises((TypeError, ValueError), match="path"):
            act()


def test_a_path_that_is_too_long(jail: Jail) -> None:
    """A path past the kernel's limit must be an error of the call, and the jail go on."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is judged below
        jail.read_bytes("/tmp/" + "x/" * 3000)
    assert caught.value.errno == 36  # ENAMETOOLONG
    assert jail.exists("/tmp")


def test_copies_in_and_out(jail: Jail, workspace: Path, outside: Path) -> None:
    """copy_in reads as the host, copy_out writes a new file and follows nothing."""
    (outside / "a").write_bytes(b"from the host")
    jail.copy_in(outside / "a", workspace / "a")
    assert (workspace / "a").read_bytes() == b"from the host"
    jail.copy_out(workspace / "a", outside / "b")
    assert (outside / "b").read_bytes() == b"from the host"
    (outside / "link").symlink_to(outside / "victim")
    for name in ("a", "link"):
        with pytest.raises(FileExistsError):
            jail.copy_out(workspace / "a", outside / name)
    assert not (outside / "victim").exists()
    with pytest.raises(PathDenied):
        jail.copy_out(workspace / "secret", outside / "c")
    assert not (outside / "c").exists()


def test_a_name_that_becomes_a_link_again_and_again(
    jail: Jail, workspace: Path, outside: Path
) -> None:
    """A guest that swaps a file for a link all the time must never be followed out."""
    victim = outside / "victim"
    victim.write_text("victim")
    (workspace / "f").write_text("mine")
    text = f"""
import os
os.chdir({str(workspace)!r})
while True:
    os.symlink({str(victim)!r}, "l"); os.rename("l", "f")
    open("g", "w").write("mine"); os.rename("g", "f")
"""
    with jail.spawn(["/usr/bin/python3", "-IBS", "-c", text]):
        end = time.monotonic() + 1.5
        seen: set[object] = set()
        while time.monotonic() < end:
            try:
                seen.add(jail.read_bytes(workspace / "f"))
                jail.write_bytes(workspace / "f", b"written")
            except (PathDenied, FileNotFoundError):
                seen.add("refused")
    assert seen <= {b"mine", b"written", b"", "refused"}
    assert "refused" in seen
    assert victim.read_text() == "victim"


def test_verbs_from_many_threads(jail: Jail, workspace: Path) -> None:
    """Each thread must get its own content back."""
    wrong = []

    def work(number: int) -> None:
        for turn in range(10):
            data = f"{number}-{turn}".encode() * 1000
            jail.write_bytes(workspace / f"t{number}", data)
            if jail.read_bytes(workspace / f"t{number}") != data:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- copies ----


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
    workspace = workspace / "names"
    workspace.mkdir()
    code = f"for i in range(300): open('{workspace}/' + 'n' * 200 + str(i), 'w').close()"
    jail.run([PYTHON, "-c", code], check=True)
    wanted = sorted("n" * 200 + str(i) for i in range(300))
    size = sum(len(name) + 1 for name in wanted)
    assert jail.list_dir(workspace) == wanted
    most = size + 64 * len(wanted)
    assert jail.list_dir(workspace, max_bytes=most) == wanted
    for limit, text in ((most - 1, "so many names"), (size - 1, f"longer than {size - 1} bytes")):
        with pytest.raises(OutputLimitExceeded, match=text) as caught:
            jail.list_dir(workspace, max_bytes=limit)
        assert (caught.value.kind, caught.value.limit) == ("max_bytes", limit)


def test_listing_stops_at_its_limit(jail: Jail, workspace: Path) -> None:
    """A folder without end must not be read to its end when few names are wanted."""
    code = f"for i in range(400): open({str(workspace)!r} + '/' + 'n' * 200 + str(i), 'w').close()"
    jail.run([PYTHON, "-c", code], check=True)
    assert jail._file_operation("LIST", str(workspace), limit=1 << 20).stdout_total > 80_000
    assert jail._file_operation("LIST", str(workspace), limit=1000).stdout_total <= 1000 + 256


def test_writing_above_the_limit_of_a_file(workspace: Path) -> None:
    """More than file_size must be an EFBIG that says so, and nothing beyond it is written."""
    with Jail(JailPolicy(write=[workspace], limits=Limits(file_size=4096))) as jail:
        jail.write_bytes(workspace / "f", b"x" * 4096)
        with pytest.raises(OSError, match="File too large") as caught:
            jail.write_bytes(workspace / "f", b"y" * 4097)
        assert caught.value.errno == errno.EFBIG
        assert (workspace / "f").stat().st_size <= 4096
        assert jail.read_bytes(workspace / "f") == b"y" * 4096


def test_an_operation_has_an_end(jail: Jail, workspace: Path) -> None:
    """An operation that takes too long must end as a TimeoutError, and the jail goes on."""
    assert 0 < _jail_files.FILE_TIMEOUT_SECONDS <= 60
    size = 8 << 30  # of zeros, and seconds to read
    with (workspace / "endless").open("wb") as file:
        file.truncate(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_jail_files, "FILE_TIMEOUT_SECONDS", 0.01)
        with pytest.raises(TimeoutError, match="was ended after") as caught:
            jail.read_bytes(workspace / "endless", max_bytes=size)
    assert isinstance(caught.value, CommandTimeout)
    assert jail.read_bytes(workspace / "kept") == b"kept"


def end_during_write(jail: Jail, workspace: Path, end: Callable[[], None]) -> BaseException:
    """Write again and again, call *end* again and again; return the error that this makes."""
    caught: list[BaseException] = []

    def write() -> None:
        try:
            while True:
                jail.write_bytes(workspace / "f", bytes(16 << 20))
        except BaseException as error:
            caught.append(error)

    def ended() -> bool:
        end()
        return bool(caught)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert until(ended, seconds=20)
    finally:
        jail.close()
        thread.join(20)
    return caught[0]


def file_children(jail: Jail) -> list[int]:
    """Return the pids of what runs in *jail*: below pid 1 are keepers, below those their runs."""
    table = children_of(os.getpid())
    first = jail._handle.info["pid"]
    keepers = {pid for pid, status in table.items() if int(status["PPid"]) == first}
    return [pid for pid, status in table.items() if int(status["PPid"]) in keepers]


def test_an_operation_that_is_killed(jail: Jail, workspace: Path) -> None:
    """The death of the confined child must be an EIO, not an error number that nobody knows."""

    def kill() -> None:
        for pid in file_children(jail):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    error = end_during_write(jail, workspace, kill)
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert "signal 9" in str(error)


def test_an_operation_whose_jail_is_closed(jail: Jail, workspace: Path) -> None:
    """The end of the jail during an operation must be JailClosed."""

    def close() -> None:
        if file_children(jail):
            jail.close()

    assert isinstance(end_during_write(jail, workspace, close), JailClosed)

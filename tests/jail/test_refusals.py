"""What the brokers of a jail refuse: each is told exactly, of its own run, and of no other.

No guest may write, remove or forge such a record, and none may have more of them kept than a
bound: the others are counted.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from jail_helpers import PRELUDE, PYTHON, Jail, errno, guest, inside, outside, policy_of, until

import visruntime as vr
from visruntime.jail import PIPE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

MOST_KEPT = 32
"""VJ_REFUSALS_MAX of native/visjail/refusals.h."""
MOST_TEXT = 488
"""VJ_REFUSAL_TEXT."""
MOST_ANCESTORS = 64
"""ANCESTORS_MAX of native/visjail/linux_broker_refuse.c."""


def held(work: Path, **more: Any) -> Jail:
    """Open a jail in which `.envrc`, `.env-*` and `.git/hooks` in *work* are not made."""
    (work / ".git").mkdir(exist_ok=True)
    names = [work / ".envrc", work / ".git" / "hooks", *more.pop("names", ())]
    return Jail(policy_of(write=[work], deny_write=names, **more))


def told(result: Any) -> list[tuple[str, str, str, int | None]]:
    """Return what is known exactly: right, path, rule and errno."""
    exact = [one for one in result.violations if one.confidence == "exact"]
    return [(one.kind, one.target, one.rule, one.errno) for one in exact]


def script(jail: Jail, text: str, **options: Any) -> Any:
    """Run a program of Python in *jail* and return its result."""
    return jail.run([PYTHON, "-IBS", "-c", guest(text)], timeout=30, **options)


ACTS = """
import os
os.chdir({work!r})
open("new", "w").close()
def bind():
    one = socket.socket(socket.AF_UNIX)
    one.bind(".envrc")
answer([
    opened(".envrc", os.O_CREAT | os.O_WRONLY), {undo}
    attempt(os.rename, "new", ".git/hooks"), {undo_hooks}
    attempt(bind), {undo}
    attempt(os.rename, ".git", "moved"), attempt(os.mkdir, "free")])
"""


def test_each_refused_act_is_told_with_path_rule_and_errno(workspace: Path) -> None:
    """A name that is held must not be refused without a trace, and nothing else leaves one."""
    with held(workspace) as jail:
        text = ACTS.format(work=str(workspace), undo="", undo_hooks="")
        result = script(jail, text)
        again = script(jail, "answer(1)")
    denied = errno.EACCES
    assert result.stdout_text.strip() == f"[{denied}, {denied}, {denied}, {denied}, 0]"
    assert told(result) == [
        ("write", f"{workspace}/.envrc", "deny_write[0]", denied),
        ("write", f"{workspace}/.git/hooks", "deny_write[1]", denied),
        ("write", f"{workspace}/.git", "deny_write[1]", denied),
    ]
    assert "stays where it is" in result.violations[-1].detail
    assert result.violations_dropped == 0
    assert again.violations == ()
    os.rmdir(workspace / "free")
    os.unlink(workspace / "new")
    undone = ACTS.format(
        work=str(workspace),
        undo='attempt(os.unlink, ".envrc") * 0,',
        undo_hooks='attempt(os.unlink, ".git/hooks") * 0,',
    )
    assert set(outside(undone)) == {0}


@pytest.fixture
def server() -> Iterator[Any]:
    """Return a function that makes a listening socket of the host at a path."""
    made: list[socket.socket] = []

    def listen(path: Path) -> None:
        one = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(path.parent)  # sun_path is short
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)
        path.chmod(0o777)
        one.listen()
        made.append(one)

    yield listen
    for one in made:
        one.close()


def test_a_refused_connection_is_told_with_the_path_of_the_socket(
    workspace: Path, outside_folder: Path, server: Any
) -> None:
    """Whatever words led there, the socket that was not granted is named, and can be pasted."""
    server(outside_folder / "granted")
    text = f"""
import os
os.chdir({str(workspace)!r})
def connect(path):
    one = socket.socket(socket.AF_UNIX)
    one.connect(path)
answer([attempt(connect, "later"), attempt(connect, "link"), attempt(connect, "absent")])
"""
    with Jail(policy_of(write=[workspace], sockets=[outside_folder / "granted"])) as jail:
        server(workspace / "later")
        os.symlink("later", workspace / "link")
        result = script(jail, text)
    assert result.stdout_text.strip() == f"[{errno.EACCES}, {errno.EACCES}, {errno.ENOENT}]"
    assert told(result) == [("connect", f"{workspace}/later", "sockets", errno.EACCES)]
    grant = result.violations[0].grant
    assert grant is not None
    assert grant.cli == f"--socket {workspace}/later"
    assert outside(text) == [0, 0, errno.ENOENT]


@pytest.fixture
def outside_folder(tmp_path: Path) -> Path:
    """A folder that no grant covers."""
    folder = tmp_path / "apart"
    folder.mkdir()
    return folder


TRY = """
def refused(name):
    return opened({work!r} + "/" + name, os.O_CREAT | os.O_WRONLY)
"""


def test_a_refusal_belongs_to_its_run_alone(workspace: Path) -> None:
    """Runs at the same time, and orphans of theirs, must not be told of one another."""
    names = [workspace / f".held-{number}" for number in range(4)]
    body = (
        TRY.format(work=str(workspace))
        + """
sys.stdin.read()
def orphan():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while os.getppid() == first: time.sleep(0.001)
            refused(name)
            os.write(2, b"done")
            os._exit(0)
        os._exit(0)
    return 0
first = os.getpid()
refused(name)
"""
    )
    with held(workspace, names=names) as jail:
        running = [
            jail.spawn(
                [PYTHON, "-IBS", "-c", PRELUDE + f"name = '.held-{number}'\n{body}"],
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
            )
            for number in range(4)
        ]
        for process in running:
            process.communicate(b"", timeout=30)
        ends = [told(process) for process in running]
        # The parent has gone before the act, and with it all that led to the run but the keeper.
        late = script(
            jail,
            TRY.format(work=str(workspace))
            + """
out, into = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        parent = os.getppid()
        until = time.monotonic() + 5
        while os.getppid() == parent and time.monotonic() < until: time.sleep(0.002)
        os.write(into, bytes([refused(".held-0")]))
        os._exit(0)
    time.sleep(0.05)
    os._exit(0)
os.wait()
answer(os.read(out, 1)[0])
""",
        )
    assert ends == [
        [("write", f"{workspace}/.held-{number}", f"deny_write[{number + 2}]", errno.EACCES)]
        for number in range(4)
    ]
    assert late.stdout_text.strip() == str(errno.EACCES)
    assert [path for _, path, _, _ in told(late)] == [f"{workspace}/.held-0"]


def test_what_is_kept_of_a_run_is_bounded_and_the_rest_is_counted(workspace: Path) -> None:
    """A guest must not fill memory of the host, nor hide what another run is refused."""
    names = [workspace / f".held-{number}" for number in range(100)]
    flood = (
        TRY.format(work=str(workspace))
        + """
for turn in range(3):
    for number in range(100): refused(f".held-{number}")
answer(refused(".held-1"))
"""
    )
    with held(workspace, names=names) as jail:
        same = script(
            jail,
            TRY.format(work=str(workspace))
            + "for turn in range(90): refused('.envrc')\nanswer(refused('.held-2'))",
        )
        result = script(jail, flood)
        other = script(
            jail, TRY.format(work=str(workspace)) + "answer(refused('.envrc'))", check=True
        )
    assert len(told(same)) == 2
    assert same.violations_dropped == 0
    assert len(told(result)) == MOST_KEPT
    # Those that are not kept are not told apart either.
    assert result.violations_dropped == (100 - MOST_KEPT) * 3
    assert [path for _, path, _, _ in told(other)] == [f"{workspace}/.envrc"]
    assert other.violations_dropped == 0


def test_a_long_path_is_cut_and_a_hostile_one_is_shown_safely(workspace: Path) -> None:
    """A name that a guest chose must neither grow without bound nor steer a terminal."""
    long = f"{workspace}/" + "/".join(["n" * 100] * 7)
    os.makedirs(long)
    (workspace / "a\x1bc\n").mkdir()
    names = [f"{long}/.held", workspace / "a\x1bc\n" / ".held"]
    with held(workspace, names=names) as jail:
        result = script(
            jail, f"answer([opened(p, os.O_CREAT) for p in {[str(n) for n in names]!r}])"
        )
    assert result.stdout_text.strip() == f"[{errno.EACCES}, {errno.EACCES}]"
    cut, hostile = result.violations
    assert (len(os.fsencode(cut.target)), cut.grant) == (MOST_TEXT, None)
    assert long.startswith(cut.target)
    assert "goes on" in cut.detail
    assert hostile.target == f"{names[1]}"
    assert hostile.detail.isprintable()


def test_a_guest_that_nests_too_deeply_is_counted_for_nobody(workspace: Path) -> None:
    """Whose run it is must not be guessed where the way up is too long to be looked at."""
    deep = (
        TRY.format(work=str(workspace))
        + f"""
for level in range({MOST_ANCESTORS + 4}):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
got = refused(".envrc")
answer(got)
sys.stdout.flush()
os._exit(0)
"""
    )
    with held(workspace) as jail:
        result = script(jail, deep)
    assert result.stdout_text.strip() == str(errno.EACCES)
    assert result.violations == ()
    assert result.violations_dropped == 1


def test_no_guest_has_the_record_in_reach(workspace: Path) -> None:
    """What could change a record: its memory, a descriptor of it, the processes that have it."""
    look = (
        TRY.format(work=str(workspace))
        + r"""
refused(".envrc")
found = []
closed = []
for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
    own = pid == os.getpid()
    for name in ("maps", "mem", "fd", "map_files"):
        try:
            if name == "fd":
                links = [os.readlink(f"/proc/{pid}/fd/{one}") for one in os.listdir(f"/proc/{pid}/fd")]
                found += [link for link in links if "refusals" in link]
            elif name == "maps":
                found += [line for line in open(f"/proc/{pid}/maps") if "refusals" in line]
            elif not own:
                open(f"/proc/{pid}/{name}", "r+b").close()
            if not own: closed.append([pid, name, 0])
        except OSError as error:
            if not own: closed.append([pid, name, error.errno])
answer([found, closed])
"""
    )
    with held(workspace) as jail:
        found, closed = inside(jail, look)
    assert found == []
    # Pid 1, the broker, this run's keeper: nothing of theirs opens.
    assert len({pid for pid, _, _ in closed}) >= 3
    assert {got for _, name, got in closed if name != "map_files"} == {errno.EACCES}


def test_what_was_refused_before_a_run_was_ended_is_told(workspace: Path) -> None:
    """A time limit that ends a run must not take the record with it."""
    text = TRY.format(work=str(workspace)) + "refused('.envrc')\nwhile True: time.sleep(1)"
    with held(workspace) as jail, pytest.raises(vr.CommandTimeout) as caught:
        jail.run([PYTHON, "-IBS", "-c", PRELUDE + text], timeout=1)
    assert [path for _, path, _, _ in told(caught.value.result)] == [f"{workspace}/.envrc"]


def test_an_act_that_is_known_exactly_is_not_told_as_a_guess_too(workspace: Path) -> None:
    """What a program says of a refusal adds nothing where the broker has recorded it."""
    with held(workspace) as jail:
        result = jail.run(["touch", workspace / ".envrc"])
    assert result.exit_code == 1
    assert [one.confidence for one in result.violations] == ["exact"]


def test_a_runtime_tells_each_run_what_it_was_refused(workspace: Path) -> None:
    """A worker lives on, so its refusals are told with the run in which they were."""
    code = "import os\ntry: os.mkdir(path)\nexcept OSError as error: got = error.errno\ngot"
    (workspace / ".git").mkdir()
    names = [workspace / ".envrc", workspace / ".git" / "hooks"]
    with vr.Runtime(vr.JailPolicy(write=[workspace], deny_write=names)) as runtime:
        first = runtime.run(code, inputs={"path": f"{workspace}/.envrc"})
        fine = runtime.run("1")
        with runtime.fork() as copy:
            second = copy.run(code, inputs={"path": f"{workspace}/.git/hooks"})
            again = runtime.run(code, inputs={"path": f"{workspace}/.envrc"})
            nothing = copy.run("1")
    assert (first.value, second.value, again.value) == (errno.EACCES,) * 3
    assert [path for _, path, _, _ in told(first)] == [f"{workspace}/.envrc"]
    assert [path for _, path, _, _ in told(second)] == [f"{workspace}/.git/hooks"]
    assert told(again) == told(first)
    for other in (fine, nothing):
        assert other.violations == ()


def test_slots_are_given_back_by_keepers_that_end(workspace: Path) -> None:
    """More keepers than slots, one after the other, must not leave a later run without."""
    with held(workspace) as jail:
        for turn in range(3):
            batch = [
                jail.spawn(["/bin/sh", "-c", "read x"], stdin=PIPE, stdout=None, stderr=None)
                for _ in range(45)
            ]
            for process in batch:
                process.close()
            assert until(lambda: not jail.processes()), turn
        last = script(jail, TRY.format(work=str(workspace)) + "answer(refused('.envrc'))")
    assert [path for _, path, _, _ in told(last)] == [f"{workspace}/.envrc"]

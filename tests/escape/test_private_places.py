"""Boundary: the jail's own places. What a policy puts into them can be neither moved nor shadowed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, errno, inside, outside, policy_of

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/home/user")

ASIDE = """
path = {path!r}
got = []
for name in {above!r}:
    got += [attempt(os.rename, name, name + ".aside"), attempt(os.rmdir, name)]
    os.makedirs(name + ".other", exist_ok=True)
    got += [attempt(os.rename, name + ".other", name),
        call("renameat2", -100, (name + ".other").encode(), -100, name.encode(), 2)]
    attempt(os.rmdir, name + ".other")
attempt(os.makedirs, path)
answer([got, opened(path + "/planted", os.O_CREAT | os.O_WRONLY)])
"""
"""Moves each folder above a path aside, puts others in its place, and writes there."""

HELD = [errno.EBUSY, errno.EBUSY, errno.EBUSY, errno.EBUSY]


def aside(path: str, above: list[str]) -> str:
    """Return the guest that tries all of it."""
    return ASIDE.format(path=path, above=above)


@pytest.fixture
def tools() -> Iterator[Path]:
    """A folder of the host three levels below a place that jails have of their own."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="vis-aside-") as top:
        os.chmod(top, 0o755)
        path = Path(top).resolve() / "project" / "tools"
        path.mkdir(parents=True)
        (path / "check").write_text("genuine")
        yield path


def test_what_is_above_a_grant_cannot_be_moved_aside(tools: Path) -> None:
    """A guest must not put folders of its own in the place of those that lead to a read grant."""
    above = [str(tools.parents[1]), str(tools.parent)]
    with Jail(policy_of(read=[tools])) as jail:
        for name in above:
            got, planted = inside(jail, aside(str(tools), [name]))
            assert got == HELD
            assert planted == errno.EROFS
        assert jail.read_bytes(tools / "check") == b"genuine"
        assert not jail.policy.why("write", tools / "planted")
    control = [str(tools.parents[1] / "free")]
    os.mkdir(control[0])
    moved = outside(f"answer(attempt(os.rename, {control[0]!r}, {control[0]!r} + '.aside'))")
    assert moved == 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["deny", "deny_read", "deny_write"])
def test_what_is_above_a_deny_cannot_be_moved_aside(place: str, kind: str) -> None:
    """A name that is denied in /tmp or HOME must stay denied after all that a guest can rename."""
    path, above = f"{place}/vis-a/b/c", [f"{place}/vis-a", f"{place}/vis-a/b"]
    with Jail(policy_of(**{kind: [path]})) as jail:
        for name in above:
            got, planted = inside(jail, aside(path, [name]))
            assert got == HELD
            assert planted in (errno.EROFS, errno.EACCES)
        assert not jail.policy.why("write", f"{path}/planted")
    with Jail(policy_of()) as free:
        got, planted = inside(free, f"os.makedirs({path!r})\n" + aside(path, above[:1]))
        assert got[0] == planted == 0


def test_a_grant_in_the_other_home_cannot_be_moved_aside() -> None:
    """Where HOME is a folder of /tmp, what leads to a deny in it must be held as well."""
    home = "/tmp/home"
    path = f"{home}/.config/app"
    with Jail(policy_of(system="host", deny_write=[path])) as jail:
        got, planted = inside(jail, aside(path, [f"{home}/.config"]))
        assert jail.run(["sh", "-c", "echo $HOME"]).stdout_text.strip() == home
    assert got == HELD
    assert planted == errno.EROFS


def test_the_rest_of_a_place_has_no_seam(tools: Path) -> None:
    """Folders that lead to a grant must not keep files from being renamed and linked."""
    text = f"""
top = {str(tools.parents[1])!r}
made = opened("/tmp/one", os.O_CREAT | os.O_WRONLY)
answer([made, attempt(os.link, "/tmp/one", top + "/two"),
    attempt(os.rename, top + "/two", top + "/project/three"),
    attempt(os.rename, top + "/project/three", "/tmp/four"), attempt(os.unlink, "/tmp/four")])
"""
    with Jail(policy_of(read=[tools], deny=["/tmp/vis-a/b/c"])) as jail:
        assert inside(jail, text) == [0] * 5


RUN = """
import shutil
got = {}
for place in %r:
    name = place + "/program"
    os.makedirs(place, exist_ok=True)
    shutil.copy("/bin/true", name)
    loader = next(p for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
        if os.path.exists(p))
    got[place] = [attempt(lambda: os.waitpid(os.posix_spawn(name, [name], {}), 0)),
        os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(loader, [loader, name], {}), 0)[1])]
answer(got)
"""
RAN, REFUSED = [0, 0], [errno.EACCES, 127]


@pytest.mark.parametrize(
    ("rules", "denied"),
    [
        (list(PLACES), set(PLACES)),
        (["/tmp"], {"/tmp"}),
        (["/var", "/dev"], {"/var/tmp", "/dev/shm"}),
        (["/home"], {"/home/user"}),
        (["/tmp/vis-a/b"], {"/tmp/vis-a/b"}),
        (["/home/user/bin", "/var/tmp"], {"/home/user/bin", "/var/tmp"}),
    ],
)
def test_execution_is_denied_in_places_of_the_jail(rules: list[str], denied: set[str]) -> None:
    """What a guest wrote must not be executed where deny_exec says so, by the loader neither."""
    places = sorted({*PLACES, *denied})
    with Jail(policy_of(deny_exec=rules)) as jail:
        got = inside(jail, RUN % (places,))
        for place in places:
            assert got[place] == (REFUSED if place in denied else RAN), place
            assert bool(jail.policy.why("exec", f"{place}/program")) == (place not in denied)
        tried = {c.name for c in jail.report.canaries if c.name.startswith("execute ")}
        assert tried == {f"execute {place}" for place in denied}
    with Jail(policy_of()) as free:
        assert set(map(tuple, inside(free, RUN % (places,)).values())) == {tuple(RAN)}


def test_a_folder_without_execution_cannot_be_moved_aside() -> None:
    """deny_exec on a folder in /tmp must hold after every rename."""
    path = "/tmp/vis-a/b"
    moves = [["/tmp/vis-a"], [path]]
    with Jail(policy_of(deny_exec=[path])) as jail:
        for above in moves:
            got, planted = inside(jail, aside(path, above) + f"os.unlink({path!r} + '/planted')\n")
            assert got == HELD
            assert planted == 0
        assert inside(jail, RUN % ([path],)) == {path: REFUSED}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("deny", "/proc/cpuinfo"),
        ("deny", "/dev"),
        ("deny", "/dev/zero"),
        ("deny_write", "/dev/null"),
        ("deny_write", "/proc"),
        ("deny_read", "/proc/meminfo"),
    ],
)
def test_denies_in_what_the_jail_makes_whole_are_refused_in_words(kind: str, path: str) -> None:
    """What cannot be denied in /proc and /dev must be refused with the clause and the reason."""
    with pytest.raises(vr.PolicyUnsupported, match=rf"{kind}\[0\]: {path} is made by the jail"):
        Jail(policy_of(**{kind: [path]}))
    assert outside("answer([opened('/proc/cpuinfo'), opened('/dev/zero')])") == [0, 0]


def test_all_of_proc_and_shared_memory_can_be_denied() -> None:
    """The two denies that can be held there must be held."""
    text = "answer([attempt(os.listdir, p) for p in ('/proc', '/dev/shm')])"
    with Jail(policy_of(deny=["/proc", "/dev/shm"])) as jail:
        assert inside(jail, text) == [errno.EACCES, errno.EACCES]
    assert outside(text) == [0, 0]

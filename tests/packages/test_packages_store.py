"""Where environments are kept: nobody else's folder, one builder at a time, no leftovers."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from visruntime._jail.state_folder import (
    folder_at,
    make_state_folder,
    private_folder,
    remove_tree,
    try_lock,
)
from visruntime._packages.store import Store
from visruntime.errors import EnvironmentNotBuilt, PolicyError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the environments of a test below its own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "visruntime"


def remove_at(path: Path) -> None:
    """Remove the tree at *path*."""
    with folder_at(str(path.parent)) as folder:
        remove_tree(path.name, folder)


@pytest.mark.parametrize("level", ["", "cache", "cache/visruntime"])
def test_a_link_that_comes_later_leads_nowhere(tmp_path: Path, level: str) -> None:
    """A guest that may write above the folder must not choose what the host makes or removes."""
    top, outside = tmp_path / "top", tmp_path / "outside"
    real = top / "cache/visruntime"
    real.mkdir(mode=0o700, parents=True)
    private_folder(str(real), "caches")  # the control: without the link it is taken
    (outside / "cache/visruntime/victim").mkdir(parents=True)
    (top / level).rename(tmp_path / "away")
    (top / level).symlink_to(outside / level)
    before = sorted(outside.rglob("*"))
    for path in (real, real / "environments"):
        make_state_folder(str(path))
        with pytest.raises(OSError, match="is a link"), folder_at(str(path), make=True):
            pass
    with pytest.raises(OSError, match="is a link"):
        remove_at(real / "victim")
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("home", ["home", "~"])
def test_a_home_that_is_no_place_keeps_nothing(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative home must be refused by name, and be taken for no folder of the root's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", home)
    with pytest.raises(PolicyError, match="no absolute path"):
        Store()
    assert os.listdir(tmp_path) == []


def test_a_deep_and_closed_tree_is_removed(tmp_path: Path) -> None:
    """What a build left must go, however deep it is and whatever its modes are."""
    top = tmp_path / "top"
    top.mkdir()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (top / "link").symlink_to(kept)
    (top / "00000001").write_text("a file where a folder is to be moved")
    here = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.symlink(kept, "l", dir_fd=below)
        os.close(here)
        here = below
    os.close(here)
    (top / "closed" / "in").mkdir(parents=True)
    (top / "closed" / "in" / "file").touch()
    (top / "closed" / "in").chmod(0)
    (top / "closed").chmod(0)
    remove_at(top)
    assert not top.exists()
    assert (kept / "file").exists()
    (tmp_path / "link").symlink_to(kept)
    with pytest.raises(OSError, match="link"):
        remove_at(tmp_path / "link")
    assert (kept / "file").exists()


def test_to_remove_a_broad_tree_takes_little_memory(tmp_path: Path) -> None:
    """The names of all folders that a guest has made must not be held at once."""
    for place in (tmp_path / "top", tmp_path / "top" / "below"):
        place.mkdir()
        for number in range(500):
            (place / f"{number}{'d' * 240}").mkdir()
    tracemalloc.start()
    try:
        remove_at(tmp_path / "top")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert os.listdir(tmp_path) == []
    assert peak < 64 << 10  # the names of one of the two folders are more than 140 KiB


def test_the_folders_are_private(cache: Path) -> None:
    """Nobody else may read or change what is kept."""
    Store()
    for folder in (cache, *cache.iterdir()):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_others_is_not_used(cache: Path) -> None:
    """What others could have put there must not run in a worker."""
    Store()
    (cache / "environments" / "key").mkdir(mode=0o755)
    assert Store().find("key") == str(cache / "environments" / "key")
    (cache / "environments" / "key").chmod(0o777)
    with pytest.raises(PolicyError, match="only you can write"):
        Store().find("key")
    (cache / "environments").chmod(0o770)
    with pytest.raises(PolicyError, match="only you can write"):
        Store()


def test_a_link_to_elsewhere_is_not_followed(cache: Path, tmp_path: Path) -> None:
    """A guest that could plant a link must not choose where environments come from."""
    cache.parent.mkdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "theirs")
    with pytest.raises(PolicyError, match="a guest could have made"):
        Store()
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_link_instead_of_an_environment_is_refused(cache: Path, tmp_path: Path) -> None:
    """Only a folder is an environment."""
    Store()
    (cache / "environments" / "key").symlink_to(tmp_path)
    with pytest.raises(PolicyError, match="only you can write"):
        Store().find("key")


def test_one_builder_at_a_time() -> None:
    """Two builders of the same must not meet; the second waits, and gives up in time."""
    first, second = Store(), Store()
    inside = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with first.locked("key", 5):
            inside.set()
            leave.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(5)
    with pytest.raises(EnvironmentNotBuilt, match="another process"), second.locked("key", 0.2):
        pytest.fail("two builders at once")
    with second.locked("another", 0.2):
        pass
    leave.set()
    with second.locked("key", 5):
        pass
    holder.join()


def test_a_forked_child_does_not_keep_the_lock() -> None:
    """A child that the host forked during a build must not hold others up after it."""
    with Store().locked("key", 1):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with Store().locked("key", 1):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)  # it lives, with its copy
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_what_a_killed_builder_left_is_swept(cache: Path) -> None:
    """Of a builder that is gone nothing stays; that of a living one is left alone."""
    store = Store()
    gone, living = cache / "building" / "gone", cache / "building" / "living"
    for folder in (gone, living):
        (folder / "work").mkdir(parents=True)
    with store.locked("living", 1), Store().locked("mine", 1):
        with Store().staging("mine") as staging:
            assert Path(staging).is_dir()
            assert not gone.exists()
            assert living.exists()
        assert not Path(staging).exists()
    with Store().locked("living", 1), Store().staging("living") as staging:
        assert list(Path(staging).iterdir()) == []
    assert list((cache / "building").iterdir()) == []


def test_a_build_that_fails_leaves_nothing(cache: Path) -> None:
    """Neither the folder of the build nor an environment may stay."""

    def fail() -> None:
        with Store().staging("key") as staging:
            (Path(staging) / "tree").mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((cache / "building").iterdir()) == []
    assert Store().find("key") is None


def test_locks_leave_no_files(cache: Path) -> None:
    """A lock that nobody holds has no file, and none of two waiters takes a removed one for it."""
    with Store().trial("t1"), Store().locked("key", 1):
        assert sorted(os.listdir(cache / "locks")) == ["key", "t1"]  # the control
        (cache / "locks" / "left").touch()  # by a process that was killed
        with Store().trial("t2"):
            assert sorted(os.listdir(cache / "locks")) == ["key", "t1", "t2"]
    assert os.listdir(cache / "locks") == []


def test_a_lock_that_was_removed_holds_nobody_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who locks a file in the moment in which its holder removes it must not have the lock."""
    store = Store()
    holder = store._lock("key")
    assert holder is not None
    assert store._lock("key") is None  # the control

    def after_the_holder(descriptor: int) -> bool:
        store._unlock("key", holder)
        return try_lock(descriptor)

    monkeypatch.setattr("visruntime._packages.store.try_lock", after_the_holder)
    assert store._lock("key") is None
    monkeypatch.undo()
    again = Store()._lock("key")
    assert again is not None
    Store()._unlock("key", again)

"""Which mount a path is on, and where else it is shown, by tables that are hard to come by."""

from __future__ import annotations

import os

import pytest

from visruntime._jail.aliases import Aliases
from visruntime._jail.mount_table import Mount, MountTree

pytestmark = pytest.mark.one_uid


def tree(*lines: tuple[int, int, str, str, str]) -> MountTree:
    """Return the tree of mounts, each (id, parent, device, root, point)."""
    return MountTree(
        b"".join(
            f"{number} {parent} {device} {root} {point} rw - ext4 none rw\n".encode()
            for number, parent, device, root, point in lines
        )
    )


def mount_id(mounts: MountTree, path: str) -> bytes | None:
    """Return the number of the mount that *path* is on."""
    found = mounts.mount_of(path)
    return None if found is None else found.id


def test_the_order_of_the_table_says_nothing() -> None:
    """A mount may not count as the upper one because it was made later, as one beneath another is."""
    mounts = tree((1, 9, "8:1", "/", "/"), (3, 1, "8:3", "/", "/m"), (2, 3, "8:2", "/", "/m"))
    assert mount_id(mounts, "/m/file") == b"2"
    assert mount_id(mounts, "/mine") == b"1"


def test_what_is_mounted_over_the_root_is_reached_by_no_path() -> None:
    """The kernel begins at the root of the process, and not at what was mounted there since."""
    mounts = tree((1, 9, "8:1", "/", "/"), (2, 1, "8:2", "/", "/"), (3, 2, "8:3", "/", "/m"))
    assert mount_id(mounts, "/m/file") == b"1"


def test_what_is_mounted_again_under_another_mount_counts() -> None:
    """A chain of mounts is followed to its end, and those that one covers are not."""
    mounts = tree(
        (1, 9, "8:1", "/", "/"),
        (2, 1, "8:2", "/", "/a/b"),
        (3, 1, "8:3", "/", "/a"),
        (4, 3, "8:4", "/", "/a/c"),
    )
    assert mount_id(mounts, "/a/b/file") == b"3"
    assert mount_id(mounts, "/a/c/file") == b"4"


def test_after_chroot_each_mount_of_the_roots_file_system_may_be_an_alias() -> None:
    """The root's own mount is in no table then, so what it shows of its file system is unknown."""
    device = os.stat("/").st_dev
    own = f"{os.major(device)}:{os.minor(device)}"
    mounts = tree((5, 4, own, "/jail/private", "/view"), (6, 4, "0:99999", "/", "/other"))
    assert mount_id(mounts, "/private/key") is None
    assert list(Aliases(mounts).second_mounts("/private/key")) == ["/view"]
    # The control: with the root in the table it is known that this is another folder.
    mounts = tree((4, 1, own, "/jail", "/"), (5, 4, own, "/jail/other", "/view"))
    assert list(Aliases(mounts).second_mounts("/private")) == []
    assert list(Aliases(mounts).second_mounts("/other/key")) == ["/view/key"]


def test_a_comma_in_the_path_of_a_layer_ends_no_option() -> None:
    """The layers of an overlay may not be cut where the kernel escapes a byte of their paths."""
    options = rb"rw,lowerdir=/a\134\054b:/c\134\134:/d\134:e::/f,upperdir=/u\040p,workdir=/w"
    mount = Mount(b"1 2 0:1 / /m rw,relatime shared:1 - overlay none " + options)
    assert mount.layers() == ["/a,b", "/c\\", "/d:e", "/f", "/u p"]
    mount = Mount(rb"1 2 0:1 / /m rw - overlay none ro,lowerdir+=/a:b,datadir+=/c\134d")
    assert mount.layers() == ["/a:b", "/c\\d"]

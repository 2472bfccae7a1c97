"""Device nodes in what is granted: none of them leads a guest to the device behind it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from jail_helpers import backends, errno, inside, is_root, jail_by, outside

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = {"character": (stat.S_IFCHR, 1, 5), "block": (stat.S_IFBLK, 7, 0)}
"""What any kernel has: /dev/zero, and the first loop device, which may be without a file."""

NOT_THERE = (0, errno.ENXIO, errno.ENODEV)
"""Answers of the device itself, of those that have nothing behind them too."""


@pytest.fixture
def node(workspace: Path, request: pytest.FixtureRequest) -> Path:
    """Return a device node in a folder below a grant."""
    kind, major, minor = DEVICES[request.param]
    path = workspace / "image" / "dev"
    path.parent.mkdir()
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    return path


@pytest.mark.skipif(not is_root(), reason="only root makes device nodes")
@pytest.mark.parametrize("node", list(DEVICES), indirect=True)
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_device_in_a_grant_is_dead_or_refused(workspace: Path, node: Path, kind: str) -> None:
    """A node in a grant opens the device where nothing but Landlock stands before it."""
    text = f"answer(opened({str(node)!r}))"
    assert outside(text) in NOT_THERE
    with jail_by("namespaces", **{kind: [workspace]}) as jail:
        assert inside(jail, text) == errno.EACCES
    with pytest.raises(PolicyUnsupported, match="is a device") as caught:
        jail_by("landlock", **{kind: [workspace]})
    assert caught.value.field == f"{kind}[0]"
    assert str(node) in str(caught.value)
    # Beside the folder that holds it, and once it is gone, the grant is one like others.
    (workspace / "sources").mkdir()
    jail_by("landlock", **{kind: [workspace / "sources"]}).close()
    node.unlink()
    jail_by("landlock", **{kind: [workspace]}).close()


@pytest.mark.parametrize("backend", backends("namespaces", "bubblewrap"))
def test_no_mount_of_a_jail_has_devices_but_its_own(workspace: Path, backend: str) -> None:
    """What only root can put into a grant is shown by each mount's own options for every uid."""
    text = """
lines = [line.split() for line in open("/proc/self/mountinfo")]
answer([line[4] for line in lines if "nodev" not in line[5].split(",")])
"""
    with jail_by(backend, write=[workspace]) as jail:
        found = inside(jail, text)
    assert [point for point in found if not point.startswith("/dev")] == []

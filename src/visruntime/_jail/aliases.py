"""By which further paths the host's mounts show what is at a path.

A folder can be mounted a second time, as a whole or a part of it, and an overlay shows its
layers once more. What is compared is the file system and the place in it, so that it does not
matter by which path or link somebody mounted it, or what the folders are called by now.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left

from visruntime._host.descriptors import FOLDER, path_of
from visruntime._jail.mount_table import MountTree, mount_table
from visruntime._policy.looks import is_missing
from visruntime._policy.paths import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime._jail.mount_table import Mount

__all__ = ["Aliases", "names_of"]


def names_of(descriptor: int) -> list[str]:
    """Return the names of the file that *descriptor* opens: the system's own, and by other mounts."""
    path = path_of(descriptor)
    if sys.platform != "linux":
        return [path]
    return Aliases(MountTree(mount_table())).names_of(descriptor, path)


class Aliases:
    """Answers about the paths of one `MountTree`."""

    __slots__ = ("_by_device", "_known", "_points", "_sorted", "_tree", "_unknown")

    def __init__(self, tree: MountTree) -> None:
        self._tree = tree
        self._by_device: dict[bytes, list[Mount]] = {}
        self._sorted: list[Mount] = []
        self._points: list[str] = []
        self._known: list[tuple[bytes, bytes, str]] = []
        self._unknown: list[tuple[Mount, str]] = []

    def names(self, path: str, grants: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
        """Yield (name, alias): *alias* leads to what *name* does, which is *path* or lies in it.

        What is mounted below *path* has aliases of its own. Of what lies in an alias, those of
        *grants* are named that do.
        """
        self._index()
        places = [(self._tree.mount_of(path), path)]
        places += [(mount, mount.point) for mount in self._below(path)]
        found: dict[tuple[str, str], None] = {}
        for mount, name in places:
            found |= dict.fromkeys(self._aliases(mount, name))
        for name, alias in found:
            if name != alias:
                yield name, alias
                for grant in grants:
                    if grant != alias and is_within(grant, alias):
                        yield _join(name, _rest(grant, alias)), grant

    def second_mounts(self, path: str, grants: Sequence[str] = ()) -> Iterator[str]:
        """Yield where *path*, or a part of it, is shown once more, outside of it."""
        for _, alias in self.names(path, grants):
            if not is_within(alias, path):
                yield alias

    def names_of(self, descriptor: int, path: str) -> list[str]:
        """Return *path* and other names of what *descriptor* opened, on whatever mount that was."""
        self._index()
        number = _mount_id(descriptor)
        mount = next((mount for mount in self._tree.mounts if mount.id == number), None)
        if mount is None or not is_within(path, mount.point):
            return [path]  # of no mount that is seen here, such as that of a memfd
        return list(dict.fromkeys((path, *(alias for _, alias in self._aliases(mount, path)))))

    def unknown_layers(self) -> list[tuple[Mount, str]]:
        """Return the overlays of which a layer cannot be found, each with that layer.

        It is named from where somebody stood who mounted it, or by a name that it lost since. Those of
        the root are left out: it was there before all that can be seen, as in containers.
        """
        self._index()
        return self._unknown

    def _index(self) -> None:
        """Sort the mounts, once there is a question."""
        if self._sorted or not self._tree.mounts:
            return
        self._sorted = sorted(self._tree.mounts, key=lambda mount: mount.point)
        self._points = [mount.point for mount in self._sorted]
        for mount in self._tree.mounts:
            self._by_device.setdefault(mount.device, []).append(mount)
        root = self._tree.mount_of("/")
        for device, (mount, *others) in self._by_device.items():
            if mount.type != "overlay":
                continue
            for layer in mount.layers():
                at = self._find(layer)
                if at is not None:
                    self._known.append((device, *at))
                elif root is None or device != root.device:
                    self._unknown += [(one, layer) for one in (mount, *others)]

    def _find(self, layer: str) -> tuple[bytes, str] | None:
        """Return the file system and the place in it of the folder that *layer* names."""
        if not layer.startswith("/"):
            return None
        try:
            descriptor = os.open(layer, FOLDER | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            path = path_of(descriptor)
        finally:
            os.close(descriptor)
        mount = self._tree.mount_of(path)
        return None if mount is None else (mount.device, _place(mount, path))

    def _below(self, path: str) -> list[Mount]:
        """Return the mounts whose points lie below *path*."""
        top = path.rstrip("/")
        # "0" is what comes after "/".
        return self._sorted[
            bisect_left(self._points, f"{top}/") : bisect_left(self._points, f"{top}0")
        ]

    def _aliases(self, mount: Mount | None, name: str) -> Iterator[tuple[str, str]]:
        if mount is not None:
            return self._shown(mount.device, _place(mount, name), name, set())
        # After chroot(2) nobody says where in its file system the root lies: all of that could be it.
        device = os.stat("/").st_dev
        number = f"{os.major(device)}:{os.minor(device)}".encode()
        return self._shown(number, "/", name, set())

    def _shown(
        self, device: bytes, place: str, name: str, seen: set[tuple[bytes, str]]
    ) -> Iterator[tuple[str, str]]:
        """Yield (name, alias) of *place* in a file system, which has that *name*."""
        if (device, place) in seen:
            return
        seen.add((device, place))
        for mount in self._by_device.get(device, ()):
            if is_within(place, mount.root):
                yield name, _join(mount.point, _rest(place, mount.root))
            elif is_within(mount.root, place):
                yield _join(name, _rest(mount.root, place)), mount.point
        for overlay, below, layer in self._known:
            if overlay == device:
                found = self._shown(below, _join(layer, place), name, seen)
            elif below == device and is_within(place, layer):
                found = self._shown(overlay, _rest(place, layer) or "/", name, seen)
            elif below == device and is_within(layer, place):
                found = self._shown(overlay, "/", _join(name, _rest(layer, place)), seen)
            else:
                continue
            # An overlay does not show all of each layer, and no layer has all that is shown.
            yield from (pair for pair in found if not is_missing(pair[1]))


def _place(mount: Mount, path: str) -> str:
    """Return where in its file system *path* is, which is on *mount*."""
    return _join(mount.root, _rest(path, mount.point))


def _rest(path: str, top: str) -> str:
    """Return what comes after *top* in *path*."""
    return path[len(top.rstrip("/")) :]


def _join(top: str, rest: str) -> str:
    return (top.rstrip("/") + rest).rstrip("/") or "/"


def _mount_id(descriptor: int) -> bytes:
    """Return the number of the mount that *descriptor* is open on (proc_pid_fdinfo(5))."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
        _, _, rest = file.read().partition(b"mnt_id:")
    return rest.partition(b"\n")[0].strip()

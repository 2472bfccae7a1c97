"""Platform archives: a CPython, uv and the native parts of one release, with a digest for each file.

An archive is unpacked into a folder that is this user's alone, each file is compared with
the manifest before any of it can be used, and afterwards a file that was touched is compared anew.
``Runtime(python="bundle")`` takes its interpreter.

A manifest tells whether an archive is whole, and not who made it: for that, compare the archive
with the digest that was published (``sha256=``).
"""

from __future__ import annotations

import os
import stat
from time import monotonic

from visruntime._arguments import check_function
from visruntime._bundle.manifest import MOST_MEMBERS, NAME, Manifest
from visruntime._bundle.ustar import members
from visruntime._host.files import open_followed, open_regular
from visruntime._host.own_version import own_version
from visruntime._jail.making import folder_below, make_file, write_file
from visruntime._jail.state_folder import BUNDLES, folder_at, state_folder
from visruntime.errors import BundleRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    from visruntime._bundle.manifest import FileEntry
    from visruntime._bundle.ustar import Member

    AnyPath = str | os.PathLike[str]

__all__ = ["BUNDLE", "Bundle", "find", "install", "installed", "names", "verify"]

BUNDLE = "bundle"
"""As ``python=``: the interpreter of the installed archive of this very version."""
_MOST_DIGITS = 10
_MOST_MANIFEST = 8 * 1024**2
_INSTALL_SECONDS = 120.0
_PROGRESS_SECONDS = 1.0
_RECORD, _TREE = "record.json", "archive"


class Bundle:
    """An installed archive: its ``name``, ``version`` and ``platform``, and the ``folder`` it is in.

    ``python`` is the path of its interpreter, ``python_version`` what the manifest says of it.
    """

    __slots__ = ("_manifest", "folder", "name", "platform", "python", "python_version", "version")

    def __init__(self, folder: str, manifest: Manifest) -> None:
        self._manifest = manifest
        self.folder: str = folder
        self.name: str = manifest.name
        self.version: str = manifest.version
        self.platform: str = manifest.platform
        self.python: str = os.path.join(folder, manifest.python["program"])
        self.python_version: str = manifest.python["version"]

    def __repr__(self) -> str:
        return f"Bundle({self.name!r}, {self.folder!r})"


def install(
    file: AnyPath,
    *,
    sha256: str | None = None,
    progress: Callable[[str], object] | None = None,
) -> Bundle:
    """Unpack the archive *file* for this user, and return it; once it is whole, or not at all.

    Nothing of it is executed. One that is installed already is verified and kept.

    Args:
        file: path of a ``visruntime-VERSION-PLATFORM.tar.gz``.
        sha256: the published digest of the file, in hexadecimal digits; compared first.
        progress: gets a line of text when unpacking begins, and at most one for each second that
            it takes.

    Raises:
        BundleRefused: it is no archive, is damaged, is for another machine, or of another version
            than this package; the message says which file and why.
        PolicyError: the folder for it is not this user's alone.
        OSError: it cannot be read or written.
    """
    from visruntime._packages.store import Store

    if progress is not None:
        check_function(progress, "progress")
    with _refusals(file), _opened(file) as archive:
        if sha256 is not None:
            _compare_whole(archive, sha256)
        with _unpacked(archive) as stream:
            found = members(stream, MOST_MEMBERS)
            data, manifest = _read_manifest(found)
            _check_fit(manifest)
            store = Store()
            with store.locked(manifest.name, _INSTALL_SECONDS):
                place = os.path.join(_bundles(), manifest.name)
                if os.path.lexists(place):
                    return _verified(manifest.name)
                with store.staging(manifest.name) as building, folder_at(building) as built:
                    tree = os.path.join(building, "whole", _TREE)
                    with folder_below(f"whole/{_TREE}", built, make=0o755) as made:
                        make_file(NAME, made, data, 0o644)
                        _unpack(found, manifest, made, progress)
                    with folder_below("whole", built) as whole:
                        make_file(_RECORD, whole, _record(tree, manifest), 0o644)
                    with folder_at(os.path.dirname(place)) as kept:
                        os.rename("whole", manifest.name, src_dir_fd=built, dst_dir_fd=kept)
    return Bundle(os.path.join(place, _TREE), manifest)


def installed() -> list[Bundle]:
    """Return the archives that are installed here, by name; they are not verified for it."""
    bundles = []
    for name in names():
        folder = os.path.join(_bundles(), name, _TREE)
        with _refusals(name):
            bundles.append(Bundle(folder, _manifest_in(folder)))
    return bundles


def verify(what: AnyPath) -> Bundle | Manifest:
    """Compare every file of an archive, or of an installed one by its name, with its manifest.

    Returns:
        The installed archive, or for a file what it says of itself.

    Raises:
        BundleRefused: one is missing, too much or different; or nothing of that name is installed.
    """
    if isinstance(what, str) and what in names():
        return _verified(what)
    if isinstance(what, str) and "/" not in what and not os.path.lexists(what):
        raise BundleRefused(
            f"{what!a:.200}: no such file, and no archive of that name is installed"
        )
    with _refusals(what), _opened(what) as archive, _unpacked(archive) as stream:
        found = members(stream, MOST_MEMBERS)
        _, manifest = _read_manifest(found)
        _unpack(found, manifest, None)
        return manifest


def names() -> list[str]:
    """Return the names of the installed archives; this makes no folder where there is none."""
    try:
        entries = os.listdir(os.path.join(state_folder(), BUNDLES))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in entries if name.startswith("visruntime-"))


def find() -> Bundle:
    """Return the installed archive of this version, every file of it as it was when it was verified.

    Raises:
        BundleRefused: there is none, or a file of it was changed.
    """
    name = f"visruntime-{own_version()}-{_platform()}"
    if name not in names():
        raise BundleRefused(
            f'python="{BUNDLE}": {name} is not installed; get the file {name}.tar.gz of this '
            f"release, and: visruntime bundle install {name}.tar.gz"
        )
    place = os.path.join(_bundles(), name)
    folder = os.path.join(place, _TREE)
    with _refusals(name):
        manifest = _manifest_in(folder)
        with _opened(os.path.join(place, _RECORD)) as file:
            if file.read() != _record(folder, manifest):
                # Touched or moved: only its bytes tell.
                _compare_tree(folder, manifest)
    return Bundle(folder, manifest)


def _verified(name: str) -> Bundle:
    with _refusals(name):
        folder = os.path.join(_bundles(), name, _TREE)
        manifest = _manifest_in(folder)
        _compare_tree(folder, manifest)
        return Bundle(folder, manifest)


class _refusals:  # noqa: N801 (used as a statement)
    """Say which archive it is that is refused."""

    def __init__(self, what: AnyPath) -> None:
        self._what = os.fspath(what)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        import zlib

        if isinstance(error, BundleRefused) and not error.archive:
            raise BundleRefused(f"{self._what!a:.300}: {error}", archive=self._what) from None
        if isinstance(error, (EOFError, zlib.error)):
            raise BundleRefused(
                f"{self._what!a:.300}: it is cut short", archive=self._what
            ) from None


def _opened(file: AnyPath) -> BinaryIO:
    path = os.path.abspath(os.fspath(file))
    return open(open_regular(path, os.O_RDONLY), "rb")


def _unpacked(archive: BinaryIO) -> BinaryIO:
    import gzip

    archive.seek(0)
    if archive.read(2) != b"\x1f\x8b":
        raise BundleRefused("it is no gzip file")
    archive.seek(0)
    return gzip.GzipFile(fileobj=archive)  # type: ignore[return-value]


def _compare_whole(archive: BinaryIO, sha256: str) -> None:
    import hashlib

    whole = hashlib.sha256()
    while piece := archive.read(1024 * 1024):
        whole.update(piece)
    digest = whole.hexdigest()
    if digest != sha256.strip().lower():
        raise BundleRefused(
            f"its digest is {digest}, and not {sha256!a:.100}: it is damaged, or not the file that "
            "was published"
        )


def _read_manifest(found: Iterator[Member]) -> tuple[bytes, Manifest]:
    first = next(found, None)
    while first is not None and first.kind == "folder":
        first = next(found, None)
    if first is None or first.kind != "file" or first.name.partition("/")[2] != NAME:
        raise BundleRefused("it does not begin with its manifest")
    if first.size > _MOST_MANIFEST:
        raise BundleRefused(f"its manifest is larger than {_MOST_MANIFEST} bytes")
    data = b"".join(first.pieces())
    manifest = Manifest(data)
    if first.name != f"{manifest.name}/{NAME}":
        raise BundleRefused(f"its folder {first.name!a:.100} is not named like it")
    return data, manifest


def _check_fit(manifest: Manifest) -> None:
    if manifest.platform != _platform():
        raise BundleRefused(f"it is for {manifest.platform}, and this machine is {_platform()}")
    if manifest.version != own_version():
        raise BundleRefused(
            f"it is of visruntime {manifest.version}, and this is {own_version()}; the two have to be "
            "of one release"
        )
    here = (os.confstr("CS_GNU_LIBC_VERSION") or "no glibc").removeprefix("glibc ")
    if _numbers(here) < _numbers(manifest.glibc):
        raise BundleRefused(f"it needs glibc {manifest.glibc}, and this machine has {here}")


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    known = all(part.isdecimal() and len(part) < _MOST_DIGITS for part in parts)
    return tuple(map(int, parts)) if known else ()


def _unpack(
    found: Iterator[Member],
    manifest: Manifest,
    tree: int | None,
    progress: Callable[[str], object] | None = None,
) -> None:
    """Compare each member with the manifest, and with *tree*, a folder, write it there on the way."""
    import hashlib

    missing = dict(manifest.files)
    root = manifest.name + "/"
    whole = sum(entry.size for entry in missing.values())
    done, said = 0, monotonic()
    if progress is not None:
        progress(f"unpacking {manifest.name}: {len(missing)} files, {whole / 1e6:.0f} MB")
    for member in found:
        if member.kind == "folder":
            continue  # those of its files are made for them
        path = member.name.removeprefix(root)
        entry = missing.pop(path, None)
        if entry is None or not member.name.startswith(root):
            raise BundleRefused(f"{member.name!a:.200} is not in its manifest, or twice in it")
        if member.kind == "link":
            if entry.link is None or member.target != entry.link:
                raise BundleRefused(f"{path} is not the link that its manifest says")
            if tree is not None:
                with folder_below(os.path.dirname(path), tree, make=0o755) as folder:
                    os.symlink(entry.link, os.path.basename(path), dir_fd=folder)
            continue
        if entry.link is not None or member.size != entry.size or member.mode != entry.mode:
            raise BundleRefused(f"{path} has not the kind, size or mode that its manifest says")
        digest = hashlib.sha256()
        if tree is None:
            for piece in member.pieces():
                digest.update(piece)
        else:
            with folder_below(os.path.dirname(path), tree, make=0o755) as folder:
                write_file(os.path.basename(path), folder, _hashed(member, digest), entry.mode)
        if digest.hexdigest() != entry.sha256:
            raise BundleRefused(f"{path} is damaged: its digest is not that of its manifest")
        done += entry.size
        if progress is not None and monotonic() - said >= _PROGRESS_SECONDS:
            said = monotonic()
            progress(f"unpacked {100 * done // max(1, whole)} %")
    if missing:
        raise BundleRefused(f"{min(missing)} is missing")


def _hashed(member: Member, digest: Any) -> Iterator[bytes]:
    for piece in member.pieces():
        digest.update(piece)
        yield piece


def _compare_tree(folder: str, manifest: Manifest) -> None:
    import hashlib

    missing = dict(manifest.files)
    for where, below, names in os.walk(folder):
        links = [name for name in below if os.path.islink(os.path.join(where, name))]
        for name in names + links:
            path = os.path.relpath(os.path.join(where, name), folder)
            if path == NAME:
                continue
            entry = missing.pop(path, None)
            if entry is None:
                raise BundleRefused(f"{path!a:.200} does not belong to it; remove it")
            if not _is_as_said(folder, entry, hashlib.sha256()):
                raise BundleRefused(
                    f"{path} was changed; remove {os.path.dirname(folder)}, and install it anew"
                )
    if missing:
        raise BundleRefused(
            f"{min(missing)} is missing; remove {os.path.dirname(folder)}, and install it anew"
        )


def _is_as_said(folder: str, entry: FileEntry, digest: Any) -> bool:
    path = os.path.join(folder, entry.path)
    if entry.link is not None:
        return os.path.islink(path) and os.readlink(path) == entry.link
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != entry.mode:
        return False
    with open(open_followed(path), "rb") as file:
        while piece := file.read(1024 * 1024):
            digest.update(piece)
    return bool(digest.hexdigest() == entry.sha256)


def _record(folder: str, manifest: Manifest) -> bytes:
    """Return what the kernel says of each file and folder: as long as that stays, so do the bytes.

    No program can set the time of the last change of a file's inode (``st_ctime``), and a folder's
    changes with the names in it.
    """
    import json

    lines = []
    folders = {os.path.dirname(path) for path in manifest.files}
    while above := {os.path.dirname(path) for path in folders} - folders:
        folders |= above
    for path in (NAME, *sorted(folders), *sorted(manifest.files)):
        try:
            status = os.lstat(os.path.join(folder, path))
        except OSError:
            return b""
        numbers = (status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_size)
        lines.append([path, *numbers, status.st_mtime_ns, status.st_ctime_ns])
    return json.dumps(lines, separators=(",", ":")).encode()


def _manifest_in(folder: str) -> Manifest:
    with _opened(os.path.join(folder, NAME)) as file:
        return Manifest(file.read(_MOST_MANIFEST))


def _bundles() -> str:
    from visruntime._jail.state_folder import private_folder

    return private_folder(os.path.join(private_folder(state_folder(), "bundle"), BUNDLES), "bundle")


def _platform() -> str:
    return f"linux-{os.uname().machine}"

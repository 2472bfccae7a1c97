"""What a platform archive says of itself, and whether that can be true."""

from __future__ import annotations

import posixpath

from visruntime.errors import BundleRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MOST_MEMBERS", "NAME", "FileEntry", "Manifest"]

NAME = "manifest.json"
SCHEMA = 1
MOST_FILES = 20_000
MOST_MEMBERS = 2 * MOST_FILES
"""Of a tar file: folders have members, too."""
MOST_BYTES = 1024**3
"""Of all files together, unpacked."""
_MOST_WORD = 1000
_MOST_FOLDERS = 40
"""Folders in the path of a file; each is looked for among all files."""
"""Of a text, in characters."""
_MODES = (0o644, 0o755)
_PROGRAMS = ("bin/uv", "bin/visjail-init", "bin/vispython")


class FileEntry:
    """One file as the manifest has it: ``link`` for a link, else ``size``, ``mode``, ``sha256``."""

    __slots__ = ("link", "mode", "path", "sha256", "size")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.path = _path(fields["path"])
        self.link: str | None = None
        self.mode, self.size, self.sha256 = 0, 0, ""
        if "link" in fields:
            self.link = _link(self.path, fields["link"])
            return
        self.mode, self.size, self.sha256 = fields["mode"], fields["size"], fields["sha256"]
        if type(self.mode) is not int or self.mode not in _MODES:
            raise BundleRefused(f"{self.path} has the mode {self.mode!r:.20}")
        if type(self.size) is not int or not 0 <= self.size <= MOST_BYTES:
            raise BundleRefused(f"{self.path} has the size {self.size!r:.20}")
        if not isinstance(self.sha256, str) or len(self.sha256) != 64:
            raise BundleRefused(f"{self.path} has no digest")


class Manifest:
    """A manifest that holds together; ``files`` by path.

    Raises:
        BundleRefused: it does not.
    """

    __slots__ = ("components", "files", "glibc", "name", "platform", "python", "version")

    def __init__(self, data: bytes) -> None:
        import json

        try:
            fields = json.loads(data)
            if type(fields["schema"]) is not int or fields["schema"] != SCHEMA:
                raise BundleRefused(f"its manifest has the schema {fields['schema']!r:.20}")
            self.name: str = _path(fields["name"])
            self.version: str = _word(fields["version"])
            self.platform: str = _word(fields["platform"])
            self.glibc: str = _word(fields["glibc"])
            self.python: dict[str, str] = _words(fields["python"])
            if type(fields["components"]) is not list:
                raise BundleRefused("its components are no list")
            self.components: list[dict[str, str]] = [_words(each) for each in fields["components"]]
            entries = [FileEntry(each) for each in fields["files"]]
            program, library = _path(self.python["program"]), _path(self.python["library"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            if isinstance(problem, BundleRefused):
                raise
            kind = type(problem).__name__
            raise BundleRefused(f"its manifest cannot be read ({kind}: {problem!s:.100})") from None
        if self.name != f"visruntime-{self.version}-{self.platform}":
            raise BundleRefused(f"its name {self.name!a:.100} is not its version and platform")
        self.files: dict[str, FileEntry] = {entry.path: entry for entry in entries}
        if len(self.files) != len(entries) or not 0 < len(entries) <= MOST_FILES:
            raise BundleRefused("its manifest names a file twice, or none, or too many")
        if sum(entry.size for entry in entries) > MOST_BYTES:
            raise BundleRefused(f"its files are more than {MOST_BYTES} bytes")
        for path in (*_PROGRAMS, program, library):
            entry = self.files.get(path)
            if entry is None or entry.link is not None:
                raise BundleRefused(f"it has no {path}")
            if path != library and entry.mode != 0o755:
                raise BundleRefused(f"its {path} may not be executed")
        for entry in entries:
            self._check_place(entry)

    def _check_place(self, entry: FileEntry) -> None:
        """Refuse a file below another one, or a link that leads to no file of the archive."""
        above = posixpath.dirname(entry.path)
        while above:
            if above in self.files:
                raise BundleRefused(f"{entry.path} lies below {above}, which is no folder")
            above = posixpath.dirname(above)
        if entry.link is not None:
            place = posixpath.join(posixpath.dirname(entry.path), entry.link)
            target = self.files.get(posixpath.normpath(place))
            if target is None or target.link is not None:
                raise BundleRefused(f"{entry.path} is a link to {entry.link!a:.100}, no file of it")


def _word(value: object) -> str:
    if type(value) is not str or len(value) > _MOST_WORD:
        raise BundleRefused(f"its manifest has {value!a:.100} where a short text belongs")
    return value


def _words(value: object) -> dict[str, str]:
    if type(value) is not dict:
        raise BundleRefused(f"its manifest has {value!a:.100} where names and texts belong")
    return {name: _word(text) for name, text in value.items()}


def _path(path: object) -> str:
    """Return a relative path that stays below where it begins, in one spelling."""
    if not isinstance(path, str) or not path.isascii() or not path.isprintable() or not path:
        raise BundleRefused(f"{path!a:.100} is no name of a file in it")
    if path.startswith("/") or ".." in path.split("/") or posixpath.normpath(path) != path:
        raise BundleRefused(f"{path!a:.100} leads out of it, or has another spelling")
    if path in (".", NAME) or len(path) > _MOST_WORD or path.count("/") > _MOST_FOLDERS:
        raise BundleRefused(f"{path!a:.100} is no name of a file in it")
    return path


def _link(path: str, target: object) -> str:
    if not isinstance(target, str) or not target or target.startswith("/"):
        raise BundleRefused(f"{path} is a link to {target!a:.100}")
    return target

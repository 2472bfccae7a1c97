"""Read the one kind of tar file that platform archives are: plain ustar, gzipped.

The general formats have headers of any size that describe the next header, links to other members,
devices and sparse files. None of these can be said here, so none has to be refused later.
"""

from __future__ import annotations

from visruntime.errors import BundleRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

__all__ = ["Member", "members"]

_BLOCK = 512
_PIECE = 1024 * 1024
_MOST_PADDING = 20 * _BLOCK
"""What may follow the first block of the end: writers of tar files fill a record of twenty blocks."""
_KINDS = {b"0": "file", b"5": "folder", b"2": "link"}


class Member:
    """One member; ``target`` is where a link leads. The bytes of a file come from `pieces`, once."""

    __slots__ = ("_left", "_stream", "kind", "mode", "name", "size", "target")

    def __init__(self, stream: BinaryIO, header: bytes) -> None:
        kind = _KINDS.get(header[156:157])
        if header[257:265] != b"ustar\x0000" or kind is None:
            raise BundleRefused("it holds something else than files, folders and links")
        if sum(header) - sum(header[148:156]) + 8 * 0x20 != _number(header[148:156]):
            raise BundleRefused("a header in it is damaged")
        self.kind = kind
        prefix, name = _text(header[345:500]), _text(header[:100])
        self.name = f"{prefix}/{name}" if prefix else name
        self.mode = _number(header[100:108])
        self.size = _number(header[124:136])
        self.target = _text(header[157:257])
        if kind != "file" and self.size:
            raise BundleRefused(f"{self.name!a:.200} has bytes, and is no file")
        self._stream = stream
        self._left = self.size

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        while self._left:
            yield self._take(min(self._left, _PIECE))

    def finish(self) -> None:
        """Go to the end of this member."""
        for _ in self.pieces():
            pass
        padding = -self.size % _BLOCK
        if padding and self._stream.read(padding).strip(b"\0"):
            raise BundleRefused("it holds bytes that belong to no file")

    def _take(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise BundleRefused("it is cut short")
        self._left -= size
        return data


def members(stream: BinaryIO, most: int) -> Iterator[Member]:
    """Yield at most *most* members of a tar stream, which must end as one does.

    Raises:
        BundleRefused: it is no plain ustar file, or has more members.
    """
    for _ in range(most):
        header = stream.read(_BLOCK)
        if len(header) != _BLOCK:
            raise BundleRefused("it is cut short")
        if not header.strip(b"\0"):
            rest = stream.read(_MOST_PADDING + 1)
            if len(rest) > _MOST_PADDING or rest.strip(b"\0"):
                raise BundleRefused("something follows its end")
            return
        member = Member(stream, header)
        yield member
        member.finish()
    raise BundleRefused(f"it holds more than {most} files")


def _text(field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise BundleRefused("a name in it is damaged")
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise BundleRefused("a name in it is not ASCII") from None


def _number(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        raise BundleRefused("a number in it is damaged")
    return int(digits, 8)

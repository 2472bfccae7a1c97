"""A worker's stdout and stderr on Linux: pipes that are read without waiting."""

from __future__ import annotations

from visruntime._worker.output import CHUNK, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._worker.place import Reader

__all__ = ["Stream"]


class Stream(Output):
    """The host's end of the pipe that is the worker's stdout or stderr."""

    __slots__ = ("_reader", "descriptor")

    def __init__(self, name: str, descriptor: int, reader: Reader) -> None:
        super().__init__(name)
        self.descriptor = descriptor
        self._reader = reader

    def read(self) -> bool:
        """Read one chunk; False at the end of the stream."""
        self._read()
        return not self._end

    def _read(self) -> int:
        """Read one chunk and return its size; 0 where nothing is there, or nothing comes any more."""
        try:
            data = self._reader.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return 0
        return self._keep(data)

    def drain(self) -> None:
        """Read what is in the pipe at this moment and no more."""
        pending = self._reader.pending(self.descriptor)
        # A guest can have each read end where one of its writes did (O_DIRECT, see pipe(2)).
        while pending > 0 and (size := self._read()):
            pending -= size

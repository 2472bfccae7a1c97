"""What the command says to its user, and the cleaning of a guest's text."""

from __future__ import annotations

import sys

from visruntime.errors import CommandNotExecutable, CommandNotFound, CommandTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EXIT_REFUSED",
    "EXIT_TIMEOUT",
    "Cleaner",
    "Refusal",
    "clean",
    "code_of",
    "complain",
    "say_ports",
]

EXIT_TIMEOUT = 124
EXIT_REFUSED = 125
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141
"""As after SIGPIPE: whoever read our output, such as ``head``, had enough of it."""

# C0 but tab, newline and carriage return; DEL; C1; and what turns the direction of text.
_CODES = [
    *(code for code in range(0x20) if chr(code) not in "\t\n\r"),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
]


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


VISIBLE = {code: _escaped(code) for code in _CODES}
"""How a character that steers terminals is shown: as its Python escape."""


class Refusal(Exception):
    """The command line cannot be carried out; the text says what, why, and the fix."""


def clean(text: str) -> str:
    """Return *text* as one line without anything that steers a terminal."""
    return text.translate(VISIBLE | {ord(c): ascii(c)[1:-1] for c in "\n\r"})


class Cleaner:
    """Make a guest's stream of bytes safe for a terminal, piece by piece."""

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        import codecs

        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Return the safe form of what is complete in *piece* and before it."""
        return self._decoder.decode(piece, last).translate(VISIBLE).encode("utf-8")


def say_ports(wanted: Mapping[int, int], ports: Mapping[int, int]) -> None:
    """Say on stderr where the inbound ports are for which the kernel chose one."""
    for port, host in ports.items():
        if wanted.get(port) == 0:
            complain(f"port {port} of the guest is at 127.0.0.1:{host}")


def complain(message: str) -> None:
    """Write one line of *message* to stderr."""
    sys.stdout.flush()
    sys.stderr.write(f"visruntime: {clean(message)}\n")
    sys.stderr.flush()


def code_of(error: BaseException) -> int:
    """Return the exit code for an error that kept a program from running to its end."""
    if isinstance(error, CommandNotFound):
        return 127
    if isinstance(error, CommandNotExecutable):
        return 126
    if isinstance(error, CommandTimeout):
        return EXIT_TIMEOUT
    if isinstance(error, BrokenPipeError):
        return EXIT_UNREAD
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return EXIT_REFUSED

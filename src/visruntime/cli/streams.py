"""Carry bytes between our own descriptors and a guest's, until it ends.

The guest never gets our descriptors themselves: a terminal or a file opened for both
directions is more than the words on it.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager

from visruntime.cli.messages import Cleaner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

    from visruntime.jail import JailProcess

__all__ = ["forwarded_signals", "relay_pipes", "relay_terminal", "terminal_size", "write_all"]

PIECE = 65536
"""Bytes moved at a time."""
POLL_MILLISECONDS = 50
"""How often to look whether a program without open streams has ended, and how long a pty
must be silent after its program's end to count as drained."""

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def forwarded_signals(process: JailProcess) -> Iterator[None]:
    """Pass on to the guest the signals that would end us; the third one kills it."""
    count = 0

    def forward(number: int, _: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count >= 3:
            process.kill()
        else:
            process.send_signal(number)

    before = {
        number: signal.signal(number, forward)
        for number in FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def relay_pipes(process: JailProcess) -> None:
    """Carry our stdin to the guest, and its stdout and stderr to ours, until both end."""
    feed = process.stdin
    assert feed is not None
    outputs: dict[int, _Output] = {}
    for source, target in ((process.stdout, 1), (process.stderr, 2)):
        assert source is not None
        outputs[source.fileno()] = _Output(source, target)
    os.set_blocking(feed.fileno(), False)
    waiting = b""
    while outputs or process.poll() is None:
        poller = select.poll()
        for descriptor in outputs:
            poller.register(descriptor, select.POLLIN)
        if not feed.closed:
            wanted = (feed.fileno(), select.POLLOUT) if waiting else (0, select.POLLIN)
            poller.register(*wanted)
        for descriptor, _ in poller.poll(None if outputs else POLL_MILLISECONDS):
            if descriptor in outputs:
                if not outputs[descriptor].move():
                    del outputs[descriptor]
            elif waiting:
                waiting = _feed(feed, waiting)
            else:
                waiting = _read(0)
                if not waiting:
                    feed.close()
    feed.close()


class _Output:
    """One stream of the guest on its way to one of ours."""

    __slots__ = ("_clean", "_source", "_target")

    def __init__(self, source: Any, target: int) -> None:
        self._source = source
        self._target = target
        self._clean = Cleaner() if os.isatty(target) else None

    def move(self) -> bool:
        """Carry one piece; return whether more can come."""
        piece = _read(self._source.fileno())
        shown = self._clean.feed(piece, last=not piece) if self._clean else piece
        # Nobody reads ours any more: close the guest's too, so that it learns the usual way.
        alive = write_all(self._target, shown) and bool(piece)
        if not alive:
            self._source.close()
        return alive


def _feed(pipe: Any, waiting: bytes) -> bytes:
    """Write what the guest's stdin takes of *waiting*; return the rest."""
    try:
        return waiting[os.write(pipe.fileno(), waiting) :]
    except BlockingIOError:
        return waiting
    except OSError:
        pipe.close()
        return b""


def _read(descriptor: int) -> bytes:
    """Read a piece; an end and an error are both an end here."""
    try:
        return os.read(descriptor, PIECE)
    except OSError:
        return b""


def write_all(target: int, piece: bytes) -> bool:
    """Write all of *piece*; return whether somebody still reads."""
    view = memoryview(piece)
    try:
        while view:
            view = view[os.write(target, view) :]
    except OSError:
        return False
    return True


@contextmanager
def raw_terminal(descriptor: int) -> Iterator[None]:
    """Hand each key to the guest's own terminal while the block runs."""
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def relay_terminal(process: JailProcess) -> None:
    """Carry keys, output and window sizes between our terminal and the guest's.

    Ends when the program has ended and its terminal is drained: at its end of file, or
    when it stays quiet although something holds it open.
    """
    assert process.pty is not None
    master = process.pty.fileno()

    def resized(*_: object) -> None:
        process.resize(*terminal_size())

    before = signal.signal(signal.SIGWINCH, resized)
    keys_open = True
    try:
        with raw_terminal(0):
            while True:
                poller = select.poll()
                poller.register(master, select.POLLIN)
                if keys_open:
                    poller.register(0, select.POLLIN)
                ready = [descriptor for descriptor, _ in poller.poll(POLL_MILLISECONDS)]
                if master in ready:
                    piece = _read(master)
                    if not piece or not write_all(1, piece):
                        return
                if 0 in ready:
                    keys = _read(0)
                    keys_open = bool(keys) and write_all(master, keys)
                if not ready and process.poll() is not None:
                    return
    finally:
        signal.signal(signal.SIGWINCH, before)


def terminal_size() -> tuple[int, int]:
    """Return rows and columns of our terminal."""
    size = os.get_terminal_size(0)
    return size.lines or 24, size.columns or 80

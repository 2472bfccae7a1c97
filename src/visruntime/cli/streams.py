"""Carry bytes between our own descriptors and a guest's, until it ends.

The guest never gets our descriptors themselves: a terminal or a file opened for both
directions is more than the words on it.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import contextmanager, suppress

from visruntime.cli.messages import Cleaner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

    from visruntime.jail import JailProcess
else:
    import _signal as signal

__all__ = [
    "Stopped",
    "Tail",
    "ending_signals",
    "forwarded_signals",
    "piped_stdin",
    "relay_pipes",
    "relay_terminal",
    "terminal_size",
    "write_all",
    "write_whole",
]

PIECE = 65536
"""Bytes moved at a time."""
LOOK_MILLISECONDS = 1000
"""How often to look at the program although nothing is reported."""
QUIET_MILLISECONDS = 50
"""How long a terminal must be silent after its program's end to count as drained."""
TERMINAL_REST_BYTES = 1 << 20
"""Most that is shown of a terminal after its program's end: more than the kernel holds back."""
TYPED_BYTES = 65536
"""Keys kept for a guest that does not read; then ours wait in our terminal."""
ANSWER_MILLISECONDS = 20
"""How long to wait for what a terminal "types" to answer the guest's last output."""
DROPPED_PIECES = 64
"""Most pieces of such input that are dropped; a piece of a terminal is up to 4 KiB."""

GRACE_SECONDS = 5.0
"""How long a guest may take to end when we are asked to."""

TAIL_BYTES = 65536
"""How much of the end of a stream is kept for the report."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Stopped(BaseException):
    """Signal ``number`` ends us, not only the guest."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Tail:
    """The last bytes of a stream, ``data``."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: bytearray = bytearray()

    def add(self, piece: bytes) -> None:
        """Take over *piece*, and forget what is too far back."""
        self.data += piece
        del self.data[:-TAIL_BYTES]


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let *handler* take the signals that would end us, but those that our caller ignores."""
    before = {
        number: signal.signal(number, handler)
        for number in ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def forwarded_signals(process: JailProcess) -> Iterator[None]:
    """Pass on to the guest the signals that would end us; the third one kills it.

    So do `GRACE_SECONDS` after the first that asks to end (SIGTERM, SIGHUP): whoever sends only
    one waits for us, and a guest may ignore it. A guest that is stopped is woken for it.

    Raises:
        Stopped: a signal came when the guest had ended.
    """
    count = 0

    def end(*_: object) -> None:
        process.kill()

    def forward(number: int, _: FrameType | None) -> None:
        nonlocal count
        count += 1
        if process.poll() is not None:
            raise Stopped(number)
        if count >= 3:
            process.kill()
        else:
            process.send_signal(number)
            if number in (signal.SIGTERM, signal.SIGHUP):
                process.send_signal(signal.SIGCONT)
                if not signal.getitimer(signal.ITIMER_REAL)[0]:
                    signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    before = signal.signal(signal.SIGALRM, end)
    try:
        with _handled(forward):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def ending_signals() -> Iterator[None]:
    """Turn the signals that would end us into `Stopped`, so that the terminal is restored."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(number)

    with _handled(stop):
        yield


def relay_pipes(process: JailProcess, tail: Tail | None = None) -> OSError | None:
    """Carry our stdin to the guest, and its stdout and stderr to ours, until it has ended.

    The end of its stderr is left in *tail* as well. Its own end counts, not that of its
    streams: it may have handed them to somebody who lives on. Returns why our stdout did not take
    all of it, if it did not.
    """
    feed = process.stdin
    assert feed is not None
    outputs: dict[int, _Output] = {}
    for source, target in ((process.stdout, 1), (process.stderr, 2)):
        assert source is not None
        # Whoever has the pipe too may be quicker: what poll(2) saw may be gone. The end that
        # reads is ours alone, and so is this flag of it.
        os.set_blocking(source.fileno(), False)
        kept = tail if target == 2 else None
        outputs[source.fileno()] = _Output(process, source, target, kept)
    stdout = next(iter(outputs.values()))
    os.set_blocking(feed.fileno(), False)
    waiting = b""
    ended = process.fileno()
    look = 0.0
    while True:
        # At each piece would be costly; not at all would miss an end that is not reported.
        if time.monotonic() >= look:
            if process.poll() is not None:
                break
            look = time.monotonic() + LOOK_MILLISECONDS / 1000
        poller = select.poll()
        for descriptor in (ended, *outputs):
            poller.register(descriptor, select.POLLIN)
        if not feed.closed:
            wanted = (feed.fileno(), select.POLLOUT) if waiting else (0, select.POLLIN)
            poller.register(*wanted)
        for descriptor, _ in poller.poll(LOOK_MILLISECONDS):
            if descriptor in outputs:
                if not outputs[descriptor].move():
                    del outputs[descriptor]
            elif descriptor == ended:
                look = 0.0
            elif waiting:
                waiting = _feed(feed, waiting, process)
            else:
                waiting = _read(0) or b""
                if not waiting:
                    feed.close()
    feed.close()
    for output in outputs.values():
        output.move_rest()
    return stdout.lost


@contextmanager
def piped_stdin() -> Iterator[int]:
    """Give a pipe that brings what our stdin brings, as long as the block runs.

    At most a piece and a pipe are taken ahead of the guest.
    """
    import threading

    reading, writing = os.pipe()
    block, end_of_block = os.pipe()
    pump = threading.Thread(target=_pump_stdin, args=(writing, block), daemon=True)
    pump.start()
    try:
        yield reading
    finally:
        os.close(end_of_block)
        pump.join()
        os.close(block)
        os.close(reading)


def _pump_stdin(writing: int, block: int) -> None:
    """Carry our stdin to *writing* until its end, or the end of *block*."""
    os.set_blocking(writing, False)
    waiting = b""
    with open(writing, "wb", buffering=0) as feed:
        while not feed.closed:
            poller = select.poll()
            poller.register(block, select.POLLIN)
            poller.register(*((writing, select.POLLOUT) if waiting else (0, select.POLLIN)))
            if any(descriptor == block for descriptor, _ in poller.poll()):
                return
            if waiting:
                waiting = _feed(feed, waiting)
                continue
            piece = _read(0)
            if piece == b"":
                return
            waiting = piece or b""


class _Output:
    """One stream of the guest on its way to one of ours; ``lost`` is why that took no more."""

    __slots__ = ("_clean", "_run", "_source", "_tail", "_target", "lost")

    def __init__(self, process: JailProcess, source: Any, target: int, tail: Tail | None) -> None:
        self._run = process._run
        self._source = source
        self._tail = tail
        self._target = target
        self._clean = Cleaner() if os.isatty(target) else None
        self.lost: OSError | None = None

    def move(self) -> bool:
        """Carry one piece; return whether more can come."""
        piece = self._read()
        if piece is None:
            return True
        # Ours takes no more: close the guest's too, so that it learns the usual way.
        alive = self._show(piece, last=not piece) and bool(piece)
        if not alive:
            self._source.close()
        return alive

    def move_rest(self) -> None:
        """Carry what the pipe holds now, and nothing that is still written into it."""
        left = self._run.pending(self._source.fileno())
        while left:
            piece = self._read(min(left, PIECE))
            if not piece or not self._show(piece):
                break
            left -= len(piece)
        self._show(b"", last=True)
        self._source.close()

    def _read(self, size: int = PIECE) -> bytes | None:
        return _piece(lambda: self._run.read(self._source.fileno(), size))

    def _show(self, piece: bytes, *, last: bool = False) -> bool:
        if self._tail is not None:
            self._tail.add(piece)
        try:
            write_whole(self._target, self._clean.feed(piece, last=last) if self._clean else piece)
        except OSError as error:
            self.lost = error
        return self.lost is None


def _feed(pipe: Any, waiting: bytes, process: JailProcess | None = None) -> bytes:
    """Write what *pipe*, the stdin of *process*, takes of *waiting*; return the rest."""
    from visruntime import _native

    write = _native.write_quietly if process is None else process._run.write
    try:
        return waiting[write(pipe.fileno(), waiting) :]
    except BlockingIOError:
        return waiting
    except OSError:
        pipe.close()
        return b""


def _read(descriptor: int, size: int = PIECE) -> bytes | None:
    return _piece(lambda: os.read(descriptor, size))


def _piece(read: Callable[[], bytes]) -> bytes | None:
    """Read a piece; an end and an error are both an end here, ``None`` is nothing yet."""
    try:
        return read()
    except BlockingIOError:
        return None
    except OSError:
        return b""


def write_all(target: int, piece: bytes) -> bool:
    """Write all of *piece*; return whether somebody still reads."""
    try:
        write_whole(target, piece)
    except OSError:
        return False
    return True


def write_whole(target: int, piece: bytes) -> None:
    """Write all of *piece*.

    Raises:
        OSError: it cannot be written: nobody reads (EPIPE), or a disk is full.
    """
    view = memoryview(piece)
    while view:
        view = view[os.write(target, view) :]


@contextmanager
def raw_terminal(descriptor: int) -> Iterator[None]:
    """Hand each key to the guest's own terminal while the block runs.

    Keys that nobody has read are dropped at the end: a guest can make a terminal "type"
    answers, and they are not for the shell that comes next.
    """
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        try:
            _drop_keys(descriptor)
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
        except (termios.error, Stopped):  # interrupted, or the terminal is gone
            with suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _drop_keys(descriptor: int) -> None:
    """Read until nothing more is typed: TCSAFLUSH alone leaves what the kernel holds behind."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    for _ in range(DROPPED_PIECES):
        if not poller.poll(ANSWER_MILLISECONDS) or not _read(descriptor):
            return


@contextmanager
def _followed_size(process: JailProcess) -> Iterator[None]:
    """Give the guest's terminal each new size of ours while the block runs."""

    def resized(*_: object) -> None:
        # A terminal that is gone has no size, and some have one that the kernel does not take.
        with suppress(OSError, ValueError):
            process.resize(*terminal_size())

    before = signal.signal(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def relay_terminal(process: JailProcess) -> None:
    """Carry keys, output and window sizes between our terminal and the guest's.

    Ends when the program has ended and its terminal is drained, or when every program has
    let go of the terminal.

    Raises:
        Stopped: our terminal is gone.
    """
    assert process.pty is not None
    master = process.pty.fileno()
    # A guest that does not read must not keep us from its output, nor from its end.
    os.set_blocking(master, False)
    typed = b""
    keys_open = True
    with _followed_size(process), raw_terminal(0):
        while process.poll() is None:
            poller = select.poll()
            poller.register(process.fileno(), select.POLLIN)
            poller.register(master, select.POLLIN | (select.POLLOUT if typed else 0))
            if keys_open and len(typed) < TYPED_BYTES:
                poller.register(0, select.POLLIN)
            ready = dict(poller.poll(LOOK_MILLISECONDS))
            if ready.get(master, 0) & ~select.POLLOUT and not _show(master):
                return
            if 0 in ready:
                keys = _read(0)
                keys_open = keys != b""
                typed += keys or b""
            typed = _type(master, typed)
        _show_rest(master)


def _show(master: int) -> int:
    """Show a piece of the guest's output; return its size, 0 at the end, or 1 for none yet."""
    piece = _read(master)
    if piece and not write_all(1, piece):
        raise Stopped(signal.SIGHUP)
    return 1 if piece is None else len(piece)


def _show_rest(master: int) -> None:
    """Show what a terminal still holds; somebody may have it open and write on."""
    left = TERMINAL_REST_BYTES
    poller = select.poll()
    poller.register(master, select.POLLIN)
    while left > 0 and poller.poll(QUIET_MILLISECONDS):
        count = _show(master)
        if not count:
            return
        left -= count


def _type(master: int, keys: bytes) -> bytes:
    """Type what the guest's terminal takes of *keys*; return the rest."""
    try:
        return keys[os.write(master, keys) :] if keys else keys
    except BlockingIOError:
        return keys
    except OSError:
        return b""


def terminal_size() -> tuple[int, int]:
    """Return rows and columns of our terminal."""
    size = os.get_terminal_size(0)
    return size.lines or 24, size.columns or 80

"""Where another thread of the host is, as text."""

from __future__ import annotations

import os

__all__ = ["stack_of"]

_FRAME = r'(?m)^  File "(.*)", line (\d+) in (.*)$'


def stack_of(thread: int) -> str:
    """Return the stack of a running thread, the newest call last; "" if there is no such thread.

    Nor is there any on Windows, which has no file without a name to put it into.

    File, line and function of each call, as in tracebacks but without the source: a guest that may
    write there could have put anything in the place of a source file, and the host would wait for
    a FIFO, or read a file without an end, though the limit on its function is over.

    faulthandler reads it in one go. Walking the frames from Python is not safe while the thread
    runs: CPython 3.11 collects garbage where a frame object is made, a finalizer may let the thread
    go on, and the frame that was to be read is gone (seen as a crash in ``f_lineno``).

    Args:
        thread: its number, as ``threading.get_ident`` gives it. Of more than 100 threads the oldest
            are not seen, and of more than 100 frames the outermost (faulthandler's bounds).
    """
    if not hasattr(os, "memfd_create"):
        return ""
    import faulthandler
    import re

    # A file, since a full pipe would wait here for ever.
    with open(os.memfd_create("stacks"), "w+b") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read().decode("utf-8", "replace")
    # One part per thread: a line with its number in hexadecimal, then its frames, the newest first.
    for part in text.split("\n\n"):
        head, _, lines = part.partition("\n")
        if f"{thread:016x} " in head:
            frames = reversed(re.findall(_FRAME, lines))
            return "".join(
                f'  File "{name}", line {line}, in {where}\n' for name, line, where in frames
            )
    return ""

"""The descendants of a worker, as the host sees them, and a signal to them."""

from __future__ import annotations

import os
import select
import signal

__all__ = ["MAX_DEPTH", "MAX_PROCESSES", "signal_descendants"]

MAX_PROCESSES = 4096
"""Most descendants that get a signal; a guest chooses how many there are."""
MAX_DEPTH = 32
"""Most generations; so many descriptors are open at once."""


def signal_descendants(worker: int, pidfd: int, number: int = signal.SIGTERM) -> int:
    """Send a signal to every descendant of *worker*, not to itself; return how many got it.

    Nobody else ever gets it, whatever ends meanwhile: each process is held by a pidfd before its
    parent is read, and that answer counts only while the parent, held alike, still lives, so that
    its number cannot be another's. Processes whose parents have ended are not found.

    Args:
        worker: its number here.
        pidfd: of the worker.
    """
    return _signal_below(worker, pidfd, number, MAX_PROCESSES, MAX_DEPTH)


def _signal_below(parent: int, held: int, number: int, room: int, depth: int) -> int:
    reached = 0
    for child in _children(parent) if depth else ():
        if reached >= room:
            break
        found = _hold(child, parent, held)
        if found is None:
            continue
        try:
            # Those below first: they are found through it.
            reached += _signal_below(child, found, number, room - reached, depth - 1)
            if reached < room:
                signal.pidfd_send_signal(found, number)
                reached += 1
        except OSError:
            pass  # it has ended meanwhile
        finally:
            os.close(found)
    return reached


def _children(parent: int) -> list[int]:
    """The children of all threads of a process; none where the kernel does not list them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        return found
    return found


def _hold(child: int, parent: int, parent_held: int) -> int | None:
    """Return a pidfd of *child* if it is one of *parent*, which is alive all the while."""
    try:
        held = os.pidfd_open(child)
    except OSError:
        return None
    try:
        with open(f"/proc/{child}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if int(fields[1]) == parent and not _ended(parent_held):
            return held
    except (OSError, ValueError, IndexError):
        pass
    os.close(held)
    return None


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))

"""Where the ``visruntime`` command does not look for modules.

The current folder may be a guest's: what it left there under the name of a module of the
standard library would run in the command itself.
"""

from __future__ import annotations

import os
import sys

__all__ = ["leave_current_folder_out"]


def leave_current_folder_out(*, first: bool) -> None:
    """Take the current folder from this process's ``sys.path``.

    Args:
        first: the first entry may be it, written in full, as ``python -m`` puts it there.
            Other entries that are written in full are where they are because the user or an
            installation wants them.
    """
    if first and sys.path and not sys.flags.safe_path:
        try:
            here = os.getcwd()
        except FileNotFoundError:
            here = ""
        if sys.path[0] == here:
            del sys.path[0]
    sys.path[:] = [entry for entry in sys.path if entry.startswith("/")]

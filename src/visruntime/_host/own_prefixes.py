"""Where the host's own Python is installed, if that is a place of its own."""

from __future__ import annotations

import os
import sys

__all__ = ["own_prefixes"]


def own_prefixes() -> list[str]:
    """Return its prefixes, which are kept from guests as a whole (`_jail/protect.py`).

    /usr as a prefix holds far more than the interpreter; what the host runs of it is kept by name.
    """
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix))
    return [path for path in prefixes if os.path.realpath(path) not in ("/", "/usr", "/usr/local")]

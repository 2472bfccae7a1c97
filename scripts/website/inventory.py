"""Names of other projects' documentation, in the format that Sphinx looks them up in.

A build that fetched them would depend on the network and on another server's day. The few that the
docstrings use are in ``python-names.txt``: a name, its kind and where it is described.
"""

from __future__ import annotations

import zlib

__all__ = ["inventory"]

_HEAD = """\
# Sphinx inventory version 2
# Project: {project}
# Version: {version}
# The remainder of this file is compressed using zlib.
"""


def inventory(project: str, version: str, names: str) -> bytes:
    """Return an inventory of *names*: lines of a name, a kind such as ``py:class`` and a place.

    Raises:
        ValueError: a line has not those three words.
    """
    lines = []
    for line in names.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name, kind, place = words
        lines.append(f"{name} {kind} 1 {place} -\n")
    head = _HEAD.format(project=project, version=version)
    return head.encode() + zlib.compress("".join(lines).encode(), 9)

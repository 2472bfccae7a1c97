"""What a jail with the host's network knows of its name servers: lines, never a file as it is."""

from __future__ import annotations

import os
import stat

__all__ = ["name_servers"]

MOST_BYTES = 65_536
WORDS = ("domain", "nameserver", "options", "search", "sortlist")
"""What a line of resolv.conf(5) begins with."""


def name_servers(path: str = "/etc/resolv.conf") -> str | None:
    """Return the host's settings for the resolver as text for the jail; ``None`` without any.

    The file is often a link into /run. Whoever may write there, such as the guest of an earlier
    jail, chooses which file is read; so only a file that everybody may read counts, and of that
    only what the resolver would understand.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) or not mode & stat.S_IROTH:
            return None
        text = file.read(MOST_BYTES).decode("ascii", "replace")
    lines = (line.split() for line in text.splitlines())
    kept = [" ".join(words) for words in lines if words and words[0] in WORDS]
    return "".join(f"{line}\n" for line in kept if line.isprintable())

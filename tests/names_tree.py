"""A tree with names that do not exist, and a policy that denies writing them.

The tree has a folder `free`, which exists, and three names that do not: `.envrc`, `.git/hooks`
in a folder that exists, and `.github/workflows` in one that does not.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jail_helpers import policy_of

from visruntime.policy import PRIVATE_WRITE

if TYPE_CHECKING:
    from typing import Any

    from jail_helpers import JailPolicy

__all__ = ["NAMES", "places", "policy", "text"]

NAMES = (".envrc", ".git/hooks", ".github/workflows")


def places() -> list[str]:
    """Return where the tree is made: in a place that jails hide, and if there is one, outside."""
    for candidate in ("/opt", os.path.expanduser("~"), os.getcwd()):
        real = os.path.realpath(candidate)
        own = any(real == place or real.startswith(place + "/") for place in PRIVATE_WRITE)
        if not own and os.access(real, os.W_OK) and real != "/":
            return ["/tmp", real]
    return ["/tmp"]


def policy(top: str, mode: str, **more: Any) -> JailPolicy:
    """Return a policy that grants the tree and denies the three names for writing."""
    write = [top, *more.pop("write", ())]
    return policy_of(
        write=write, deny_write=[f"{top}/{name}" for name in NAMES], absent_deny=mode, **more
    )


def text(top: str, body: str, targets: tuple[str, ...] = NAMES) -> str:
    """Return a guest's program."""
    return f"top, targets = {top!r}, {targets!r}\n{body}"

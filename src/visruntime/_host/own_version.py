"""Which version of this package it is, by what was installed with it."""

from __future__ import annotations

import os
import sys
from functools import cache

__all__ = ["KEPT_NAMES", "own_version"]

KEPT_NAMES = ("site-packages", "dist-packages")
"""Folders of ``sys.path`` that are read-only in every jail, see `_jail/protect.py`."""


@cache
def own_version() -> str:
    """Return the version of the installed package.

    It is looked for where no guest writes, and beside the package: in any other folder of
    ``sys.path`` a guest could have put the metadata of another release.

    Raises:
        PackageNotFoundError: it is not installed, but for its files.
    """
    folders = [entry for entry in sys.path if os.path.basename(entry) in KEPT_NAMES]
    folders.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            # The folder's name has it; importlib.metadata would take as long as all else to say it.
            if name.startswith("visruntime-") and name.endswith(".dist-info"):
                return name.removeprefix("visruntime-").removesuffix(".dist-info")
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError("visruntime")

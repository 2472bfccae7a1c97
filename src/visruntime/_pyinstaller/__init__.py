"""What PyInstaller asks packages for: where the recipe for freezing this one is.

It finds this by the entry point ``pyinstaller40`` and runs ``hook-visruntime.py`` at build time;
nothing here is imported otherwise.
"""

from __future__ import annotations

import os

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """Return the folder with the recipe."""
    return [os.path.dirname(__file__)]

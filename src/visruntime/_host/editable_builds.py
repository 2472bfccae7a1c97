"""Editable installs that are built anew by the import itself (scikit-build-core, meson-python).

Their finders start cmake or ninja in a folder of the project before they answer. What lies there
says which programs those start.
"""

from __future__ import annotations

import os
import sys

__all__ = ["build_folders", "builds_before_it_finds"]

FIELDS = (("path", "rebuild_flag"), ("_build_path", "_build_cmd"))
"""Of such finders: the folder, and what is set where they build (``editable.rebuild``)."""


def build_folders() -> dict[str, str]:
    """Return the folders in which finders of this process build, each with the finder's name."""
    found = {}
    for finder in list(sys.meta_path):
        folder = _build_folder(finder)
        if folder:
            found[folder] = f"{type(finder).__module__}.{type(finder).__qualname__}"
    return found


def builds_before_it_finds(finder: object) -> bool:
    """Tell whether asking *finder* for a module may start a build."""
    # scikit-build-core builds once in a process. Whether meson-python did, it keeps to itself.
    return (
        bool(_build_folder(finder)) and getattr(finder, "__dict__", {}).get("rebuilt") is not True
    )


def _build_folder(finder: object) -> str:
    fields = getattr(finder, "__dict__", {})
    for folder, sign in FIELDS:
        path = fields.get(folder)
        if isinstance(path, str) and os.path.isabs(path) and fields.get(sign):
            return path
    return ""

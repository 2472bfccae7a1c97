"""Where interpreters are installed for this user: kept from guests, since workers run them."""

from __future__ import annotations

import os

__all__ = ["version_managers"]


def version_managers() -> list[str]:
    """The folders in which uv and pyenv install interpreters for this user."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv", "python")
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    return [os.path.realpath(uv), os.path.realpath(os.path.join(pyenv, "versions"))]

"""How much of git's settings one call of `JailPolicy.workspace` reads; beyond that it refuses."""

from __future__ import annotations

from visruntime.errors import PolicyError

__all__ = ["Budget"]

MOST_BYTES = 1 << 20
"""Of all files of settings together."""
MOST_FILES = 32
"""With those that they include."""
MOST_CHARACTERS = 1 << 15
"""Of all commands together, in which programs are looked for."""
MOST_PATHS = 20_000
"""That may be those of programs in them, all of which are looked for."""
MOST_SUBMODULES = 8192
"""Each of which is a rule of the policy."""

_UNITS = {
    "bytes": (MOST_BYTES, "bytes"),
    "files": (MOST_FILES, "files"),
    "characters": (MOST_CHARACTERS, "characters of commands"),
    "paths": (MOST_PATHS, "paths in commands"),
    "submodules": (MOST_SUBMODULES, "submodules in .gitmodules"),
}


class Budget:
    """What is left for one call: a guest or a stranger may have written these files."""

    def __init__(self, folder: str) -> None:
        """Begin with all of it, for the workspace *folder*."""
        self._folder = folder
        self._left = {unit: most for unit, (most, _) in _UNITS.items()}

    def spend(self, unit: str, count: int = 1) -> None:
        """Take *count* of "bytes", "files", "characters", "paths" or "submodules".

        Raises:
            PolicyError: not so much is left.
        """
        self._left[unit] -= count
        if self._left[unit] < 0:
            most, name = _UNITS[unit]
            raise PolicyError(
                f"workspace: the settings of git that hold in {self._folder} have more than {most} "
                f"{name}, so not all that they name can be kept; shorten .git/config, what it includes "
                "and .gitmodules, or write a policy of your own with write= and deny_write=",
                field="workspace",
                value=self._folder,
            )

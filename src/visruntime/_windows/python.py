r"""The Python that a worker of a `WindowsJail` runs: that of the host, copied, and ours beside it.

Below ``app`` it is ``python`` (what an installation has, without its packages and tests) and
``worker`` (``vispython.exe``, its core and the guard of consoles, which fits one version of Python).
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from visruntime._policy.values import Frozen
from visruntime.errors import JailUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["StagedPython", "host_python"]

LOADER, CORE, GUARD = "vispython.exe", "_viscore.pyd", "_visconsole.pyd"
"""What they are called in the jail."""
NOT_TAKEN = frozenset(
    ("__pycache__", "ensurepip", "idlelib", "site-packages", "test", "tkinter", "turtledemo")
)
"""Of the standard library. Compiled files would not be taken there, either: copies are newer."""
TAKEN = (".dll", ".exe", ".pyd", ".zip", "._pth")
"""Of the folder of ``python.exe``; that of an embedded distribution holds all of it."""


class StagedPython(Frozen):
    """A Python in a jail: the worker's command, in paths of that jail."""

    __slots__ = ("app", "library", "version")
    app: str
    library: str
    version: str

    def __init__(self, app: str, library: str, version: str) -> None:
        self._set(app=app, library=library, version=version)

    @property
    def guard(self) -> str:
        """The guard of consoles."""
        return rf"{self.app}\worker\{GUARD}"

    def command(self, code: str) -> list[str]:
        """Return what starts a worker that runs *code* first."""
        worker, python = rf"{self.app}\worker", rf"{self.app}\python"
        loader = [rf"{worker}\{LOADER}", "--core", rf"{worker}\{CORE}"]
        loader += ["--name", rf"{python}\python.exe", "--library", rf"{python}\{self.library}"]
        # As on Linux: isolated, and site is started by the bootstrap.
        options = ["-I", "-S", "-B", "-X", "utf8", "-X", "disable-remote-debug"]
        return [*loader, "--expect", self.version, "--", *options, "-c", code]


def host_python(
    prefix: str = sys.base_prefix,
    package: str | None = None,
    suffixes: Sequence[str] = tuple(EXTENSION_SUFFIXES),
) -> tuple[dict[str, str], str]:
    r"""Return what to stage of this host's Python, name below ``app`` -> path, and its library.

    Args:
        prefix: the folder of its installation.
        package: the folder of visruntime, with the worker's files; this one by default.
        suffixes: how the names of modules for this Python end.

    Raises:
        JailUnavailable: ``reason`` is "library"; a part is missing.
    """
    package = os.path.dirname(os.path.dirname(__file__)) if package is None else package
    library = f"python{sys.version_info.major}{sys.version_info.minor}.dll"
    found = dict(_python(prefix))
    for needed in ("python.exe", library):
        if f"python/{needed}" not in found:
            raise _missing(f"{needed} in {prefix}", "run the host by an installed CPython")
    for name in (LOADER, CORE, GUARD):
        stem, _, ending = name.partition(".")
        candidates = [name] if ending == "exe" else [stem + suffix for suffix in suffixes]
        places = (os.path.join(package, candidate) for candidate in candidates)
        path = next((place for place in places if os.path.isfile(place)), None)
        if path is None:
            raise _missing(f"{name} for this Python", "install the build of visruntime for Windows")
        found[f"worker/{name}"] = path
    return found, library


def _python(prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(os.listdir(prefix)):
        path = os.path.join(prefix, entry)
        if entry.lower().endswith(TAKEN) and os.path.isfile(path):
            yield f"python/{entry}", path
        elif entry.lower() == "dlls":
            yield "python/DLLs", path
        elif entry.lower() == "lib":
            for name in sorted(os.listdir(path)):
                if name.lower() not in NOT_TAKEN:
                    yield f"python/Lib/{name}", os.path.join(path, name)


def _missing(what: str, fix: str) -> JailUnavailable:
    return JailUnavailable(
        f"a worker cannot be staged: there is no {what}", stage="worker", reason="library", fix=fix
    )

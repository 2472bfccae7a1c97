"""What a guest must not change because the host runs or trusts it afterwards.

Asked for by no policy and lifted by none: the interpreter and the packages that the host
process imports, this package and its executables, and the package caches from which
installers link files into other environments.
"""

from __future__ import annotations

import os
import sys

from visruntime import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["host_files"]


def host_files(config_files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (real path, what it is) of everything of the host that stays read-only."""
    seen = set()
    for path, what in _candidates(config_files):
        real = os.path.realpath(path)
        if real not in seen and not _is_missing(real):
            seen.add(real)
            yield real, what


def _is_missing(path: str) -> bool:
    """Tell whether nothing is there; what cannot be looked at is not missing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _candidates(config_files: Iterable[str]) -> Iterator[tuple[str, str]]:
    # /usr as a prefix holds far more than the interpreter; what it runs is named below.
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix):
        if os.path.realpath(prefix) not in ("/", "/usr", "/usr/local"):
            yield prefix, "the prefix of the host's Python"
    yield os.path.dirname(os.__file__), "the host's standard library"
    yield sys.executable or os.path.dirname(os.__file__), "the host's interpreter"
    for entry in sys.path:
        if os.path.basename(entry) in ("site-packages", "dist-packages"):
            yield entry, "packages that the host imports"
    yield os.path.dirname(os.path.abspath(__file__)), "the package visruntime"
    yield _native.BINARY_DIRECTORY, "the executables of visruntime"
    for cache in _caches():
        yield cache, "a cache from which installers link files into other environments"
    for path in config_files:
        yield path, "a policy or configuration file in use"


def _caches() -> Iterator[str]:
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    for name, default in (("UV_CACHE_DIR", "uv"), ("PIP_CACHE_DIR", "pip")):
        yield os.environ.get(name) or os.path.join(cache, default)

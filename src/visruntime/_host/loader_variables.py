"""Which files and folders variables of this process name, out of which code is run.

The loader of the system, OpenSSL, the C library and the interpreter take them from there, in this
process and in each that it starts with its own variables, without any import.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["library_folders", "named_by_variables"]

VARIABLES = {
    "LD_PRELOAD": "[: ]",
    "LD_AUDIT": ":",
    "GCONV_PATH": ":",
    "OPENSSL_CONF": "",
    "OPENSSL_CONF_INCLUDE": "",
    "OPENSSL_MODULES": "",
    "OPENSSL_ENGINES": "",
    "PYTHONSTARTUP": "",
}
"""Variables, and what separates paths in them (ld.so(8), iconv(1), openssl-env(7), python(1))."""

DYLD = dict.fromkeys(
    (
        "DYLD_INSERT_LIBRARIES",
        "DYLD_LIBRARY_PATH",
        "DYLD_FRAMEWORK_PATH",
        "DYLD_FALLBACK_LIBRARY_PATH",
        "DYLD_FALLBACK_FRAMEWORK_PATH",
    ),
    ":",
)
"""Those of macOS's loader (dyld(1))."""

_NAME_OF_LOADER = r"\$(?:(ORIGIN|LIB|PLATFORM)\b|\{(ORIGIN|LIB|PLATFORM)\})"


def named_by_variables() -> Iterator[tuple[str, str]]:
    """Yield (path, variable) of the files and folders that `VARIABLES` name."""
    import re

    of_system = DYLD if sys.platform == "darwin" else {}
    for name, separators in (VARIABLES | of_system).items():
        value = os.environ.get(name, "")
        for entry in re.split(separators, value) if separators else [value]:
            for path in _expanded(entry) if name.startswith("LD_") else [entry]:
                # The loader looks for a name without a slash in its own folders.
                if path and (os.sep in path or not name.startswith("LD_")):
                    yield path, name


def library_folders() -> list[str]:
    """Return the folders that the dynamic loader looks in first (ld.so(8)); "" is the current one.

    What the loader puts in for names of its own depends on the program and the system; all that
    it may be here is among them.
    """
    # As glibc reads it: without any text there is none, and both signs separate.
    value = os.environ.get("LD_LIBRARY_PATH", "")
    entries = value.replace(";", ":").split(":") if value else []
    return list(dict.fromkeys(path for entry in entries for path in _expanded(entry)))


def _expanded(entry: str) -> list[str]:
    """Return *entry* with each value that ``$ORIGIN``, ``$LIB`` and ``$PLATFORM`` may have."""
    import re

    token = re.search(_NAME_OF_LOADER, entry)
    if token is None:
        return [entry]
    return [
        path
        for value in _values(token[1] or token[2])
        for path in _expanded(entry[: token.start()] + value + entry[token.end() :])
    ]


def _values(name: str) -> list[str]:
    if name == "ORIGIN":
        return [os.path.dirname(os.path.realpath(sys.executable))]
    if name == "LIB":
        # Debian's loader has a folder for each kind of machine; others have one of these two.
        own = f"lib/{getattr(sys.implementation, '_multiarch', '')}"
        return [own] if own != "lib/" and os.path.isdir(f"/{own}") else ["lib64", "lib"]
    return [os.uname().machine, "haswell", "xeon_phi"]  # glibc tells two of x86_64 apart

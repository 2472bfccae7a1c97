"""What a guest lacks that could not import a module, and how it gets it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime.results import GuestFailure

__all__ = ["explain_missing", "lacking_module", "package_of"]

_BEFORE, _AFTER = "No module named '", "'"
_LONGEST = 100
"""Of the name of a module that is taken up, in characters."""


_PACKAGES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "usb": "pyusb",
    "win32api": "pywin32",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""Modules that are known by another name than their package; nothing in a module tells it."""


def package_of(module: str) -> tuple[str, str]:
    """Return the package that *module* probably comes with, and what to say of that guess.

    The second is empty where the two have one name, as most have.
    """
    package = _PACKAGES.get(module)
    if package is None:
        return module, ""
    return package, f" (a guess: {module} usually comes with the package {package})"


def explain_missing(error: GuestFailure, how_to_add: Callable[[str], str]) -> None:
    """Give *error*, and those linked with it, the explanation that a missing module has.

    Args:
        how_to_add: says for a module how the worker would have it. The name is the guest's claim.
    """
    module = lacking_module(error.type_name, error.message)
    if module is not None and error.explanation is None:
        error.explanation = _explain(module, how_to_add)
    for linked in (error.cause, error.context, *error.exceptions):
        if linked is not None:
            explain_missing(linked, how_to_add)


def lacking_module(type_name: str, message: str) -> str | None:
    """Return the module that an import error of a guest names, if it is one of that kind."""
    if type_name != "ModuleNotFoundError":
        return None
    if not (message.startswith(_BEFORE) and message.endswith(_AFTER)):
        return None
    # Of a part of a package CPython names the whole, with dots; then the package is there.
    name = message[len(_BEFORE) : -len(_AFTER)]
    return name if name.isidentifier() and len(name) <= _LONGEST else None


def _explain(module: str, how_to_add: Callable[[str], str]) -> str:
    if module in sys.stdlib_module_names:
        return f"{module} is of the standard library, and this interpreter has it not"
    return how_to_add(module)

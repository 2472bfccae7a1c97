"""What an installer notes of where a package came from, without what is secret in the address.

``direct_url.json`` has the address of a package that was asked for by one, with its query and its
fragment, and the environment is a guest's. (Packaging specifications: direct URL origin.)
"""

from __future__ import annotations

import json
import posixpath
import time

from visruntime._packages.addresses import without_credentials

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime.jail import Jail

__all__ = ["remove_credentials"]

_NAME = "direct_url.json"
_MOST = 1 << 20
_MOST_RECORD = 64 << 20


def remove_credentials(jail: Jail, packages: str, deadline: float) -> None:
    """Remove the credentials from the addresses in the folder *packages*, by the rights of *jail*.

    The packages' lists of files then have the changed files without a digest.

    Raises:
        TimeoutError: it is later than *deadline* (`time.monotonic`): a build can leave any number.
        VisRuntimeError, OSError, ValueError: a file could not be read or written, or is no such file.
    """
    for name in jail.list_dir(packages):
        if name.endswith(".dist-info"):
            if time.monotonic() > deadline:
                raise TimeoutError
            _change(jail, packages, name)


def _change(jail: Jail, packages: str, name: str) -> None:
    file = posixpath.join(packages, name, _NAME)
    try:
        noted = json.loads(jail.read_bytes(file, max_bytes=_MOST))
    except FileNotFoundError:
        return
    except RecursionError:
        raise ValueError(f"{_NAME} is nested without end") from None
    bare = without_credentials(noted["url"])
    if bare == noted["url"]:
        return
    jail.write_bytes(file, json.dumps(noted | {"url": bare}).encode())
    record = posixpath.join(packages, name, "RECORD")
    own = f"{name}/{_NAME}".encode()
    lines = jail.read_bytes(record, max_bytes=_MOST_RECORD).splitlines()
    changed = [own + b",," if line.startswith(own + b",") else line for line in lines]
    jail.write_bytes(record, b"\n".join([*changed, b""]))

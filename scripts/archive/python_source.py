"""The source of the CPython that a release ships: pinned, and from where it comes."""

from __future__ import annotations

import hashlib
import http.client
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from archive.apt import PrivateApt, debian_mirror

if TYPE_CHECKING:
    from typing import IO

__all__ = [
    "LICENCES",
    "PYTHON",
    "RECORD",
    "Source",
    "SourceRefusedError",
    "digest",
    "obtain",
]


class Source(NamedTuple):
    """One tarball of upstream's: its version, where upstream has it, and its digest."""

    version: str
    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file, as upstream spells it."""
        return self.url.rpartition("/")[2]


PYTHON = Source(
    "3.13.15",
    "https://www.python.org/ftp/python/3.13.15/Python-3.13.15.tar.xz",
    "1e66a7945a48390ee4c2a4268a0e4185884059a13c4aab6d148aa208deea4a76",
)
"""The digest is the one by which the official container images of Python and Debian's source package
(``.orig.tar.xz``) pin the same file. A new version needs both numbers here, and nothing else."""

RECORD = "provenance.json"
"""In a prefix that was compiled: of what, and how, for the bill of materials of an archive."""
LICENCES = "licences"
"""There, too: what upstream says of itself and of the sources of others in it."""
_MOST = 64 << 20
"""Bytes; a CPython has 23 MB."""
_SECONDS = 60
"""That a server may keep silent."""
_SUITES = ("trixie", "forky", "sid")
"""Releases of Debian whose source packages are looked at for the very file."""


class SourceRefusedError(Exception):
    """There is no source that may be built; the message says why, and what to do."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The address is upstream's own; wherever else an answer would lead was not looked at."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> NoReturn:
        """Refuse."""
        del headers
        fp.close()
        raise urllib.error.HTTPError(req.full_url, code, f"{msg}: leads to {newurl}", None, None)  # type: ignore[arg-type]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def obtain(folder: Path, *, given: Path | None = None, source: Source = PYTHON) -> Path:
    """Return the tarball: *given*, or as it lies in *folder*, or fetched into it.

    Fetched from upstream, and where that cannot be reached from the mirror of a Debian system,
    whose source package has the same file. Whatever it comes from, it is compared before use.

    Raises:
        SourceRefusedError: it has another digest, or cannot be had.
    """
    path = given or folder / source.name
    if given is None and not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            fetched = _fetch(source, Path(own))
            _compare(fetched, source)
            fetched.rename(path)
    _compare(path, source)
    return path


def _compare(path: Path, source: Source) -> None:
    if not path.is_file():
        raise SourceRefusedError(f"{path} is no file")
    found = digest(path)
    if found != source.sha256:
        raise SourceRefusedError(
            f"{path} is not {source.name}: its SHA-256 is {found}, and {source.sha256} is pinned"
        )


def _fetch(source: Source, folder: Path) -> Path:
    try:
        return _from_upstream(source, folder / source.name)
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        upstream: Exception = error
    try:
        return _from_debian(source, folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceRefusedError(
            f"{source.url} cannot be had ({upstream}), nor can its copy in Debian ({error}): "
            "get the file yourself, and name it with --source"
        ) from error


def _from_upstream(source: Source, path: Path) -> Path:
    opener = urllib.request.build_opener(_NoRedirects())
    if not source.url.startswith("https://"):
        raise OSError(f"{source.url} is not https")
    with opener.open(source.url, timeout=_SECONDS) as answer, open(path, "wb") as file:
        while data := answer.read(1 << 20):
            file.write(data)
            if file.tell() > _MOST:
                raise OSError(f"{source.url} has more than {_MOST} bytes")
    return path


def _from_debian(source: Source, folder: Path) -> Path:
    """Download Debian's copy, with lists of packages of our own: the system's stay as they are."""
    mirror = debian_mirror()
    apt = PrivateApt(folder, [f"deb-src {mirror} {suite} main" for suite in _SUITES])
    apt.run("apt-get", "-qq", "update")
    package = "python" + ".".join(source.version.split(".")[:2])
    for paragraph in apt.run("apt-cache", "showsrc", package).split("\n\n"):
        version = re.search(r"^Version: (\S+)$", paragraph, re.MULTILINE)
        if version is None or source.sha256 not in paragraph:
            continue
        apt.run("apt-get", "-qq", "source", "--download-only", f"{package}={version[1]}")
        (path,) = apt.got.glob("*.orig.tar.*z")
        return path
    raise OSError(f"no {package} of {', '.join(_SUITES)} is made of the pinned file")

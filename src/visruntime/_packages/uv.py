"""Find uv, and say how it is called in the jail of a build."""

from __future__ import annotations

import os
import stat
import sys

from visruntime._host.own_prefixes import own_prefixes
from visruntime._packages.addresses import credentials
from visruntime._policy.links import named_path
from visruntime._policy.paths import ancestors, is_within
from visruntime._policy.values import Secret
from visruntime.elf import Program
from visruntime.environments import is_out_of_reach
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "DEFAULT_INDEX",
    "certificates",
    "check_index",
    "find_uv",
    "host_cache",
    "is_kept",
    "secret_addresses",
    "settings",
    "variables",
]

DEFAULT_INDEX = "default"
"""As an index: the one that uv itself takes."""

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def check_index(index: object) -> None:
    """Refuse an ``index=`` that uv could not ask.

    Raises:
        TypeError: it is no text.
        PolicyError: it is neither a URL nor ``"default"``. Its text may hold a password and is
            only repeated where nothing in it looks like one.
    """
    if index is None or index == DEFAULT_INDEX:
        return
    from urllib.parse import urlsplit

    if not isinstance(index, str):
        raise TypeError(
            f'index: expected a URL, "default", or None for no network, not {type(index).__name__}'
        )
    try:
        parts = urlsplit(index)
        right = parts.scheme == "file" or (parts.scheme in ("http", "https") and parts.hostname)
    except ValueError:
        right = False
    if not right or not index.isprintable() or index != index.strip():
        said = "" if "@" in index or "?" in index else f", not {index!a:.60}"
        raise PolicyError(
            'index: the URL of a package index, such as https://example.org/simple, or "default"'
            + said,
            field="index",
        )


def find_uv(
    given: str | os.PathLike[str] | None = None,
    write: Sequence[str] = (),
    *,
    secret: bool = False,
) -> str:
    """Return the real path of uv: *given*, or the first program of that name that is found.

    It runs in the build's jail only. There it makes what others are given too, so none from a
    write grant is taken.

    Args:
        write: the folders and files that guests may write.
        secret: it will see a password, so one is taken only from where no earlier guest can have
            put it either; *given* is the caller's to judge.

    Raises:
        PolicyError: there is none; the message says how to get it. Or *given* is reached through a
            link that a guest could have made.
    """
    if given is not None:
        path = named_path("uv", given)
        problem = _written(os.fspath(given), path, write) or _problem(path)
        if problem:
            raise PolicyError(f"environment: uv={given!s}: {problem}", field="environment")
        return path
    tried = []
    for candidate in dict.fromkeys(_candidates()):
        path = os.path.realpath(candidate)
        if not os.path.isfile(path):
            continue
        problem = _written(candidate, path, write) or _problem(path)
        if not problem and secret and not (os.path.basename(path) == "uv" and is_kept(path)):
            problem = "a guest may have made it"
        if not problem:
            return path
        tried.append(f"{candidate}: {problem}")
    seen = f" ({'; '.join(tried)})" if tried else ""
    if secret:
        raise PolicyError(
            "environment: the index, a proxy or a requirement has a password, which uv gets to know, "
            f"and there is no uv here that no guest can have made{seen}; install one for the system, "
            "or beside visruntime (pip install uv), or name the one that you trust with uv=",
            field="environment",
        )
    raise PolicyError(
        f"environment: uv is not installed here{seen}; install it (pipx install uv), or name it "
        "with uv=",
        field="environment",
    )


def is_kept(path: str) -> bool:
    """Tell whether no guest can have made the program at the real *path*."""
    if is_out_of_reach(path) or (os.geteuid() != 0 and _is_roots(path)):
        return True
    return any(is_within(path, os.path.realpath(prefix)) for prefix in own_prefixes())


def _is_roots(path: str) -> bool:
    """Tell whether only root writes at *path*, so that no guest of another user does."""
    for step in ancestors(path):
        status = os.lstat(step)
        is_sticky = step != path and status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or (status.st_mode & 0o022 and not is_sticky):
            return False
    return True


def _written(name: str, path: str, write: Sequence[str]) -> str:
    """Say that a guest could have made the file, or a link on the way to it."""
    trees = [*write, *map(os.path.realpath, write)]
    folder = os.path.realpath(os.path.dirname(os.path.abspath(name)))
    for place in (path, os.path.abspath(name), os.path.join(folder, os.path.basename(name))):
        for tree in trees:
            if is_within(place, tree):
                return f"it lies inside the write grant {tree}, so a guest may have made it"
    return ""


def _problem(path: str) -> str:
    if not os.access(path, os.X_OK):
        return "it is not executable"
    try:
        Program(path)
    except (OSError, ValueError) as problem:
        return str(problem)
    return ""


def _candidates() -> Iterator[str]:
    """Yield where uv may be; a version manager's shim is a script and is passed over."""
    if os.environ.get("UV"):  # which uv sets for what it runs
        yield os.environ["UV"]
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):  # the current folder may be a guest's
            yield os.path.join(folder, "uv")
    for prefix in (sys.prefix, sys.base_prefix):
        yield os.path.join(prefix, "bin", "uv")
    for folder in ("~/.local/bin", "~/.cargo/bin"):
        yield os.path.join(os.path.expanduser(folder), "uv")


def settings(index: str | None) -> bytes:
    """Return the configuration of uv that names *index*: empty where uv's own is meant, or none.

    It goes by a pipe. On the command line everybody on the machine could read the password, and
    in a variable it would be for whoever wrote a lock or the metadata of a package: uv puts the
    values of variables into the addresses in them (``${NAME}``), but nothing of its configuration.
    """
    import json

    if index is None or index == DEFAULT_INDEX:
        return b""
    # Printable text, as `check_index` has it, is quoted alike in TOML and in JSON.
    return f"[[index]]\nurl = {json.dumps(index, ensure_ascii=False)}\ndefault = true\n".encode()


def variables(cache: str, index: str | None) -> dict[str, str | Secret]:
    """Return the environment of uv: nothing of the user's configuration decides what it does.

    Whatever has an upper-case name here, uv shows to whom a lock or a package names: see
    `settings`. So the proxies, which have passwords too, keep their lower-case names only.
    """
    given: dict[str, str | Secret] = {
        "UV_CACHE_DIR": cache,
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if index is None:
        given["UV_OFFLINE"] = "1"
        return given
    given |= {name: os.environ[name] for name in _CERTIFICATES if os.environ.get(name)}
    for name in _PROXIES:
        # Of the two spellings uv takes the upper-case one, where it is not empty.
        value = os.environ.get(name) or os.environ.get(name.lower())
        if value:
            given[name.lower()] = Secret(value)
    return given


def secret_addresses(index: str | None) -> list[str]:
    """Return the addresses with credentials that uv is given: of the index, and of proxies."""
    if index is None:
        return []
    given = [index, *(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES)]
    return [address for address in given if address and credentials(address)]


def certificates() -> list[str]:
    """Return the files of certificates that the user's variables name.

    Raises:
        PolicyError: one leads through a link that a guest could have made.
    """
    named = [(name, os.environ[name]) for name in _CERTIFICATES if os.environ.get(name)]
    paths = [named_path(name, path) for name, path in named]
    return [path for path in paths if os.path.exists(path) and path != "/"]


def host_cache() -> str | None:
    """Return the folder of the user's own uv cache if there is one.

    Raises:
        PolicyError: it leads through a link that a guest could have made.
    """
    default = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = named_path("UV_CACHE_DIR", os.environ.get("UV_CACHE_DIR") or os.path.join(default, "uv"))
    return path if os.path.isdir(path) else None

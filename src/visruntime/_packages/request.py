"""Read what an environment is to hold: a project's lock, requirements, or a script's metadata.

Everything is read once, into bytes: the build gets these copies and the key is made of them,
so that nobody can change the one without the other.
"""

from __future__ import annotations

import os
import re
import shlex

from visruntime._host.files import open_regular, refuse_planted
from visruntime._packages.addresses import credentials_in, without_credentials
from visruntime._packages.lock import VARIABLE, is_local, source_folders
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

__all__ = [
    "PACKAGE",
    "Request",
    "of_project",
    "of_requirements",
    "of_script",
    "read_requirements",
    "read_script",
    "script_metadata",
]

PACKAGE = "\0"
"""Stands for a package's name in `Request.add`."""
MAX_FILE_BYTES = 16 * 1024**2
"""Largest lock, project file or script that is read, in bytes."""
MOST_PARSING = 512 * 1024**2
"""Most bytes of memory that reading one of them may take; a lock of the largest size takes half."""
MAX_SHOWN = 10_000
"""Characters of a line that are looked through for messages."""
MAX_REQUIREMENTS = 10_000
"""Most requirements of one environment."""

_OPEN = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_CLOSE = "# ///"
_HASH = re.compile(r"\s--hash[=\s]")
_CONTROL = re.compile("[\0-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REQUIREMENT = re.compile(
    _NAME.pattern + r"\s*(?:\[[^\]]*\])?\s*(?:@\s*(?P<place>\S*)|[<>=!~(;]|--hash|$)"
)
"""The beginning of a requirement, up to what follows its name; the rest is for uv."""
_EXPORT = ("--frozen", "--no-emit-local", "--no-header", "--no-annotate")


class Request:
    """What is to be installed, and how uv gets to know it.

    ``label`` names it in messages, ``files`` are the bytes that the build gets, ``export`` the
    arguments of ``uv export`` that turn a lock into requirements (``None``: the file
    ``requirements.in`` has them), ``hashed`` whether each of them carries a hash (``None``: only
    the export tells), ``requires_python`` what the owner of the file asks of the interpreter,
    ``paths`` the folders of source that belong to it, ``add`` how a package is added, with
    `PACKAGE` for its name.
    """

    __slots__ = ("add", "export", "files", "hashed", "label", "paths", "requires_python")

    def __init__(
        self,
        *,
        label: str,
        files: dict[str, bytes],
        export: tuple[str, ...] | None = None,
        hashed: bool | None = None,
        requires_python: str | None = None,
        paths: tuple[str, ...] = (),
        add: str = "",
    ) -> None:
        self.label: str = label
        self.files: dict[str, bytes] = files
        self.export: tuple[str, ...] | None = export
        self.hashed: bool | None = hashed
        self.requires_python: str | None = requires_python
        self.paths: tuple[str, ...] = paths
        self.add: str = add

    @property
    def secrets(self) -> set[str]:
        """The credentials in addresses that it names.

        Raises:
            PolicyError: there are too many to keep them out of what is shown.
        """
        contents = [content.decode("utf-8", "replace") for content in self.files.values()]
        try:
            return credentials_in(*contents)
        except ValueError as error:
            raise _error(
                f"{self.label}: {error}; give them to the index or a proxy instead"
            ) from None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be installed."""
        return self.files == {"requirements.in": b""}


def of_project(
    folder: str, *, extras: Sequence[str], groups: Sequence[str], editable: bool
) -> Request:
    """Read the project in *folder*: its ``pyproject.toml`` and its ``uv.lock``.

    Raises:
        PolicyError: there is no lock, or it names what cannot be installed without running
            its code.
    """
    project = _read(os.path.join(folder, "pyproject.toml"), f"{folder} is no project")
    lock = _read(
        os.path.join(folder, "uv.lock"),
        f"{folder} has no lock; make one with `uv lock` there (that of a workspace stands in its "
        "root: give that folder)",
    )
    table = _toml(project, os.path.join(folder, "pyproject.toml"))
    about = table.get("project")
    wanted = about.get("requires-python") if isinstance(about, dict) else None
    name = os.path.join(folder, "uv.lock")
    paths = source_folders(_toml(lock, name), name, folder, wanted=editable)
    chosen = [*(("--extra", name) for name in _named(extras, "extras"))]
    chosen += [("--group", name) for name in _named(groups, "groups")]
    return Request(
        label=f"the project {folder}",
        files={"pyproject.toml": project, "uv.lock": lock},
        # The development group is pulled in unless it is refused.
        export=(*_EXPORT, "--no-default-groups", *(word for pair in chosen for word in pair)),
        requires_python=wanted if isinstance(wanted, str) else None,
        paths=paths,
        add=f"uv add --project {shlex.quote(folder)} {PACKAGE}",
    )


def of_requirements(lines: Iterable[str], *, label: str, add: str) -> Request:
    """Take requirements as ``requirements.txt`` has them; options of pip are refused.

    Raises:
        PolicyError: naming the line.
    """
    wanted = list(_logical(lines))
    if len(wanted) > MAX_REQUIREMENTS:
        raise _error(f"{len(wanted)} requirements, at most {MAX_REQUIREMENTS}")
    for line in wanted:
        if line.startswith("-"):
            raise _error(
                f"{label}: {_shown(line)} is an option of pip, which a list of requirements cannot "
                "have here: name the wheelhouse or the index where the environment is made"
            )
        if VARIABLE.search(line):
            raise _error(
                f"{label}: {_shown(line)} names a variable of the environment, which uv would put "
                "in: write the value itself"
            )
        parts = _REQUIREMENT.match(line)
        if parts is None:
            raise _error(
                f"{label}: {_shown(line)} is no requirement; it begins with a package's name, such as "
                "requests>=2"
            )
        if parts["place"] is not None and is_local(parts["place"]):
            raise _error(
                f"{label}: {_shown(line)} names a place that is no address of a server (http, https); "
                "put a wheel of it into a wheelhouse and name the package and its version"
            )
    return Request(
        label=label,
        files={"requirements.in": "".join(f"{line}\n" for line in wanted).encode()},
        hashed=all(_HASH.search(line) for line in wanted),
        add=add,
    )


def read_script(path: str) -> bytes:
    """Return the bytes of the script at *path*."""
    if "\n" in path:
        raise _error(
            "the text of a script is given as bytes: script.encode(); as text it is a path"
        )
    return _read(path, f"{path} cannot be read")


def read_requirements(path: str) -> list[str]:
    """Return the lines of the file of requirements at *path*."""
    return _text(_read(path, f"{path} cannot be read"), path).splitlines()


def of_script(source: bytes, path: str | None, extra: Sequence[str] = ()) -> Request | None:
    """Take the packages that a script asks for (PEP 723), and those of *extra*.

    The lock beside it (``uv lock --script``) is used where there is one.

    Returns:
        ``None`` for a script that asks for nothing.

    Raises:
        PolicyError: the metadata is malformed or asks for what cannot be done.
    """
    name = path or "the script"
    metadata = script_metadata(source, name)
    wanted = metadata.get("dependencies", [])
    if not isinstance(wanted, list) or not all(isinstance(line, str) for line in wanted):
        raise _error(f"{name}: dependencies is a list of texts in a script's metadata")
    python = metadata.get("requires-python")
    add = (
        f"uv add --script {shlex.quote(path)} {PACKAGE}"
        if path
        else f"{PACKAGE} among its dependencies"
    )
    lock = _script_lock(path)
    if lock is not None and not extra:
        source_folders(_toml(lock, f"{path}.lock"), f"{path}.lock", None, wanted=False)
        return Request(
            label=name,
            files={"script.py": _only_metadata(source), "script.py.lock": lock},
            export=("--script", "script.py", *_EXPORT),
            requires_python=python if isinstance(python, str) else None,
            add=add,
        )
    tool = metadata.get("tool")
    if isinstance(tool, dict) and tool.get("uv"):
        # Left out, a package could come from another place than the script's author meant.
        raise _error(
            f"{name}: [tool.uv] in a script's metadata takes a lock; make one with "
            f"`uv lock --script {name}`"
        )
    if not wanted and not extra and not isinstance(python, str):
        return None
    request = of_requirements([*wanted, *extra], label=name, add=add)
    request.requires_python = python if isinstance(python, str) else None
    return request


def script_metadata(source: bytes, name: str) -> dict[str, Any]:
    """Return the metadata that stands in a script's comments (PEP 723), empty if none does.

    Raises:
        PolicyError: it is malformed, or there are two.
    """
    blocks = _blocks(source)
    if len(blocks) > 1:
        raise _error(f"{name} has {len(blocks)} blocks of metadata, and one is allowed")
    if not blocks:
        return {}
    first, lines = blocks[0]
    return _toml("\n".join(line[2:] for line in lines).encode(), name, before=first)


def _blocks(source: bytes) -> list[tuple[int, list[str]]]:
    """Return of each block for scripts how many lines of the script come before, and its lines.

    The two around it are none of them.

    As the expression of PEP 723 finds them, but looking at each line once: the script may have
    been written to be long in the reading.
    """
    if b"# ///" not in source:
        return []
    lines = source.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    found = []
    at = 0
    while at < len(lines):
        opened = _OPEN.fullmatch(lines[at])
        at += 1
        if opened is None:
            continue
        start, last = at, None
        while at < len(lines) and (lines[at] == "#" or lines[at].startswith("# ")):
            if lines[at] == _CLOSE and at > start:
                last = at
            at += 1
        # Without an end there is none further down either, up to where the comments stop.
        if last is not None:
            at = last + 1
            if opened[1] == "script":
                found.append((start, lines[start:last]))
    return found


def _only_metadata(source: bytes) -> bytes:
    """Return the script without its code, which the build has no need of."""
    text = "".join(
        "".join(f"{line}\n" for line in ("# /// script", *block, _CLOSE))
        for _, block in _blocks(source)
    )
    return text.encode()


def _script_lock(path: str | None) -> bytes | None:
    lock = f"{path}.lock" if path else ""
    return _read(lock, f"{lock} cannot be read") if lock and os.path.lexists(lock) else None


def _logical(lines: Iterable[str]) -> Iterable[str]:
    """Join lines that go on, and drop comments and what is empty."""
    whole = ""
    for line in lines:
        text = line.rstrip("\r\n")
        if len(text) > MAX_FILE_BYTES or _CONTROL.search(text):
            raise _error(f"{_shown(text)}: a requirement is one line, without control characters")
        part = _without_comment(text).strip()
        if part.endswith("\\"):
            whole += part[:-1].strip() + " "
            continue
        whole += part
        if whole.strip():
            yield " ".join(whole.split())
        whole = ""
    if whole.strip():
        yield " ".join(whole.split())


def _without_comment(line: str) -> str:
    """Cut what begins with a # that stands at the beginning or after a space."""
    at = line.find("#")
    while at > 0 and not line[at - 1].isspace():
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at]


def _named(names: Sequence[str], what: str) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"{what}: a list of names, not one text")
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _error(f"{what}: {name!a:.60} is no name")
    return list(names)


def _read(path: str, problem: str) -> bytes:
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError as error:
        where = "" if problem.startswith(path) else f"{path}: "
        raise _error(f"{problem} ({where}{error.strerror})") from None
    with open(descriptor, "rb") as file:
        try:
            refuse_planted(descriptor, path)
        except PermissionError as error:
            raise _error(f"{path}: {error.strerror}") from None
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _error(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return content


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _error(f"{path} is no UTF-8 text") from None


def _toml(content: bytes, path: str, *, before: int | None = None) -> dict[str, Any]:
    """Parse a file, or the metadata of a script that stands behind *before* lines of it."""
    import tomllib

    from visruntime._config.cost import too_expensive
    from visruntime._config.lines import line_of_fault

    text = _text(content, path)
    cost = too_expensive(text, most=MOST_PARSING)
    if cost is not None:
        raise _error(f"{path}, line {cost[0] + (before or 0)}: {cost[1]}")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError, MemoryError) as problem:
        # A number can have more digits than Python turns into one (ValueError).
        line = line_of_fault(text, problem)
        where = path if line is None else f"{path}, line {line + (before or 0)}"
        what = "no TOML" if before is None else "the metadata of the script is no TOML"
        # Its own account of the place counts from the start of the metadata.
        said = str(problem).partition(" (at ")[0]
        raise _error(f"{where}: {what}: {said}") from None


def _shown(line: str) -> str:
    """Return the beginning of a line for messages, without passwords."""
    return ascii(without_credentials(line[:MAX_SHOWN])[:60])


def _error(message: str) -> PolicyError:
    return PolicyError(f"environment: {message}", field="environment")

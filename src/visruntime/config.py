"""Policy files: where they are looked for and how they are read."""

from __future__ import annotations

import os
from contextlib import contextmanager

from visruntime._arguments import check_path
from visruntime._config.python import TABLE, PythonSettings
from visruntime._host.files import open_passed, open_regular
from visruntime._policy.paths import has_glob
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from visruntime.policy import JailPolicy

__all__ = [
    "CONFIG_NAMES",
    "MAX_CONFIG_BYTES",
    "SCHEMAS",
    "ConfigFile",
    "PythonSettings",
    "find_configs",
    "narrow_by_config",
    "parse_size",
    "python_settings",
    "read_config",
    "schema",
]

CONFIG_NAMES = ("visruntime.toml", "pyproject.toml")
"""Names of policy files; all that are found count, the second with [tool.visruntime]."""

MAX_CONFIG_BYTES = 1024**2
"""Largest policy file that is read, in bytes."""

MAX_FOUND_RULES = 1000
"""Most paths in all rule fields together of a file that narrows: a guest may have made it."""

MAX_FOUND_PATTERNS = 256
"""Most of them that are patterns."""

RULES = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")

NO_LIMIT = "none"
"""How a file writes that there is no limit; TOML has no null."""

SCHEMAS = ("policy", "report", "doctor", "confinement")
"""What a JSON Schema is shipped for: policy files, ``--report``, and ``doctor`` with ``--json``."""

UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
SIZE_LIMITS = ("memory", "file_size", "scratch", "output")


def parse_size(text: str, field: str) -> int:
    """Return the bytes that *text* means: ``"4096"``, ``"512M"``, ``"1GiB"`` (powers of 1024).

    Raises:
        PolicyError: naming *field*.
    """
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    digits, unit = number, ""
    if number[-1:] in UNITS and number[-1:]:
        digits, unit = number[:-1], number[-1]
    digits = digits.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise PolicyError(
            f"{field}: a size such as 4096, 512M or 1GiB, not {text[:60]!a}",
            field=field,
            value=text,
        )
    return int(digits) * UNITS[unit]


class ConfigFile:
    """One policy file, read once: its table, and how errors about it are told.

    Args:
        path: a ``visruntime.toml``, or a ``pyproject.toml`` with ``[tool.visruntime]``.

    Attributes:
        name: the absolute path.
        table: the policy as plain data; sizes in text, such as "512MiB", are numbers.
        python: what the table ``[python]`` says, which is not part of the policy.

    Raises:
        PolicyError: for a file that is too large, no TOML, or a pyproject.toml without
            ``[tool.visruntime]``.
        OSError: if it cannot be read, is no regular file, or is reached through a link that a
            guest could have made (ELOOP).
    """

    __slots__ = ("_place", "_text", "name", "python", "table")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name: str = os.path.abspath(check_path(path, "path"))
        self.table: dict[str, Any]
        self._text, self.table = _parse(self.name)
        self._place: tuple[str, ...] = ()
        if os.path.basename(self.name) == "pyproject.toml":
            table = _tool_table(self.name, self.table)
            if table is None:
                raise PolicyError(
                    f"{self.name!a} has no [tool.visruntime] table", field="policy", file=self.name
                )
            self.table, self._place = table, ("tool", "visruntime")
        with self.errors_named():
            _read_limits(self.table.get("limits"))
            self.python: PythonSettings = PythonSettings.from_table(self.table.pop(TABLE, {}))

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Say in each PolicyError of the block which file it is about, and which line."""
        try:
            yield
        except PolicyError as error:
            from visruntime._config.lines import line_of

            line = line_of(self._text, error.field, self._place) if error.field else None
            where = f"{self.name!a}, line {line}" if line else f"{self.name!a}"
            raise type(error)(
                f"{where}: {error}",
                field=error.field,
                value=error.value,
                file=self.name,
                line=line,
            ) from None

    def policy(self) -> JailPolicy:
        """Return the policy that the file alone gives; relative paths start at its folder.

        Raises:
            PolicyError: naming the file, the line and the field.
        """
        from visruntime.policy import JailPolicy

        with self.errors_named():
            policy = JailPolicy.from_dict(self.table, folder=os.path.dirname(self.name))
        policy._set(files=(self.name,))
        return policy


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the policy table of the TOML file *path*, as plain data.

    Raises:
        PolicyError: as `ConfigFile` does.
        OSError: if it cannot be read.
    """
    return ConfigFile(path).table


def find_configs(folder: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the policy files in *folder*.

    Only *folder* itself is looked at, never its parents. All of them count: a guest that
    makes one must not put another, which narrows more, out of force. A link or something
    else in the place of one is found as well, and refused by who reads it.

    Raises:
        PolicyError: for a pyproject.toml that is no TOML.
        OSError: for one that cannot be read, or is a link that a guest could have made.
    """
    found = []
    for name in CONFIG_NAMES:
        path = os.path.join(os.fspath(folder), name)
        if not os.path.lexists(path):
            continue
        if name != "pyproject.toml" or _tool_table(path, _parse(path)[1]) is not None:
            found.append(path)
    return found


def narrow_by_config(owner: JailPolicy, path: str | os.PathLike[str] | ConfigFile) -> JailPolicy:
    """Return *owner* narrowed by the policy file *path*; it can take away and never add.

    Fields that the file leaves out stay as the owner gave them.

    Raises:
        PolicyError: naming the file's wrong field, or for more than `MAX_FOUND_RULES` paths
            or `MAX_FOUND_PATTERNS` patterns: a guest may have written the file.
        OSError: if it cannot be read.
    """
    from visruntime._policy.fields import fields_from_dict

    file = path if isinstance(path, ConfigFile) else ConfigFile(path)
    data = dict(file.table)
    with file.errors_named():
        limits = data.pop("limits", None)
        given = fields_from_dict(data, folder=os.path.dirname(file.name))
        if limits is not None:
            checked = fields_from_dict({"limits": limits})["limits"]
            named = {name: getattr(checked, name) for name in limits}
            given["limits"] = owner.limits.replace(**named)
        _check_count(given)
        asked = owner.replace(**given)
        written = [path for kind in RULES for path in getattr(asked, kind) if kind in given]
        own = owner.patterns.keys() - owner.found
        asked._set(found=owner.found | (asked.patterns.keys() & written) - own)
    narrowed = owner.narrow(asked)
    narrowed._set(files=tuple(dict.fromkeys((*narrowed.files, file.name))))
    return narrowed


def _check_count(given: Mapping[str, Any]) -> None:
    """Refuse more rules than a file that was only found may have.

    Raises:
        PolicyError: naming the field that goes beyond.
    """
    left = {"rules": MAX_FOUND_RULES, "patterns": MAX_FOUND_PATTERNS}
    for kind in RULES:
        for path in given.get(kind, ()):
            left["rules"] -= 1
            left["patterns"] -= has_glob(os.fspath(path))
            short = [name for name, count in left.items() if count < 0]
            if short:
                most = {"rules": MAX_FOUND_RULES, "patterns": MAX_FOUND_PATTERNS}[short[0]]
                raise PolicyError(
                    f"{kind}: more than {most} {short[0]} in a policy file that was found; deny "
                    "or grant folders, or name the file (--policy, JailPolicy.load)",
                    field=kind,
                )


def python_settings(
    owner: str | os.PathLike[str] | ConfigFile | None = None,
    found: Iterable[str | os.PathLike[str] | ConfigFile] = (),
    *,
    tls_strict: bool | None = None,
) -> PythonSettings:
    """Return what the tables ``[python]`` of files give together, for jailed and other workers.

    Args:
        owner: the file that whoever starts the worker named, if there is one.
        found: files that merely lie in a project; they can make stricter and never relax.
        tls_strict: what the caller itself asks for, which goes before *owner*.

    Raises:
        PolicyError: a wrong file, or a found one that relaxes what is strict without it.
        OSError: if one cannot be read.
    """
    if tls_strict is None and owner is not None:
        named = owner if isinstance(owner, ConfigFile) else ConfigFile(owner)
        tls_strict = named.python.tls_strict
    for path in found:
        file = path if isinstance(path, ConfigFile) else ConfigFile(path)
        asked = file.python.tls_strict
        if asked is False and tls_strict is not False:
            with file.errors_named():
                raise PolicyError(
                    f"{TABLE}.tls_strict: a file that is only found may not relax the checks of "
                    "certificates; if you mean it, give --tls-lenient, or name a file that says "
                    "so by --policy",
                    field=f"{TABLE}.tls_strict",
                    value=asked,
                )
        if asked is True:
            tls_strict = True
    return PythonSettings(tls_strict=tls_strict)


def schema(name: str) -> dict[str, Any]:
    """Return one of the JSON Schemas that the package holds: see `SCHEMAS`."""
    import json

    if name not in SCHEMAS:
        raise ValueError(f"schema: one of {', '.join(SCHEMAS)}, not {name!a}")
    path = os.path.join(os.path.dirname(__file__), "schemas", f"{name}.schema.json")
    with open(path, encoding="utf-8") as file:
        content: dict[str, Any] = json.load(file)
    return content


def _read_limits(limits: object) -> None:
    """Turn the texts in the table [limits] into what `Limits` takes."""
    if not isinstance(limits, dict):
        return
    for limit, value in limits.items():
        if value == NO_LIMIT and limit != "memory_by":
            limits[limit] = None
        elif limit in SIZE_LIMITS and isinstance(value, str):
            limits[limit] = parse_size(value, f"limits.{limit}")


def _parse(name: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and the data in it."""
    import tomllib

    from visruntime._config.cost import too_expensive

    passed = open_passed(name)
    with open(open_regular(name, os.O_RDONLY) if passed is None else passed, "rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise PolicyError(
            f"{name!a}: larger than {MAX_CONFIG_BYTES} bytes", field="policy", file=name
        )
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    expensive = too_expensive(text)
    if expensive is not None:
        raise PolicyError(
            f"{name!a}, line {expensive[0]}: {expensive[1]}",
            field="policy",
            file=name,
            line=expensive[0],
        )
    try:
        content.decode("utf-8")
        return text, tomllib.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        from visruntime._config.lines import line_of_fault

        line = line_of_fault(text, error)
        where = f"{name!a}, line {line}" if line else f"{name!a}"
        raise PolicyError(
            f"{where}: no TOML: {error}", field="policy", file=name, line=line
        ) from None


def _tool_table(name: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the [tool.visruntime] table of the pyproject.toml *name*, if it has one."""
    tool = data.get("tool")
    table = tool.get("visruntime") if isinstance(tool, dict) else None
    if table is None or isinstance(table, dict):
        return table
    raise PolicyError(f"{name!a}: tool.visruntime is no table", field="policy", file=name)

"""Policy files: where they are looked for and how they are read."""

from __future__ import annotations

import os
from contextlib import contextmanager

from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from visruntime.policy import JailPolicy

__all__ = [
    "CONFIG_NAMES",
    "MAX_CONFIG_BYTES",
    "errors_named",
    "find_config",
    "narrow_by_config",
    "parse_size",
    "read_config",
]

CONFIG_NAMES = ("visruntime.toml", "pyproject.toml")
"""Names of policy files, the first found wins; the second counts with [tool.visruntime]."""

MAX_CONFIG_BYTES = 1024**2
"""Largest policy file that is read, in bytes."""

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


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the policy table of the TOML file *path*, as plain data.

    Sizes in ``[limits]`` may be text such as "512MiB".

    Raises:
        PolicyError: for a file that is too large, no TOML, or a pyproject.toml without
            ``[tool.visruntime]``.
        OSError: if it cannot be read.
    """
    name = os.fspath(path)
    data = _parse(name)
    if os.path.basename(name) == "pyproject.toml":
        table = _tool_table(data)
        if table is None:
            raise PolicyError(f"{name!a} has no [tool.visruntime] table", field="policy")
        data = table
    limits = data.get("limits")
    if not isinstance(limits, dict):
        return data
    with errors_named(name):
        for limit in SIZE_LIMITS:
            if isinstance(limits.get(limit), str):
                limits[limit] = parse_size(limits[limit], f"limits.{limit}")
    return data


def find_config(folder: str | os.PathLike[str]) -> str | None:
    """Return the path of the policy file in *folder*, ``None`` if there is none.

    Only *folder* itself is looked at, never its parents.

    Raises:
        PolicyError: for a pyproject.toml that is no TOML.
        OSError: for one that cannot be read.
    """
    for name in CONFIG_NAMES:
        path = os.path.join(os.fspath(folder), name)
        if not os.path.isfile(path):
            continue
        if name != "pyproject.toml" or _tool_table(_parse(path)) is not None:
            return path
    return None


def narrow_by_config(owner: JailPolicy, path: str | os.PathLike[str]) -> JailPolicy:
    """Return *owner* narrowed by the policy file *path*; it can take away and never add.

    Fields that the file leaves out stay as the owner gave them.

    Raises:
        PolicyError: naming the file's wrong field.
        OSError: if it cannot be read.
    """
    from visruntime.policy import fields_from_dict

    data = read_config(path)
    with errors_named(path):
        limits = data.pop("limits", None)
        given = fields_from_dict(data, folder=os.path.dirname(os.path.abspath(path)))
        if limits is not None:
            checked = fields_from_dict({"limits": limits})["limits"]
            named = {name: getattr(checked, name) for name in limits}
            given["limits"] = owner.limits.replace(**named)
        return owner.narrow(owner.replace(**given))


@contextmanager
def errors_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in each PolicyError of the block that it is about the file *path*."""
    try:
        yield
    except PolicyError as error:
        raise type(error)(
            f"{os.fspath(path)!a}: {error}", field=error.field, value=error.value
        ) from None


def _parse(name: str) -> dict[str, Any]:
    import tomllib

    with open(name, "rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise PolicyError(f"{name!a}: larger than {MAX_CONFIG_BYTES} bytes", field="policy")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{name!a} is no TOML: {error}", field="policy") from None


def _tool_table(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the [tool.visruntime] table of a pyproject.toml."""
    tool = data.get("tool")
    table = tool.get("visruntime") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None

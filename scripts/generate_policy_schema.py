#!/usr/bin/env python3
"""Write the JSON Schema of policy files from the policy's own fields, types and texts.

    uv run python scripts/generate_policy_schema.py [--check]

Each field of `JailPolicy` and of `Limits` becomes a property: its shape from its annotation,
its description from the docstring, its default from a policy without any change. An
annotation that has no shape here is an error, so that no field is left out in silence.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import generated

from visruntime import config, policy
from visruntime._config import python as _config_python
from visruntime._policy import environment_names as names
from visruntime._policy import fields, values

if TYPE_CHECKING:
    from typing import Any

OUTPUT = Path(__file__).resolve().parent.parent / "src/visruntime/schemas/policy.schema.json"

PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"
SIZE = r"^\s*[0-9]{1,20}\s*[KkMmGgTt]?[Ii]?[Bb]?\s*$"
LARGEST = {
    "cpus": values.MAX_CPUS,
    "cpu_seconds": values.MAX_SECONDS,
    "open_files": values.MAX_OPEN_FILES,
    "processes": values.MAX_PROCESSES,
    "wall_seconds": values.MAX_SECONDS,
} | dict.fromkeys(config.SIZE_LIMITS, values.MAX_BYTES)
LISTS = {
    "services": {"type": "string", "pattern": r"^[A-Za-z0-9._:/@-]{1,255}$"},
    "inherit_env": {"type": "string", "pattern": VARIABLE, "maxLength": 1024},
}

IN_A_FILE = {
    "egress": "off, open (the host's network), or a table with the hosts that a proxy lets through.",
    "limits": "How much a jail may use; none means no limit.",
}
"""Descriptions of what a file writes in another way than Python."""


def descriptions(cls: type[Any]) -> dict[str, str]:
    """Return what the docstring of *cls* says of each argument, as plain text."""
    # Python 3.13 takes the indentation off by itself, the others do not.
    _, _, arguments = inspect.cleandoc(cls.__doc__ or "").partition("Args:\n")
    arguments = arguments.partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: re.sub(r"[`*]", "", " ".join(text.split())) for name, text in found}


def choices(annotation: str) -> list[Any]:
    """Return the values of a ``Literal[...]``."""
    (inner,) = re.findall(r"Literal\[(.*?)\]", annotation)
    chosen = ast.literal_eval(f"({inner},)")
    return list(chosen)


def limit_shape(name: str, annotation: str) -> dict[str, Any]:
    """Return the shape of one limit: a number, a size in text, or a word."""
    words = choices(annotation) if "Literal" in annotation else []
    if not annotation.startswith(("int", "float")):
        return {"enum": words}
    number: dict[str, Any] = {
        "type": "number" if annotation.startswith("float") else "integer",
        "exclusiveMinimum": 0,
        "maximum": LARGEST[name],
    }
    shapes = [number]
    if name in config.SIZE_LIMITS:
        shapes.append({"type": "string", "pattern": SIZE})
    if "None" in annotation:
        words.append(config.NO_LIMIT)
    if words:
        shapes.append({"enum": words})
    return {"anyOf": shapes}


def limits_shape() -> dict[str, Any]:
    """Return the shape of the table of limits."""
    said = descriptions(values.Limits)
    default = values.Limits().to_dict()
    properties = {}
    for name in sorted(values.Limits.__slots__):
        shape = {"description": said[name]}
        shape |= limit_shape(name, values.Limits.__annotations__[name])
        shape["default"] = config.NO_LIMIT if default[name] is None else default[name]
        properties[name] = shape
    return {"type": "object", "additionalProperties": False, "properties": properties}


def egress_shape() -> dict[str, Any]:
    """Return the shape of egress: a word, or a table with the hosts of a proxy."""
    modes = choices(values.Egress.__annotations__["mode"])
    hosts = {
        "type": "array",
        "maxItems": values.MAX_HOSTS,
        "items": {"type": "string", "minLength": 1, "maxLength": values.MAX_HOST_CHARACTERS + 8},
    }
    table = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"mode": {"enum": modes}, "allow": hosts, "deny": hosts},
    }
    return {"anyOf": [{"enum": modes}, table]}


def python_shape() -> dict[str, Any]:
    """Return the shape of the table with the settings of workers, which is no policy field."""
    said = {
        "tls_strict": "false accepts authorities that break RFC 5280; a file that is only found "
        "may not say so.",
    }
    kinds = _config_python.PythonSettings.__annotations__
    assert set(kinds.values()) == {"bool | None"}, "a new kind of setting needs a shape"
    return {
        "description": "Settings of Python workers, enforced by no kernel.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"description": said[name], "type": "boolean"} for name in sorted(kinds)
        },
    }


def list_shape(field: str) -> dict[str, Any]:
    """Return the shape of a list of texts."""
    if field in fields.PATH_FIELDS:
        most = fields.MAX_RULES if field in fields.KINDS else fields.MAX_NAMES
        return {"type": "array", "maxItems": most, "items": {"$ref": "#/$defs/path"}}
    return {"type": "array", "maxItems": fields.MAX_NAMES, "items": LISTS[field]}


def field_shape(field: str, annotation: str) -> dict[str, Any]:
    """Return the shape of one field of a policy."""
    if annotation == "tuple[str, ...]":
        return list_shape(field)
    if annotation == "tuple[int, ...]":
        return {"type": "array", "maxItems": fields.MAX_NAMES, "items": PORT}
    if annotation == "bool":
        return {"type": "boolean"}
    if annotation.startswith("Literal["):
        return {"enum": choices(annotation)}
    if annotation == "Limits":
        return limits_shape()
    if annotation == "Egress":
        return egress_shape()
    if annotation == "Mapping[int, int]":
        port = PORT | {"minimum": 0}
        return {
            "type": "object",
            "maxProperties": fields.MAX_NAMES,
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": port,
        }
    if annotation == "Mapping[str, str | Secret]":
        return {
            "type": "object",
            "maxProperties": names.MAX_VARIABLES,
            "propertyNames": {"pattern": VARIABLE, "maxLength": 1024},
            "additionalProperties": {"type": "string"},
        }
    sys.exit(f"{field}: {annotation} has no shape in {Path(__file__).name}; give it one")


def generate() -> str:
    """Return the text of the schema."""
    said = descriptions(policy.JailPolicy) | IN_A_FILE
    default = policy.JailPolicy().to_dict()
    properties = {}
    for field in sorted(policy.JailPolicy.__slots__):
        if field not in said:
            sys.exit(f"{field}: the docstring of JailPolicy does not describe it")
        shape = {"description": said[field]}
        shape |= field_shape(field, policy.JailPolicy.__annotations__[field])
        if field not in ("limits", "egress"):
            shape["default"] = default[field]
        properties[field] = shape
    properties["egress"]["default"] = default["egress"]["mode"]
    properties[_config_python.TABLE] = python_shape()
    path = {
        "description": "A file or a tree; a relative path starts at the folder of the policy file.",
        "type": "string",
        "minLength": 1,
        "pattern": "^[^~]",
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "visruntime policy",
        "description": "What visruntime.toml holds, and [tool.visruntime] of a pyproject.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": {"path": path},
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(generated.main(__doc__ or "", OUTPUT, generate))

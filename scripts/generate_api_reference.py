#!/usr/bin/env python3
"""Write doc/reference/api.md from the signatures and docstrings of the public names.

    uv run python scripts/generate_api_reference.py [--check]

A public name, or a public method, without a docstring is an error.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import generated

import visruntime
import visruntime.aio

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT = Path(__file__).resolve().parent.parent / "doc/reference/api.md"

HEAD = """\
# The public names

Made from the docstrings by `scripts/generate_api_reference.py`; a check fails when it is out of
date. Examples are in the [tutorial](../tutorial.md) and the documents that it names, whose code
runs as tests. First come the names of `visruntime`, then those of `visruntime.aio`, which has the
same verbs for [asyncio and Trio](../async.md), and at last classes that are only met in results.
"""

RETURNED = (
    "visruntime._jail.files.FileStatus",
    "visruntime.confinement.report.Outcome",
    "visruntime.doctor.Finding",
    "visruntime.environments.Interpreter",
    "visruntime._runtime.reload.Reloaded",
    "visruntime.results.GuestFailure",
    "visruntime.results.RunUsage",
    "visruntime.windows.WindowsStaged",
    "visruntime.windows.WindowsStream",
)
"""Classes that users meet in results only; where they live may change."""


def docstring(name: str, value: object) -> str:
    """Return the docstring of *value*, which has to have one."""
    text = inspect.getdoc(value)
    if not text:
        raise SystemExit(f"{name} has no docstring")
    return text


def signature(name: str, value: Any) -> str:
    """Return the call of *value* as one line; names alone where there is no signature."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in found.parameters.values()
        if each.name != "self"
    ]
    return f"{name}{found.replace(parameters=parameters, return_annotation=found.empty)}"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that *kind* has of this package."""
    for name, value in inspect.getmembers_static(kind):
        plain = getattr(value, "__func__", value)
        home = getattr(getattr(plain, "fget", plain), "__module__", "") or ""
        is_member = inspect.isfunction(plain) or isinstance(plain, property)
        if not name.startswith("_") and is_member and home.startswith("visruntime"):
            yield name, value


def section(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one public name."""
    yield f"\n## {name}\n"
    if not inspect.isclass(value):
        yield f"```text\n{signature(name, value)}\n```\n"
        yield block(docstring(name, value))
        return
    if issubclass(value, Exception):
        bases = ", ".join(base.__name__ for base in value.__bases__)
        yield f"An exception, `{bases}`.\n"
        yield block(docstring(name, value))
    else:
        yield f"```text\n{signature(name, value)}\n```\n"
        yield block(docstring(name, value))
        made = inspect.cleandoc(value.__init__.__doc__ or "")
        if inspect.isfunction(value.__init__) and made:
            yield block(made)
    for each, member in members(value):
        plain = getattr(member, "__func__", member)
        if isinstance(plain, property):
            yield f"\n### {name}.{each}\n"
        else:
            yield f"\n### {name}.{signature(each, plain)}\n"
        yield block(docstring(f"{name}.{each}", plain))


def block(text: str) -> str:
    """Return a docstring as a block that keeps its shape."""
    return f"```text\n{text}\n```\n"


def described() -> Iterator[tuple[str, str, Any]]:
    """Yield the heading, the full name and the object of all that is described, in order."""
    for module in (visruntime, visruntime.aio):
        for name in sorted(module.__all__, key=str.lower):
            full = f"{module.__name__}.{name}"
            yield full.removeprefix("visruntime."), full, getattr(module, name)
    for full in sorted(RETURNED, key=lambda name: name.rpartition(".")[2]):
        module_name, _, name = full.rpartition(".")
        yield name, full, getattr(importlib.import_module(module_name), name)


def generate() -> str:
    """Return the whole document."""
    lines = [HEAD]
    for heading, _, value in described():
        lines += section(heading, value)
    return "\n".join(lines).replace("\n\n\n", "\n\n")


if __name__ == "__main__":
    sys.exit(generated.main(__doc__ or "", OUTPUT, generate))

"""The text of a stub file (.pyi) for the functions that a guest may call.

A type checker, or whoever writes the guest's code, learns from it what there is. Guests call
async functions like all others, so the stub shows none of them as async.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from visruntime._callbacks.schema import bound_keywords, resolve, signature_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["stub_text"]


def stub_text(functions: Mapping[str, Callable[..., Any]]) -> str:
    """Return a stub with each of *functions* under its name there."""
    imports: set[str] = set()
    bodies = [_function(name, function, imports) for name, function in functions.items()]
    head = [f"import {module}\n" for module in sorted(imports)]
    return "\n".join(["".join(head), *bodies] if head else bodies)


def _function(name: str, function: Callable[..., Any], imports: set[str]) -> str:
    import inspect

    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # it is written in C and says nothing
        imports.add("typing")
        text = "(*args: typing.Any, **kwargs: typing.Any) -> typing.Any"
    else:
        bound = bound_keywords(function)
        shown = [p for p in signature.parameters.values() if p.name not in bound]
        text = _signature(name, function, signature.replace(parameters=shown), imports)
    document = inspect.getdoc(function) if not isinstance(function, type) else None
    if not document:
        return f"def {name}{text}: ...\n"
    lines = [line.rstrip() for line in _as_literal(document).splitlines()]
    body = "\n".join(f"    {line}" if line else "" for line in lines)
    return f"def {name}{text}:\n{body}\n"


def _as_literal(document: str) -> str:
    document = document.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if document.endswith('"'):
        document = document[:-1] + '\\"'
    return f'"""{document}"""'


def _signature(name: str, function: Callable[..., Any], signature: Any, imports: set[str]) -> str:
    empty = signature.empty

    def shown(annotation: Any, what: str) -> str:
        if annotation is empty:
            imports.add("typing")
            return "typing.Any"
        try:
            return _type(resolve(annotation, function, f"{name}: {what}"), imports)
        except TypeError:
            imports.add("typing")
            return "typing.Any"

    parts: list[str] = []
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    for at, parameter in enumerate(signature.parameters.values()):
        kind = parameter.kind
        if kind is parameter.KEYWORD_ONLY and not {
            parameter.VAR_POSITIONAL,
            parameter.KEYWORD_ONLY,
        } & set(kinds[:at]):
            parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(kind, "")
        text = f"{stars}{parameter.name}: {shown(parameter.annotation, parameter.name)}"
        # A default is the host's own; that there is one is all a caller needs to know.
        parts.append(text if parameter.default is empty else f"{text} = ...")
        if kind is parameter.POSITIONAL_ONLY and parameter.POSITIONAL_ONLY not in kinds[at + 1 :]:
            parts.append("/")
    return f"({', '.join(parts)}) -> {shown(signature.return_annotation, 'return')}"


def _type(annotation: Any, imports: set[str]) -> str:
    """Write a type so that the stub can be read without the host's own modules."""
    import types
    import typing

    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return "None"
    if origin is typing.Annotated:
        return _type(parts[0], imports)
    if isinstance(annotation, typing.NewType):
        return _type(annotation.__supertype__, imports)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type(part, imports) for part in parts)
    if origin is typing.Literal:
        imports.add("typing")
        return f"typing.Literal[{', '.join(map(repr, parts))}]"
    if origin is not None:
        inside = ["..." if part is ... else _type(part, imports) for part in parts]
        outer = _class(origin, imports)
        return f"{outer}[{', '.join(inside)}]" if inside and outer != "typing.Any" else outer
    return _class(annotation, imports)


def _class(annotation: Any, imports: set[str]) -> str:
    module = getattr(annotation, "__module__", "")
    if isinstance(annotation, type) and annotation is not Any:
        if module == "builtins":
            return annotation.__qualname__
        if module.partition(".")[0] in sys.stdlib_module_names and module != "__main__":
            imports.add(module)
            return f"{module}.{annotation.__qualname__}"
    imports.add("typing")
    return "typing.Any"

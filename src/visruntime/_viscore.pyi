from collections.abc import Callable
from typing import Any

def encode(
    value: object,
    /,
    *,
    max_bytes: int = ...,
    max_depth: int = ...,
    max_nodes: int = ...,
    default: Callable[[Any], tuple[int, str, str]] | None = ...,
) -> bytes: ...
def decode(
    data: bytes, /, *, max_bytes: int = ..., max_depth: int = ..., max_nodes: int = ...
) -> Any: ...
def bind_types(
    reduce: Callable[[Any], tuple[Any, ...] | None], builders: tuple[Callable[..., Any], ...], /
) -> None: ...

from collections.abc import Callable
from typing import Any, Literal

def encode(
    value: object,
    /,
    *,
    max_bytes: int = ...,
    max_depth: int = ...,
    max_nodes: int = ...,
    default: Callable[[Any], tuple[int | None, str, str]] | None = ...,
    reduce: Callable[[Any], tuple[Any, ...] | None] = ...,
    beside: int = ...,
) -> bytes: ...
def decode(
    data: bytes,
    /,
    *,
    max_bytes: int = ...,
    max_depth: int = ...,
    max_nodes: int = ...,
    builders: tuple[Callable[..., Any], ...] = ...,
) -> Any: ...
def bind_types(
    reduce: Callable[[Any], tuple[Any, ...] | None], builders: tuple[Callable[..., Any], ...], /
) -> None: ...
def map_memory(descriptor: int, size: int, mode: Literal["r", "p", "w"], /) -> Any: ...
def pour(descriptor: int, data: Any, /) -> None: ...

class Intake:
    def read(self, descriptor: int, /) -> int: ...
    def take(self) -> bytes: ...

def make_intake(size: int, /) -> Intake: ...

"""The payload that boots a worker."""

from __future__ import annotations

import marshal
import os
from functools import cache
from importlib.machinery import SourceFileLoader

from visruntime.guest import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

__all__ = ["LOAD", "bootstrap", "bootstrap_compiled", "sources"]

_GUEST_MODULES = (
    *("values", "limits", "imports", "describe", "interrupts", "confine", "session", "worker"),
)
_LATE_MODULES = (
    *(
        "arrays",
        "arrow_messages",
        "buffers",
        "console",
        "copying",
        "displays",
        "figures",
        "framed",
        "functions",
        "inputs",
        "pandas_metadata",
        "program",
        "sources",
        "surroundings",
        "tasks",
    ),
)
"""Those that most workers never need; they come along and are run when they are imported."""
_FRAME_TYPES = (
    *("HELLO", "RUN", "CALLBACK", "CALLBACK_REPLY", "RESULT", "FORK", "BYE"),
    *("DISPLAY", "INPUT", "BUFFER"),
)
LOAD = (
    "import sys,marshal,_viscore as c;m=type(sys);"
    "P='_visguest';p=sys.modules[P]=m(P);p.__path__=[]\n"
    # Each guest module imports it for nothing but its effect on the compiler.
    "F='__future__';f=sys.modules[F]=m(F);f.annotations=0\n"
    "a,p.late=marshal.loads(c.receive()[1])\n"
    "for n,s in a:\n"
    " t=sys.modules[P+'.'+n]=m(P+'.'+n);t.__package__=P\n"
    " if type(s) is bytes:s=compile(s,n+'.py','exec')\n"
    " if type(s) is tuple:s=marshal.loads(s[0])\n"
    " exec(s,t.__dict__)\n"
    "del sys.modules[F]\n"
    "t.main()"
)
"""What `python -c` gets: receive the guest modules and run the last one."""


@cache
def sources() -> tuple[tuple[str, bytes], ...]:
    """The source of each module that every worker has, in the order in which they are run."""
    # The worker's core does the framing; of that module only the numbers are needed.
    numbers = "\n".join(f"{name} = {getattr(frames, name)}" for name in _FRAME_TYPES)
    rest = ((name, _loader(name, path).get_data(path)) for name, path in _files())
    return (("frames", numbers.encode()), *rest)


@cache
def bootstrap(
    *,
    same_as_host: bool,
    extra: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """The guest modules as one payload: compiled here where the same version runs there.

    *extra* are further ones, (name, file), executed before the others.
    """
    if not same_as_host:
        return _join(sources(), extra)
    # A first compilation costs a worker more than all of its other modules.
    first = compile(sources()[0][1], "frames.py", "exec", dont_inherit=True)
    modules: list[tuple[str, Any]] = [("frames", first)]
    modules += [(n, _loader(n, path).get_code(f"_visguest.{n}")) for n, path in (*extra, *_files())]
    return marshal.dumps((modules, (_late(compiled=True), True)))


def bootstrap_compiled(compiled: Mapping[str, bytes], extra: tuple[tuple[str, str], ...]) -> bytes:
    """The same of what another version of Python compiled for its own workers.

    The host only passes it on: a tuple says that the worker is to unmarshal it.
    """
    return _join(((name, (compiled[name],)) for name, _ in sources()), extra)


def _join(modules: Iterable[tuple[str, Any]], extra: tuple[tuple[str, str], ...]) -> bytes:
    first, *rest = modules
    more = [(name, _loader(name, path).get_data(path)) for name, path in extra]
    # Format 2 is one that every CPython reads.
    return marshal.dumps(([first, *more, *rest], (_late(compiled=False), False)), 2)


@cache
def _late(*, compiled: bool) -> dict[str, bytes]:
    """The modules that a worker may need later, as source or as marshalled code."""
    found = {}
    for name, path in _files(_LATE_MODULES):
        loader = _loader(name, path)
        found[name] = (
            marshal.dumps(loader.get_code(loader.name)) if compiled else loader.get_data(path)
        )
    return found


def _files(names: tuple[str, ...] = _GUEST_MODULES) -> list[tuple[str, str]]:
    folder = os.path.dirname(frames.__file__)
    return [(name, os.path.join(folder, f"{name}.py")) for name in names]


def _loader(name: str, path: str) -> SourceFileLoader:
    return SourceFileLoader(f"_visguest.{name}", path)

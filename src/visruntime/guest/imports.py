"""Act when a module is imported, and bring our own modules in when they are first needed.

Importing linecache, inspect or the code for displays at each start would cost more than the rest
of the bootstrap.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PACKAGE = __name__.rpartition(".")[0]


class Imports:
    """A meta path finder: modules of ours that came with the bootstrap, and watched ones.

    It stays out of the way of everything else, and answers for a watched module only once.
    """

    def __init__(self, later: dict[str, bytes], *, compiled: bool) -> None:
        self._later = later
        self._compiled = compiled
        self._watched: dict[str, Callable[[Any], object]] = {}
        sys.meta_path.insert(0, self)

    def when_imported(self, name: str, act: Callable[[Any], object]) -> None:
        """Call *act* with the module of that name, now or right after its first import."""
        module = sys.modules.get(name)
        if module is not None:
            act(module)
        else:
            self._watched[name] = act

    def forget(self, name: str) -> None:
        """Watch that module no longer."""
        self._watched.pop(name, None)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Answer for what came with the bootstrap and for what is watched."""
        act = self._watched.pop(name, None)
        if act is not None:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None) if finder is not self else None
                spec = find(name, path, target) if find is not None else None
                if spec is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Watching(spec.loader, act)
                    return spec
            return None
        package, _, own = name.rpartition(".")
        if package == PACKAGE and own in self._later:
            loader = _Late(self._later[own], own, compiled=self._compiled)
            make_spec: Any = type(sys.__spec__)
            return make_spec(name, loader)
        return None


class _Watching:
    """Loads a module with its real loader and then acts."""

    def __init__(self, loader: Any, act: Callable[[Any], object]) -> None:
        self._loader = loader
        self._act = act

    def create_module(self, spec: Any) -> Any:
        """Leave that to the real loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Run the module as if nobody watched, then act."""
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._act(module)


class _Late:
    """Loads a module of ours from the bootstrap."""

    def __init__(self, data: bytes, name: str, *, compiled: bool) -> None:
        self._data = data
        self._name = name
        self._compiled = compiled

    def create_module(self, _spec: Any) -> None:
        """Take an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Run it; of another version than the host's it comes as source."""
        if self._compiled:
            import marshal

            code = marshal.loads(self._data)  # noqa: S302 (the host compiled it)
        else:
            code = compile(self._data, f"{self._name}.py", "exec", dont_inherit=True)
        exec(code, module.__dict__)

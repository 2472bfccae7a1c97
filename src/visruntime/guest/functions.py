"""Call functions that the host sends: by name, or pickled.

A pickle goes from host to guest only. What a function needs to be built again (the code of
cloudpickle) comes from the host, too, so that a worker's environment need not have it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any

    from .session import Session


def apply(session: Session, request: dict[str, Any]) -> list[object] | None:
    """Call one function once for each set of arguments; return the results in order."""
    library = request.get("library")
    if library is not None:
        sys.meta_path.insert(0, _Library(library))
        return None
    pickled = request["pickled"]
    if pickled is None:
        function, calls = _find(session, request["name"]), request["calls"]
    else:
        built_for = request["python"]
        if built_for is not None and tuple(built_for) != sys.version_info[:2]:
            raise TypeError(
                f"this function crosses as bytecode of Python {built_for[0]}.{built_for[1]}, and "
                f"the worker runs {sys.version_info[0]}.{sys.version_info[1]}: define it in the "
                "worker and name it, or put it into a module that the worker can import"
            )
        import _pickle

        function, calls = _pickle.loads(pickled)
    results = []
    for arguments, keywords in calls:
        result = function(*arguments, **keywords)
        if hasattr(type(result), "__await__"):
            result = session.wait_for(result)
        results.append(result)
    return results


def _find(session: Session, name: str) -> Any:
    """Find what a name of the session, or ``module:name``, refers to."""
    module, colon, rest = name.partition(":")
    if not colon:
        return session.look_up(name)
    found = __import__(module, fromlist=["*"])
    for attribute in rest.split("."):
        found = getattr(found, attribute)
    return found


class _Library:
    """Imports the modules of a package whose compiled code the host has sent."""

    def __init__(self, codes: dict[str, bytes]) -> None:
        self._codes = codes

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Answer for those modules alone."""
        if name not in self._codes:
            return None
        make_spec: Any = type(sys.__spec__)
        package = any(other.startswith(name + ".") for other in self._codes)
        return make_spec(name, self, is_package=package)

    def create_module(self, _spec: Any) -> None:
        """Take an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Run it."""
        import marshal

        exec(marshal.loads(self._codes[module.__name__]), module.__dict__)  # noqa: S302 (the host's)

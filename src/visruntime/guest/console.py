"""Consoles of Windows in a worker: opening one by its name raises the audit event ``open``.

CPython raises none for them. Nothing is guarded elsewhere, since there are no such consoles. Where they
are and cannot be guarded, the worker must not start: `guard_consoles` raises.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["ConsoleUnguarded", "guard_consoles", "load_guard"]

CONSOLE = "_WindowsConsoleIO"


class ConsoleUnguarded(RuntimeError):
    """The consoles of this interpreter cannot be guarded, so no guest may run in it."""


def guard_consoles(
    platform: str = sys.platform,
    io: ModuleType | None = None,
    guard: Callable[[type], None] | None = None,
) -> bool:
    """Guard the consoles, before any code of the guest; tell whether there are any.

    The arguments are what to conclude for, and what to guard with; tests give others.

    Raises:
        ConsoleUnguarded: there are consoles, and something keeps them from being guarded.
    """
    if platform != "win32":
        return False
    if io is None:
        import _io as io
    console = getattr(io, CONSOLE, None)
    if not isinstance(console, type):
        raise ConsoleUnguarded(f"_io has no {CONSOLE}, though this is Windows")
    try:
        if guard is None:
            from _visconsole import guard  # type: ignore[import-not-found,no-redef]
        assert guard is not None
        guard(console)
    except Exception as error:
        raise ConsoleUnguarded(f"consoles cannot be guarded: {error}") from error
    return True


def load_guard(path: str) -> Callable[[type], None]:
    """Load the guard from *path*, a module of ours: no path is searched for it.

    Raises:
        ConsoleUnguarded: it is not there, or made for another Python.
    """
    import _frozen_importlib as machinery
    import _frozen_importlib_external as files

    try:
        loader = files.ExtensionFileLoader("_visconsole", path)
        module = loader.create_module(machinery.ModuleSpec("_visconsole", loader, origin=path))
        loader.exec_module(module)
        guard: Callable[[type], None] = module.guard
    except Exception as error:
        raise ConsoleUnguarded(f"consoles cannot be guarded: {error}") from error
    return guard

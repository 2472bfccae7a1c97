"""What a guest tries with the consoles of Windows: with the guard, and without it as the control.

Runs in a staged CPython, on a console, under wine. It writes one line for each way.
"""

from __future__ import annotations

import _io
import io
import os
import sys
from typing import Any

EVENTS: list[str] = []


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to open a console, and count that somebody asked."""
    if event == "open" and "CON" in str(arguments[0]).upper():
        EVENTS.append(str(arguments[0]))
        raise PermissionError("no console")


def attempts(console: Any, kept: Any) -> dict[str, Any]:
    """Return the ways to open a console, by name."""
    return {
        "call": lambda: console("CONOUT$", "w"),
        "open": lambda: io.open("CONOUT$", "w"),  # noqa: UP020, the way that dispatches to it
        "read": lambda: open("CONIN$"),
        "raw": lambda: console.__init__(console.__new__(console), "CONIN$"),
        "kept": lambda: kept(console.__new__(console), "CONIN$"),
        "subclass": lambda: type("Sub", (console,), {})("CONOUT$", "w"),
    }


def run(out: Any, *, guarded: bool) -> None:
    """Try each way; the guard is there for good, so each half is a Python of its own."""
    console: Any = _io._WindowsConsoleIO  # type: ignore[attr-defined,unused-ignore]
    kept = console.__init__
    if guarded:
        from _visconsole import guard  # type: ignore[import-not-found,unused-ignore]

        guard(console)
    sys.addaudithook(hook)
    for name, make in attempts(console, kept).items():
        EVENTS.clear()
        try:
            made = make()
        except PermissionError:
            said = "refused"
        except OSError as error:
            said = f"error {error.errno}"
        else:
            said = "opened"
            if made is not None:
                made.close()
        out.write(f"{'guarded' if guarded else 'control'} {name} {said} {len(EVENTS)}\n")


with open("result.txt", "a") as result:
    if sys.argv[1:] == ["guarded"]:
        run(result, guarded=True)
    else:
        run(result, guarded=False)
        result.flush()
        code = os.spawnv(os.P_WAIT, sys.executable, ["python", "-I", "-B", sys.argv[0], "guarded"])
        result.write(f"ended {code}\n")

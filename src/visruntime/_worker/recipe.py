"""How a host in any language starts a worker: its command, what it reads, its first frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from visruntime._worker.start import LOAD, bootstrap, bootstrap_compiled
from visruntime.environments import worker_argv

if TYPE_CHECKING:
    from visruntime.environments import Interpreter

__all__ = ["CHANNEL", "CONTROL", "recipe"]

RECIPE_VERSION = 1
CHANNEL, CONTROL = 3, 4
"""The numbers under which the worker has its two sockets."""


def recipe(interpreter: Interpreter) -> dict[str, Any]:
    """Return what doc/reference/worker.md calls a recipe; everything in it is of JSON's types."""
    from base64 import b64encode

    if interpreter.same_as_host or interpreter.compiled is None:
        payload = bootstrap(same_as_host=interpreter.same_as_host)
    else:
        payload = bootstrap_compiled(interpreter.compiled, ())
    argv = worker_argv(interpreter, channel=CHANNEL, control=CONTROL, harden=True, code=LOAD)
    return {
        "version": RECIPE_VERSION,
        "python": interpreter.version,
        "mode": interpreter.mode,
        "argv": argv,
        "channel": CHANNEL,
        "control": CONTROL,
        "read": [{"path": path, "reason": reason} for path, reason in interpreter.grants],
        "bootstrap": b64encode(payload).decode("ascii"),
    }

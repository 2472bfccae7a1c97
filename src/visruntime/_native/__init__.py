"""The seam to C: only this folder imports the compiled modules.

It turns C's records into plain Python values and its statuses into `NativeError`; what
they mean to a caller is decided above. Every handle owns its C object and frees it.
"""

from __future__ import annotations

import sys

# What libvisjail has on Windows is in `_native.windows`, and none of this.
if sys.platform != "win32":
    from visruntime._native.jails import (
        MOST_SECONDS,
        Capture,
        JailHandle,
        Refusal,
        RunHandle,
        TerminalReader,
        write_quietly,
    )
    from visruntime._native.library import BINARY_DIRECTORY, CORE_FILE, PATH_MAX, NativeError
    from visruntime._native.plans import PLAN_GUEST_AT, Fact, compile_plan, decide, plan_path
    from visruntime._native.search import (
        KEY_BYTES,
        PATTERN_PARTS_MAX,
        JudgedNames,
        Names,
        expand,
        expand_budget,
        file_id,
        find_secret,
        fits,
        is_private_key,
        search,
    )

# The worker of Python, and what its host needs of it, is built for Linux, and for Windows by whoever
# has all of its parts; jails are there without it.
if sys.platform == "win32":
    from visruntime._native.absent import decide

    try:
        from visruntime._native.codec import decode, encode
    except ImportError:
        from visruntime._native.absent import decode, encode
elif sys.platform != "darwin":
    from visruntime._native.codec import decode, encode
    from visruntime._viscore import make_intake, map_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._viscore import Intake as Intake

__all__ = [
    "BINARY_DIRECTORY",
    "CORE_FILE",
    "KEY_BYTES",
    "MOST_SECONDS",
    "PATH_MAX",
    "PATTERN_PARTS_MAX",
    "PLAN_GUEST_AT",
    "Capture",
    "Fact",
    "JailHandle",
    "JudgedNames",
    "Names",
    "NativeError",
    "Refusal",
    "RunHandle",
    "TerminalReader",
    "compile_plan",
    "decide",
    "decode",
    "encode",
    "expand",
    "expand_budget",
    "file_id",
    "find_secret",
    "fits",
    "is_private_key",
    "make_intake",
    "map_memory",
    "plan_path",
    "search",
    "write_quietly",
]

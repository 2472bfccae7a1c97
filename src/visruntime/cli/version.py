"""``visruntime version``: which visruntime this is, on what, and what is installed beside it."""

from __future__ import annotations

import os
import sys

from visruntime._host.own_version import own_version
from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime version
  visruntime version --json      for bug reports and programs
"""


def main(words: Sequence[str]) -> int:
    """Run ``version`` with the command line *words*."""
    import json

    from visruntime import _native, bundle

    parser = Parser("version", "", "Say which visruntime this is; nothing is started.", EXAMPLES)
    parser.flag("--json", action="store_true", help="print one JSON object")
    options, rest = parser.split(words)
    if rest:
        raise Refusal("version takes no operands")
    system = os.uname()
    facts = {
        "visruntime": own_version(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "system": system.sysname,
        "kernel": system.release,
        "machine": system.machine,
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "package": _native.BINARY_DIRECTORY,
        "bundles": bundle.names(),
    }
    if options.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    lines = [
        f"visruntime {facts['visruntime']}",
        f"Python {facts['python']}, {facts['libc']}, {system.machine}",
        f"{system.sysname} {system.release}",
        f"in {facts['package']}",
        *(f"bundle {name}" for name in bundle.names()),
    ]
    sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))
    return 0

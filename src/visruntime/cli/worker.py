"""``visruntime worker``: how a host in another language starts a worker, as JSON."""

from __future__ import annotations

import os
import sys

from visruntime._policy.paths import resolve_beside
from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime worker >worker.json
  visruntime worker --python /usr/bin/python3.11
  visruntime exec --read ... --pass-fd 3 --pass-fd 4 -- vispython --channel 3 ...
"""


def main(words: Sequence[str]) -> int:
    """Run ``worker`` with the command line *words*."""
    parser = Parser(
        "worker",
        "",
        "Print as JSON how a host in any language starts a jailed Python worker: its command, the\n"
        "paths to grant, and its first frame. It holds for this interpreter and this version of\n"
        "visruntime. The protocol is in doc/reference/worker.md and protocol.md.",
        EXAMPLES,
    )
    parser.flag("--python", metavar="PATH", help="the interpreter, instead of this one")
    parser.flag("--environment", metavar="DIR", help="the interpreter and packages of this venv")
    options, rest = parser.split(words)
    if rest:
        raise Refusal(f"nothing goes after the options, not {rest[0]!a}")
    if options.python and options.environment:
        raise Refusal("--python does not go with --environment, which has its own")
    import json

    from visruntime._runtime.interpreter import jailed_interpreter
    from visruntime._worker.recipe import recipe

    here = os.getcwd()
    python = resolve_beside(options.python, here, "--python") if options.python else None
    environment = options.environment
    if environment:
        environment = resolve_beside(environment, here, "--environment")
    interpreter = jailed_interpreter(python, environment, write=())
    sys.stdout.write(json.dumps(recipe(interpreter), indent=2) + "\n")
    return 0

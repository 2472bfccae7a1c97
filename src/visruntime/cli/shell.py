"""``visruntime shell``: an interactive shell in a jail, on a terminal of its own."""

from __future__ import annotations

import os

from visruntime.cli.exec import run_program
from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime.policy import JailPolicy

__all__ = ["main"]

EXAMPLES = """\
  visruntime shell                      look around: nothing of yours is there
  visruntime shell --write .            work in this folder
  visruntime shell --read ~/src --net open
"""


def main(words: Sequence[str]) -> int:
    """Run ``shell`` with the command line *words*."""
    parser = Parser(
        "shell",
        "",
        "Start an interactive shell in a jail.\nWhat programs in it write reaches your terminal "
        "as it is, control sequences included.",
        EXAMPLES,
    )
    parser.add_policy_flags()
    parser.add_start_flags()
    options, rest = parser.split(words)
    if rest:
        raise Refusal(f"shell takes no command, and there is {rest[0]!a}; use visruntime exec")
    if not (os.isatty(0) and os.isatty(1)):
        raise Refusal("shell needs a terminal; to run a command: visruntime exec -- sh -c '...'")
    return run_program(options, lambda policy: [_shell(policy)], tty=True)


def _shell(policy: JailPolicy) -> str:
    """Return the user's own shell if the guest can execute it, else /bin/bash or /bin/sh."""
    own = os.environ.get("SHELL", "")
    for path in (own, "/bin/bash"):
        if path.startswith("/") and os.access(path, os.X_OK) and policy.why("exec", path):
            return path
    return "/bin/sh"

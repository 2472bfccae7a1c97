"""``visruntime completion``: what a shell reads to complete our command line."""

from __future__ import annotations

import sys

from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal
from visruntime.cli.texts import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHELLS", "main"]

SHELLS = ("bash", "zsh", "fish")

EXAMPLES = """\
  source <(visruntime completion bash)                                  in ~/.bashrc
  visruntime completion zsh > ~/.zfunc/_visruntime                      a folder of $fpath
  visruntime completion fish > ~/.config/fish/completions/visruntime.fish
"""


def main(words: Sequence[str]) -> int:
    """Run ``completion`` with the command line *words*."""
    parser = Parser(
        "completion",
        "|".join(SHELLS),
        "Print the completion of this command line for a shell; nothing is changed.",
        EXAMPLES,
    )
    _, rest = parser.split(words)
    if len(rest) != 1 or rest[0] not in SHELLS:
        raise Refusal(f"name one shell: visruntime completion {'|'.join(SHELLS)}")
    sys.stdout.write(text(f"visruntime.{rest[0]}"))
    return 0

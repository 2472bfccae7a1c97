"""``visruntime manual``: the manual page."""

from __future__ import annotations

import sys

from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal
from visruntime.cli.texts import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime manual | man -l -
  visruntime manual > ~/.local/share/man/man1/visruntime.1
"""


def main(words: Sequence[str]) -> int:
    """Run ``manual`` with the command line *words*."""
    parser = Parser("manual", "", "Print the manual page, as man and groff read it.", EXAMPLES)
    _, rest = parser.split(words)
    if rest:
        raise Refusal("manual takes no operands")
    sys.stdout.write(text("visruntime.1"))
    return 0

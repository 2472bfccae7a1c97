"""``visruntime schema``: the JSON Schemas of what visruntime reads and writes."""

from __future__ import annotations

import sys

from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal
from visruntime.config import SCHEMAS, schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime schema policy       of visruntime.toml and [tool.visruntime]
  visruntime schema report       of what --report writes
  visruntime schema doctor       of what doctor --json prints
  visruntime schema confinement  of what doctor --confinement --json prints
"""


def main(words: Sequence[str]) -> int:
    """Run ``schema`` with the command line *words*."""
    import json

    parser = Parser(
        "schema",
        "|".join(SCHEMAS),
        "Print a JSON Schema (2020-12), for editors and programs.",
        EXAMPLES,
    )
    _, rest = parser.split(words)
    if len(rest) != 1 or rest[0] not in SCHEMAS:
        raise Refusal(f"name one schema: visruntime schema {'|'.join(SCHEMAS)}")
    sys.stdout.write(json.dumps(schema(rest[0]), indent=2, ensure_ascii=False) + "\n")
    return 0

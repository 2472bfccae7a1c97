"""``visruntime why``: what a policy says about one act; nothing is started."""

from __future__ import annotations

import os
import sys

from visruntime._paths import resolve_beside
from visruntime.cli.flags import Parser, make_policy
from visruntime.cli.messages import Refusal, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

OPERATIONS = ("read", "write", "exec", "connect")

EXAMPLES = """\
  visruntime why read ~/.ssh/id_rsa
  visruntime why --write . --deny .env read .env
  visruntime why --policy visruntime.toml connect example.org:443
"""


def main(words: Sequence[str]) -> int:
    """Run ``why`` with the command line *words*; 0 means allowed, 1 denied."""
    parser = Parser(
        "why",
        "read|write|exec|connect TARGET",
        "Say whether a policy allows one act, by which rule, and what would change it. "
        "Exits with 0 if it is allowed and 1 if it is denied.",
        EXAMPLES,
    )
    parser.add_policy_flags()
    options, rest = parser.split(words)
    if len(rest) != 2 or rest[0] not in OPERATIONS:
        raise Refusal(f"write what to ask: {parser.usage}".replace("usage: ", ""))
    operation, target = rest
    if operation != "connect" or "/" in target:
        target = resolve_beside(target, os.getcwd(), "TARGET")
    policy = make_policy(options)
    decision = policy.why(operation, target)  # type: ignore[arg-type]
    sys.stdout.write(f"{'allowed' if decision else 'denied'}: {clean(decision.reason)}\n")
    for field, sentence in policy.unsupported():
        sys.stdout.write(f"note: this version cannot enforce {clean(f'{field}: {sentence}')}\n")
    return 0 if decision else 1

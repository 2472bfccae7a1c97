"""``visruntime why``: what a policy says about one act; nothing is started."""

from __future__ import annotations

import os
import sys

from visruntime._policy.paths import resolve_beside
from visruntime.cli.flags import Parser, make_policy
from visruntime.cli.messages import Refusal, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime.policy import JailPolicy

__all__ = ["main"]

OPERATIONS = ("read", "write", "exec", "connect")

EXAMPLES = """\
  visruntime why read ~/.ssh/id_rsa
  visruntime why --write . --deny .env read .env
  visruntime why --write . --deny-exec bin exec bin/tool
  visruntime why --policy visruntime.toml connect example.org:443
  visruntime why connect /run/user/1000/app.sock
"""


def main(words: Sequence[str]) -> int:
    """Run ``why`` with the command line *words*; 0 means allowed, 1 denied."""
    parser = Parser(
        "why",
        "read|write|exec|connect TARGET",
        "Say whether a policy allows one act, by which rule, and what would change it. "
        "Nothing is started. Exits with 0 if it is allowed, 1 if it is denied, and 125 if the "
        "question or the policy is wrong.",
        EXAMPLES,
    )
    parser.add_policy_flags()
    options, rest = parser.split(words)
    if len(rest) != 2 or rest[0] not in OPERATIONS:
        raise Refusal(f"write what to ask: {parser.usage}")
    operation, target = rest
    if operation != "connect" or "/" in target:
        target = resolve_beside(target, os.getcwd(), "TARGET")
    policy = make_policy(options)
    decision = policy.why(operation, target)  # type: ignore[arg-type]
    sys.stdout.write(f"{'allowed' if decision else 'denied'}: {clean(decision.reason)}\n")
    if decision.rule is not None:
        sys.stdout.write(f"rule: {clean(str(decision.rule))}\n")
    if decision.grant is not None:
        if decision.grant.cli:
            sys.stdout.write(f"flag: {clean(decision.grant.cli)}\n")
        sys.stdout.write(f"Python: {clean(decision.grant.python)}\n")
    notes = [*decision.notes, *_narrowing(policy, options.policy)]
    notes += [f"this version cannot enforce {f}: {why}" for f, why in policy.unsupported()]
    sys.stdout.writelines(f"note: {clean(note)}\n" for note in notes)
    return 0 if decision else 1


def _narrowing(policy: JailPolicy, given: str | None) -> list[str]:
    """Say which file that was only found took away from the policy."""
    named = os.path.abspath(given) if given else None
    return [
        f"{file} was found here and can only take away from what you give"
        for file in policy.files
        if file != named
    ]

"""What was found in a run, without the secrets that a guest put into it."""

from __future__ import annotations

from visruntime._policy.redact import redact
from visruntime.events import Violation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["without_secrets"]


def without_secrets(found: Violation, secrets: Iterable[str]) -> Violation:
    """Return what was found without the text of *secrets*, which a guest puts where it likes.

    What would grant a path that has one in it is left out.
    """
    detail, target = redact(found.detail, secrets), redact(found.target, secrets)
    if (detail, target) == (found.detail, found.target):
        return found
    return Violation(
        found.kind,
        detail,
        confidence=found.confidence,
        target=target,
        errno=found.errno,
        rule=found.rule,
        limit=found.limit,
        peak=found.peak,
    )

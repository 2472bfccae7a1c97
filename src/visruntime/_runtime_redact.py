"""Keep the text of a `Secret` out of what is shown to people.

A guest has its secrets and can write them in as many ways as it likes; this is for programs that
print them as they are, or as Python escapes them. Call it before a text is cut: half of a secret is
not found any more.
"""

from __future__ import annotations

from visruntime._policy_values import Secret
from visruntime._runtime_traceback import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["redact", "secrets_of", "shown"]

MARK = "***"


def secrets_of(variables: Mapping[str, str | Secret]) -> tuple[str, ...]:
    """Return the texts of the secrets among *variables*."""
    return tuple(value.reveal() for value in variables.values() if isinstance(value, Secret))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with ``***`` in place of each of *secrets*."""
    forms = set()
    for secret in secrets:
        forms |= {secret, printable(secret), repr(secret)[1:-1], ascii(secret)[1:-1]}
    # The longest first: one secret may begin with another.
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, MARK)
    return text


def shown(output: bytes, secrets: Iterable[str]) -> str:
    """Return *output* of a guest as a text for messages: printable, and without *secrets*."""
    known = tuple(secrets)
    return printable(redact(_removed(output, known), known))


def _removed(output: bytes, secrets: tuple[str, ...]) -> str:
    """Decode *output*, after removing *secrets* that are no UTF-8 themselves."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            output = output.replace(secret.encode("utf-8", "surrogateescape"), MARK.encode())
    return output.decode("utf-8", "replace")

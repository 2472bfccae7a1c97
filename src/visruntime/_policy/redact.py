"""Keep the text of a `Secret` out of what is shown to people.

A guest has its secrets and can write them in as many ways as it likes; this is for programs that
print them as they are, or as Python escapes them. Call it before a text is cut: half of a secret is
not found any more.
"""

from __future__ import annotations

from visruntime._policy.printable import printable
from visruntime._policy.values import Secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["redact", "secrets_of", "shown"]

MARK = b"***"
_CUT = r"\.\.\. \([0-9]{1,12} more characters\)\Z"
"""How a worker ends a text that it has cut, perhaps in the middle of a secret."""
_SHORT = 3
"""Bytes of a secret at a cut that are taken for it; fewer are found in any text."""


def secrets_of(variables: Mapping[str, str | Secret]) -> tuple[str, ...]:
    """Return the texts of the secrets among *variables*."""
    return tuple(value.reveal() for value in variables.values() if isinstance(value, Secret))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with ``***`` in place of each of *secrets*."""
    forms = set()
    for secret in secrets:
        raw = secret.encode("utf-8", "surrogateescape")
        forms |= {secret, printable(secret), repr(secret)[1:-1], ascii(secret)[1:-1]}
        forms.add(repr(raw)[2:-1])
        if "'" in secret:  # which is escaped where the text around it has both quotes
            forms |= {repr(f'{secret}"')[1:-2], ascii(f'{secret}"')[1:-2], repr(raw + b'"')[2:-2]}
    # The longest first: one secret may begin with another.
    known = sorted(forms - {""}, key=len, reverse=True)
    for form in known:
        text = text.replace(form, MARK.decode())
    if not known:
        return text
    import re  # which a policy without secrets does not need

    cut = re.search(_CUT, text)
    if cut is None:
        return text
    rest = text[: cut.start()]
    most = max(
        (
            size
            for form in known
            for size in range(_SHORT, min(len(form), len(rest) + 1))
            if rest.endswith(form[:size])
        ),
        default=0,
    )
    return f"{rest[: len(rest) - most]}{MARK.decode()}{cut[0]}" if most else text


def shown(output: bytes, secrets: Iterable[str], seam: int | None = None) -> str:
    """Return *output* of a guest as a text for messages: printable, and without *secrets*.

    At *seam* something was left out, perhaps the other half of one.
    """
    known = tuple(secret for secret in secrets if secret)
    # As bytes first: one that is no UTF-8 is not found in a text.
    raw = [secret.encode("utf-8", "surrogateescape") for secret in known]
    raw.sort(key=len, reverse=True)
    parts = [output] if seam is None else [output[:seam], output[seam:]]
    for secret in raw:
        parts = [part.replace(secret, MARK) for part in parts]
    if seam is not None:
        parts = [_without_beginning(parts[0], raw), _without_end(parts[1], raw)]
    return printable(redact(b"".join(parts).decode("utf-8", "replace"), known))


def _without_beginning(part: bytes, secrets: list[bytes]) -> bytes:
    """Replace what *part* ends with if one of *secrets* begins like that."""
    most = max(
        (n for s in secrets for n in range(_SHORT, len(s)) if part.endswith(s[:n])), default=0
    )
    return part[: len(part) - most] + MARK if most else part


def _without_end(part: bytes, secrets: list[bytes]) -> bytes:
    """Replace what *part* begins with if one of *secrets* ends like that."""
    most = max(
        (n for s in secrets for n in range(_SHORT, len(s)) if part.startswith(s[-n:])), default=0
    )
    return MARK + part[most:] if most else part

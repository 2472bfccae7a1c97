"""Credentials in the addresses of a text: who and with which password, and what is behind a ``?``.

A requirement may name its wheel by a URL that has a password. uv is to use that; nobody is to
read it in a message, or in the environment, which is a guest's.
"""

from __future__ import annotations

import re
from itertools import chain

__all__ = ["MOST_CREDENTIALS", "credentials", "credentials_in", "without_credentials"]

_ADDRESS = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,31}:)(?P<slashes>[/\\]*)(?P<who>[^\s/\\?#]*@)?"
    r"(?P<place>[^\s?#]*)(?P<query>\?[^\s#]*)?(?P<fragment>#\S*)?"
)
"""An address as uv reads one, with any number of slashes (URL Standard of WHATWG)."""
_HASH = re.compile(r"#(?:sha\d+|md5)=[0-9a-fA-F]+(?=[;&\"'>]|$)")
"""A fragment that says what the file is to be, and no secret."""
_QUOTE = re.compile("[\"'>]")
"""What ends an address around which it stands, in a lock, in TOML or in a message."""
MOST_CREDENTIALS = 1000
"""Different ones in the files of a request: each is looked for in all that uv says."""


def credentials(address: str) -> set[str]:
    """Return what of a URL nobody is to see: user and password, and what is behind a ``?``.

    uv shows the host and the path of what it could not reach, which the user needs to know.
    """
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(address)
    except ValueError:
        return {address}
    who = parts.netloc.rpartition("@")[0]
    password = who.partition(":")[2]
    found = {who, unquote(who), password, unquote(password), parts.query, parts.fragment}
    return found - {""}


def credentials_in(*texts: str) -> set[str]:
    """Return the credentials of all addresses in *texts*.

    Raises:
        ValueError: there are more than `MOST_CREDENTIALS`.
    """
    from urllib.parse import unquote

    found = {""}
    for match in chain.from_iterable(map(_ADDRESS.finditer, texts)):
        who = (match["who"] or "")[:-1]
        password = who.partition(":")[2]
        found |= {who, unquote(who), password, unquote(password)}
        if match["slashes"]:
            query = (match["query"] or "")[1:]
            found |= {query, _QUOTE.split(query)[0]}
            fragment = match["fragment"] or ""
            if not _HASH.match(fragment):
                found |= {fragment[1:], _QUOTE.split(fragment[1:])[0]}
        if len(found) > MOST_CREDENTIALS + 1:
            raise ValueError(
                f"more than {MOST_CREDENTIALS} different users, passwords and queries in addresses"
            )
    return found - {""}


def without_credentials(text: str) -> str:
    """Return *text* with its addresses, but without what is secret in them."""
    return _ADDRESS.sub(_bare, text)


def _bare(match: re.Match[str]) -> str:
    if not match["slashes"] and not match["who"]:
        return match[0]  # such as --hash=sha256:...
    held = _HASH.match(match["fragment"] or "")
    return f"{match['scheme']}{match['slashes']}{match['place']}{held[0] if held else ''}"

"""``visruntime tls explain``: why Python refuses the certificate of a server."""

from __future__ import annotations

import os
import sys
from textwrap import wrap

from visruntime._policy.paths import resolve_beside
from visruntime.cli.flags import Parser, seconds
from visruntime.cli.messages import Refusal, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime._tls_explain import Explanation

__all__ = ["main"]

DEFAULT_SECONDS = "10"
HTTPS = 443

EXAMPLES = """\
  visruntime tls explain example.org
  visruntime tls explain --ca company.pem intranet.example.org:8443
  visruntime tls explain '[::1]:8443'
"""

UNTIL_THEN = """\
until then: Runtime(policy, tls_strict=False), or visruntime run --tls-lenient. Chain, host name,
dates and signatures are checked as before; doc/tls.md says what the setting reaches.
"""


def main(words: Sequence[str]) -> int:
    """Run ``tls`` with the command line *words*: 0 accepted, 1 refused by Python's default."""
    parser = Parser(
        "tls",
        "explain HOST[:PORT]",
        "Ask a server for its certificates, from this host and outside of any jail, and say which\n"
        "rules of RFC 5280 they break and whether that is all that Python has against them.\n"
        "Exit codes: 0 Python 3.13 accepts them by default, 1 it does not, 125 no answer.",
        EXAMPLES,
    )
    parser.flag("--ca", metavar="FILE|system", help="trust these authorities (PEM)")
    parser.flag("--timeout", metavar="S", default=DEFAULT_SECONDS, help="give up after S seconds")
    if words and words[0] == "explain":
        words = words[1:]
    elif words and words[0] not in ("-h", "--help"):
        raise Refusal("there is one thing to do with TLS here: visruntime tls explain HOST[:PORT]")
    options, rest = parser.split(words)
    if len(rest) != 1:
        raise Refusal("name one server: visruntime tls explain HOST[:PORT]")
    host, port = _server(rest[0])
    bundle = _bundle(options.ca)
    from visruntime._tls_explain import Unexplained, explain

    try:
        found = explain(host, port, bundle=bundle, seconds=seconds(options.timeout, "--timeout"))
    except Unexplained as error:
        raise Refusal(f"{host}:{port}: {error}") from None
    for line in _lines(found, host, port, bundle):
        sys.stdout.write(f"{clean(line)}\n" if line else "\n")
    return 1 if found.strict else 0


def _server(text: str) -> tuple[str, int]:
    """Return host and port of ``host``, ``host:port``, ``[address]:port`` or an IPv6 address."""
    host, port = text, str(HTTPS)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            raise Refusal(f"HOST[:PORT], or [ADDRESS]:PORT, not {text!a:.100}")
        port = rest[1:] or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535):
        raise Refusal(f"a port from 1 to 65535, not {port!a:.100}")
    if not host or len(host) > 255 or not host.isprintable() or any(c in host for c in " /@"):
        raise Refusal(f"the name of a host, such as example.org:443, not {text!a:.100}")
    return host, int(port)


def _bundle(given: str | None) -> str | None:
    if given is None:
        return None
    from visruntime._worker.tls import TlsSettings

    path = given if given == "system" else resolve_beside(given, os.getcwd(), "--ca")
    return TlsSettings(ca=path).bundle


def _lines(found: Explanation, host: str, port: int, bundle: str | None) -> Iterator[str]:
    import ssl

    trusted = f"the authorities of {bundle}" if bundle else "the authorities that OpenSSL finds"
    yield f"{host}:{port}, asked with {ssl.OPENSSL_VERSION} and {trusted}"
    yield ""
    yield f"  as Python 3.13 asks (tls_strict=True)  {_verdict(found.strict)}"
    lenient = found.lenient if found.strict else ""
    yield f"  without VERIFY_X509_STRICT (False)     {_verdict(lenient)}"
    yield ""
    yield from _chain_lines(found)
    yield from _conclusion(found, host)


def _verdict(message: str) -> str:
    return f"refused: {message}" if message else "accepted"


def _chain_lines(found: Explanation) -> Iterator[str]:
    how = "up to a trusted authority" if found.verified else "as the server sends them, unverified"
    yield f"certificates, {how}:"
    for place, certificate in enumerate(found.chain):
        yield f"  {place + 1}. {certificate.subject}, issued by {certificate.issuer}"
        for rule, kept in found.checks(place):
            yield f"     {'ok    ' if kept else 'BREAKS'}  {rule.section:8} {rule.text}"
    if found.unread:
        yield f"  {len(found.chain) + 1}. cannot be read: {found.unread}"
    if len(found.chain) == 1 and found.verified:
        yield "  a single certificate that is trusted itself: OpenSSL applies none of these rules"
    yield ""


def _conclusion(found: Explanation, host: str) -> Iterator[str]:
    if not found.strict:
        yield "Nothing is wrong: Python accepts this server with its default settings."
        return
    if not found.only_strictness:
        share = "" if found.strict == found.lenient else "only "
        yield f"Strictness is not the {share}cause: tls_strict=False does not help against this."
        yield ""
        yield from wrap(f"fix: {_fix(found, host)}", 100)
        return
    yield "Strictness is the only cause: without VERIFY_X509_STRICT the server is accepted."
    yield ""
    broken = [
        (certificate, [rule for rule, kept in found.checks(place) if not kept])
        for place, certificate in enumerate(found.chain)
    ]
    if not any(rules for _, rules in broken):
        yield "No rule of the list is broken, so it is one that only this OpenSSL has: see its words."
    for certificate, rules in broken:
        if rules:
            yield f"fix: who runs the authority issues this one anew: {certificate.subject}"
            yield from (f"  {fix}" for fix in dict.fromkeys(rule.fix for rule in rules) if fix)
    yield from UNTIL_THEN.splitlines()


def _fix(found: Explanation, host: str) -> str:
    from visruntime import _tls_explain as codes

    if found.code in codes.NO_ISSUER:
        return (
            "the chain ends at nobody who is trusted. Give the authority by ca=FILE or --ca FILE; if "
            "it is trusted already, the server leaves out a certificate between"
        )
    if found.code in codes.WRONG_NAME:
        names = (found.chain[0].names if found.chain else None) or ("no name at all",)
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        return f"the certificate is for {', '.join(names[:10])}{more}, and not for {host}"
    if found.code == codes.EXPIRED:
        return "who runs the server renews the certificate; if it is not over yet, set this clock"
    if found.code == codes.NOT_YET:
        return "the certificate is not valid yet; if it should be, set this clock"
    if found.code == codes.SIGNATURE:
        return (
            "the certificate was changed, or was not signed by the authority whose name it has; "
            "trust none of it until that is known"
        )
    return "no setting of a worker lifts this; look the words of OpenSSL up"

"""Why Python refuses the certificate of a server: tried for real, and rule by rule.

The server is asked twice, strictly and leniently, and where both fail once more without any
check, to see what it shows. Nothing is ever sent to it but the handshake.
"""

from __future__ import annotations

import ssl
import threading
import time
from typing import TYPE_CHECKING

from visruntime._tls_certificates import Certificate, check
from visruntime.errors import VisRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime._tls_certificates import Check

__all__ = ["Explanation", "Unexplained", "explain"]

FLAGS = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
"""What the default context of Python 3.13 sets besides VERIFY_X509_STRICT."""
MAX_CERTIFICATES = 20
"""Of a chain that are looked at."""

# Codes of OpenSSL's x509_vfy.h.
NO_ISSUER = (18, 19, 20, 21)
WRONG_NAME = (62, 64)
SIGNATURE, NOT_YET, EXPIRED = 7, 9, 10


class Unexplained(VisRuntimeError):
    """The server could not be asked, or something else than a certificate was the trouble."""


class Explanation:
    """What came of asking one server.

    Attributes:
        strict: what OpenSSL says against it with the default flags of Python 3.13, "" if nothing.
        lenient: the same with ``VERIFY_X509_STRICT`` cleared.
        code: OpenSSL's number for *lenient*, 0 if nothing.
        chain: the certificates, the server's own first.
        verified: whether the chain leads to a trusted authority; else it is as the server sent it.
        unread: why certificates are missing in *chain*, "" if none are.
    """

    __slots__ = ("chain", "code", "lenient", "strict", "unread", "verified")

    def __init__(self) -> None:
        self.strict = self.lenient = self.unread = ""
        self.code = 0
        self.chain: list[Certificate] = []
        self.verified = False

    @property
    def only_strictness(self) -> bool:
        """Whether clearing that one flag is enough for the server to be accepted."""
        return bool(self.strict) and not self.lenient

    def checks(self, place: int) -> list[tuple[Check, bool]]:
        """Return the rules about the certificate at *place* of the chain, and if it keeps them."""
        return check(self.chain, place, whole=self.verified)


def explain(host: str, port: int, *, bundle: str | None, seconds: float) -> Explanation:
    """Ask a server, and return what is wrong with its certificates.

    Args:
        host: its name or address, which the certificate has to be for.
        port: its TCP port.
        bundle: PEM file of the authorities to trust; OpenSSL's own by default.
        seconds: after which there is no answer, whatever the server or the resolver does.

    Raises:
        Unexplained: there was no answer, or no TLS.
    """
    outcome: list[Explanation | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_explain(host, port, bundle, time.monotonic() + seconds))
        except BaseException as error:  # noqa: BLE001 - raised again in the other thread
            outcome.append(error)

    # The resolver takes no deadline; a thread that hangs in it ends with this process.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise Unexplained(f"no answer in {seconds:g} s")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _explain(host: str, port: int, bundle: str | None, deadline: float) -> Explanation:
    found = Explanation()

    def ask(context: ssl.SSLContext, *, verified: bool) -> tuple[str, int]:
        message, code, chain = _ask(host, port, context, deadline, verified=verified)
        if chain:
            found.verified = verified
            found.chain, found.unread = _read(chain)
        return message, code

    context = ssl.create_default_context(cafile=bundle)
    context.verify_flags = FLAGS | ssl.VERIFY_X509_STRICT
    found.strict, _ = ask(context, verified=True)
    if found.strict:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        found.lenient, found.code = ask(context, verified=True)
    if found.lenient:
        seen = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        seen.check_hostname = False
        seen.verify_mode = ssl.CERT_NONE  # to look at what it shows; it is told nothing
        ask(seen, verified=False)
    return found


def _ask(
    host: str, port: int, context: ssl.SSLContext, deadline: float, *, verified: bool
) -> tuple[str, int, list[bytes]]:
    """Make one handshake: what OpenSSL says against the server, its number, and the chain."""
    import socket

    try:
        with (
            socket.create_connection(
                (host, port), max(deadline - time.monotonic(), 0.001)
            ) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            return "", 0, _chain(secured, verified=verified)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message or "certificate verify failed", error.verify_code, []
    except TimeoutError:
        raise Unexplained("no answer in time") from None
    except ssl.SSLError as error:
        raise Unexplained(f"no TLS: {error.reason or error}") from None
    except UnicodeError:
        raise Unexplained("that is no name of a host") from None
    except OSError as error:
        raise Unexplained(f"no connection: {error.strerror or error}") from None


def _chain(secured: ssl.SSLSocket, *, verified: bool) -> list[bytes]:
    """Return the certificates of a connection in DER; public API only since Python 3.13."""
    import _ssl

    inner: object = secured._sslobj  # type: ignore[attr-defined]
    name = "get_verified_chain" if verified else "get_unverified_chain"
    get: Callable[[], list[object] | None] = getattr(inner, name)
    form = _ssl.ENCODING_DER
    return [one.public_bytes(form) for one in (get() or [])[:MAX_CERTIFICATES]]  # type: ignore[attr-defined]


def _read(chain: list[bytes]) -> tuple[list[Certificate], str]:
    """Read a chain up to the first certificate that cannot be read; say why there."""
    certificates = []
    for der in chain:
        try:
            certificates.append(Certificate(der))
        except ValueError as error:
            return certificates, str(error)
    return certificates, ""

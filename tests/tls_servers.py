"""HTTPS servers on loopback whose certificates are good, legacy, or wrong in one way each.

Certificates are made here, with short lives. "Legacy" ones break RFC 5280 in the ways in which
companies' own authorities do, and which only ``VERIFY_X509_STRICT`` refuses.
"""

from __future__ import annotations

import datetime
import http.server
import io
import ssl
import threading
import zipfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

__all__ = ["BAD", "KINDS", "LEGACY", "PACKAGE", "Authority", "serve", "serve_kinds"]

LEGACY = {
    "legacy_basic": "Basic Constraints of CA cert not marked critical",
    "legacy_usage": "CA cert does not include key usage extension",
    "legacy_identifier": "Missing Authority Key Identifier",
    "legacy_all": "Missing Authority Key Identifier",
}
"""Kinds that only strictness refuses, and the first thing that OpenSSL says against each."""
BAD = {
    "unknown": "unable to get local issuer certificate",
    "wrong_host": "Hostname mismatch",
    "expired": "certificate has expired",
    "bad_signature": "certificate signature failure",
}
"""Kinds that are refused always, and what OpenSSL says."""
KINDS = ("good", *LEGACY, *BAD)

PACKAGE = "vis-tls-example"
"""A package that each server offers as an index: below /simple, the wheel below /files."""
DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority; the arguments say in what it is legacy."""

    def __init__(self, name: str, *, critical: bool = True, usage: bool = True) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self.name, self.name, self.key, days=30)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = builder.add_extension(constraints, critical=critical)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if usage:
            names = (
                *("content_commitment", "key_encipherment", "data_encipherment"),
                *("key_agreement", "encipher_only", "decipher_only"),
            )
            bits = dict.fromkeys(names, False) | {"digital_signature": True}
            key_usage = x509.KeyUsage(**bits, key_cert_sign=True, crl_sign=True)
            builder = builder.add_extension(key_usage, critical=True)
        self.certificate = builder.sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The certificate that clients have to trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, *, host: str = "localhost", identifier: bool = True, days: int = 10
    ) -> tuple[bytes, bytes]:
        """Return certificate (DER) and key (PEM) of a server called *host*."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        builder = _builder(subject, self.name, key, days=days)
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        for extension in (names, server):
            builder = builder.add_extension(extension, critical=False)
        if identifier:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return (
            certificate.public_bytes(serialization.Encoding.DER),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now + days * DAY)
    )


def _wheel() -> bytes:
    name = PACKAGE.replace("-", "_")
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/RECORD": f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return content.getvalue()


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self) -> None:
        wheel = f"{PACKAGE.replace('-', '_')}-1.0-py3-none-any.whl"
        kind, body = "text/html", b"ok"
        if self.path.startswith("/simple/"):
            body = f'<!DOCTYPE html><a href="/files/{wheel}">{wheel}</a>'.encode()
        elif self.path.startswith("/files/"):
            kind, body = "application/octet-stream", _wheel()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests look at what clients say."""


class _Server(http.server.ThreadingHTTPServer):
    """Makes each handshake in the thread of its connection; clients that refuse are no error."""

    tls: ssl.SSLContext
    daemon_threads = True

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(10)
        with self.tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve(folder: Path, name: str, chain: list[bytes], key: bytes) -> Iterator[int]:
    """Serve with *chain* (DER, the server's own first) on a loopback port, which is yielded."""
    file = folder / f"{name}.server"
    pem = "".join(map(ssl.DER_cert_to_PEM_cert, chain)).encode()
    file.write_bytes(pem + key)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(file)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serve_kinds(folder: Path) -> Iterator[tuple[dict[str, int], Path]]:
    """Serve each of `KINDS`; yield the ports, and a bundle with all authorities but the unknown."""
    good = Authority("Good Authority")
    basic = Authority("Legacy Authority without critical", critical=False)
    usage = Authority("Legacy Authority without usage", usage=False)
    both = Authority("Legacy Authority without both", critical=False, usage=False)
    issued = {
        "good": good.issue(),
        "legacy_basic": basic.issue(),
        "legacy_usage": usage.issue(),
        "legacy_identifier": good.issue(identifier=False),
        "legacy_all": both.issue(identifier=False),
        "unknown": Authority("Unknown Authority").issue(),
        "wrong_host": good.issue(host="elsewhere.test"),
        "expired": good.issue(days=-1),
        "bad_signature": good.issue(),
    }
    certificate, key = issued["bad_signature"]
    issued["bad_signature"] = certificate[:-1] + bytes([certificate[-1] ^ 1]), key
    bundle = folder / "authorities.pem"
    bundle.write_bytes(b"".join(one.pem for one in (good, basic, usage, both)))
    with ExitStack() as stack:
        ports = {
            kind: stack.enter_context(serve(folder, kind, [issued[kind][0]], issued[kind][1]))
            for kind in KINDS
        }
        yield ports, bundle

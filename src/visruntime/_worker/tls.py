"""How strictly a worker's Python checks certificates, and which authorities its programs trust.

Both are settings for code that means well. Nothing on the host depends on them: a guest can
build a TLS context, or bring a library, that checks nothing at all.
"""

from __future__ import annotations

import os

from visruntime._host.files import open_without_links
from visruntime._policy.links import Resolver, check_links
from visruntime._policy.paths import is_within, visible
from visruntime._policy.values import Secret
from visruntime.errors import PolicyError
from visruntime.events import Clause
from visruntime.guest import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

    from visruntime.events import EnforcementReport

__all__ = ["CA_VARIABLES", "MAX_BUNDLE_BYTES", "SYSTEM_BUNDLES", "TlsSettings"]

LENIENT_FOLDER = os.path.join(os.path.dirname(os.path.abspath(frames.__file__)), "lenient_tls")
"""Holds one file: the guest module, which is also the sitecustomize of a worker's children."""

SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Gentoo
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",  # older ones of these
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine
)
"""Where distributions keep all authorities in one file; the first that exists is "system"."""

CA_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, hence Python's ssl, httpx, aiohttp; also uv and Go
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",  # adds to what Node brings, the others replace
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
)
"""The variables by which programs are told of a file with certificate authorities."""

UV_SWITCHES = {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}
"""Newer and older name of uv's switch from its own list to that of the system."""

MAX_BUNDLE_BYTES = 16 * 1024**2
"""Largest bundle that is delivered; those of distributions have about 250 KB."""


class TlsSettings:
    """The TLS settings of one runtime; each worker that it starts gets them.

    Args:
        strict: ``False`` clears ``VERIFY_X509_STRICT`` in the worker and the Pythons that it
            starts; ``True`` and ``None`` change nothing at all.
        ca: path of a PEM bundle, ``"system"``, or ``None`` for what programs take by themselves.
        write: the write grants of the policy; no bundle inside of one is taken.

    Attributes:
        strict: as given.
        bundle: the real path of the bundle, ``None`` where there is none.
        grants: what a worker has to read for them, with reasons.
        modules: (name, file) of each guest module that a worker has for them.

    Raises:
        PolicyError: for a wrong value, or a bundle that cannot be used; the message says why.
    """

    __slots__ = ("_digest", "bundle", "grants", "modules", "strict")

    def __init__(
        self,
        *,
        strict: bool | None = None,
        ca: str | os.PathLike[str] | None = None,
        write: Sequence[str] = (),
    ) -> None:
        if strict is not None and not isinstance(strict, bool):
            raise PolicyError(
                f"tls_strict: True, False or None, not {strict!r:.60}",
                field="tls_strict",
                value=strict,
            )
        self.strict = strict
        self.bundle: str | None = None
        self._digest = ""
        grants: list[tuple[str, str]] = []
        self.modules: tuple[tuple[str, str], ...] = ()
        if strict is False:
            self.modules = (("lenient_tls", os.path.join(LENIENT_FOLDER, "sitecustomize.py")),)
            grants.append((LENIENT_FOLDER, "tls_strict=False for Pythons that the worker starts"))
        if ca is not None:
            self.bundle = _find_bundle(ca, write)
            self._digest = _check_bundle(self.bundle)
            grants.append((self.bundle, "certificate authorities, ca="))
        self.grants = tuple(grants)

    def variables(
        self, chosen: Mapping[str, str | Secret], ambient: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the variables that a worker has for these settings.

        Args:
            chosen: variables that the caller or the policy sets or asks for by name.
            ambient: those that the worker has anyway.

        Raises:
            PolicyError: a variable of a bundle is chosen to be something else.
        """
        added: dict[str, str] = {}
        if self.bundle is not None:
            added |= dict.fromkeys(CA_VARIABLES, self.bundle)
        for name, value in added.items():
            if chosen.get(name, value) != value:
                raise PolicyError(
                    f"ca: {name} is set as well; give the bundle by ca= or by variables, not both",
                    field="ca",
                    value=self.bundle,
                )
        if self.bundle is not None:
            added |= {name: on for name, on in UV_SWITCHES.items() if name not in chosen}
        if self.strict is False:
            path = chosen.get("PYTHONPATH", ambient.get("PYTHONPATH"))
            if isinstance(path, Secret):
                path = path.reveal()
            added["PYTHONPATH"] = f"{LENIENT_FOLDER}:{path}" if path else LENIENT_FOLDER
        return added

    def clauses(self) -> list[Clause]:
        """What these settings are, for a report; none where nothing is set."""
        clauses = []
        if self.strict is False:
            note = (
                "False: VERIFY_X509_STRICT is never set; chain, host name, dates and signatures "
                "are checked as ever"
            )
            clauses.append(Clause("tls_strict", ("the worker's ssl module",), note=note))
        if self.bundle is not None:
            note = f"{visible(self.bundle)}, SHA-256 {self._digest}"
            clauses.append(Clause("ca", ("environment",), note=note))
        return clauses

    def add_to(self, report: EnforcementReport) -> EnforcementReport:
        """Return the report of a jail with these settings; as it is where nothing is set."""
        clauses = self.clauses()
        return report.with_clauses(clauses) if clauses else report


def _find_bundle(ca: str | os.PathLike[str], write: Sequence[str]) -> str:
    """Return the real path of the bundle that *ca* means."""
    text = os.fspath(ca) if isinstance(ca, os.PathLike) else ca
    if not isinstance(text, str) or not text or "\0" in text:
        _refuse(ca, "the path of a PEM file, or 'system'")
    if text == "system":
        found = next((path for path in SYSTEM_BUNDLES if os.path.exists(path)), None)
        if found is None:
            _refuse(
                text,
                f"this system has its authorities at none of {', '.join(SYSTEM_BUNDLES)}; "
                "name the file",
            )
        text = found
    path = os.path.abspath(text)
    with Resolver() as resolver:
        real = resolver(path)
    check_links("ca", path, real, resolver.links[path], write)
    for grant in write:
        if is_within(real, grant):
            _refuse(
                path,
                f"it lies inside the write grant {visible(grant)}, where a guest could add an "
                "authority; keep the bundle outside of every write grant",
            )
    return real


def _check_bundle(path: str) -> str:
    """Return the SHA-256 of the bundle *path*, which must hold certificates and no key."""
    try:
        with open(open_without_links(path, os.O_RDONLY), "rb") as file:
            content = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        _refuse(path, f"it cannot be read: {error.strerror}")
    if len(content) > MAX_BUNDLE_BYTES:
        _refuse(path, f"it is larger than {MAX_BUNDLE_BYTES} bytes")
    if b"PRIVATE KEY-----" in content:
        _refuse(path, "it holds a private key, which a guest must not see; keep only certificates")
    import hashlib
    import ssl  # 30 ms, and only for who gives a bundle

    # Comments can be in any language, and the certificates are ASCII.
    text = content.decode("ascii", "ignore")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        _refuse(path, f"it is no list of certificates in PEM form ({error})")
    return hashlib.sha256(content).hexdigest()


def _refuse(value: object, why: str) -> NoReturn:
    raise PolicyError(f"ca: {value!s:.200}: {why}", field="ca", value=value)

"""Read X.509 certificates, and say which rules of RFC 5280 each keeps.

The rules are those that OpenSSL applies with ``X509_V_FLAG_X509_STRICT`` only (``check_extensions``
in its crypto/x509/x509_vfy.c; versions differ in a few). Certificates come from strangers:
everything is bounded by their bytes, and what does not parse is a ValueError.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CHECKS", "Certificate", "Check", "check"]

MAX_CERTIFICATE_BYTES = 1 << 20
"""Largest certificate that is read; OpenSSL takes 100 KiB for a whole chain."""
MAX_NAME_CHARACTERS = 100
"""Of each name that is shown."""

# Tags of DER that matter here.
BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OID = 0x01, 0x02, 0x03, 0x04, 0x06
SEQUENCE, SET, VERSION, EXTENSIONS = 0x30, 0x31, 0xA0, 0xA3
TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}

# Extensions are below 2.5.29, attributes of names below 2.5.4.
SUBJECT_KEY, KEY_USAGE, ALTERNATIVE_NAME = b"\x55\x1d\x0e", b"\x55\x1d\x0f", b"\x55\x1d\x11"
BASIC_CONSTRAINTS, AUTHORITY_KEY = b"\x55\x1d\x13", b"\x55\x1d\x23"
ATTRIBUTES = {b"\x55\x04\x03": "CN", b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU"}
DNS_NAME, IP_ADDRESS, KEY_IDENTIFIER = 0x82, 0x87, 0x80
CERT_SIGN, CRL_SIGN = 5, 6
"""Bits of the key usage, counted from its first."""


class Certificate:
    """One certificate, as far as the rules need it.

    Attributes:
        subject, issuer: the main parts of the names as text, such as ``CN=a.test``.
        names: what it is for, ``None`` if it does not say: its DNS names and IP addresses.
        names_issuer_key: whether its authority key identifier holds the identifier of a key.
        extensions: (critical, value in DER) by OID in DER; of one that is there twice the first.

    Raises:
        ValueError: it is no certificate in DER.
    """

    def __init__(self, der: bytes) -> None:
        if len(der) > MAX_CERTIFICATE_BYTES:
            raise ValueError("the certificate is too large")
        body = _one(der, SEQUENCE)
        (_, signed), (_, outer), *_ = _items(body)
        fields = list(_items(signed))
        self.version = 1
        if fields and fields[0][0] == VERSION:
            self.version = int.from_bytes(_one(fields.pop(0)[1], INTEGER), "big") + 1
        if len(fields) < 6:
            raise ValueError("a certificate lacks fields")
        _, (_, inner), (_, issuer), _, (_, subject), _, *rest = fields
        self.same_algorithm = inner == outer
        self.has_issuer, self.has_subject = bool(issuer), bool(subject)
        self.self_issued = issuer == subject
        self.issuer, self.subject = _name(issuer), _name(subject)
        self.extensions: dict[bytes, tuple[bool, bytes]] = {}
        for tag, content in rest:
            if tag == EXTENSIONS:
                self._read_extensions(_one(content, SEQUENCE))
        self.is_authority, self.path_length = self._constraints()
        self.usage = self._usage()
        self.names = self._names()
        self.names_issuer_key = self._names_issuer_key()

    def _read_extensions(self, content: bytes) -> None:
        for _, extension in _items(content):
            (_, oid), *parts = _items(extension)
            critical = len(parts) > 1 and parts[0][0] == BOOLEAN and any(parts[0][1])
            if not parts or parts[-1][0] != OCTET_STRING:
                raise ValueError("an extension has no value")
            self.extensions.setdefault(oid, (critical, parts[-1][1]))

    def value(self, oid: bytes) -> bytes | None:
        """The value of an extension, ``None`` without it."""
        return self.extensions[oid][1] if oid in self.extensions else None

    def critical(self, oid: bytes) -> bool:
        """Whether an extension is there and marked critical."""
        return oid in self.extensions and self.extensions[oid][0]

    def _constraints(self) -> tuple[bool, int | None]:
        value = self.value(BASIC_CONSTRAINTS)
        if value is None:
            return False, None
        authority, length = False, None
        for tag, content in _items(_one(value, SEQUENCE)):
            if tag == BOOLEAN:
                authority = any(content)
            elif tag == INTEGER:
                length = int.from_bytes(content, "big")
        return authority, length

    def _usage(self) -> frozenset[int] | None:
        value = self.value(KEY_USAGE)
        if value is None:
            return None
        bits = _one(value, BIT_STRING)[1:]
        return frozenset(n for n in range(len(bits) * 8) if bits[n // 8] & (0x80 >> n % 8))

    def _names(self) -> tuple[str, ...] | None:
        value = self.value(ALTERNATIVE_NAME)
        if value is None:
            return None
        found = []
        for tag, content in _items(_one(value, SEQUENCE)):
            if tag == DNS_NAME:
                found.append(content.decode("ascii", "replace")[:MAX_NAME_CHARACTERS])
            elif tag == IP_ADDRESS and len(content) in (4, 16):
                import ipaddress

                found.append(str(ipaddress.ip_address(content)))
            else:
                found.append("a name of another kind")
        return tuple(found)

    def _names_issuer_key(self) -> bool:
        value = self.value(AUTHORITY_KEY)
        return value is not None and any(
            tag == KEY_IDENTIFIER for tag, _ in _items(_one(value, SEQUENCE))
        )


class Check:
    """One rule: where RFC 5280 has it, in words, and who keeps it.

    ``keeps`` gets the certificate, its place in the chain (the server's own is 0) and whether it
    ends the chain; its answer ``None`` means that the rule says nothing about this one. ``fix``
    is the extension that is missing or wrong, as OpenSSL's configuration has it.
    """

    __slots__ = ("fix", "keeps", "section", "text")

    def __init__(
        self,
        section: str,
        text: str,
        keeps: Callable[[Certificate, int, bool], bool | None],
        fix: str = "",
    ) -> None:
        self.section = section
        self.text = text
        self.keeps = keeps
        self.fix = fix


def _when(condition: object, answer: object) -> bool | None:
    return bool(answer) if condition else None


AUTHORITY = "basicConstraints = critical, CA:TRUE"
ISSUER_KEY = "authorityKeyIdentifier = keyid"
OWN_KEY = "subjectKeyIdentifier = hash"

CHECKS = (
    Check(
        "4.2.1.9",
        "an authority says that it is one (basic constraints, CA:TRUE)",
        lambda one, place, _: _when(place > 0, one.is_authority),
        AUTHORITY,
    ),
    Check(
        "4.2.1.9",
        "basic constraints of an authority are marked critical",
        lambda one, *_: _when(one.is_authority, one.critical(BASIC_CONSTRAINTS)),
        AUTHORITY,
    ),
    Check(
        "4.2.1.9",
        "only an authority that signs certificates has a path length",
        lambda one, *_: _when(
            one.path_length is not None,
            one.is_authority and (one.usage is None or CERT_SIGN in one.usage),
        ),
    ),
    Check(
        "4.2.1.3",
        "an authority has a key usage",
        lambda one, *_: _when(one.is_authority, one.usage is not None),
        "keyUsage = critical, keyCertSign, cRLSign",
    ),
    Check(
        "4.2.1.3",
        "only an authority may sign certificates (key usage)",
        lambda one, *_: _when(
            one.usage is not None and not one.is_authority, CERT_SIGN not in (one.usage or ())
        ),
        "keyUsage = critical, digitalSignature",
    ),
    Check("4.1.2.4", "the issuer has a name", lambda one, *_: one.has_issuer),
    Check(
        "4.1.2.6",
        "the subject has a name, or critical alternative names",
        lambda one, *_: (
            one.has_subject
            or (
                one.critical(ALTERNATIVE_NAME)
                and not (one.is_authority or CRL_SIGN in (one.usage or ()))
            )
        ),
    ),
    Check(
        "4.2.1.6",
        "alternative names are not an empty list",
        lambda one, *_: _when(one.names is not None, one.names),
    ),
    Check(
        "4.1.1.2",
        "both statements of the signature's algorithm agree",
        lambda one, *_: one.same_algorithm,
    ),
    Check(
        "4.2.1.1",
        "it names the key of its issuer (authority key identifier)",
        lambda one, _, last: _when(
            one.version >= 3 and not last and not one.self_issued, one.names_issuer_key
        ),
        ISSUER_KEY,
    ),
    Check(
        "4.2.1.1",
        "the authority key identifier is not marked critical",
        lambda one, *_: _when(AUTHORITY_KEY in one.extensions, not one.critical(AUTHORITY_KEY)),
        ISSUER_KEY,
    ),
    Check(
        "4.2.1.2",
        "an authority names its own key (subject key identifier)",
        lambda one, *_: _when(one.version >= 3 and one.is_authority, SUBJECT_KEY in one.extensions),
        OWN_KEY,
    ),
    Check(
        "4.2.1.2",
        "the subject key identifier is not marked critical",
        lambda one, *_: _when(SUBJECT_KEY in one.extensions, not one.critical(SUBJECT_KEY)),
        OWN_KEY,
    ),
    Check(
        "4.1.2.1",
        "a certificate with extensions is of version 3",
        lambda one, *_: _when(one.extensions, one.version >= 3),
    ),
)
"""In the order in which they are shown."""


def check(chain: Sequence[Certificate], place: int, *, whole: bool) -> list[tuple[Check, bool]]:
    """Return each rule that says something about the certificate at *place*, and if it is kept.

    *whole* says that the last of *chain* is the trusted one, which names nobody above it.
    OpenSSL applies the rules only to chains of more than one certificate.
    """
    ends = whole and place == len(chain) - 1
    answers = [(rule, rule.keeps(chain[place], place, ends)) for rule in CHECKS]
    return [(rule, kept) for rule, kept in answers if kept is not None]


def _items(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each DER value in *content*."""
    position = 0
    while position < len(content):
        header = content[position : position + 2]
        if len(header) < 2 or header[0] & 0x1F == 0x1F:
            raise ValueError("no DER")
        tag, length = header
        position += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or position + size > len(content):
                raise ValueError("no DER")
            length = int.from_bytes(content[position : position + size], "big")
            position += size
        if position + length > len(content):
            raise ValueError("a DER value is cut off")
        yield tag, content[position : position + length]
        position += length


def _one(content: bytes, wanted: int) -> bytes:
    """Return the content of the DER value with which *content* begins."""
    for tag, inner in _items(content):
        if tag == wanted:
            return inner
        break
    raise ValueError("another DER value than expected")


def _name(content: bytes) -> str:
    """Return the main parts of a name."""
    parts = []
    for _, group in _items(content):
        for _, attribute in _items(group):
            (_, oid), (tag, value), *_ = _items(attribute)
            if oid in ATTRIBUTES and tag in TEXTS:
                text = value.decode(TEXTS[tag], "replace")[:MAX_NAME_CHARACTERS]
                parts.append(f"{ATTRIBUTES[oid]}={text}")
    return ", ".join(parts[:6]) or "(no name)"

"""``visruntime tls explain``: its verdicts are OpenSSL's, its time bounded, its text harmless."""

from __future__ import annotations

import itertools
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from interpreters import interpreter
from tls_servers import BAD, LEGACY, Authority, _builder, serve, serve_kinds

from visruntime import _tls_certificates as certificates
from visruntime import _tls_explain
from visruntime.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.one_uid

BROKEN = {
    "legacy_basic": {"basic constraints of an authority are marked critical"},
    "legacy_usage": {"an authority has a key usage"},
    "legacy_identifier": {"it names the key of its issuer (authority key identifier)"},
    "legacy_all": {
        "basic constraints of an authority are marked critical",
        "an authority has a key usage",
        "it names the key of its issuer (authority key identifier)",
    },
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, int], Path]]:
    """Serve each kind of certificate; give the ports by kind, and the bundle."""
    with serve_kinds(tmp_path_factory.mktemp("tls").resolve()) as served:
        yield served


@pytest.fixture
def explain(servers: Any, capfd: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str]]:
    """Return a function that runs the command on a kind of server: exit code and output."""
    ports, bundle = servers

    def run(kind: str) -> tuple[int, str]:
        code = main(["tls", "explain", "--ca", str(bundle), f"localhost:{ports[kind]}"])
        captured = capfd.readouterr()
        assert captured.err == ""
        return code, captured.out

    return run


def broken(text: str) -> set[str]:
    """Return the rules that an output marks as broken."""
    lines = [
        line.split("BREAKS", 1)[1].split(None, 1) for line in text.splitlines() if "BREAKS" in line
    ]
    return {rule for _, rule in lines}


@pytest.mark.parametrize("kind", LEGACY)
def test_strictness_as_the_only_cause(kind: str, explain: Any) -> None:
    """All broken rules are named, not only the first that OpenSSL meets, and the way out."""
    code, text = explain(kind)
    assert code == 1
    assert f"(tls_strict=True)  refused: {LEGACY[kind]}" in text
    assert "VERIFY_X509_STRICT (False)     accepted" in text
    assert broken(text) == BROKEN[kind]
    assert "Strictness is the only cause" in text
    assert "--tls-lenient" in text
    fixes = (
        ("basic", "basicConstraints"),
        ("usage", "keyUsage"),
        ("names", "authorityKeyIdentifier"),
    )
    for rule, fix in fixes:
        assert (f"  {fix} = " in text) == any(rule in one for one in BROKEN[kind])


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        ("unknown", "--ca FILE"),
        ("wrong_host", "the certificate is for elsewhere.test, and not for localhost"),
        ("expired", "renews"),
        ("bad_signature", "trust none"),
    ],
)
def test_what_leniency_does_not_help_against(kind: str, fix: str, explain: Any) -> None:
    """Leniency is never offered where it would not help."""
    code, text = explain(kind)
    assert code == 1
    assert text.count(f"refused: {BAD[kind]}") == 2
    assert "Strictness is not the cause" in text
    assert fix in text
    assert "--tls-lenient" not in text
    assert "unverified" in text
    assert broken(text) == set()


def test_a_good_server(explain: Any) -> None:
    """Nothing is made up where nothing is wrong."""
    code, text = explain("good")
    assert code == 0
    assert "refused" not in text
    assert broken(text) == set()
    assert text.count("     ok      ") > 10


def test_both_causes_are_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A legacy authority whose server has another name as well is not excused as legacy."""
    authority = Authority("Legacy Authority", critical=False)
    (tmp_path / "bundle.pem").write_bytes(authority.pem)
    certificate, key = authority.issue(host="elsewhere.test")
    chain = [certificate, authority.certificate.public_bytes(serialization.Encoding.DER)]
    with serve(tmp_path, "both", chain, key) as port:
        words = ["explain", "--ca", str(tmp_path / "bundle.pem"), f"localhost:{port}"]
        assert main(["tls", *words]) == 1
    text = capfd.readouterr().out
    assert "Strictness is not the only cause" in text
    assert broken(text) == BROKEN["legacy_basic"]
    assert "--tls-lenient" not in text


def _handshake(chain: bytes, key: bytes, authority: bytes, *, strict: bool, folder: Path) -> str:
    """Make a handshake in memory; return what OpenSSL says against the server, "" if nothing."""
    (folder / "server.pem").write_bytes(chain + key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode())
    context.verify_flags = _tls_explain.FLAGS | (ssl.VERIFY_X509_STRICT if strict else 0)
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(inward, outward, server_hostname="localhost")
    server = server_context.wrap_bio(outward, inward, server_side=True)
    for side in (client, server, client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


CHOICES = (
    *("critical", "usage", "own_key", "own_key_critical", "path_length", "issuer_key"),
    *("issuer_key_critical", "signs", "no_subject"),
)


def _chain(chosen: dict[str, bool], keys: Any) -> tuple[bytes, bytes, list[bytes]]:
    """Return authority and server (PEM) with what is *chosen*, and both in DER, server first."""
    key, server_key = keys
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Some Authority")])
    builder = _builder(name, name, key, days=5).add_extension(
        x509.BasicConstraints(ca=True, path_length=3 if chosen["path_length"] else None),
        critical=chosen["critical"],
    )
    bits = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
         "key_agreement", "crl_sign", "encipher_only", "decipher_only"), False
    )  # fmt: skip
    if chosen["usage"]:
        usage = x509.KeyUsage(**bits, key_cert_sign=True)
        builder = builder.add_extension(usage, critical=True)
    if chosen["own_key"]:
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(own, critical=chosen["own_key_critical"])
    authority = builder.sign(key, hashes.SHA256())
    subject = [] if chosen["no_subject"] else [x509.NameAttribute(NameOID.COMMON_NAME, "x")]
    builder = _builder(x509.Name(subject), name, server_key, days=5).add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    if chosen["issuer_key"]:
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()),
            critical=chosen["issuer_key_critical"],
        )
    if chosen["signs"]:
        bits["digital_signature"] = True
        usage = x509.KeyUsage(**bits, key_cert_sign=True)
        builder = builder.add_extension(usage, critical=False)
    server = builder.sign(key, hashes.SHA256())
    pem, der = serialization.Encoding.PEM, serialization.Encoding.DER
    return (
        authority.public_bytes(pem),
        server.public_bytes(pem),
        [server.public_bytes(der), authority.public_bytes(der)],
    )


def test_the_rules_are_those_of_openssl(tmp_path: Path) -> None:
    """No combination of faults is judged in another way than by the OpenSSL of this host."""
    keys = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    key = keys[1].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    seen = set()
    combinations = list(itertools.product((True, False), repeat=len(CHOICES)))
    random.Random(7).shuffle(combinations)
    sound = dict.fromkeys(CHOICES, False) | dict.fromkeys(
        ("critical", "usage", "own_key", "issuer_key"), True
    )
    single = [sound, *(sound | {choice: not sound[choice]} for choice in CHOICES)]
    for chosen in [*single, *(dict(zip(CHOICES, one, strict=True)) for one in combinations[:150])]:
        authority, server, ders = _chain(chosen, keys)
        said = _handshake(server, key, authority, strict=True, folder=tmp_path)
        chain = [certificates.Certificate(der) for der in ders]
        rules = [
            rule.text
            for place in range(2)
            for rule, kept in certificates.check(chain, place, whole=True)
            if not kept
        ]
        assert bool(said) == bool(rules), (chosen, said, rules)
        # OpenSSL handles neither identifier where it is critical, whatever the flags.
        odd = (chosen["own_key"] and chosen["own_key_critical"]) or (
            chosen["issuer_key"] and chosen["issuer_key_critical"]
        )
        lenient = _handshake(server, key, authority, strict=False, folder=tmp_path)
        assert lenient == ("unhandled critical extension" if odd else "")
        seen |= {said}
    assert len(seen) > 5, seen


def test_hostile_certificates_are_an_error_and_nothing_else(tmp_path: Path) -> None:
    """Whatever the bytes: a certificate or a ValueError, in bounded time."""
    authority = Authority("Some Authority")
    der, _ = authority.issue()
    chance = random.Random(11)
    outcomes = {True: 0, False: 0}
    started = time.monotonic()
    for _ in range(4000):
        data = bytearray(der)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        try:
            one = certificates.Certificate(bytes(data))
        except ValueError:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
            assert certificates.check([one, one], 0, whole=False)
    assert min(outcomes.values()) > 100
    for wrong in (b"", b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80" * 500_000, der[:-1]):
        with pytest.raises(ValueError, match=r".+"):
            certificates.Certificate(wrong)
    with pytest.raises(ValueError, match="too large"):
        certificates.Certificate(b"\x30" * (certificates.MAX_CERTIFICATE_BYTES + 1))
    assert time.monotonic() - started < 20


def test_names_of_strangers_steer_no_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What stands in a certificate is shown as text, bounded, without control characters."""
    authority = Authority("\x1b]0;owned\x07 \u202e" + "A" * 40)
    certificate, key = authority.issue()
    with serve(tmp_path, "names", [certificate], key) as port:
        assert main(["tls", "explain", f"localhost:{port}"]) == 1
    text = capfd.readouterr().out
    assert "\\x1b]0;owned\\x07 \\u202e" in text
    assert all(line.isprintable() for line in text.split("\n"))


@contextmanager
def listener(serve_one: Callable[[socket.socket], object]) -> Iterator[int]:
    """Listen on loopback and hand each connection to a function in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        serve_one(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def _silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def _dripping(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")  # a record that never ends
    for _ in range(200):
        connection.sendall(b"\x03")
        time.sleep(0.05)


@pytest.mark.parametrize("serve_one", [_silent, _dripping])
def test_a_server_that_does_not_answer(
    serve_one: Callable[[socket.socket], object], capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither silence nor a drip of bytes holds the command longer than its time."""
    started = time.monotonic()
    with listener(serve_one) as port:
        assert main(["tls", "explain", "--timeout", "0.6", f"localhost:{port}"]) == 125
        assert time.monotonic() - started < 3
    assert "no answer" in capfd.readouterr().err


def test_a_resolver_that_hangs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The time holds for the search of the address, too, which nothing can interrupt."""
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    started = time.monotonic()
    assert main(["tls", "explain", "--timeout", "0.3", "a.test"]) == 125
    assert time.monotonic() - started < 3
    release.set()
    assert "no answer in 0.3 s" in capfd.readouterr().err


def test_what_is_no_tls(capfd: pytest.CaptureFixture[str]) -> None:
    """A server without TLS, or none at all, is a refusal and no verdict about certificates."""
    with listener(lambda connection: connection.sendall(b"HTTP/1.0 400 no\r\n\r\n")) as port:
        assert main(["tls", "explain", f"127.0.0.1:{port}"]) == 125
    captured = capfd.readouterr()
    assert "no TLS" in captured.err
    assert captured.out == ""
    assert main(["tls", "explain", f"127.0.0.1:{port}"]) == 125
    assert "no connection: Connection refused" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["check", "a.test"],
        ["explain"],
        ["explain", "a.test", "b.test"],
        ["explain", "a.test:0"],
        ["explain", "a.test:65536"],
        ["explain", "a.test:https"],
        ["explain", ":443"],
        ["explain", "https://a.test/"],
        ["explain", "user@a.test"],
        ["explain", "[::1"],
        ["explain", "[::1]x"],
        ["explain", "a\x1b.test"],
        ["explain", "a" * 300],
        ["explain", "--timeout", "0", "a.test"],
        ["explain", "--ca", "missing.pem", "a.test"],
        ["explain", "--insecure", "a.test"],
        ["explain", ".a..test"],
    ],
)
def test_wrong_words_are_refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked of anybody for a command line that is not understood."""
    assert main(["tls", *words]) == 125
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.rstrip("\n").isprintable()


def test_the_same_on_the_newest_python(servers: Any) -> None:
    """Chains come from an interface that differs between versions: the words do not."""
    ports, bundle = servers
    source = str(Path(_tls_explain.__file__).parent.parent)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from visruntime._tls_explain import explain\n"
        "found = explain('localhost', int(sys.argv[2]), bundle=sys.argv[3], seconds=10)\n"
        "print(found.strict, found.only_strictness, found.verified, len(found.chain),\n"
        "      [rule.text for rule, kept in found.checks(1) if not kept])"
    )
    said = [
        subprocess.run(
            [python, "-I", "-c", code, source, str(ports["legacy_basic"]), str(bundle)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        ).stdout
        for python in (sys.executable, interpreter(13))
    ]
    assert said[0] == said[1]
    assert said[0].startswith("Basic Constraints of CA cert not marked critical True True 2 [")

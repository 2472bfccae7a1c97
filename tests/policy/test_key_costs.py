"""What it costs to tell private keys from certificates, in files that a guest may have made."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from visruntime import Jail, JailPolicy, PolicyUnsupported, _native

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

PIECES = (b"-----BEGIN ", b"PRIVATE KEY", b"PuTTY-User-Key-File-", b"\n", b"-", b"P", b"RSA ", b"x")
LABEL = 96
"""Bytes of a header that are looked at."""


def plainly(content: bytes) -> bool:
    """Read the rule as it is written: a header with the words in it, in one line."""
    at = content.find(b"-----BEGIN ")
    while at >= 0:
        if b"PRIVATE KEY" in content[at : at + LABEL].partition(b"\n")[0]:
            return True
        at = content.find(b"-----BEGIN ", at + 1)
    return b"PuTTY-User-Key-File-" in content


def test_one_pass_finds_the_keys_that_a_plain_reading_finds() -> None:
    """Over headers that begin in each other, end at a line or are cut off; some are keys."""
    chosen = random.Random(11)
    keys = 0
    for _ in range(20_000):
        weights = [4, 2, 0.05, 1, 3, 2, 3, chosen.choice((1, 30))]
        content = b"".join(chosen.choices(PIECES, weights, k=chosen.randint(0, 30)))
        content = content[: chosen.randint(0, len(content))]
        assert _native.is_private_key(content) == plainly(content), content
        keys += plainly(content)
    assert 1000 < keys < 19_000


@pytest.mark.parametrize("piece", [b"-----BEGIN ", b"-----BEGIN P", b"-", b"P", b"\0"])
def test_no_content_costs_much_more_than_another(piece: bytes) -> None:
    """64 KiB that are made to be slow take no more than ten times a certificate's."""

    def fastest(content: bytes) -> float:
        best = 1.0
        for _ in range(20):
            start = time.perf_counter()
            assert not _native.is_private_key(content)
            best = min(best, time.perf_counter() - start)
        return best

    size = 65536
    lines = b"-----BEGIN CERTIFICATE-----\n" + b"MIIB" * 16 + b"\n"
    plain = fastest((lines * size)[:size])
    assert fastest((piece * size)[:size]) < 10 * plain + 0.0001


def test_the_contents_that_are_looked_at_are_bounded(tmp_path: Path) -> None:
    """Many names of one file, which no limit of secrets counts, do not hold up the next jail."""
    size = 65536
    (tmp_path / "0.pem").write_bytes((b"-----BEGIN " * size)[:size])
    for number in range(1, 40):
        os.link(tmp_path / "0.pem", tmp_path / f"{number}.pem")
    table = b"k.pem\0"

    def search(most: int) -> list[tuple[str, str]]:
        return _native.search(
            str(tmp_path),
            most_entries=100,
            most_findings=1,
            most_secrets=1,
            most_key_bytes=most,
            secrets=table,
        )

    assert search(40 * (size + 8192)) == []
    with pytest.raises(_native.NativeError, match="too many files that could hold private keys"):
        search(39 * (size + 8192))


def test_a_grant_with_too_many_of_them_is_refused(workspace: Path) -> None:
    """The refusal says what is in the way; without them the same grant opens."""
    folder = workspace / "many"
    folder.mkdir()
    (folder / "0.pem").touch()
    os.truncate(folder / "0.pem", 65536)
    for number in range(1, 14_600):
        os.link(folder / "0.pem", folder / f"{number}.pem")
    with pytest.raises(PolicyUnsupported, match="too many files that could hold private keys"):
        Jail(JailPolicy(write=[workspace]))
    with Jail(JailPolicy(read=[folder / "0.pem"])) as jail:
        assert len(jail.read_bytes(str(folder / "0.pem"))) == 65536

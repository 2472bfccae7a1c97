"""The guide to `WindowsJail` says what the jail does not do, and claims nothing that was not shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_uid

DOCUMENTS = Path(__file__).parent.parent.parent / "doc"


def guide() -> str:
    """Return the guide, with its lines joined."""
    return " ".join((DOCUMENTS / "windows.md").read_text("utf-8").split())


def test_no_isolation_of_the_clipboard_is_claimed() -> None:
    """W57: the guide may not say that a private desktop keeps a guest from the clipboard."""
    sentences = [part for part in re.split(r"(?<=\.) ", guide()) if "clipboard" in part.lower()]
    assert any("belongs to the station" in sentence for sentence in sentences)
    assert any(
        "alone does not keep" in sentence and "READCLIPBOARD" in sentence for sentence in sentences
    )
    for page in DOCUMENTS.rglob("*.md"):
        text = " ".join(page.read_text("utf-8").split())
        assert not re.search(r"clipboard (is|stays) (private|isolated)", text, re.IGNORECASE), page


def test_what_others_tried_is_said_to_be_no_part_of_it() -> None:
    """W61: the guide may promise nothing that rests on filters or on overlaid file systems."""
    (sentence,) = re.findall(r"Filters of the network[^.]*\.", guide())
    for word in ("WFP", "BindFlt", "WinFsp", "no part of this jail"):
        assert word in sentence


def test_a_missing_null_device_is_documented() -> None:
    """W65: nobody may find out by a failing program that NUL can be refused to a guest."""
    assert re.search(r"`NUL`\*\* can be missing.*error 5", guide())


def test_the_boundary_is_said_to_be_wider_than_paths() -> None:
    """W29: the guide may not call registryRead a filter, nor the boundary a list of paths."""
    for words in ("`registryRead`", "is no filter for a few keys", "not a list of paths"):
        assert words in guide()


def test_no_document_claims_enforcement_on_windows() -> None:
    """W1: until a run on Windows is recorded, each page says that nothing is claimed."""
    assert "No enforcement on Windows is claimed yet" in guide()
    contract = " ".join((DOCUMENTS / "reference/windows.md").read_text("utf-8").split())
    assert "No enforcement by Windows is claimed" in contract
    platforms = (DOCUMENTS / "reference/platforms.md").read_text("utf-8")
    assert re.search(r"^\| Windows, AMD64 \| unclaimed \|$", platforms, re.MULTILINE)

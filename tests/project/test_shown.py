"""The pages that say what was measured and what was shown never say more than the figures do."""

from __future__ import annotations

import re
from typing import Any

import pytest
import readme
import record_run
from website import benchmarks, platforms

pytestmark = pytest.mark.one_uid


def record(parts: dict[str, dict[str, Any]], machine: str = "x86_64") -> dict[str, Any]:
    """Return a record of a run with these parts."""
    return {
        "system": "Linux",
        "machine": machine,
        "name": "Some Linux 12",
        "kernel": "6.12",
        "landlock": "ABI 7",
        "backend": "namespaces",
        "version": "0.1",
        "date": "2030-01-01",
        "commit": "0123456789ab",
        "parts": [{"name": name, **found} for name, found in parts.items()],
    }


PASSED: dict[str, Any] = {"ok": True, "passed": 9, "failed": 0, "skipped": 1}
WHOLE: dict[str, dict[str, Any]] = {
    "lint": {"ok": True},
    **{f"{part} as uid 1000": PASSED for part in platforms.PARTS},
}


def test_a_platform_without_a_record_is_unclaimed() -> None:
    """Nothing is claimed for a platform because another one was shown."""
    assert platforms.state([], "Linux", "x86_64") == "unclaimed"
    shown = [record(WHOLE)]
    assert platforms.state(shown, "Linux", "x86_64") == "shown"
    assert platforms.state(shown, "Linux", "aarch64") == "unclaimed"
    text = platforms.markdown(shown)
    assert "| Linux, x86_64 | shown |" in text
    assert "| macOS, arm64 | unclaimed |" in text
    assert "visruntime 0.1, kernel 6.12, commit 0123456789ab, Landlock ABI 7;" in text
    assert "| others as uid 1000 | 9 | 0 | 1 |" in text


@pytest.mark.parametrize(
    "parts",
    [
        WHOLE | {"lint": {"ok": False}},
        WHOLE | {"others as uid 1000": PASSED | {"ok": False, "failed": 1}},
        WHOLE | {"others as uid 1000": PASSED | {"passed": 0}},
        {name: found for name, found in WHOLE.items() if not name.startswith("boundaries")},
        {f"{part} as uid 0": PASSED for part in platforms.PARTS},
        WHOLE | {"jails as uid 0": PASSED, "jails as uid 1000": PASSED | {"passed": 0}},
    ],
)
def test_a_run_that_is_not_whole_claims_nothing(parts: dict[str, dict[str, Any]]) -> None:
    """A part that failed, ran nothing, is missing or ran as root only shows no platform."""
    found = platforms.state([record(parts)], "Linux", "x86_64")
    assert found == "unclaimed: a run there did not pass"


def test_the_parts_are_those_of_ci() -> None:
    """No part of the suite that CI runs can be missing from a record unseen."""
    ci = (readme.ROOT / ".ci" / "run").read_text()
    assert tuple(re.findall(r"^start_part (\w+) ", ci, re.MULTILINE)) == platforms.PARTS
    assert re.search(r'record_run\.py --out "\$VIS_RECORD" "\$\{parts\[@\]\}"', ci)


def test_a_platform_that_nobody_speaks_of() -> None:
    """A record is never left out of the page unseen."""
    with pytest.raises(ValueError, match="Linux on riscv64"):
        platforms.markdown([record(WHOLE, "riscv64")])


@pytest.mark.parametrize(
    ("status", "log", "counts"),
    [
        (0, "..s\n3 passed, 1 skipped in 2.50s\n", (True, 3, 0, 1)),
        (0, "== 2000 passed, 2 skipped in 301.00s (0:05:01) ==\n", (True, 2000, 0, 2)),
        (1, "1 failed, 3 passed, 2 errors in 2.50s\n", (False, 3, 3, 0)),
        (4, "ERROR: no such file\n", (False, 0, 0, 0)),
        (0, "9 passed in 1s\n1 passed in 1.00s\n", (True, 1, 0, 0)),
    ],
)
def test_counts_are_those_of_the_last_summary(
    status: int, log: str, counts: tuple[bool, int, int, int]
) -> None:
    """A log without a summary counts as nothing, and never as passed tests."""
    part = record_run.part("others as uid 1000", status, log)
    assert (part["ok"], part["passed"], part["failed"], part["skipped"]) == counts
    assert record_run.part("lint", status, log) == {"name": "lint", "ok": status == 0}


def figures(ratio: float) -> dict[str, Any]:
    """Return what the benchmarks write, with one row of this ratio."""
    row = {"number": "1", "what": "a <b>", "goal": 1.1, "ratio": ratio}
    row |= {"ours_ms": 1.0, "baseline_ms": 2.0, "peers": {"other": 3.0}}
    names = ("kernel", "architecture", "processors", "python", "uid")
    return {
        "date": "2030-01-01",
        "machine": dict.fromkeys(names, "1"),
        "visruntime": "0.1",
        "rounds": 60,
        "rows": [row],
        "not_measured": {"2": "no bwrap"},
    }


def test_a_goal_that_is_not_met_says_so() -> None:
    """Neither table nor plot shows a missed goal as met, and what was not measured is named."""
    met, missed = benchmarks.markdown(figures(1.1)), benchmarks.markdown(figures(1.2))
    assert "| 1 | a <b> | 1.10 | 1.1 | met |" in met
    assert "| 1 | a <b> | 1.20 | 1.1 | **not met** |" in missed
    assert "\n1 of 1 goals are met.\n" in met
    assert "\n0 of 1 goals are met.\n" in missed
    assert "Row 2 was not measured: no bwrap." in missed
    assert benchmarks.plot(figures(1.1)).count("<circle") == 2
    assert benchmarks.plot(figures(1.2)).count("<circle") == 1
    assert "a &lt;b&gt;" in benchmarks.plot(figures(1.1))


def test_a_ratio_beyond_the_plot_is_refused() -> None:
    """No figure is drawn at the edge as if it were less than it is."""
    with pytest.raises(ValueError, match="beyond the scale"):
        benchmarks.plot(figures(9.0))

"""What an owner's many rules cost: as much as they are, and not the square of that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import visruntime as vr

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

FEW, MANY = 1000, 8000
MOST_TIMES_LINEAR = 3
"""How much more than in proportion many rules may cost, since this machine has other work too."""


def make_files(folder: Path, count: int) -> list[Path]:
    """Make so many files, a hundred to each folder."""
    found = []
    for number in range(count):
        path = folder / f"d{number // 100}" / f"f{number}"
        if number % 100 == 0:
            path.parent.mkdir()
        path.touch()
        found.append(path)
    return found


def cost(**rules: list[Path]) -> float:
    """Return the processor time of opening a jail with *rules* and reading its report."""
    policy = vr.JailPolicy(**rules)  # type: ignore[arg-type]
    began = time.process_time()
    with vr.Jail(policy) as jail:
        report = jail.report.to_dict()
    spent = time.process_time() - began
    assert len(report["clauses"]) > sum(map(len, rules.values()))
    return spent


@pytest.mark.parametrize("kind", ["read", "write"])
def test_many_rules_cost_as_much_as_they_are(tmp_path: Path, kind: str) -> None:
    """A question about one rule must not look at all the others."""
    files = make_files(tmp_path, MANY)
    cost(**{kind: files[:1]})  # what is imported, once
    base = cost(**{kind: files[:1]})
    few = min(cost(**{kind: files[:FEW]}) for _ in range(2)) - base
    many = cost(**{kind: files}) - base
    assert many < few * (MANY / FEW) * MOST_TIMES_LINEAR

"""Random policy files: each is a policy or a named error, and a found one adds nothing."""

from __future__ import annotations

import os

import fuzz_policy
import pytest

pytestmark = pytest.mark.one_uid

FULL = os.environ.get("VIS_FULL") == "1"


@pytest.mark.timeout(900)
def test_random_policy_files() -> None:
    """No text may be taken for another policy, add a grant, or end in another error."""
    counts = fuzz_policy.run(20_000 if FULL else 150, derandomize=not FULL)
    # The random files must not have been too dull to find anything.
    assert counts["policies"] > counts["files"] // 10
    assert counts["narrowed"] > counts["files"] // 10

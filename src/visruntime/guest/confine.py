"""Tell the core what the policy says, so that its audit hook can explain refusals."""

from __future__ import annotations

import sys

import _viscore as core  # type: ignore[import-not-found]

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any


def confine(settings: dict[str, Any]) -> tuple[int, int] | None:
    """Hand over the host's *settings*, once, before any code of the guest runs.

    Returns the errnos that prove that no process can be started, ``None`` where they can.
    """
    answers: tuple[int, int] | None = core.confine(
        settings["rules"],
        settings["closed"],
        sys._stdlib_dir,  # type: ignore[attr-defined]
        settings["processes"],
        settings["ctypes"],
        settings["native"],
    )
    return answers

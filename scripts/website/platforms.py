"""A page that says what was shown on which platform, from records of whole runs of ``.ci/run``.

A platform is claimed when every part of such a run passed on it, for an ordinary uid too. What has no
record is unclaimed, whatever is hoped of it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PLATFORMS", "markdown", "state"]

PLATFORMS = (
    ("Linux", "x86_64"),
    ("Linux", "aarch64"),
    ("Darwin", "x86_64"),
    ("Darwin", "arm64"),
    ("Windows", "AMD64"),
)
"""What is spoken of, as `platform.system` and `platform.machine` say it."""
_NAMES = {"Darwin": "macOS"}
PARTS = ("boundaries", "workers", "policies", "jails", "packages", "others")
"""What .ci/run calls the parts of the test suite, before " as uid " and the uid."""

_HEAD = """\
# Platforms

Made by `scripts/generate_documents.py` from records that `.ci/run` writes (`VIS_RECORD=FILE`); a
check fails when this page is not what they say. A platform is *shown* when every part of such a run
passed there, also as an ordinary user. All else is *unclaimed*: it may work, and nobody has shown it.

| Platform | State |
|---|---|
"""


def _uids(record: dict[str, Any]) -> dict[str, set[int]]:
    """Return for each part of the suite the uids for which it passed with at least one test."""
    found: dict[str, set[int]] = {part: set() for part in PARTS}
    for lane in record["parts"]:
        part, _, uid = lane["name"].partition(" as uid ")
        if uid and lane["ok"] and lane["passed"] > 0:
            found.setdefault(part, set()).add(int(uid))
    return found


def _is_shown(record: dict[str, Any]) -> bool:
    ordinary = [any(uid != 0 for uid in uids) for uids in _uids(record).values()]
    return all(ordinary) and all(lane["ok"] for lane in record["parts"])


def state(records: list[dict[str, Any]], system: str, machine: str) -> str:
    """Return what may be said of one platform."""
    found = [each for each in records if (each["system"], each["machine"]) == (system, machine)]
    if any(map(_is_shown, found)):
        return "shown"
    return "unclaimed: a run there did not pass" if found else "unclaimed"


def markdown(records: list[dict[str, Any]]) -> str:
    """Return the page.

    Raises:
        ValueError: a record is of a platform that the page does not speak of.
    """
    text = _HEAD
    for system, machine in PLATFORMS:
        name = f"{_NAMES.get(system, system)}, {machine}"
        text += f"| {name} | {state(records, system, machine)} |\n"
    for record in records:
        if (record["system"], record["machine"]) not in PLATFORMS:
            raise ValueError(f"a record of {record['system']} on {record['machine']}")
        text += _section(record)
    return text + _NOTE


def _section(record: dict[str, Any]) -> str:
    text = f"\n## {record['name']}, {record['machine']}\n\n"
    text += f"{record['date']}, visruntime {record['version']}, kernel {record['kernel']}"
    text += f", commit {record['commit']}" if record["commit"] else ""
    text += f", Landlock {record['landlock']}" if record["landlock"] else ""
    if record["backend"]:
        text += f"; back end of a default jail: `{record['backend']}`"
    text += ".\n\n"
    text += "| Part of the run | Passed | Failed | Skipped |\n|---|---|---|---|\n"
    for lane in record["parts"]:
        counts = [lane.get(key) for key in ("passed", "failed", "skipped")]
        if counts[0] is None:
            counts = ["yes" if lane["ok"] else "", "" if lane["ok"] else "**yes**", ""]
        text += f"| {lane['name']} | {' | '.join(map(str, counts))} |\n"
    return text


_NOTE = """
## What no record says

A run shows what its machine has. Kernels and systems differ in more than is listed here; the threat
model says [what the machine must give](../../SECURITY.md#what-the-machine-must-give), and
`visruntime doctor` what one gives. Cgroup v2 is tried in a kernel of its own by
`scripts/test_cgroup2.sh`, which is part of a record where the run had `VIS_FULL=1`.
"""

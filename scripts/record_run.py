#!/usr/bin/env python3
"""Write down what a run of .ci/run has shown on this machine, for the page of platforms.

    uv run python scripts/record_run.py --out FILE 'jails as uid 1000' 0 jails.log ...

Each part is three words: its name, its exit code and its log, from which pytest's counts are taken.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import visruntime

ROOT = Path(__file__).resolve().parent.parent
_SUMMARY = re.compile(r"^=* ?((?:\d+ \w+, )*\d+ \w+) in [\d.:]+s", re.MULTILINE)


def part(name: str, status: int, log: str) -> dict[str, Any]:
    """Return one part; those of the test suite have the counts of their last summary."""
    found: dict[str, Any] = {"name": name, "ok": status == 0}
    summaries = _SUMMARY.findall(log)
    if " as uid " in name:
        counts = {}
        if summaries:
            counts = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", summaries[-1])}
        found["passed"] = counts.get("passed", 0)
        found["failed"] = sum(counts.get(word, 0) for word in ("failed", "error", "errors"))
        found["skipped"] = counts.get("skipped", 0)
    return found


def machine() -> dict[str, Any]:
    """Return what this machine is, and what opens jails on it."""
    report = visruntime.doctor()
    landlock = [found.detail for found in report.findings if found.key == "landlock"]
    system = platform.system()
    name = f"{system} {platform.release()}"
    if system == "Linux":
        name = platform.freedesktop_os_release().get("PRETTY_NAME", name)
    return {
        "system": system,
        "machine": platform.machine(),
        "name": name,
        "kernel": platform.release().partition("-")[0],
        "landlock": landlock[0] if landlock else "",
        "backend": report.backend,
        "version": version("visruntime"),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def commit() -> str:
    """Return which commit this is, with a + where files differ from it; "" outside of git."""
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    try:
        found = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip() + ("+" if changed else "")


def main() -> None:
    """Write the record of the parts that are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("parts", nargs="+", metavar="NAME STATUS LOG")
    options = parser.parse_args()
    words = options.parts
    if len(words) % 3:
        parser.error("each part is a name, an exit code and a log")
    parts = [
        part(name, int(status), Path(log).read_text(errors="replace"))
        for name, status, log in zip(words[::3], words[1::3], words[2::3], strict=True)
    ]
    record = {**machine(), "commit": commit(), "parts": parts}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

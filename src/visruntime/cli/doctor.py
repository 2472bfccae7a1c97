"""``visruntime doctor``: what this machine can enforce, tried for real."""

from __future__ import annotations

import os
import sys

from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal, clean
from visruntime.cli.report import open_for_caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime doctor
  visruntime doctor --json
  visruntime doctor --html report.html
  visruntime doctor --apparmor | sudo apparmor_parser --replace
"""


def main(words: Sequence[str]) -> int:
    """Run ``doctor`` with the command line *words*; 0 means that a jail can be opened here."""
    parser = Parser(
        "doctor",
        "",
        "Open real jails, try forbidden acts in them, and say what is enforced and by what.",
        EXAMPLES,
    )
    parser.flag("--json", action="store_true", help="print the findings as JSON")
    parser.flag("--html", metavar="FILE", help="also write them as one page without scripts")
    parser.flag(
        "--apparmor",
        action="store_true",
        help="try nothing; print an AppArmor profile that lets this installation open jails",
    )
    options, rest = parser.split(words)
    if rest:
        raise Refusal(f"doctor takes no {rest[0]!a}")
    if options.apparmor:
        from visruntime._jail_diagnose import apparmor_profile

        if options.json or options.html:
            raise Refusal("--apparmor prints a profile only; leave --json and --html out")
        sys.stdout.write(apparmor_profile())
        return 0
    page = None
    if options.html:
        page = open_for_caller(options.html, f"--html {options.html}", 0o644)

    from visruntime.doctor import doctor

    report = doctor()
    if options.json:
        import json

        sys.stdout.write(json.dumps(report.to_dict(), indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{clean(line)}\n" for line in str(report).splitlines())
    if page is not None:
        from visruntime.cli.page import render

        with os.fdopen(page, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(render(report))
    return 0 if report.ok else 1

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

    from visruntime.confinement.report import ConfinementReport
    from visruntime.doctor import DoctorReport

__all__ = ["main"]

EXAMPLES = """\
  visruntime doctor
  visruntime doctor --json
  visruntime doctor --html report.html
  visruntime doctor --apparmor | sudo apparmor_parser --replace
  visruntime doctor --confinement
  visruntime doctor --confinement --python /usr/bin/python3 --json
"""


def main(words: Sequence[str]) -> int:
    """Run ``doctor`` with the command line *words*.

    0 means that a jail can be opened here, and with ``--confinement`` that each attempt was stopped.
    """
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
    parser.flag(
        "--confinement",
        action="store_true",
        help="try known ways out of a jail in a Python worker, and say which layer stopped each; as a "
        "control each is also tried WITHOUT a jail, with your rights, on files made for it",
    )
    parser.flag(
        "--python",
        metavar="PATH",
        help="interpreter of both workers: it runs without a jail too, so name only one that you trust",
    )
    options, rest = parser.split(words)
    if rest:
        raise Refusal(f"doctor takes no {rest[0]!a}")
    if options.apparmor:
        from visruntime._jail.diagnose import apparmor_profile

        if options.json or options.html:
            raise Refusal("--apparmor prints a profile only; leave --json and --html out")
        sys.stdout.write(apparmor_profile())
        return 0
    if options.confinement:
        if options.html:
            raise Refusal("--confinement is printed as text or with --json; leave --html out")
        return _confinement(options.python, as_json=options.json)
    if options.python:
        raise Refusal("--python goes with --confinement")
    page = None
    if options.html:
        page = open_for_caller(options.html, f"--html {options.html}", 0o644)

    from visruntime.doctor import doctor

    report = doctor()
    _print(report, as_json=options.json)
    if page is not None:
        from visruntime.cli.page import render

        with os.fdopen(page, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(render(report))
    return 0 if report.ok else 1


def _print(report: DoctorReport | ConfinementReport, *, as_json: bool) -> None:
    if as_json:
        import json

        sys.stdout.write(json.dumps(report.to_dict(), indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{clean(line)}\n" for line in str(report).splitlines())


def _confinement(python: str | None, *, as_json: bool) -> int:
    from visruntime.confinement.examine import check_confinement

    report = check_confinement(python=python)
    _print(report, as_json=as_json)
    return 0 if report.ok else 1

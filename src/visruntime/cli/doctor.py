"""``visruntime doctor``: what this machine can enforce, tried for real."""

from __future__ import annotations

import os
import sys

from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal, clean
from visruntime.cli.report import open_for_caller, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime doctor
  visruntime doctor --json
  visruntime doctor --html report.html
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>visruntime doctor</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ background: #8881; padding: 1rem; overflow-x: auto; border-radius: 6px }}
:root {{ color-scheme: light dark }}
</style>
</head>
<body>
<h1>visruntime doctor</h1>
<pre>{text}</pre>
<details><summary>The same as JSON</summary><pre>{data}</pre></details>
</body>
</html>
"""


def main(words: Sequence[str]) -> int:
    """Run ``doctor`` with the command line *words*; 0 means that a jail can be opened here."""
    import html
    import json

    parser = Parser(
        "doctor",
        "",
        "Open a real jail, try forbidden acts in it, and say what is enforced and by what.",
        EXAMPLES,
    )
    parser.flag("--json", action="store_true", help="print the findings as JSON")
    parser.flag("--html", metavar="FILE", help="also write them as one page without scripts")
    options, rest = parser.split(words)
    if rest:
        raise Refusal(f"doctor takes no {rest[0]!a}")
    page = None
    if options.html:
        page = open_for_caller(options.html, f"--html {options.html}", 0o644)

    from visruntime.doctor import doctor

    report = doctor()
    data = json.dumps(plain(report), indent=2, ensure_ascii=True)
    text = "\n".join(clean(line) for line in str(report).splitlines())
    sys.stdout.write(f"{data if options.json else text}\n")
    if page is not None:
        with os.fdopen(page, "w", encoding="utf-8") as file:
            file.write(PAGE.format(text=html.escape(text), data=html.escape(data)))
    return 0 if report.ok else 1

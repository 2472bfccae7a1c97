"""The page of ``doctor --html``: one file without scripts, links or anything to load."""

from __future__ import annotations

import html
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime.doctor import DoctorReport, Finding

__all__ = ["render"]

# Text on its background has a contrast of 7:1 or more in both schemes.
STYLE = """\
:root { color-scheme: light dark; --text: #1a1a1a; --back: #ffffff; --line: #8a8a8a;
  --enforced: #0a5c2b; --degraded: #6b4a00; --unavailable: #a01818 }
@media (prefers-color-scheme: dark) {
  :root { --text: #ececec; --back: #161616; --line: #8a8a8a;
    --enforced: #7fe0a3; --degraded: #f2c14e; --unavailable: #ffa8a0 } }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
caption { text-align: left; padding: .5rem 0 }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
th[scope=col] { white-space: nowrap }
.enforced { color: var(--enforced) } .degraded { color: var(--degraded) }
.unavailable { color: var(--unavailable) }
.state { font-weight: 600; white-space: nowrap }
code, pre { font: .9em ui-monospace, monospace }
pre { overflow-x: auto; border: 1px solid var(--line); padding: 1rem }
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>visruntime doctor</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>visruntime doctor</h1>
<p><strong>{headline}</strong></p>
<p>{counts} {machine}</p>
<div class="scroll" role="region" aria-label="Capabilities" tabindex="0">
<table>
<caption>What this machine enforces; each line was tried in a real jail.</caption>
<thead><tr><th scope="col">State</th><th scope="col">Capability</th><th scope="col">By what, or why \
not</th><th scope="col">What was tried</th><th scope="col">Answer</th><th scope="col">What helps\
</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{profile}<details>
<summary>The same as JSON</summary>
<pre>{data}</pre>
</details>
</main>
</body>
</html>
"""


def render(report: DoctorReport) -> str:
    """Return the page of *report*, all of its text escaped."""
    data = report.to_dict()
    states = [finding.state for finding in report.findings]
    counts = ", ".join(
        f"{states.count(state)} {state}" for state in ("enforced", "degraded", "unavailable")
    )
    machine = data["machine"]
    return PAGE.format(
        style=STYLE,
        headline=_text(report.headline),
        counts=f"{counts}.",
        machine=_text(
            f"Linux {machine['kernel']} on {machine['architecture']}, Python "
            f"{machine['python']}, visruntime {machine['visruntime']}."
        ),
        rows="\n".join(map(_row, report.findings)),
        profile=_profile(report.apparmor_profile),
        data=_text(json.dumps(data, indent=2)),
    )


def _row(finding: Finding) -> str:
    fix = f"<code>{_text(finding.fix)}</code>" if finding.fix else ""
    return (
        f'<tr><td class="state {finding.state}">{finding.state}</td>'
        f'<th scope="row">{_text(finding.name)}</th><td>{_text(finding.detail)}</td>'
        f"<td>{_text(finding.probe)}</td><td>{_text(finding.answer)}</td><td>{fix}</td></tr>"
    )


def _profile(profile: str) -> str:
    if not profile:
        return ""
    return f"<h2>AppArmor profile for this installation</h2>\n<pre>{_text(profile)}</pre>\n"


def _text(text: str) -> str:
    """Escape *text*; a character that is no text becomes its Python escape."""
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    return html.escape(shown)

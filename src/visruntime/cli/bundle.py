"""``visruntime bundle``: install, list and verify platform archives."""

from __future__ import annotations

import os
import sys

from visruntime.cli.flags import Parser
from visruntime.cli.messages import Refusal, clean, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXAMPLES = """\
  visruntime bundle install visruntime-1.0-linux-x86_64.tar.gz --sha256 DIGEST
  visruntime bundle list
  visruntime bundle verify                 every installed one, file by file
  visruntime bundle verify FILE|NAME
  visruntime run --python bundle script.py
"""


def main(words: Sequence[str]) -> int:
    """Run ``bundle`` with the command line *words*."""
    from visruntime import bundle

    parser = Parser(
        "bundle",
        "install FILE|list|verify [FILE|NAME]",
        "Keep a CPython of the release for workers, apart from the system's. An archive is unpacked "
        "below ~/.cache/visruntime and compared with its manifest file by file before it is used.",
        EXAMPLES,
    )
    parser.flag(
        "--sha256", metavar="DIGEST", help="refuse an archive that is not the one published with it"
    )
    parser.flag(
        "--quiet", action="store_true", help="say nothing of what went well, on a terminal neither"
    )
    sha256, quiet, rest = None, False, []
    while words:  # options may stand anywhere
        options, words = parser.split(words)
        sha256 = options.sha256 or sha256
        quiet = options.quiet or quiet
        rest += words[:1]
        words = words[1:]
    verb, names = (rest[0], rest[1:]) if rest else ("", [])
    if verb == "install" and len(names) == 1:
        shown = complain if os.isatty(2) and not quiet else None
        added = bundle.install(names[0], sha256=sha256, progress=shown)
        _say(f"{added.name}: Python {added.python_version}, in {added.folder}", quiet=quiet)
    elif sha256 is not None:
        raise Refusal("--sha256 goes with install")
    elif verb == "list" and not names:
        for each in bundle.installed():
            _say(f"{each.name}\tPython {each.python_version}\t{each.folder}")
    elif verb == "verify" and len(names) <= 1:
        for name in names or [each.name for each in bundle.installed()]:
            found = bundle.verify(name)
            _say(f"{found.name}: every file is as its manifest says", quiet=quiet)
    else:
        raise Refusal("visruntime bundle install FILE, list, or verify [FILE|NAME]")
    return 0


def _say(line: str, *, quiet: bool = False) -> None:
    if quiet:
        return
    sys.stdout.write("\t".join(map(clean, line.split("\t"))) + "\n")

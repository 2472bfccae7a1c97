"""The command line on Windows: what there is to say of the machine, and a refusal of all else."""

from __future__ import annotations

import sys

from visruntime._policy.platforms import check_platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(words: Sequence[str]) -> int:
    """Run ``doctor``, with or without ``--json``; refuse every other sub-command.

    Raises:
        JailUnavailable: no policy can be enforced here, by which all the others run programs.
    """
    if words[0] != "doctor" or list(words[1:]) not in ([], ["--json"]):
        check_platform("win32")
    from visruntime.doctor import doctor

    report = doctor()
    if words[1:]:
        import json

        sys.stdout.write(json.dumps(report.to_dict(), indent=2) + "\n")
    else:
        sys.stdout.write(f"{report}\n")
    return 0 if report.ok else 1

"""Host programs in a mount namespace of their own, where a test may mount what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

__all__ = ["in_mount_namespace"]


def in_mount_namespace(script: str, text: str, *, arguments: tuple[str, ...] = ()) -> str:
    """Run a shell script and then a host program in a mount namespace of their own."""
    program = textwrap.dedent(text)
    result = subprocess.run(
        [
            "unshare",
            *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            script + '\nexec "$@"',
            "sh",
            sys.executable,
            "-c",
            program,
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        timeout=50,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout

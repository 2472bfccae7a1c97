"""The host's half of a jail under ThreadSanitizer: many threads, one jail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from visruntime._jail.diagnose import init_path
from visruntime._jail.plan import make_plan
from visruntime.policy import JailPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = (
    *("error", "plan", "policy", "policy_tree", "policy_plan", "posix_open", "posix_process"),
    *("posix_message", "posix_capture", "posix_refusals", "posix_stream"),
    *("linux_bubblewrap", "linux_calls", "linux_stream"),
)


def test_no_data_race_between_threads_of_one_jail(
    tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """Starting, waiting, killing and closing from many threads must show no race."""
    program = tmp_path / "threads"
    native = ROOT / "native" / "visjail"
    sources = [str(native / f"{name}.c") for name in LIBRARY]
    command = [tool("cc"), "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=thread"]
    command += ["-pthread", f"-I{native}", "-o", str(program)]
    command += [str(ROOT / "tests" / "native" / "threads.c"), *sources]
    subprocess.run(command, check=True)
    plan = tmp_path / "plan"
    plan.write_bytes(make_plan(JailPolicy()).blob)
    # Some kernels place programs where the sanitizer cannot follow: -R keeps them in order.
    result = subprocess.run(
        [tool("setarch"), "-R", str(program), init_path(), str(plan)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**os.environ, "TSAN_OPTIONS": "exitcode=66"},
    )
    assert "WARNING: ThreadSanitizer" not in result.stderr, result.stderr
    assert (result.returncode, result.stdout) == (0, "240 runs\n"), result.stderr

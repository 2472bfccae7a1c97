"""Run the worker's tests with its C code under AddressSanitizer and UBSan.

``uv run tests/native/sanitize_worker.py [PYTEST ARGUMENTS]`` builds the loader and the core with
both sanitizers into ``build/native-tests`` and runs the tests of trusted workers with them; a
finding aborts the worker and so fails its test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from visruntime import environments
from visruntime.processes import TrustedStart

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "native" / "vispython"
OUT = ROOT / "build" / "native-tests"
TESTS = ("runtime", "callbacks", "worker", "interrupts", "arrays")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
OPTIONS = {
    # Memory that lives until the process ends is no leak; CPython handles SIGSEGV of tests itself.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def build() -> None:
    """Compile the instrumented core and loader."""
    OUT.mkdir(parents=True, exist_ok=True)
    compiler = [os.environ.get("CC", "cc"), *SANITIZERS, "-D_GNU_SOURCE"]
    visjail = SOURCES.parent / "visjail"
    core = sorted(path for path in SOURCES.glob("*.c") if path.name != "loader.c")
    core += [visjail / "policy.c", visjail / "policy_tree.c"]
    subprocess.run(
        [
            *compiler,
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-DPy_LIMITED_API=0x030b0000",
            "-isystem",
            sysconfig.get_path("include"),
            f"-I{visjail}",
            *core,
            "-o",
            OUT / "_viscore.so",
        ],
        check=True,
    )
    subprocess.run([*compiler, SOURCES / "loader.c", "-o", OUT / "vispython", "-ldl"], check=True)


class SanitizedStart(TrustedStart):
    """Starts workers with the sanitizers' options."""

    def __init__(self, *, cwd: str | None, env: dict[str, str] | None, stdin: Any) -> None:
        super().__init__(
            cwd=cwd, env={**(os.environ if env is None else env), **OPTIONS}, stdin=stdin
        )


def main() -> int:
    """Build, then run the tests."""
    build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environments, "CORE", str(OUT / "_viscore.so"))
        patch.setattr(environments, "LOADER", str(OUT / "vispython"))
        patch.setattr("visruntime.runtime.TrustedStart", SanitizedStart)
        tests = [str(ROOT / "tests" / f"test_{name}.py") for name in TESTS]
        return pytest.main(["-q", "-k", "trusted", *tests, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

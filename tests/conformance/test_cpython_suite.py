"""CPython's own tests, run by the system's interpreter inside a jail without any grant.

What is left out is named with its reason; everything else must pass as it does outside.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jail_helpers import PYTHON, Jail, JailPolicy

FULL = os.environ.get("VIS_FULL") == "1"

SHORT = {
    "test_tempfile": (),
    "test_pathlib": (),
    "test_posixpath": (),
    "test_shutil": (),
    "test_mmap": (),
    "test_signal": (),
    "test_sqlite3": (),
    "test_pty": (),
}
LONG = {
    "test_asyncio": (),
    "test_concurrent_futures": (),
    "test_fork1": (),
    "test_multiprocessing_fork": (),
    "test_multiprocessing_forkserver": (),
    "test_multiprocessing_spawn": (),
    # UDP-Lite is refused by the filter: a family of its own beside UDP.
    "test_socket": ("*UDPLITE*", "*Udplite*"),
    "test_ssl": (),
    # To become another uid: a jail has exactly one, and the kernel says EINVAL to others.
    "test_subprocess": ("test_user", "test_group"),
    "test_threading": (),
}


def has(module: str) -> bool:
    """Tell whether this CPython has the test module (3.11 still has no package of sqlite3)."""
    version = Path(os.path.realpath(PYTHON)).name
    folder = Path("/usr/lib") / version / "test"
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", [*SHORT, *(LONG if FULL else ())])
def test_cpython(module: str) -> None:
    """The module's tests must run, and pass."""
    ignored = [word for name in (SHORT | LONG)[module] for word in ("-i", name)]
    if not has("support"):
        if os.environ.get("VIS_REQUIRE_TOOLS") == "1":
            pytest.fail("the tests of the system's CPython are not installed")
        pytest.skip("the tests of the system's CPython are not installed")
    if not has(module):
        pytest.skip(f"the system's CPython has no {module}")
    with Jail(JailPolicy()) as jail:
        result = jail.run([PYTHON, "-m", "test", *ignored, module], cwd="/tmp", timeout=580)
    assert result.exit_code == 0, result.stdout_text[-3000:] + result.stderr_text[-3000:]
    assert "Tests result: SUCCESS" in result.stdout_text

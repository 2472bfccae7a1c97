"""CPython's own tests of executors, on JailExecutor; executor_suite.py says what is left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conformance import executor_suite

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid

Running = dict[str, "subprocess.Popen[str]"]
VERSION = f"python3.{sys.version_info[1]}"
PLACES = (Path(os.__file__).parent / "test", Path("/usr/lib") / VERSION / "test")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start every case at once, since most of them sleep, each in a process of its own."""
    folder = tmp_path_factory.mktemp("suite").resolve()
    shutil.copy(Path(__file__).with_name("shared_event.py"), folder)
    for place in PLACES:
        found = place / "test_concurrent_futures"
        if found.is_dir():
            shutil.copytree(found, folder / executor_suite.SUITE)
        elif found.with_suffix(".py").is_file():
            shutil.copy(found.with_suffix(".py"), folder / f"{executor_suite.SUITE}.py")
        else:
            continue
        break
    else:
        if os.environ.get("VIS_REQUIRE_TOOLS") == "1" and sys.version_info[:2] == (3, 11):
            pytest.fail("the tests of CPython 3.11 are not installed")
        pytest.skip(f"no test_concurrent_futures of {VERSION} on this machine")
    if not (PLACES[0] / "support").is_dir() and not (PLACES[1] / "support").is_dir():
        pytest.skip(f"no test.support of {VERSION} on this machine")
    started = {
        case: subprocess.Popen(
            [sys.executable, executor_suite.__file__, folder, case],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for case in executor_suite.CASES
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", executor_suite.CASES)
def test_cpython_mixin(case: str, running: Running) -> None:
    """Every test of the mixin that is not left out passes; none is skipped."""
    process = running[case]
    stdout, stderr = process.communicate(timeout=170)
    assert process.returncode == 0, stderr[-3000:]
    report = json.loads(stdout.splitlines()[-1])
    assert report["wrong"] == {}
    assert report["chosen"]
    assert sorted(report["passed"]) == sorted(report["chosen"])

"""Limits so small that nothing starts: said by the limit's name, with a number that is enough."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from runtime_helpers import WORKER_PYTHONS

import visruntime as vr
from visruntime._jail.diagnose import OPENING_FILES
from visruntime._jail.limits import ENOUGH_OPEN_FILES
from visruntime._worker.too_little import ENOUGH_MEMORY, ENOUGH_PROCESSES


def limited(**limits: Any) -> vr.JailPolicy:
    """A policy that grants nothing, with *limits*."""
    return vr.JailPolicy(limits=vr.Limits(**limits))


def first_value(policy: vr.JailPolicy, **options: Any) -> Any:
    """What the first run of a new worker gives."""
    with vr.Runtime(policy, **options) as runtime:
        return runtime.run("6 * 7").value


@pytest.mark.parametrize(
    ("limits", "enough"),
    [
        ({"processes": 1}, {"processes": ENOUGH_PROCESSES}),
        ({"processes": 3}, {"processes": ENOUGH_PROCESSES}),
        ({"memory": 1, "memory_by": "process"}, {"memory": ENOUGH_MEMORY, "memory_by": "process"}),
        (
            {"memory": 5 << 20, "memory_by": "process"},
            {"memory": ENOUGH_MEMORY, "memory_by": "process"},
        ),
        ({"wall_seconds": 0.0001}, {"wall_seconds": 30.0}),
    ],
)
def test_a_worker_that_cannot_start_names_the_limit(
    limits: dict[str, Any], enough: dict[str, Any]
) -> None:
    """No traceback of the worker's own code comes out, but the limit and a number that works."""
    name = next(iter(limits))
    with pytest.raises(vr.WorkerDied) as caught:
        first_value(limited(**limits))
    said = str(caught.value)
    assert said.startswith(f"limits.{name}: "), said
    assert f"{enough[name]:g}" in said or str(enough[name]) in said, said
    assert "Traceback" not in said + str(caught.value.report)
    assert ".py" not in said
    assert first_value(limited(**enough)) == 42


@pytest.mark.parametrize("python", WORKER_PYTHONS)
def test_an_interpreter_without_memory_names_the_limit(python: str | None) -> None:
    """Wherever in its start the memory ends, each version's last words are known for that."""
    for half in range(1, 13):
        limits = {"memory": half << 19, "memory_by": "process"}
        with pytest.raises(vr.WorkerDied, match=r"^limits\.memory: "):
            first_value(limited(**limits), python=python)
    assert first_value(limited(memory=ENOUGH_MEMORY, memory_by="process"), python=python) == 42


def test_enough_is_enough_for_any_worker(tmp_path: Any) -> None:
    """The number that the message names must work for copies, ports and walls as well."""
    (tmp_path / "work").mkdir()
    policy = limited(processes=ENOUGH_PROCESSES).replace(
        inbound={8000: 0},
        host_ports=[1],
        write=[tmp_path / "work"],
        deny_write=[tmp_path / "work" / "later"],
    )
    assert first_value(policy, preload=[]) == 42


def test_a_copy_that_cannot_start_names_the_limit() -> None:
    """Of a copy, too, the limit is named, and not what its interpreter printed."""
    for processes in (4, 5):
        with vr.Runtime(limited(processes=processes)) as runtime:
            assert runtime.run("1").value == 1
            with pytest.raises((vr.ForkRefused, vr.WorkerDied)) as caught:
                runtime.fork()
        assert "raise limits.processes" in str(caught.value)
        assert "Traceback" not in str(caught.value)


def test_a_jail_that_can_try_nothing_names_the_limit() -> None:
    """Too few descriptors are no hole in the jail, and must not be told as one."""
    for number in (1, 3, 5):
        with pytest.raises(vr.PolicyUnsupported) as caught:
            vr.Jail(limited(open_files=number))
        said = str(caught.value)
        assert said.startswith(f"limits.open_files: {number} is too few")
        assert f"at least {ENOUGH_OPEN_FILES}" in said
        assert "did not hold" not in said
        assert caught.value.field == "limits.open_files"
    with vr.Jail(limited(open_files=ENOUGH_OPEN_FILES)) as jail:
        assert jail.run(["true"]).exit_code == 0
    assert first_value(limited(open_files=ENOUGH_OPEN_FILES)) == 42


OPEN_WITHIN = """
import resource, sys
import visruntime as vr
number, paths = int(sys.argv[1]), sys.argv[2:]
with vr.Jail(vr.JailPolicy()):  # what is read at the first use is read
    pass
resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
try:
    with vr.Jail(vr.JailPolicy(read=paths), backend="namespaces"):
        print("open")
except vr.JailUnavailable as error:
    print(error.errno, error)
"""


def test_a_process_that_may_open_too_few_files_is_told_how_many(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step comes first, the limit of the process is named, and a number that works."""
    paths = [str(tmp_path / str(number)) for number in range(50)]
    for path in paths:
        os.mkdir(path)

    def opened(number: int, *paths: str) -> str:
        command = [sys.executable, "-c", OPEN_WITHIN, str(number), *paths]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    outcomes = [opened(number) for number in (10, 18, 30)]
    outcomes.append(opened(8, paths[0]))
    # Then the system is searched for it, which takes descriptors too.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("by-no-whole-name")
        outcomes.append(opened(18))
    for said in outcomes:
        assert said.startswith(
            f"{errno.EMFILE} cannot open a jail: the policy needs more open files"
        )
        assert f"allow this process {OPENING_FILES} open files" in said
        assert "Invalid argument" not in said
    assert opened(OPENING_FILES) == "open"
    assert opened(OPENING_FILES, *paths).startswith(f"{errno.EMFILE} ")
    assert opened(OPENING_FILES + len(paths), *paths) == "open"


def test_a_process_that_may_write_no_file_is_told_of_that_limit() -> None:
    """A limit on the size of files must be named where the plan itself is too large for it."""
    host = OPEN_WITHIN.replace("RLIMIT_NOFILE", "RLIMIT_FSIZE")

    def opened(size: int) -> str:
        command = [sys.executable, "-c", host, str(size)]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    said = opened(0)
    assert said.startswith(f"{errno.EFBIG} cannot open a jail now: this process may write no file")
    assert "ulimit -f" in said
    assert opened(1024**2) == "open"

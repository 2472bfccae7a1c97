"""The jail on kernels with older versions (ABIs) of Landlock: what holds, and what is refused.

For each ABI a visjail-init is built that meets such a kernel (native/capped_landlock.c): it
is told that ABI, and refused what the ABI does not know.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PYTHON,
    Egress,
    Jail,
    Limits,
    backends,
    errno,
    inside,
    outside,
    policy_of,
    spawn,
)

from visruntime._jail import open as _jail_open
from visruntime.errors import JailUnavailable, PolicyUnsupported
from visruntime.jail import PIPE

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native" / "visjail"
FLAGS = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-Os", "-ffreestanding", "-fno-stack-protector"),
    *("-fno-builtin", "-fno-pic", "-fno-pie", f"-I{NATIVE}"),
)
LINK = ("-static", "-nostdlib", "-no-pie", "-Wl,-z,noexecstack")
ABIS = range(8)
SCOPES = 6
LEAST = {"namespaces": 0, "bubblewrap": 3, "landlock": SCOPES}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return a folder that guests' owners may execute in, and all of visjail-init but a part."""
    folder = tmp_path_factory.mktemp("init")
    names = re.search(
        r"set\(VISJAIL_INIT_SOURCES(.*?)\)", (NATIVE / "CMakeLists.txt").read_text(), re.DOTALL
    )
    assert names is not None
    others = [str(NATIVE / name) for name in names[1].split() if name != "linux_landlock.c"]
    subprocess.run(["cc", *FLAGS, "-c", *others], check=True, cwd=folder)
    return folder, [str(path) for path in sorted(folder.glob("*.o"))]


@pytest.fixture(params=ABIS)
def abi(
    request: pytest.FixtureRequest,
    objects: tuple[Path, list[str]],
    tool: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """Let jails open as on a kernel with this ABI of Landlock; 0: without any."""
    folder, others = objects
    wanted: int = request.param
    # The number of the call is the same on both architectures.
    there = -outside("NUMBERS['version'] = 444\nanswer(-result('version', 0, 0, 1))")
    if wanted > there:
        pytest.skip(f"this kernel has ABI {there} of Landlock")
    path = folder / f"init-{wanted}"
    if not path.exists():
        cap = f"-DVJ_LANDLOCK_CAP={wanted}"
        source = str(ROOT / "tests" / "native" / "capped_landlock.c")
        command = [tool("cc"), *FLAGS, cap, *LINK, "-o", str(path), source, *others]
        subprocess.run(command, check=True)
    monkeypatch.setattr(_jail_open, "init_path", lambda: str(path))
    return wanted


def jail_of(backend: str, **rules: object) -> Jail:
    """Return a jail with what each back end can hold."""
    limits = Limits(processes=None, scratch=None)
    return Jail(policy_of(**rules, limits=limits), backend=backend)


@pytest.mark.parametrize("backend", backends())
def test_each_back_end_opens_from_its_abi_on(abi: int, backend: str, workspace: Path) -> None:
    """A back end that needs more must refuse by name; one that opens must hold its files."""
    (workspace / "file").write_text("whole")
    if abi < LEAST[backend]:
        with pytest.raises(JailUnavailable, match="Landlock is missing or too old") as raised:
            jail_of(backend, read=[str(workspace)])
        assert re.search(rf"{backend} (needs )?ABI {LEAST[backend]}\b", str(raised.value))
        return
    guest = f"""
path = {str(workspace / "file")!r}
answer([opened(path), opened(path, os.O_WRONLY), attempt(os.truncate, path, 0),
    attempt(os.rename, path, path + "2"), opened(path + "3", os.O_CREAT | os.O_WRONLY)])
"""
    with jail_of(backend, read=[str(workspace)]) as jail:
        got = inside(jail, guest)
        layers = f"landlock-{abi}" in jail.report.mechanisms("read[0]")
        hosts = jail.report.mechanisms("processes of the host")
        notes = "\n".join(jail.report.notes)
    denied = errno.EACCES if backend == "landlock" else errno.EROFS
    assert got[0] == 0
    assert all(number in (denied, errno.EACCES) for number in got[1:]), got
    assert (workspace / "file").read_text() == "whole"
    assert layers == (abi > 0), "the report names another layer"
    assert (f"landlock-{abi}" in hosts) == (abi >= SCOPES)
    assert ("this kernel has no Landlock" in notes) == (abi == 0)
    # Control: unjailed each of them succeeds.
    assert outside(guest) == [0, 0, 0, 0, 0]


def test_names_that_do_not_exist_need_landlock(abi: int, workspace: Path) -> None:
    """Without Landlock nothing keeps a name from being made: refused, naming the path."""
    name = f"{workspace}/later"
    rules = {"write": [str(workspace)], "deny_write": [name]}
    for mode in ("broker", "wall"):
        if abi == 0:
            with pytest.raises(PolicyUnsupported, match="only Landlock") as raised:
                jail_of("namespaces", **rules, absent_deny=mode)
            assert raised.value.value == name
            continue
        with jail_of("namespaces", **rules, absent_deny=mode) as jail:
            made = inside(jail, f"answer(opened({name!r}, os.O_CREAT | os.O_WRONLY))")
        assert made == errno.EACCES
    assert not os.path.lexists(name)
    assert outside(f"answer(opened({name!r}, os.O_CREAT | os.O_WRONLY))") == 0


def test_the_report_says_what_older_kernels_leave_open(abi: int) -> None:
    """Runs of one jail that can signal each other, and abstract sockets, must be noted."""
    with jail_of("namespaces", egress=Egress.OPEN) as jail:
        text = "import os, time; print(os.getpid(), flush=True); time.sleep(30)"
        other = spawn(jail, [PYTHON, "-IBS", "-c", text], stdout=PIPE)
        pid = int(other.stdout.readline())
        got = inside(jail, f"answer(attempt(os.kill, {pid}, 0))")
        other.kill()
        other.wait()
        other.stdout.close()
        notes = "\n".join(jail.report.notes)
    assert got == (errno.EPERM if abi >= SCOPES else 0)
    assert ("can signal each other" in notes) == (0 < abi < SCOPES)
    assert ("can signal and change each other" in notes) == (abi == 0)
    assert ("reaches the host's abstract sockets" in notes) == (abi < SCOPES)


def test_the_canary_of_abstract_sockets_is_tried_where_there_are_scopes(
    abi: int, workspace: Path
) -> None:
    """A report must not claim a scope that the kernel does not have, nor leave out the gap."""
    with jail_of("namespaces", write=[str(workspace)]) as jail:
        tried = [c for c in jail.report.canaries if "abstract socket" in c.name]
        mechanisms = jail.report.mechanisms("egress")
        notes = "\n".join(jail.report.notes)
    assert [c.held for c in tried] == [True] * (abi >= SCOPES)
    assert ("landlock abstract-socket scope" in mechanisms) == (abi >= SCOPES)
    assert ("can reach the host's abstract sockets" in notes) == (abi < SCOPES)

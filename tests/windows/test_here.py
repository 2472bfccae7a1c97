"""`WindowsJail` from Python, and the guard of consoles, on a real Windows, in its workflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if sys.platform != "win32":
    pytest.skip("it needs Windows", allow_module_level=True)

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW_CONSOLE = 0x10
PARTS = ("python.exe", "python3.dll", "vcruntime140.dll", "vcruntime140_1.dll", "Lib", "DLLs")


@pytest.fixture
def parent() -> Iterator[Path]:
    """Return a folder with a short path, as a jail needs."""
    folder = Path(tempfile.mkdtemp(prefix="vj", dir=f"{os.environ['SYSTEMDRIVE']}\\"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def python_files() -> dict[str, Path]:
    """Return what a Python is made of, by the names that it gets in the jail."""
    base = Path(sys.base_prefix)
    library = f"python{sys.version_info.major}{sys.version_info.minor}.dll"
    return {f"python/{name}": base / name for name in (*PARTS, library) if (base / name).exists()}


def test_a_policy_opens_no_jail() -> None:
    """W1: no jail may open from a policy; the doctor says what there is, and claims nothing."""
    with pytest.raises(vr.JailUnavailable) as caught:
        vr.Jail(vr.JailPolicy())
    assert caught.value.reason == "platform"
    report = vr.doctor()
    assert not report.ok
    assert "unclaimed" in str(report)


def test_a_staged_python_runs_as_the_guide_shows(parent: Path) -> None:
    """W64: a CPython that was staged must run, from its copy, with exactly what it was given."""
    with vr.WindowsJail(parent) as jail:
        staged = jail.stage(python_files())
        assert staged.files > 100
        python = jail.app + "\\python\\python.exe"
        code = (
            "import os, sys; print(sys.executable); print(os.getcwd()); print(os.environ['MODE']); "
            "open('out', 'w').write('kept'); print('USERPROFILE' in os.environ)"
        )
        limits = vr.WindowsLimits(processes=4, memory=1 << 30)
        with jail.spawn([python, "-I", "-c", code], env={"MODE": "test"}, limits=limits) as process:
            output, errors = process.communicate(timeout=60)
            assert errors == b""
            assert output.decode().split("\r\n") == [python, jail.work, "test", "False", ""]
            assert process.wait().exit_code == 0
        work = Path(jail.work)
    assert (work / "out").read_text() == "kept"
    assert [path.name for path in work.parent.iterdir()] == ["work"]


def test_a_runtime_keeps_its_state_in_the_jail(parent: Path) -> None:
    """W64: the worker must run in the AppContainer, with verbs, limits and interrupts as elsewhere."""
    with vr.WindowsJail(parent) as jail:
        limits = vr.WindowsLimits(processes=4, memory=1 << 30)
        with vr.Runtime(jail, limits=limits, env={"MODE": "test"}) as runtime:  # type: ignore[arg-type,call-arg,unused-ignore]
            runtime.expose("double", lambda n: 2 * n)
            result = runtime.run("import os, sys\nprint('out')\n[double(21), os.environ['MODE']]")
            assert (result.value, result.stdout_text) == ([42, "test"], "out\n")
            assert runtime.eval("[os.getcwd(), sys.executable, sys.flags.isolated]") == [
                *(jail.work, jail.app + "\\python\\python.exe", 1)
            ]
            with pytest.raises(vr.CommandTimeout, match="the session is kept"):
                runtime.run("while True: pass", timeout=0.5)
            with pytest.raises(vr.GuestError, match="PermissionError"):
                runtime.eval("os.listdir(path)", inputs={"path": os.path.expanduser("~")})
            code = "import socket; socket.socket()"
            assert runtime.run(code).error is not None
            with pytest.raises(vr.WorkerDied, match="exit code 7"):
                runtime.run("os._exit(7)")
            assert runtime.eval("1") == 1


CONSOLES = """
import io, sys, _io
from visruntime import _visconsole
from visruntime.guest.console import guard_consoles
kind = _io._WindowsConsoleIO
seen = []
def hook(event, arguments):
    if event == "open" and "CON" in str(arguments[0]):
        seen.append(arguments[0])
        raise PermissionError("no console")
kept, made = kind.__init__, kind.__new__(kind)
io.open("CONOUT$", "w").close()
sys.addaudithook(hook)
io.open("CONOUT$", "w").close()
print("unseen", len(seen))
guard_consoles(guard=_visconsole.guard)
for way in (
    lambda: io.open("CONOUT$", "w"),
    lambda: io.open("CONIN$"),
    lambda: kind("CONOUT$", "w"),
    lambda: kept(made, "CONIN$"),
    lambda: made.__init__("CONIN$"),
    lambda: type("Sub", (kind,), {})("CONOUT$", "w"),
):
    try: print("opened", way())
    except PermissionError: print("seen", len(seen))
"""
TOO_LATE = """
import _io
class Sub(_io._WindowsConsoleIO): pass
from visruntime import _visconsole
from visruntime.guest.console import ConsoleUnguarded, guard_consoles
try: guard_consoles(guard=_visconsole.guard); print("guarded")
except ConsoleUnguarded: print("refused")
"""


def in_console(code: str) -> list[str]:
    """Run *code* in a Python that has a console."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        creationflags=NEW_CONSOLE,
        timeout=50,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_each_way_to_a_console_is_seen() -> None:
    """W62: of the real type, too, no way may open a console unseen; without the guard all do."""
    assert in_console(CONSOLES) == ["unseen 0", *(f"seen {number}" for number in range(1, 7))]
    assert in_console(TOO_LATE) == ["refused"]

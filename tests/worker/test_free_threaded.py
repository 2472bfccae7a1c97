"""A free-threaded build of CPython: refused by name as a guest, as a host and to compile with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from visruntime.environments import CORE, LOADER, find_interpreter
from visruntime.errors import PolicyError
from visruntime.processes import TrustedStart

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

ROOT = Path(__file__).resolve().parents[2]
PLAIN = "3.14.0 (main, Jan  1 2026, 00:00:00) [GCC]"
FREE = "3.14.0 free-threading build (main, Jan  1 2026, 00:00:00) [GCC]"
"""How the two name themselves."""


def compiled(compiler: str, out: Path, source: str, *flags: str) -> Path:
    """Compile *source* to *out*."""
    command = [compiler, "-x", "c", "-", "-o", str(out), *flags]
    subprocess.run(command, input=source.encode(), check=True)
    return out


def test_an_interpreter_that_says_so_is_refused(tool: Callable[[str], str], tmp_path: Path) -> None:
    """Nothing is started with one whose objects the core would misread; another is named."""
    answer = f"('cpython', (3, 14), '{FREE}', False)"
    source = (
        "#include <stdio.h>\n"
        "int PySys_AddAuditHook(void) { return 0; }\n"
        "int PyImport_AppendInittab(void) { return 0; }\n"
        f'int main(void) {{ puts("{answer}"); return 0; }}\n'
    )
    program = compiled(tool("cc"), tmp_path / "python3.14t", source, "-rdynamic")
    with pytest.raises(PolicyError, match="it is a free-threaded build") as caught:
        find_interpreter(program, probe=TrustedStart.probe)
    assert str(caught.value).endswith(f"; {sys.executable} can")
    source = source.replace("False", "True").replace(FREE, PLAIN)
    program = compiled(tool("cc"), tmp_path / "python3.14", source, "-rdynamic")
    assert find_interpreter(program, probe=TrustedStart.probe).version == PLAIN  # the control


@pytest.mark.parametrize(("version", "code"), [(FREE, 121), (PLAIN, 7)])
def test_the_core_is_not_put_into_one(
    tool: Callable[[str], str], tmp_path: Path, version: str, code: int
) -> None:
    """Even one that hid it from the host is not started: the core looks for itself, before it."""
    listed = subprocess.run(
        [tool("nm"), "-D", "-u", CORE], capture_output=True, text=True, check=True
    ).stdout.split()
    functions = {
        "Py_GetVersion": f'const char *Py_GetVersion(void) {{ return "{version}"; }}',
        "Py_BytesMain": "int Py_BytesMain(void) { return 7; }",
    }
    names = {name for name in listed if name.startswith(("Py", "_Py"))}
    names |= {"PySys_AddAuditHook", "PyImport_AppendInittab", "Py_IsInitialized"}
    stubs = [f"int {name}(void) {{ return 0; }}" for name in sorted(names - functions.keys())]
    library = compiled(
        tool("cc"),
        tmp_path / "libpython3.14.so.1.0",
        "\n".join([*functions.values(), *stubs]),
        *("-shared", "-fPIC", "-w", "-fno-builtin"),
    )
    ours, channel = socket.socketpair()
    control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with ours, channel, control, theirs:
        done = subprocess.run(
            [
                *(LOADER, "--channel", str(channel.fileno()), "--control", str(theirs.fileno())),
                *("--core", CORE, "--name", "python", "--library", library, "--expect", version),
                *("--", "-c", "pass"),
            ],
            pass_fds=(channel.fileno(), theirs.fileno()),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == code, done.stderr
    assert ("free-threaded build of CPython; use one with the GIL" in done.stderr) is (code == 121)


@pytest.mark.parametrize(("flags", "code"), [("t", 1), ("", 0)])
def test_a_host_is_told_what_to_use(flags: str, code: int) -> None:
    """Where its compiled modules cannot be found, the reason is given and not the missing name."""
    program = f"import sys; sys.abiflags = {flags!r}; import visruntime; visruntime.JailPolicy()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert ("free-threaded" in done.stderr and "use a CPython with the GIL" in done.stderr) is (
        flags == "t"
    )


@pytest.mark.parametrize(("disabled", "refused"), [(1, True), (0, False)])
def test_a_build_for_one_is_refused(
    tool: Callable[[str], str], tmp_path: Path, *, disabled: int, refused: bool
) -> None:
    """Who installs from source on one must not meet errors of the compiler."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = {disabled}\n"
    )
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {os.path.realpath(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    done = subprocess.run(
        [tool("cmake"), "-S", ROOT, "-B", tmp_path / "build", f"-DPython_EXECUTABLE={python}"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = " ".join(done.stderr.split())  # as CMake has wrapped it
    assert ("is a free-threaded build of CPython" in said) is refused, said
    assert ("Use a CPython with the GIL" in said) is refused, said
    assert f"Found Python: {python}" in done.stdout  # in both

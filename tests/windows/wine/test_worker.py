"""A worker on Windows: a real CPython, started by the loader on two pipes, driven from documents."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gates import archive
from protocol_values import decode, encode
from wine_helpers import only_in_the_lane
from wine_helpers import windows_name as windows

from visruntime._worker.start import LOAD, bootstrap

if TYPE_CHECKING:
    from wine_helpers import Wine

only_in_the_lane()

HOST = Path(__file__).parent.parent / "scripts" / "worker_host.py"
HEADER = struct.Struct("<BBHIQ")
HELLO, RUN, CALLBACK, CALLBACK_REPLY, RESULT, BYE = 1, 2, 4, 5, 7, 14
CONFINE = {"rules": [], "closed": [], "processes": True, "ctypes": True, "native": True}
VALUES = Path(__file__).parents[2] / "protocol_values.py"


def act(
    wine: Wine, name: str, folder: Path, worker: Path | None = None, python: Path | None = None
) -> list[str]:
    """Have the host act in *folder*; return the lines of its result.

    It starts the *worker* of the lane with the *python* of the lane, where no others are given.
    """
    worker, python = worker or wine.work / "worker", python or wine.work / "python"
    shutil.copyfile(HOST, folder / "worker_host.py")
    shutil.copyfile(VALUES, folder / "protocol_values.py")
    (folder / "load").write_text(LOAD)
    (folder / "bootstrap").write_bytes(bootstrap(same_as_host=False))
    here, *places = (windows(path) for path in (folder, worker, python))
    code = f"import sys; sys.path.insert(0, r'{here}'); import worker_host; worker_host.main()"
    program = str(wine.work / "python" / "python.exe")
    answer = wine.run(program, "-c", code, name, *places, here, cwd=folder)
    assert answer.code == 0, "\n".join([*answer.lines, *answer.aside])
    return (folder / "result.txt").read_text().splitlines()


def test_a_conversation(wine: Wine, tmp_path: Path) -> None:
    """W64: the hook is there first; values, output, calls of the host, children and errors work.

    So do displays, questions, an event loop, and input and directory of one run. No child inherits
    the pipes, nor their numbers. A console is there for nobody, since the host has none. After a
    farewell it ends with 0.
    """
    said = act(wine, "conversation", tmp_path)
    assert said == conversation_of(wine.work / "python")


def conversation_of(python: Path) -> list[str]:
    """Return what a worker with that Python has to say in its conversation."""
    executable = windows(python / "python.exe")
    return [
        "hook True L None",
        "value 2",
        "state None 42",
        "error ZeroDivisionError division by zero",
        "file FileNotFoundError [Errno 2] No such file or directory: 'missing.txt'",
        "printed None",
        "large 3145728 3145728",
        f"where ({executable!r}, '', 'win32', 1)",
        "exposed None",
        "call True ask [6] {'by': 7}",
        "answer 42",
        "asked 15 None ['text/plain']",
        "asked 16 name?  []",
        "told 'h\xe4ns'",
        f"own ('a\\nb', {windows(python)!r}) True",
        "inherits (False, False)",
        "awaited 5",
        "child b'5\\r\\n'",
        "variable None",
        "console OSError [WinError 6] Invalid handle: 'CONIN$'",
        "ended 0",
        "stdout b'h\\xc3\\xa4l lo\\r\\n'",
        "stderr b''",
    ]


def test_interrupts(wine: Wine, tmp_path: Path) -> None:
    """W64: an interrupt breaks code, a sleep, a task, a pattern and a call; the session goes on.

    It is repeated where the guest swallows it, and nothing where its run is over or has not begun.
    """
    assert act(wine, "interrupts", tmp_path) == [
        "loop interrupted True",
        "sleep interrupted True",
        "task interrupted True",
        "pattern interrupted True",
        "stubborn 2 True",
        "call interrupted",
        "late 42",
        "early interrupted",
        "after 42",
        "ended 0",
    ]


def test_the_end_of_the_host(wine: Wine, tmp_path: Path) -> None:
    """W64: without its host a worker ends at once, whatever its code catches."""
    assert act(wine, "host_goes", tmp_path) == ["ended 122"]


def test_a_crash_leaves_its_stacks(wine: Wine, tmp_path: Path) -> None:
    """W64: what the host can tell of a crash is in the worker's errors, as elsewhere."""
    ended, fatal, *stacks = act(wine, "crash", tmp_path)
    assert (ended, fatal) == ("ended 3", "said Fatal Python error: Aborted")
    assert 'said   File "<run 1>", line 1 in <module>' in stacks


def test_no_descriptor_comes(wine: Wine, tmp_path: Path) -> None:
    """W64: a frame that claims one is malformed; nothing of it runs."""
    assert act(wine, "descriptor", tmp_path) == ["ended 0 b''"]


def test_what_it_cannot_hold_is_refused(wine: Wine, tmp_path: Path) -> None:
    """W62, W64: rules, processes=False and consoles without a guard each end it before any guest."""
    rules, processes, unguarded = act(wine, "refused", tmp_path)
    assert rules == "refused 1 RuntimeError: a worker on Windows cannot hold rules about paths"
    assert processes == "refused 1 RuntimeError: a worker on Windows cannot hold processes=False"
    assert unguarded.startswith(
        "refused 1 _visguest.console.ConsoleUnguarded: consoles cannot be guarded: DLL load failed"
    )


def test_the_loader_refuses(wine: Wine, tmp_path: Path) -> None:
    """W63: libraries come from beside the library that needs them, and no others are looked for.

    What lies in the working directory and along PATH is taken by whoever asks without flags. A
    free-threaded Python is refused by its name.
    """
    shutil.copyfile(wine.work / "worker" / "beside" / "needed.dll", tmp_path / "needed.dll")
    lines = act(wine, "loader", tmp_path)
    assert lines[0] == "control 7"
    said = dict(line.split(" ", 1) for line in lines[1:])
    assert said.keys() == {"relative", "nothing", "file", "version", "beside", "planted", "free"}
    assert said["relative"].startswith("120 vispython: usage: vispython --core CORE")
    assert said["nothing"] == "120 vispython: usage: VISJAIL_CHANNEL is INPUT:OUTPUT, two pipes"
    assert said["file"].endswith("what should be a pipe of the host is none")
    assert "another version than python: 3.11." in said["version"]
    assert said["beside"].endswith("another version than python: needed")
    assert said["planted"] == "121 vispython: cannot load the library of Python: error 126"
    assert said["free"].endswith("this is a free-threaded build of CPython; use one with the GIL")


def frame(number: int, kind: int, payload: bytes) -> bytes:
    """Return the bytes of a frame of the host."""
    return HEADER.pack(1, kind, 0, len(payload), number) + payload


def conversation() -> bytes:
    """Return all that is said to a worker after its settings, the answer to its call included."""

    def run(number: int, code: str) -> tuple[int, bytes]:
        asked = {"id": number, "op": "run", "code": code, "inputs": {}, "filename": None}
        return RUN, encode(asked)

    said = [
        run(1, "1 + 1"),
        (RUN, encode({"id": 2, "op": "expose", "names": ["ask"]})),
        run(3, "ask('x') + 1"),
        (CALLBACK_REPLY, encode({"id": 1, "value": 41, "error": None})),
        run(4, "import os, sys; print('printed'); (os.getcwd(), sys.executable)"),
        (BYE, b""),
    ]
    return b"".join(frame(3 + i, *each) for i, each in enumerate(said))


def taken_apart(data: bytes) -> list[tuple[int, Any]]:
    """Return the frames of a worker, each of which has the number that is due."""
    found: list[tuple[int, Any]] = []
    while data:
        version, kind, flags, length, number = HEADER.unpack_from(data)
        assert (version, flags, number) == (1, 0, len(found) + 1)
        found.append((kind, decode(data[HEADER.size : HEADER.size + length])))
        data = data[HEADER.size + length :]
    return found


def test_a_jail_starts_a_worker(wine: Wine, tmp_path: Path) -> None:
    """W64, W40: staged and started by a WindowsJail, it has its frames on the channel of its jail.

    Its output is apart from them, its working directory is the jail's, and it ends in order.
    """
    staged = tmp_path / "python"
    shutil.copytree(wine.work / "python", staged)
    shutil.copytree(wine.work / "worker", staged / "worker")
    # Of the settings all but the last text, which names a file in the jail, and is put in there.
    settings = frame(2, HELLO, encode({"confine": CONFINE, "console": ""})[:-5])
    content = {
        "load": LOAD.encode(),
        "bootstrap": frame(1, HELLO, bootstrap(same_as_host=False)),
        "settings": settings,
        "frames": conversation(),
    }
    for name, data in content.items():
        (staged / name).write_bytes(data)
    asked = wine.run(str(staged / "python.exe"), "-c", "import sys; print(ascii(sys.version))")
    (staged / "version").write_text(ast.literal_eval(asked.lines[0]))
    folder, _ = wine.folder()
    variables = {"VIS_PROBE_PYTHON": windows(staged)}
    answer = wine.run("windows_lane.exe", folder, "worker", variables=variables)
    assert answer.code == 0, "\n".join([*answer.lines, *answer.aside])
    assert answer.lines == ["printed", "ok worker"]
    (hello, ready, first, exposed, call, third, last) = taken_apart((staged / "said").read_bytes())
    assert (hello[0], hello[1]["hook_before_init"], hello[1]["mode"]) == (HELLO, True, "L")
    assert ready == (RESULT, {"id": 0, "error": None})
    assert [(kind, said["id"], said["value"]) for kind, said in (first, exposed, third)] == [
        (RESULT, 1, 2),
        (RESULT, 2, None),
        (RESULT, 3, 42),
    ]
    assert call == (CALLBACK, {"id": 1, "name": "ask", "args": ["x"], "kwargs": {}})
    work, program = last[1]["value"]
    assert work.startswith(folder)
    assert work.endswith("\\work")
    assert program == work.removesuffix("work") + r"app\python\python.exe"


def test_an_archive_starts_one_where_it_is_unpacked(wine: Wine, tmp_path: Path) -> None:
    """W70, W64: the archive has every part; unpacked elsewhere, with these bytes, its worker starts.

    So does its library, which refuses here as the one that was built does, and finds its helper.
    """
    (packed,) = (wine.work / "archive").iterdir()
    assert archive.problems(packed) == []
    (tmp_path / "elsewhere").mkdir()
    subprocess.run(["tar", "-xf", packed, "-C", tmp_path / "elsewhere"], check=True)
    (tree,) = (tmp_path / "elsewhere").iterdir()
    manifest = json.loads((tree / "manifest.json").read_bytes())
    files = {each["path"]: each["sha256"] for each in manifest["files"]}
    assert files.keys() > {"bin/uv.exe", "bin/visjail.dll", "bin/_visconsole.pyd"}
    for name, digest in files.items():
        assert hashlib.sha256((tree / name).read_bytes()).hexdigest() == digest, name
    assert (tree / "lib/worker/start.py").read_text() == LOAD
    assert (tree / "lib/worker/bootstrap").read_bytes() == bootstrap(same_as_host=False)
    said = act(wine, "conversation", tmp_path, tree / "bin", tree / "python")
    assert said == conversation_of(tree / "python")
    # Without the guard of consoles, or what its core asks for, none starts.
    for missing in ("bin/_visconsole.pyd", "python/python3.dll"):
        there, away = tree / missing, tmp_path / "away"
        there.rename(away)
        (tmp_path / "result.txt").unlink(missing_ok=True)
        with pytest.raises(AssertionError):
            act(wine, "conversation", tmp_path, tree / "bin", tree / "python")
        away.rename(there)
    shutil.copyfile(wine.binaries / "windows_probe.exe", tree / "bin" / "windows_probe.exe")
    program = str(tree / "bin" / "windows_probe.exe")
    answer = wine.run(program, wine.folder()[0], "unavailable")
    assert answer.lines[-1] == "ok unavailable"
    assert "desktops" not in answer.lines[0]

"""`Runtime` in a `WindowsJail`, by this package in a real CPython of Windows.

Of the jail all is real but the AppContainer, which wine has not.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from wine_helpers import only_in_the_lane, windows_name

if TYPE_CHECKING:
    from wine_helpers import Wine

only_in_the_lane()

HOST = Path(__file__).parent.parent / "scripts" / "runtime_host.py"


def act(wine: Wine, name: str, folder: Path) -> list[str]:
    """Have the host act; return the lines of its result."""
    shutil.copyfile(HOST, folder / "runtime_host.py")
    places = [windows_name(place) for place in (wine.work / "host", folder)]
    code = f"import sys; sys.path[:0] = {places}; import runtime_host; runtime_host.main()"
    jails, _ = wine.folder()
    program = str(wine.work / "python" / "python.exe")
    answer = wine.run(program, "-c", code, name, jails, cwd=folder)
    assert answer.code == 0, "\n".join([*answer.lines, *answer.aside])
    return (folder / "result.txt").read_text("utf-8").splitlines()


def test_the_verbs_of_a_runtime(wine: Wine, tmp_path: Path) -> None:
    """W64: staged by the public interface, the worker has the verbs, values and refusals promised."""
    assert act(wine, "verbs", tmp_path) == [
        "state open",
        "run 42 ['h\xe4llo'] ['err']",
        "report windows 5",
        "where True",
        "call 42 win32",
        "set {'a': [1, 2.5, None, b'x']}",
        "error FileNotFoundError",
        "callback 6",
        "asked NAME? ",
        "displayed ['7']",
        "large True",
        "output 1000002",
        "written 4",
        "events ['stdout', 'result'] 5",
        "pause PolicyUnsupported pause",
        "resume PolicyUnsupported resume",
        "stacks PolicyUnsupported stacks",
        "ping PolicyUnsupported ping",
        "fork ForkRefused None",
        "stdin PolicyUnsupported stdin",
        "cpu PolicyUnsupported timeouts.cpu",
        "policy JailUnavailable None",
        "closed closed ['work']",
    ]


def test_the_ends_of_runs_and_workers(wine: Wine, tmp_path: Path) -> None:
    """W35, W64: a run is broken where it can be, else its worker is ended; each end is told apart."""
    assert act(wine, "ends", tmp_path) == [
        "loop wall False True",
        "sleep wall False True",
        "call callback False True",
        "interrupted True 1",
        "stubborn True ['signal', 'stacks', 'kill']",
        "fresh NameError",
        "died 7 ['last'] None",
        "crash 3 True",
        "killed killed",
        "again 2",
        "closed closed ['work']",
    ]


def test_what_a_worker_has_started_goes_with_it(wine: Wine, tmp_path: Path) -> None:
    """W36, W64: no process of a guest may outlive the runtime."""
    assert act(wine, "children", tmp_path) == ["alive True", "gone False", "closed closed ['work']"]

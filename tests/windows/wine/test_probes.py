"""WindowsJail from create to close, by its own public interface, over wine.

``windows_lane.exe`` is the host of the probes with the library's objects and another table, in
which what wine lacks is replaced (tests/native/windows/lane_table.c). ``windows_probe.exe`` is the
same host with visjail.dll as it is shipped, which has to refuse here.
"""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

from wine_helpers import only_in_the_lane

if TYPE_CHECKING:
    from pathlib import Path

    from wine_helpers import Wine

only_in_the_lane()


def passes(wine: Wine, *probes: str) -> bool:
    """Run probes over the lane's table, each of which has to say that it passed."""
    answer = wine.run("windows_lane.exe", wine.folder()[0], *probes)
    said = [line for line in answer.lines if line.startswith("ok ")]
    assert said == [f"ok {probe}" for probe in probes], "\n".join([*answer.lines, *answer.aside])
    return answer.code == 0


def test_the_shipped_library_refuses(wine: Wine) -> None:
    """W1, W67: visjail.dll makes no context here, names what is missing, and leaves no file."""
    windows, place = wine.folder()
    answer = wine.run("windows_probe.exe", windows, "unavailable")
    assert answer.code == 0, answer.lines
    for name in ("AppContainer profiles", "LPAC", "SECURITY_CAPABILITIES", "limits of jobs"):
        assert name in answer.lines[0]
    assert list(place.iterdir()) == []


def test_exactly_what_was_given(wine: Wine) -> None:
    """W5, W6, W7, W8, W35: arguments, environment and folder are the caller's; codes have 32 bits."""
    assert passes(wine, "exact")


def test_staging(wine: Wine) -> None:
    """W15, W18, W19: copies are private, no odd name gets in, and sources keep their descriptors."""
    assert passes(wine, "copies")


def test_odd_sources(wine: Wine) -> None:
    """W16, W17: no device, share or relative path is a source, and no file that somebody writes."""
    assert passes(wine, "odd-sources")


def test_links_are_no_sources(wine: Wine) -> None:
    """W17: no folder with a link in it is staged; a plain folder is the control."""
    windows, place = wine.folder()
    for name in ("linked", "plain", "elsewhere"):
        (place / name).mkdir()
        (place / name / "file.txt").write_text("text")
    (place / "linked" / "link").symlink_to(place / "elsewhere")
    answer = wine.run("windows_lane.exe", windows, "linked-sources")
    assert answer.lines == ["ok linked-sources"]


def test_output_stays(wine: Wine) -> None:
    """W23: what a guest wrote stays for the host; what was staged for it does not."""
    assert passes(wine, "own-files")


def test_descendants(wine: Wine) -> None:
    """W30, W34: ordinary descendants start, and none leaves the job."""
    assert passes(wine, "ordinary-descendants", "break-away")


def test_ends(wine: Wine) -> None:
    """W35, W36: no descendant outlives a kill, a wait or the end of its context."""
    assert passes(wine, "ends")


def test_the_host_dies(wine: Wine) -> None:
    """W24, W36: guests of a dead host are gone, and what it left is found and removed."""
    assert passes(wine, "host-dies")


def test_handles(wine: Wine) -> None:
    """W40: an inheritable handle of the host is no handle in the guest."""
    assert passes(wine, "handles")


def test_planted_library(wine: Wine) -> None:
    """W63: a file beside the work of a guest does not become a library of the system."""
    assert passes(wine, "libraries")


def test_streams(wine: Wine) -> None:
    """W42, W44: all output arrives; bytes go there and back; a stream that was closed is stale."""
    assert passes(wine, "pour", "round-trip")


def test_back_pressure_of_pipes(wine: Wine) -> None:
    """W45: 4 x 4 guests that flood and do not read are closed, each within 20 seconds."""
    assert passes(wine, "pipe-pressure")


def test_console(wine: Wine) -> None:
    """W44, W48: a console has its size, input and output; finite ones keep their last line."""
    assert passes(wine, "console", "marks")


def test_closed_from_eight_threads(wine: Wine) -> None:
    """W68: eight threads that close at once agree on it, and nothing hangs."""
    assert passes(wine, "close-at-once")


def test_close_waits_for_streams(wine: Wine) -> None:
    """W42, W43: no reader is left behind by the end of its stream or of its context."""
    assert passes(wine, "waits-for-streams")


def test_abandoned_output(wine: Wine) -> None:
    """W50: a flooding terminal whose output nobody has any more holds nothing up."""
    assert passes(wine, "abandoned-output")


def test_an_end_that_fails(wine: Wine) -> None:
    """W52: a context that could not be taken away does nothing but be closed again, which works."""
    assert passes(wine, "second-close")


def test_no_handle_is_left(wine: Wine) -> None:
    """W66: contexts with running, closed and flooding guests leave no handle in the host."""
    assert passes(wine, "leaves-no-handle")


def test_from_another_folder(wine: Wine, tmp_path: Path) -> None:
    """W63: a copy elsewhere has the same bytes, finds its helper beside it, and does the same."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(wine.binaries, copy)
    for name in ("visjail.dll", "visjail-desktop.exe", "windows_guest.exe"):
        here, there = ((folder / name).read_bytes() for folder in (wine.binaries, copy))
        assert hashlib.sha256(here).digest() == hashlib.sha256(there).digest()
    answer = wine.run(str(copy / "windows_probe.exe"), wine.folder()[0], "unavailable")
    # The helper is there, so it is not among what is missing.
    assert answer.lines[-1] == "ok unavailable"
    assert "desktops" not in answer.lines[0]
    answer = wine.run(str(copy / "windows_lane.exe"), wine.folder()[0], "exact", "own-files")
    assert answer.lines == ["ok exact", "ok own-files"]
    (copy / "visjail-desktop.exe").unlink()
    answer = wine.run(str(copy / "windows_probe.exe"), wine.folder()[0], "unavailable")
    assert "private desktops with their helper program" in answer.lines[0]

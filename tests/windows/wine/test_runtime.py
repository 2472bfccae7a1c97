"""`Runtime` in a `WindowsJail`, by this package in a real CPython of Windows.

Of the jail all is real but the AppContainer, which wine has not. What each act has to say is in the
script, which the workflow of Windows runs, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wine_helpers import only_in_the_lane, windows_name

if TYPE_CHECKING:
    from wine_helpers import Wine

only_in_the_lane()

SECONDS = 150
"""An act starts up to six workers, one after the other."""
SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.mark.parametrize("act", ["verbs", "ends", "children", "pools", "tasks"])
def test_a_runtime_in_a_windows_jail(wine: Wine, tmp_path: Path, act: str) -> None:
    """W35, W36, W64: staged by the public interface, it has the verbs, ends and refusals promised.

    So have pools and executors of them, from threads and from a loop.
    """
    places = [windows_name(place) for place in (wine.work / "host", SCRIPTS)]
    code = (
        f"import sys; sys.path[:0] = {places}; import runtime_host; sys.exit(runtime_host.main())"
    )
    jails, _ = wine.folder()
    program = str(wine.work / "python" / "python.exe")
    answer = wine.run(program, "-c", code, act, jails, cwd=tmp_path, seconds=SECONDS)
    assert answer.code == 0, "\n".join([*answer.lines, *answer.aside])
    assert len(answer.lines) >= 3
